"""The marginals of coded tables, and distances between those of two: total variation, and PrivBench's KL divergence.

Arrow tables are encoded as integer codes of shape (rows, columns) with a domain size per column, so that metrics use
the same cells as the models. Declared domains are encoded by their codecs. A domain to be learned has no public cells,
so its cells are quantiles or values of the source: right for an internal report, and never to be released or used by a
synthesizer.

Marginals are relative frequencies, so the tables may have different numbers of rows. Where a marginal has more cells
than there are rows, only the cells that occur are counted: cells empty in both tables add nothing to a distance.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice, product
from math import comb
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.columns.codec import Codec
from privbench_core.columns.documents import frequent_leaves, leaves_values
from privbench_core.columns.registry import codec_for
from privbench_core.errors import InternalError
from privbench_core.schema.columns import Column, Pattern, Range, Values
from privbench_core.schema.documents import documents_to_learn
from privbench_core.schema.tables import Schema, Table

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
    paper uses distinct values (`value_codes`); codes that merge values give less.

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


BINS = 32
"""Bins of ordered columns without a declared domain."""


@dataclass(frozen=True)
class EncodedTable:
    """The attributes of a table as codes, in source order, with the leaves of documents in place of these."""

    names: tuple[str, ...]
    codes: CodeTable  # shape (rows, attributes), in column-major order
    sizes: tuple[int, ...]  # domain size per attribute
    ordered: tuple[bool, ...]  # whether the order of codes is that of values


def encode_tables(
    schema: Schema, tables: Mapping[str, pa.Table], source: Mapping[str, pa.Table] | None = None
) -> dict[str, EncodedTable]:
    """Encode the attributes of every table in ``tables``.

    Columns without a declared domain get bins of ``source``, by default ``tables``: pass the source when encoding
    synthetic tables, so that both have the same codes.

    Raises:
        SourceError: A column holds values of the wrong type, or NULL where none may be.
    """
    found = {}
    for table in (table for table in schema.tables if table.name in tables):
        rows, bins_from = tables[table.name], (tables if source is None else source)[table.name]
        columns = list(_columns(table, rows, bins_from))
        encoders = [_encoder(table, column, reference) for column, _, reference in columns]
        codes = np.empty((rows.num_rows, len(encoders)), np.int32, order="F")
        for position, ((_, values, _), encoder) in enumerate(zip(columns, encoders, strict=True)):
            codes[:, position] = encoder.encode(values)
        found[table.name] = EncodedTable(
            names=tuple(column.name for column, _, _ in columns),
            codes=codes,
            sizes=tuple(encoder.size for encoder in encoders),
            ordered=tuple(encoder.ordered > 0 for encoder in encoders),
        )
    return found


def _columns(
    table: Table, rows: pa.Table, source: pa.Table
) -> Iterator[tuple[Column, pa.ChunkedArray, pa.ChunkedArray]]:
    """Yield each attribute, or leaf of documents, with its values in ``rows`` and in ``source``."""
    documents = documents_to_learn(table.attributes)
    for column in table.attributes:
        values, reference = rows[column.name], source[column.name]
        if column in documents:
            leaves = frequent_leaves(column, reference)
            both = leaves_values(values, leaves), leaves_values(reference, leaves)
            yield from zip((leaf.column for leaf in leaves), *both, strict=True)
        else:
            yield column, values, reference


def _encoder(table: Table, column: Column, source: pa.ChunkedArray) -> Codec | SourceBins:
    declared = isinstance(column.domain, Range | Values | Pattern)
    if declared or not column.logical.needs_domain:
        return codec_for(column if declared else replace(column, domain=None), table=table.name)
    if column.type.ordered:
        return SourceBins.of(source)
    values = sorted(value for value in pc.unique(source).to_pylist() if value is not None)
    listed = Values(tuple(values) or ("",))  # all is NULL: a list needs a value, even one that no row has
    return codec_for(replace(column, domain=listed, nullable=True), table=table.name)


@dataclass(frozen=True)
class SourceBins:
    """Quantile bins of an ordered column: bin i has values v with edges[i-1] < v <= edges[i]; the last code is NULL."""

    edges: NDArray[np.float64]
    size: int  # number of bins, plus one code for NULL or NaN
    ordered: int  # number of ordered codes: all bins

    @classmethod
    def of(cls, source: pa.ChunkedArray, bins: int = BINS) -> SourceBins:
        """Return at most ``bins`` bins of about equal counts; a frequent value that covers quantiles ends one bin."""
        values = as_numbers(source)
        edges = quantiles(values[~np.isnan(values)], bins)
        return cls(edges, len(edges) + 2, len(edges) + 1)

    def encode(self, values: pa.ChunkedArray) -> NDArray[np.int32]:
        """Return the codes of ``values``, shape (n,)."""
        numbers = as_numbers(values)
        bins = np.searchsorted(self.edges, numbers, side="left")
        return np.where(np.isnan(numbers), self.size - 1, bins).astype(np.int32)


def quantiles(values: NDArray[Any], bins: int) -> NDArray[Any]:
    """Return the values that end all but the last of some bins of about as many rows, ascending; equal ones once."""
    if not values.size:
        return values
    return np.unique(np.quantile(values, np.arange(1, bins) / bins, method="inverted_cdf"))


def as_numbers(values: pa.ChunkedArray) -> NDArray[np.float64]:
    """Return ordered values as numbers: days for dates, Arrow's time unit for times and durations; NaN for NULL."""
    if pa.types.is_temporal(values.type):
        values = values.cast(pa.int32() if values.type.bit_width == pa.int32().bit_width else pa.int64())
    numbers: NDArray[np.float64] = pc.cast(values, pa.float64(), safe=False).fill_null(np.nan).to_numpy()
    return numbers


def value_codes(
    a: pa.Table, b: pa.Table, columns: Sequence[str]
) -> tuple[NDArray[np.int64], NDArray[np.int64], tuple[int, ...]]:
    """Encode every distinct value of either table, and NULL, as a code of its own, as for PrivBench's KLD.

    Returns:
        Codes of ``a`` and of ``b``, shape (rows, columns), and the number of codes per column.
    """
    codes = np.empty((a.num_rows + b.num_rows, len(columns)), np.int64, "F")
    sizes = []
    for position, name in enumerate(columns):
        type_ = a.schema.field(name).type
        both = pa.chunked_array([*a[name].chunks, *b[name].cast(type_).chunks], type=type_).combine_chunks()
        values = both.dictionary_encode()
        codes[:, position] = values.indices.fill_null(len(values.dictionary)).to_numpy()
        sizes.append(len(values.dictionary) + 1)
    return codes[: a.num_rows], codes[a.num_rows :], tuple(sizes)
