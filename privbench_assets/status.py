"""`benchmark_status`: what is stale, what it costs, what is left; and the checks that say so on each bundle.

The asset is gathered at the end of a refresh, and reported at the end of any other run after which it would show
anything else, failed ones included: it is never older than the last run.
"""

# No postponed annotations here: Dagster looks at the type of `context` itself.

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

import dagster as dg

from privbench_assets import group, status_key, step_key
from privbench_assets.checks import up_to_date_result
from privbench_assets.metadata import SYMBOL, markdown_table
from privbench_assets.resources import Session, nothing_private, session_key
from privbench_core.pipeline import run_name
from privbench_core.pipeline.account_status import AccountStatus, lifetime_share
from privbench_core.pipeline.status import ReleaseState, Stale, Status
from privbench_core.pipeline.workspace import bundle_folder
from privbench_core.privacy.budget import Measure, Price, epsilon_for
from privbench_core.privacy.ledger.ledger import Entry
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Plan, Step, StepKind

DATABASE = "whole database"
_REACHED = {
    StepKind.COUNT: "counted",
    StepKind.PROFILE: "profiled",
    StepKind.MODEL: "modelled",
    StepKind.FANOUT: "linked",
    StepKind.FIDELITY: "measured",
    StepKind.SAMPLE: "sampled",
    StepKind.VALIDATE: "validated",
    StepKind.PUBLISH: "published",
}
BUDGET = "budget_for_two_refreshes"
_VERSION = "dagster/data_version"


def benchmark_status(spec: Spec, plans: Mapping[str, Plan]) -> dg.AssetsDefinition:
    """Return the unpartitioned asset that gathers all of it. It looks at manifests and the ledger, never at rows."""
    name, resource = spec.schema.name, session_key(spec)
    last = [step for step in next(iter(plans.values())).steps if step.kind is StepKind.PUBLISH]

    @dg.asset(
        key=status_key(name),
        deps=[step_key(name, step.key) for step in last],
        group_name=group(name),
        kinds={"table"},
        owners=spec.owners,
        tags={"privbench/stage": "status", "privbench/spends": "no"},
        check_specs=[
            dg.AssetCheckSpec(
                BUDGET,
                asset=status_key(name),
                description=(
                    "The lifetime budget and the refresh policy allow two more refreshes of all ε. Warns when the next"
                    " refresh is the last or will be refused. Stops nothing."
                ),
            )
        ],
        required_resource_keys={resource},
        description=(
            f"What is stale in the benchmark of {name}, what a refresh costs, and what is left. The ε add up:"
            " whoever receives several bundles learns what they reveal together."
        ),
    )
    def status(context: dg.AssetExecutionContext) -> dg.MaterializeResult:  # type: ignore[type-arg]  # Dagster wants it bare
        session: Session = getattr(context.resources, resource)
        with nothing_private(spec, f"{name}/benchmark_status"):
            found = session.status()
            return dg.MaterializeResult(
                metadata=_metadata(session, found),
                data_version=dg.DataVersion(_version(session, found)),
                check_results=[budget_check(name, found.account)],
            )

    return status


def report_status(context: dg.InitResourceContext, session: Session) -> None:
    """Report the status at the end of a run, whatever the run was about and however it ended, if there is any news."""
    try:
        status, key = session.status(), status_key(session.spec.schema.name)
        version, instance = _version(session, status), context.instance or dg.DagsterInstance.get()
        last = instance.get_latest_materialization_event(key)
        shown = last.asset_materialization if last is not None else None
        if shown is None or (shown.tags or {}).get(_VERSION) != version:
            metadata, check = _metadata(session, status), budget_check(session.spec.schema.name, status.account)
            tags = {_VERSION: version, **_bundles_seen(instance, session)}
            instance.report_runless_asset_event(dg.AssetMaterialization(key, metadata=metadata, tags=tags))
            instance.report_runless_asset_event(_evaluation(check))
    except Exception as error:  # noqa: BLE001 - it may quote anything, and is no reason to fail a run that is over
        context.log.info("benchmark_status could not be computed: %s", type(error).__name__)  # type: ignore[union-attr]


def _bundles_seen(instance: dg.DagsterInstance, session: Session) -> dict[str, str]:
    """Return the tags that say which bundles a status has seen: without them Dagster shows it as out of date."""
    database, plan = session.spec.schema.name, next(iter(session.plans.values()))
    tags = {"dagster/code_version": "reported"}
    for key in (step_key(database, step.key) for step in plan.steps if step.kind is StepKind.PUBLISH):
        last = instance.fetch_materializations(key, limit=1).records
        pointer = str(last[0].storage_id) if last else "NULL"
        name = key.to_user_string()
        tags |= {f"dagster/input_data_version/{name}": "seen", f"dagster/input_event_pointer/{name}": pointer}
    return tags


