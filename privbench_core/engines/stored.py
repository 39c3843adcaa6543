"""The form in which all engines hold values: numbers where a column type has a number line, else text or bytes.

So neither time zones, nor date formats, nor how a database writes decimals decide what a value is equal to, which cell
it is in, or what its keyed hash is. The number of a value is that of its column type (`schema.types`): days, or
microseconds, since 1970; the digits of a decimal without the point.
"""

from __future__ import annotations

import pyarrow as pa

from privbench_core.schema.columns import Column

_DIGITS = pa.decimal128(38, 0)


def stored_type(column: Column) -> pa.DataType:
    """Return the Arrow type of a column's stored values.

    >>> from privbench_core.schema.columns import ColumnType
    >>> stored_type(Column("born", ColumnType.DATE))
    DataType(int64)
    """
    canonical = column.arrow_type
    if pa.types.is_decimal(canonical):
        return _DIGITS
    return pa.int64() if pa.types.is_temporal(canonical) else canonical


def to_stored(values: pa.ChunkedArray, column: Column) -> pa.ChunkedArray:
    """Return canonical values in their stored form; nothing is copied but dates."""
    kind = values.type
    if pa.types.is_decimal(kind):
        chunks = [pa.Array.from_buffers(_DIGITS, len(c), c.buffers(), offset=c.offset) for c in values.chunks]
        return pa.chunked_array(chunks, _DIGITS)
    if pa.types.is_date32(kind):
        return values.cast(pa.int32()).cast(pa.int64())
    return values.cast(pa.int64()) if pa.types.is_temporal(kind) else values.cast(stored_type(column))


def from_stored(values: pa.ChunkedArray, column: Column) -> pa.ChunkedArray:
    """Return the canonical values of stored ones: the inverse of `to_stored`."""
    canonical, plain = column.arrow_type, values.cast(stored_type(column))
    if pa.types.is_decimal(canonical):
        chunks = [pa.Array.from_buffers(canonical, len(c), c.buffers(), offset=c.offset) for c in plain.chunks]
        return pa.chunked_array(chunks, canonical)
    if pa.types.is_date32(canonical):
        return plain.cast(pa.int32()).cast(canonical)
    return plain.cast(canonical)
