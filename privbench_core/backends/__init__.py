"""Databases, files and folders: catalogue, reading, DDL and loading of each, together.

Here is what they have in common: reading a source, values in their canonical types, and what loading a bundle did. How
each type is read is in `LogicalType.read`. Arrow's errors quote the value that they stumble over, so they are replaced
here by one that names the column and the two types.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from privbench_core.backends.catalogue import Catalogue
from privbench_core.backends.integrity import fingerprint_rows
from privbench_core.errors import PublishError, SourceError, did_you_mean, first_of
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.tables import Table
from privbench_core.schema.types.base import is_kind
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
        """Return a hex digest of the table's content, see `integrity.fingerprint_rows`."""
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


def canonical_table(table: Table, read: Callable[[str], pa.ChunkedArray]) -> pa.Table:
    """Return the declared columns of a table in their canonical types, in spec order.

    Args:
        table: What the spec declares.
        read: Returns the values of a column by its name.

    Raises:
        SourceError: Some columns do not fit their types; a line for each, without a value.
    """
    arrays: list[pa.ChunkedArray] = []
    problems: list[str] = []
    for column in table.columns:
        values = _plain(read(column.name))
        refusal = refused(column, nested=pa.types.is_nested(values.type), time=pa.types.is_time(values.type))
        if refusal:
            problems.append(f"{table.name}.{column.name}: {refusal}")
            continue
        try:
            if column.logical.textual:
                values.validate(full=True)  # a Parquet file may hold bytes as text that are no UTF-8
            if column.format is not None and is_kind(values.type, "string", "large_string"):
                values = pc.strptime(values, column.format, "us")
            arrays.append(column.logical.read(values, column.arrow_type))
        except (pa.ArrowException, ValueError, OverflowError):  # what Python reads for Arrow fails in its own ways
            problems.append(_misfit(table, column, values.type))
    if problems:
        raise SourceError("\n".join(problems))
    # Undeclared NULLs are found by `integrity`: here every field admits them.
    return pa.table(arrays, pa.schema([(column.name, column.arrow_type) for column in table.columns]))


def joined(batches: Iterable[pa.Table]) -> pa.Table:
    """Return tables of the same columns, at least one, as one table with one chunk per column."""
    parts = list(batches)
    columns = dict(zip(parts[0].column_names, pa.concat_tables(parts).columns, strict=True))
    parts.clear()
    for name in list(columns):
        # One after the other, so that only one is in memory twice. Taking rows from many chunks joins them each time.
        columns[name] = pa.table({name: columns.pop(name)}).combine_chunks().column(0)
    return pa.table(columns)


def canonical_parts(table: Table, batches: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield `canonical_table` of each part, so that the source's form of the rows is never all in memory.

    Where all rows decide how a column's values are read, there is one part.

    Raises:
        SourceError: As `canonical_table`, of all rows, when the last part is asked for.
    """
    if any(column.logical.reads_whole for column in table.columns):
        batches = [pa.concat_tables(batches)]
    problems: dict[str, None] = {}
    for batch in batches:
        try:
            found = canonical_table(table, batch.column)
        except SourceError as error:
            problems |= dict.fromkeys(str(error).splitlines())
        else:
            yield found
    if problems:
        raise SourceError("\n".join(problems))


def refused(column: Column, *, nested: bool, time: bool) -> str | None:
    """Return why a column with such a source type is not read, and what to do; None if it is read.

    Args:
        column: As declared.
        nested: Whether the source's type holds several values: an array, a list, a struct or a map.
        time: Whether the source's type is a time of day.
    """
    if nested and not column.logical.structured:
        return "an array or a nested type; leave the column out of the spec, or give a view with one value per column"
    if time and not column.logical.time_of_day:
        return f"a time of day, which cannot be read as {column.type}; declare it as interval (or as text)"
    return None


def _misfit(table: Table, column: Column, found: pa.DataType) -> str:
    what = f"some values of the source's type {found} do not fit type {column.logical}"
    form, other = "", "another type"
    if "precision" in column.logical.options:
        form = "if they have more digits, correct precision and scale; else "
    if is_kind(found, "string", "large_string") and not column.logical.textual:
        other = "another type (category keeps them as they are written)"
        if column.logical.calendar:
            form = "if they are dates, declare how they are written, as format: '%d/%m/%Y'; else "
            if column.type is ColumnType.DATE:
                form = f"if they have times, declare type: timestamp; {form}"
    return f"{table.name}.{column.name}: {what}; {form}declare {other}, or fix the source"


def _plain(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return values without a dictionary or an extension type (Arrow's own ones for UUIDs and JSON) around them."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if isinstance(values.type, pa.BaseExtensionType):
        values = pa.chunked_array([chunk.storage for chunk in values.chunks], values.type.storage_type)
    if values.type in {pa.string_view(), pa.binary_view()}:
        values = values.cast(pa.large_string() if values.type == pa.string_view() else pa.large_binary())
    return values


Files = Mapping[str, Sequence[Path]]
"""The Parquet files of a bundle by table, each table after those it refers to."""


@dataclass(frozen=True)
class Loaded:
    """What a load did.

    Attributes:
        rows: Rows loaded by table.
        left_out: What of the schema the target cannot hold, in words.
    """

    rows: dict[str, int]
    left_out: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return the size, and how much the target cannot hold, in one line."""
        without = f"; {len(self.left_out)} left out" if self.left_out else ""
        return f"<Loaded {len(self.rows)} tables, {sum(self.rows.values()):,} rows{without}>"


def refuse_tables(found: Sequence[str], of_bundle: Sequence[str], where: str) -> None:
    """PublishError if a target holds any table."""
    same = sorted(set(found) & set(of_bundle))
    if same:
        raise PublishError(
            f"{where}: already has {first_of(same)}; pass --replace to drop and reload them, or choose another target"
        )
    if found:
        raise PublishError(
            f"{where}: is not empty (it holds {first_of(sorted(found))}); pass --replace to load beside what is there,"
            " or choose another target"
        )
