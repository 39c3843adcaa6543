"""What every source can do, and what the sources have in common."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa

from privbench_core.backends.cast import canonical_parts, joined
from privbench_core.backends.catalogue import Catalogue
from privbench_core.backends.fingerprint import fingerprint_rows
from privbench_core.errors import SourceError, did_you_mean
from privbench_core.schema.tables import Table
from privbench_core.spec.model import Change, Content, VersionQuery, Watermark

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
        return joined(self.batches(table))

    def batches(self, table: Table) -> Iterator[pa.Table]:
        """Return the same rows in parts, so that they need never be in memory together; at least one part.

        Raises:
            SourceError: As `read`, perhaps only when the last part is asked for.
        """
        if table.empty:  # by the owner's choice, whatever the source has
            return iter([table.arrow_schema.empty_table()])
        return canonical_parts(table, self.stored_rows(table))

    def known_rows(self, table: Table) -> int | None:
        """Return how many rows a table has, None where that takes reading them, or others may change them meanwhile."""
        return None

    def fingerprint(self, table: Table) -> str:
        """Return a hex digest of the table's content, see `fingerprint.fingerprint_rows`."""
        return fingerprint_rows(table, self.read(table))

    @abstractmethod
    def version(self, table: Table, change: Watermark | VersionQuery) -> str:
        """Return what stands for the table's content by the owner's choice, see `version_of`.

        Raises:
            SourceError: This kind of source has no versions, or the table, the column or the query is wrong.
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
        todo = "check the path or URL, the schema, and the rights of the login"
        raise SourceError(f"{name}: the source shows no tables; {todo}")
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
    problems = [
        f"{table.name}.{column.name}: the source has no such column; {hint(column.name, options)}"
        for column in table.columns
        if column.name not in options
    ]
    problems += [
        f"{table.name}.{column.name}: the source has several columns of this name; rename all but one"
        for column in table.columns
        if options.count(column.name) > 1
    ]
    if problems:
        raise SourceError("\n".join(problems))


def parts_of(reader: pa.RecordBatchReader) -> Iterator[pa.Table]:
    """Yield what a reader reads as `Source.stored_rows`: a table without rows still has its columns."""
    yield pa.Table.from_batches([], reader.schema)
    for batch in reader:
        yield pa.Table.from_batches([batch])


def version_of(
    table: str,
    place: str,
    change: Watermark | VersionQuery,
    known: Iterable[str],
    quote: Callable[[str], str],
    run: Callable[[str], Sequence[Sequence[object]]],
    errors: type[Exception],
    *,
    is_postgres: bool = False,
) -> str:
    """Return what the owner's query for a version, or that for a watermark, returns, as text.

    The query for a watermark returns how many rows and values there are, and the largest value. For `XMIN` it is how
    many rows there are, and the sum of the hashes of who wrote them: transaction numbers start again after 2^32, and a
    long one ends after others that began later, so none of them is the latest.

    A version is as private as the rows it comes from (the largest `updated_at` is somebody's), so it is hashed before
    it is shown, like a fingerprint. It misses what the owner's choice misses: ``docs/privacy.md`` says why that costs
    accuracy and no privacy.

    Args:
        table: The table whose version it is.
        place: Its name in a statement.
        change: What the owner chose; the spec need not declare the column of a watermark.
        known: Names of the source's columns.
        quote: Quotes a column's name for a statement.
        run: Returns the rows of a statement, at least the first two if there are more.
        errors: What `run` raises; its words may quote values, so those about the owner's query are replaced.
        is_postgres: Whether rows have an `XMIN`.

    Raises:
        SourceError: There is no such column, the owner's query failed, or it does not return exactly one row.
    """
    if isinstance(change, VersionQuery):
        try:
            rows = run(change.sql)
        except errors as error:
            kind = type(getattr(error, "orig", None) or error).__name__
            todo = "try it on the source, with the same rights"
            raise SourceError(f"{table}: its query under change failed ({kind}); {todo}") from None
    elif is_postgres and change.column == XMIN:
        rows = run(f"SELECT count(*), sum(hashint8extended({XMIN}::text::bigint, 0)) FROM {place}")
    else:
        _check_watermark(table, change.column, list(known))
        column = quote(change.column)
        rows = run(f"SELECT count(*), count({column}), max({column}) FROM {place}")
    if len(rows) != 1:
        found = "several rows" if rows else "no row"
        raise SourceError(f"{table}: its query under change returns {found}; write one that always returns one row")
    # One driver of PostgreSQL gives a memoryview for bytes, the other gives bytes.
    plain = [bytes(value) if isinstance(value, memoryview) else value for value in rows[0]]
    return json.dumps([None if value is None else str(value) for value in plain])


def _check_watermark(table: str, column: str, known: list[str]) -> None:
    if column in known:
        return
    if column == XMIN:
        found = f"change: {{watermark: {XMIN}}} works only for tables of PostgreSQL"
        raise SourceError(f"{table}: {found}; name a column that grows with every change, or remove the line")
    raise SourceError(f"{table}: the watermark {column} is not a column of the source; {did_you_mean(column, known)}")


def versioned(table: Table, change: Change, version: str) -> str:
    """Return all that identifies what was read from a table at a version, with its columns and how it was compared."""
    columns = [[field.name, str(field.type)] for field in table.arrow_schema]
    return json.dumps([table.name, table.primary_key, columns, _change_identity(change), version])


def _change_identity(change: Change) -> dict[str, str]:
    """Return how a table of the source is compared with what it was."""
    match change:
        case Content():
            return {"change": "content"}
        case Watermark(column):
            return {"change": "watermark", "column": column}
        case _:
            return {"change": "query", "sql": change.sql}
