"""`benchmark_status`: how far every table is at every ε, what it cost, and what is left to spend, in one place."""

# No postponed annotations here: Dagster looks at the type of `context` itself.

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from privbench_assets import plots
from privbench_assets.automation import asked, status_condition
from privbench_assets.failures import nothing_private
from privbench_assets.io_managers import Manifest, manifest_path, read_manifest
from privbench_assets.keys import group, source_key, status_key, step_key
from privbench_assets.metadata import total_price
from privbench_assets.resources import Session, session_key
from privbench_assets.sources import observed_fingerprint
from privbench_core.pipeline.account_status import AccountStatus
from privbench_core.pipeline.run import run_name
from privbench_core.privacy.budget import Budget, Measure, epsilon_for
from privbench_core.privacy.ledger.ledger import Entry
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Plan, Step, StepKind

DATABASE = "whole database"
BUDGET = "budget_for_two_refreshes"
_ROUNDING = 1e-9
_UNITS = ((2880, 1440, "d"), (120, 60, "h"), (0, 1, "min"))  # from so many minutes on; minutes of the unit; its name
_REACHED = {
    StepKind.PROFILE: "profiled",
    StepKind.MODEL: "modelled",
    StepKind.FANOUT: "linked",
    StepKind.FIDELITY: "measured",
    StepKind.SAMPLE: "sampled",
    StepKind.VALIDATE: "validated",
    StepKind.PUBLISH: "published",
}


def benchmark_status(spec: Spec, plans: Mapping[str, Plan]) -> dg.AssetsDefinition:
    """The unpartitioned asset that gathers all of it. It looks at manifests and the ledger, never at rows."""
    name, resource = spec.schema.name, session_key(spec)
    last = [step for step in next(iter(plans.values())).steps if step.kind is StepKind.PUBLISH]

    @dg.asset(
        key=status_key(name),
        deps=[
            *(step_key(name, step.key) for step in last),
            *(source_key(name, table.name) for table in spec.schema.tables),
        ],
        group_name=group(name, ""),
        kinds={"table"},
        owners=spec.owners,
        tags={"privbench/stage": "status", "privbench/spends": "no"},
        check_specs=[
            dg.AssetCheckSpec(
                BUDGET,
                asset=status_key(name),
                description=(
                    "Whether the lifetime budget and the refresh policy pay for two more refreshes of all ε. A warning"
                    " when the next one is the last, or will be refused; nothing is stopped by it."
                ),
            )
        ],
        automation_condition=asked(status_condition(), plans),
        required_resource_keys={resource},
        description=(
            f"How far every table of {name} is at every ε, what was spent and what is left. The ε add up: whoever holds"
            " several bundles has learned as much as all of them together tell."
        ),
    )
    def status(context: dg.AssetExecutionContext) -> dg.MaterializeResult:  # type: ignore[type-arg]  # Dagster wants it bare
        session: Session = getattr(context.resources, resource)
        with nothing_private(f"{name}/benchmark_status", spec.state, context.log.error):
            tables = [table.name for table in spec.schema.tables]
            observed = {table: observed_fingerprint(context.instance, source_key(name, table)) for table in tables}
            reached = {epsilon: table_states(spec, plan, epsilon, observed) for epsilon, plan in plans.items()}
            account = session.standing()
            return dg.MaterializeResult(
                metadata=_metadata(session, reached, account), check_results=[budget_check(name, account)]
            )

    return status


def budget_check(database: str, account: AccountStatus) -> dg.AssetCheckResult:
    """Passes while at least two more refreshes can be paid for; a warning before that ends."""
    said = account.in_words()
    return dg.AssetCheckResult(
        passed=account.left > 1,
        asset_key=status_key(database),
        check_name=BUDGET,
        severity=dg.AssetCheckSeverity.WARN,
        description=" ".join(said),
        metadata={"refreshes left": account.left, "refreshes begun": account.refresh},
    )


