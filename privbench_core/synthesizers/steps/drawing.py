"""Rows of a private table from its released models: attributes given the owner, references, fresh keys, source types.

PrivBench's Algorithm 7 (SampleDataFromSPN) with four changes: expected counts are rounded instead of drawn, children
are drawn given their parent's row, every key is generated, and the schema's constraints hold. Deferred keys are NULL
until a second pass fills them (`TableModels.complete`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.arrays import Numbers
from privbench_core.columns.codec import Codes
from privbench_core.columns.differences import base_numbers, values_of_owners, with_followers
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.documents import with_documents
from privbench_core.columns.row_constraints import declared_constraints
from privbench_core.errors import InternalError, ValidationError
from privbench_core.groups.siblings import WithinGroupCorrelation
from privbench_core.links.fanout import Fanout
from privbench_core.links.linking import Linked
from privbench_core.links.lookup import Lookup
from privbench_core.links.parent_choice import repeated
from privbench_core.marginals.sampler import Model, Rows
from privbench_core.profiles.lags import Lags
from privbench_core.profiles.profile import Profile, children_column
from privbench_core.sampling.attributes import RowDraft
from privbench_core.sampling.children import add_sizes, row_weights
from privbench_core.sampling.constraints import RowRule, made_dependent, row_rules
from privbench_core.sampling.keys import added_by, fresh_keys, group_numbers
from privbench_core.sampling.lags import dated_columns
from privbench_core.sampling.ranges import stays_inside
from privbench_core.sampling.references import (
    Parent,
    copied_columns,
    draw_references,
    lookup_order,
    nearest_public,
    room_for_children,
)
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.row_constraints import RowConstraint, in_sequence
from privbench_core.schema.tables import Schema, Table
from privbench_core.stored import restored
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Key
from privbench_core.synthesizers.steps.link import (
    released_fanout,
    released_lookup,
    released_numbers,
    released_profile,
)
from privbench_core.synthesizers.steps.sampled import Sample, SampledTable

Columns = dict[str, pa.Array]
DRAWING = "26"
"""Changed by hand when other rows are drawn from the same models: samples, and what is measured of them, are others."""


@dataclass(frozen=True)
class TableModels:
    """What was released of a private table, and of the keys that are filled in one pass over its rows.

    Attributes:
        schema: The database.
        table: The table.
        scale: Of the unit's table; owned tables follow their parents.
        lookups: Links off the ownership path, by name of the key: those of the pass.
        profiles: Of the table, and of the private tables that its keys refer to, by table name.
        model: Of its rows; None in the second pass, which fills deferred keys alone.
        latents: Latent attribute -> number of its codes.
        fanout: Link to its owner, None for the unit's table and in the second pass.
        counted: Codes of the numbers of children that links depend on, along owner keys, by name of the link's key.
    """

    schema: Schema
    table: Table
    scale: float
    lookups: Mapping[str, Lookup]
    profiles: Mapping[str, Profile]
    model: Model | None = None
    latents: Mapping[str, int] = field(default_factory=dict)
    fanout: Fanout | None = None
    counted: Mapping[str, Mapping[ForeignKey, Discretizer]] = field(default_factory=dict)

    @classmethod
    def of(cls, schema: Schema, table: Table, inputs: Mapping[Key, Artifact], scale: float) -> TableModels:
        """Read the artifacts of `sample.model_inputs`, for the first pass."""
        keys = [key for key in table.foreign_keys if key.name not in schema.deferred_keys]
        stored, owner = inputs["model", table.name].data, table.owner_key
        fanout = None if owner is None else released_fanout(inputs, owner)
        model: Model = restored(stored["model"])
        if fanout is not None and fanout.cross_marginals is not None:
            model = Linked(model, fanout.cross_marginals)
        lookups = {key.name: released_lookup(inputs, key, scale) for key in keys if not key.owner}
        private = {table.name, *(key.parent for key in keys if not schema.table(key.parent).public)}
        profiles = {name: released_profile(inputs, name) for name in sorted(private)}
        counted = {
            key.name: {
                other: link.sizes
                for other, link in released_numbers(schema, key, inputs).items()
                if (fanout if key.owner and fanout else lookups[key.name]).looks_at(children_column(other.name))
            }
            for key in keys
        }
        return cls(schema, table, scale, lookups, profiles, model, dict(stored.get("latents", [])), fanout, counted)

    @classmethod
    def of_deferred(cls, schema: Schema, table: Table, inputs: Mapping[Key, Artifact], scale: float) -> TableModels:
        """Read what the second pass is drawn from."""
        keys = [key for key in table.foreign_keys if key.name in schema.deferred_keys]
        lookups = {key.name: released_lookup(inputs, key, scale) for key in keys}
        names = sorted({table.name, *(key.parent for key in keys)})
        return cls(schema, table, scale, lookups, {name: released_profile(inputs, name) for name in names})

    @property
    def keys(self) -> tuple[ForeignKey, ...]:
        """The keys of `lookups`."""
        return tuple(key for key in self.table.foreign_keys if key.name in self.lookups)

    @property
    def profile(self) -> Profile:
        """Of the table's own columns."""
        return self.profiles[self.table.name]

    @property
    def planned_rows(self) -> tuple[int, int]:
        """How many rows are planned that have an owner, or need none, and how many without the one that others have."""
        if self.fanout is None:
            return max(1, round(self.profile.total * self.scale)), 0
        return round(self.fanout.owned * self.scale), round(self.fanout.ownerless * self.scale)

    def parent(self, name: str, sample: Sample) -> Parent:
        """Return synthetic parents with their attributes as codes; public ones have none."""
        if self.schema.table(name).public:
            return Parent(sample.table, {}, {}, None)
        discretizers = self.profiles[name].discretizers
        codes, sizes = sample.encoded(self.schema.table(name), discretizers), sizes_of(discretizers)
        for latent, (size, drawn) in sample.latents.items():
            codes[latent], sizes[latent] = drawn, size
        return Parent(sample.table, codes, sizes, sample.weights, sample.units)

    def counting(
        self, key: ForeignKey, samples: Mapping[str, SampledTable], number: int | None, own: Numbers | None = None
    ) -> Parent:
        """Return parents along a key, with the numbers of children that the link depends on as further columns.

        Args:
            key: The key.
            samples: By table name: the parents, and children that are drawn already.
            number: Of a range of parents; all of them if None.
            own: How many children of this table each of the parents has, if they are the owners of its rows.
        """
        parents = samples[key.parent]
        parent = self.parent(key.parent, parents.part(number))
        codes, sizes = dict(parent.codes), dict(parent.sizes)
        for other, coder in self.counted.get(key.name, {}).items():
            if other == self.table.owner_key:
                numbers = own
            else:
                places = samples[other.child].owners_along(other, parents.rows, number)
                numbers = np.bincount(places[places >= 0], minlength=parent.table.num_rows)
            if numbers is None:
                raise InternalError(f"{key.name}: how many rows each of its parents owns is not known")
            name = children_column(other.name)
            codes[name], sizes[name] = coder.encode_numbers(numbers), coder.size
        return replace(parent, codes=codes, sizes=sizes)

    def room(self, owners: Parent, samples: Mapping[str, SampledTable]) -> Numbers:
        """Return the most rows that each of the owners may have, shape (owners,).

        Args:
            owners: Of rows of the table.
            samples: By table name: what these refer to.
        """
        distinct = {name: discretizer.codec.distinct for name, discretizer in self.profile.discretizers.items()}
        referred: dict[str, Numbers] = {}
        for key in self.keys:
            above, units = samples[key.parent], owners.units
            if key.optional:
                continue
            if units is not None and stays_inside(self.schema, self.table, key):
                theirs = np.sort(np.asarray(above.of_units(units).units))
                referred[key.name] = np.searchsorted(theirs, units, "right") - np.searchsorted(theirs, units)
            else:
                referred[key.name] = np.full(owners.table.num_rows, sum(above.rows))
        return room_for_children(self.table, owners.table, distinct, referred)

    def draw(
        self,
        rows: Rows,
        owners: Numbers | None,
        parents: Mapping[str, Parent],
        rng: np.random.Generator,
        numbering: tuple[int, int],
    ) -> Sample:
        """Draw attributes from the model, resolve references, make keys and decode; rows that break a constraint go.

        Args:
            rows: Without a column, or from `children_of`.
            owners: Row number of the owner of each, -1 for none; None for the unit's table.
            parents: What rows refer to, by foreign key name, without deferred keys.
            rng: Sampling only.
            numbering: How many rows are in the ranges before, and in all of them.
        """
        if self.model is None:
            raise InternalError(f"{self.table.name}: rows without a model")
        table = self.table
        if table.owner_key is not None and owners is None:
            raise InternalError(f"{table.owner_key.name}: children without owners")
        units = self._units(rows.n, owners, parents, numbering[0])
        add_sizes(rows, units, self.profile, self.model)
        columns, places, codes = self._columns(self.model, rows, owners, parents, rng, numbering, units)
        kept, dropped = _kept(table, self._rules, columns, places)
        weights = None if owners is None else rows.weights
        if dropped:
            del rows  # as large as what the finished rows now get
            columns = {name: values.take(pa.array(kept)) for name, values in columns.items()}
            places = {name: place[kept] for name, place in places.items()}
            left = None if table.owner_key is None else places[table.owner_key.name]
            units = self._units(len(kept), left, parents, numbering[0])
            weights = None if weights is None else row_weights(units, self.profile.size.rows_per_unit)
        latents = {name: (size, codes[name][kept] if dropped else codes[name]) for name, size in self.latents.items()}
        bases = base_numbers(table, {name: columns[name] for name in table.owner_bases})
        return Sample(_finished(table, columns), places, weights, dropped, units, latents, bases)

    def complete(self, first: Sample, parents: Mapping[str, Parent], rng: np.random.Generator) -> Sample:
        """Fill the deferred keys of rows whose other columns are drawn, and stay.

        A reference that breaks a check is redrawn, and left NULL if that does not help.
        """
        table, made, discretizers = self.table, first.table, self.profile.discretizers
        rows = Rows(made.num_rows, first.encoded(table, discretizers), sizes_of(discretizers), first.weights)
        waiting = {name for key in self.keys for name in table.emptied_columns(key)}
        columns = {n: made.column(n).combine_chunks() for n in made.column_names if n not in waiting}
        draw_references(table, self.keys, rows, parents, columns, row_rules(table), rng, first.units)
        for key in self.keys:
            for unique in (table.primary_key, *table.unique):
                if not set(key.columns).isdisjoint(unique):
                    again = pa.array(repeated(group_numbers([columns[name] for name in unique], rows.n)))
                    columns |= {name: pc.if_else(again, None, columns[name]) for name in table.emptied_columns(key)}
        return replace(first, table=_finished(table, columns))

    @property
    def _later(self) -> frozenset[str]:
        """Columns that the second pass fills."""
        deferred = [key for key in self.table.foreign_keys if key.name in self.schema.deferred_keys]
        return frozenset(name for key in deferred for name in self.table.emptied_columns(key))

    @property
    def _rules(self) -> list[RowRule]:
        """Checks that can be judged in the first pass."""
        return [rule for rule in row_rules(self.table) if self._later.isdisjoint(rule.columns)]

    @property
    def _constraints(self) -> tuple[RowConstraint, ...]:
        """Constraints between columns of a row: declared ones, and those that were found."""
        return in_sequence([*declared_constraints(self.table), *self.profile.constraints])

    def _columns(
        self,
        model: Model,
        rows: Rows,
        owners: Numbers | None,
        parents: Mapping[str, Parent],
        rng: np.random.Generator,
        numbering: tuple[int, int],
        units: Numbers,
    ) -> tuple[Columns, dict[str, Numbers], dict[str, Codes]]:
        """Draw all columns, and return them with the parent of each row by key, and its codes."""
        table, fanout, rules = self.table, self.fanout, self._rules
        discretizers = self.profile.discretizers
        columns, places, above = Columns(), dict[str, Numbers](), None
        if table.owner_key is not None and owners is not None:
            above = parents[table.owner_key.name].table, owners
            columns |= copied_columns(table.owner_key, owners, above[0], ()) | values_of_owners(table, *above)
            places[table.owner_key.name] = owners
        keys = lookup_order(table, self.schema.deferred_keys)
        inside, outside = ([key for key in keys if key.same_unit is same] for same in (True, False))
        unknown = Rows(rows.n, weights=rows.weights)
        places |= draw_references(table, inside, unknown, parents, columns, rules, rng, units, above)
        here = self.profile
        lags = Lags(fanout.lags if fanout else (), here.lags, frozenset(here.guessed), here.ties)
        if fanout and fanout.agreements:
            model = WithinGroupCorrelation(model, fanout.agreements)
        dated = dated_columns(lags, discretizers, above, self.profile.relatives)
        context = _referred(rows, inside, parents, places)
        draft = RowDraft(table, context, model, discretizers, rules, columns, rng, dated, self._constraints)
        draft.settle()
        draft.replace(nearest_public(table, parents, draft.values))
        codes, columns = draft.codes, with_documents(table, columns | draft.values, rng)
        names = {n for key in outside for n in parents[key.name].link.context if n in rows.codes} - codes.keys()
        seen = {name: codes[name] for name in codes if name in discretizers} | {n: rows.codes[n] for n in names}
        own = Rows(rows.n, seen, sizes_of(discretizers), rows.weights)
        places |= draw_references(table, outside, own, parents, columns, rules, rng, units, above)
        columns |= {name: pa.nulls(rows.n, table.column(name).arrow_type) for name in self._later}
        columns |= fresh_keys(table, columns, rows.n, numbering, added_by(self.schema, table))
        of_keys = [rule for rule in table.dependencies if rule not in draft.dependencies]
        columns |= with_followers(table, made_dependent(of_keys, columns, frozenset(discretizers)), columns)
        return columns, places, codes

    def _units(self, rows: int, owners: Numbers | None, parents: Mapping[str, Parent], first: int) -> Numbers:
        """Return the number of the unit of each row."""
        key, above = self.table.owner_key, None
        if key is not None and owners is not None:
            units = parents[key.name].units
            if units is None:
                raise InternalError(f"{key.name}: the units of its owners are not known")
            above = owners, units
        return self.schema.unit_numbers(self.table.name, rows, above, first)


