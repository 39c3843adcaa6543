"""Joints of two columns of dates that agree with how long after one the other is. Post-processing only.

Within a pair of codes, values are taken to be spread evenly; a cell of lags makes each pair of values of it more or
less likely, by the same factor. So a joint is fitted to its margins and to the shares of their cells (iterative
proportional fitting): of all joints that have them it is the nearest to independence.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privbench_core.estimate.fitting import fit_margins
from privbench_core.guards import FEW, FITTING_ROUNDS, TINY

Array = NDArray[np.float64]


def expected_lags(first: Array, second: Array, chances: Array) -> Array:
    """Return the counts of cells of lags if both columns were independent, shape (cells,).

    Args:
        first: Counts of the owner's column over the rows.
        second: Counts of the row's, with the same total.
        chances: How likely the cells of lags are within each pair of codes, shape (base codes, own codes, cells).
    """
    return np.asarray(np.einsum("a,b,abl->l", first, second / max(float(second.sum()), 1.0), chances))


def joint_with_lags(first: Array, second: Array, chances: Array, lags: Array) -> Array:
    """Return counts of both columns with these margins that agree with counts of lags, shape (base codes, own codes).

    Args:
        first: As in `expected_lags`.
        second: As there.
        chances: As there.
        lags: Counts of the cells, with the same total.
    """
    total = max(float(second.sum()), TINY)
    wanted = (1 - FEW) * lags + FEW * expected_lags(first, second, chances)
    start = np.outer(first, second)[:, :, None] / total * chances
    margins = [((2,), wanted), ((0,), first), ((1,), second)]
    return np.asarray(fit_margins(start, margins, 2 * FITTING_ROUNDS).sum(axis=2))


def pairs_before(above: tuple[Array, ...], here: tuple[Array, ...], ends: Array) -> Array:
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
