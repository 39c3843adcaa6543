"""What every source can do, and what the sources have in common."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa

from privbench_core.backends.cast import canonical_batches, canonical_parts
from privbench_core.backends.catalogue import Catalogue
from privbench_core.backends.fingerprint import fingerprint_rows
from privbench_core.errors import SourceError, did_you_mean
from privbench_core.schema.change import Change, VersionQuery, Watermark
from privbench_core.schema.identity import change_identity
from privbench_core.schema.tables import Table

XMIN = "xmin"
"""PostgreSQL's number of the transaction that wrote a row: a column of every table, in no catalogue."""


class Source(ABC):
    """A database as Arrow tables."""

    @abstractmethod
    def catalogue(self) -> Catalogue:
        """Return what the source declares of its tables, by name; no row is read.

        Raises:
            SourceError: The source cannot be opened, or does not show its catalogue.
        """

    @abstractmethod
    def stored_rows(self, table: Table) -> Iterator[pa.Table]:
        """Yield the declared columns as they are stored, in parts of the same types: at least one, perhaps empty.

        Raises:
            SourceError: The table or a column is missing, or cannot be read.
        """

    def read(self, table: Table) -> pa.Table:
        """Return the rows of a table: exactly its declared columns, in spec order, of their canonical Arrow types.

        Raises:
            SourceError: The table or a column is missing, or a column does not fit its declared type.
        """
        return canonical_batches(table, self.stored_rows(table))

    def batches(self, table: Table) -> Iterator[pa.Table]:
        """Return the same rows in parts, so that they need never be in memory together; at least one part.

        Raises:
            SourceError: As `read`, perhaps only when the last part is asked for.
        """
        return canonical_parts(table, self.stored_rows(table))

    def known_rows(self, table: Table) -> int | None:
        """Return how many rows a table has, where the source can tell without reading them.

        None where it cannot, and of databases, where others may change rows while they are counted.
        """
        return None

    def fingerprint(self, table: Table) -> str:
        """Return a hex digest of the table's content, see `fingerprint.fingerprint_rows`."""
        return fingerprint_rows(table, self.read(table))

    @abstractmethod
    def version(self, table: Table, change: Watermark | VersionQuery) -> str:
        """Return what stands for the table's content by the owner's choice, see `version_of`.

        Raises:
            SourceError: This kind of source cannot tell, or the table, the column or the query is wrong.
        """

    def stored(self, tables: Sequence[Table]) -> dict[str, str]:
        """Digests of the bytes that the rows of these tables are read from, by table: equal bytes are equal rows.

        Left out are tables whose bytes are out of reach (a server's), decide nothing (a view's), or are not there.
        """
        return {}


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


def watermark_sql(table: str, column: str, *, xmin: bool = False) -> str:
    """Return a query for how many rows and values there are and which value is the largest.

    For `XMIN` it is how many rows there are, and the sum of the hashes of who wrote them: transaction
    numbers start again after 2^32, and a long one ends after others that began later, so none of them is the latest.

    Args:
        table: Name of the table, quoted.
        column: The watermark, quoted.
        xmin: Whether it is PostgreSQL's own.
    """
    if xmin:
        return f"SELECT count(*), sum(hashint8extended({XMIN}::text::bigint, 0)) FROM {table}"
    return f"SELECT count(*), count({column}), max({column}) FROM {table}"


def version_of(table: str, rows: Sequence[Sequence[object]]) -> str:
    """Return the text of the one row that a query for a version returned.

    A version is as private as the rows it comes from (the largest `updated_at` is somebody's), so it is hashed before
    it is shown, like a fingerprint. It misses what the owner's choice misses: ``docs/privacy.md`` says why that costs
    accuracy and no privacy.

    Args:
        table: The table whose version it is.
        rows: Of the result, at least the first two if there are more.

    Raises:
        SourceError: There is not exactly one row.
    """
    if len(rows) != 1:
        found = "no row" if not rows else "several rows"
        raise SourceError(f"{table}: the query of its change returns {found}; write one that always returns one row")
    # One driver of PostgreSQL gives a memoryview for bytes, the other gives bytes.
    plain = [bytes(value) if isinstance(value, memoryview) else value for value in rows[0]]
    return json.dumps([None if value is None else str(value) for value in plain])


def failed_query(table: str, error: Exception) -> SourceError:
    """Return the error of an owner's query that failed, without the database's own words, which may quote values."""
    found = f"the query of its change failed ({type(error).__name__})"
    return SourceError(f"{table}: {found}; try it on the source, with the same rights")


def versioned(table: Table, change: Change, version: str) -> str:
    """All that identifies what was read from a table at a version: also which columns, and how they were compared."""
    columns = [[field.name, str(field.type)] for field in table.arrow_schema]
    return json.dumps([table.name, table.primary_key, columns, change_identity(change), version])
