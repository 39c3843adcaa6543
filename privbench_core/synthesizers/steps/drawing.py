"""Drawing a private table from released models: what is known of it, and its rows in one piece."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.differences import base_numbers
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.systematic import group_counts, narrow
from privbench_core.errors import InternalError
from privbench_core.models.fanout import Fanout, children_column
from privbench_core.models.lags import Lags
from privbench_core.models.linked_lookup import lookup_from_dict
from privbench_core.models.linking import Linked
from privbench_core.models.lookup import Lookup
from privbench_core.models.profile import Profile
from privbench_core.models.registry import Model, model_from_dict
from privbench_core.models.row_count import UNIT_SIZE, size_classes
from privbench_core.models.rows import Rows
from privbench_core.models.siblings import AgreeingSiblings
from privbench_core.models.spn import Leaf
from privbench_core.sampling.children import children_of, draw_root, numbers_of_children
from privbench_core.sampling.references import Parent
from privbench_core.sampling.row_order import Numbering, added_by
from privbench_core.sampling.table import draw_table
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.schema.unit_numbers import unit_numbers
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Key
from privbench_core.synthesizers.steps.counted import fanout_key, released_numbers
from privbench_core.synthesizers.steps.sampled import Sample, SampledTable

Numbers = NDArray[np.int64]
DRAWING = "14"
"""Changed by hand when other rows are drawn from the same models: samples, and what is measured of them, are others."""
_SPREAD = 16  # unit numbers per row that counting by number may go through


@dataclass(frozen=True)
class TableModels:
    """What was released of a private table, and the scale to draw it at.

    Attributes:
        schema: The database.
        table: The table.
        scale: Of the unit's table; owned tables follow their parents.
        profile: Of its columns.
        model: Of its rows.
        latents: Latent attribute -> number of its codes.
        fanout: Link to its owner, None for the unit's table.
        counted: Codes of the numbers of children that links look at, along owner keys, by name of the link's key.
        lookups: Other links by key name, without deferred keys.
        above: Profiles of private parents, by table name.
    """

    schema: Schema
    table: Table
    scale: float
    profile: Profile
    model: Model
    latents: Mapping[str, int]
    fanout: Fanout | None
    counted: Mapping[str, Mapping[ForeignKey, Discretizer]]
    lookups: Mapping[str, Lookup]
    above: Mapping[str, Profile]

    @classmethod
    def of(cls, schema: Schema, table: Table, inputs: Mapping[Key, Artifact], scale: float) -> TableModels:
        """Read the artifacts of `sample.model_inputs`."""
        keys = [key for key in table.foreign_keys if key.name not in schema.deferred_keys]
        links = {key.name: inputs[fanout_key(key)].data["link"] for key in keys}
        owner, stored = table.owner_key, inputs["model", table.name].data
        fanout = None if owner is None else Fanout.from_dict(links[owner.name])
        model = model_from_dict(stored["model"])
        lookups = {key.name: lookup_from_dict(links[key.name]).at_scale(scale) for key in keys if not key.owner}
        private = {key.parent for key in keys if not schema.table(key.parent).public}
        return cls(
            schema,
            table,
            scale,
            Profile.from_dict(inputs["profile", table.name].data["profile"]),
            model if fanout is None or fanout.cross_marginals is None else Linked(model, fanout.cross_marginals),
            dict(stored.get("latents", [])),
            fanout,
            {
                key.name: {
                    other: link.sizes
                    for other, link in released_numbers(schema, key, inputs).items()
                    if (fanout if key.owner and fanout else lookups[key.name]).looks_at(children_column(other.name))
                }
                for key in keys
            },
            lookups,
            {name: Profile.from_dict(inputs["profile", name].data["profile"]) for name in sorted(private)},
        )

    @property
    def first_keys(self) -> tuple[ForeignKey, ...]:
        """The keys that are filled in the first pass, the owner key among them."""
        return tuple(key for key in self.table.foreign_keys if key.name not in self.schema.deferred_keys)

    def parent(self, name: str, sample: Sample) -> Parent:
        """A synthetic parent, with its attributes coded as its children's context."""
        return as_parent(self.schema.table(name), sample, self.above.get(name))

    def counting(
        self,
        key: ForeignKey,
        parent: Parent,
        beside: Mapping[ForeignKey, SampledTable],
        parents: Sequence[int],
        number: int | None = None,
        own: Numbers | None = None,
    ) -> Parent:
        """Parents along a key with their numbers of children, as further columns, where the link looks at them.

        Args:
            key: The key.
            parent: All rows, or those of a range.
            beside: Children that are drawn already, by their owner key.
            parents: As in `SampledTable.owners_along`.
            number: As there.
            own: How many children of this table each of the parents has, if they are the owners of its rows.
        """
        codes, sizes = dict(parent.codes), dict(parent.sizes)
        for other, coder in self.counted[key.name].items():
            if other == self.table.owner_key:
                numbers = own
            else:
                places = beside[other].owners_along(other, parents, number)
                numbers = np.bincount(places[places >= 0], minlength=parent.table.num_rows)
            if numbers is None:
                raise InternalError(f"{key.name}: how many rows each of its parents owns is not known")
            name = children_column(other.name)
            codes[name], sizes[name] = coder.encode_numbers(numbers), coder.size
        for lag in self.fanout.lags if key.owner and self.fanout else ():
            codes[lag.context] = lag.above.encode(parent.table.column(lag.base))
            sizes[lag.context] = lag.above.size
        return replace(parent, codes=codes, sizes=sizes)

    def draw(
        self,
        rows: Rows,
        owners: Numbers | None,
        parents: Mapping[str, Parent],
        rng: np.random.Generator,
        numbering: tuple[int, int] | None = None,
    ) -> Sample:
        """Draw the columns of rows that know their owners.

        Args:
            rows: From `draw_root`, `draw_children` or `children_of`.
            owners: Row number of the owner of each, -1 for none; None for the unit's table.
            parents: By foreign key name.
            rng: Sampling only.
            numbering: Of a range: how many rows are in those before, and in all of them.
        """
        schema, table, profile = self.schema, self.table, self.profile
        first = numbering[0] if numbering else 0
        units = self._units(rows.n, owners, parents, first)
        add_sizes(rows, units, profile, self.model)
        agreements = self.fanout.agreements if self.fanout is not None else ()
        drawn = draw_table(
            table,
            rows,
            AgreeingSiblings(self.model, agreements) if agreements else self.model,
            profile.discretizers,
            owners,
            parents,
            self.lookups,
            rng,
            schema.deferred_keys,
            units,
            Numbering(*(numbering or (0, rows.n)), added_by(schema, table)),
            Lags(self.fanout.lags if self.fanout is not None else (), profile.lags, frozenset(profile.guessed)),
        )
        types = {name: (size, drawn.latents[name]) for name, size in self.latents.items()}
        bases = base_numbers(table, drawn.bases)
        owner, left, weights = table.owner_key, drawn.table.num_rows, rows.weights
        if owner is None:
            units, weights = units if left == rows.n else self._units(left, None, parents, first), None
        elif left < rows.n:  # some were dropped
            del rows  # as large as what the finished rows now get
            units = self._units(left, drawn.parents[owner.name], parents, first)
            weights = None if weights is None else row_weights(units, profile.size.rows_per_unit)
        return Sample(drawn.table, drawn.parents, weights, drawn.dropped, units, types, bases)

    def _units(self, rows: int, owners: Numbers | None, parents: Mapping[str, Parent], first: int) -> Numbers:
        """Number of the unit of each row."""
        key = self.table.owner_key
        if key is None or owners is None:
            return unit_numbers(self.schema, self.table.name, rows, None, first)
        units = parents[key.name].units
        if units is None:
            raise InternalError(f"{key.name}: the units of its owners are not known")
        return unit_numbers(self.schema, self.table.name, rows, (owners, units), first)


