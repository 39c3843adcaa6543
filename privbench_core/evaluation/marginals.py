"""Distances between the λ-way marginals of two tables: total variation, and PrivBench's KL divergence.

Tables come as integer codes of shape (rows, columns) with a domain size per column. Marginals are relative frequencies,
so the tables may have different numbers of rows. Where a marginal has more cells than there are rows, only the cells
that occur are counted: cells empty in both tables add nothing to a distance.

To add a distance, add a field to `MarginalDistances` and its formula to `_distances`: reports show whatever is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from math import isfinite

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from privbench_core.errors import InternalError
from privbench_core.evaluation.subsets import ColumnSubsets, Subset

CodeTable = NDArray[np.integer]
"""Integer codes, shape (rows, columns)."""


@dataclass(frozen=True)
class MarginalDistances:
    """Distances between two marginals; each field's ``label`` is its caption in a report.

    Attributes:
        tvd: Total variation, in [0, 1].
        kld: KL divergence of the original from the synthetic table, in nats.
    """

    tvd: float = field(metadata={"label": "mean distance"})
    kld: float = field(metadata={"label": "mean KL divergence"})

    @property
    def known(self) -> MarginalDistances | None:
        """These distances; None if they are the mean of no marginals."""
        return self if isfinite(self.tvd) else None


def mean_of(each: Sequence[MarginalDistances]) -> MarginalDistances:
    """Return the mean of some distances; NaN if there are none."""
    names = [f.name for f in fields(MarginalDistances)]
    return MarginalDistances(**{n: float(np.mean([getattr(d, n) for d in each])) if each else np.nan for n in names})


def mean_distances(a: CodeTable, b: CodeTable, sizes: Sequence[int], subsets: ColumnSubsets) -> MarginalDistances:
    """Return mean distances of the marginals over ``subsets``; NaN if there are none."""
    return mean_of(list(subset_distances(a, b, sizes, subsets.subsets)))


def marginal_distances(a: CodeTable, b: CodeTable, columns: Sequence[int], sizes: Sequence[int]) -> MarginalDistances:
    """Return the distances of one marginal, see `subset_distances`."""
    return next(subset_distances(a, b, sizes, [tuple(columns)]))


def codes_tvd(a: NDArray[np.integer], b: NDArray[np.integer]) -> float:
    """Return the total variation distance of two columns of codes from 0, each of shape (rows,)."""
    size = int(max(a.max(initial=0), b.max(initial=0))) + 1
    return marginal_distances(a[:, None], b[:, None], (0,), (size,)).tvd


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
        for place in range(len(known) - 1, len(subset)):
            index, size = known[subset[:place]]
            domain = int(sizes[subset[place]])
            if size * domain > np.iinfo(np.int64).max:
                index, size = _occurring(index)
            known[subset[: place + 1]] = index * domain + both[:, subset[place]], size * domain
        index, size = known[subset]
        if size > len(index):
            index, size = _occurring(index)
        counts = [np.bincount(part, minlength=size) for part in (index[: len(a)], index[len(a) :])]
        yield _distances(*(count / max(int(count.sum()), 1) for count in counts))


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
