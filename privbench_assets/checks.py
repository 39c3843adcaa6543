"""Checks: what the validate steps found, as asset checks per table and ε.

The expectations were evaluated by core, inside the validate step, whose artifact carries the outcomes. Shown are
names and counts of synthetic rows, and released distances, never a value. Integrity blocks: it stops its run before
the publish step, and core refuses to publish what failed, too, in a run that starts there. Fidelity warns, unless the
spec says that it blocks.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from privbench_assets import identifier
from privbench_core.errors import InternalError
from privbench_core.pipeline.status import Status
from privbench_core.publishing.verdicts import FidelityFigure, judge_table
from privbench_core.schema.tables import Schema
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Step, StepKind
from privbench_core.validate import expectation_in_words

INTEGRITY, FIDELITY = "integrity", "fidelity"
SUITES = {
    INTEGRITY: "Keys, references, types, NULLs and declared domains of the synthetic table hold.",
    FIDELITY: "By released figures, the table is closer to the source than shuffled columns, and not all noise.",
}
UP_TO_DATE, WORKLOAD = "up_to_date", "workload"
_COLUMNS = dg.TableSchema(
    [dg.TableColumn("holds", "bool"), dg.TableColumn("expectation"), dg.TableColumn("rows against it", "int")]
)


def check_specs(
    spec: Spec, step: Step, asset: dg.AssetKey, epsilons: dg.PartitionsDefinition
) -> list[dg.AssetCheckSpec]:
    """Return the checks of a step.

    A validate step has one per suite and table it covers, a publish step `UP_TO_DATE`.
    """
    about: dict[str, tuple[str, bool]] = {}  # what each says, and whether it blocks
    if step.kind is StepKind.PUBLISH:
        about[UP_TO_DATE] = "The bundle was made from the source, the spec and the code as they are now.", False
        if spec.workload is not None:
            about[WORKLOAD] = "Every query of the workload runs on the bundle, and is published with it.", False
    elif step.kind is StepKind.VALIDATE:
        about = {
            check_name(step, table, suite): (f"{table}: {text}", suite == INTEGRITY or spec.fidelity.block)
            for table in _tables(spec.schema, step)
            for suite, text in SUITES.items()
        }
    with warnings.catch_warnings():  # partitioned checks are new in Dagster, and announced as such for each of them
        warnings.simplefilter("ignore", dg.PreviewWarning)
        return [
            dg.AssetCheckSpec(name, asset=asset, description=text, blocking=blocks, partitions_def=epsilons)
            for name, (text, blocks) in about.items()
        ]


def check_results(spec: Spec, step: Step, asset: dg.AssetKey, artifact: Artifact) -> Iterator[dg.AssetCheckResult]:
    """Return the outcome of every check of a validate step, and of the workload of a publish step.

    Raises:
        InternalError: An expectation about a table that the step has no check for.
    """
    if step.kind is StepKind.PUBLISH and spec.workload is not None:
        yield _workload(asset, artifact.data.get("workload", {}))
    if step.kind is not StepKind.VALIDATE:
        return
    outcomes: Sequence[Mapping[str, Any]] = artifact.data.get("expectations", ())
    tables = _tables(spec.schema, step)
    stray = {str(o["table"]) for o in outcomes if o["table"] not in tables}
    if stray:
        raise InternalError(f"{'/'.join(step.key)}: expectations without a check: {', '.join(sorted(stray))}")
    for table in tables:
        yield _integrity(check_name(step, table, INTEGRITY), asset, [o for o in outcomes if o["table"] == table])
        yield _fidelity(spec, check_name(step, table, FIDELITY), asset, table, artifact)


def up_to_date_result(asset: dg.AssetKey, status: Status, epsilon: str) -> dg.AssetCheckResult:
    """Return whether the bundle at one ε was made from the source, the spec and the code as they are; stops nothing."""
    state = status.states[epsilon]
    why = state.why()
    return dg.AssetCheckResult(
        passed=state.up_to_date,
        asset_key=asset,
        check_name=UP_TO_DATE,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"steps to make": len(state.outdated)},
        description=f"stale: {why}" if why else "made from the source, the spec and the code as they are now",
    )


def check_name(step: Step, table: str, suite: str) -> str:
    """``integrity`` on a table's own validate step, ``person__integrity`` on one that covers the whole database."""
    return suite if step.table == table else identifier(table, suite)


def _tables(schema: Schema, step: Step) -> tuple[str, ...]:
    return (step.table,) if step.table else tuple(table.name for table in schema.tables)


def _workload(asset: dg.AssetKey, noted: Mapping[str, Mapping[str, Any]]) -> dg.AssetCheckResult:
    """Return which queries are in the bundle; the reasons for the others are published in it, too."""
    left_out = [f"query {left['query']} ({left['reason']})" for each in noted.values() for left in each["left_out"]]
    queries = sum(int(each["queries"]) for each in noted.values())
    return dg.AssetCheckResult(
        passed=not left_out,
        asset_key=asset,
        check_name=WORKLOAD,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"queries": queries, "left out": len(left_out)},
        description=f"left out: {'; '.join(left_out[:5])}" if left_out else f"all {queries} queries run",
    )


def _integrity(name: str, asset: dg.AssetKey, outcomes: Sequence[Mapping[str, Any]]) -> dg.AssetCheckResult:
    failed = [o for o in outcomes if not o["success"]]
    metadata: dict[str, Any] = {"expectations": len(outcomes), "failed": len(failed)}
    if outcomes:
        records = [_record(o) for o in sorted(outcomes, key=lambda o: bool(o["success"]))[:100]]
        metadata["outcomes"] = dg.MetadataValue.table(records, _COLUMNS)
    if failed:
        first = "; ".join(map(_in_words, failed[:5]))
        said = f"{len(failed)} of {len(outcomes)} expectations do not hold: {first}"
    else:
        said = f"all expectations hold ({len(outcomes)})" if outcomes else "nothing to check"
    return dg.AssetCheckResult(
        passed=not failed,
        asset_key=asset,
        check_name=name,
        severity=dg.AssetCheckSeverity.ERROR,  # a warning would let its run go on to publish
        metadata=metadata,
        description=said,
    )


def _fidelity(spec: Spec, name: str, asset: dg.AssetKey, table: str, artifact: Artifact) -> dg.AssetCheckResult:
    """Return the verdict on a table's released figures: an error only where the spec says that it blocks."""
    if "figures" not in artifact.data:
        return dg.AssetCheckResult(
            passed=True, asset_key=asset, check_name=name, description="published as it is: nothing to measure"
        )
    verdict = judge_table(table, artifact.data, spec.fidelity)
    figures = [FidelityFigure.from_dict(stored) for stored in artifact.data["figures"]]
    blocks = spec.fidelity.block and verdict.blocks
    return dg.AssetCheckResult(
        passed=not verdict.warns,
        asset_key=asset,
        check_name=name,
        severity=dg.AssetCheckSeverity.ERROR if blocks else dg.AssetCheckSeverity.WARN,
        metadata={"verdict": str(verdict.grade), **{n: v for figure in figures for n, v in figure.numbers.items()}},
        description=str(verdict),
    )


def _record(outcome: Mapping[str, Any]) -> dg.TableRecord:
    count, said = outcome.get("unexpected_count"), _in_words(outcome)
    against = "" if count is None else int(count)
    return dg.TableRecord({"holds": bool(outcome["success"]), "expectation": said, "rows against it": against})


def _in_words(outcome: Mapping[str, Any]) -> str:
    return expectation_in_words(str(outcome["name"]), outcome.get("column"))
