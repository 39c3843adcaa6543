"""Private rows, joined and bounded: who owns a row, which rows are kept, and how much each may count.

Along the ownership path at most τ children per owner are kept, chosen by a keyed hash of the child's own primary key:
an order that no other row can change, so removing a unit never changes which rows of another unit are kept. A kept
row of an owned table weighs 1 / (product of the group sizes along its path), rounded down to a multiple of
1/`WEIGHT_UNIT`, so that all rows of one unit together weigh at most 1 (PrivPetal, section 4: normalised marginals;
here for chains too).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.schema.model import ForeignKey, Schema

WEIGHT_UNIT = 1 << 20
Rows = NDArray[np.int64]


def stability(schema: Schema, table: str) -> float:
    """The largest total weight that one unit can move in a view of ``table``.

    1 for the unit's own rows. A private table on the ownership path may also refer to *another* private parent, whose
    removal cascades: each of those at most (declared τ × the parent's rows of one unit) removed rows changes one other
    group, whose weight is at most 1 before and at most 1 after (rows leave, the others weigh more, slots are freed):
    2 in L1 per removed row. See ``docs/privacy.md``, "Several private parents".
    """
    return 1.0 + 2.0 * _removed_elsewhere(schema, table)


def _removed_elsewhere(schema: Schema, table: str) -> int:
    """Bound on rows, on the path of ``table``, that one unit's removal takes away through keys that are not its own."""
    path = (schema.table(table), *(schema.table(key.parent) for key in schema.ownership_path(table)))
    total = 0
    for member in path:
        for key in member.foreign_keys:
            if not key.owner and not schema.table(key.parent).public:
                rows = schema.max_rows_per_unit(key.parent) + _removed_elsewhere(schema, key.parent)
                total += rows * (key.max_children or 1)
    return total


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

    def rows(self, table: str) -> int:
        """Exact number of rows: private."""
        return int(self._tables[table].num_rows)

    def values(self, table: str, column: str) -> pa.ChunkedArray:
        """The column's exact values: private."""
        return self._tables[table].column(column)

    def parent_rows(self, key: ForeignKey) -> Rows:
        """For each child row the row number of its parent, -1 where the key is NULL; shape (children,)."""
        if key.name not in self._parents:
            parent = _tuples(self._tables[key.parent], key.parent_columns)
            child = _tuples(self._tables[key.child], key.columns)
            found = parent.get_indexer(child).astype(np.int64)
            null = np.zeros(len(child), dtype=bool)
            for name in key.columns:
                null |= self._tables[key.child].column(name).is_null().to_numpy()
            self._parents[key.name] = np.where(null, -1, found)
        return self._parents[key.name]

    def kept(self, table: str) -> NDArray[np.bool_]:
        """Which rows survive truncation along the ownership path; shape (rows,)."""
        if table not in self._kept:
            owner = self.schema.table(table).owner_key
            if owner is None:
                self._kept[table] = np.ones(self.rows(table), dtype=bool)
            else:
                parents = self.parent_rows(owner)
                alive = (parents >= 0) & self.kept(owner.parent)[parents]
                self._kept[table] = self._first_children(table, parents, alive, owner.max_children or 1)
        return self._kept[table]

    def group_sizes(self, key: ForeignKey) -> Rows:
        """Kept children of each parent row along an owner key; shape (parents,)."""
        kept = self.kept(key.child)
        return np.bincount(self.parent_rows(key)[kept], minlength=self.rows(key.parent)).astype(np.int64)

    def weights(self, table: str) -> Rows:
        """Weight of each row in multiples of 1/`WEIGHT_UNIT`, 0 for dropped rows; shape (rows,)."""
        product = np.ones(self.rows(table), dtype=np.int64)
        rows = np.arange(self.rows(table))
        alive = self.kept(table)
        for key in self.schema.ownership_path(table):
            rows = np.where(alive, self.parent_rows(key)[np.where(alive, rows, 0)], 0) if len(rows) else rows
            product *= np.where(alive, np.maximum(self.group_sizes(key)[rows], 1), 1) if len(rows) else product
        return np.where(alive, WEIGHT_UNIT // product, 0)

    def _first_children(self, table: str, parents: Rows, alive: NDArray[np.bool_], bound: int) -> NDArray[np.bool_]:
        """``alive`` less the children beyond ``bound`` per parent, in the order of their keyed hash."""
        sizes = np.bincount(parents[alive], minlength=1)
        crowded = np.flatnonzero(alive & (sizes[np.where(alive, parents, 0)] > bound))
        if not len(crowded):
            return alive
        keys = self._tables[table].select(list(self.schema.table(table).primary_key)).take(crowded).to_pandas()
        texts = keys.astype(str).agg("\x1f".join, axis=1).to_numpy(dtype=object)
        order = pd.util.hash_array(texts, hash_key=self._secret, categorize=False)
        ranked = crowded[np.lexsort((order, parents[crowded]))]
        groups = parents[ranked]
        starts = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]])
        rank = np.arange(len(ranked)) - np.repeat(starts, np.diff(np.r_[starts, len(ranked)]))
        result = alive.copy()
        result[ranked[rank >= bound]] = False
        return result


def _tuples(table: pa.Table, columns: tuple[str, ...]) -> pd.Index:
    """An index over the key tuples of a table."""
    arrays = [table.column(name).to_pandas() for name in columns]
    return pd.Index(arrays[0]) if len(arrays) == 1 else pd.MultiIndex.from_arrays(arrays)
