"""Lags, as released: how long after another date rows are dated, and joints of two dates that agree with that.

Within a pair of codes, values are taken to be spread evenly; a cell of lags makes each pair of values of it more or
less likely, by the same factor. So a joint is fitted to its margins and to the shares of their cells (iterative
proportional fitting): of all joints that have them it is the nearest to independence. Post-processing only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privbench_core.arrays import Array
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.intervals import OrderedCodec
from privbench_core.columns.lags import Intervals, compared_type, interval_points
from privbench_core.errors import InternalError
from privbench_core.estimators.fitting import fit_margins
from privbench_core.guards import FEW, FITTING_ROUNDS, TINY, TOLERANCE
from privbench_core.stored import Storable


@dataclass(frozen=True)
class Lag(Storable):
    """Released: how long after a column of their owner, or another one of their own, a column of rows is dated.

    Attributes:
        base: The owner's column, or the other one; empty for 1970-01-01.
        column: The rows' own.
        classes: Coder of their difference.
        shares: Of the rows, by cells of ``classes``, adding up to 1, shape (cells,).
    """

    base: str
    column: str
    classes: Discretizer
    shares: Array


@dataclass(frozen=True)
class Ties(Storable):
    """Released: how often rows of one owner have the same date, or the same number.

    Attributes:
        column: Of dates or whole numbers.
        share: Of the rows that come after another one of their owner in its order, those with the value of the one
            before.
    """

    column: str
    share: float


@dataclass(frozen=True)
class Lags:
    """Released: all lags of the dates of a table's rows.

    Attributes:
        of_owners: How long after columns of their owners they are.
        within: How long after other dates of their own; columns coded as differences, also after 1970-01-01.
        assumed: Columns whose range is assumed, as noise hid it.
        ties: How often rows of one owner have the same date or number.
    """

    of_owners: Sequence[Lag] = ()
    within: Sequence[Lag] = ()
    assumed: frozenset[str] = frozenset()
    ties: Sequence[Ties] = ()


def _intervals(classes: Discretizer) -> OrderedCodec:
    if not isinstance(classes.codec, OrderedCodec) or classes.codec.null is None:
        raise InternalError("lags are coded by intervals and a code for those that are not there")
    return classes.codec


def shares_of_cells(classes: Discretizer, shares: Array) -> Array:
    """Return shares of the cells of lags, given those of their classes; shapes (cells,) and (classes,).

    Within a class the density is taken to be a power of the lag: that which leads from the class before it to the one
    after it on its side of zero. Classes of one cell each stay.
    """
    codec, (code_of, _) = _intervals(classes), classes.shares
    if classes.binning is None:
        return shares
    found = shares[code_of].astype(np.float64)
    zero = int(np.searchsorted(codec.starts, 0))
    for side in (np.arange(zero - 1, -1, -1), np.arange(zero + 1, codec.ordered)):
        ends = np.abs(codec.starts[side] if side[0] < zero else codec.ends[side]).astype(np.float64)
        of_class = np.maximum(shares[code_of[side[::2]]], FEW / 10)  # the first cell is one by itself, then pairs
        lengths = np.diff(ends[::2], prepend=0.0)
        slopes = np.gradient(np.log(of_class / lengths), np.log(ends[::2])) if len(of_class) > 1 else np.zeros(1)
        power = 1 + np.clip(slopes[1:], -6, 6)  # of a lag that its density falls or rises with
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
    codec = _intervals(classes)
    to = compared_type(base, own)
    if to is None:
        raise InternalError(f"{codec.grid.where}: columns that cannot be compared have no lags")
    above, here = (tuple(end.astype(np.float64) for end in interval_points(coder, to)) for coder in (base, own))
    chances = np.zeros((*codes, codec.size))
    chances[:, :, : codec.ordered] = 1 / codec.ordered  # of values beyond a range nothing is known
    before = _pairs_before(above, here, codec.starts[1:].astype(np.float64))
    inside = np.diff(before, axis=2, prepend=0.0, append=1.0)
    chances[: len(above[0]), : len(here[0]), : codec.ordered] = np.maximum(inside, 0.0)
    for axis, (coder, size) in enumerate(zip((base, own), codes, strict=True)):
        without = [*range(coder.size, size), *Intervals.of(coder).timeless]
        np.moveaxis(chances, axis, 0)[without] = np.arange(codec.size) == codec.null
    return chances


def _pairs_before(above: tuple[Array, ...], here: tuple[Array, ...], ends: Array) -> Array:
    """Return what share of the pairs of whole numbers of two intervals is less than ``ends`` apart.

    Shape (intervals above, intervals here, ends).
    """

    def pairs(distance: Array) -> Array:
        """Return the number of pairs of numbers from 0 on that add up to less than a distance."""
        return np.where(distance > 0, distance * (distance + 1) / 2, 0.0)

    (x, x_after), (v, v_after) = above, here
    gaps = [
        ends - 1 - (v_end[None, :] - x_end[:, None])[:, :, None] for v_end in (v, v_after) for x_end in (x_after, x)
    ]
    number = pairs(gaps[0]) - pairs(gaps[1]) - pairs(gaps[2]) + pairs(gaps[3])
    possible = np.maximum((x_after - x)[:, None] * (v_after - v)[None, :], 1.0)
    return np.clip(number / possible[:, :, None], 0.0, 1.0)


def expected_lags(first: Array, second: Array, chances: Array) -> Array:
    """Return the counts of cells of lags if both columns were independent, shape (cells,).

    Args:
        first: Counts of the owner's column over the rows.
        second: Counts of the row's, with the same total.
        chances: Of `lag_chances`.
    """
    return np.asarray(np.einsum("a,b,abl->l", first, second / max(float(second.sum()), 1.0), chances))


def joint_with_lags(first: Array, second: Array, chances: Array, shares: Array) -> Array:
    """Return counts of both columns with these margins that agree with the shares of the cells of lags.

    Other arguments are as in `expected_lags`; shape (base codes, own codes).
    """
    total = max(float(second.sum()), TINY)
    wanted = (1 - FEW) * shares * float(second.sum()) + FEW * expected_lags(first, second, chances)
    start = np.outer(first, second)[:, :, None] / total * chances
    margins = [((2,), wanted), ((0,), first), ((1,), second)]
    return np.asarray(fit_margins(start, margins, 2 * FITTING_ROUNDS).sum(axis=2))
