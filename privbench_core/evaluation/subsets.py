"""Choose the marginals of a mean: all of an order, or a seeded sample of many."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np

from privbench_core.errors import InternalError


@dataclass(frozen=True)
class ColumnSubsets:
    """The marginals of a mean.

    Attributes:
        order: Number of columns of each marginal.
        subsets: Column positions, ascending inside each subset.
        total: Number of subsets of that order.
        seed: Seed of the sample, None if ``subsets`` are all.
    """

    order: int
    subsets: tuple[tuple[int, ...], ...]
    total: int
    seed: int | None

    def __str__(self) -> str:
        """Return a caption for tables."""
        if self.seed is None:
            return f"all {self.total} {self.order}-way marginals"
        return f"{len(self.subsets)} of {self.total} {self.order}-way marginals (seed {self.seed})"


def column_subsets(columns: int, order: int, limit: int | None = None, seed: int = 0) -> ColumnSubsets:
    """Return all subsets of ``order`` columns, or a seeded sample of ``limit`` of them if there are more.

    >>> print(column_subsets(4, 2))
    all 6 2-way marginals
    >>> print(column_subsets(15, 3, limit=200))
    200 of 455 3-way marginals (seed 0)
    """
    if order < 1:
        raise InternalError(f"a marginal has at least one column, not {order}")
    total = comb(columns, order)
    if limit is None or total <= limit:
        return ColumnSubsets(order, tuple(combinations(range(columns), order)), total, None)
    ranks = np.sort(np.random.default_rng(seed).choice(total, limit, replace=False))
    return ColumnSubsets(order, tuple(_unrank(int(rank), columns, order) for rank in ranks), total, seed)


def crossing_subsets(left: int, right: int, order: int, limit: int | None = None, seed: int = 0) -> ColumnSubsets:
    """Return the cross-table workload of Alimohammadi et al., section 2: subsets with columns of both joined tables.

    Args:
        left: Number of columns of the first table; its positions come first.
        right: Number of columns of the second.
        order: k, the number of columns of each marginal.
        limit: Size of the sample if there are more subsets.
        seed: Seed of the sample.

    >>> crossing_subsets(1, 2, 2).subsets
    ((0, 1), (0, 2))
    """
    splits = [(taken, comb(left, taken) * comb(right, order - taken)) for taken in range(1, order)]
    total = sum(number for _, number in splits)
    sampled = limit is not None and total > limit
    ranks = np.sort(np.random.default_rng(seed).choice(total, limit, replace=False)) if sampled else range(total)
    chosen = []
    for drawn in ranks:
        rank = int(drawn)
        for taken, number in splits:
            if rank < number:
                first, second = divmod(rank, comb(right, order - taken))
                others = _unrank(second, right, order - taken)
                chosen.append((*_unrank(first, left, taken), *(left + column for column in others)))
                break
            rank -= number
    return ColumnSubsets(order, tuple(chosen), total, seed if sampled else None)


def _unrank(rank: int, columns: int, order: int) -> tuple[int, ...]:
    """Return the subset at position ``rank`` in lexicographic order."""
    chosen: list[int] = []
    column = 0
    while len(chosen) < order:
        beginning_here = comb(columns - column - 1, order - len(chosen) - 1)
        if rank < beginning_here:
            chosen.append(column)
        else:
            rank -= beginning_here
        column += 1
    return tuple(chosen)