@dataclass(frozen=True)
class State:
    """How far a table is at one ε.

    Attributes:
        reached: The last step made, and whether what it was made from is still so.
        at: When that step was made, or last found to be as it was; "" if unknown.
    """

    reached: str
    at: str = ""

    def in_words(self, now: datetime) -> str:
        """With its age, and the time (UTC), because what Dagster shows is as old as the last look."""
        if not self.at:
            return self.reached
        made = datetime.fromisoformat(self.at)
        minutes = max(0, int((now - made).total_seconds()) // 60)
        age = next(f"{minutes // size} {unit}" for least, size, unit in _UNITS if minutes >= least)
        return f"{self.reached}, {age} old ({made.astimezone(UTC):%Y-%m-%d %H:%M})"


def table_states(spec: Spec, plan: Plan, epsilon: str, observed: Mapping[str, str | None]) -> dict[str, State]:
    """How far each table is, and the whole database: the last step made, and whether what it was made from is still so.

    Args:
        spec: The spec.
        plan: The plan at this ε.
        epsilon: The partition.
        observed: Last observed fingerprint of each source table, None where it was never observed.
    """
    manifests = {
        step.key: read_manifest(manifest_path(spec.state, step_key(spec.schema.name, step.key), epsilon))
        for step in plan.steps
    }
    digests = {"/".join(key): manifest.digest for key, manifest in manifests.items() if manifest}
    states: dict[str, State] = {}
    for table in (*(table.name for table in spec.schema.tables), ""):
        steps = [step for step in plan.steps if step.table == table]
        if steps:
            states[table or DATABASE] = _state([(step, manifests[step.key]) for step in steps], digests, observed)
    done = _REACHED[StepKind.PUBLISH]
    whole = states.get(DATABASE)
    if whole is None or whole.reached != done:
        return states
    return {table: whole if state.reached in _REACHED.values() else state for table, state in states.items()}


def _state(
    steps: list[tuple[Step, Manifest | None]], digests: Mapping[str, str], observed: Mapping[str, str | None]
) -> State:
    made = [(step, manifest) for step, manifest in steps if manifest is not None]
    if not made:
        return State("not made")
    at = made[-1][1].at
    reached = _REACHED[made[-1][0].kind]
    old = {t for _, manifest in made for t, seen in manifest.sources.items() if observed.get(t) not in {None, seen}}
    if old:
        return State(f"{reached}; source changed since ({', '.join(sorted(old))})", at)
    if any(digests.get(key) != digest for _, manifest in made for key, digest in manifest.inputs.items()):
        return State(f"{reached}; out of date", at)
    return State(reached, at)


def _metadata(session: Session, reached: Mapping[str, Mapping[str, State]], account: AccountStatus) -> dict[str, Any]:
    spec, balance, entries = session.spec, account.balance, account.entries
    shares = {f"ε={epsilon}": _share(spec, _of(entries, epsilon)) for epsilon in reached}
    other = _share(spec, entries) - sum(shares.values())
    if other > _ROUNDING:
        shares["others"] = other
    said = [*account.in_words(), *account.others_in_words()]
    if spec.refresh is not None:
        said.insert(0, f"Policy: {spec.refresh.in_words()}.")
    return {
        "state": dg.MetadataValue.md(_state_table(reached)),
        "refreshes": dg.MetadataValue.md("\n\n".join(said)),
        "spending": dg.MetadataValue.md(_spending_table(session, account)),
        "lifetime budget": plots.budget("Lifetime budget", shares, max(0.0, 1 - sum(shares.values()))),
        "lifetime ε": float(spec.lifetime_epsilon),
        "lifetime δ": float(spec.lifetime_delta),
        "lifetime ε spent": round(float(balance.spent), 6),
        "lifetime ε left": round(float(balance.left), 6),
        "refreshes begun": account.refresh,
        "refreshes left": account.left,
        **({"cohort": spec.cohort} if spec.cohort else {}),
    }


def _state_table(reached: Mapping[str, Mapping[str, State]]) -> str:
    epsilons, now = list(reached), datetime.now(UTC)
    tables = list(dict.fromkeys(table for states in reached.values() for table in states))
    lines = [
        "| table | " + " | ".join(f"ε={epsilon}" for epsilon in epsilons) + " |",
        "|---" * (len(epsilons) + 1) + "|",
    ]
    lines += [
        f"| {table} | " + " | ".join(reached[epsilon][table].in_words(now) for epsilon in epsilons) + " |"
        for table in tables
    ]
    return "\n".join(lines)


def _spending_table(session: Session, account: AccountStatus) -> str:
    spec, entries = session.spec, account.entries
    delta = f" (at δ={spec.delta or spec.lifetime_delta:.2g})" if spec.lifetime_delta else ""
    lines = [f"| ε | price of one refresh | spent so far{delta} | last spent | bundle |", "|---|---|---|---|---|"]
    for epsilon, plan in session.plans.items():
        mine = _of(entries, epsilon)
        price = total_price(plan)
        folder = session.bundle(epsilon)
        at = _day(max(entry.at for entry in mine)) if mine else "never"
        bundle = f"`{folder.relative_to(spec.state.parent)}`" if folder.exists() else "none"
        lines.append(f"| {epsilon} | {price} | {_epsilon_spent(spec, mine)} | {at} | {bundle} |")
    at = _day(max(entry.at for entry in entries)) if entries else "never"
    lines.append(f"| **together** | {account.price} | {_epsilon_spent(spec, entries)} | {at} | |")
    return "\n".join(lines)


def _of(entries: Sequence[Entry], epsilon: str) -> Sequence[Entry]:
    """Entries of one partition; the runner calls its runs by their ε."""
    return [entry for entry in entries if entry.run == run_name(float(epsilon))]


def _epsilon_spent(spec: Spec, entries: Sequence[Entry]) -> str:
    """What some entries alone amount to, as ε."""
    if not entries:
        return "nothing"
    if all(entry.price.measure is Measure.PURE for entry in entries):
        return f"ε={sum(entry.price.amount for entry in entries):.4g}"
    rho = sum(entry.price.rho for entry in entries)
    return f"ε={epsilon_for(rho, spec.delta or spec.lifetime_delta):.4g}"


def _share(spec: Spec, entries: Sequence[Entry]) -> float:
    """The part of the lifetime budget that some entries take: of ε if it is pure, of ρ otherwise."""
    life = Budget(spec.lifetime_epsilon, spec.lifetime_delta)
    if life.measure is Measure.PURE:
        return sum(entry.price.amount for entry in entries) / life.epsilon
    return sum(entry.price.rho for entry in entries) / life.total().amount


def _day(at: str) -> str:
    return datetime.fromisoformat(at).astimezone(UTC).strftime("%Y-%m-%d")