def draw_sample(
    models: TableModels,
    above: Mapping[str, SampledTable],
    beside: Mapping[ForeignKey, SampledTable],
    rng: np.random.Generator,
) -> Sample:
    """Draw a private table in one piece.

    Args:
        models: Released.
        above: Parents, by table name.
        beside: Children of the same owners, by their key.
        rng: Sampling only.
    """
    tables = {name: models.parent(name, sampled.whole()) for name, sampled in above.items()}
    parents = {key.name: tables[key.parent] for key in models.table.foreign_keys if key.parent in tables}
    owner, fanout = models.table.owner_key, models.fanout
    if owner is None or fanout is None:
        return models.draw(draw_root(models.profile.total, models.scale), None, parents, rng)
    owners_of = models.counting(owner, parents[owner.name], beside, above[owner.parent].rows)
    numbers = numbers_of_children(fanout, owners_of, round(fanout.owned * models.scale), rng, models.table)
    ownerless = round(fanout.ownerless * models.scale)
    rows, owners = children_of(fanout, owners_of, numbers, ownerless, rng, models.table)
    for key in models.first_keys:
        if not key.owner:
            referred = above[key.parent].rows
            parents[key.name] = models.counting(key, parents[key.name], beside, referred, own=numbers)
    return models.draw(rows, owners, parents, rng)


