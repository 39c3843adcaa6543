"""Which privacy unit a row belongs to, as a number: the row of the unit's table that its owners lead up to.

A row without an owner, where the owner key may be NULL, is a unit of its own, with all that depends on it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privbench_core.schema.tables import Schema

Numbers = NDArray[np.int64]


def unit_numbers(
    schema: Schema, table: str, rows: int, owners: tuple[Numbers, Numbers] | None, first: int = 0
) -> Numbers:
    """Return a number for the unit of each row, shape (rows,): equal for rows of one unit, in whatever table they are.

    Args:
        schema: The database.
        table: A private table.
        rows: Its number of rows.
        owners: The owner's row of each row, -1 for none, and the numbers of the owners' table; None for the unit's
            table.
        first: How many rows of the table are in the ranges before these rows.
    """
    if owners is not None and (owners[0] >= 0).all():
        return owners[1][owners[0]]
    own = np.arange(first, first + rows, dtype=np.int64) * len(schema.tables) + list(schema.by_name).index(table)
    return own if owners is None else np.where(owners[0] < 0, own, np.append(owners[1], -1)[owners[0]])
