"""A digest of a table's content.

It names what a release was paid for, so it must change exactly when the content does. The bytes of a file are no such
name: a rewritten Parquet file with the same rows, another order of rows (PostgreSQL promises none) or a column the
spec leaves out would make the owner pay twice for the same data. Canonical rows in primary-key order are hashed.
The digest is as private as the rows themselves; key it before it is kept outside of the ledger.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privbench_core.schema.tables import Table

BLOCK = 1 << 16  # rows hashed together; fixed, so that chunking does not matter


def fingerprint_rows(table: Table, rows: pa.Table) -> str:
    """Return the digest of canonical rows.

    Args:
        table: What the spec declares; its primary key gives the order of hashing.
        rows: As `Source.read` returns them, in any order and chunking.

    Returns:
        32 hexadecimal characters that change iff a value, a column's name or type or the set of rows changes.
    """
    order = pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in table.primary_key])
    digest = RowDigest(table, rows.schema, rows.num_rows)
    for start in range(0, rows.num_rows, BLOCK):
        digest.add(rows.take(order.slice(start, BLOCK)))
    return digest.finished()


class RowDigest:
    """The digest of `fingerprint_rows`, of so many rows that come in parts, in the order of their primary keys."""

    def __init__(self, table: Table, schema: pa.Schema, number: int) -> None:
        self._digest = hashlib.blake2b(digest_size=16)
        fields = (f"{field.name}\0{field.type}" for field in schema)
        head = "\0\0".join([table.name, *table.primary_key, *fields]).encode()
        self._digest.update(head + number.to_bytes(8, "little"))
        self._waiting: list[pa.Table] = []

    def add(self, rows: pa.Table) -> None:
        """Take the next canonical rows; they are hashed in blocks of `BLOCK`."""
        self._waiting.append(rows)
        if sum(each.num_rows for each in self._waiting) < BLOCK:
            return
        joined = pa.concat_tables(self._waiting)
        whole = joined.num_rows - joined.num_rows % BLOCK
        for start in range(0, whole, BLOCK):
            self._hash(joined.slice(start, BLOCK))
        self._waiting = [joined.slice(whole)]

    def finished(self) -> str:
        """Return the digest, when all rows have been added."""
        if self._waiting and (left := pa.concat_tables(self._waiting)).num_rows:
            self._hash(left)
        self._waiting = []
        return self._digest.hexdigest()

    def _hash(self, block: pa.Table) -> None:
        for column in block.columns:
            values = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()  # which would copy it
            for part in _parts(values):
                self._digest.update(part)


def fingerprint_files(paths: Iterable[Path]) -> str:
    """Return the digest of the bytes of some files, their names and sizes; OSError if one of them cannot be read."""
    digest = hashlib.blake2b(digest_size=16)
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(1 << 20):  # bytes of a file at a time
                digest.update(block)
            digest.update(f"\0{path.name}\0{file.tell()}\0".encode())
    return digest.hexdigest()


def _parts(values: pa.Array) -> Iterator[bytes | memoryview]:
    """Yield bytes that determine a column's values and are determined by them, which those of NULL slots are not."""
    missing = np.packbits(pc.is_null(values).to_numpy(zero_copy_only=False)) if values.null_count else None
    yield bytes(-(-len(values) // 8)) if missing is None else missing.tobytes()
    present = values if missing is None else values.drop_null()
    if pa.types.is_string(values.type) or pa.types.is_binary(values.type):
        yield pc.binary_length(present).to_numpy().astype("<i4").tobytes()
        _, where, content = present.buffers()
        ends = np.frombuffer(where, np.int32, len(present) + 1, 4 * present.offset) if len(present) else [0, 0]
        yield memoryview(content)[ends[0] : ends[-1]] if content is not None else b""
    elif pa.types.is_floating(values.type):
        numbers = present.to_numpy() + 0.0  # one zero
        yield np.where(np.isnan(numbers), np.nan, numbers).tobytes()  # one NaN
    elif pa.types.is_boolean(values.type):
        yield np.packbits(present.to_numpy(zero_copy_only=False)).tobytes()
    else:
        width = present.type.bit_width // 8
        start = present.offset * width
        yield memoryview(present.buffers()[1])[start : start + len(present) * width]
