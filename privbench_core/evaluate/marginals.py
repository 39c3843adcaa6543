"""Distances between the λ-way marginals of two tables: total variation, and PrivBench's KL divergence.

Tables come as integer codes of shape (rows, columns) with a domain size per column. Marginals are relative frequencies,
so the two tables need not have the same number of rows. Small marginals are counted in a dense array, large ones only
in the cells that occur in one of the tables: cells empty in both add nothing to either distance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb, prod

import numpy as np
from numpy.typing import NDArray

from privbench_core.errors import InternalError

CodeTable = NDArray[np.integer]
"""Integer codes of shape (rows, columns)."""

Weights = tuple[NDArray[np.floating] | None, NDArray[np.floating] | None]
"""Non-negative row weights of two tables; None counts every row once."""

DENSE_CELLS = 10_000_000
"""Marginals of at most this many cells are counted densely."""

KLD_CONSTANT = 1e-10
"""Added to every probability so that the KL divergence stays finite (PrivBench, section 6.1)."""


@dataclass(frozen=True)
class ColumnSubsets:
    """The marginals a mean is taken over.

    Attributes:
        order: How many columns each marginal has.
        subsets: Column positions, ascending inside each subset.
        total: How many subsets of that order there are.
        seed: What the sample was drawn with, None if ``subsets`` are all there are.
    """

    order: int
    subsets: tuple[tuple[int, ...], ...]
    total: int
    seed: int | None

    def __str__(self) -> str:
        """For captions of tables."""
        if self.seed is None:
            return f"all {self.total} {self.order}-way marginals"
        return f"{len(self.subsets)} of {self.total} {self.order}-way marginals (seed {self.seed})"


def column_subsets(columns: int, order: int, limit: int | None = None, seed: int = 0) -> ColumnSubsets:
    """All subsets of ``order`` columns, or a seeded sample of ``limit`` of them where there are more.

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


def tvd(
    a: CodeTable, b: CodeTable, columns: Sequence[int], sizes: Sequence[int], *, weights: Weights = (None, None)
) -> float:
    """Total variation distance between the marginals of ``a`` and ``b`` over ``columns``, in [0, 1].

    Two empty tables are at distance 0, an empty and a non-empty one at distance 1.

    Args:
        a: Codes of shape (rows, len(sizes)).
        b: Codes of the other table; it may have another number of rows.
        columns: Positions of the marginal's columns.
        sizes: Domain size of every column of the tables.
        weights: Row weights of ``a`` and of ``b``.
    """
    p, q = frequencies(a, b, columns, sizes, weights=weights)
    return float(max(0.0, max(p.sum(), q.sum()) - np.minimum(p, q).sum()))


def kld(
    a: CodeTable, b: CodeTable, columns: Sequence[int], sizes: Sequence[int], *, weights: Weights = (None, None)
) -> float:
    """KL divergence of the marginal of ``a`` (the original) from that of ``b`` (the synthetic table), in nats.

    PrivBench, Problem 1 and section 6.1: the sum of Pr[x|T] ln(Pr[x|T] / Pr[x|T̂]) over the values x in either table,
    with 1e-10 added to each probability. Arguments as for `tvd`. The paper takes values as they are
    (`encode.value_codes`); codes that merge values give less.
    """
    p, q = frequencies(a, b, columns, sizes, weights=weights)
    p, q = p + KLD_CONSTANT, q + KLD_CONSTANT
    return float(np.sum(p * np.log(p / q)))


def mean_tvd(
    a: CodeTable, b: CodeTable, sizes: Sequence[int], order: int, subsets: ColumnSubsets | None = None
) -> float:
    """Mean of `tvd` over ``subsets``, by default over all marginals of that order; NaN if there are none."""
    chosen = _chosen(sizes, order, subsets)
    return float(np.mean([tvd(a, b, s, sizes) for s in chosen])) if chosen else float("nan")


def mean_kld(
    a: CodeTable, b: CodeTable, sizes: Sequence[int], order: int, subsets: ColumnSubsets | None = None
) -> float:
    """Mean of `kld` over ``subsets``, by default over all marginals of that order; NaN if there are none."""
    chosen = _chosen(sizes, order, subsets)
    return float(np.mean([kld(a, b, s, sizes) for s in chosen])) if chosen else float("nan")


def frequencies(
    a: CodeTable, b: CodeTable, columns: Sequence[int], sizes: Sequence[int], *, weights: Weights = (None, None)
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Relative frequencies of both tables over the same cells: every cell, or those that occur if there are too many.

    Returns:
        Two vectors of equal length, each summing to 1 (to 0 for a table without rows or without weight).

    Raises:
        InternalError: A code is outside of its column's domain.
    """
    shape = tuple(int(sizes[c]) for c in columns)
    for table in (a, b):
        _check(table, columns, shape)
    if prod(shape) <= DENSE_CELLS:
        cells = prod(shape)
        index_a, index_b = (np.ravel_multi_index(tuple(t[:, c] for c in columns), shape) for t in (a, b))
    else:
        index = _occurring(np.concatenate([a[:, list(columns)], b[:, list(columns)]]), shape)
        cells = int(index.max()) + 1 if index.size else 0
        index_a, index_b = index[: len(a)], index[len(a) :]
    return _relative(index_a, cells, weights[0]), _relative(index_b, cells, weights[1])


def _relative(index: NDArray[np.integer], cells: int, weights: NDArray[np.floating] | None) -> NDArray[np.float64]:
    """Weighted relative frequencies of ``cells`` cells."""
    counts = np.bincount(index, weights=weights, minlength=cells).astype(np.float64)
    total = counts.sum()
    return counts / total if total > 0 else counts


def _occurring(rows: CodeTable, shape: Sequence[int]) -> NDArray[np.int64]:
    """Dense numbers for the distinct rows; renumbered column by column, so the product of sizes cannot overflow."""
    index = np.zeros(len(rows), np.int64)
    for position, size in enumerate(shape):
        index = np.unique(index * size + rows[:, position], return_inverse=True)[1].astype(np.int64)
    return index


def _check(table: CodeTable, columns: Sequence[int], shape: Sequence[int]) -> None:
    for column, size in zip(columns, shape, strict=True):
        codes = table[:, column]
        if codes.size and (codes.min() < 0 or codes.max() >= size):
            raise InternalError(f"column {column}: codes outside of the domain 0..{size - 1}")


def _chosen(sizes: Sequence[int], order: int, subsets: ColumnSubsets | None) -> tuple[tuple[int, ...], ...]:
    if subsets is not None and subsets.order != order:
        raise InternalError(f"asked for {order}-way marginals with {subsets.order}-way subsets")
    return (subsets or column_subsets(len(sizes), order)).subsets


def _unrank(rank: int, columns: int, order: int) -> tuple[int, ...]:
    """The subset at position ``rank`` in lexicographic order."""
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
