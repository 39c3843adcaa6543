"""Private rows, joined and bounded: who owns a row, which rows are kept, and how much each may count.

Along the ownership path at most τ children per owner are kept, chosen by a keyed hash of the child's own primary key:
an order that no other row can change, so removing a unit never changes which rows of another unit are kept, unless
they depend on both. A kept row of an owned table weighs 1 / (product of the group sizes along its path), rounded down
to a multiple of 1/`WEIGHT_SCALE`, so that all rows of one unit together weigh at most 1 (PrivPetal, section 4:
normalised marginals; here for chains too).
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
_LARGEST_DIVISOR = 1 << 40  # above all weight units: a larger product of group sizes makes the same weight, 0
Rows = NDArray[np.signedinteger[Any]]
_BLOCK = 1 << 20  # rows looked up at a time
_MOST_32 = 1 << 31


def stability(schema: Schema, *tables: str) -> float:
    """The largest total weight that one unit can move in a view of the first of ``tables``, whatever it sees of others.

    1 for the unit's own rows. A unit's rows may also refer to *another* private parent, whose removal cascades: each
    such row that the removed unit so takes away, or lets in, changes one other unit, whose weight is at most 1 before
    and at most 1 after (rows leave, the others weigh more, slots are freed): 2 in L1. See ``docs/privacy.md``, "Several
    private parents". Deferred keys do not count, because they carry no row away; nor do keys with ``same_unit``.
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
    return own + 2 * (_rows_by_other_parents(schema, here) + exchanged)


def reference_moves(schema: Schema, key: ForeignKey) -> float:
    """What one unit moves in a view that looks along ``key``, beyond the stability of the key's own table.

    Removing a row sets deferred references to it to NULL: each changes the value, not the weight, of a row. Along a
    deferred key with ``same_unit`` only units see a difference whose own rows of the parent change.
    """
    if key.name not in schema.deferred_keys or schema.table(key.parent).public:
        return 0.0
    if key.same_unit:
        return 2.0 * _other_units(schema, key.parent)
    return 2.0 * moved_rows(schema, key.parent) * (key.max_children or 1)


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
    return not schema.table(key.parent).public and key.name not in schema.deferred_keys


def _other_units(schema: Schema, *tables: str) -> int:
    """Bound on the units besides the removed one whose kept rows of ``tables``, or the weights of these, change.

    Which of its rows a unit keeps is a function of its own rows, in the tables that owner keys and keys with
    ``same_unit`` lead to from here, and of whether the rows are kept that these refer to along other keys.
    """
    inside = dict.fromkeys(name for table in tables for name in _inside_unit(schema, table))
    return sum(_rows_by_other_parents(schema, schema.table(name)) for name in inside)


def _inside_unit(schema: Schema, table: str) -> tuple[str, ...]:
    """``table`` and the tables whose rows of the same unit its rows depend on."""
    found = {table: None}
    for key in schema.table(table).foreign_keys:
        if key.owner or (key.same_unit and _carries(schema, key)):
            found |= dict.fromkeys(_inside_unit(schema, key.parent))
    return tuple(found)


def _rows_by_other_parents(schema: Schema, table: Table) -> int:
    """Bound on the rows of ``table`` that one unit takes away or lets in through keys into other units."""
    others = (key for key in table.foreign_keys if not key.owner and not key.same_unit and _carries(schema, key))
    return sum(moved_rows(schema, key.parent) * (key.max_children or 1) for key in others)


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

        And where a key with ``same_unit`` leaves the unit: no view sees such a reference, a deferred one included.
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

        A row that depends on one that does not survive, along any key but a deferred one, does not survive either:
        else a unit's surplus rows could still carry rows of other units away. Nor does a row that refers to one of
        another unit along a key with ``same_unit``: removing that unit takes it away, so it must not count before, nor
        take a slot from another row. Both are settled before the children of an owner are ranked.
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

    def weights(self, table: str) -> NDArray[np.int32]:
        """Weight of each row in multiples of 1/`WEIGHT_SCALE`, 0 for dropped rows; shape (rows,)."""
        shares, owner = self._shares(table)
        weights = (WEIGHT_SCALE // shares).astype(np.int32)[owner]
        weights[~self.kept(table)] = 0
        return weights

    def divisors(self, table: str) -> NDArray[np.int64]:
        """Product of the sizes of the groups that each kept row lies in, 1 for one without an owner; shape (rows,)."""
        shares, owner = self._shares(table)
        return shares[owner]

    def _shares(self, table: str) -> tuple[NDArray[np.int64], Rows]:
        """`divisors` by owner, and which of them is each row's; rows of one group have the same."""
        key = self.schema.table(table).owner_key
        if key is None:
            return np.ones(1, dtype=np.int64), np.zeros(self.rows(table), dtype=np.int32)
        sizes, above = np.maximum(self.group_sizes(key), 1), self.divisors(key.parent)
        # Never past 64 bits, where it would wrap around to weights that are negative, or too large for a unit.
        product = np.where(sizes > _LARGEST_DIVISOR // above, _LARGEST_DIVISOR + 1, sizes * above)
        return np.append(product, 1), self.parent_rows(key)  # -1, no owner, takes the last entry

    def _in_unit(self, key: ForeignKey) -> NDArray[np.bool_]:
        """Which rows refer along ``key`` to a row of their own unit, or to none; shape (children,)."""
        parents = self.parent_rows(key)
        return np.asarray(
            (parents < 0) | (self._unit_of(key.child) == np.append(self._unit_of(key.parent), -1)[parents])
        )

    def _unit_of(self, table: str) -> Rows:
        """A number for the unit that each row belongs to, the same in all tables; shape (rows,).

        It follows from the rows' owners alone, so it is the same with another unit and without it.
        """
        if table not in self._units:
            key = self.schema.table(table).owner_key
            owners = None if key is None else (self.parent_rows(key), self._unit_of(key.parent))
            self._units[table] = unit_numbers(self.schema, table, self.rows(table), owners)
        return self._units[table]

    def _first_children(self, table: str, parents: Rows, alive: NDArray[np.bool_], bound: int) -> NDArray[np.bool_]:
        """``alive`` less the children beyond ``bound`` per parent, in the order of their keyed hash."""
        sizes = _numbers_of(parents, alive, int(parents.max(initial=0)) + 1)
        crowded = np.flatnonzero(alive & np.append(sizes > bound, False)[parents])  # rows without an owner crowd nobody
        if not len(crowded):
            return alive
        keys = self._tables[table].select(list(self.schema.table(table).primary_key)).take(crowded)
        # Arrow writes a value by its type alone; pandas would choose one format for the column, that is, by other rows.
        columns = [_texts(column) for column in keys.columns]
        texts = pc.binary_join_element_wise(*columns, "\x1f").to_numpy(zero_copy_only=False).astype(object)
        order = pd.util.hash_array(texts, hash_key=self._secret, categorize=False)
        ranked = crowded[np.lexsort((order, parents[crowded]))]
        groups = parents[ranked]
        starts = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]])
        rank = np.arange(len(ranked)) - np.repeat(starts, np.diff(np.r_[starts, len(ranked)]))
        result = alive.copy()
        result[ranked[rank >= bound]] = False
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
