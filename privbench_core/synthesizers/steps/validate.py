"""Validate steps: integrity of a synthetic table as expectations, beside the fidelity figures paid for before.

Free: integrity is a matter of the synthetic rows and the schema. How figures are judged is the spec's, see
`publishing.verdicts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from privbench_core.models.profile import Profile
from privbench_core.privacy.budget import Price
from privbench_core.publishing.figures import FidelityFigure
from privbench_core.schema.identity import column_identity, constraints_identity, key_identity
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Step, StepContext, StepKind
from privbench_core.synthesizers.steps.sample import Sample, sampled_key
from privbench_core.validate.constraints import check_constraints
from privbench_core.validate.derived import tables_to_check
from privbench_core.validate.expectations import check_table


def validate_step(schema: Schema, table: Table, free: Price) -> Step:
    """The step that checks a table, public or private."""
    needed = tables_to_check(schema, table)
    inputs = [sampled_key(schema, schema.table(name)) for name in needed]
    if not table.public:
        inputs += [("fidelity", table.name), ("profile", table.name)]

    def run(context: StepContext) -> Artifact:
        found = _integrity(schema, table, needed, context)
        if table.public:
            return Artifact({"expectations": found, "summary": {}})
        profile = Profile.from_dict(context.inputs["profile", table.name].data["profile"])
        figures = context.inputs["fidelity", table.name].data["metrics"]
        released = {
            "figures": figures,
            "noise": profile.noise_in_words if profile.all_noise else "",
            "guessed": dict(profile.guessed),
        }
        shown = {figure["metric"]: str(FidelityFigure.from_dict(figure)) for figure in figures}
        return Artifact({"expectations": found, **released, "summary": shown})

    parameters: dict[str, Any] = {
        "columns": [column_identity(column) for column in table.columns],
        "primary key": list(table.primary_key),
        "unique": [list(columns) for columns in table.unique],
        "keys": [key_identity(key) for key in table.foreign_keys],
        **constraints_identity(table.checks, table.dependencies),
    }
    return Step(("validate", table.name), StepKind.VALIDATE, table.name, tuple(inputs), (), free, run, parameters, "3")


def _integrity(schema: Schema, table: Table, needed: Sequence[str], context: StepContext) -> list[dict[str, Any]]:
    tables = {
        name: Sample.from_artifact(context.inputs[sampled_key(schema, schema.table(name))]).table for name in needed
    }
    results = check_table(schema, table, tables)
    results += check_constraints(table, tables[table.name])
    return [{**asdict(result), "table": table.name} for result in results]
