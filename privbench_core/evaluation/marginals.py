"""The marginals of coded tables, and distances between those of two: total variation, and PrivBench's KL divergence.

Tables are integer codes of shape (rows, columns) with a domain size per column. Marginals are relative frequencies, so
the tables may have different numbers of rows. Where a marginal has more cells than there are rows, only the cells that
occur are counted: cells empty in both tables add nothing to a distance.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, product
from math import comb
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from privbench_core.errors import InternalError

SEED = 0
"""Seed of all sampling in a report, so that the report of a bundle is always the same."""

Figures = dict[str, Any]
"""Figures by name, as in metrics.json."""

CodeTable = NDArray[np.integer]
"""Integer codes, shape (rows, columns)."""

Subset = tuple[int, ...]
"""Column positions, ascending."""


@dataclass(frozen=True)
class Scope:
    """How much of the data the figures use."""

    orders: tuple[int, ...] = (1, 2, 3, 4)  # λ, the numbers of columns of the marginals
    marginals: int = 1500  # of one order at most; of more, a seeded sample is used
    by_value: bool = True  # compare marginals over distinct values too, and joins that are not along one key
    counting: int = 10_000  # counting queries per foreign key

    def limit(self, rows: int) -> int:
        """Return the maximum number of marginals of one order: 50 at least, and 150 million rows counted at most."""
        return max(50, min(self.marginals, 150_000_000 // max(rows, 1)))


FULL = Scope()
"""For reports. PrivLava and PrivPetal ask 10,000 counting queries too."""
BRIEF = Scope(orders=(1, 2), marginals=200, by_value=False, counting=0)
"""For the terminal: takes seconds."""


@dataclass(frozen=True)
class ColumnSubsets:
    """The marginals of a mean: all ``total`` of an order, or a seeded sample of them (``seed`` is None for all)."""

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
        skipped, rest = np.diff(ranks, prepend=-1) - 1, iter(every)
        return cls(order, tuple(next(islice(rest, int(n), None)) for n in skipped), total, seed)

    def __str__(self) -> str:
        """Return a caption for tables."""
        if self.seed is None:
            return f"all {self.total} {self.order}-way marginals"
        return f"{len(self.subsets)} of {self.total} {self.order}-way marginals (seed {self.seed})"


def column_subsets(columns: int, order: int, limit: int | None = None, seed: int = SEED) -> ColumnSubsets:
    """Return all subsets of ``order`` columns, or a seeded sample of ``limit`` of them if there are more.

    >>> print(column_subsets(15, 3, limit=200))
    200 of 455 3-way marginals (seed 0)
    """
    size = max(order, 0)
    return ColumnSubsets.of(order, combinations(range(columns), size), comb(columns, size), limit, seed)


def crossing_subsets(left: int, right: int, order: int, limit: int | None = None, seed: int = SEED) -> ColumnSubsets:
    """Return the cross-table workload of Alimohammadi et al., section 2: subsets with columns of both joined tables.

    The positions of the ``left`` columns of the first table come before those of the ``right`` ones of the second.

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


class MarginalDistances(NamedTuple):
    """Total variation distance in [0, 1], and KL divergence of the original from the synthetic table in nats."""

    tvd: float
    kld: float


DISTANCE_CAPTIONS = {"tvd": "mean distance", "kld": "mean KL divergence"}
"""Captions of means of `MarginalDistances`."""


def average(each: Sequence[MarginalDistances], weights: Sequence[float] | None = None) -> MarginalDistances | None:
    """Return the mean of some distances, each with a weight (by default 1); None if there are none."""
    if not each:
        return None
    return MarginalDistances(*(float(np.average(values, weights=weights)) for values in zip(*each, strict=True)))


def mean_distances(
    a: CodeTable, b: CodeTable, sizes: Sequence[int], subsets: ColumnSubsets
) -> MarginalDistances | None:
    """Return mean distances of the marginals over ``subsets``; None if there are none."""
    return average(list(subset_distances(a, b, sizes, subsets.subsets)))


def codes_tvd(a: NDArray[np.integer], b: NDArray[np.integer]) -> float:
    """Return the total variation distance of two columns of codes from 0, each of shape (rows,)."""
    size = int(max(a.max(initial=0), b.max(initial=0))) + 1
    return next(subset_distances(a[:, None], b[:, None], (size,), [(0,)])).tvd


def subset_distances(
    a: CodeTable, b: CodeTable, sizes: Sequence[int], subsets: Sequence[Subset]
) -> Iterator[MarginalDistances]:
    """Yield the distances between the marginals of ``a`` and ``b`` over each of ``subsets``.

    Two empty tables have TVD 0, an empty and a non-empty one TVD 1. KLD is PrivBench's (Problem 1 and section 6.1), the
    sum of Pr[x|T] ln(Pr[x|T] / Pr[x|T̂]) over the values x in either table, with 1e-10 added to each probability. The
    paper uses distinct values (`encode.value_codes`); codes that merge values give less.

    Args:
        a: Codes of the original, shape (rows, len(sizes)).
        b: Codes of the synthetic table; the number of rows may differ.
        sizes: Domain size of every column of the tables.
        subsets: Columns of each marginal.

    Raises:
        InternalError: A code is outside its column's domain.
    """
    both = np.empty((len(a) + len(b), len(sizes)), np.promote_types(a.dtype, b.dtype), order="F")
    both[: len(a)], both[len(a) :] = a, b
    for column in sorted({column for subset in subsets for column in subset}):
        codes = both[:, column]
        if codes.size and (codes.min() < 0 or codes.max() >= sizes[column]):
            raise InternalError(f"column {column}: codes outside the domain 0..{sizes[column] - 1}")

    # The cell of each row in the marginals over the first columns of a subset, and the number of cells: neighbours in
    # lexicographic order share most of them.
    known: dict[Subset, tuple[NDArray[np.int64], int]] = {(): (np.zeros(len(both), np.int64), 1)}
    for subset in subsets:
        known = {prefix: cells for prefix, cells in known.items() if subset[: len(prefix)] == prefix}
        for position in range(len(known) - 1, len(subset)):
            index, size = known[subset[:position]]
            domain = int(sizes[subset[position]])
            if size * domain > np.iinfo(np.int64).max:
                index, size = _occurring(index)
            known[subset[: position + 1]] = index * domain + both[:, subset[position]], size * domain
        index, size = known[subset]
        if size > len(index):
            index, size = _occurring(index)
        yield _distances(marginal(index[: len(a)], size), marginal(index[len(a) :], size))


def marginal(codes: NDArray[np.integer], size: int) -> NDArray[np.float64]:
    """Return the one-way marginal of codes as shares of the rows, all 0 if there are none; shape (size,)."""
    return np.asarray(np.bincount(codes, minlength=size) / max(len(codes), 1))


def _occurring(index: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """Return the numbers of cells among those that occur, in order, and how many these are."""
    numbers, occurring = pd.factorize(index, sort=True)
    return numbers, len(occurring)


def _distances(p: NDArray[np.float64], q: NDArray[np.float64]) -> MarginalDistances:
    occurring = (p > 0) | (q > 0)  # other cells add nothing, and logarithms are slow
    p, q = p[occurring], q[occurring]
    variation = max(p.sum(), q.sum()) - np.minimum(p, q).sum()
    p, q = p + 1e-10, q + 1e-10  # PrivBench, section 6.1
    return MarginalDistances(float(max(0.0, variation)), float(np.sum(p * np.log(p / q))))
