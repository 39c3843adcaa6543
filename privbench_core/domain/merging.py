"""Greedy merging of neighbouring cells, on released counts."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import sqrt

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Starts = NDArray[np.int64]


def merge_until_significant(counts: Floats, threshold: float) -> Starts:
    """Merge neighbours until every group's count exceeds ``threshold`` * sqrt(number of its cells).

    The smallest insignificant group goes first. It joins an insignificant neighbour rather than a significant one, and
    of two alike the smaller, so that heavy cells stay alone and groups tend to equal depth.

    Args:
        counts: Noisy counts in order, shape (n,), n > 0.
        threshold: For a single cell; the noise of m cells together is sqrt(m) times as large.

    Returns:
        First cell of each group, ascending. A single group may be left insignificant.

    >>> merge_until_significant(np.array([50.0, 1.0, 2.0, 9.0, 60.0]), 5.0).tolist()
    [0, 1, 4]
    """
    groups = _Groups(counts)

    def significant(group: int) -> bool:
        return groups.count[group] > threshold * sqrt(groups.cells[group])

    waiting = [(float(count), cell) for cell, count in enumerate(counts) if not significant(cell)]
    heapify(waiting)
    while waiting:
        count, group = heappop(waiting)
        if not groups.alive[group] or groups.count[group] != count or significant(group):
            continue
        neighbours = groups.neighbours(group)
        if not neighbours:
            break
        partner = min(neighbours, key=lambda other: (significant(other), groups.count[other]))
        joined = groups.join(group, partner)
        if not significant(joined):
            heappush(waiting, (groups.count[joined], joined))
    return groups.starts()


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
        self.cells = [1] * n
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
        self.cells[first] += self.cells[second]
        self.alive[second] = False
        after = self._next[second]
        self._next[first] = after
        if after >= 0:
            self._previous[after] = first
        return first

    def starts(self) -> Starts:
        """First cell of each group, ascending."""
        return np.flatnonzero(self.alive)
