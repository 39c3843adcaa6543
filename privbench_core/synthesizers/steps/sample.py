"""Sample steps: a synthetic table from released models, or a public table as it is.

Deferred keys (self-references, keys that open a cycle of tables) are NULL after a table's first pass, which its
children and parents build on, and filled in a second pass, when the tables they refer to are there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.columns.systematic import group_counts, narrow
from privbench_core.errors import InternalError
from privbench_core.models.fanout import Fanout, children_column
from privbench_core.models.linked_lookup import lookup_from_dict
from privbench_core.models.linking import Linked
from privbench_core.models.profile import Profile
from privbench_core.models.registry import model_from_dict
from privbench_core.models.row_count import UNIT_SIZE, size_classes
from privbench_core.models.rows import Rows
from privbench_core.privacy.budget import Price
from privbench_core.privacy.relations import stability
from privbench_core.sampling.constraints import ignored_checks
from privbench_core.sampling.deferred_keys import complete_table
from privbench_core.sampling.references import Parent
from privbench_core.sampling.table import draw_children, draw_root, draw_table
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.identity import constraints_identity, key_identity
from privbench_core.schema.tables import Schema, Table
from privbench_core.schema.unit_numbers import unit_numbers
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Key, Step, StepContext, StepKind

Places = NDArray[np.int64]


@dataclass(frozen=True)
class Sample:
    """A synthetic (or public) table.

    Attributes:
        table: Its rows.
        parents: Foreign key name -> row number of each row's parent, -1 for NULL.
        weights: How much each row counts in the measure of its model: less than 1 for rows of units that have more than
            are counted in full; None where all count alike.
        dropped: Why rows were dropped while sampling -> how many.
        units: Number of the unit of each row of a private table.
        latents: Latent attribute -> number of its codes, and the code of each row.
    """

    table: pa.Table
    parents: Mapping[str, NDArray[np.int64]]
    weights: NDArray[np.float64] | None
    dropped: Mapping[str, int] = field(default_factory=dict)
    units: NDArray[np.int64] | None = None
    latents: Mapping[str, tuple[int, Codes]] = field(default_factory=dict)

    def to_artifact(self, **facts: Any) -> Artifact:
        """As a step stores it, with more ``facts`` for its summary."""
        places = [[name, rows] for name, rows in self.parents.items()]
        summary = {"rows": self.table.num_rows, **facts}
        if self.dropped:
            summary["rows dropped to keep constraints"] = dict(self.dropped)
        data: dict[str, Any] = {
            "parents": places,
            "weights": self.weights,
            "dropped": dict(self.dropped),
            "units": self.units,
        }
        if self.latents:
            data["latents"] = [[name, size, codes] for name, (size, codes) in self.latents.items()]
        return Artifact({**data, "summary": summary}, self.table)

    @classmethod
    def from_artifact(cls, stored: Artifact) -> Sample:
        """The inverse of `to_artifact`."""
        if stored.table is None:
            raise InternalError("a sample was stored without its rows")
        data = stored.data
        latents = {name: (size, codes) for name, size, codes in data.get("latents", [])}
        return cls(stored.table, dict(data["parents"]), data["weights"], data["dropped"], data.get("units"), latents)


def fanout_key(key: ForeignKey) -> Key:
    """Key of the step that models a foreign key."""
    return ("fanout", key.name)


def sampled_key(schema: Schema, table: Table) -> Key:
    """Key of the step that has the table's finished rows: the second pass, where it has deferred keys."""
    return ("sample", table.name, "references") if deferred_of(schema, table) else ("sample", table.name)


def deferred_of(schema: Schema, table: Table) -> tuple[ForeignKey, ...]:
    """The keys of a table that are filled in a second pass."""
    return tuple(key for key in table.foreign_keys if key.name in schema.deferred_keys)


def first_parents(schema: Schema, table: Table) -> list[str]:
    """Names of the tables that must be there before the first pass over ``table``."""
    return sorted({key.parent for key in table.foreign_keys if key.name not in schema.deferred_keys})


def siblings_of(schema: Schema, key: ForeignKey) -> tuple[ForeignKey, ...]:
    """Other owner keys to the parent of an owner key, of tables that are drawn before its child.

    Left out are those whose rows go with other units too, where looking at them would cost more noise.
    """
    before = [table.owner_key for table in schema.sampling_order if not table.public]
    before = before[: before.index(key)]
    alone = stability(schema, key.parent, key.child)
    return tuple(
        other
        for other in before
        if other is not None
        and other.parent == key.parent
        and stability(schema, key.parent, key.child, other.child) <= alone
    )


