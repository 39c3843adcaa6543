"""What every source can do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import pyarrow as pa

from privbench_core.errors import SourceError, did_you_mean
from privbench_core.schema.model import Table


class Source(Protocol):
    """A database as Arrow tables."""

    def tables(self) -> list[str]:
        """Names of the tables there are, sorted."""
        ...

    def read(self, table: Table) -> pa.Table:
        """The rows of a table: exactly its declared columns, in spec order, of their canonical Arrow types.

        Raises:
            SourceError: The table or a column is missing, or a column does not fit its declared type.
        """
        ...

    def fingerprint(self, table: Table) -> str:
        """A hex digest of the table's content, see `fingerprint.fingerprint_rows`."""
        ...


def check_table(name: str, known: Iterable[str]) -> None:
    """Refuse a table the source does not have."""
    options = list(known)
    if not options:
        todo = "check the place, the schema, and that the login may use it"
        raise SourceError(f"{name}: the source shows no table at all; {todo}")
    if name not in options:
        raise SourceError(f"{name}: the source has no such table; {did_you_mean(name, options)}")


def check_columns(table: Table, known: Iterable[str]) -> None:
    """Refuse a table that lacks declared columns (all of them in one message), or has one of them twice."""
    options = list(known)
    wanted = [column.name for column in table.columns]
    missing = [
        f"{table.name}.{name}: the source has no such column; {did_you_mean(name, options)}"
        for name in wanted
        if name not in options
    ]
    twice = [
        f"{table.name}.{name}: the source has several columns of this name; rename all but one"
        for name in wanted
        if options.count(name) > 1
    ]
    if missing or twice:
        raise SourceError("\n".join(missing + twice))
