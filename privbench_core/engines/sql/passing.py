"""What can be told of the rows of a table while they pass by, on their way into a database."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from privbench_core.backends.fingerprint import RowDigest
from privbench_core.engines.sql.repeated_keys import Keys
from privbench_core.schema.tables import Table


@dataclass(frozen=True)
class LoadedRows:
    """What a database knows of the rows of a table when it has loaded them.

    Attributes:
        in_order: Whether their numbers, from 0 on, are in the order of the primary key.
        repeated: Rows whose primary key an earlier row has; None where that is not known.
        fingerprint: Of the rows, see `backends.fingerprint.fingerprint_rows`; None where that is not known.
    """

    in_order: bool = False
    repeated: int | None = None
    fingerprint: str | None = None


class Passing:
    """Sees the rows of a table pass by.

    Args:
        table: What the spec declares.
        expected: How many rows there will be; None if that is not known, and then there is no fingerprint.
    """

    def __init__(self, table: Table, expected: int | None) -> None:
        self._keys = Keys.of(table)
        self._expected = expected
        self._rows = 0
        self._digest = None if expected is None else RowDigest(table, table.arrow_schema, expected)

    def add(self, rows: pa.Table, stored: pa.Table) -> None:
        """See the next rows, which are in the source's order: canonical ones, and the same as they are stored."""
        self._keys.seen(stored)
        self._rows += rows.num_rows
        if not self.in_order:
            self._digest = None
        elif self._digest is not None:
            self._digest.add(rows)

    @property
    def in_order(self) -> bool:
        """Whether the rows so far are in the order of their primary keys."""
        return self._keys.ascending

    def loaded(self) -> LoadedRows:
        """Return what was seen: they were hashed in the right order if that was theirs."""
        if not self.in_order:
            return LoadedRows()
        whole = self._digest is not None and self._rows == self._expected
        return LoadedRows(True, 0, self._digest.finished() if self._digest is not None and whole else None)