def model_inputs(schema: Schema, table: Table) -> list[Key]:
    """The released models that a sample of ``table`` is drawn from."""
    inputs: list[Key] = [("profile", table.name), ("model", table.name)]
    inputs += [fanout_key(key) for key in _siblings(schema, table)]
    inputs += [fanout_key(key) for key in table.foreign_keys if key.name not in schema.deferred_keys]
    return inputs + [("profile", name) for name in first_parents(schema, table) if not schema.table(name).public]


def drawn_siblings(schema: Schema, table: Table, inputs: Mapping[Key, Artifact], stage: str) -> dict[str, Places]:
    """The parent of each row along the keys of `siblings_of` the owner key, from the samples of a stage."""
    return {key.name: dict(inputs[stage, key.child].data["parents"])[key.name] for key in _siblings(schema, table)}


def sibling_samples(schema: Schema, table: Table, stage: str) -> list[Key]:
    """The steps whose samples `drawn_siblings` looks at."""
    return [(stage, key.child) for key in _siblings(schema, table)]


def _siblings(schema: Schema, table: Table) -> tuple[ForeignKey, ...]:
    return () if table.owner_key is None else siblings_of(schema, table.owner_key)


def public_step(table: Table, free: Price) -> Step:
    """The step that publishes a public table as it is."""

    def run(context: StepContext) -> Artifact:
        return Sample(context.public[table.name], {}, None).to_artifact()

    return Step(("sample", table.name), StepKind.SAMPLE, table.name, (), (), free, run, {"table": table.name})


def sample_step(schema: Schema, table: Table, free: Price) -> Step:
    """The step that draws a private table."""
    parents = first_parents(schema, table)
    inputs: list[Key] = [*model_inputs(schema, table), *(("sample", name) for name in parents)]
    inputs += sibling_samples(schema, table, "sample")

    def run(context: StepContext) -> Artifact:
        above = {name: Sample.from_artifact(context.inputs["sample", name]) for name in parents}
        beside = drawn_siblings(schema, table, context.inputs, "sample")
        rng = context.rng("sample", table.name)
        ignored = ignored_checks(table)
        facts = {"checks not kept while sampling": ", ".join(ignored)} if ignored else {}
        sample = draw_sample(schema, table, context.inputs, above, beside, context.scale, rng)
        del above  # their rows are not needed beside the bytes
        return sample.to_artifact(**facts)

    parameters = _constraints(schema, table)
    key = ("sample", table.name)
    return Step(
        key,
        StepKind.SAMPLE,
        table.name,
        tuple(inputs),
        (),
        free,
        run,
        parameters,
        version="5",
        depends=("seed", "scale"),
    )


def complete_step(schema: Schema, table: Table, free: Price) -> Step:
    """The step that fills the deferred keys of a table: its second pass."""
    keys = deferred_of(schema, table)
    parents = sorted({key.parent for key in keys})
    inputs: list[Key] = [("sample", table.name), *(("sample", name) for name in parents), ("profile", table.name)]
    inputs += [*(("profile", name) for name in parents), *(fanout_key(key) for key in keys)]

    def run(context: StepContext) -> Artifact:
        first = Sample.from_artifact(context.inputs["sample", table.name])
        above = {
            name: _as_parent(schema, name, Sample.from_artifact(context.inputs["sample", name]), context.inputs)
            for name in parents
        }
        links = {key.name: context.inputs[fanout_key(key)].data["link"] for key in keys}
        lookups = {name: lookup_from_dict(link).at_scale(context.scale) for name, link in links.items()}
        discretizers = Profile.from_dict(context.inputs["profile", table.name].data["profile"]).discretizers
        rng = context.rng("references", table.name)
        rows, places = complete_table(
            table, keys, first.table, discretizers, first.weights, above, lookups, rng, first.units
        )
        return replace(first, table=rows, parents={**first.parents, **places}).to_artifact()

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
        _constraints(schema, table),
        version="2",
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
        **constraints_identity(table.checks, table.dependencies),
    }


