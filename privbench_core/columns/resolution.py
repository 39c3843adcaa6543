"""Points in time of two types, compared as the coarser of them counts: years before days, days before microseconds.

A whole number that is compared with a date is a year. The number of a point in time is that of its type, see
`columns.grid`; databases count in the same way (`engines.sql.codes`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.row_constraints import FIRST_DAY, LAST_DAY, part_of_dates
from privbench_core.schema.columns import ColumnType
from privbench_core.schema.row_constraints import DatePart
from privbench_core.schema.types.durations import DAY

Points = NDArray[np.int64]
_FINEST_FIRST = (ColumnType.TIMESTAMP, ColumnType.TIMESTAMPTZ, ColumnType.DATE, ColumnType.INTEGER)


def coarser(one: ColumnType, other: ColumnType) -> ColumnType | None:
    """Return the type in which values of two types are compared; None where they cannot be.

    >>> coarser(ColumnType.TIMESTAMP, ColumnType.DATE), coarser(ColumnType.DATE, ColumnType.INTEGER)
    (<ColumnType.DATE: 'date'>, <ColumnType.INTEGER: 'integer'>)
    """
    if one is other:
        return one
    in_time = {one, other} <= set(_FINEST_FIRST)
    return max(one, other, key=_FINEST_FIRST.index) if in_time else None


def part_shared(kind: ColumnType, to: ColumnType) -> DatePart | None:
    """Return the part of a date or time that the numbers of a coarser type count; None where both count alike."""
    return None if kind is to else {ColumnType.DATE: DatePart.DATE, ColumnType.INTEGER: DatePart.YEAR}.get(to)


def coarsened(numbers: Points, kind: ColumnType, to: ColumnType) -> Points:
    """Return numbers of a type as numbers of a coarser one, rounded down; same shape.

    Where types differ, what lies beyond the years 1 to 9999 counts as their end.

    >>> coarsened(np.array([-1, 0, 364, 365]), ColumnType.DATE, ColumnType.INTEGER).tolist()
    [1969, 1970, 1970, 1971]
    """
    part = part_shared(kind, to)
    if part is None:
        return numbers
    return part_of_dates(numbers.ravel(), part, in_days=kind is ColumnType.DATE).reshape(numbers.shape)


def first_points(numbers: Points, to: ColumnType, kind: ColumnType) -> Points:
    """Return the first number of a finer type ``kind`` that each number of ``to`` stands for; same shape.

    >>> first_points(np.array([1969, 1971]), ColumnType.INTEGER, ColumnType.DATE).tolist()
    [-365, 365]
    """
    if part_shared(kind, to) is None:
        return numbers
    days = numbers
    if to is ColumnType.INTEGER:
        first, last = coarsened(np.array([FIRST_DAY, LAST_DAY]), ColumnType.DATE, to)
        years = np.clip(numbers, first, last + 1) - 1970
        days = years.astype("datetime64[Y]").astype("datetime64[D]").astype(np.int64)
    return days if kind is ColumnType.DATE else np.clip(days, FIRST_DAY, LAST_DAY + 1) * DAY
