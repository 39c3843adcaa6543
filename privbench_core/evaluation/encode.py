"""Encode Arrow tables as integer codes, so that metrics use the same cells as the models.

Declared domains are encoded by their codecs. A domain to be learned has no public cells, so its cells are quantiles or
values of the source: right for an internal report, and never to be released or used by a synthesizer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.columns.codec import Codec
from privbench_core.columns.registry import codec_for
from privbench_core.evaluation.marginals import CodeTable
from privbench_core.schema.columns import Column, Pattern, Range, Values
from privbench_core.schema.tables import Schema, Table

BINS = 32
"""Bins of ordered columns without a declared domain, and the most codes of `coarsen`."""


@dataclass(frozen=True)
class EncodedTable:
    """The attributes of a table as codes.

    Attributes:
        names: Attribute names, in source order.
        codes: Codes, shape (rows, attributes), in column-major order.
        sizes: Domain size per attribute.
        ordered: Whether the order of codes is that of values, per attribute.
    """

    names: tuple[str, ...]
    codes: CodeTable
    sizes: tuple[int, ...]
    ordered: tuple[bool, ...]


def encode_tables(
    schema: Schema, tables: Mapping[str, pa.Table], source: Mapping[str, pa.Table] | None = None
) -> dict[str, EncodedTable]:
    """Encode the attributes of every table in ``tables``.

    Args:
        schema: The database.
        tables: The rows to encode, by table name; a subset of the schema's tables.
        source: Rows that determine the bins of columns without a declared domain; by default ``tables``. Pass the
            source when encoding synthetic tables, so that both have the same codes.

    Raises:
        SourceError: A column holds values of the wrong type, or NULL where none may be.
    """
    found = {}
    for table in (table for table in schema.tables if table.name in tables):
        rows, bins_from = tables[table.name], (tables if source is None else source)[table.name]
        encoders = [_encoder(table, column, bins_from[column.name]) for column in table.attributes]
        codes = np.empty((rows.num_rows, len(encoders)), np.int32, order="F")
        for position, (column, encoder) in enumerate(zip(table.attributes, encoders, strict=True)):
            codes[:, position] = encoder.encode(rows[column.name])
        found[table.name] = EncodedTable(
            names=tuple(column.name for column in table.attributes),
            codes=codes,
            sizes=tuple(encoder.size for encoder in encoders),
            ordered=tuple(encoder.ordered > 0 for encoder in encoders),
        )
    return found


def _encoder(table: Table, column: Column, source: pa.ChunkedArray) -> Codec | SourceBins:
    declared = isinstance(column.domain, Range | Values | Pattern)
    if declared or not column.logical.needs_domain:
        return codec_for(column, table=table.name)
    if column.type.ordered:
        return SourceBins.of(source)
    values = sorted(value for value in pc.unique(source).to_pylist() if value is not None)
    listed = Values(tuple(values) or ("",))  # all is NULL: a list needs a value, even one that no row has
    return codec_for(replace(column, domain=listed, nullable=True), table=table.name)


@dataclass(frozen=True)
class SourceBins:
    """Bins at quantiles of the source, for columns without a declared domain; the last code is NULL (or NaN).

    Attributes:
        edges: Ascending values; bin i holds values v with edges[i-1] < v <= edges[i].
    """

    edges: NDArray[np.float64]

    @classmethod
    def of(cls, source: pa.ChunkedArray, bins: int = BINS) -> SourceBins:
        """Return at most ``bins`` bins of about equal counts; a frequent value that covers quantiles ends one bin."""
        values = as_numbers(source)
        values = values[~np.isnan(values)]
        if not values.size:
            return cls(np.empty(0))
        return cls(_quantiles(values, bins))

    @property
    def size(self) -> int:
        """Number of bins, plus one code for NULL."""
        return len(self.edges) + 2

    @property
    def ordered(self) -> int:
        """Number of ordered codes: all bins."""
        return len(self.edges) + 1

    def encode(self, values: pa.ChunkedArray) -> NDArray[np.int32]:
        """Return the codes of ``values``, shape (n,)."""
        numbers = as_numbers(values)
        bins = np.searchsorted(self.edges, numbers, side="left")
        return np.where(np.isnan(numbers), self.size - 1, bins).astype(np.int32)


def coarsen(
    true: Mapping[str, EncodedTable], made: Mapping[str, EncodedTable]
) -> tuple[dict[str, EncodedTable], dict[str, EncodedTable]]:
    """Return both with wide columns in few codes: where there is an order, bins of about as many rows of the source.

    Lists keep the `BINS` values that most rows of the source have; all others, and those that it has not, are one code.
    A pair of wide columns has more cells than there are rows, so two samples of one distribution would be far apart;
    and values that one row has each, such as numbers of documents, would be wrong whatever they are.
    """
    coarse: tuple[dict[str, EncodedTable], dict[str, EncodedTable]] = {}, {}
    for name, coded in true.items():
        sides = [np.array(side[name].codes, order="F") for side in (true, made)]
        sizes = list(coded.sizes)
        for i in (i for i, size in enumerate(sizes) if size > BINS + 1 and len(sides[0])):
            if coded.ordered[i]:
                cuts = _quantiles(sides[0][:, i], BINS)
                code_of = np.searchsorted(cuts, np.arange(sizes[i]), side="left")
            else:
                rows = np.bincount(sides[0][:, i], minlength=sizes[i])
                code_of = np.full(sizes[i], BINS)
                code_of[np.argsort(-rows, kind="stable")[:BINS]] = np.arange(BINS)
            sizes[i] = int(code_of.max()) + 1
            for codes in sides:
                codes[:, i] = code_of[codes[:, i]]
        for result, codes in zip(coarse, sides, strict=True):
            result[name] = replace(coded, codes=codes, sizes=tuple(sizes))
    return coarse


def _quantiles(values: NDArray[Any], bins: int) -> NDArray[Any]:
    """Return the values that end all but the last of some bins of about as many rows, ascending; equal ones once."""
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
    codes = (np.empty((a.num_rows, len(columns)), np.int64, "F"), np.empty((b.num_rows, len(columns)), np.int64, "F"))
    sizes = []
    for position, name in enumerate(columns):
        type_ = a.schema.field(name).type
        both = pa.chunked_array([*a[name].chunks, *b[name].cast(type_).chunks], type=type_).combine_chunks()
        values = both.dictionary_encode()
        numbers = values.indices.fill_null(len(values.dictionary)).to_numpy()
        codes[0][:, position], codes[1][:, position] = numbers[: a.num_rows], numbers[a.num_rows :]
        sizes.append(len(values.dictionary) + 1)
    return codes[0], codes[1], tuple(sizes)
