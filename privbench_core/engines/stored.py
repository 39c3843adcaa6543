"""The form in which all engines hold values: numbers where a column type has a number line, else text or bytes.

So neither time zones, nor date formats, nor how a database writes decimals decide what a value is equal to, which cell
it is in, or what its keyed hash is. The number of a value is that of its column type (`schema.types`): days, or
microseconds, since 1970; the digits of a decimal without the point.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from privbench_core.backends.fingerprint import RowDigest
from privbench_core.schema.columns import Column
from privbench_core.schema.tables import Table

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


def numbered(table: Table, rows: pa.Table, first: int = 0) -> pa.Table:
    """Return canonical rows in their stored form, see `Database.load`; their numbers begin with ``first``."""
    columns = [to_stored(rows.column(declared.name), declared) for declared in table.columns]
    numbers = pa.array(np.arange(first, first + rows.num_rows), pa.int64())
    return pa.table([numbers, *columns], names=["n", *(f"c{place}" for place in range(len(columns)))])


def canonical(table: Table, batch: pa.RecordBatch) -> pa.Table:
    """Return rows in their stored form as canonical ones: the inverse of `numbered`, but for the numbers."""
    rows = pa.Table.from_batches([batch])
    columns = [from_stored(found, declared) for found, declared in zip(rows.columns, table.columns, strict=True)]
    return pa.table(columns, names=[declared.name for declared in table.columns])


@dataclass(frozen=True)
class LoadedRows:
    """What a database knows of the rows of a table when it has loaded them.

    Attributes:
        in_order: Whether their numbers, from 0 on, are in the order of the primary key, which none of them repeats.
        fingerprint: Of the rows, see `backends.fingerprint.fingerprint_rows`; None where that is not known.
    """

    in_order: bool = False
    fingerprint: str | None = None


class Passing:
    """Sees the rows of a table pass by, on their way into a database.

    Args:
        table: What the spec declares.
        expected: How many rows there will be; None if that is not known, and then there is no fingerprint.

    Attributes:
        in_order: Whether each primary key so far is above the one before: of one column of whole numbers alone, which
            are in the same order for everybody.
    """

    def __init__(self, table: Table, expected: int | None) -> None:
        key = table.column(table.primary_key[0])
        self._key = table.columns.index(key)
        self._last: int | None = None
        self._expected = expected
        self._rows = 0
        self._digest = None if expected is None else RowDigest(table, table.arrow_schema, expected)
        self.in_order = len(table.primary_key) == 1 and pa.types.is_int64(stored_type(key))

    def add(self, rows: pa.Table, stored: pa.Table) -> None:
        """See the next rows, which are in the source's order: canonical ones, and the same as they are stored."""
        self._rows += rows.num_rows
        if self.in_order and rows.num_rows:
            keys = stored.column(self._key)
            numbers = keys.fill_null(0).to_numpy()
            above = bool((numbers[1:] > numbers[:-1]).all()) and (self._last is None or numbers[0] > self._last)
            self.in_order, self._last = bool(above and not keys.null_count), int(numbers[-1])
        if not self.in_order:
            self._digest = None
        elif self._digest is not None:
            self._digest.add(rows)

    def loaded(self) -> LoadedRows:
        """Return what was seen: they were hashed in the right order if that was theirs."""
        whole = self._digest is not None and self._rows == self._expected
        return LoadedRows(self.in_order, self._digest.finished() if self._digest is not None and whole else None)
