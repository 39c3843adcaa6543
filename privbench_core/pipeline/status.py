"""The status of a benchmark: what is out of date at each ε and why, what a refresh costs, how often it can be paid.

Worked out from what is written down alone: what each step was made from (`Manifest`), against what its inputs are and
what the source was when it was last observed. A command, a sensor and a check get the same answer, and it does not
matter when or in what order things changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

from privbench_core.errors import first_of
from privbench_core.pipeline import run_name
from privbench_core.pipeline.account_status import AccountStatus, Cost, standing
from privbench_core.pipeline.record import Manifest, definition_of, read_manifests, run_label, step_name
from privbench_core.pipeline.runner import Run, Runner
from privbench_core.pipeline.snapshot import Observed
from privbench_core.pipeline.workspace import Workspace
from privbench_core.privacy.ledger.ledger import Ledger
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Key, Plan, Step, StepKind


@dataclass(frozen=True)
class Stale:
    """A step that is out of date.

    Attributes:
        step: The step.
        changed: Tables of the source that changed after it, or a step before it, read them.
        inputs: Steps before it that were made again since, or are about to be because of a change.
        edited: Whether the spec or the code changed what it is made with.
        missing: Whether it was never made.
        blocked: Why it cannot be made now although something changed; "" if it can.
    """

    step: Step
    changed: tuple[str, ...] = ()
    inputs: tuple[Key, ...] = ()
    edited: bool = False
    missing: bool = False
    blocked: str = ""

    @property
    def by_change(self) -> bool:
        """Whether a change of the source or of a step before it made it stale: no edit, and no first release."""
        return bool(self.changed or self.inputs) and not self.missing

    def in_words(self) -> str:
        """Return why it is stale: "person changed"."""
        if self.missing:
            return "never made"
        if self.changed:
            return f"{', '.join(self.changed)} changed"
        if self.edited:
            return "the spec or the code changed"
        return f"{', '.join(map(step_name, self.inputs))} made again"


@dataclass(frozen=True)
class ReleaseState:
    """How far one ε is.

    Attributes:
        epsilon: As files and partitions call it.
        plan: Its plan.
        made: The manifest of each step that was made.
        stale: The steps that are out of date, in the order of the plan.
        source: Keyed hash of the observed source: the same if and only if all tables are.
        by_run: The same of the last ``privbench run``, whose bundle is elsewhere; None if there was none.
    """

    epsilon: str
    plan: Plan
    made: Mapping[Key, Manifest]
    stale: tuple[Stale, ...]
    source: str
    by_run: ReleaseState | None = None

    @property
    def shown(self) -> ReleaseState:
        """This state, or while nothing is released here, that of the last run if there was one."""
        return self if self.released else self.by_run or self

    @property
    def bundle(self) -> Manifest | None:
        """What the last bundle was made from; None if there is none of this synthesizer."""
        found = ((step, self.made.get(step.key)) for step in self.plan.steps if step.kind is StepKind.PUBLISH)
        return next((made for step, made in found if made is not None and made.is_of(self.plan, step)), None)

    @property
    def released(self) -> bool:
        """Whether there was a bundle at this ε, of this synthesizer: until then, to make one is a person's decision."""
        return self.bundle is not None

    @cached_property
    def pending(self) -> tuple[Step, ...]:
        """The steps that follow from a change and can be made now."""
        return tuple(s.step for s in self.stale if s.by_change and not s.blocked) if self.released else ()

    @cached_property
    def outdated(self) -> tuple[Step, ...]:
        """All steps that are stale for any reason, and those behind them: what a person who asks for a refresh gets."""
        keys = {stale.step.key for stale in self.stale}
        for step in self.plan.steps:
            if keys.intersection(step.inputs):
                keys.add(step.key)
        return tuple(step for step in self.plan.steps if step.key in keys)

    @property
    def up_to_date(self) -> bool:
        """Whether there is a bundle, made from the source as it is and the spec as it is."""
        return self.released and not self.stale

    def why(self) -> str:
        """Say why it is out of date, or not to be made without being asked for; "" if it is up to date."""
        if not self.released:
            other = any(step.kind is StepKind.PUBLISH and step.key in self.made for step in self.plan.steps)
            by = f" with {self.plan.synthesizer}" if other else ""
            todo = f"materialise it in Dagster, or run privbench refresh --epsilon {self.epsilon}"
            if self.by_run is not None and self.by_run.bundle is not None:
                return f"released by privbench run on {self.by_run.bundle.at[:10]}. To have it refreshed, {todo}"
            return f"never released{by}: the first release is your decision; {todo}"
        changed = dict.fromkeys(table for s in self.stale if not s.missing for table in s.changed)
        causes = [f"{', '.join(changed)} changed"] if changed else []
        again = dict.fromkeys(step_name(key) for s in self.stale if not s.changed for key in s.inputs if s.by_change)
        stale = {step_name(s.step.key) for s in self.stale}
        causes += [f"{name} was made again" for name in again if name not in stale]
        edited = [step_name(s.step.key) for s in self.stale if s.edited or s.missing]
        causes += [f"the spec or the code of {first_of(edited, 1)} changed"] if edited else []
        causes += list(dict.fromkeys(s.blocked for s in self.stale if s.blocked))
        return "; ".join(causes)


