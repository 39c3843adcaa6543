"""``privbench status``: what is stale at which ε, what a refresh costs, what is left."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from privbench_core.commands.lifetime import raises_as_data, reading_ledger, refreshes_as_data
from privbench_core.commands.plan import tell_refreshes
from privbench_core.commands.terminal import finite, print_json, say, show
from privbench_core.errors import SourceError
from privbench_core.pipeline.observe import observe_each
from privbench_core.pipeline.places import bundle_folder, database_folder
from privbench_core.pipeline.plans import plans_for
from privbench_core.pipeline.staleness import ReleaseState
from privbench_core.pipeline.status import Cost, Status, status_of
from privbench_core.pipeline.workspace import Workspace
from privbench_core.privacy.budget import zero
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Plan, Step


def show_status(path: Path, *, as_json: bool) -> None:
    """Look at the source, and print the state of every ε."""
    spec = load_spec(path)
    plans = plans_for(spec)
    with looked_at(spec) as (workspace, observed, broken), reading_ledger(spec) as ledger:
        status = status_of(spec, ledger, plans, observed, workspace)
    if as_json:
        print_json(_as_data(spec, status, broken))
        return
    say(f"{spec.schema.name}: {status.headline()}", style="bold")
    rows = [_row(spec, state, status.unpaid[state.epsilon]) for state in status.states.values()]
    show("Releases", [">ε", "state", "why", ">steps to make", ">price at most", "bundle"], rows)
    for table, error in broken.items():
        say(f"{table} could not be looked at: {error}")
    tell_refreshes(spec, status.account)


@contextmanager
def looked_at(spec: Spec) -> Iterator[tuple[Workspace | None, dict[str, str], dict[str, SourceError]]]:
    """The workspace, fingerprints of the source as it is now, and what could not be read.

    There is no workspace, and nothing is looked at, if there was never a run.
    """
    if not database_folder(spec).exists():
        yield None, {}, {}
        return
    workspace = Workspace(spec)
    try:
        yield workspace, *observe_each(workspace, [table.name for table in spec.schema.tables])
    finally:
        workspace.close()


def state_in_words(state: ReleaseState) -> str:
    """Return "up to date", "stale" or "never released"."""
    if not state.released:
        return "never released"
    return "up to date" if state.up_to_date else "stale"


def price_in_words(plan: Plan, steps: Iterable[Step], unpaid: Collection[Step]) -> str:
    """What is still to be bought of some steps, at most; "free" if they look at no private row."""
    steps = tuple(steps)
    total = sum((step.price for step in steps if step in unpaid), start=zero(plan.budget.measure))
    if total.amount:
        return str(total)
    return "bought before" if any(step.reads for step in steps) else "free"


def _row(spec: Spec, state: ReleaseState, unpaid: Collection[Step]) -> list[str]:
    steps = state.outdated
    bundle = bundle_folder(spec, state.epsilon)
    return [
        state.epsilon,
        state_in_words(state),
        state.why(),
        str(len(steps)) if steps else "",
        price_in_words(state.plan, steps, unpaid) if steps else "",
        str(bundle) if bundle.exists() else "",
    ]


def _as_data(spec: Spec, status: Status, broken: Mapping[str, SourceError]) -> dict[str, Any]:
    balance = status.account.balance
    return {
        "database": spec.schema.name,
        "headline": status.headline(),
        "releases": [_state_as_data(spec, state, status.unpaid[state.epsilon]) for state in status.states.values()],
        "unreadable": {table: str(error) for table, error in broken.items()},
        "pending": _cost_as_data(status.pending),
        "outdated": _cost_as_data(status.outdated),
        "lifetime": {
            "epsilon": balance.lifetime.epsilon,
            "delta": balance.lifetime.delta,
            "spent": finite(balance.spent),
            "left": balance.left,
            "raised": raises_as_data(status.account),
        },
        "refreshes": refreshes_as_data(spec, status.account),
    }


def _state_as_data(spec: Spec, state: ReleaseState, unpaid: Collection[Step]) -> dict[str, Any]:
    bundle = bundle_folder(spec, state.epsilon)
    pending = {step.key for step in state.pending}
    return {
        "epsilon": state.plan.budget.epsilon,
        "state": state_in_words(state),
        "why": state.why(),
        "bundle": str(bundle) if bundle.exists() else None,
        "stale": [
            {
                "step": list(stale.step.key),
                "why": stale.in_words(),
                "pending": stale.step.key in pending,
                "blocked": stale.blocked or None,
                "price": _price_as_data(stale.step if stale.step in unpaid else None),
            }
            for stale in state.stale
        ],
    }


def _price_as_data(step: Step | None) -> dict[str, float]:
    """What a step costs; nothing if it was bought before."""
    return {"amount": 0.0, "delta": 0.0} if step is None else {"amount": step.price.amount, "delta": step.price.delta}


def _cost_as_data(cost: Cost) -> dict[str, Any]:
    return {"share_of_lifetime": cost.share, "times": cost.times, "refusal": cost.refusal}
