"""From Arrow tables to integer codes, so that the metrics see the cells that the models see.

Declared domains are coded by their codecs. A domain that the owner left to be learned has no public cells, so here it
is cut into quantiles of the source, or into the values of the source: right for an internal report, and never to be
released or used by a synthesizer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.columns.registry import codec_for
from privbench_core.evaluate.marginals import CodeTable
from privbench_core.schema.columns import Column, Pattern, Range, Values
from privbench_core.schema.tables import Schema, Table

QUANTILE_BINS = 32
"""Number of bins for ordered columns without a declared domain."""


class _Encoder(Protocol):
    """The part of a codec that metrics need."""

    @property
    def size(self) -> int: ...
    @property
    def ordered(self) -> int: ...
    def encode(self, values: pa.ChunkedArray) -> NDArray[np.integer[Any]]: ...


@dataclass(frozen=True)
class Coded:
    """The attributes of a table as codes.

    Attributes:
        names: Attribute names, in source order.
        codes: Codes of shape (rows, attributes), laid out by column.
        sizes: Domain size per attribute.
        ordered: Whether neighbouring codes are neighbouring values, per attribute.
    """

    names: tuple[str, ...]
    codes: CodeTable
    sizes: tuple[int, ...]
    ordered: tuple[bool, ...]


def encode_tables(
    schema: Schema, tables: Mapping[str, pa.Table], source: Mapping[str, pa.Table] | None = None
) -> dict[str, Coded]:
    """Code the attributes of every table in ``tables``.

    Args:
        schema: What the columns are.
        tables: The rows to encode, by table name; tables of the schema that are missing here are left out.
        source: Where columns without a declared domain take their bins from; ``tables`` itself by default. Pass the
            source here when encoding the synthetic tables, so that both have the same codes.

    Raises:
        SourceError: A column holds values of the wrong type, or NULL where none may be.
    """
    bins_from = tables if source is None else source
    return {
        table.name: _encode(table, tables[table.name], bins_from[table.name])
        for table in schema.tables
        if table.name in tables
    }


def _encode(table: Table, rows: pa.Table, source: pa.Table) -> Coded:
    encoders = [_encoder(table, column, source[column.name]) for column in table.attributes]
    codes = np.empty((rows.num_rows, len(encoders)), np.int32, order="F")
    for position, (column, encoder) in enumerate(zip(table.attributes, encoders, strict=True)):
        codes[:, position] = encoder.encode(rows[column.name])
    return Coded(
        names=tuple(column.name for column in table.attributes),
        codes=codes,
        sizes=tuple(encoder.size for encoder in encoders),
        ordered=tuple(encoder.ordered > 0 for encoder in encoders),
    )


def _encoder(table: Table, column: Column, source: pa.ChunkedArray) -> _Encoder:
    declared = isinstance(column.domain, Range | Values | Pattern)
    if declared or column.logical.codec:
        return codec_for(column, table=table.name)
    if column.type.ordered:
        return SourceBins.of(source)
    values = sorted(value for value in pc.unique(source).to_pylist() if value is not None)
    return codec_for(replace(column, domain=Values(tuple(values)), nullable=True), table=table.name)


@dataclass(frozen=True)
class SourceBins:
    """Bins at quantiles of the source, for columns without a declared domain; the last code is NULL (or NaN).

    Attributes:
        cuts: Ascending values; bin i holds values v with cuts[i-1] < v <= cuts[i].
    """

    cuts: NDArray[np.float64]

    @classmethod
    def of(cls, source: pa.ChunkedArray, bins: int = QUANTILE_BINS) -> SourceBins:
        """At most ``bins`` bins of about equal counts; a frequent value has a bin that no other quantile cuts."""
        values = on_axis(source)
        values = values[~np.isnan(values)]
        if not values.size:
            return cls(np.empty(0))
        return cls(np.unique(np.quantile(values, np.arange(1, bins) / bins, method="inverted_cdf")))

    @property
    def size(self) -> int:
        """Number of bins and the code for NULL."""
        return len(self.cuts) + 2

    @property
    def ordered(self) -> int:
        """All bins are ordered."""
        return len(self.cuts) + 1

    def encode(self, values: pa.ChunkedArray) -> NDArray[np.int32]:
        """Codes of ``values``, shape (n,)."""
        numbers = on_axis(values)
        bins = np.searchsorted(self.cuts, numbers, side="left")
        return np.where(np.isnan(numbers), self.size - 1, bins).astype(np.int32)


def on_axis(values: pa.ChunkedArray) -> NDArray[np.float64]:
    """Values of an ordered type on one axis: days for dates, the type's own unit for times and spans; NaN for NULL."""
    if pa.types.is_temporal(values.type):
        values = values.cast(pa.int32() if values.type.bit_width == pa.int32().bit_width else pa.int64())
    numbers: NDArray[np.float64] = pc.cast(values, pa.float64(), safe=False).fill_null(np.nan).to_numpy()
    return numbers


def value_codes(
    a: pa.Table, b: pa.Table, columns: Sequence[str]
) -> tuple[NDArray[np.int64], NDArray[np.int64], tuple[int, ...]]:
    """Codes in which every distinct value of either table (and NULL) is a code of its own, as PrivBench's KLD takes it.

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
