"""Which neighbouring cells belong together, on released counts: segments, smoothing inside of them, greedy merging."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

from privbench_core.estimate.simplex import onto_simplex

Floats = NDArray[np.float64]
Starts = NDArray[np.int64]
SIGNIFICANT = 3.0
"""A cell is told apart from noise where its noisy count exceeds this many standard deviations."""

PENALTY = 5.0
"""Noise variances that a cut must save; chosen on Adult among 2 to 8, where results differ little."""

_ACCIDENTS = 0.5  # of all cuts: those that noise is taken to have made, which saved the penalty and nothing more
_BANDWIDTH = 0.15  # of a segment's length; with a piecewise constant density (0) errors are up to a third larger
_REACH = 4.0  # widths of the Gaussian that count
_POSSIBLE = 0.3  # standard deviations that an estimate is at least: a noisy count below zero does not rule a cell out


def segments(counts: Floats, sigma: float, widths: Floats | None = None, penalty: float = PENALTY) -> Starts:
    """Cut the cells into segments whose counts may all be equal, but for noise.

    The least sum of squared distances to the segments' means plus ``penalty`` * sigma² per segment, by dynamic
    programming: a cell that stands out stays alone, a smooth stretch becomes as few segments as its noise can tell
    apart.

    Args:
        counts: Noisy counts in order, shape (n,), n > 0.
        sigma: Standard deviation of their noise; 0 makes every cell a segment.
        widths: What counts are proportional to where nothing stands out, shape (n,); None for equal cells.
        penalty: Noise variances that a cut must save.

    Returns:
        First cell of each segment, ascending.

    >>> segments(np.array([9.0, 11.0, 10.0, 90.0, 10.0, 9.0]), 1.0).tolist()
    [0, 3, 4]
    >>> segments(np.array([9.0, 11.0, 5.0, 6.0, 9.0]), 1.0, np.array([1.0, 1.0, 0.5, 0.5, 1.0])).tolist()
    [0]
    """
    n = len(counts)
    if sigma <= 0:
        return np.arange(n)
    width = np.ones(n) if widths is None else widths
    parts = (counts * width, counts**2, width**2)
    sums, squares, scales = (np.concatenate([[0.0], np.cumsum(values)]) for values in parts)
    cost, start = np.zeros(n + 1), np.zeros(n + 1, np.int64)
    for end in range(1, n + 1):
        within = squares[end] - squares[:end] - (sums[end] - sums[:end]) ** 2 / (scales[end] - scales[:end])
        total = cost[:end] + within + penalty * sigma**2
        start[end] = total.argmin()
        cost[end] = total[start[end]]
    cuts, end = [], n
    while end > 0:
        end = int(start[end])
        cuts.append(end)
    return np.array(cuts[::-1], np.int64)


def alike(counts: Floats, sigma: float, widths: Floats) -> tuple[Starts, Floats]:
    """Cells that belong together, and estimated counts of all cells, none below zero.

    Two views compete: counts that change smoothly inside of segments, and cells that have nothing to do with their
    neighbours, of which only those that noise hides are put together. Which of the two is nearer to the truth is told
    by the noisy counts themselves (Stein's unbiased risk; a cut was looked for, so what it saved may be chance).

    Args:
        counts: Noisy counts in order, shape (n,), n > 0.
        sigma: Standard deviation of the noise.
        widths: What counts are proportional to where nothing stands out, shape (n,), all positive.

    Returns:
        First cell of each group, ascending; estimates of shape (n,).

    >>> starts, found = alike(np.array([8.0, 12.0, 8.0, 12.0, 90.0]), 3.0, np.ones(5))
    >>> starts.tolist(), found.tolist()
    ([0, 4], [10.0, 10.0, 10.0, 10.0, 90.0])
    """
    starts = segments(counts, sigma, widths)
    smooth, freedom = _smoothed(counts, starts, sigma, widths)
    if sigma <= 0:
        return starts, smooth
    alone = onto_simplex(counts, max(float(counts.sum()), sigma))
    risk_smooth = ((smooth - counts) ** 2).sum() + sigma**2 * (2 * freedom + _ACCIDENTS * (PENALTY - 2) * len(starts))
    risk_alone = ((alone - counts) ** 2).sum() + 2 * sigma**2 * (alone > 0).sum()
    if risk_smooth <= risk_alone:
        return starts, smooth
    hidden = counts <= SIGNIFICANT * sigma
    begins = np.append(True, ~(hidden[1:] & hidden[:-1]))
    return np.flatnonzero(begins), np.maximum(alone, _POSSIBLE * sigma)


def _smoothed(counts: Floats, starts: Starts, sigma: float, widths: Floats) -> tuple[Floats, float]:
    """Smooth counts, none below zero, and their degrees of freedom: `alike`.

    A constant density per segment would put steps into what is mostly smooth. So densities are averaged over
    neighbouring cells by a Gaussian whose width is `_BANDWIDTH` of the segment's (fine where counts change fast),
    unless noise alone would make as much of a shape; and of what the cells have beside that shape, the share is kept
    that noise does not explain. Cells that are segments of their own keep their count and lend nothing to their
    neighbours: they stood out.
    """
    n = len(counts)
    ends = np.append(starts[1:], n)
    lends = np.repeat(ends - starts > 1, ends - starts)
    centres = np.cumsum(widths) - widths / 2
    result = counts.astype(np.float64)
    freedom = float((ends - starts == 1).sum())
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        if end - start > 1:
            here = slice(start, end)
            bandwidth = _BANDWIDTH * float(widths[here].sum())
            reach = [centres[start] - _REACH * bandwidth, centres[end - 1] + _REACH * bandwidth]
            near = np.arange(*np.searchsorted(centres, reach))
            near = near[lends[near]]
            kernel = np.exp(-0.5 * ((centres[here, None] - centres[near]) / bandwidth) ** 2)
            kernel *= (widths[here] / (kernel @ widths[near]))[:, None]
            own = kernel[:, np.searchsorted(near, start) :]
            shape, variances = kernel @ counts[near], (kernel**2).sum(axis=1)
            result[here], free = _estimated(counts[here], shape, variances, own, sigma, widths[here])
            freedom += free
    return np.maximum(result, 0.0), freedom


def _estimated(
    counts: Floats, shape: Floats, variances: Floats, own: Floats, sigma: float, widths: Floats
) -> tuple[Floats, float]:
    """Return the cells of one segment, and their degrees of freedom: `_smoothed`.

    Args:
        counts: Noisy counts.
        shape: The same, averaged.
        variances: Of the averages, in those of a count.
        own: Weights of the segment's cells in the averages; more columns may follow.
        sigma: Standard deviation of the noise.
        widths: Of the cells.
    """
    shaped = float(np.trace(own))
    weight = widths / (widths**2).sum()
    level = widths * (counts @ weight)
    if ((shape - level) ** 2).sum() <= sigma**2 * variances.sum():
        shape, variances = level, widths * weight
        shaped = 1.0
    beside, freedom = counts - shape, len(counts) - shaped
    spread = float((beside**2).sum()) / max(freedom, 1.0)
    kept = max(0.0, 1 - sigma**2 / spread) if spread > 0 else 0.0
    found = np.maximum(shape + kept * beside, _POSSIBLE * sigma * np.sqrt(variances))
    return np.asarray(found), shaped + kept * freedom


def merge_smallest(counts: Floats, at_most: int) -> Starts:
    """Merge the pair of neighbours with the smallest sum until no more than ``at_most`` groups are left.

    Returns:
        Position of the first count of each group, ascending.
    """
    groups = _Groups(counts)
    pairs = [(float(counts[i] + counts[i + 1]), i, i + 1) for i in range(len(counts) - 1)]
    heapify(pairs)
    left = len(counts)
    while left > at_most:
        total, first, second = heappop(pairs)
        if not (groups.alive[first] and groups.alive[second]) or groups.count[first] + groups.count[second] != total:
            continue
        joined = groups.join(first, second)
        left -= 1
        for other in groups.neighbours(joined):
            heappush(pairs, (groups.count[joined] + groups.count[other], min(joined, other), max(joined, other)))
    return groups.starts()


def segment_sums(values: Floats, starts: Starts) -> Floats:
    """Sums of ``values`` over the groups that begin at ``starts``."""
    return np.add.reduceat(values, starts)


class _Groups:
    """Runs of neighbouring cells, each known by its first cell."""

    def __init__(self, counts: Floats) -> None:
        n = len(counts)
        self.count: list[float] = counts.tolist()
        self.alive = [True] * n
        self._next = [*range(1, n), -1]
        self._previous = list(range(-1, n - 1))

    def neighbours(self, group: int) -> list[int]:
        """Return the groups before and after, where there are any."""
        return [other for other in (self._previous[group], self._next[group]) if other >= 0]

    def join(self, one: int, other: int) -> int:
        """Merge two neighbours; returns the group they became."""
        first, second = min(one, other), max(one, other)
        self.count[first] += self.count[second]
        self.alive[second] = False
        after = self._next[second]
        self._next[first] = after
        if after >= 0:
            self._previous[after] = first
        return first

    def starts(self) -> Starts:
        """First cell of each group, ascending."""
        return np.flatnonzero(self.alive)
