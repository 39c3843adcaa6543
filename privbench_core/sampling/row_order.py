"""The order of rows: synthetic rows are numbered, and published, in the order in which the source has added its own.

Databases number rows as they come, and store them so: what is dated later has a higher key and lies further back. It
decides which rows are in one page of a table, and so how long an index scan takes, and what the optimiser expects of
it. The column that says which row came first is declared (`Table.row_order`), so nothing is measured.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.schema.tables import Schema, Table

Places = NDArray[np.signedinteger[Any]]


def added_order(column: pa.Array) -> Places:
    """Return the rows in the order of a column, equal ones as they are and NULL last; shape (rows,).

    >>> added_order(pa.array([5, None, 3, 5])).tolist()
    [2, 0, 3, 1]
    """
    order: Places = pc.sort_indices(column).to_numpy().astype(np.int64)
    return order


def as_added(schema: Schema, table: Table, rows: pa.Table) -> pa.Table:
    """Return the rows of a table, or of a range of it, as they are published.

    In the order of `Table.row_order`; where a table has none, but one above it has, in the order of their owners, as if
    they had been added with them. Equal rows stay as they are, so an order of the keys within a group is kept.
    """
    if not is_reordered(schema, table):
        return rows
    key = table.owner_key
    columns = (table.row_order, *table.primary_key) if table.row_order is not None else key.columns if key else ()
    return rows.take(pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in columns]))


def is_reordered(schema: Schema, table: Table) -> bool:
    """Whether rows of a table are published in another order than they are drawn in.

    Not after owners with UUIDs, whose order says nothing.
    """
    if table.row_order is not None:
        return True
    key = table.owner_key
    if key is None or any(table.column(name).logical.surrogate == "uuid" for name in key.columns):
        return False
    return is_reordered(schema, schema.table(key.parent))
