"""Private rows, joined and bounded: who owns a row, which rows are kept, and how much each may count.

Along the ownership path at most τ children per owner are kept, chosen by a keyed hash of the child's own primary key:
an order that no other row can change, so removing a unit never changes which rows of another unit are kept, unless
they depend on both. A kept row of an owned table weighs 1/T, where T is the least of some *released* numbers that is at
least s, the number of kept rows of its unit in the table, and 1/s where all of them are smaller; rounded down to a
multiple of 1/`WEIGHT_SCALE`. So all rows of one unit together weigh at most 1. For T = 1 alone these are PrivPetal's
normalised marginals (section 4), here for chains too; T times the answer counts rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.schema.unit_numbers import unit_numbers

WEIGHT_SCALE = 1 << 20
Rows = NDArray[np.signedinteger[Any]]
_BLOCK = 1 << 20  # rows looked up at a time
_MOST_32 = 1 << 31


def stability(schema: Schema, *tables: str) -> float:
    """The largest total weight that one unit can move in a view of the first of ``tables``, whatever it sees of others.

    1 for the unit's own rows. A unit's rows may also refer to *another* private parent, whose removal cascades: each
    such row that the removed unit so takes away, or lets in, changes one other unit, whose weight is at most 1 before
    and at most 1 after (rows leave, the others weigh more, slots are freed): 2 in L1. See ``docs/privacy.md``, "Several
    private parents". Keys that become NULL carry no row away and do not count; nor do keys with ``same_unit``.
    """
    return 1.0 + 2.0 * _other_units(schema, *tables)


def moved_rows(schema: Schema, table: str) -> int:
    """Bound on the kept rows of ``table`` that are there only with one unit, or only without it.

    A row that comes or goes moves the kept children of a row by at most two: itself, and the one whose slot it takes. A
    unit that changes higher up along a key with ``same_unit`` may have all of its rows exchanged: those it has before,
    and those after.
    """
    here = schema.table(table)
    owner = here.owner_key
    own = 1 if owner is None else moved_rows(schema, owner.parent) * (owner.max_children or 1)
    beside = (key for key in here.foreign_keys if key.same_unit and _carries(schema, key))
    exchanged = sum(_other_units(schema, key.parent) for key in beside) * schema.max_rows_per_unit(table)
    return own + 2 * (sum(_into_other_units(schema, here).values()) + exchanged)


def reference_moves(schema: Schema, key: ForeignKey, rows_per_unit: int = 1) -> float:
    """What one unit moves in a view that looks along ``key``, beyond the stability of the key's own table.

    Where a key does not cascade, removing a row sets references to it to NULL: each changes the value, not the weight,
    of a row, which is at most 1/``rows_per_unit``. Along such a key with ``same_unit`` only units see a difference
    whose own rows of the parent change: all rows of a unit weigh at most 1.

    Args:
        schema: The database.
        key: The key.
        rows_per_unit: T, up to how many rows the view counts a unit's in full; the least, if there are several.
    """
    if key.cascades or schema.table(key.parent).public:
        return 0.0
    if key.same_unit:
        return 2.0 * _other_units(schema, key.parent)
    return 2.0 * lost_references(schema, key, rows_per_unit)


def lost_references(schema: Schema, key: ForeignKey, rows_per_unit: int) -> float:
    """Bound on the total weight of the rows that stay as they are, but for losing what they refer to along ``key``.

    Arguments as in `reference_moves`. In one of two neighbouring databases they refer to a row, in the other to none.
    """
    if key.cascades or key.same_unit or schema.table(key.parent).public:
        return 0.0
    return referring_rows(schema, key) / rows_per_unit


def referring_rows(schema: Schema, key: ForeignKey) -> int:
    """Bound on the rows that refer along ``key`` to rows of its parent that are kept only with one unit, or without it.

    So many rows of the parent there are at most, each with the declared number of children; and they belong to the
    removed unit and to those others that change in the parent, each with the declared number of children of its rows.
    """
    by_row = moved_rows(schema, key.parent) * (key.max_children or 1)
    if key.max_children_per_unit is None:
        return by_row
    return min(by_row, (1 + _other_units(schema, key.parent)) * key.max_children_per_unit)


def deciding_tables(schema: Schema, *tables: str) -> tuple[str, ...]:
    """The tables whose rows decide which rows of ``tables`` are kept and what they weigh, each table itself first."""
    found: dict[str, None] = {}
    for table in tables:
        found |= dict.fromkeys(_above(schema, table))
    keys = [key for name in found for key in schema.table(name).foreign_keys]
    ways = {key.parent_columns for key in keys if key.parent == schema.unit and (key.owner or key.same_unit)}
    if len(ways) > 1 and any(key.same_unit for key in keys):  # only its rows say which of its keys belong together
        found[schema.unit] = None
    return tuple(found)


def _above(schema: Schema, table: str) -> tuple[str, ...]:
    """``table`` and all that its rows depend on, the unit's table left out: there every row is kept."""
    found = {table: None}
    for key in schema.table(table).foreign_keys:
        if key.parent != schema.unit and _carries(schema, key):
            found |= dict.fromkeys(_above(schema, key.parent))
    return tuple(found)


