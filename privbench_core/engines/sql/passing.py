"""What can be told of the rows of a table while they pass by, on their way into a database."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from privbench_core.backends.fingerprint import RowDigest
from privbench_core.engines.stored import stored_type
from privbench_core.schema.tables import Table


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
    """Sees the rows of a table pass by.

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
