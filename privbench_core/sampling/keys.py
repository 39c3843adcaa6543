"""Fresh keys for synthetic rows: numbered, so no key of the source can come back except by being a small number."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.domain.grid import Grid
from privbench_core.errors import PublishError
from privbench_core.schema.model import Column, ColumnType

_DIGITS = 6
_FIRST_DAY = "2000-01-01"
_MICROSECONDS = 1_000_000


def fresh_key(column: Column, n: int, *, prefix: str) -> pa.Array:
    """``n`` distinct values for a key column, in ascending order.

    Args:
        column: Its type decides the form of the keys.
        n: Number of rows.
        prefix: Usually the table's name; text keys begin with it.

    Returns:
        Integers, decimals and floats 1 to n; text ``prefix-000001`` and so on; dates and timestamps consecutive days
        and seconds from 2000-01-01; booleans false and true.

    Raises:
        PublishError: The type has fewer than ``n`` values.

    >>> fresh_key(Column("id", ColumnType.TEXT), 2, prefix="person").to_pylist()
    ['person-000001', 'person-000002']
    """
    numbers = np.arange(1, n + 1, dtype=np.int64)
    match column.type:
        case ColumnType.TEXT | ColumnType.CATEGORY:
            padded = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), max(_DIGITS, len(str(n))), "0")
            return pc.binary_join_element_wise(pa.scalar(prefix), padded, "-")
        case ColumnType.BOOLEAN:
            _room(column, n, 2, prefix)
            return pa.array(numbers > 1)
        case ColumnType.INTEGER:
            return pa.array(numbers)
        case ColumnType.FLOAT:
            return pa.array(numbers.astype(np.float64))
        case _:
            grid = Grid.of(column, prefix)
            first, step = _series(column, grid)
            _room(column, n, (grid.extent[1] - first) // step + 1, prefix)
            return grid.array(first + step * (numbers - 1))


def ordinal_within(groups: NDArray[np.integer]) -> NDArray[np.int64]:
    """The running number of each row inside its group, from 1, in row order.

    Args:
        groups: Group of each row, shape (n,), in any order.

    >>> ordinal_within(np.array([7, 3, 7, 7, 3])).tolist()
    [1, 1, 2, 3, 2]
    """
    order = np.argsort(groups, kind="stable")
    sorted_groups = groups[order]
    position = np.arange(len(groups), dtype=np.int64)
    begins = np.concatenate([[True], sorted_groups[1:] != sorted_groups[:-1]])[: len(groups)]
    start = np.maximum.accumulate(np.where(begins, position, 0))
    ordinals = np.empty(len(groups), np.int64)
    ordinals[order] = position - start + 1
    return ordinals


def _series(column: Column, grid: Grid) -> tuple[int, int]:
    """First number and step on the column's grid."""
    match column.type:
        case ColumnType.DECIMAL:
            one = 10 ** (column.scale or 0)
            return one, one
        case ColumnType.DATE:
            return int(grid.number(_FIRST_DAY)), 1
        case _:
            return int(grid.number(_FIRST_DAY)), _MICROSECONDS


def _room(column: Column, n: int, available: int, prefix: str) -> None:
    if n > available:
        raise PublishError(
            f"{prefix}.{column.name}: a key of type {column.type} has room for {max(available, 0):,} rows, "
            f"and {n:,} are needed; declare a wider type or lower --scale"
        )
