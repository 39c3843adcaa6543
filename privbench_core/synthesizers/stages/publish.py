"""The publish step: the synthetic tables, the schema and the receipt, as one folder."""

from __future__ import annotations

from privbench_core.errors import InternalError, ValidationError
from privbench_core.privacy.budget import Price
from privbench_core.publish.bundle import write_bundle
from privbench_core.schema.model import Schema
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Key, Step, StepContext, StepKind
from privbench_core.synthesizers.stages.sample import sampled_key


def publish_step(schema: Schema, free: Price) -> Step:
    """The step that writes the bundle, if every expectation holds."""
    inputs: list[Key] = [sampled_key(schema, table) for table in schema.tables]
    inputs += [("validate", table.name) for table in schema.tables]

    def run(context: StepContext) -> Artifact:
        if context.out is None:
            raise InternalError("publish: no folder to write to")
        tables = {}
        for table in schema.tables:
            checks = context.inputs["validate", table.name].data["expectations"]
            _refuse_failures(table.name, checks)
            rows = context.inputs[sampled_key(schema, table)].table
            if rows is None:
                raise InternalError(f"{table.name}: a sample step without rows")
            tables[table.name] = rows
        fidelity = {
            table.name: context.inputs["validate", table.name].data["summary"] for table in schema.private_tables
        }
        path = write_bundle(context.out, schema, tables, {**context.receipt, "fidelity_paid_for": fidelity})
        rows_of = {name: table.num_rows for name, table in tables.items()}
        return Artifact({"path": str(path), "rows": rows_of, "summary": {"rows": rows_of}})

    return Step(("publish", "bundle"), StepKind.PUBLISH, "", tuple(inputs), (), free, run)


def _refuse_failures(table: str, checks: list[dict[str, object]]) -> None:
    failed = [f"{check['column'] or 'table'}: {check['name']}" for check in checks if not check["success"]]
    if failed:
        message = f"{table}: {len(failed)} expectations fail, so nothing is published: {'; '.join(failed[:5])}"
        raise ValidationError(message)
