"""One synthetic table: rows, their attributes given their owner, references to other parents, fresh keys, source types.

PrivBench's Algorithm 7 (SampleDataFromSPN) with four changes: expected counts are rounded instead of drawn, children
are drawn given their parent's row, every key is generated, and the schema's constraints hold.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.columns.differences import values_of_owners, with_followers
from privbench_core.columns.discretizer import Discretizer
from privbench_core.errors import InternalError, ValidationError
from privbench_core.models.lags import Lags
from privbench_core.models.lookup import Lookup
from privbench_core.models.parent_choice import repeated
from privbench_core.models.registry import Model
from privbench_core.models.rows import Rows
from privbench_core.sampling.attributes import RowLimits, draw_attributes
from privbench_core.sampling.constraints import RowRule, made_dependent, row_rules
from privbench_core.sampling.keys import ordinal_within, surrogate_key
from privbench_core.sampling.lags import dated_columns
from privbench_core.sampling.references import Parent, copied_columns, draw_references, lookup_order
from privbench_core.sampling.row_groups import group_numbers
from privbench_core.sampling.row_order import Numbering, added_order
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Table

Places = NDArray[np.signedinteger[Any]]
Columns = dict[str, pa.Array]


@dataclass(frozen=True)
class Drawn:
    """A synthetic table.

    Attributes:
        table: Its rows.
        parents: Foreign key name -> parent row of each row, -1 for NULL; deferred keys are not in it.
        dropped: Why rows were dropped -> how many.
        latents: Latent attribute -> code of each row.
        bases: Owners' columns that columns are relative to, see `Table.owner_bases`.
    """

    table: pa.Table
    parents: Mapping[str, Places]
    dropped: Mapping[str, int] = field(default_factory=dict)
    latents: Mapping[str, Codes] = field(default_factory=dict)
    bases: Mapping[str, pa.Array] = field(default_factory=dict)


def draw_table(
    table: Table,
    rows: Rows,
    model: Model,
    discretizers: Mapping[str, Discretizer],
    owners: Places | None,
    parents: Mapping[str, Parent],
    lookups: Mapping[str, Lookup],
    rng: np.random.Generator,
    deferred: Collection[str] = (),
    units: Places | None = None,
    numbering: Numbering | None = None,
    lags: Lags | None = None,
) -> Drawn:
    """Draw attributes from the model, resolve references, make keys and decode.

    Args:
        table: The table to make.
        rows: From `draw_children`, or without a column.
        model: Released; a table without attributes has a leaf without columns.
        discretizers: Of the attributes.
        owners: Parent row along the ownership key, None for the unit's table.
        parents: What rows refer to, by foreign key name, without deferred keys.
        lookups: By foreign key name, for keys off the ownership path.
        rng: Sampling only.
        deferred: Names of the keys that stay NULL here, see `complete_table`.
        units: Number of the unit of each row, where a key has to stay inside of it.
        numbering: Of fresh keys; by default of all rows as they are.
        lags: How long after other dates rows are dated.
    """
    later = {n for key in table.foreign_keys if key.name in deferred for n in table.emptied_columns(key)}
    rules = [rule for rule in row_rules(table) if later.isdisjoint(rule.columns)]
    columns, places = _owned(table, owners, parents)
    keys = lookup_order(table, deferred)
    inside = tuple(key for key in keys if key.same_unit)
    unknown = Rows(rows.n, weights=rows.weights)
    places |= draw_references(table, inside, unknown, parents, lookups, columns, rules, rng, units)
    limits = RowLimits.among(table, rules, frozenset(columns))
    context = _referred(rows, inside, parents, lookups, places)
    above = None if owners is None or table.owner_key is None else (parents[table.owner_key.name].table, owners)
    dated = dated_columns(lags or Lags(), discretizers, above)
    codes, values = draw_attributes(table, context, model, discretizers, limits, columns, rng, dated)
    columns |= values
    latents = {name: codes.pop(name) for name in codes.keys() - discretizers.keys()}
    outside = tuple(key for key in keys if not key.same_unit)
    linked = {name for key in outside for name in lookups[key.name].context if name in rows.codes} - codes.keys()
    own = Rows(rows.n, codes | {name: rows.codes[name] for name in linked}, _sizes(discretizers), rows.weights)
    places |= draw_references(table, outside, own, parents, lookups, columns, rules, rng, units)
    columns |= {name: pa.nulls(rows.n, table.column(name).arrow_type) for name in later}
    columns |= _fresh(table, columns, rows.n, numbering or Numbering(0, rows.n))
    key_rules = [rule for rule in table.dependencies if rule not in limits.dependencies]
    columns |= with_followers(table, made_dependent(key_rules, columns, frozenset(discretizers)), columns)
    return _kept(table, rules, columns, places, latents, rows.n)


def complete_table(
    table: Table,
    keys: Sequence[ForeignKey],
    made: pa.Table,
    codes: Mapping[str, Codes],
    discretizers: Mapping[str, Discretizer],
    weights: NDArray[np.float64] | None,
    parents: Mapping[str, Parent],
    lookups: Mapping[str, Lookup],
    rng: np.random.Generator,
    units: Places | None = None,
) -> pa.Table:
    """Fill the deferred keys of a table whose other columns are drawn, and return its rows, which stay the same.

    A reference that breaks a check is redrawn, and left NULL if that does not help.

    Args:
        table: The table.
        keys: Its deferred keys.
        made: Its rows, with NULL in the deferred keys.
        codes: Of its attributes.
        discretizers: Of these.
        weights: Of its rows.
        parents: By foreign key name.
        lookups: By foreign key name.
        rng: Sampling only.
        units: Number of the unit of each row, where a key has to stay inside of it.
    """
    sizes = {name: discretizer.size for name, discretizer in discretizers.items()}
    rows = Rows(made.num_rows, dict(codes), sizes, weights)
    waiting = {name for key in keys for name in table.emptied_columns(key)}
    columns = {n: made.column(n).combine_chunks() for n in made.column_names if n not in waiting}
    draw_references(table, keys, rows, parents, lookups, columns, row_rules(table), rng, units)
    for key in keys:
        for unique in (table.primary_key, *table.unique):
            if not set(key.columns).isdisjoint(unique):
                again = pa.array(repeated(group_numbers([columns[name] for name in unique], rows.n)))
                columns |= {name: pc.if_else(again, None, columns[name]) for name in table.emptied_columns(key)}
    return finished_rows(table, columns)


def finished_rows(table: Table, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> pa.Table:
    """Return rows as the files of bundles hold them; NULL where there must be none is for validation to report."""
    rows = pa.table({column.name: columns[column.name] for column in table.columns})
    fields = [
        pa.field(column.name, column.arrow_type, column.nullable or rows.column(column.name).null_count > 0)
        for column in table.columns
    ]
    return rows.cast(pa.schema(fields))


def _owned(
    table: Table, owners: Places | None, parents: Mapping[str, Parent]
) -> tuple[dict[str, pa.Array], dict[str, Places]]:
    """The columns of the owner key, and of the owner that others are relative to; and the owners by its name."""
    key = table.owner_key
    if key is None:
        return {}, {}
    if owners is None:
        raise InternalError(f"{key.name}: children without owners")
    above = parents[key.name].table
    return copied_columns(key, owners, above, ()) | values_of_owners(table, above, owners), {key.name: owners}


def _sizes(discretizers: Mapping[str, Discretizer]) -> dict[str, int]:
    return {name: discretizer.size for name, discretizer in discretizers.items()}


def _referred(
    rows: Rows,
    keys: Collection[ForeignKey],
    parents: Mapping[str, Parent],
    lookups: Mapping[str, Lookup],
    places: Mapping[str, Places],
) -> Rows:
    """``rows`` with the attributes of what they refer to as more context."""
    context = replace(rows, codes=dict(rows.codes), sizes=dict(rows.sizes))
    links = dict(rows.links)
    for key in keys:
        lookup = lookups[key.name]
        for name, codes in lookup.referred(parents[key.name].codes, places[key.name]).items():
            context.add(f"{key.name}: {name}", len(lookup.marginals[name]), codes)
        links |= {(f"{key.name}: {name}", column): joint for (name, column), joint in lookup.pair_tables.items()}
    context.links = links
    return context


def _fresh(table: Table, columns: Mapping[str, pa.Array], n: int, numbering: Numbering) -> Columns:
    """Primary key columns that no foreign key fills: numbers of their own, or within the rest of a composite key."""
    order = added_order([columns[name] for name in numbering.added_by]) if numbering.added_by else None
    rows = np.arange(n) if order is None else order
    missing = [name for name in table.primary_key if name not in columns]
    filled = [columns[name] for name in table.primary_key if name in columns]
    fresh: Columns = {}
    for position, name in enumerate(missing):
        if filled and position == len(missing) - 1:
            ordinals = np.empty(n, dtype=np.int64)
            ordinals[rows] = ordinal_within(group_numbers(filled, n)[rows])
            numbers = surrogate_key(table.column(name), int(ordinals.max(initial=0)), prefix=table.name)
            fresh[name] = numbers.take(pa.array(ordinals - 1))
        else:
            first, total = numbering.before, numbering.total
            numbers = surrogate_key(table.column(name), n, prefix=table.name, first=first, total=total)
            fresh[name] = numbers if order is None else numbers.take(pa.array(np.argsort(order)))
    return fresh


def _kept(
    table: Table,
    rules: list[RowRule],
    columns: Columns,
    places: dict[str, Places],
    latents: dict[str, Codes],
    n: int,
) -> Drawn:
    """The rows that keep every constraint: those without a required parent go, then checks, then repetitions."""
    keep, dropped = np.ones(n, dtype=bool), {}

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
    if not keep.all():
        index = np.flatnonzero(keep)
        columns = {name: values.take(pa.array(index)) for name, values in columns.items()}
        places = {name: place[index] for name, place in places.items()}
        latents = {name: codes[index] for name, codes in latents.items()}
    bases = {name: columns[name] for name in table.owner_bases}
    return Drawn(finished_rows(table, columns), places, dropped, latents, bases)
