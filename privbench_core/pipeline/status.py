"""The status of a benchmark in one place: what is stale, what a refresh costs, how often that can still be paid."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from privbench_core.pipeline.account_status import AccountStatus, affordable, lifetime_share, standing
from privbench_core.pipeline.manifest import step_name
from privbench_core.pipeline.plans import run_name
from privbench_core.pipeline.runner import Run, Runner
from privbench_core.pipeline.snapshot import Observed
from privbench_core.pipeline.staleness import ReleaseState, staleness
from privbench_core.pipeline.workspace import Workspace
from privbench_core.privacy.budget import Price
from privbench_core.privacy.ledger.ledger import Ledger
from privbench_core.privacy.ledger.refresh_limits import Purchase
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Plan, Step


@dataclass(frozen=True)
class Cost:
    """What some steps that are still to be bought cost.

    Attributes:
        prices: By run and step.
        share: Of the lifetime budget, in [0, 1] or above.
        times: How often they could be paid for, one time after the other.
        refusal: Why they cannot be paid for even once; None if they can.
    """

    prices: Mapping[Purchase, Price]
    share: float
    times: int
    refusal: str | None

    def in_words(self) -> str:
        """The share and how many times: "costs 4.6% of the lifetime, about 17 more possible"."""
        if not self.prices:
            return "costs nothing"
        if self.refusal is not None:
            return f"costs {self.share:.1%} of the lifetime, which is more than is left"
        return f"costs {self.share:.1%} of the lifetime, about {self.times:,} more possible"


@dataclass(frozen=True)
class Status:
    """The status of a benchmark.

    Attributes:
        states: Of every ε.
        unpaid: The outdated steps of every ε that are still to be bought, see `unpaid_steps`.
        account: Of the cohort.
        pending: What follows from changes, at all ε.
        outdated: That, and what follows from edits of the spec or the code.
        first: What is still to be bought for a release at every ε.
        whole: A refresh of all ε after a change of everything.
    """

    states: Mapping[str, ReleaseState]
    unpaid: Mapping[str, tuple[Step, ...]]
    account: AccountStatus
    pending: Cost
    outdated: Cost
    first: Cost
    whole: Cost

    @property
    def bought(self) -> tuple[str, ...]:
        """The ε that are not released here and cost nothing more, because a run has bought all of their steps."""
        return tuple(e for e, state in self.states.items() if not (state.released or self.unpaid[e]))

    def headline(self) -> str:
        """What to know first, in one line."""
        released = {epsilon: state for epsilon, state in self.states.items() if state.released}
        if not released:
            bought = ", ".join(self.bought)
            where = f" here, though a run has bought {bought} for a bundle elsewhere" if bought else " yet"
            return f"nothing released{where}; a release at all ε {self.first.in_words()}"
        stale = {epsilon: state.why() for epsilon, state in released.items() if not state.up_to_date}
        if not stale:
            return f"up to date at {', '.join(released)}; a refresh of all ε {self.whole.in_words()}"
        causes: dict[str, list[str]] = {}
        for epsilon, why in stale.items():
            causes.setdefault(why, []).append(epsilon)
        said = "; ".join(f"at {', '.join(epsilons)}: {why}" for why, epsilons in causes.items())
        cost = self.pending if any(state.pending for state in released.values()) else self.outdated
        return f"stale {said}; refreshing {cost.in_words()}"


def status_of(
    spec: Spec, ledger: Ledger, plans: Mapping[str, Plan], observed: Mapping[str, str], workspace: Workspace | None
) -> Status:
    """The status of a spec's benchmark.

    Args:
        spec: The spec.
        ledger: Of the database.
        plans: The plan of each ε, by name.
        observed: Fingerprint of each table of the source when it was last looked at.
        workspace: Holds what was bought; None if there was never a run.
    """
    states = staleness(spec, plans, observed)
    unpaid = {epsilon: unpaid_steps(workspace, state, observed) for epsilon, state in states.items()}
    released = [state for state in states.values() if state.released]
    return Status(
        states,
        unpaid,
        standing(spec, ledger, plans.values()),
        cost_of(
            spec, ledger, {s.epsilon: (s.plan, [p for p in s.pending if p in unpaid[s.epsilon]]) for s in released}
        ),
        cost_of(spec, ledger, {s.epsilon: (s.plan, unpaid[s.epsilon]) for s in released}),
        cost_of(spec, ledger, {epsilon: (state.plan, unpaid[epsilon]) for epsilon, state in states.items()}),
        cost_of(spec, ledger, {epsilon: (plan, plan.steps) for epsilon, plan in plans.items()}),
    )


def unpaid_steps(workspace: Workspace | None, state: ReleaseState, observed: Mapping[str, str]) -> tuple[Step, ...]:
    """The outdated steps of one ε that a refresh has still to buy: not those that any run has bought from these inputs.

    `staleness` says what is to be made again, as far as *this front end's* manifests go; whether it is paid for again
    is decided by the store of releases alone, as when it runs. So a bundle that ``privbench run`` wrote elsewhere is
    not a release of the state folder, but what it bought costs nothing here.

    Args:
        workspace: Holds what was bought; None if there was never a run.
        state: Of the ε.
        observed: Fingerprint of each table of the source when it was last looked at.
    """
    if workspace is None:
        return tuple(step for step in state.outdated if step.reads)
    steps = {step.key for step in state.outdated}
    others = {key: manifest.digest for key, manifest in state.made.items() if key not in steps}
    run = Run(run_name(state.plan.budget.epsilon))
    return Runner(workspace, state.plan, run, snapshot=Observed(workspace, observed)).unpaid(steps, others)


def cost_of(spec: Spec, ledger: Ledger, steps: Mapping[str, tuple[Plan, Iterable[Step]]]) -> Cost:
    """What some steps cost, by ε."""
    prices = {
        (run_name(plan.budget.epsilon), step_name(step.key)): step.price
        for plan, chosen in steps.values()
        for step in chosen
        if step.reads
    }
    times, refusal = affordable(spec, ledger, "the refresh", prices)
    return Cost(prices, lifetime_share(ledger.lifetime, prices.values()), times, refusal)