def sizes_of(discretizers: Mapping[str, Discretizer]) -> dict[str, int]:
    """Return the number of codes of each column."""
    return {name: discretizer.size for name, discretizer in discretizers.items()}


def _referred(
    rows: Rows, keys: Sequence[ForeignKey], parents: Mapping[str, Parent], places: Mapping[str, Numbers]
) -> Rows:
    """Return ``rows`` with the attributes of what they refer to as more context."""
    context = replace(rows, codes=dict(rows.codes), sizes=dict(rows.sizes), links=dict(rows.links))
    for key in keys:
        parent, lookup = parents[key.name], parents[key.name].link
        for name, codes in lookup.referred(parent.codes, places[key.name]).items():
            context.add(f"{key.name}: {name}", len(lookup.marginals[name]), codes)
        links = {(f"{key.name}: {name}", column): joint for (name, column), joint in lookup.pair_tables.items()}
        context.links = {**context.links, **links}
    return context


def _kept(
    table: Table, rules: Sequence[RowRule], columns: Columns, places: Mapping[str, Numbers]
) -> tuple[Numbers, dict[str, int]]:
    """Return the rows that keep all constraints, and why others go: no required parent, checks, repeated values."""
    n = len(next(iter(columns.values())))
    keep, dropped = np.ones(n, dtype=bool), dict[str, int]()

    def drop(why: str, which: NDArray[np.bool_]) -> None:
        number = int((keep & which).sum())
        if number:
            dropped[why] = number
            keep[which] = False

    for key in table.foreign_keys:
        if not key.optional and key.name in places:
            drop(f"no row of {key.parent} left to refer to", places[key.name] < 0)
    for rule in rules:
        alive = keep.any()
        drop(f"check {rule.check.name}", rule.broken(columns))
        if alive and not keep.any():
            raise ValidationError(
                f"{table.name}: no synthetic row meets the check {rule.check.name}; declare domains that agree with it"
                " (for text a pattern), or leave the check out of the spec"
            )
    numbered = table.key_columns - table.referring_columns
    by_design = not numbered.isdisjoint(table.primary_key)  # it has a fresh column, a number within the others
    for unique in table.unique if by_design else (table.primary_key, *table.unique):
        standing = np.flatnonzero(keep)  # a row that is dropped already must not cost another one its place
        again = np.zeros(n, dtype=bool)
        again[standing] = repeated(group_numbers([columns[name] for name in unique], n)[standing])
        drop(f"{', '.join(unique)} not unique", again)
    return np.flatnonzero(keep), dropped


def _finished(table: Table, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> pa.Table:
    """Return rows as the files of bundles hold them; NULL where there must be none is for validation to report."""
    rows = pa.table({column.name: columns[column.name] for column in table.columns})
    return rows.cast(
        pa.schema(
            pa.field(column.name, column.arrow_type, column.nullable or rows.column(column.name).null_count > 0)
            for column in table.columns
        )
    )
