"""What ANALYZE of PostgreSQL would find in a column, computed from a sample of its rows without a server.

The estimators are those of its ``analyze.c`` and ``array_typanalyze.c`` at the default statistics target: most common
values, an equi-depth histogram of the rest, the correlation of order and place, and for the number of distinct values
the estimator of Haas and Stokes, "Estimating the number of classes in a finite population", JASA 93 (1998).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

TARGET = 100  # default_statistics_target: the most common values, and the cells of a histogram
SAMPLE_ROWS = 300 * TARGET
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class ColumnStatistics:
    """Statistics of a column as ``pg_restore_attribute_stats`` takes them; arrays are empty where there are none.

    Attributes:
        null_fraction: Share of NULLs.
        width: Mean bytes of a value, rounded down.
        distinct: Number of distinct values; if negative, minus their share of the rows.
        common: The most common values, and their shares of the rows, NULLs included.
        histogram: Bounds of cells that hold the same number of the other values.
        correlation: Of the order of the values and their place in the table.
    """

    null_fraction: float
    width: int
    distinct: float
    common: tuple[pa.Array, NDArray[np.float64]]
    histogram: pa.Array
    correlation: float | None


@dataclass(frozen=True)
class ElementStatistics:
    """Statistics of what is in the arrays of a column.

    Attributes:
        common: The most common elements, in order.
        shares: Of the arrays that hold each; then the least and the largest of these, and that of NULL.
        counts: Distinct elements of an array: percentiles from 0 to 100, then their mean.
    """

    common: tuple[str | float | bool, ...]
    shares: tuple[float, ...]
    counts: tuple[float, ...]


@dataclass(frozen=True)
class Ranked:
    """Values by their rank.

    Attributes:
        distinct: The distinct values in order.
        ranks: Place in ``distinct`` of every value, shape (values,).
        counts: Values of each rank, shape (distinct,).
    """

    distinct: pa.Array
    ranks: NDArray[np.int64]
    counts: NDArray[np.int64]


def rank(values: pa.Array, order: Sequence[str] | None = None) -> Ranked:
    """Rank values without NULLs: texts by their bytes or, if it is given, by their place in ``order``."""
    encoded = values.dictionary_encode()
    distinct = encoded.dictionary
    keys = distinct if order is None else pc.index_in(distinct, pa.array(order, distinct.type))
    sorting = pc.array_sort_indices(keys).to_numpy()
    places = np.empty(len(distinct), np.int64)
    places[sorting] = np.arange(len(distinct))
    ranks = places[encoded.indices.to_numpy(zero_copy_only=False)]
    return Ranked(distinct.take(pa.array(sorting)), ranks, np.bincount(ranks, minlength=len(distinct)))


def column_statistics(
    values: pa.Array, widths: NDArray[np.int64], rows: int, *, ordered: bool = True, order: Sequence[str] | None = None
) -> ColumnStatistics:
    """Return the statistics of a column.

    Args:
        values: Of the sampled rows, in their order, with NULLs.
        widths: Bytes that each takes in a row, those of NULLs ignored.
        rows: Of the table.
        ordered: Whether the order of the values is known; if not, there is neither histogram nor correlation.
        order: Of the values of an enum.
    """
    present = values.is_valid().to_numpy(zero_copy_only=False)
    widths, sampled = widths[present], len(values)
    narrow = widths <= 1024  # noqa: PLR2004 - bytes; wider values are counted, but neither compared nor listed
    found = rank(values.drop_null().filter(pa.array(narrow)), order)
    wide, nulls = int((~narrow).sum()), sampled - len(widths)
    null_fraction = nulls / sampled if sampled else 0.0
    distinct = estimate_distinct(found.counts, wide, nulls, rows)
    common = _most_common(found.counts, wide, distinct, null_fraction, sampled, rows)
    return ColumnStatistics(
        null_fraction,
        int(widths.mean()) if len(widths) else 0,
        distinct,
        (found.distinct.take(pa.array(common)), found.counts[common] / max(sampled, 1)),
        found.distinct.take(pa.array(_bounds(found.counts, common) if ordered else _NONE)),
        _correlation(found.ranks) if ordered else None,
    )


def estimate_distinct(counts: NDArray[np.int64], wide: int, nulls: int, rows: int) -> float:
    """Return the number of distinct values of a table, minus their share of its rows where they grow with it.

    Args:
        counts: Sampled rows of each distinct value.
        wide: Sampled values that were not compared; each counts as distinct.
        nulls: Sampled NULLs.
        rows: Of the table.

    >>> estimate_distinct(np.array([1, 1, 1]), 0, 1, 1000), estimate_distinct(np.array([500, 400]), 0, 0, 10_000)
    (-0.75, 2.0)
    """
    values = int(counts.sum()) + wide
    share = values / (values + nulls) if values else 0.0
    repeated = int((counts > 1).sum())
    if not repeated:
        return -share
    if not wide and repeated == len(counts):
        distinct = float(repeated)
    else:
        once, whole = len(counts) - repeated + wide, rows * share
        distinct = values * (once + repeated) / (values - once + once * values / whole)
        distinct = float(np.floor(min(max(distinct, once + repeated), whole) + 0.5))
    # More distinct values than a tenth of the rows are taken to grow with the table.
    return -distinct / rows if distinct > 0.1 * rows else distinct


def _most_common(
    counts: NDArray[np.int64], wide: int, distinct: float, null_fraction: float, sampled: int, rows: int
) -> NDArray[np.int64]:
    """Return the ranks of the most common values, the most common first: all of few, else those that stand out."""
    ranked = np.argsort(-counts, kind="stable")[:TARGET]
    ranked = ranked[counts[ranked] > 1]
    if sampled == rows or (len(ranked) == len(counts) and not wide and distinct > 0):
        return ranked
    total, kept = (-distinct * rows if distinct < 0 else distinct), len(ranked)
    while kept:
        # The last one stays if its count is two standard errors above the mean of all values that are not listed.
        count = int(counts[ranked[kept - 1]])
        rest = min(max(1 - int(counts[ranked[: kept - 1]].sum()) / sampled - null_fraction, 0.0), 1.0)
        rest /= max(total - (kept - 1), 1.0)
        there = rows * count / sampled
        variance = sampled * there * (rows - there) * (rows - sampled) / (float(rows) * rows * (rows - 1))
        if count > rest * sampled + 2 * sqrt(max(variance, 0.0)) + 0.5:
            break
        kept -= 1
    return ranked[:kept]


def _bounds(counts: NDArray[np.int64], common: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the ranks that are the histogram's bounds: evenly spaced values, without the most common ones."""
    number = min(len(counts) - len(common), TARGET + 1)
    if number < 2:  # noqa: PLR2004 - a cell has two bounds
        return _NONE
    left = counts.copy()
    left[common] = 0
    ends = np.cumsum(left)
    places = np.arange(number) * (int(ends[-1]) - 1) // (number - 1)
    return np.searchsorted(ends, places, side="right")


