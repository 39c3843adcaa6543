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


def smoothed(counts: Floats, starts: Starts) -> Floats:
    """Estimated counts of all cells, never negative: averages over neighbours, as near as their segment is short.

    A constant per segment would put steps into what is mostly smooth. Each cell is averaged by a Gaussian whose width
    is `_BANDWIDTH` of its segment's length, so that the estimate is fine where the counts change fast. Cells that are
    segments of their own keep their count, and lend nothing to their neighbours: they stood out.

    Args:
        counts: Noisy counts in order, shape (n,).
        starts: First cell of each segment (`segments`).

    >>> smoothed(np.array([8.0, 12.0, 8.0, 12.0, 90.0]), np.array([0, 4])).round().tolist()
    [9.0, 10.0, 10.0, 11.0, 90.0]
    """
    n = len(counts)
    lengths = np.diff(np.append(starts, n))
    lends = np.repeat(lengths > 1, lengths)
    result = counts.astype(np.float64)
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        if length > 1:
            width = _BANDWIDTH * length
            reach = int(np.ceil(_REACH * width))
            near = np.arange(max(start - reach, 0), min(start + length + reach, n))
            near = near[lends[near]]
            apart = np.arange(start, start + length)[:, None] - near
            kernel = np.exp(-0.5 * (apart / width) ** 2)
            result[start : start + length] = kernel @ counts[near] / kernel.sum(axis=1)
    return np.maximum(result, 0.0)


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