def report_up_to_date(
    context: dg.AssetExecutionContext, session: Session, status: Status, made: str | None = None
) -> None:
    """Report the check of each bundle that this run did not make."""
    released = {e: state for e, state in status.states.items() if state.released and e != made}
    for epsilon, state in released.items():
        publish = next(step.key for step in state.plan.steps if step.kind is StepKind.PUBLISH)
        key = step_key(session.spec.schema.name, publish)
        context.log_event(_evaluation(up_to_date_result(key, status, epsilon), epsilon))


def _evaluation(found: dg.AssetCheckResult, epsilon: str | None = None) -> dg.AssetCheckEvaluation:
    """Return the event of a check of an asset outside of a run that has it among its own."""
    assert found.asset_key is not None  # noqa: S101 - the checks of this package name their asset
    return dg.AssetCheckEvaluation(
        asset_key=found.asset_key,
        check_name=found.check_name or "",
        passed=found.passed,
        metadata=found.metadata,
        severity=found.severity,
        description=found.description,
        partition=epsilon,
    )


def budget_check(database: str, account: AccountStatus) -> dg.AssetCheckResult:
    """Passes while at least two more refreshes can be paid for; a warning before that ends."""
    return dg.AssetCheckResult(
        passed=account.whole.times > 1,
        asset_key=status_key(database),
        check_name=BUDGET,
        severity=dg.AssetCheckSeverity.WARN,
        description=" ".join(account.in_words()),
        metadata={"refreshes left": account.whole.times, "refreshes begun": account.refresh},
    )


def _version(session: Session, status: Status) -> str:
    """Another one when anything that the status shows is another: the source, what was made, or what was spent."""
    made = [
        [state.epsilon, state.source, *(m.release for m in state.made.values())] for state in status.states.values()
    ]
    shown = [made, status.headline(), len(status.account.entries), str(session.spec.refresh)]
    return blake2b(repr(shown).encode(), digest_size=16).hexdigest()


def _metadata(session: Session, status: Status) -> dict[str, Any]:
    spec, account = session.spec, status.account
    life, entries = account.balance.lifetime, account.entries
    prices = {f"ε={epsilon}": [entry.price for entry in _of(entries, epsilon)] for epsilon in status.states}
    shares = {name: lifetime_share(life, each) for name, each in prices.items()}
    other = lifetime_share(life, [entry.price for entry in entries]) - sum(shares.values())
    if other > 1e-9:  # noqa: PLR2004 - beyond rounding
        shares["others"] = other
    said = [*account.in_words(), *account.others_in_words()]
    if spec.refresh is not None:
        said.insert(0, f"Policy: {spec.refresh.in_words()}.")
    return {
        "summary": status.headline(),
        "lifetime budget": _budget_bar({**shares, "left": max(0.0, 1 - sum(shares.values()))}),
        "state": _state_table(spec, status),
        "pending": _pending_table(status),
        "refreshes": dg.MetadataValue.md("\n\n".join(said)),
        "spending": _spending_table(session, status),
        "bundles out of date": sum(s.released and not s.up_to_date for s in status.states.values()),
        "lifetime ε": float(spec.lifetime_epsilon),
        "lifetime δ": float(spec.lifetime_delta),
        **session.balance(),
        "refreshes begun": account.refresh,
        "refreshes left": account.whole.times,
        **({"cohort": spec.cohort} if spec.cohort else {}),
    }


def _budget_bar(shares: Mapping[str, float]) -> dg.MarkdownMetadataValue:
    """Return the lifetime budget as a bar of text: what each ε took, and what is left, as shares in [0, 1]."""
    blocks = {name: ("░" if name == "left" else "█") * max(1, round(share * 40)) for name, share in shares.items()}
    rows = [[name, blocks[name], f"{share:.1%}"] for name, share in shares.items() if share > 0]
    return markdown_table(["", "", "of the lifetime"], rows)


def _state_table(spec: Spec, status: Status) -> dg.MarkdownMetadataValue:
    now = datetime.now(UTC)
    reached = {epsilon: table_states(spec, state, now) for epsilon, state in status.states.items()}
    tables = next(iter(reached.values()))
    rows = [[table, *(found[table] for found in reached.values())] for table in tables]
    return markdown_table(["table", *(f"ε={epsilon}" for epsilon in reached)], rows)


