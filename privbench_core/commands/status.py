"""``privbench status`` and ``privbench refresh``: what is stale at which ε, what it costs, and making it again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from privbench_core.commands import print_json, say, show, subject
from privbench_core.commands.ledger import lifetime_as_data, reading_ledger, refreshes_as_data, report_refreshes
from privbench_core.commands.run import report_bundle, report_fidelity, watched
from privbench_core.errors import SourceError, SpecError
from privbench_core.pipeline import plans_for
from privbench_core.pipeline.account_status import Cost, lifetime_share
from privbench_core.pipeline.executor import fidelity_of, prices_paid, refresh_release, rows_of
from privbench_core.pipeline.snapshot import observe, observe_each
from privbench_core.pipeline.status import ReleaseState, Status, status_of
from privbench_core.pipeline.workspace import Workspace, bundle_folder, database_folder, epsilon_name
from privbench_core.privacy.budget import zero
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Plan, Step


def show_status(path: Path, *, as_json: bool) -> None:
    """Look at the source, and print the state of every ε."""
    spec = load_spec(path)
    status, broken = _look(spec, plans_for(spec))
    if as_json:
        print_json(_as_data(spec, status, broken))
        return
    say(f"{spec.schema.name}: {status.headline()}", style="bold")
    rows = [_row(spec, state, status.unpaid[state.epsilon]) for state in status.states.values()]
    show("Releases", [">ε", "state", "released", "why", ">steps to make", ">price at most", "bundle"], rows)
    for state in status.states.values():
        if not state.released:
            say(f"ε={state.epsilon}: {state.why()}.")
    for table, error in broken.items():
        say(f"{table} could not be observed: {error}")
    report_refreshes(spec, status.account)


def refresh_stale(path: Path, epsilon: float | None, *, dry_run: bool, accept_noise: bool = False) -> None:
    """Refresh every ε that was released, or make ``epsilon``, and print what was made.

    Raises:
        SpecError: The spec does not name ``epsilon``.
    """
    spec = load_spec(path)
    spec = spec.accepting_noise if accept_noise else spec
    plans = plans_for(spec)
    chosen = None if epsilon is None else epsilon_name(epsilon)
    if chosen is not None and chosen not in plans:
        raise SpecError(
            f"--epsilon: {chosen} is not among privacy.epsilons ({', '.join(plans)}); add it there, or write a bundle"
            " elsewhere with privbench run"
        )
    if dry_run or (chosen is None and not database_folder(spec).exists()):
        status, broken = _look(spec, plans)
        for error in broken.values():
            raise error
        _choose(spec, status, chosen)
        return
    with closing(Workspace(spec)) as workspace:
        _refresh(workspace, plans, chosen)


def _look(spec: Spec, plans: Mapping[str, Plan]) -> tuple[Status, dict[str, SourceError]]:
    """Return the status by the source as it is now, and which tables could not be read.

    Nothing is read, and no state folder made, if there was never a run.
    """
    if not database_folder(spec).exists():
        with reading_ledger(spec) as ledger:
            return status_of(spec, ledger, plans, {}, None), {}
    with closing(Workspace(spec)) as workspace:
        observed, broken = observe_each(workspace, [table.name for table in spec.schema.tables])
        return status_of(spec, workspace.ledger, plans, observed, workspace), broken


def _refresh(workspace: Workspace, plans: Mapping[str, Plan], chosen: str | None) -> None:
    spec = workspace.spec
    observed = observe(workspace, [table.name for table in spec.schema.tables])
    for state in _choose(spec, status_of(spec, workspace.ledger, plans, observed, workspace), chosen):
        with watched(workspace) as progress:
            made = refresh_release(workspace, state, progress)
        paid = prices_paid(made)
        share = f"{lifetime_share(workspace.ledger.lifetime, paid):.2%} of the lifetime budget"
        total = sum(paid, start=zero(state.plan.budget.measure))
        cost = f"paid {share} ({total})" if paid else "nothing was paid, because all results were bought before"
        say(f"ε={state.epsilon}: {cost}. Bundle: {bundle_folder(spec, state.epsilon)}")
        verdicts, lost = fidelity_of(made)
        report_bundle(f"Bundle at ε={state.epsilon}", rows_of(made), verdicts)
        report_fidelity(verdicts, lost)
    status = status_of(spec, workspace.ledger, plans, observed, workspace)
    say(f"{spec.schema.name}: {status.headline()}", style="bold")


def _choose(spec: Spec, status: Status, chosen: str | None) -> list[ReleaseState]:
    """Return the states to refresh; prints what will be made at each."""
    states = status.states.values()
    if chosen is None and not any(state.released for state in states):
        bought = ", ".join(status.bought)
        free = f" At ε={bought} it costs nothing: privbench run has already paid for it." if bought else ""
        todo = f"The first release is your decision: pass --epsilon.{free}"
        say(f"{spec.schema.name}: nothing was released here yet. {todo}")
        return []
    found = [state for state in states if (state.released if chosen is None else state.epsilon == chosen)]
    stale = [state for state in found if state.outdated]
    for state in stale:
        why = {late.step.key: late.in_words() for late in state.stale}
        unpaid = status.unpaid[state.epsilon]
        rows = [
            [str(step.kind), subject(step), why.get(step.key, "follows"), _price_in_words(state.plan, [step], unpaid)]
            for step in state.outdated
        ]
        footer = ["at most", "", "", _price_in_words(state.plan, state.outdated, unpaid)]
        title = f"{spec.schema.name} at ε={state.epsilon}"
        show(title, ["stage", "table or key", "why", ">price"], rows, footer=footer)
    for state in found:
        if state not in stale:
            say(f"ε={state.epsilon}: up to date.")
    for state in states if chosen is None else ():
        if not state.released:
            say(f"ε={state.epsilon}: {state.why()}.")
    return stale


def _state_in_words(state: ReleaseState) -> str:
    """Return "up to date", "stale" or "never released"."""
    if not state.released:
        return "never released"
    return "up to date" if state.up_to_date else "stale"


def _price_in_words(plan: Plan, steps: Iterable[Step], unpaid: Collection[Step]) -> str:
    """Return what is still to be bought of some steps, at most; "free" if they read no private row."""
    steps = tuple(steps)
    total = sum((step.price for step in steps if step in unpaid), start=zero(plan.budget.measure))
    if total.amount:
        return str(total)
    return "bought before" if any(step.reads for step in steps) else "free"


def _row(spec: Spec, state: ReleaseState, unpaid: Collection[Step]) -> list[str]:
    shown, released = state.shown, _released_as_data(spec, state)
    steps = shown.outdated
    return [
        state.epsilon,
        _state_in_words(shown),
        f"{released['released_at'][:10]}{', by privbench run' * (shown is not state)}" if shown.released else "",
        shown.why() if shown.released else "",
        str(len(steps)) if steps else "",
        _price_in_words(state.plan, steps, unpaid) if steps else "",
        released["bundle"] or "",
    ]


def _released_as_data(spec: Spec, state: ReleaseState) -> dict[str, Any]:
    """Return when the last bundle was made, and its folder if it is still there."""
    made = state.shown.bundle
    here = state.shown is state
    folder = bundle_folder(spec, state.epsilon) if here or made is None else Path(made.out)
    return {"released_at": made.at if made else None, "bundle": str(folder) if folder.exists() else None}


def _as_data(spec: Spec, status: Status, broken: Mapping[str, SourceError]) -> dict[str, Any]:
    return {
        "database": spec.schema.name,
        "headline": status.headline(),
        "releases": [_state_as_data(spec, state, status.unpaid[state.epsilon]) for state in status.states.values()],
        "unreadable": {table: str(error) for table, error in broken.items()},
        "pending": _cost_as_data(status.pending),
        "outdated": _cost_as_data(status.outdated),
        "lifetime": lifetime_as_data(status.account, left=status.account.balance.left),
        "refreshes": refreshes_as_data(spec, status.account),
    }


def _state_as_data(spec: Spec, state: ReleaseState, unpaid: Collection[Step]) -> dict[str, Any]:
    shown, pending = state.shown, {step.key for step in state.pending}
    return {
        "epsilon": state.plan.budget.epsilon,
        "state": _state_in_words(shown),
        "why": shown.why(),
        **_released_as_data(spec, state),
        "stale": [
            {
                "step": list(stale.step.key),
                "why": stale.in_words(),
                "pending": stale.step.key in pending,
                "blocked": stale.blocked or None,
                "price": {
                    "amount": stale.step.price.amount if stale.step in unpaid else 0.0,
                    "delta": stale.step.price.delta if stale.step in unpaid else 0.0,
                },
            }
            for stale in shown.stale
        ],
    }


def _cost_as_data(cost: Cost) -> dict[str, Any]:
    return {"share_of_lifetime": cost.share, "times": cost.times, "refusal": cost.refusal}
