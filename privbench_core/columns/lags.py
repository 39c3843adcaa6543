"""Lags: how long after its owner a row is dated, in classes that are finer the shorter the lag is.

A row often comes minutes after the one that it belongs to, while codes of dates are weeks wide: no joint of codes can
say so. A lag is measured in classes of both signs around zero that are each four times as long as the one before, of
two cells that are twice as long as each other: how a class is divided between them follows from its neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.discretizer import Binning, Discretizer
from privbench_core.columns.grid import Grid
from privbench_core.columns.intervals import OrderedCodec
from privbench_core.guards import MAX_CODES
from privbench_core.schema.columns import ColumnType

Points: TypeAlias = NDArray[np.int64]
BEFORE, SAME_TIME, AFTER, NO_LAG = range(4)


def lag_classes(base: Discretizer, own: Discretizer) -> Discretizer | None:
    """Return the coder of a row's column minus that of its owner; None if they are not points in time of one type.

    Whole numbers are points in time, such as years, where both ranges together are narrower than their distance from
    zero. Their lags have cells of one width: ages do not cluster at zero.
    """
    codecs = [coder.codec for coder in (base, own) if isinstance(coder.codec, OrderedCodec)]
    years = len(codecs) == len((base, own)) and far_from_zero(*codecs)
    grids = [codec.grid for codec in codecs if codec.grid.logical.calendar or years]
    if len(grids) < len((base, own)) or len({(grid.type, grid.precision) for grid in grids}) > 1:
        return None
    ends = [int(n) * c.grid.step + c.grid.origin for c in codecs for n in (c.starts[0], c.last)]
    span = max(ends) - min(ends)
    if years:
        width = -(-span // MAX_CODES)
        cells = range(-span, span + 1, width)
        return Discretizer(
            OrderedCodec(Grid(f"{grids[1].where} - {grids[0].where}", ColumnType.INTEGER), True, tuple(cells), span)
        )
    # The shortest lag with a cell of its own is the whole range of the two dates, halved 20 times.
    widths = [max(1, grids[0].step, grids[1].step, span >> 20)]
    while widths[-1] < span or len(widths) % 2 == 0:
        widths.append(widths[-1] * 2)
    cuts = (*(-width for width in reversed(widths)), 0, 1, *(width + 1 for width in widths[:-1]))
    difference = grids[0].type.difference
    if difference is None:
        return None
    grid = Grid(f"{grids[1].where} - {grids[0].where}", difference)
    codec = OrderedCodec(grid, True, cuts, widths[-1])
    pairs = (np.arange(len(widths)) + 1) // 2  # the first one is by itself
    far = int(pairs[-1])
    sides = np.concatenate([far - pairs[::-1], [far + 1], far + 2 + pairs])
    code_of = np.append(sides, sides[-1] + 1 + np.arange(codec.size - codec.ordered))
    return Discretizer(codec, Binning.even(code_of, int(sides[-1]) + 1))


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
    """Return whether the ranges of whole numbers together are narrower than their distance from zero."""
    whole = all(codec.grid.type is ColumnType.INTEGER for codec in codecs)
    least, most = min(codec.starts[0] for codec in codecs), max(codec.last for codec in codecs)
    return whole and most - least < least


def interval_points(coder: Discretizer) -> tuple[Points, Points]:
    """Return the first value of each interval code of a column, and the one after its last, as numbers of its type."""
    codec, intervals = coder.codec, Intervals.of(coder)
    if not isinstance(codec, OrderedCodec):
        return intervals.first, intervals.last
    first, after = (numbers * codec.grid.step + codec.grid.origin for numbers in (intervals.first, intervals.last + 1))
    return first, after


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