def draw_sample(
    schema: Schema,
    table: Table,
    inputs: Mapping[Key, Artifact],
    above: Mapping[str, Sample],
    beside: Mapping[str, Places],
    scale: float,
    rng: np.random.Generator,
) -> Sample:
    """Draw a private table from released models.

    Args:
        schema: The database.
        table: The table to draw.
        inputs: Artifacts of `model_inputs`.
        above: Samples of the parents, by table name.
        beside: What `drawn_siblings` says.
        scale: Of the unit's table; owned tables follow their parents.
        rng: Sampling only.
    """
    profile = Profile.from_dict(inputs["profile", table.name].data["profile"])
    model = model_from_dict(inputs["model", table.name].data["model"])
    latents = dict(inputs["model", table.name].data.get("latents", []))
    parents = {name: _as_parent(schema, name, sample, inputs) for name, sample in above.items()}
    first = [key for key in table.foreign_keys if key.name not in schema.deferred_keys]
    links = {key.name: inputs[fanout_key(key)].data["link"] for key in first}
    lookups = {key.name: lookup_from_dict(links[key.name]).at_scale(scale) for key in first if not key.owner}
    owner = table.owner_key
    if owner is None:
        rows, owners = draw_root(profile.total, scale), None
    else:
        fanout = Fanout.from_dict(links[owner.name])
        parent = parents[owner.parent]
        siblings = _numbers_of_children(fanout, beside, parent.table.num_rows, inputs)
        rows, owners = draw_children(fanout, parent, rng, table, scale, siblings)
        model = model if fanout.cross_marginals is None else Linked(model, fanout.cross_marginals)
    units = _units(schema, table, rows.n, owners, above)
    add_sizes(rows, units, profile)
    drawn = draw_table(
        table, rows, model, profile.discretizers, owners, parents, lookups, rng, schema.deferred_keys, units
    )
    types = {name: (size, drawn.latents[name]) for name, size in latents.items()}
    if owner is None:
        units = _units(schema, table, drawn.table.num_rows, None, above)
        return Sample(drawn.table, drawn.parents, None, drawn.dropped, units, types)
    del rows  # as large as what the finished rows now get
    places = drawn.parents[owner.name]
    units = _units(schema, table, len(places), places, above)
    weights = row_weights(units, profile.size.rows_per_unit)
    return Sample(drawn.table, drawn.parents, weights, drawn.dropped, units, types)


def _numbers_of_children(
    fanout: Fanout, beside: Mapping[str, Places], parents: int, inputs: Mapping[Key, Artifact]
) -> dict[str, tuple[int, Codes]]:
    """Coded numbers of the parents' other children that numbers of children follow, by `children_column`."""
    found = {}
    for name, places in beside.items():
        if children_column(name) in fanout.fanout_tables:
            sizes = Fanout.from_dict(inputs["fanout", name].data["link"]).sizes
            numbers = np.bincount(places[places >= 0], minlength=parents)
            found[children_column(name)] = (sizes.size, sizes.encode_numbers(numbers))
    return found


def add_sizes(rows: Rows, units: NDArray[np.int64], profile: Profile) -> None:
    """Add to rows what follows from how many of them each unit has: weights, and a class where columns depend on it."""
    rows.weights = row_weights(units, profile.size.rows_per_unit)
    if profile.by_size:
        classes = profile.size.classes
        rows.add(UNIT_SIZE, len(classes), narrow(size_classes(_rows_of_unit(units), classes), len(classes)))
        rows.links = {**rows.links, **{(UNIT_SIZE, name): joint for name, joint in profile.by_size.items()}}


def row_weights(units: NDArray[np.int64], rows_per_unit: int) -> NDArray[np.float64] | None:
    """How much each row counts where units with more than ``rows_per_unit`` rows count as so many; None for 1 each.

    >>> row_weights(np.array([7, 2, 7, 7]), 2).round(2).tolist()
    [0.67, 1.0, 0.67, 0.67]
    """
    weights: NDArray[np.float64] = np.minimum(1.0, rows_per_unit / _rows_of_unit(units))
    return weights if weights.min(initial=1.0) < 1 else None


def _rows_of_unit(units: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many rows have the same number, for each row; shape (rows,)."""
    return group_counts(units, int(units.max(initial=0)) + 1)[units]


def _units(
    schema: Schema, table: Table, rows: int, owners: NDArray[np.int64] | None, above: Mapping[str, Sample]
) -> NDArray[np.int64]:
    """Number of the unit of each row."""
    key = table.owner_key
    if key is None or owners is None:
        return unit_numbers(schema, table.name, rows, None)
    units = above[key.parent].units
    if units is None:
        raise InternalError(f"{key.name}: the units of its owners are not known")
    return unit_numbers(schema, table.name, rows, (owners, units))


def _as_parent(schema: Schema, name: str, sample: Sample, inputs: Mapping[Key, Artifact]) -> Parent:
    """A synthetic parent, with its attributes coded as its children's context."""
    if schema.table(name).public:
        return Parent(sample.table, {}, {}, None)
    profile = Profile.from_dict(inputs["profile", name].data["profile"])
    codes = {
        column: discretizer.encode(sample.table.column(column)) for column, discretizer in profile.discretizers.items()
    }
    sizes = {column: discretizer.size for column, discretizer in profile.discretizers.items()}
    for latent, (size, drawn) in sample.latents.items():
        codes[latent], sizes[latent] = drawn, size
    return Parent(sample.table, codes, sizes, sample.weights, sample.units)
