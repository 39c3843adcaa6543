"""Which neighbouring cells belong together, on released counts: segments of equal height, greedy merging."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Starts = NDArray[np.int64]
_PENALTY = 5.0  # noise variances that a cut must save; chosen on Adult among 2 to 8, where results differ little


def segments(counts: Floats, sigma: float, widths: Floats | None = None, penalty: float = _PENALTY) -> Starts:
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
