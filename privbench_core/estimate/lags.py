"""Joints of two columns of dates that agree with how long after one the other is. Post-processing only.

Within a pair of codes, values are taken to be spread evenly; a cell of lags makes each pair of values of it more or
less likely, by the same factor. So a joint is fitted to its margins and to the shares of their cells (iterative
proportional fitting): of all joints that have them it is the nearest to independence.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.equal_width import OrderedCodec
from privbench_core.columns.lags import Intervals
from privbench_core.errors import InternalError
from privbench_core.estimate.fitting import fit_margins

Array = NDArray[np.float64]
_ROUNDS = 30  # of fitting; chosen by hand, changes are small from there on
_POSSIBLE = 1e-3  # of what is expected without a dependence is mixed in: no cell is ruled out


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
    above, here = (_in_points(coder) for coder in (base, own))
    chances = np.zeros((*codes, codec.size))
    chances[:, :, : codec.ordered] = 1 / codec.ordered  # of values beyond a range nothing is known
    before = _pairs_before(above, here, codec.starts[1:].astype(np.float64))
    inside = np.diff(before, axis=2, prepend=0.0, append=1.0)
    chances[: len(above[0]), : len(here[0]), : codec.ordered] = np.maximum(inside, 0.0)
    for axis, (coder, size) in enumerate(zip((base, own), codes, strict=True)):
        null = Intervals.of(coder).null
        for code in (*range(coder.size, size), *(() if null is None else (null,))):
            where = (code, slice(None)) if axis == 0 else (slice(None), code)
            chances[where] = np.arange(codec.size) == codec.null
    return chances


def expected_lags(first: Array, second: Array, chances: Array) -> Array:
    """Return the counts of cells of lags if both columns were independent, shape (cells,).

    Args:
        first: Counts of the owner's column over the rows.
        second: Counts of the row's, with the same total.
        chances: Of `lag_chances`.
    """
    return np.asarray(np.einsum("a,b,abl->l", first, second / max(float(second.sum()), 1.0), chances))


def joint_with_lags(first: Array, second: Array, chances: Array, lags: Array) -> Array:
    """Return counts of both columns with these margins that agree with counts of lags, shape (base codes, own codes).

    Args:
        first: As in `expected_lags`.
        second: As there.
        chances: Of `lag_chances`.
        lags: Counts of the cells, with the same total.
    """
    total = max(float(second.sum()), 1e-300)
    wanted = (1 - _POSSIBLE) * lags + _POSSIBLE * expected_lags(first, second, chances)
    start = np.outer(first, second)[:, :, None] / total * chances
    margins = [((2,), wanted), ((0,), first), ((1,), second)]
    return np.asarray(fit_margins(start, margins, _ROUNDS).sum(axis=2))


def _in_points(coder: Discretizer) -> tuple[Array, Array]:
    """Return the first number of each interval code, and the one after its last, in the numbers of the type."""
    codec = coder.codec
    if not isinstance(codec, OrderedCodec):
        raise InternalError("lags are between columns with an order")
    intervals, grid = Intervals.of(coder), codec.grid
    ends = (intervals.first, intervals.last + 1)
    first, after = (end.astype(np.float64) * grid.step + grid.origin for end in ends)
    return first, after


def _pairs_before(above: tuple[Array, Array], here: tuple[Array, Array], ends: Array) -> Array:
    """Return what share of the pairs of whole numbers of two intervals is less than ``ends`` apart.

    Shape (intervals above, intervals here, ends).
    """
    (x, x_after), (v, v_after) = above, here

    def pairs(distance: Array) -> Array:
        """Pairs of numbers from 0 on that add up to less than a distance."""
        return np.where(distance > 0, distance * (distance + 1) / 2, 0.0)

    gaps = [
        ends - 1 - (v_end[None, :] - x_end[:, None])[:, :, None] for v_end in (v, v_after) for x_end in (x_after, x)
    ]
    number = pairs(gaps[0]) - pairs(gaps[1]) - pairs(gaps[2]) + pairs(gaps[3])
    possible = np.maximum((x_after - x)[:, None] * (v_after - v)[None, :], 1.0)
    return np.clip(number / possible[:, :, None], 0.0, 1.0)
