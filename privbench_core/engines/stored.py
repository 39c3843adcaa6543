"""The form in which all engines hold values, and the order that decides which children beyond τ are kept.

**Stored values** are numbers where a column type has a number line, else text or bytes. So neither time zones, nor date
formats, nor how a database writes decimals decide what a value is equal to, which cell it is in, or what its keyed hash
is. The number of a value is that of its column type (`schema.types`): days, or microseconds, since 1970; the digits of
a decimal without the point.

**The order** is that of SHA-256 of a secret and the child's own primary key. All engines compute the same hash: it is
that of UTF-8 text, and a key's text follows from its stored values alone: each one's length in characters, a colon, and
the value: digits of a number, text as it is, bytes as hexadecimal digits. The order of hashes is that of their bytes.
They also give a kept row the same weight, by the number of rows that its unit has: see `privacy.relations`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.backends.integrity import RowDigest
from privbench_core.backends.scratch import scratch
from privbench_core.privacy.relations import WEIGHT_SCALE
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
        fingerprint: Of the rows, see `backends.integrity.fingerprint_rows`; None where that is not known.
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


def order_key(secret: bytes) -> str:
    """Return the text that every key's text is hashed behind: it says nothing about the secret that it comes from.

    Statements hold it, and databases may keep their text.
    """
    return blake2b(b"which children are kept", key=secret, digest_size=16).hexdigest()


def keyed_order(secret: bytes, columns: Sequence[Column], keys: pa.Table) -> NDArray[np.uint64]:
    """Return the first bytes of the hash of each key, shape (n,), in an order in which no other row has a say.

    Args:
        secret: Of the workspace.
        columns: Of the primary key.
        keys: Their canonical values.
    """
    # A value is written by its type alone; pandas would choose one format for the column, that is, by other rows.
    parts = [_texts(keys.column(column.name), column) for column in columns]
    nothing = pa.scalar("", pa.large_string())  # the first scalar imports pandas, so none is made by importing this
    texts = pc.binary_join_element_wise(*(part for text in parts for part in text), nothing)
    with scratch() as connection:  # three times faster than one by one, and in the order of what it scans
        connection.register("keys", pa.table({"text": texts}))
        # Of a billion rows two agree in the first 8 bytes of the hash with a probability of 0.03.
        hashed = "('0x' || left(sha256(? || text), 16))::UBIGINT"
        found = connection.execute(f"SELECT {hashed} AS hashed FROM keys", [order_key(secret)]).fetchnumpy()["hashed"]
        connection.unregister("keys")
    return np.asarray(found)


def _texts(values: pa.ChunkedArray, column: Column) -> tuple[pa.Array, pa.Scalar, pa.Array]:
    """Return the length of each value's text, a colon, and the text."""
    stored = to_stored(values, column)
    if pa.types.is_binary(stored.type):
        text = pa.array([value.hex() for value in stored.to_pylist()], pa.large_string())
    else:
        text = stored.combine_chunks().cast(pa.large_string())
    return pc.utf8_length(text).cast(pa.large_string()), pa.scalar(":", pa.large_string()), text


Numbers = NDArray[np.integer[Any]]


def unit_weights(rows: Numbers, rows_per_unit: Sequence[int]) -> NDArray[np.int32]:
    """Return weights in multiples of 1/`WEIGHT_SCALE`, shape (n,).

    Args:
        rows: Kept rows of each row's unit, shape (n,).
        rows_per_unit: The T that weights may be shares of, ascending.

    >>> unit_weights(np.array([1, 2, 3]), (2,)).tolist()
    [524288, 524288, 349525]
    """
    numbers, places = _numbers(rows)
    return np.asarray((WEIGHT_SCALE // _divisors(numbers, rows_per_unit)).astype(np.int32)[places])


def unit_divisors(rows: Numbers, rows_per_unit: Sequence[int]) -> NDArray[np.int64]:
    """Return by what the weight of each row's unit is divided: T, or the number of its rows; shape (n,)."""
    numbers, places = _numbers(rows)
    return np.asarray(_divisors(numbers, rows_per_unit)[places])


def _numbers(rows: Numbers) -> tuple[Numbers, Numbers | slice]:
    """Return numbers of rows and which of them each row has: all there could be, where these are fewer than rows."""
    most = int(rows.max(initial=0))
    return (np.arange(most + 1), rows) if most < len(rows) else (rows, slice(None))


def _divisors(rows: Numbers, rows_per_unit: Sequence[int]) -> NDArray[np.int64]:
    place = np.searchsorted(rows_per_unit, rows)
    return np.where(place < len(rows_per_unit), np.append(rows_per_unit, 1)[place], np.maximum(rows, 1))
