"""Which neighbouring cells belong together, on released counts: segments, smoothing inside of them, greedy merging."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Starts = NDArray[np.int64]
_PENALTY = 5.0  # noise variances that a cut must save; chosen on Adult among 2 to 8, where results differ little
_BANDWIDTH = 0.15  # of a segment's length; with a piecewise constant density (0) errors are up to a third larger
_REACH = 4.0  # widths of the Gaussian that count
_POSSIBLE = 0.3  # standard deviations that an estimate is at least: a noisy count below zero does not rule a cell out


def segments(counts: Floats, sigma: float) -> Starts:
    """Cut the cells into segments whose counts may all be equal, but for noise.

    The least sum of squared distances to the segments' means plus `_PENALTY` * sigma² per segment, by dynamic
    programming: a cell that stands out stays alone, a smooth stretch becomes as few segments as its noise can tell
    apart.

    Args:
        counts: Noisy counts in order, shape (n,), n > 0.
        sigma: Standard deviation of their noise; 0 makes every cell a segment.

    Returns:
        First cell of each segment, ascending.

    >>> segments(np.array([9.0, 11.0, 10.0, 90.0, 10.0, 9.0]), 1.0).tolist()
    [0, 3, 4]
    """
    n = len(counts)
    if sigma <= 0:
        return np.arange(n)
    sums, squares = (np.concatenate([[0.0], np.cumsum(values)]) for values in (counts, counts**2))
    cost, start = np.zeros(n + 1), np.zeros(n + 1, np.int64)
    for end in range(1, n + 1):
        begins = np.arange(end)
        within = squares[end] - squares[:end] - (sums[end] - sums[:end]) ** 2 / (end - begins)
        total = cost[:end] + within + _PENALTY * sigma**2
        start[end] = total.argmin()
        cost[end] = total[start[end]]
    cuts, end = [], n
    while end > 0:
        end = int(start[end])
        cuts.append(end)
    return np.array(cuts[::-1], np.int64)


def smoothed(counts: Floats, starts: Starts, sigma: float) -> Floats:
    """Estimated counts of all cells, none below zero.

    A constant per segment would put steps into what is mostly smooth. So the cells of a segment are averaged over their
    neighbours by a Gaussian whose width is `_BANDWIDTH` of the segment's length (fine where counts change fast), unless
    noise alone would make as much of a shape; and of what the cells have beside that shape, the share is kept that
    noise does not explain. Cells that are segments of their own keep their count and lend nothing to their neighbours:
    they stood out.

    Args:
        counts: Noisy counts in order, shape (n,).
        starts: First cell of each segment (`segments`).
        sigma: Standard deviation of the noise.

    >>> smoothed(np.array([8.0, 12.0, 8.0, 12.0, 90.0]), np.array([0, 4]), 3.0).tolist()
    [10.0, 10.0, 10.0, 10.0, 90.0]
    """
    n = len(counts)
    ends = np.append(starts[1:], n)
    lends = np.repeat(ends - starts > 1, ends - starts)
    result = counts.astype(np.float64)
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        if end - start > 1:
            width = _BANDWIDTH * (end - start)
            reach = int(np.ceil(_REACH * width))
            near = np.arange(max(start - reach, 0), min(end + reach, n))
            near = near[lends[near]]
            kernel = np.exp(-0.5 * ((np.arange(start, end)[:, None] - near) / width) ** 2)
            kernel /= kernel.sum(axis=1, keepdims=True)
            own = kernel[:, np.searchsorted(near, start) :]
            result[start:end] = _estimated(
                counts[start:end], kernel @ counts[near], (kernel**2).sum(axis=1), own, sigma
            )
    return np.maximum(result, 0.0)


def _estimated(counts: Floats, shape: Floats, variances: Floats, own: Floats, sigma: float) -> Floats:
    """The cells of one segment: `smoothed`.

    Args:
        counts: Noisy counts.
        shape: The same, averaged.
        variances: Of the averages, in those of a count.
        own: Weights of the segment's cells in the averages; more columns may follow.
        sigma: Standard deviation of the noise.
    """
    freedom = len(counts) - float(np.trace(own))
    if ((shape - counts.mean()) ** 2).sum() <= sigma**2 * variances.sum():
        shape, variances = np.full(len(counts), counts.mean()), np.full(len(counts), 1 / len(counts))
        freedom = len(counts) - 1.0
    beside = counts - shape
    spread = float((beside**2).sum()) / max(freedom, 1.0)
    kept = max(0.0, 1 - sigma**2 / spread) if spread > 0 else 0.0
    return np.asarray(np.maximum(shape + kept * beside, _POSSIBLE * sigma * np.sqrt(variances)))


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
        """The groups before and after, where there are any."""
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
