"""Lags: how long after its owner a row is dated, in classes that are finer the shorter the lag is.

Points in time of two types are compared as the coarser of them counts: years before days, days before microseconds. A
whole number that is compared with a date is a year. The number of a point in time is that of its type, see
`columns.grid`; databases count in the same way (`engines.sql.codes`).

A row often comes minutes after the one that it belongs to, while codes of dates are weeks wide: no joint of codes can
say so. A lag is measured in classes of both signs around zero that are each four times as long as the one before, of
two cells that are twice as long as each other: how a class is divided between them follows from its neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.discretizer import Binning, Discretizer
from privbench_core.columns.grid import Grid
from privbench_core.columns.intervals import OrderedCodec
from privbench_core.columns.row_constraints import FIRST_DAY, LAST_DAY, part_of_dates
from privbench_core.guards import MAX_CODES
from privbench_core.schema.columns import ColumnType
from privbench_core.schema.row_constraints import DatePart
from privbench_core.schema.types.durations import DAY

Points = NDArray[np.int64]
BEFORE, SAME_TIME, AFTER, NO_LAG = range(4)
_FINEST_FIRST = (ColumnType.TIMESTAMP, ColumnType.TIMESTAMPTZ, ColumnType.DATE, ColumnType.INTEGER)


def lag_classes(base: Discretizer, own: Discretizer) -> Discretizer | None:
    """Return the coder of a row's column minus that of its owner; None if they are not both points in time.

    Whole numbers are points in time, such as years, where both ranges together are narrower than their distance from
    zero; a date counts by its year. Their lags have cells of one width, but for zero: ages do not cluster there.
    """
    codecs = [coder.codec for coder in (base, own) if isinstance(coder.codec, OrderedCodec)]
    grids, to = [codec.grid for codec in codecs], compared_type(base, own)
    years = to is ColumnType.INTEGER and far_from_zero(*codecs)
    if to is None or (difference := to.difference) is None or not (to.logical.calendar or years):
        return None
    ends = [end for codec in codecs for end in _ends(codec, to)]
    span, grid = max(ends) - min(ends), Grid(f"{grids[1].where} - {grids[0].where}", difference)
    if years:
        width = max(1, -(-span // MAX_CODES))
        last = max(width, -(-span // width) * width)
        cells = (*range(-last, 0, width), 0, *range(1, last + 1, width))
        return Discretizer(OrderedCodec(grid, True, cells, last))
    # The shortest lag with a cell of its own is the whole range of the two dates, halved 20 times.
    widths = [max(1, span >> 20, *(each.step for each in grids if each.type is to))]
    while widths[-1] < span or len(widths) % 2 == 0:
        widths.append(widths[-1] * 2)
    cuts = (*(-width for width in reversed(widths)), 0, 1, *(width + 1 for width in widths[:-1]))
    codec = OrderedCodec(grid, True, cuts, widths[-1])
    pairs = (np.arange(len(widths)) + 1) // 2  # the first one is by itself
    far = int(pairs[-1])
    sides = np.concatenate([far - pairs[::-1], [far + 1], far + 2 + pairs])
    code_of = np.append(sides, sides[-1] + 1 + np.arange(codec.size - codec.ordered))
    return Discretizer(codec, Binning.even(code_of, int(sides[-1]) + 1))


def compared_type(base: Discretizer, own: Discretizer) -> ColumnType | None:
    """Return the type in which the values of two coders are compared; None where they cannot be."""
    kinds = [coder.codec.grid.type for coder in (base, own) if isinstance(coder.codec, OrderedCodec)]
    return coarser(kinds[0], kinds[1]) if len(kinds) == len((base, own)) else None


def tie_classes(own: Discretizer) -> Discretizer | None:
    """Return the coder of a date or number of a row minus that of the row before it: none, or more; None of others."""
    codec = own.codec
    if not isinstance(codec, OrderedCodec) or (difference := codec.grid.type.difference) is None:
        return None
    span = max(1, int(codec.last - codec.starts[0]) * codec.grid.step)
    return Discretizer(OrderedCodec(Grid(f"{codec.grid.where} - the row before", difference), True, (0, 1), span))


def lag_sides(classes: Discretizer) -> NDArray[np.int64]:
    """Return whether each class of lags is before the other date, at the same time, after it or none; shape (classes,).

    >>> BEFORE, SAME_TIME, AFTER, NO_LAG
    (0, 1, 2, 3)
    """
    codec, (code_of, _) = classes.codec, classes.shares
    sides = np.full(classes.size, NO_LAG)
    if isinstance(codec, OrderedCodec):
        sides[code_of[: codec.ordered]] = SAME_TIME + np.sign(codec.starts)
    return sides


def far_from_zero(*codecs: OrderedCodec) -> bool:
    """Return whether the ranges of whole numbers, or years, together are narrower than their distance from zero."""
    if any(coarser(codec.grid.type, ColumnType.INTEGER) is None for codec in codecs):
        return False
    ends = [end for codec in codecs for end in _ends(codec, ColumnType.INTEGER)]
    return max(ends) - min(ends) < min(ends)


def _ends(codec: OrderedCodec, to: ColumnType) -> list[int]:
    """Return the first and the last value of a codec, as numbers of a coarser type."""
    grid, ends = codec.grid, np.array([codec.starts[0], codec.last], np.int64)
    return [*map(int, coarsened(ends * grid.step + grid.origin, grid.type, to))]


def interval_points(coder: Discretizer, to: ColumnType) -> tuple[Points, Points]:
    """Return the first value of each interval code of a column, and the one after its last, as numbers of ``to``."""
    codec, intervals = coder.codec, Intervals.of(coder)
    if not isinstance(codec, OrderedCodec):
        return intervals.first, intervals.last
    grid = codec.grid
    first, after = (numbers * grid.step + grid.origin for numbers in (intervals.first, intervals.last + 1))
    return coarsened(first, grid.type, to), coarsened(after - 1, grid.type, to) + 1


@dataclass(frozen=True)
class Intervals:
    """Where the codes of an ordered column lie.

    Attributes:
        first: First number of each interval code, in steps of the column's grid, shape (intervals,).
        last: Last number of each, same shape.
        timeless: Codes without a point in time that are drawn: of NULL, and of values that are a sentinel.
    """

    first: Points
    last: Points
    timeless: tuple[int, ...] = ()

    @classmethod
    def of(cls, coder: Discretizer) -> Intervals:
        """Return where the codes of a coder lie whose codec is an `OrderedCodec`."""
        codec, (code_of, shares) = coder.codec, coder.shares
        if not isinstance(codec, OrderedCodec):
            return cls(np.empty(0, np.int64), np.empty(0, np.int64))
        cells = np.flatnonzero(shares[: codec.ordered] > 0)
        cells = cells[code_of[cells] < coder.ordered]
        first, last = np.zeros(coder.ordered, np.int64), np.full(coder.ordered, -1, np.int64)
        last[code_of[cells]] = codec.ends[cells]  # cells ascend: the last one stays
        first[code_of[cells[::-1]]] = codec.starts[cells[::-1]]
        timeless = (codec.null, None if codec.sentinel is None else codec.above)
        return cls(first, last, tuple(int(code_of[cell]) for cell in timeless if cell is not None and shares[cell] > 0))


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
    """Return the part of a date or time that the numbers of a coarser type count; None where their unit is the same."""
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
