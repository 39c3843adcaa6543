"""Lags: how long after its owner a row is dated, in classes that are finer the shorter the lag is.

A row often comes minutes after the one that it belongs to, while codes of dates are weeks wide: no joint of codes can
say so. A lag is measured in classes of both signs around zero that are each four times as long as the one before, of
two cells that are twice as long as each other: how a class is divided between them follows from its neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.binning import Binning
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.equal_width import OrderedCodec
from privbench_core.columns.grid import Grid
from privbench_core.columns.variable_width import VariableWidthCodec
from privbench_core.errors import InternalError

Array = NDArray[np.float64]
Points: TypeAlias = NDArray[np.int64]
_FINEST = 1 << 20  # of the span of both columns: the first class beside zero
_LEAST = 1e-4  # of all rows: share of a class, where a slope is worked out from it
_SLIGHT = 1e-6  # power that stands for none, so that divisions stay finite
_STEEPEST = 6.0  # power of the lag that its density falls with, or rises


@dataclass(frozen=True)
class Lag:
    """Released: how long after a column of their owner a column of rows is dated.

    Attributes:
        base: The owner's column.
        column: The rows' own.
        classes: Coder of their difference.
        shares: Of the rows, by cells of ``classes``, adding up to 1, shape (cells,).
        above: Coder of the owner's column: a joint with its codes is among those that children are drawn from.
    """

    base: str
    column: str
    classes: Discretizer
    shares: Array
    above: Discretizer

    @property
    def context(self) -> str:
        """How the owner's column is called where it has the codes of ``above``."""
        return f"{self.base}, closer for {self.column}"

    def to_dict(self) -> dict[str, Any]:
        """Return a description that `Artifact` can store."""
        coders = {"classes": self.classes.to_dict(), "above": self.above.to_dict()}
        return {"base": self.base, "column": self.column, **coders, "shares": self.shares}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Lag:
        """Return the inverse of `to_dict`."""
        classes, above = (Discretizer.from_dict(stored[name]) for name in ("classes", "above"))
        return cls(stored["base"], stored["column"], classes, stored["shares"], above)


def lag_classes(base: Discretizer, own: Discretizer) -> Discretizer | None:
    """Return the coder of the difference of two columns; None where they are not points in time of one type.

    Args:
        base: Of the owner's column.
        own: Of the row's.
    """
    ends = [points_of(coder) for coder in (base, own)]
    grids = [coder.codec.grid for coder in (base, own) if isinstance(coder.codec, OrderedCodec)]
    if ends[0] is None or ends[1] is None or (grids[0].type, grids[0].precision) != (grids[1].type, grids[1].precision):
        return None
    span = max(ends[0][1], ends[1][1]) - min(ends[0][0], ends[1][0])
    widths = [max(1, grids[0].step, grids[1].step, span // _FINEST)]
    while widths[-1] < span or len(widths) % 2 == 0:
        widths.append(widths[-1] * 2)
    cuts = (*(-width for width in reversed(widths)), 0, 1, *(width + 1 for width in widths[:-1]))
    difference = grids[0].type.difference
    if difference is None:
        return None
    grid = Grid(f"{grids[1].where} - {grids[0].where}", difference)
    codec = VariableWidthCodec(grid, True, cuts, widths[-1])
    pairs = (np.arange(len(widths)) + 1) // 2  # the first one is by itself
    far = int(pairs[-1])
    sides = np.concatenate([far - pairs[::-1], [far + 1], far + 2 + pairs])
    code_of = np.append(sides, sides[-1] + 1 + np.arange(codec.size - codec.ordered))
    weights = 1 / np.bincount(code_of)[code_of]
    return Discretizer(codec, Binning(tuple(code_of.tolist()), tuple(weights.tolist()), int(sides[-1]) + 1))


def shares_of_cells(classes: Discretizer, shares: Array) -> Array:
    """Return shares of the cells of lags, given those of their classes; shape (cells,).

    Within a class the density is taken to be a power of the lag: that which leads from the class before it to the one
    after it on its side of zero.

    Args:
        classes: Of `lag_classes`.
        shares: Of the rows, shape (classes,).
    """
    codec, (code_of, _) = classes.codec, classes.shares
    if not isinstance(codec, OrderedCodec):
        raise InternalError("lags are coded by intervals")
    found = shares[code_of].astype(np.float64)
    zero = int(np.searchsorted(codec.starts, 0))
    for side in (np.arange(zero - 1, -1, -1), np.arange(zero + 1, codec.ordered)):
        ends = np.abs(codec.starts[side] if side[0] < zero else codec.ends[side]).astype(np.float64)
        of_class = np.maximum(shares[code_of[side[::2]]], _LEAST)  # the first cell is one by itself, then pairs
        lengths = np.diff(ends[::2], prepend=0.0)
        slopes = np.gradient(np.log(of_class / lengths), np.log(ends[::2])) if len(of_class) > 1 else np.zeros(1)
        power = 1 + np.clip(slopes[1:], -_STEEPEST, _STEEPEST)
        power = np.where(np.abs(power) < _SLIGHT, _SLIGHT, power)
        nearer = (2.0**power - 1) / (4.0**power - 1)
        found[side[1::2]] *= nearer
        found[side[2::2]] *= 1 - nearer
    return found


def points_of(coder: Discretizer) -> tuple[int, int] | None:
    """Return the first and the last value of a column of points in time, as numbers of its type; None for others."""
    codec = coder.codec
    if not isinstance(codec, OrderedCodec) or not codec.grid.logical.calendar:
        return None
    grid = codec.grid
    return int(codec.starts[0]) * grid.step + grid.origin, int(codec.last) * grid.step + grid.origin


def first_points(coder: Discretizer) -> Points:
    """Return the first value of each interval code of a column of points in time, as numbers of its type."""
    if not isinstance(coder.codec, OrderedCodec):
        return np.empty(0, np.int64)
    return Intervals.of(coder).first * coder.codec.grid.step + coder.codec.grid.origin


@dataclass(frozen=True)
class Intervals:
    """Where the codes of an ordered column lie.

    Attributes:
        first: First number of each interval code, in steps of the column's grid, shape (intervals,).
        last: Last number of each, same shape.
        null: Code of NULL; None where there is none that is ever drawn.
    """

    first: Points
    last: Points
    null: int | None

    @classmethod
    def of(cls, coder: Discretizer) -> Intervals:
        """Return where the codes of a coder lie whose codec is an `OrderedCodec`."""
        codec, (code_of, shares) = coder.codec, coder.shares
        if not isinstance(codec, OrderedCodec):
            return cls(np.empty(0, np.int64), np.empty(0, np.int64), None)
        cells = np.flatnonzero(shares[: codec.ordered] > 0)
        cells = cells[code_of[cells] < coder.ordered]
        first, last = np.zeros(coder.ordered, np.int64), np.full(coder.ordered, -1, np.int64)
        last[code_of[cells]] = codec.ends[cells]  # cells ascend: the last one stays
        first[code_of[cells[::-1]]] = codec.starts[cells[::-1]]
        null = codec.null
        return cls(first, last, int(code_of[null]) if null is not None and shares[null] > 0 else None)