@dataclass(frozen=True)
class Status:
    """The status of a benchmark.

    Attributes:
        states: Of every ε.
        unpaid: The outdated steps of every ε that no run has bought yet.
        account: Of the cohort.
        pending: What follows from changes, at all ε.
        outdated: That, what follows from edits of the spec or the code, and what a new run would buy.
        first: What is still to be bought for a release at every ε.
    """

    states: Mapping[str, ReleaseState]
    unpaid: Mapping[str, tuple[Step, ...]]
    account: AccountStatus
    pending: Cost
    outdated: Cost
    first: Cost

    @property
    def bought(self) -> tuple[str, ...]:
        """The ε that are not released here and cost nothing more, because a run has bought all of their steps."""
        return tuple(e for e, state in self.states.items() if not (state.released or self.unpaid[e]))

    def headline(self) -> str:
        """Return what to know first, in one line."""
        released = {
            epsilon if state.released else f"{epsilon} (by privbench run)": state.shown
            for epsilon, state in self.states.items()
            if state.shown.released
        }
        if not released:
            return f"nothing released yet; a release at all ε {self.first.in_words()}"
        stale = {epsilon: state.why() for epsilon, state in released.items() if not state.up_to_date}
        if not stale:
            return f"up to date at {', '.join(released)}; a refresh of all ε {self.account.whole.in_words()}"
        causes: dict[str, list[str]] = {}
        for epsilon, why in stale.items():
            causes.setdefault(why, []).append(epsilon)
        said = "; ".join(f"at {', '.join(epsilons)}: {why}" for why, epsilons in causes.items())
        cost = self.pending if any(state.pending for state in self.states.values()) else self.outdated
        return f"stale {said}; refreshing {cost.in_words()}"


def status_of(
    spec: Spec, ledger: Ledger, plans: Mapping[str, Plan], observed: Mapping[str, str], workspace: Workspace | None
) -> Status:
    """Return the status of a spec's benchmark; without a workspace, that of one that was never run."""

    def cost(steps: Mapping[str, Iterable[Step]]) -> Cost:
        return Cost.of(spec, ledger, "the refresh", ((plans[epsilon], chosen) for epsilon, chosen in steps.items()))

    states = staleness(spec, plans, observed)
    unpaid = {epsilon: _unpaid(workspace, state, observed) for epsilon, state in states.items()}
    released = {epsilon: state for epsilon, state in states.items() if state.released}
    return Status(
        states,
        unpaid,
        standing(spec, ledger, plans.values()),
        pending=cost({e: [step for step in state.pending if step in unpaid[e]] for e, state in released.items()}),
        outdated=cost({epsilon: unpaid[epsilon] for epsilon, state in states.items() if state.shown.released}),
        first=cost(unpaid),
    )


