"""Choose the marginals of a mean, all of an order or a seeded sample of many, within the scope of an evaluation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations, islice, product
from math import comb

import numpy as np

from privbench_core.errors import InternalError

SEED = 0
"""Seed of all sampling in a report, so that the report of a bundle is always the same."""

Subset = tuple[int, ...]
"""Column positions, ascending."""


@dataclass(frozen=True)
class Scope:
    """How much of the data the figures use.

    Attributes:
        orders: λ, the numbers of columns of the marginals.
        marginals: Maximum number of marginals of one order; of more, a seeded sample is used.
        by_value: Whether to compare marginals over distinct values too, and joins that are not along one key.
        counting: Counting queries per foreign key.
    """

    orders: tuple[int, ...] = (1, 2, 3, 4)
    marginals: int = 1500
    by_value: bool = True
    counting: int = 10_000

    def limit(self, rows: int) -> int:
        """Return the maximum number of marginals of one order: 50 at least, and 150 million rows counted at most."""
        return max(50, min(self.marginals, 150_000_000 // max(rows, 1)))


FULL = Scope()
"""For reports. PrivLava and PrivPetal ask 10,000 counting queries too."""
BRIEF = Scope(orders=(1, 2), marginals=200, by_value=False, counting=0)
"""For the terminal: takes seconds."""


@dataclass(frozen=True)
class ColumnSubsets:
    """The marginals of a mean.

    Attributes:
        order: Number of columns of each marginal.
        subsets: Their columns.
        total: Number of subsets of that order.
        seed: Seed of the sample, None if ``subsets`` are all.
    """

    order: int
    subsets: tuple[Subset, ...]
    total: int
    seed: int | None

    @classmethod
    def of(cls, order: int, every: Iterable[Subset], total: int, limit: int | None, seed: int) -> ColumnSubsets:
        """Return all ``total`` subsets in ``every``, or a seeded sample of ``limit`` of them, in the same order."""
        if order < 1:
            raise InternalError(f"a marginal has at least one column, not {order}")
        if limit is None or total <= limit:
            return cls(order, tuple(every), total, None)
        ranks = np.sort(np.random.default_rng(seed).choice(total, limit, replace=False)).tolist()
        skipped = np.diff(ranks, prepend=-1) - 1
        rest = iter(every)
        return cls(order, tuple(next(islice(rest, int(n), None)) for n in skipped), total, seed)

    def __str__(self) -> str:
        """Return a caption for tables."""
        if self.seed is None:
            return f"all {self.total} {self.order}-way marginals"
        return f"{len(self.subsets)} of {self.total} {self.order}-way marginals (seed {self.seed})"


def column_subsets(columns: int, order: int, limit: int | None = None, seed: int = SEED) -> ColumnSubsets:
    """Return all subsets of ``order`` columns, or a seeded sample of ``limit`` of them if there are more.

    >>> print(column_subsets(4, 2))
    all 6 2-way marginals
    >>> print(column_subsets(15, 3, limit=200))
    200 of 455 3-way marginals (seed 0)
    """
    return ColumnSubsets.of(
        order, combinations(range(columns), max(order, 0)), comb(columns, max(order, 0)), limit, seed
    )


def crossing_subsets(left: int, right: int, order: int, limit: int | None = None, seed: int = SEED) -> ColumnSubsets:
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
    first, second = range(left), range(left, left + right)
    every = (
        (*mine, *theirs)
        for taken in range(1, order)
        for mine, theirs in product(combinations(first, taken), combinations(second, order - taken))
    )
    total = sum(comb(left, taken) * comb(right, order - taken) for taken in range(1, order))
    return ColumnSubsets.of(order, every, total, limit, seed)
