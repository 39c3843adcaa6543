"""Distances between the λ-way marginals of two tables: total variation, and PrivBench's KL divergence.

Tables come as integer codes of shape (rows, columns) with a domain size per column. Marginals are relative frequencies,
so the tables may have different numbers of rows. Small marginals are counted in a dense array, large ones only in the
cells that occur in a table: cells empty in both add nothing to a distance.

A report compares thousands of marginals of the same two tables, so `mean_distances` checks and stacks the tables once,
and computes all distances from one count. To add a distance, add a field to `MarginalDistances` and its formula to
`_distances`: reports show whatever is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from privbench_core.errors import InternalError
from privbench_core.evaluation.subsets import ColumnSubsets

CodeTable = NDArray[np.integer]
"""Integer codes, shape (rows, columns)."""

DENSE_CELLS = 1 << 14
"""Marginals with at most this many cells are counted in an array; above, hashing rows is faster. Chosen by hand."""

_MAX_INDEX = 2**62  # half of the range of int64
KLD_CONSTANT = 1e-10
"""Added to every probability so that the KL divergence stays finite (PrivBench, section 6.1)."""


@dataclass(frozen=True)
class MarginalDistances:
    """Distances between two marginals; each field's ``label`` is its caption in a report.

    Attributes:
        tvd: Total variation, in [0, 1].
        kld: KL divergence of the original from the synthetic table, in nats.
    """

    tvd: float = field(metadata={"label": "mean distance"})
    kld: float = field(metadata={"label": "mean KL divergence"})


def marginal_distances(a: CodeTable, b: CodeTable, columns: Sequence[int], sizes: Sequence[int]) -> MarginalDistances:
    """Return the distances between the marginals of ``a`` and ``b`` over ``columns``.

    Two empty tables have TVD 0, an empty and a non-empty one TVD 1. KLD is PrivBench's (Problem 1 and section 6.1), the
    sum of Pr[x|T] ln(Pr[x|T] / Pr[x|T̂]) over the values x in either table, with 1e-10 added to each probability. The
    paper uses distinct values (`encode.value_codes`); codes that merge values give less.

    Args:
        a: Codes of the original, shape (rows, len(sizes)).
        b: Codes of the synthetic table; the number of rows may differ.
        columns: Positions of the marginal's columns.
        sizes: Domain size of every column of the tables.

    Raises:
        InternalError: A code is outside its column's domain.
    """
    return _distances(*frequencies(a, b, columns, sizes))


def mean_distances(a: CodeTable, b: CodeTable, sizes: Sequence[int], subsets: ColumnSubsets) -> MarginalDistances:
    """Return mean distances of the marginals over ``subsets``; NaN if there are none."""
    each = list(subset_distances(a, b, sizes, subsets.subsets))
    names = [f.name for f in fields(MarginalDistances)]
    return MarginalDistances(**{n: float(np.mean([getattr(d, n) for d in each])) if each else np.nan for n in names})


def subset_distances(
    a: CodeTable, b: CodeTable, sizes: Sequence[int], subsets: Sequence[Sequence[int]]
) -> Iterator[MarginalDistances]:
    """Yield the distances of each marginal; arguments as for `marginal_distances`."""
    used = sorted({column for subset in subsets for column in subset})
    for table in (a, b):
        _check(table, used, [int(sizes[c]) for c in used])
    both = np.asfortranarray(np.concatenate([a, b]), dtype=np.int64)
    for subset in subsets:
        yield _distances(*_stacked(both, len(a), subset, sizes))


def frequencies(
    a: CodeTable, b: CodeTable, columns: Sequence[int], sizes: Sequence[int]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return relative frequencies of both tables over the same cells: all, or those that occur if there are too many.

    Returns:
        Two vectors of equal length, each summing to 1 (to 0 for a table without rows).

    Raises:
        InternalError: A code is outside its column's domain.
    """
    chosen = list(columns)
    shape = [int(sizes[c]) for c in chosen]
    for table in (a, b):
        _check(table, chosen, shape)
    both = np.concatenate([a[:, chosen], b[:, chosen]]).astype(np.int64, copy=False)
    return _stacked(both, len(a), range(len(chosen)), shape)


def _stacked(
    both: NDArray[np.int64], first: int, columns: Sequence[int], sizes: Sequence[int]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return `frequencies` of the ``first`` rows of a checked table and of the others."""
    index, cells = np.zeros(len(both), np.int64), 1
    for column in columns:
        if cells * int(sizes[column]) > _MAX_INDEX:  # renumber, so that the product of sizes cannot overflow
            index, cells = _renumbered(index)
        index = index * int(sizes[column]) + both[:, column]
        cells *= int(sizes[column])
    if cells > DENSE_CELLS:
        index, cells = _renumbered(index)
    return _relative(index[:first], cells), _relative(index[first:], cells)


def _renumbered(index: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """Return consecutive numbers for the values that occur, and their count."""
    numbers, values = pd.factorize(index)
    return numbers.astype(np.int64, copy=False), len(values)


def _relative(index: NDArray[np.integer], cells: int) -> NDArray[np.float64]:
    """Return relative frequencies of ``cells`` cells."""
    counts = np.bincount(index, minlength=cells).astype(np.float64)
    total = counts.sum()
    return counts / total if total > 0 else counts


def _distances(p: NDArray[np.float64], q: NDArray[np.float64]) -> MarginalDistances:
    occurring = (p > 0) | (q > 0)  # other cells add nothing, and logarithms are slow
    p, q = p[occurring], q[occurring]
    variation = max(p.sum(), q.sum()) - np.minimum(p, q).sum()
    p, q = p + KLD_CONSTANT, q + KLD_CONSTANT
    return MarginalDistances(float(max(0.0, variation)), float(np.sum(p * np.log(p / q))))


def _check(table: CodeTable, columns: Sequence[int], shape: Sequence[int]) -> None:
    for column, size in zip(columns, shape, strict=True):
        codes = table[:, column]
        if codes.size and (codes.min() < 0 or codes.max() >= size):
            raise InternalError(f"column {column}: codes outside the domain 0..{size - 1}")
