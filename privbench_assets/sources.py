"""The source as assets that are observed.

A source table's data version is its keyed fingerprint: it changes if and only if the rows do, and says nothing about
them. Only the first step that reads a table depends on that table's asset. The steps behind it depend on the step,
so that none of them can be refreshed past a profile that is still the old one.
"""

# No postponed annotations here: Dagster looks at the type of `context` itself.

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

import dagster as dg

from privbench_assets.failures import nothing_private, public_error
from privbench_assets.keys import group, identifier, source_key
from privbench_assets.resources import Session, session_key
from privbench_assets.status import report_up_to_date
from privbench_core.errors import SourceError
from privbench_core.pipeline.snapshot import observe_each
from privbench_core.spec.model import Spec

FINGERPRINT = "fingerprint"


def source_assets(spec: Spec) -> dg.AssetsDefinition:
    """Return one observable asset per table, observed together or one by one."""
    schema, resource = spec.schema, session_key(spec)
    keys = {source_key(schema.name, table.name): table for table in schema.tables if not table.empty}
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
        wanted = [table for key, table in keys.items() if key in context.selected_asset_keys]
        with nothing_private(spec, f"{schema.name}/source"):
            found, broken = observe_each(session.workspace, [table.name for table in wanted])
        for table, fingerprint in found.items():
            yield dg.ObserveResult(
                asset_key=source_key(schema.name, table),
                data_version=dg.DataVersion(fingerprint),
                metadata={FINGERPRINT: fingerprint},
            )
        with nothing_private(spec, f"{schema.name}/source", session.balance_if_open):
            report_up_to_date(context, session, session.status())
            refuse_broken(spec, broken)

    with warnings.catch_warnings():  # the decorator is called a beta feature, at every use
        warnings.simplefilter("ignore", dg.BetaWarning)
        decorate = dg.multi_observable_source_asset(
            specs=specs, name=identifier(schema.name, "source"), can_subset=True, required_resource_keys={resource}
        )
        assets: dg.AssetsDefinition = decorate(observe)
    return assets


def observation(spec: Spec, table: str, fingerprint: str) -> dg.AssetObservation:
    """Return the event of a look at a source table by a step."""
    return dg.AssetObservation(
        source_key(spec.schema.name, table),
        metadata={FINGERPRINT: fingerprint},
        tags={"dagster/data_version": fingerprint},
    )


def refuse_broken(spec: Spec, broken: Mapping[str, SourceError]) -> None:
    """Fail for the tables that could not be observed, after the others were.

    Raises:
        SourceError: Names them, and says why.
    """
    if broken:
        lines = [str(public_error(spec, f"{spec.schema.name}/source", error)) for error in broken.values()]
        raise SourceError(f"{', '.join(broken)}: could not be observed, the other tables were; {'; '.join(lines)}")


def _kind(source: str) -> str:
    """Return what the source is, as Dagster's icons call it."""
    scheme = source.split(":", 1)[0].split("+", 1)[0] if "://" in source else ""
    if scheme:
        return "spark" if scheme == "sc" else "postgres" if scheme.startswith("postgres") else identifier(scheme)
    if Path(source).suffix in {".duckdb", ".db", ".ddb"}:
        return "duckdb"
    return "csv" if any(Path(source).glob("*.csv")) else "parquet"