def _correlation(ranks: NDArray[np.int64]) -> float | None:
    n = len(ranks)
    if n < 2:  # noqa: PLR2004 - nothing to correlate
        return None
    places = np.arange(n, dtype=np.float64)
    product = float(places @ np.argsort(ranks, kind="stable"))
    total, squares = places.sum(), places @ places
    return float((n * product - total * total) / (n * squares - total * total))


def element_statistics(arrays: Collection[Sequence[str | float | bool | None]]) -> ElementStatistics | None:
    """Return the statistics of the elements of sampled arrays; None if there are no elements."""
    held = [{element for element in array if element is not None} for array in arrays]
    number = Counter(element for each in held for element in each)
    with_null = sum(None in array for array in arrays)
    target = TARGET * 10  # elements of arrays have a larger one
    # Lossy counting keeps what more than this many arrays hold; its window is as wide.
    least = 9 * sum(map(len, arrays)) // (target * 1000 // 7) if len(number) > target else 0
    chosen = [element for element, count in number.most_common(target) if count > least]
    if not chosen:
        return None
    common = tuple(sorted(chosen))
    shares = [number[element] / len(held) for element in common]
    counts = np.sort([len(each) for each in held])
    places = np.arange(TARGET) * (len(counts) - 1) // (TARGET - 1)
    return ElementStatistics(
        common,
        (*shares, min(shares), max(shares), with_null / len(held)),
        (*map(float, counts[places]), float(counts.mean())),
    )


def rows_of_keys(counts: NDArray[np.int64], rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return numbers of rows that distinct keys of a table have, and how many keys have each.

    Args:
        counts: Rows of each distinct key of a sample. Common keys scale with the table; the others share the rest.
        rows: Of the table.
    """
    sampled = int(counts.sum())
    if sampled < rows:
        estimated = estimate_distinct(counts, 0, 0, rows)
        # The own count of a key says how many rows it has in the table, if so many are in the sample.
        heavy = np.round(counts[counts >= 5] * (rows / sampled)).astype(np.int64)  # noqa: PLR2004
        number = max(round(-estimated * rows if estimated < 0 else estimated) - len(heavy), 1)
        mean, more = divmod(max(rows - int(heavy.sum()), 0), number)
        counts = np.concatenate([heavy, np.repeat([mean + 1, mean], [more, number - more])])
    sizes, numbers = np.unique(counts[counts > 0], return_counts=True)
    return sizes, numbers