def _unpaid(workspace: Workspace | None, state: ReleaseState, observed: Mapping[str, str]) -> tuple[Step, ...]:
    """Return the outdated steps of one ε that a refresh has still to buy: those that no run has bought.

    `staleness` says what is to be made again, as far as *this front end's* manifests go; whether it is paid for again
    is decided by the store of releases alone, as when it runs. So a bundle that ``privbench run`` wrote elsewhere is
    not a release of the state folder, but what it bought costs nothing here.
    """
    if workspace is None:
        return tuple(step for step in state.outdated if step.reads)
    steps = {step.key for step in state.outdated}
    others = {key: manifest.digest for key, manifest in state.made.items() if key not in steps}
    run = Run(run_name(state.plan.budget.epsilon))
    return Runner(workspace, state.plan, run, snapshot=Observed(observed)).unpaid(steps, others)


def staleness(spec: Spec, plans: Mapping[str, Plan], observed: Mapping[str, str]) -> dict[str, ReleaseState]:
    """Return the state of every ε by the manifests; tables that were never observed count as unchanged.

    Raises:
        ReleaseError: A manifest is damaged.
    """
    text = "\x1f".join(f"{table.name}={observed.get(table.name, '')}" for table in spec.schema.tables)
    source = blake2b(text.encode(), digest_size=8).hexdigest()

    def state(epsilon: str, label: str, by_run: ReleaseState | None = None) -> ReleaseState:
        made = read_manifests(spec, plans[epsilon], label)
        return ReleaseState(epsilon, plans[epsilon], made, _stale(plans[epsilon], made, observed), source, by_run)

    ran = {epsilon: state(epsilon, run_label(epsilon)) for epsilon in plans}
    return {epsilon: state(epsilon, epsilon, ran[epsilon] if ran[epsilon].released else None) for epsilon in plans}


def _stale(plan: Plan, made: Mapping[Key, Manifest], observed: Mapping[str, str]) -> tuple[Stale, ...]:
    found: dict[Key, Stale] = {}
    for step in plan.steps:
        state = _compare(plan, step, made, observed, found)
        if state.missing or state.edited or state.by_change:
            found[step.key] = state
    return tuple(found.values())


def _compare(
    plan: Plan, step: Step, made: Mapping[Key, Manifest], observed: Mapping[str, str], before: Mapping[Key, Stale]
) -> Stale:
    """Compare a step with the source and its inputs, given which steps before it are stale."""
    blocked = _blocked(step, made, before)
    manifest = made.get(step.key)
    if manifest is None:
        return Stale(step, missing=True)
    changed = tuple(
        table for table, seen in sorted(manifest.sources.items()) if table in observed and observed[table] != seen
    )
    inputs = tuple(
        key
        for key in step.inputs
        if (key in before and before[key].by_change)
        or (key in made and made[key].digest != manifest.inputs.get(step_name(key)))
    )
    edited = manifest.definition != definition_of(plan, step)
    return Stale(step, changed, inputs, edited, blocked=blocked if changed or inputs else "")


def _blocked(step: Step, made: Mapping[Key, Manifest], before: Mapping[Key, Stale]) -> str:
    """Return why a step cannot be made from its inputs as they are or will be."""
    missing = [key for key in step.inputs if key not in made]
    if missing:
        return f"{first_of([step_name(key) for key in missing], 1)} {'was' if len(missing) == 1 else 'were'} never made"
    for key in step.inputs:
        stale = before.get(key)
        if stale is not None and stale.by_change:
            if stale.blocked:
                return stale.blocked
        elif step.kind is StepKind.PUBLISH and made[key].failed:
            return f"{step_name(key)}: {made[key].failed} expectations do not hold"
    return ""
