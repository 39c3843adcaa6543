"""Lags, as released: how long after another date rows are dated, and what that says within pairs of codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.intervals import OrderedCodec
from privbench_core.columns.lags import Intervals, interval_points
from privbench_core.errors import InternalError
from privbench_core.estimate.lags import pairs_before
from privbench_core.guards import FEW, MAX_POWER, TOLERANCE
from privbench_core.stored import Storable

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Lag(Storable):
    """Released: how long after a column of their owner, or another one of their own, a column of rows is dated.

    Attributes:
        base: The owner's column, or the other one.
        column: The rows' own.
        classes: Coder of their difference.
        shares: Of the rows, by cells of ``classes``, adding up to 1, shape (cells,).
        above: Coder of the base: if it is the owner's, a joint with its codes is among those that children are drawn
            from.
    """

    base: str
    column: str
    classes: Discretizer
    shares: Array
    above: Discretizer

    @property
    def context(self) -> str:
        """How the owner's column is called where it has the codes of ``above``."""
        return f"{self.base}, finer for {self.column}"


@dataclass(frozen=True)
class Lags:
    """Released: all lags of the dates of a table's rows.

    Attributes:
        of_owners: How long after columns of their owners they are.
        within: How long after other dates of their own.
        assumed: Columns whose range is assumed, as noise hid it.
    """

    of_owners: Sequence[Lag] = ()
    within: Sequence[Lag] = ()
    assumed: frozenset[str] = frozenset()


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
        of_class = np.maximum(shares[code_of[side[::2]]], FEW / 10)  # the first cell is one by itself, then pairs
        lengths = np.diff(ends[::2], prepend=0.0)
        slopes = np.gradient(np.log(of_class / lengths), np.log(ends[::2])) if len(of_class) > 1 else np.zeros(1)
        power = 1 + np.clip(slopes[1:], -MAX_POWER, MAX_POWER)
        power = np.where(np.abs(power) < TOLERANCE, TOLERANCE, power)
        nearer = (2.0**power - 1) / (4.0**power - 1)
        found[side[1::2]] *= nearer
        found[side[2::2]] *= 1 - nearer
    return found


def lag_chances(base: Discretizer, own: Discretizer, classes: Discretizer, codes: tuple[int, int]) -> Array:
    """Return how likely the cells of lags are within each pair of codes, shape (base codes, own codes, cells).

    Args:
        base: Of the owner's column.
        own: Of the row's.
        classes: Of the difference.
        codes: Numbers of codes of both; further ones than the coders have are of rows without an owner.
    """
    codec = classes.codec
    if not isinstance(codec, OrderedCodec) or codec.null is None:
        raise InternalError("lags are coded by intervals and a code for those that are not there")
    above, here = (tuple(end.astype(np.float64) for end in interval_points(coder)) for coder in (base, own))
    chances = np.zeros((*codes, codec.size))
    chances[:, :, : codec.ordered] = 1 / codec.ordered  # of values beyond a range nothing is known
    before = pairs_before(above, here, codec.starts[1:].astype(np.float64))
    inside = np.diff(before, axis=2, prepend=0.0, append=1.0)
    chances[: len(above[0]), : len(here[0]), : codec.ordered] = np.maximum(inside, 0.0)
    for axis, (coder, size) in enumerate(zip((base, own), codes, strict=True)):
        null = Intervals.of(coder).null
        for code in (*range(coder.size, size), *(() if null is None else (null,))):
            where = (code, slice(None)) if axis == 0 else (slice(None), code)
            chances[where] = np.arange(codec.size) == codec.null
    return chances
