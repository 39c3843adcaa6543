"""What every source can do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from privbench_core.backends.version import XMIN
from privbench_core.errors import SourceError, did_you_mean
from privbench_core.schema.change import VersionQuery, Watermark
from privbench_core.schema.tables import Table


class Source(Protocol):
    """A database as Arrow tables."""

    def tables(self) -> list[str]:
        """Return the names of the tables there are, sorted."""
        ...

    def read(self, table: Table) -> pa.Table:
        """Return the rows of a table: exactly its declared columns, in spec order, of their canonical Arrow types.

        Raises:
            SourceError: The table or a column is missing, or a column does not fit its declared type.
        """
        ...

    def batches(self, table: Table) -> Iterator[pa.Table]:
        """Return the same rows in parts, so that they need never be in memory together; at least one part.

        Raises:
            SourceError: As `read`, perhaps only when the last part is asked for.
        """
        ...

    def known_rows(self, table: Table) -> int | None:
        """Return how many rows a table has, where the source can tell without reading them; None where it can't."""
        ...

    def fingerprint(self, table: Table) -> str:
        """Return a hex digest of the table's content, see `fingerprint.fingerprint_rows`."""
        ...

    def version(self, table: Table, change: Watermark | VersionQuery) -> str:
        """Return what stands for the table's content by the owner's choice, see `version.version_of`.

        Raises:
            SourceError: This kind of source cannot tell, or the table, the column or the query is wrong.
        """
        ...

    def stored(self, tables: Sequence[Table]) -> dict[str, str]:
        """Digests of the bytes that the rows of these tables are read from, by table: equal bytes are equal rows.

        Left out are tables whose bytes are out of reach (a server's), decide nothing (a view's), or are not there.
        """
        ...


def check_table(name: str, known: Iterable[str]) -> None:
    """Refuse a table the source does not have."""
    options = list(known)
    if not options:
        todo = "check the place, the schema, and that the login may use it"
        raise SourceError(f"{name}: the source shows no table at all; {todo}")
    if name not in options:
        raise SourceError(f"{name}: the source has no such table; {did_you_mean(name, options)}")


def check_columns(table: Table, known: Iterable[str], hint: Callable[[str, list[str]], str] = did_you_mean) -> None:
    """Refuse a table that lacks declared columns (all of them in one message), or has one of them twice.

    Args:
        table: As declared.
        known: Names of the source's columns.
        hint: What to say of a name that is not among them.
    """
    options = list(known)
    wanted = [column.name for column in table.columns]
    missing = [
        f"{table.name}.{name}: the source has no such column; {hint(name, options)}"
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


def check_watermark(table: str, column: str, known: Iterable[str]) -> None:
    """Refuse a watermark that is no column of the source's table; the spec need not declare it."""
    options = list(known)
    if column in options:
        return
    if column == XMIN:
        found = f"change: {{watermark: {XMIN}}} is for tables of PostgreSQL"
        raise SourceError(f"{table}: {found}; name a column that grows with every change, or remove the line")
    raise SourceError(f"{table}: the watermark {column} is no column of the source; {did_you_mean(column, options)}")