def _carries(schema: Schema, key: ForeignKey) -> bool:
    """Whether a removed parent takes the rows that refer to it along ``key`` away with it."""
    return key.cascades and not schema.table(key.parent).public


def keys_into_other_units(schema: Schema, *tables: str) -> dict[ForeignKey, int]:
    """The keys along which a removed unit takes rows of others away, each with a bound on these rows.

    Which rows of ``tables`` a unit keeps is a function of its own rows, in the tables that owner keys and keys with
    ``same_unit`` lead to from there, and of whether the rows are kept that these refer to along other keys.
    """
    inside = dict.fromkeys(name for table in tables for name in _inside_unit(schema, table))
    return {key: rows for name in inside for key, rows in _into_other_units(schema, schema.table(name)).items()}


def _other_units(schema: Schema, *tables: str) -> int:
    """Bound on the units besides the removed one whose kept rows of ``tables``, or the weights of these, change."""
    return sum(keys_into_other_units(schema, *tables).values())


def _inside_unit(schema: Schema, table: str) -> tuple[str, ...]:
    """``table`` and the tables whose rows of the same unit its rows depend on."""
    found = {table: None}
    for key in schema.table(table).foreign_keys:
        if key.owner or (key.same_unit and _carries(schema, key)):
            found |= dict.fromkeys(_inside_unit(schema, key.parent))
    return tuple(found)


def _into_other_units(schema: Schema, table: Table) -> dict[ForeignKey, int]:
    """The table's own keys into other units, and a bound on the rows that one unit takes away or lets in along each."""
    others = (key for key in table.foreign_keys if not key.owner and not key.same_unit and _carries(schema, key))
    return {key: referring_rows(schema, key) for key in others}


