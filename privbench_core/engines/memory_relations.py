"""Private rows in memory: who owns a row, which rows are kept, and what each weighs, as `privacy.relations` defines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.arrays import Mask, runs
from privbench_core.columns.differences import beside_rows, modelled_values, values_of_owners
from privbench_core.columns.group_codes import next_in_runs
from privbench_core.engines.stored import keyed_order, unit_divisors, unit_weights
from privbench_core.guards import RANGE_ROWS
from privbench_core.privacy.relations import carries
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema

if TYPE_CHECKING:
    import pandas as pd

Rows = NDArray[np.signedinteger[Any]]


class Relations:
    """All rows of a database, indexed.

    Args:
        schema: The validated schema.
        tables: Arrow tables by name, private and public, integrity already checked.
        secret: Keys the hash that decides which children beyond τ are dropped.
    """

    def __init__(self, schema: Schema, tables: Mapping[str, pa.Table], secret: bytes) -> None:
        self.schema = schema
        self._tables = dict(tables)
        self._secret = secret
        self._kept: dict[str, NDArray[np.bool_]] = {}
        self._parents: dict[str, Rows] = {}
        self._units: dict[str, Rows] = {}
        self._sizes: dict[str, NDArray[np.int64]] = {}
        self._unit_rows: dict[str, NDArray[np.int32]] = {}
        self._leaves: dict[tuple[str, str], pa.ChunkedArray] = {}
        self._next: dict[str, Rows] = {}
        self._references: dict[str, tuple[Rows, tuple[Rows, Rows]]] = {}

    def rows(self, table: str) -> int:
        """Return the exact number of rows: private."""
        return int(self._tables[table].num_rows)

    def values_of(self, table: str, column: str) -> pa.ChunkedArray:
        """Return the column's exact values, whatever it is modelled relative to: private."""
        leaf = self.schema.table(table).leaf(column) is not None
        return self.column(table, column) if leaf else self._tables[table].column(column)

    def column(self, table: str, column: str) -> pa.ChunkedArray:
        """Return the column's exact values, or its differences from the column that it is relative to: private."""
        here, rows = self.schema.table(table), self._tables[table]
        if here.leaf(column) is not None:
            if (table, column) not in self._leaves:
                self._leaves[table, column] = modelled_values(here, rows, column)
            return self._leaves[table, column]
        relative, owner = here.column(column).relative, here.owner_key
        if relative is not None and owner is not None and relative.to in here.owner_bases:
            bases = values_of_owners(here, self._tables[owner.parent], self.parent_rows(owner))
            rows = beside_rows(rows, bases)
        return modelled_values(here, rows, column)

    def parent_rows(self, key: ForeignKey) -> Rows:
        """Return for each child row the row number of its parent, -1 where the key is NULL; shape (children,)."""
        if key.name not in self._parents:
            child, parent = self._tables[key.child], self._tables[key.parent]
            referred, known = _tuples(parent, key.parent_columns)
            numbers = np.append(referred, -1).astype(np.int32 if parent.num_rows < 1 << 31 else np.int64)
            found = np.full(child.num_rows, -1, dtype=numbers.dtype)
            for start in range(0, child.num_rows, RANGE_ROWS):
                referring, wanted = _tuples(child.slice(start, RANGE_ROWS), key.columns)
                found[start + referring] = numbers[known.get_indexer(wanted)]  # -1, no such parent: the last entry
            self._parents[key.name] = found
        return self._parents[key.name]

    def kept_parent_rows(self, key: ForeignKey) -> Rows:
        """Return `parent_rows`, with -1 also where the parent is not kept: what views look along.

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
        """Return which rows survive truncation along the ownership path; shape (rows,).

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
                if carries(self.schema, key):
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
        """Return the kept children of each parent row along an owner key; shape (parents,)."""
        if key.name not in self._sizes:
            self._sizes[key.name] = _numbers_of(self.parent_rows(key), self.kept(key.child), self.rows(key.parent))
        return self._sizes[key.name]

    def unit_rows(self, table: str) -> NDArray[np.int32]:
        """Return the number of kept rows of ``table`` that each row's unit has; shape (rows,)."""
        if table not in self._unit_rows:
            counted = self._of_units(table, self.kept(table).astype(np.int64))
            self._unit_rows[table] = counted.astype(np.int32)
        return self._unit_rows[table]

    def weights(self, table: str, rows_per_unit: tuple[int, ...] = (1,)) -> NDArray[np.int32]:
        """Return the weight of each row in multiples of 1/`WEIGHT_SCALE`, 0 for dropped ones; shape (rows,)."""
        weights = unit_weights(self.unit_rows(table), rows_per_unit)
        weights[~self.kept(table)] = 0
        return weights

    def bounded_weights(self, key: ForeignKey, weights: NDArray[np.int32], most: int) -> NDArray[np.int32]:
        """Return the weight of each row where those count that refer to others along ``key``, see `BoundedReferences`.

        Of ``weights`` where all rows count, 0 for dropped rows; those that refer to rows of one unit weigh at most
        ``most`` together. Shapes (rows,).
        """
        bounded = np.where(self.kept_parent_rows(key) >= 0, weights, 0).astype(np.int32)
        rows, (starts, numbers) = self._referring(key)
        before = np.cumsum(bounded[rows], dtype=np.int64) - bounded[rows]
        before -= np.repeat(before[starts], numbers)
        bounded[rows] = np.clip(most - before, 0, bounded[rows])
        return bounded

    def _referring(self, key: ForeignKey) -> tuple[Rows, tuple[Rows, Rows]]:
        """Return kept rows that refer to others along ``key``, by unit and in keyed order, and the `runs` of units."""
        if key.name not in self._references:
            parents = self.kept_parent_rows(key)
            rows = np.flatnonzero(self.kept(key.child) & (parents >= 0))
            units = self.unit_of(key.parent)[parents[rows]]
            order = np.lexsort((self._keyed_order(key.child, rows), units))
            self._references[key.name] = rows[order], runs(units[order])
        return self._references[key.name]

    def divisors(self, table: str, rows_per_unit: tuple[int, ...]) -> NDArray[np.int64]:
        """Return what the weight of a unit is divided by for each of its rows: T, or their number; shape (rows,)."""
        return unit_divisors(self.unit_rows(table), rows_per_unit)

    def _of_units(self, table: str, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sum of the ``numbers`` of all rows of each row's unit; shape (rows,)."""
        key = self.schema.table(table).owner_key
        if key is None:
            return numbers
        parents = self.parent_rows(key)
        sums = np.zeros(self.rows(key.parent), dtype=np.int64)
        owned = parents >= 0
        np.add.at(sums, parents[owned], numbers[owned])
        return np.where(owned, np.append(self._of_units(key.parent, sums), 0)[parents], numbers)

    def _in_unit(self, key: ForeignKey) -> NDArray[np.bool_]:
        """Return which rows refer along ``key`` to a row of their own unit, or to none; shape (children,)."""
        parents = self.parent_rows(key)
        return np.asarray((parents < 0) | (self.unit_of(key.child) == np.append(self.unit_of(key.parent), -1)[parents]))

    def unit_of(self, table: str) -> Rows:
        """Return a number for the unit that each row belongs to, the same in all tables; shape (rows,).

        It follows from the rows' owners alone, so it is the same with another unit and without it.
        """
        if table not in self._units:
            key = self.schema.table(table).owner_key
            owners = None if key is None else (self.parent_rows(key), self.unit_of(key.parent))
            self._units[table] = self.schema.unit_numbers(table, self.rows(table), owners)
        return self._units[table]

    def _first_children(self, table: str, parents: Rows, alive: NDArray[np.bool_], bound: int) -> NDArray[np.bool_]:
        """Return ``alive`` less the children beyond ``bound`` per parent, in the order of their keyed hash."""
        sizes = _numbers_of(parents, alive, int(parents.max(initial=0)) + 1)
        crowded = np.flatnonzero(alive & np.append(sizes > bound, False)[parents])  # rows without an owner crowd nobody
        if not len(crowded):
            return alive
        rank = _ranks(parents[crowded], self._keyed_order(table, crowded))
        result = alive.copy()
        result[crowded[rank >= bound]] = False
        return result

    def ranks(self, key: ForeignKey, scores: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of kept siblings before each row, shape (rows,); 0 for rows that are not kept or owned.

        Those of a smaller score, shape (rows,), stand before, and of an equal one those of a smaller keyed hash.
        """
        parents = self.parent_rows(key)
        inside = np.flatnonzero(self.kept(key.child) & (parents >= 0))
        result = np.zeros(len(parents), dtype=np.int64)
        result[inside] = _ranks(parents[inside], self._keyed_order(key.child, inside), scores[inside])
        return result

    def next_siblings(self, key: ForeignKey) -> Rows:
        """Return the kept sibling that follows each row by a keyed hash, the first one after the last.

        Shape (rows,); -1 for rows that are not kept, have no owner, or have no sibling.
        """
        if key.name not in self._next:
            parents = self.parent_rows(key)
            inside = np.flatnonzero(self.kept(key.child) & (parents >= 0))
            ordered = inside[np.lexsort((self._keyed_order(key.child, inside), parents[inside]))]
            following = next_in_runs(parents[ordered])
            found = np.full(len(parents), -1, dtype=np.int64)
            found[ordered] = np.where(following < 0, -1, ordered[following])
            self._next[key.name] = found
        return self._next[key.name]

    def previous_siblings(self, key: ForeignKey, numbers: NDArray[np.int64], missing: Mask) -> Rows:
        """Return the kept sibling before each row by a number, and by a keyed hash among equal ones; shape (rows,).

        -1 for the first, for rows that are not kept, have no owner, or whose number is missing, which are passed over.
        """
        parents = self.parent_rows(key)
        inside = np.flatnonzero(self.kept(key.child) & (parents >= 0) & ~missing)
        ordered = inside[np.lexsort((self._keyed_order(key.child, inside), numbers[inside], parents[inside]))]
        found = np.full(len(parents), -1, dtype=np.int64)
        found[ordered[1:]] = np.where(np.diff(parents[ordered]) == 0, ordered[:-1], -1)
        return found

    def _keyed_order(self, table: str, rows: Rows) -> NDArray[np.uint64]:
        """Return keyed hashes of the primary keys of some rows: an order in which no other row has a say."""
        here = self.schema.table(table)
        keys = self._tables[table].select(list(here.primary_key)).take(rows)
        return keyed_order(self._secret, [here.column(name) for name in here.primary_key], keys)


def _ranks(groups: Rows, *orders: NDArray[Any]) -> NDArray[np.int64]:
    """Return how many rows of the same group stand before each, by the last of some orders first; shape (n,)."""
    ranked = np.lexsort((*orders, groups))
    result = np.empty(len(groups), dtype=np.int64)
    result[ranked] = np.arange(len(groups)) - np.repeat(*runs(groups[ranked]))
    return result


def _numbers_of(parents: Rows, counted: NDArray[np.bool_], size: int) -> NDArray[np.int64]:
    """Return how many of the ``counted`` rows each parent has, shape (size,); rows without one are left out."""
    numbers = np.zeros(size, dtype=np.int64)
    for start in range(0, len(parents), max(RANGE_ROWS, size)):
        part = slice(start, start + max(RANGE_ROWS, size))
        numbers += np.bincount(parents[part][counted[part] & (parents[part] >= 0)], minlength=size)
    return numbers


def _tuples(table: pa.Table, columns: tuple[str, ...]) -> tuple[Rows, pd.Index]:
    """Return the rows of a table whose key is complete, and an index over their key tuples."""
    import pandas as pd

    present = np.ones(table.num_rows, dtype=bool)
    for name in columns:
        present &= table.column(name).is_valid().to_numpy()
    rows = np.flatnonzero(present)
    keys = table.select(list(columns)).take(pa.array(rows)) if len(rows) < table.num_rows else table
    arrays = [keys.column(name).to_pandas() for name in columns]  # without NULLs, so integers stay integers
    return rows, pd.Index(arrays[0]) if len(arrays) == 1 else pd.MultiIndex.from_arrays(arrays)
