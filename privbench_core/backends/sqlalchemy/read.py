"""Any database SQLAlchemy speaks to. PostgreSQL's rows come in Arrow through `postgres`, others as Python objects.

Tables are those of the connection's default schema; another one is chosen in the URL, for PostgreSQL with
``?options=-csearch_path%3Dname``.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from privbench_core.backends.base import check_columns, check_table, check_watermark
from privbench_core.backends.cast import canonical_batches, canonical_parts, canonical_table
from privbench_core.backends.fingerprint import fingerprint_rows
from privbench_core.backends.postgres import read as postgres
from privbench_core.backends.version import XMIN, failed_query, version_of, watermark_sql
from privbench_core.errors import SourceError
from privbench_core.schema.change import VersionQuery, Watermark
from privbench_core.schema.tables import Table
from privbench_core.spec.location import describe, open_engine, parse_url

_CHUNK = 50_000  # rows fetched at a time: the only ones that stand as Python objects


@dataclass(frozen=True)
class DatabaseSource:
    """A database behind a URL (variables already expanded)."""

    url: str = field(repr=False)

    def tables(self) -> list[str]:
        """Return the names of tables and views in the default schema."""
        with self._connect() as connection:
            return _tables(connection)

    def read(self, table: Table) -> pa.Table:
        """See `Source.read`. Rows come in chunks, through a server-side cursor where the database has one."""
        with self._connect() as connection:
            found = _checked(connection, table)
            if postgres.readable(connection.engine.url):
                return canonical_batches(table, postgres.stored_rows(connection, table, found))
            # A table without rows still has its columns.
            return pa.concat_tables([_chunk(table, []), *_chunks(connection, table, found)])

    def batches(self, table: Table) -> Iterator[pa.Table]:
        """See `Source.batches`."""
        with self._connect() as connection:
            found = _checked(connection, table)
            if postgres.readable(connection.engine.url):
                yield from canonical_parts(table, postgres.stored_rows(connection, table, found))
            else:
                yield _chunk(table, [])
                yield from _chunks(connection, table, found)

    @property
    def is_postgres(self) -> bool:
        """Whether it is a PostgreSQL, with a driver whose options are understood."""
        return postgres.readable(parse_url(self.url))

    def types(self, table: Table) -> dict[str, sa.types.TypeEngine[Any]]:
        """Return the types of a table's columns; SourceError if it lacks declared ones, or one may not be read."""
        with self._connect() as connection:
            found = _checked(connection, table)
            if postgres.readable(connection.engine.url):
                postgres.check_rights(connection, table)
            return found

    def known_rows(self, table: Table) -> int | None:
        """See `Source.known_rows`: while rows are counted, others may change them."""
        return None

    def fingerprint(self, table: Table) -> str:
        """See `Source.fingerprint`."""
        return fingerprint_rows(table, self.read(table))

    def version(self, table: Table, change: Watermark | VersionQuery) -> str:
        """See `Source.version`."""
        with self._connect() as connection:
            is_postgres = connection.dialect.name == "postgresql"
            if is_postgres:
                connection.exec_driver_sql("SET TRANSACTION READ ONLY")
                connection.exec_driver_sql("SET TimeZone = 'UTC'")  # for moments that come back as text
            check_table(table.name, _tables(connection))
            if isinstance(change, VersionQuery):
                try:
                    return version_of(table.name, _two_rows(connection, change.sql))
                except sa.exc.SQLAlchemyError as error:
                    raise failed_query(table.name, getattr(error, "orig", None) or error) from None
            is_xmin = is_postgres and change.column == XMIN
            if not is_xmin:
                known = list(_columns(connection, table.name))
                check_watermark(table.name, change.column, known)
            quote = connection.dialect.identifier_preparer.quote_identifier
            statement = watermark_sql(quote(table.name), quote(change.column), xmin=is_xmin)
            return version_of(table.name, _two_rows(connection, statement))

    def stored(self, tables: Sequence[Table]) -> dict[str, str]:
        """See `Source.stored`: a server's bytes are out of reach."""
        return {}

    @contextmanager
    def _connect(self) -> Iterator[sa.Connection]:
        url = parse_url(self.url)
        engine = open_engine(url)
        try:
            with engine.connect() as connection:
                yield connection
        except sa.exc.SQLAlchemyError as error:  # its text may quote values, and the URL
            kind = type(getattr(error, "orig", None) or error).__name__
            raise SourceError(f"source: reading {describe(url)} failed ({kind}); check rights and views") from None
        finally:
            engine.dispose()


def _checked(connection: sa.Connection, table: Table) -> dict[str, Any]:
    """Return the columns of a table and their types; SourceError if it lacks declared ones."""
    check_table(table.name, _tables(connection))
    found = _columns(connection, table.name)
    check_columns(table, found)
    return found


def _chunks(connection: sa.Connection, table: Table, found: dict[str, Any]) -> Iterator[pa.Table]:
    statement = sa.select(*_selected(table, found)).select_from(sa.table(table.name))
    streamed = connection.execution_options(stream_results=True, yield_per=_CHUNK).execute(statement)
    for part in streamed.partitions():
        yield _chunk(table, part)


def _columns(connection: sa.Connection, table: str) -> dict[str, Any]:
    """Return the columns of a table and their types; those that SQLAlchemy does not know are read as text."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sa.exc.SAWarning)
        return {column["name"]: column["type"] for column in sa.inspect(connection).get_columns(table)}


def _tables(connection: sa.Connection) -> list[str]:
    inspector = sa.inspect(connection)
    return sorted({*inspector.get_table_names(), *inspector.get_view_names()})


def _two_rows(connection: sa.Connection, statement: str) -> Sequence[sa.Row[Any]]:
    """Return the first rows of a result. Without parameters nothing is formatted, so a per cent sign stays single."""
    return connection.execution_options(no_parameters=True).exec_driver_sql(statement).fetchmany(2)


def _selected(table: Table, found: dict[str, sa.types.TypeEngine[Any]]) -> list[sa.Label[Any]]:
    """Return the declared columns, untyped; the server casts what is read as text but stored otherwise (UUID, enum)."""
    selected = []
    for column in table.columns:
        plain: sa.ColumnElement[Any] = sa.column(column.name)
        stored = found[column.name]
        # CHAR(n) as well: casting it takes off the blanks it is padded with, which mean nothing.
        foreign = column.logical.textual and (not isinstance(stored, sa.String) or isinstance(stored, sa.CHAR))
        selected.append((sa.cast(plain, sa.Text) if foreign else plain).label(column.name))
    return selected


def _chunk(table: Table, rows: Sequence[Sequence[object]]) -> pa.Table:
    columns: list[tuple[object, ...]] = list(zip(*rows, strict=True)) or [()] * len(table.columns)
    named = zip(table.columns, columns, strict=True)
    return canonical_table(table, pa.table({column.name: _array(values) for column, values in named}))


def _array(values: tuple[object, ...]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        # SQLite mixes types in a column, and drivers have types of their own: text says what they all mean.
        return pa.array([None if value is None else str(value) for value in values], pa.string())
