"""``privbench refresh``: make what is stale, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from privbench_core.commands.interrupted import telling_the_cost
from privbench_core.commands.lifetime import reading_ledger
from privbench_core.commands.plan import subject
from privbench_core.commands.progress import progress_bar
from privbench_core.commands.run import tell_warnings
from privbench_core.commands.status import looked_at, price_in_words
from privbench_core.commands.terminal import say, show
from privbench_core.errors import SpecError
from privbench_core.pipeline.account_status import lifetime_share
from privbench_core.pipeline.observe import observe
from privbench_core.pipeline.places import bundle_folder, database_folder, epsilon_name
from privbench_core.pipeline.plans import plans_for
from privbench_core.pipeline.refresh import refresh_release
from privbench_core.pipeline.staleness import ReleaseState, staleness
from privbench_core.pipeline.status import status_of, unpaid_steps
from privbench_core.pipeline.workspace import Workspace
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Plan


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
    never_run = not database_folder(spec).exists()
    if dry_run or (never_run and chosen is None):
        with looked_at(spec) as (there, observed, broken):
            for error in broken.values():
                raise error
            _choose(spec, there, plans, observed, chosen)
        return
    workspace = Workspace(spec)
    try:
        _refresh(workspace, plans, chosen)
    finally:
        workspace.close()


def _refresh(workspace: Workspace, plans: dict[str, Plan], chosen: str | None) -> None:
    spec = workspace.spec
    observed = observe(workspace, [table.name for table in spec.schema.tables])
    for state in _choose(spec, workspace, plans, observed, chosen):
        with telling_the_cost(workspace), progress_bar() as progress:
            made = refresh_release(workspace, state, progress)
        paid = [step.release.paid for step in made.values() if step.release.paid is not None]
        total = sum(paid[1:], start=paid[0]) if paid else None
        share = f"{lifetime_share(workspace.ledger.lifetime, paid):.2%} of the lifetime budget"
        cost = f"paid {share} ({total})" if total else "nothing was paid: all of it was bought before"
        say(f"ε={state.epsilon}: {cost}. Bundle: {bundle_folder(spec, state.epsilon)}")
        tell_warnings([w for step in made.values() for w in step.release.artifact.data.get("warnings", ())])
    with reading_ledger(spec) as ledger:
        say(f"{spec.schema.name}: {status_of(spec, ledger, plans, observed, workspace).headline()}", style="bold")


def _choose(
    spec: Spec,
    workspace: Workspace | None,
    plans: Mapping[str, Plan],
    observed: Mapping[str, str],
    chosen: str | None,
) -> list[ReleaseState]:
    """The states to refresh; prints what will be made at each."""
    states = staleness(spec, plans, observed)
    if chosen is None and not any(state.released for state in states.values()):
        bought = [e for e, state in states.items() if not unpaid_steps(workspace, state, observed)]
        free = (
            f" At {', '.join(bought)} it costs nothing: a run has bought it for a bundle elsewhere." if bought else ""
        )
        todo = f"A first release is your decision: give --epsilon.{free}"
        say(f"{spec.schema.name}: nothing was released here yet. {todo}")
        return []
    found = [state for state in states.values() if (state.released if chosen is None else state.epsilon == chosen)]
    stale = [state for state in found if state.outdated]
    for state in stale:
        why = {stale.step.key: stale.in_words() for stale in state.stale}
        unpaid = unpaid_steps(workspace, state, observed)
        rows = [
            [str(step.kind), subject(step), why.get(step.key, "follows"), price_in_words(state.plan, [step], unpaid)]
            for step in state.outdated
        ]
        footer = ["at most", "", "", price_in_words(state.plan, state.outdated, unpaid)]
        show(
            f"{spec.schema.name} at ε={state.epsilon}", ["stage", "table or key", "why", ">price"], rows, footer=footer
        )
    for state in found:
        if state not in stale:
            say(f"ε={state.epsilon}: up to date.")
    for state in states.values() if chosen is None else ():
        if not state.released:
            say(f"ε={state.epsilon}: {state.why()}.")
    return stale
