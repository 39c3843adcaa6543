"""The baseline that synthetic rows are to beat: the source without dependences."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from privbench_core.schema.tables import Schema


def shuffled_reference(schema: Schema, tables: Mapping[str, pa.Table], seed: int) -> dict[str, pa.Table]:
    """Return the rows with the columns of each private table permuted independently of each other.

    A foreign key moves as a whole. Columns of primary keys stay, so that those stay unique: all else moves against
    them. One-way marginals, numbers of rows, fanouts and popularity are the source's, and nothing else is. Not private.
    """
    rng = np.random.default_rng(seed)
    result = dict(tables)
    for table in schema.private_tables:
        rows = tables[table.name]
        orders = {column.name: rng.permutation(rows.num_rows) for column in table.attributes}
        fixed = set(table.primary_key)
        for key in table.foreign_keys:
            if fixed.isdisjoint(key.columns):
                orders |= dict.fromkeys(key.columns, rng.permutation(rows.num_rows))
        columns = [rows[n].take(pa.array(orders[n])) if n in orders else rows[n] for n in rows.column_names]
        result[table.name] = pa.table(dict(zip(rows.column_names, columns, strict=True)))
    return result
