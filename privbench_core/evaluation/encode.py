"""Encode Arrow tables as integer codes, so that metrics use the same cells as the models.

Declared domains are encoded by their codecs. A domain to be learned has no public cells, so its cells are quantiles or
values of the source: right for an internal report, and never to be released or used by a synthesizer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.columns.codec import Codec
from privbench_core.columns.documents import frequent_leaves, leaves_values
from privbench_core.columns.registry import codec_for
from privbench_core.evaluation.marginals import CodeTable
from privbench_core.schema.columns import Column, Pattern, Range, Values
from privbench_core.schema.documents import documents_to_learn
from privbench_core.schema.tables import Schema, Table

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
