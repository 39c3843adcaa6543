"""Distances between the λ-way marginals of two tables: total variation, and PrivBench's KL divergence.

Tables come as integer codes of shape (rows, columns) with a domain size per column. Marginals are relative frequencies,
so the tables may have different numbers of rows. Small marginals are counted in a dense array, large ones only in the
cells that occur in a table: cells empty in both add nothing to a distance.

A report compares thousands of marginals of the same two tables, so `subset_distances` checks and stacks the tables
once, numbers the cells of columns that neighbouring marginals share once, and computes all distances from one count. To
add a distance, add a field to `MarginalDistances` and its formula to `_distances`: reports show whatever is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from privbench_core.errors import InternalError
from privbench_core.evaluation.subsets import ColumnSubsets

CodeTable = NDArray[np.integer]
"""Integer codes, shape (rows, columns)."""

DENSE_CELLS = 1 << 14
"""Marginals with at most this many cells are counted in an array. Chosen by hand."""
DENSE_ROWS = 4
"""So are those with at least this many rows per cell; else sorting rows is faster. Measured with a million rows."""

_Cells = NDArray[np.signedinteger[Any]]  # the number of a cell per row
_MAX_INDEX = 2**62  # half of the range of int64, so that a cell and a side of it fit
_MAX_SMALL = 2**30  # the same for int32, which sorts faster
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
    return mean_of(list(subset_distances(a, b, sizes, subsets.subsets)))


def mean_of(each: Sequence[MarginalDistances]) -> MarginalDistances:
    """Return the mean of some distances; NaN if there are none."""
    names = [f.name for f in fields(MarginalDistances)]
    return MarginalDistances(**{n: float(np.mean([getattr(d, n) for d in each])) if each else np.nan for n in names})


def subset_distances(
    a: CodeTable, b: CodeTable, sizes: Sequence[int], subsets: Sequence[Sequence[int]]
) -> Iterator[MarginalDistances]:
    """Yield the distances of each marginal; arguments as for `marginal_distances`."""
    used = sorted({column for subset in subsets for column in subset})
    for table in (a, b):
        _check(table, used, [int(sizes[c]) for c in used])
    both = _Stacked.of(a, b, sizes)
    for subset in subsets:
        yield _distances(*both.frequencies(subset))


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
    return _Stacked.of(a[:, chosen], b[:, chosen], shape).frequencies(range(len(chosen)))


@dataclass(frozen=True)
class _Stacked:
    """Two checked tables, one above the other, whose marginals are counted one after the other.

    Attributes:
        codes: Codes of both, shape (rows, columns), in column-major order.
        first: Number of rows of the first.
        sizes: Domain size per column.
        prefixes: Of the last marginal: for its first column, its first two and so on, the last of these columns, the
            cell of each row and the number of cells. Neighbours in lexicographic order share most of them.
    """

    codes: CodeTable
    first: int
    sizes: Sequence[int]
    prefixes: list[tuple[int, _Cells, int]] = field(default_factory=list)

    @classmethod
    def of(cls, a: CodeTable, b: CodeTable, sizes: Sequence[int]) -> _Stacked:
        codes = np.empty((len(a) + len(b), len(sizes)), np.promote_types(a.dtype, b.dtype), order="F")
        codes[: len(a)], codes[len(a) :] = a, b
        return cls(codes, len(a), [int(size) for size in sizes])

    def frequencies(self, columns: Sequence[int]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return `frequencies` of both tables."""
        index, cells = self._cells(columns)
        if cells <= max(DENSE_CELLS, len(index) // DENSE_ROWS):
            counts = [np.bincount(part, minlength=cells) for part in (index[: self.first], index[self.first :])]
        else:
            counts = _count_occurring(index, self.first, cells)
        first, second = (count / max(int(count.sum()), 1) for count in counts)
        return first, second

    def _cells(self, columns: Sequence[int]) -> tuple[_Cells, int]:
        """Return the cell of each row in the marginal over ``columns``, and the number of cells."""
        same = 0
        for column, (known, _, _) in zip(columns, self.prefixes, strict=False):
            if column != known:
                break
            same += 1
        del self.prefixes[same:]
        index, cells = self.prefixes[-1][1:] if same else (np.zeros(len(self.codes), np.int32), 1)
        for column in columns[same:]:
            if cells * self.sizes[column] > _MAX_INDEX:  # renumber, so that the product of sizes cannot overflow
                numbers, occurring = pd.factorize(index)
                index, cells = numbers, len(occurring)
            cells *= self.sizes[column]
            kind = _smallest(cells)
            index = index.astype(kind, copy=False) * kind(self.sizes[column]) + self.codes[:, column].astype(kind)
            self.prefixes.append((column, index, cells))
        return index, cells


def _count_occurring(index: _Cells, first: int, cells: int) -> list[NDArray[np.int64]]:
    """Return how many of the ``first`` rows and of the others are in each cell that occurs, in order of the cells."""
    keys = index.astype(_smallest(cells)) * 2
    keys[first:] += 1
    keys.sort()
    cell = keys >> 1
    starts = np.flatnonzero(np.append(True, cell[1:] != cell[:-1])[: len(keys)])
    rows = np.diff(starts, append=len(keys))
    second = np.add.reduceat(keys & 1, starts, dtype=np.int64)
    return [rows - second, second]


def _smallest(cells: int) -> type[np.signedinteger[Any]]:
    """Return the type of numbers for so many cells, and twice as many."""
    return np.int32 if cells <= _MAX_SMALL else np.int64


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
