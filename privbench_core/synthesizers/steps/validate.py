"""Validate steps: integrity of a synthetic table, and its fidelity figures against their limits, as expectations.

Free: integrity is a matter of the synthetic rows and the schema, and fidelity was paid for in the fidelity step. So
the limits stand here: to change one costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from privbench_core.privacy.budget import Price
from privbench_core.publishing.figures import FidelityFigure
from privbench_core.schema.identity import Identity, column_identity, constraints_identity, key_identity
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Step, StepContext, StepKind
from privbench_core.synthesizers.steps.fidelity import JOIN, ONE_WAY, TWO_WAY
from privbench_core.synthesizers.steps.sample import Sample, sampled_key
from privbench_core.validate.constraints import check_constraints
from privbench_core.validate.derived import tables_to_check
from privbench_core.validate.expectations import check_table, fidelity_frame, fidelity_suite, run_suite

_SURE = 3.0  # standard deviations of its own noise by which a figure must exceed its limit to fail


@dataclass(frozen=True)
class FidelityLimits:
    """Largest mean total variation distances that pass; 1 passes everything."""

    one_way: float = 0.25
    two_way: float = 0.45
    join: float = 0.45

    def identity(self) -> Identity:
        """Return the limits by name."""
        return {"one_way": self.one_way, "two_way": self.two_way, "join": self.join}

    def of(self, metric: dict[str, Any]) -> float:
        """The limit of a figure. It allows for the figure's noise: small tables must not fail for being small."""
        limits = {ONE_WAY: self.one_way, TWO_WAY: self.two_way, JOIN: self.join}
        return min(1.0, limits.get(metric["metric"], 1.0) + _SURE * float(metric["noise"]))


def validate_step(schema: Schema, table: Table, free: Price, limits: FidelityLimits) -> Step:
    """The step that checks a table, public or private."""
    needed = tables_to_check(schema, table)
    inputs = [sampled_key(schema, schema.table(name)) for name in needed]
    if not table.public:
        inputs.append(("fidelity", table.name))

    def run(context: StepContext) -> Artifact:
        found = _integrity(schema, table, needed, context)
        measured = [] if table.public else context.inputs["fidelity", table.name].data["metrics"]
        metrics = [{**metric, "limit": limits.of(metric)} for metric in measured]
        figures = [FidelityFigure.from_dict(metric) for metric in measured]
        shown = {figure.metric: str(figure) for figure in figures}
        receipt = [figure.receipt for figure in figures]
        return Artifact({"expectations": found + _fidelity(table, metrics), "fidelity": receipt, "summary": shown})

    parameters: dict[str, Any] = {
        "columns": [column_identity(column) for column in table.columns],
        "primary key": list(table.primary_key),
        "unique": [list(columns) for columns in table.unique],
        "keys": [key_identity(key) for key in table.foreign_keys],
        "limits": limits.identity(),
        **constraints_identity(table.checks, table.dependencies),
    }
    return Step(("validate", table.name), StepKind.VALIDATE, table.name, tuple(inputs), (), free, run, parameters, "2")


def _integrity(schema: Schema, table: Table, needed: Sequence[str], context: StepContext) -> list[dict[str, Any]]:
    tables = {
        name: Sample.from_artifact(context.inputs[sampled_key(schema, schema.table(name))]).table for name in needed
    }
    results = check_table(schema, table, tables)
    results += check_constraints(table, tables[table.name])
    return [{**asdict(r), "table": table.name, "suite": "integrity", "value": None, "limit": None} for r in results]


def _fidelity(table: Table, metrics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if not metrics:
        return []
    frame = pd.DataFrame(metrics)
    verdicts = run_suite(f"{table.name} fidelity", fidelity_frame(frame), fidelity_suite(frame))
    rows = [row for row in metrics for _ in range(len(verdicts) // len(metrics))]
    return [
        {**asdict(v), "table": table.name, "suite": "fidelity", "value": row["value"], "limit": row["limit"]}
        for v, row in zip(verdicts, rows, strict=True)
    ]
