"""The source as assets that are observed, and the trail that shows which state of it a result was made from.

A source table's data version is its keyed fingerprint: it changes if and only if the rows do, and says nothing about
them. Only the first step that looks at a table depends on that table's asset. The steps behind it depend on the step,
so that a change travels along one line and none of them can be refreshed past a profile that is still the old one;
what they look at themselves is compared with what was profiled.
"""

# No postponed annotations here: Dagster looks at the type of `context` itself.

import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import dagster as dg

from privbench_assets.failures import nothing_private
from privbench_assets.io_managers import Made
from privbench_assets.keys import group, identifier, source_key
from privbench_assets.resources import Session, session_key
from privbench_core.errors import SourceChangedError
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Key, Plan, Step

FINGERPRINT = "fingerprint"


def source_assets(spec: Spec) -> dg.AssetsDefinition:
    """One observable asset per table, observed together or one by one."""
    schema, resource = spec.schema, session_key(spec)
    keys = {source_key(schema.name, table.name): table for table in schema.tables}
    specs = [
        dg.AssetSpec(
            key,
            description=(
                f"Table {table.name} of the source, {'public' if table.public else 'private'}. Observing it takes a"
                " keyed fingerprint of its rows, which costs no budget and shows nothing about them."
            ),
            group_name=group(schema.name, table.name),
            kinds={_kind(spec.source), "source"},
            owners=spec.owners,
            tags={"privbench/stage": "source", "privbench/spends": "no"},
        )
        for key, table in keys.items()
    ]

    def observe(context: dg.AssetExecutionContext) -> Iterator[dg.ObserveResult]:
        session: Session = getattr(context.resources, resource)
        wanted = {key: table.name for key, table in keys.items() if key in context.selected_asset_keys}
        with nothing_private(f"{schema.name}/source", spec.state, context.log.error):
            fingerprints = session.fingerprints(list(wanted.values()))
        for key, table in wanted.items():
            found = fingerprints[table]
            yield dg.ObserveResult(asset_key=key, data_version=dg.DataVersion(found), metadata={FINGERPRINT: found})

    with warnings.catch_warnings():  # the decorator is called a beta feature, at every use
        warnings.simplefilter("ignore", dg.BetaWarning)
        decorate = dg.multi_observable_source_asset(
            specs=specs, name=identifier(schema.name, "source"), can_subset=True, required_resource_keys={resource}
        )
        assets: dg.AssetsDefinition = decorate(observe)
    return assets


def observed_fingerprint(instance: dg.DagsterInstance, key: dg.AssetKey) -> str | None:
    """The fingerprint of a source table when it was last observed, None if it never was."""
    records = instance.fetch_observations(key, limit=1).records
    observation = records[0].asset_observation if records else None
    return str(observation.metadata[FINGERPRINT].value) if observation and FINGERPRINT in observation.metadata else None


def first_looks(spec: Spec, plan: Plan) -> dict[Key, tuple[str, ...]]:
    """The source tables that each step is the first on its line to look at: the source assets it depends on.

    Public tables are handed to every step, so the first steps depend on all of them.
    """
    public = {table.name for table in spec.schema.tables if table.public}
    known: dict[Key, set[str]] = {}
    first: dict[Key, tuple[str, ...]] = {}
    for step in plan.steps:
        before = set().union(*(known[key] for key in step.inputs))
        seen = {*step.reads, *public}
        known[step.key] = before | seen
        first[step.key] = tuple(table.name for table in spec.schema.tables if table.name in seen - before)
    return first


def trail(spec: Spec, step: Step, made: Mapping[Key, Made], now: Callable[[str], str]) -> dict[str, str]:
    """Fingerprints of all source tables that ``step`` and the steps before it look at.

    Args:
        spec: The spec.
        step: About to be run.
        made: What its inputs are.
        now: Fingerprint of a table in this run.

    Raises:
        SourceChangedError: The source changed between this step and one before it, or between two before it.
    """
    seen: dict[str, str] = {}
    changed: set[str] = set()
    for before in made.values():
        for table, fingerprint in before.sources.items():
            if seen.setdefault(table, fingerprint) != fingerprint:
                changed.add(table)
    looked_at = {*step.reads, *(table.name for table in spec.schema.tables if table.public)}
    for table in sorted(looked_at):
        if seen.setdefault(table, now(table)) != now(table):
            changed.add(table)
    if changed:
        names = ", ".join(sorted(changed))
        raise SourceChangedError(
            f"{names}: the source changed after a step before {'/'.join(step.key)} had looked at it. Materialise the"
            f" profile of {names} and all that follows it again; what the change did not reach costs nothing."
        )
    return seen


def _kind(source: str) -> str:
    """What the source is, as Dagster's icons call it."""
    scheme = source.split(":", 1)[0].split("+", 1)[0] if "://" in source else ""
    if scheme:
        return "postgres" if scheme.startswith("postgres") else identifier(scheme)
    if Path(source).suffix in {".duckdb", ".db", ".ddb"}:
        return "duckdb"
    return "csv" if any(Path(source).glob("*.csv")) else "parquet"
