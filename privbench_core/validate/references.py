"""Resolve references: the parent row of each row, and its privacy unit."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.columns.systematic import ascends
from privbench_core.sampling.keys import common_numbers
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema

NO_PARENT = -1
"""Stands for the parent row of a child whose key is NULL or has no match."""


def parent_rows(parent: pa.Table, child: pa.Table, key: ForeignKey) -> NDArray[np.int64]:
    """Return the parent row of each child row, `NO_PARENT` for NULL keys and keys without a match.

    Keys are compared column by column in the parent's type, and must be unique in the parent.

    Returns:
        Row positions, shape (child rows,).
    """
    if len(key.columns) == 1:
        known = parent[key.parent_columns[0]].combine_chunks()
        mine = child[key.columns[0]].cast(known.type)
        if _is_series(known) and not mine.null_count:
            first, numbers = known[0].as_py(), mine.to_numpy()
            there = (numbers >= first) & (numbers < first + len(known))
            return np.where(there, numbers - first, NO_PARENT)
        found = pc.index_in(mine, value_set=known, skip_nulls=True).fill_null(NO_PARENT)
        return np.asarray(found.to_numpy(), np.int64)
    theirs, ours = common_numbers(
        [parent[name] for name in key.parent_columns],
        [child[name] for name in key.columns],
        (parent.num_rows, child.num_rows),
    )
    row_of = np.full(int(max(theirs.max(initial=0), ours.max(initial=0))) + 2, NO_PARENT, np.int64)
    row_of[theirs] = np.arange(parent.num_rows)
    row_of[-1] = NO_PARENT  # where a column is NULL
    return row_of[ours]


def _is_series(values: pa.Array) -> bool:
    """Return whether some whole numbers follow each other without a gap, as fresh keys do."""
    if not len(values) or not ascends(values):
        return False
    first, last = values[0].as_py(), values[-1].as_py()
    return bool(first >= 0 and last - first == len(values) - 1)


def unit_rows(schema: Schema, table: str, tables: Mapping[str, pa.Table]) -> NDArray[np.int64]:
    """Return the number of the privacy unit of each row of a private table, equal across tables; shape (rows,)."""
    key = schema.table(table).owner_key
    owners = None
    if key is not None:
        owners = parent_rows(tables[key.parent], tables[table], key), unit_rows(schema, key.parent, tables)
    return schema.unit_numbers(table, tables[table].num_rows, owners)