class PrivateDatabase:
    """All private rows of a database, indexed. Only the `privbench_core.privacy` package holds one.

    Args:
        schema: The validated schema.
        tables: Arrow tables by name, private and public, integrity already checked.
        secret: 16 bytes that key the hash deciding which children beyond τ are dropped.
    """

    def __init__(self, schema: Schema, tables: Mapping[str, pa.Table], secret: bytes) -> None:
        self.schema = schema
        self._tables = dict(tables)
        self._secret = secret.hex()[:16]
        self._kept: dict[str, NDArray[np.bool_]] = {}
        self._parents: dict[str, Rows] = {}
        self._units: dict[str, Rows] = {}
        self._sizes: dict[str, NDArray[np.int64]] = {}
        self._unit_rows: dict[str, NDArray[np.int32]] = {}

    def rows(self, table: str) -> int:
        """Exact number of rows: private."""
        return int(self._tables[table].num_rows)

    def values(self, table: str, column: str) -> pa.ChunkedArray:
        """The column's exact values: private."""
        return self._tables[table].column(column)

    def parent_rows(self, key: ForeignKey) -> Rows:
        """For each child row the row number of its parent, -1 where the key is NULL; shape (children,)."""
        if key.name not in self._parents:
            child, parent = self._tables[key.child], self._tables[key.parent]
            referred, known = _tuples(parent, key.parent_columns)
            numbers = np.append(referred, -1).astype(np.int32 if parent.num_rows < _MOST_32 else np.int64)
            found = np.full(child.num_rows, -1, dtype=numbers.dtype)
            for start in range(0, child.num_rows, _BLOCK):
                referring, wanted = _tuples(child.slice(start, _BLOCK), key.columns)
                found[start + referring] = numbers[known.get_indexer(wanted)]  # -1, no such parent: the last entry
            self._parents[key.name] = found
        return self._parents[key.name]

    def kept_parent_rows(self, key: ForeignKey) -> Rows:
        """`parent_rows`, with -1 also where the parent is not kept: what views look along.

        And where a key with ``same_unit`` leaves the unit: no view sees such a reference, whether or not it cascades.
        """
        parents = self.parent_rows(key)
        if self.schema.table(key.parent).public:
            return parents
        seen = np.append(self.kept(key.parent), False)[parents]
        if key.same_unit:
            seen &= self._in_unit(key)
        return parents if seen.all() else np.where(seen, parents, -1)

    def kept(self, table: str) -> NDArray[np.bool_]:
        """Which rows survive truncation along the ownership path; shape (rows,).

        A row that depends on one that does not survive, along a key that cascades, does not survive either: else a
        unit's surplus rows could still carry rows of other units away. Nor does a row that refers to one of another
        unit along such a key with ``same_unit``: removing that unit takes it away, so it must not count before, nor
        take a slot from another row. Both are settled before the children of an owner are ranked. Keys that become NULL
        have no say: a row must not come, go, or change its weight with what it refers to along one of them.
        """
        if table not in self._kept:
            here = self.schema.table(table)
            alive = np.ones(self.rows(table), dtype=bool)
            for key in here.foreign_keys:
                if _carries(self.schema, key):
                    on_its_own = key.optional or not key.owner  # what a NULL key means
                    alive &= np.append(self.kept(key.parent), on_its_own)[self.parent_rows(key)]
                    if key.same_unit:
                        alive &= self._in_unit(key)
            owner = here.owner_key
            if owner is not None:
                alive = self._first_children(table, self.parent_rows(owner), alive, owner.max_children or 1)
            self._kept[table] = alive
        return self._kept[table]

    def group_sizes(self, key: ForeignKey) -> NDArray[np.int64]:
        """Kept children of each parent row along an owner key; shape (parents,)."""
        if key.name not in self._sizes:
            self._sizes[key.name] = _numbers_of(self.parent_rows(key), self.kept(key.child), self.rows(key.parent))
        return self._sizes[key.name]

    def unit_rows(self, table: str) -> NDArray[np.int32]:
        """Number of kept rows of ``table`` that each row's unit has; shape (rows,)."""
        if table not in self._unit_rows:
            counted = self._of_units(table, self.kept(table).astype(np.int64))
            self._unit_rows[table] = counted.astype(np.int32)
        return self._unit_rows[table]

    def weights(self, table: str, rows_per_unit: tuple[int, ...] = (1,)) -> NDArray[np.int32]:
        """Weight of each row in multiples of 1/`WEIGHT_SCALE`, 0 for dropped rows; shape (rows,).

        Args:
            table: Private table.
            rows_per_unit: The T that weights may be shares of, ascending.
        """
        weights = (WEIGHT_SCALE // self.divisors(table, rows_per_unit)).astype(np.int32)
        weights[~self.kept(table)] = 0
        return weights

    def divisors(self, table: str, rows_per_unit: tuple[int, ...]) -> NDArray[np.int64]:
        """By what the weight of a unit is divided for each of its rows: T, or the number of its rows; shape (rows,)."""
        rows = self.unit_rows(table)
        place = np.searchsorted(rows_per_unit, rows)
        return np.where(place < len(rows_per_unit), np.append(rows_per_unit, 1)[place], np.maximum(rows, 1))

    def _of_units(self, table: str, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The sum of the ``numbers`` of all rows of each row's unit; shape (rows,)."""
        key = self.schema.table(table).owner_key
        if key is None:
            return numbers
        parents = self.parent_rows(key)
        sums = np.zeros(self.rows(key.parent), dtype=np.int64)
        owned = parents >= 0
        np.add.at(sums, parents[owned], numbers[owned])
        return np.where(owned, np.append(self._of_units(key.parent, sums), 0)[parents], numbers)

    def _in_unit(self, key: ForeignKey) -> NDArray[np.bool_]:
        """Which rows refer along ``key`` to a row of their own unit, or to none; shape (children,)."""
        parents = self.parent_rows(key)
        return np.asarray((parents < 0) | (self.unit_of(key.child) == np.append(self.unit_of(key.parent), -1)[parents]))

    def unit_of(self, table: str) -> Rows:
        """A number for the unit that each row belongs to, the same in all tables; shape (rows,).

        It follows from the rows' owners alone, so it is the same with another unit and without it.
        """
        if table not in self._units:
            key = self.schema.table(table).owner_key
            owners = None if key is None else (self.parent_rows(key), self.unit_of(key.parent))
            self._units[table] = unit_numbers(self.schema, table, self.rows(table), owners)
        return self._units[table]

    def _first_children(self, table: str, parents: Rows, alive: NDArray[np.bool_], bound: int) -> NDArray[np.bool_]:
        """``alive`` less the children beyond ``bound`` per parent, in the order of their keyed hash."""
        sizes = _numbers_of(parents, alive, int(parents.max(initial=0)) + 1)
        crowded = np.flatnonzero(alive & np.append(sizes > bound, False)[parents])  # rows without an owner crowd nobody
        if not len(crowded):
            return alive
        rank = _ranks(parents[crowded], self._keyed_order(table, crowded))
        result = alive.copy()
        result[crowded[rank >= bound]] = False
        return result

    def ranks(self, key: ForeignKey, scores: NDArray[np.int64]) -> NDArray[np.int64]:
        """Kept siblings along an owner key that stand before each row, shape (rows,); 0 for rows not kept or owned.

        Args:
            key: The owner key.
            scores: Those of a smaller score stand before, of an equal one those of a smaller keyed hash; shape (rows,).
        """
        parents = self.parent_rows(key)
        inside = np.flatnonzero(self.kept(key.child) & (parents >= 0))
        result = np.zeros(len(parents), dtype=np.int64)
        result[inside] = _ranks(parents[inside], self._keyed_order(key.child, inside), scores[inside])
        return result

    def _keyed_order(self, table: str, rows: Rows) -> NDArray[np.uint64]:
        """Keyed hashes of the primary keys of some rows: an order in which no other row has a say."""
        keys = self._tables[table].select(list(self.schema.table(table).primary_key)).take(rows)
        # Arrow writes a value by its type alone; pandas would choose one format for the column, that is, by other rows.
        columns = [_texts(column) for column in keys.columns]
        texts = pc.binary_join_element_wise(*columns, "\x1f").to_numpy(zero_copy_only=False).astype(object)
        return np.asarray(pd.util.hash_array(texts, hash_key=self._secret, categorize=False))


def _ranks(groups: Rows, *orders: NDArray[Any]) -> NDArray[np.int64]:
    """How many rows of the same group stand before each, by the last of some orders first; shape (n,)."""
    ranked = np.lexsort((*orders, groups))
    starts = np.flatnonzero(np.r_[True, groups[ranked][1:] != groups[ranked][:-1]][: len(groups)])
    result = np.empty(len(groups), dtype=np.int64)
    result[ranked] = np.arange(len(groups)) - np.repeat(starts, np.diff(np.append(starts, len(groups))))
    return result


def _numbers_of(parents: Rows, counted: NDArray[np.bool_], size: int) -> NDArray[np.int64]:
    """How many of the ``counted`` rows each parent has, shape (size,); rows without one are left out."""
    numbers = np.zeros(size, dtype=np.int64)
    for start in range(0, len(parents), max(_BLOCK, size)):
        part = slice(start, start + max(_BLOCK, size))
        numbers += np.bincount(parents[part][counted[part] & (parents[part] >= 0)], minlength=size)
    return numbers


def _texts(values: pa.ChunkedArray) -> pa.Array:
    """Each value as text; of bytes, which need not be text, the hexadecimal digits."""
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        return pa.array([value.hex() for value in values.to_pylist()], pa.string())
    return values.combine_chunks().cast(pa.string())


def _tuples(table: pa.Table, columns: tuple[str, ...]) -> tuple[Rows, pd.Index]:
    """The rows of a table whose key is complete, and an index over their key tuples."""
    present = np.ones(table.num_rows, dtype=bool)
    for name in columns:
        present &= table.column(name).is_valid().to_numpy()
    rows = np.flatnonzero(present)
    keys = table.select(list(columns)).take(pa.array(rows)) if len(rows) < table.num_rows else table
    arrays = [keys.column(name).to_pandas() for name in columns]  # without NULLs, so integers stay integers
    return rows, pd.Index(arrays[0]) if len(arrays) == 1 else pd.MultiIndex.from_arrays(arrays)
