"""The order of rows: synthetic rows are numbered, and published, in the order in which the source has added its own.

Databases number rows as they come, and store them so: what is dated later has a higher key and lies further back. It
decides which rows are in one page of a table, and so how long an index scan takes, and what the optimiser expects of
it. The column that says which row came first is declared (`Table.row_order`), so nothing is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.schema.tables import Schema, Table

Places = NDArray[np.signedinteger[Any]]


@dataclass(frozen=True)
class Numbering:
    """How rows are numbered, where their primary key is not a foreign key.

    Attributes:
        before: How many rows are in the ranges of the table before this one.
        total: How many are in all of them.
        added_by: Columns in whose order they are; none for that in which they are drawn.
    """

    before: int
    total: int
    added_by: tuple[str, ...] = ()


def added_by(schema: Schema, table: Table) -> tuple[str, ...]:
    """The columns in whose order rows are numbered and published; none where they stay as they are drawn.

    `Table.row_order`; where a table has none, but one above it has, the keys of its owners, as if rows had been added
    with them. Not of owners with UUIDs, whose order says nothing.
    """
    if table.row_order is not None:
        return (table.row_order,)
    key = table.owner_key
    if key is None or any(table.column(name).logical.surrogate == "uuid" for name in key.columns):
        return ()
    return key.columns if added_by(schema, schema.table(key.parent)) else ()


def added_order(columns: Sequence[pa.Array]) -> Places:
    """Return the rows in the order of some columns, equal ones as they are and NULL last; shape (rows,).

    >>> added_order([pa.array([5, None, 3, 5])]).tolist()
    [2, 0, 3, 1]
    """
    names = [str(number) for number in range(len(columns))]
    rows = pa.table(list(columns), names=names)
    order: Places = pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in names]).to_numpy()
    return order.astype(np.int64)


def as_added(schema: Schema, table: Table, rows: pa.Table) -> pa.Table:
    """Return the rows of a table, or of a range of it, as they are published: see `added_by`."""
    names = added_by(schema, table)
    return rows.take(added_order([rows.column(name) for name in (*names, *table.primary_key)])) if names else rows
