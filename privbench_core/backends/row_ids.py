"""Number the rows of tables that have no key of their own (``row_id: generated``), so that each is identified.

The number is a digest of the row's own values and of how many equal rows stand before it, not of its place: no other
row can change it, except rows that equal it in every column. Such rows are interchangeable, and those of an owned table
refer to the same owner. So the numbers of a unit's rows are the same with another unit and without it, which the order
of truncation rests on (``docs/privacy.md``, section 3); and the order in which a source returns rows has no say.

The digest is keyed with the workspace's secret: someone who can insert rows cannot search for two that get one
number, which would stop every run.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privbench_core.backends.base import Source
from privbench_core.backends.catalogue import Catalogue
from privbench_core.schema.tables import Table
from privbench_core.spec.model import VersionQuery, Watermark


@dataclass(frozen=True)
class NumberedSource(Source):
    """A source whose tables without a key get a column of row numbers; all other tables are as in the source."""

    source: Source
    secret: bytes = field(repr=False)  # keys the numbers

    def catalogue(self) -> Catalogue:
        return self.source.catalogue()

    def stored_rows(self, table: Table) -> Iterator[pa.Table]:
        return self.source.stored_rows(_stored(table))

    def read(self, table: Table) -> pa.Table:
        rows = self.source.read(_stored(table))
        return rows if table.row_id is None else rows.append_column(table.row_id, number_rows(rows, self.secret))

    def batches(self, table: Table) -> Iterator[pa.Table]:
        """See `Source.batches`: rows are numbered together."""
        return self.source.batches(table) if table.row_id is None else iter([self.read(table)])

    def known_rows(self, table: Table) -> int | None:
        return self.source.known_rows(table)

    def version(self, table: Table, change: Watermark | VersionQuery) -> str:
        return self.source.version(_stored(table), change)

    def stored(self, tables: Sequence[Table]) -> dict[str, str]:
        return self.source.stored([_stored(table) for table in tables])


def number_rows(rows: pa.Table, secret: bytes) -> pa.Array:
    """Return a 63-bit number per row that is distinct but for accidents of the hash, which the key check refuses.

    SipHash-2-4 of the row's values and of the number of equal rows before it, under a key that follows from ``secret``.

    >>> rows = pa.table({"a": ["x", "y", "x"], "b": [1, None, 1]})
    >>> numbers = number_rows(rows, b"secret")
    >>> len(numbers.unique()), numbers == number_rows(rows, b"secret"), numbers == number_rows(rows, b"another")
    (3, True, False)
    """
    import pandas as pd

    key = urlsafe_b64encode(blake2b(b"numbers of rows without a key", key=secret, digest_size=12).digest()).decode()

    texts = pd.Series(_texts(rows).to_numpy(zero_copy_only=False), dtype=object)
    seen = texts.groupby(texts, sort=False).cumcount().astype(str)
    hashed = pd.util.hash_array((seen + "\x1f" + texts).to_numpy(dtype=object), hash_key=key, categorize=False)
    return pa.array((hashed >> np.uint64(1)).astype(np.int64))


def _stored(table: Table) -> Table:
    """Return the table as the source has it."""
    if table.row_id is None:
        return table
    return replace(table, columns=table.columns[:-1], primary_key=(), row_id=None)


def _texts(rows: pa.Table) -> pa.Array:
    """Return a text per row from which its values follow: each value by its type alone, after its length."""
    parts = [_part(column.combine_chunks()) for column in rows.columns]
    return pc.binary_join_element_wise(*parts, pa.scalar("", pa.large_string()))


def _part(values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_duration(kind) or pa.types.is_timestamp(kind):
        values = values.cast(pa.int64())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        texts = pa.array([None if value is None else value.hex() for value in values.to_pylist()], pa.large_string())
    else:
        texts = values.cast(pa.large_string())
    lengths = pc.binary_length(texts).cast(pa.large_string())
    return pc.fill_null(pc.binary_join_element_wise(lengths, texts, pa.scalar(":", texts.type)), "-")