def age_in_words(at: str, now: datetime) -> str:
    """Return how long ago something was, and when (UTC), because what Dagster shows is as old as the last look.

    >>> age_in_words("2026-11-20T22:01:00+00:00", datetime(2026, 11, 21, tzinfo=UTC))
    '119 min old (2026-11-20 22:01)'
    """
    made = datetime.fromisoformat(at)
    minutes = max(0, int((now - made).total_seconds()) // 60)
    units = ((2880, 1440, "d"), (120, 60, "h"), (0, 1, "min"))  # from so many minutes on; minutes of the unit; its name
    age = next(f"{minutes // size} {unit}" for least, size, unit in units if minutes >= least)
    return f"{age} old ({made.astimezone(UTC):%Y-%m-%d %H:%M})"


def table_states(spec: Spec, state: ReleaseState, now: datetime) -> dict[str, str]:
    """Return how far each table is at one ε, and the whole database."""
    tables = [*(table.name for table in spec.schema.tables), ""]
    steps: dict[str, list[Step]] = {table: [] for table in tables}
    stale: dict[str, list[Stale]] = {table: [] for table in tables}
    for step in state.plan.steps:
        if step.key in state.made:
            steps[step.table].append(step)
    for late in state.stale:
        stale[late.step.table].append(late)
    published = bool(steps[""]) and steps[""][-1].kind is StepKind.PUBLISH and not _problem(stale[""])
    found = {}
    for table in tables:
        problem = _problem(stale[table])
        shown = steps[""] if published and steps[table] and not problem else steps[table]
        reached = _REACHED[shown[-1].kind] if shown else "not made"
        age = f", {age_in_words(state.made[shown[-1].key].at, now)}" if shown else ""
        found[table or DATABASE] = f"{reached}{problem if shown else ''}{age}"
    return found


def _problem(stale: Sequence[Stale]) -> str:
    """Return what is wrong with what was made of a table; nothing if it is only that steps are missing."""
    if changed := sorted({name for found in stale for name in found.changed}):
        return f"; source changed since ({', '.join(changed)})"
    return "; out of date" if any(not found.missing for found in stale) else ""


def _pending_table(status: Status) -> dg.MarkdownMetadataValue:
    """Return what a refresh would make at each ε, and what of it is still to be bought."""
    rows = []
    for epsilon, state in status.states.items():
        if state.released and state.outdated:
            price = sum(step.price.amount for step in status.unpaid[epsilon])
            symbol = SYMBOL[state.plan.budget.measure]
            rows.append([epsilon, state.why(), str(len(state.outdated)), f"{symbol}={price:.4g}"])
    headers = ["ε", "why", "steps to make", "price at most"]
    return markdown_table(headers, rows) if rows else dg.MetadataValue.md("Nothing is out of date.")


def _spending_table(session: Session, status: Status) -> dg.MarkdownMetadataValue:
    spec, entries = session.spec, status.account.entries
    delta = f" (at δ={spec.delta or spec.lifetime_delta:.2g})" if spec.lifetime_delta else ""

    def spent(price: Price, mine: Sequence[Entry]) -> list[str]:
        return [str(price), _epsilon_spent(spec, mine), _day(max(e.at for e in mine)) if mine else "never"]

    rows = []
    for epsilon, plan in session.plans.items():
        folder = bundle_folder(spec, epsilon)
        bundle = f"`{folder.relative_to(spec.state.parent)}`" if folder.exists() else "none"
        rows.append([epsilon, *spent(plan.price, _of(entries, epsilon)), bundle])
    rows.append(["**together**", *spent(status.account.price, entries), ""])
    return markdown_table(["ε", "price of one refresh", f"spent so far{delta}", "last spent", "bundle"], rows)


def _of(entries: Sequence[Entry], epsilon: str) -> Sequence[Entry]:
    """Entries of one partition; the runner calls its runs by their ε."""
    return [entry for entry in entries if entry.run == run_name(float(epsilon))]


def _epsilon_spent(spec: Spec, entries: Sequence[Entry]) -> str:
    """Return what some entries alone amount to, as ε."""
    if not entries:
        return "nothing"
    if all(entry.price.measure is Measure.PURE for entry in entries):
        return f"ε={sum(entry.price.amount for entry in entries):.4g}"
    rho = sum(entry.price.rho for entry in entries)
    return f"ε={epsilon_for(rho, spec.delta or spec.lifetime_delta):.4g}"


def _day(at: str) -> str:
    return datetime.fromisoformat(at).astimezone(UTC).strftime("%Y-%m-%d")
