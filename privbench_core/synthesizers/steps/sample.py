"""Sample steps: a synthetic table from released models, or a public table as it is.

Deferred keys (self-references, keys that open a cycle of tables) are NULL after a table's first pass, which its
children and parents build on, and filled in a second pass, when the tables they refer to are there.
"""

from __future__ import annotations

from typing import Any

from privbench_core import guards
from privbench_core.models.linked_lookup import lookup_from_dict
from privbench_core.models.profile import Profile
from privbench_core.privacy.budget import Price
from privbench_core.sampling.constraints import ignored_checks
from privbench_core.sampling.row_order import added_by
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.identity import constraints_identity, key_identity
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Key, Step, StepContext, StepKind
from privbench_core.synthesizers.steps.counted import counted_beside, drawn_beside, fanout_key, samples_beside
from privbench_core.synthesizers.steps.drawing import DRAWING, Links, TableModels
from privbench_core.synthesizers.steps.range_drawing import RangeCompletion, RangeDrawing
from privbench_core.synthesizers.steps.sampled import Sample, SampledTable

_IN_RANGES = {"in ranges": "3"}
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

    return Step(("sample", table.name), StepKind.SAMPLE, table.name, (), (), free, run, {"table": table.name})


def sample_step(schema: Schema, table: Table, free: Price) -> Step:
    """The step that draws a private table."""
    parents = first_parents(schema, table)
    inputs: list[Key] = [*model_inputs(schema, table), *(("sample", name) for name in parents)]
    inputs += samples_beside(schema, table, "sample")

    def run(context: StepContext) -> Artifact:
        models = TableModels.of(schema, table, context.inputs, context.scale)
        above = {name: SampledTable(context.inputs["sample", name]) for name in parents}
        beside = drawn_beside(schema, table, context.inputs, "sample")
        ignored = ignored_checks(table)
        facts = {"checks not kept while sampling": ", ".join(ignored)} if ignored else {}
        drawing = RangeDrawing.plan(models, context.seed, above, beside, context.parts)
        return drawing.drawn(context.workers, **facts)

    parameters = {**_constraints(schema, table), **_IN_RANGES, "rows of a range": guards.RANGE_ROWS}
    key = ("sample", table.name)
    return Step(
        key,
        StepKind.SAMPLE,
        table.name,
        tuple(dict.fromkeys(inputs)),
        (),
        free,
        run,
        parameters,
        version=DRAWING,
        depends=("seed", "scale"),
    )


def complete_step(schema: Schema, table: Table, free: Price) -> Step:
    """The step that fills the deferred keys of a table: its second pass."""
    keys = deferred_of(schema, table)
    parents = sorted({key.parent for key in keys})
    coded = sorted({table.name, *parents})
    inputs: list[Key] = [("sample", table.name), *(("sample", name) for name in parents), ("profile", table.name)]
    inputs += [*(("profile", name) for name in parents), *(fanout_key(key) for key in keys)]

    def run(context: StepContext) -> Artifact:
        stored = SampledTable(context.inputs["sample", table.name])
        released = {key.name: context.inputs[fanout_key(key)].data["link"] for key in keys}
        lookups = {name: lookup_from_dict(link).at_scale(context.scale) for name, link in released.items()}
        profiles = {name: Profile.from_dict(context.inputs["profile", name].data["profile"]) for name in coded}
        above = {name: SampledTable(context.inputs["sample", name]) for name in parents}
        links = Links(schema, table, context.scale, lookups, profiles)
        completion = RangeCompletion(links, context.seed, above, context.parts, stored)
        return completion.drawn(context.workers)

    key = sampled_key(schema, table)
    once = tuple(dict.fromkeys(inputs))
    return Step(
        key,
        StepKind.SAMPLE,
        table.name,
        once,
        (),
        free,
        run,
        {**_constraints(schema, table), **_IN_RANGES, "rows of a range": guards.RANGE_ROWS},
        version="3",
        depends=("seed", "scale"),
    )


def _constraints(schema: Schema, table: Table) -> dict[str, Any]:
    """All of a table's declaration that decides which rows may be drawn."""
    return {
        "keys": [key_identity(key) for key in table.foreign_keys],
        "deferred": [key.name for key in deferred_of(schema, table)],
        "primary key": list(table.primary_key),
        "unique": [list(columns) for columns in table.unique],
        "units": table.name in schema.tables_of_units,
        **({"added by": list(added_by(schema, table))} if added_by(schema, table) else {}),
        **constraints_identity(table.checks, table.dependencies),
    }