def add_sizes(rows: Rows, units: Numbers, profile: Profile, model: Model) -> None:
    """Add to rows what follows from how many of them each unit has: weights, and a class where columns depend on it.

    Where columns depend on it, a leaf's marginals are those of all rows alike (`Profile.one_way`), and of joints only
    odds ratios are used; of products of signs, their excess over these marginals, though rows were counted otherwise.
    Other models are drawn in the measure in which their rows were counted.
    """
    if not (profile.by_size and isinstance(model, Leaf)):
        rows.weights = row_weights(units, profile.size.rows_per_unit)
    if profile.by_size:
        classes = profile.size.classes
        rows.add(UNIT_SIZE, len(classes), narrow(size_classes(_rows_of_unit(units), classes), len(classes)))
        # What a class tells of columns depends on how many of these rows are in it, not of those that were counted.
        drawn = np.bincount(rows.codes[UNIT_SIZE], rows.weights, len(classes)) if rows.n else profile.size.rows_of
        links = {(UNIT_SIZE, name): shape * drawn[:, None] for name, shape in profile.shapes.items()}
        rows.links = {**rows.links, **links}


def row_weights(units: Numbers, rows_per_unit: int) -> NDArray[np.float64] | None:
    """How much each row counts where units with more than ``rows_per_unit`` rows count as so many; None for 1 each.

    >>> row_weights(np.array([7, 2, 7, 7]), 2).round(2).tolist()
    [0.67, 1.0, 0.67, 0.67]
    """
    weights: NDArray[np.float64] = np.minimum(1.0, rows_per_unit / _rows_of_unit(units))
    return weights if weights.min(initial=1.0) < 1 else None


def _rows_of_unit(units: Numbers) -> Numbers:
    """How many rows have the same number, for each row; shape (rows,)."""
    least, most = int(units.min(initial=0)), int(units.max(initial=0))
    if least == 0 or most - least < _SPREAD * len(units):
        return group_counts(units - least, most - least + 1)[units - least]
    _, dense, counts = np.unique(units, return_inverse=True, return_counts=True)  # of a range, far from the others
    return np.asarray(counts[dense], dtype=np.int64)


def as_parent(table: Table, sample: Sample, profile: Profile | None) -> Parent:
    """A synthetic parent with its attributes coded by ``profile``; a public one has none."""
    if profile is None:
        return Parent(sample.table, {}, {}, None)
    codes = sample.encoded(table, profile.discretizers)
    sizes = {column: discretizer.size for column, discretizer in profile.discretizers.items()}
    for latent, (size, drawn) in sample.latents.items():
        codes[latent], sizes[latent] = drawn, size
    return Parent(sample.table, codes, sizes, sample.weights, sample.units)
