"""Sample steps: a synthetic table from released models, or a public table as it is.

Deferred keys (self-references, keys that open a cycle of tables) are NULL after a table's first pass, which its
children and parents build on, and filled in a second pass, when the tables they refer to are there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from privbench_core import guards
from privbench_core.privacy.budget import Price
from privbench_core.sampling.constraints import ignored_checks
from privbench_core.sampling.keys import added_by
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.identity import constraints_identity, key_identity
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Key, Step, StepContext, StepKind
from privbench_core.synthesizers.steps.drawing import DRAWING, TableModels
from privbench_core.synthesizers.steps.link import counted_beside, fanout_key
from privbench_core.synthesizers.steps.range_drawing import RangeCompletion, RangeDrawing, pieces_of
from privbench_core.synthesizers.steps.sampled import Sample, SampledTable

_IN_RANGES = {"in ranges": "4"}
"""Changed by hand when tables in ranges get other rows or another form, and those in one piece do not: samples are made
again."""


def sampled_key(schema: Schema, table: Table) -> Key:
    """Key of the step that has the table's finished rows: the second pass, where it has deferred keys."""
    return ("sample", table.name, "references") if deferred_of(schema, table) else ("sample", table.name)


def deferred_of(schema: Schema, table: Table) -> tuple[ForeignKey, ...]:
    """The keys of a table that are filled in a second pass."""
    return tuple(key for key in table.foreign_keys if key.name in schema.deferred_keys)


def first_parents(schema: Schema, table: Table) -> list[str]:
    """Names of the tables that must be there before the first pass over ``table``."""
    return sorted({key.parent for key in table.foreign_keys if key.name not in schema.deferred_keys})


def model_inputs(schema: Schema, table: Table) -> list[Key]:
    """The released models that a sample of ``table`` is drawn from."""
    inputs: list[Key] = [("profile", table.name), ("model", table.name)]
    inputs += [fanout_key(key) for key in counted_beside(schema, table)]
    inputs += [fanout_key(key) for key in table.foreign_keys if key.name not in schema.deferred_keys]
    return inputs + [("profile", name) for name in first_parents(schema, table) if not schema.table(name).public]


def public_step(table: Table, free: Price) -> Step:
    """The step that publishes a public table as it is."""

    def run(context: StepContext) -> Artifact:
        return Sample(context.public[table.name], {}, None).to_artifact()

    parameters = {"table": table.name}
    return Step(("sample", table.name), StepKind.SAMPLE, table.name, (), (), free, run, parameters, version="2")


def sample_step(schema: Schema, table: Table, free: Price) -> Step:
    """The step that draws a private table."""
    parents, beside = first_parents(schema, table), [key.child for key in counted_beside(schema, table)]

    def run(context: StepContext) -> Artifact:
        models = TableModels.of(schema, table, context.inputs, context.scale)
        samples = {name: SampledTable(context.inputs["sample", name]) for name in (*parents, *beside)}
        ignored = ignored_checks(table)
        facts = {"checks not kept while sampling": ", ".join(ignored)} if ignored else {}
        pieces = pieces_of(models, context.seed, samples)
        return RangeDrawing(models, context.seed, samples, context.parts, pieces).drawn(context.workers, **facts)

    inputs = [*model_inputs(schema, table), *(("sample", name) for name in (*parents, *beside))]
    return _drawing_step(schema, table, ("sample", table.name), inputs, free, run, DRAWING)


def complete_step(schema: Schema, table: Table, free: Price) -> Step:
    """The step that fills the deferred keys of a table: its second pass."""
    keys = deferred_of(schema, table)
    parents = sorted({key.parent for key in keys})
    inputs: list[Key] = [("sample", table.name), *(("sample", name) for name in parents), ("profile", table.name)]
    inputs += [*(("profile", name) for name in parents), *(fanout_key(key) for key in keys)]

    def run(context: StepContext) -> Artifact:
        models = TableModels.of_deferred(schema, table, context.inputs, context.scale)
        samples = {name: SampledTable(context.inputs["sample", name]) for name in (table.name, *parents)}
        return RangeCompletion(models, context.seed, samples, context.parts).drawn(context.workers)

    return _drawing_step(schema, table, sampled_key(schema, table), inputs, free, run, "3")


def _drawing_step(
    schema: Schema,
    table: Table,
    key: Key,
    inputs: Sequence[Key],
    free: Price,
    run: Callable[[StepContext], Artifact],
    version: str,
) -> Step:
    """The step that draws rows: all of the table's declaration that decides which may be drawn is part of it."""
    order = list(added_by(schema, table))
    parameters: dict[str, Any] = {
        "keys": [key_identity(key) for key in table.foreign_keys],
        "deferred": [key.name for key in deferred_of(schema, table)],
        "primary key": list(table.primary_key),
        "unique": [list(columns) for columns in table.unique],
        "units": table.name in schema.tables_of_units,
        **({"added by": order} if order else {}),
        **constraints_identity(table.checks, table.dependencies),
        **_IN_RANGES,
        "rows of a range": guards.RANGE_ROWS,
    }
    once, depends = tuple(dict.fromkeys(inputs)), ("seed", "scale")
    return Step(key, StepKind.SAMPLE, table.name, once, (), free, run, parameters, version=version, depends=depends)
