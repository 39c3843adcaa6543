"""Any database SQLAlchemy speaks to.

Rows of PostgreSQL come as Arrow batches straight from COPY, through ADBC; those of others as Python objects. In the
catalogues of others defaults are left out: they are in their own dialects.

Tables are those of the connection's default schema, or for PostgreSQL of the schemas that a spec lists; another one is
chosen in the URL, for PostgreSQL with ``?schema=name``.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from privbench_core.backends import (
    Source,
    canonical_table,
    check_columns,
    check_table,
    parts_of,
    refused,
    version_of,
)
from privbench_core.backends.catalogue import (
    Catalogue,
    FoundKey,
    FoundTable,
    found_column,
    with_exact_names,
)
from privbench_core.backends.expressions import declared_table
from privbench_core.backends.postgres import quote_identifier
from privbench_core.backends.postgres.catalogue import postgres_catalogue
from privbench_core.errors import SourceError
from privbench_core.guards import BLOCK_ROWS
from privbench_core.schema.columns import Column
from privbench_core.schema.tables import Table, split_name
from privbench_core.spec.location import describe, libpq_uri, open_engine, parse_url
from privbench_core.spec.model import VersionQuery, Watermark

# Other drivers of SQLAlchemy spell their options in the URL in ways that libpq does not read.
_DRIVERS = frozenset({"postgresql+psycopg", "postgresql+psycopg2"})
# What ADBC reads as it is; all else is sent as text.
_NATIVE = (
    *(sa.Integer, sa.Numeric, sa.Float, sa.Boolean, sa.Date, sa.DateTime, sa.Time, sa.LargeBinary, sa.Uuid, sa.JSON),
    *(postgresql.INTERVAL, postgresql.BYTEA),
)
_FIRST: sa.ColumnElement[Any] = sa.literal_column("'0001-01-01'")
_LAST: sa.ColumnElement[Any] = sa.literal_column("'9999-12-31 23:59:59.999999'")

Found = Mapping[str, sa.types.TypeEngine[Any]]


def is_readable(url: sa.URL) -> bool:
    """Return whether this module can read the database behind ``url``."""
    return url.drivername in _DRIVERS


def postgres_rows(connection: sa.Connection, table: Table, place: sa.TableClause, found: Found) -> Iterator[pa.Table]:
    """Return the declared columns of a table as they are sent, in parts, to be made canonical.

    Dates and timestamps before the year 1 and after the year 9999, infinite ones included, become the first or last
    moment of these years.

    Args:
        connection: To a database that is `is_readable`; the rows come through another one of the same URL.
        table: As declared; all its columns are there.
        place: The table in the source.
        found: Types of the source's columns, by name.

    Raises:
        SourceError: The table may not be read, or a column cannot be.
    """
    problems = [f"{table.name}.{column.name}: {why}" for column in table.columns if (why := _refused(column, found))]
    if problems:
        raise SourceError("\n".join(problems))
    check_rights(connection, table, place)
    statement = sa.select(*(_sent(column, base_type(found[column.name])) for column in table.columns))
    # Without parameters nothing is formatted, so a percent sign in a name stays single.
    dialect: Any = postgresql.dialect
    text = str(statement.select_from(place).compile(dialect=dialect(paramstyle="named")))
    return _batches(connection.engine.url, table.name, text)


def base_type(stored: sa.types.TypeEngine[Any]) -> sa.types.TypeEngine[Any]:
    """Return the type under a domain, which is what the server sends."""
    while isinstance(stored, postgresql.DOMAIN):
        stored = stored.data_type
    return stored


def _refused(column: Column, found: Found) -> str | None:
    stored = base_type(found[column.name])
    return refused(column, nested=isinstance(stored, sa.ARRAY), time=isinstance(stored, sa.Time))


def _sent(column: Column, stored: sa.types.TypeEngine[Any]) -> sa.Label[Any]:
    """Return the column as it is sent: natively if Arrow has the type, as text if not or if text is declared."""
    plain: sa.ColumnElement[Any] = sa.column(column.name)
    varying = isinstance(stored, sa.String) and not isinstance(stored, sa.CHAR | sa.Enum)
    sent: sa.ColumnElement[Any]
    if isinstance(stored, sa.ARRAY):
        sent = sa.cast(sa.func.to_jsonb(plain), sa.Text)
    elif isinstance(stored, postgresql.MONEY) and not column.logical.textual:
        sent = sa.cast(plain, sa.Numeric)  # its text has a currency, its binary form counts cents
    elif column.logical.textual and not varying:
        # CHAR(n) as well: casting it takes off the blanks it is padded with, which mean nothing.
        sent = sa.cast(plain, sa.Text)
    elif isinstance(stored, sa.Date | sa.DateTime):
        sent = sa.case((plain < _FIRST, _FIRST), (plain > _LAST, _LAST), else_=plain)
    elif varying or isinstance(stored, _NATIVE):
        sent = plain
    else:
        sent = sa.cast(plain, sa.Text)
    return sent.label(column.name)


def _batches(url: sa.URL, table: str, statement: str) -> Iterator[pa.Table]:
    import adbc_driver_postgresql.dbapi as adbc  # type: ignore[import-untyped]

    plain = url.set(drivername="postgresql").update_query_dict({"client_encoding": "utf8"})
    try:
        with adbc.connect(libpq_uri(plain)) as connection, connection.cursor() as cursor:
            cursor.execute("SET TimeZone = 'UTC'")  # for timestamps that are sent as text
            cursor.execute(statement)
            yield from parts_of(cursor.fetch_record_batch())
    except (adbc.Error, pa.ArrowException, OSError):  # their text may quote values, and the URL
        found = f"reading {describe(url)} failed"
        raise SourceError(f"{table}: {found}; check what the view computes, or the server's log") from None


def check_rights(connection: sa.Connection, table: Table, place: sa.TableClause) -> None:
    """Refuse a table with columns that may not be read, before the server does in the middle of a copy."""
    name = ".".join(quote_identifier(part) for part in (place.schema, place.name) if part)
    rights = [sa.func.has_column_privilege(name, column.name, "SELECT") for column in table.columns]
    granted = connection.execute(sa.select(*(right.label(f"r{i}") for i, right in enumerate(rights)))).one()
    denied = [column.name for column, right in zip(table.columns, granted, strict=True) if not right]
    if len(denied) == len(granted):
        todo = "grant SELECT on it, or leave it out of the spec"
        raise SourceError(f"{table.name}: the source's user may not read this table; {todo}")
    if denied:
        todo = "grant SELECT on them, or leave them out of the spec"
        raise SourceError(f"{table.name}: the source's user may not read {', '.join(denied)}; {todo}")


@dataclass(frozen=True)
class DatabaseSource(Source):
    """A database behind a URL (variables already expanded).

    Attributes:
        url: The URL.
        schemas: As `Schema` has them.
    """

    url: str = field(repr=False)
    schemas: tuple[str, ...] = ()

    def catalogue(self) -> Catalogue:
        """See `Source.catalogue`: the tables of the default schema, of PostgreSQL those of all schemas."""
        url = parse_url(self.url)
        if url.get_backend_name() == "postgresql":
            return postgres_catalogue(url, self.schemas)
        engine = open_engine(url)
        try:
            with _unknown_types():
                inspector = sa.inspect(engine)
                tables = with_exact_names([_table(inspector, name) for name in sorted(inspector.get_table_names())])
        except sa.exc.SQLAlchemyError as error:
            kind = type(error).__name__
            raise SourceError(f"source: the catalogue cannot be read ({kind}); grant access to it") from None
        return Catalogue(Path(url.database or url.get_backend_name()).stem, tables)

    def stored_rows(self, table: Table) -> Iterator[pa.Table]:
        """See `Source.stored_rows`. Rows come in chunks, through a server-side cursor where the database has one.

        Those of PostgreSQL come as they are stored, all others in their canonical types: values of one column may
        differ in theirs.
        """
        with self._connect() as connection:
            found = self._checked(connection, table)
            if self.is_postgres:
                yield from postgres_rows(connection, table, self.place(table), found)
                return
            yield _chunk(table, [])  # a table without rows still has its columns
            statement = sa.select(*_selected(table, found)).select_from(self.place(table))
            streamed = connection.execution_options(stream_results=True, yield_per=BLOCK_ROWS).execute(statement)
            yield from (_chunk(table, part) for part in streamed.partitions())

    @property
    def is_postgres(self) -> bool:
        """Whether it is a PostgreSQL, with a driver whose options are understood."""
        return is_readable(parse_url(self.url))

    def types(self, table: Table) -> dict[str, sa.types.TypeEngine[Any]]:
        """Return the types of a table's columns; SourceError if it lacks declared ones, or one may not be read."""
        with self._connect() as connection:
            found = self._checked(connection, table)
            if self.is_postgres:
                check_rights(connection, table, self.place(table))
            return found

    def place(self, table: Table) -> sa.TableClause:
        """Return a table as statements name it: with its schema where the spec lists several."""
        home, name = split_name(table.name, self.schemas)
        return sa.table(name, schema=home or next(iter(self.schemas), None))

    def version(self, table: Table, change: Watermark | VersionQuery) -> str:
        with self._connect() as connection:
            is_postgres = connection.dialect.name == "postgresql"
            if is_postgres:
                connection.exec_driver_sql("SET TRANSACTION READ ONLY")
                connection.exec_driver_sql("SET TimeZone = 'UTC'")  # for moments that come back as text

            def run(statement: str) -> Sequence[sa.Row[Any]]:  # without parameters a per cent sign stays single
                return connection.execution_options(no_parameters=True).exec_driver_sql(statement).fetchmany(2)

            known, names = self._columns(connection, table), connection.dialect.identifier_preparer
            place, quote = names.format_table(self.place(table)), names.quote_identifier
            return version_of(
                table.name, place, change, known, quote, run, errors=sa.exc.SQLAlchemyError, is_postgres=is_postgres
            )

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

    def _checked(self, connection: sa.Connection, table: Table) -> dict[str, Any]:
        """Return the columns of a table and their types; SourceError if it lacks declared ones."""
        found = self._columns(connection, table)
        check_columns(table, found)
        return found

    def _columns(self, connection: sa.Connection, table: Table) -> dict[str, Any]:
        """Return the columns of a table or view and their types; SourceError if it is not there."""
        inspector, place = sa.inspect(connection), self.place(table)
        there = sorted({*inspector.get_table_names(place.schema), *inspector.get_view_names(place.schema)})
        prefix = table.name.removesuffix(place.name)
        check_table(table.name, [f"{prefix}{name}" for name in there])
        with _unknown_types():
            return {column["name"]: column["type"] for column in inspector.get_columns(place.name, place.schema)}


@contextmanager
def _unknown_types() -> Iterator[None]:
    """Silence SQLAlchemy about types that it does not know: they are read as text, and named in the draft."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sa.exc.SAWarning)
        yield


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
    arrays = {column.name: _array(values) for column, values in zip(table.columns, columns, strict=True)}
    return canonical_table(table, pa.table(arrays).column)


def _array(values: tuple[object, ...]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        # SQLite mixes types in a column, and drivers have types of their own: text says what they all mean.
        return pa.array([None if value is None else str(value) for value in values], pa.string())


def _table(inspector: sa.Inspector, name: str) -> FoundTable:
    listed = inspector.get_columns(name)
    # SQLite takes texts of any length as CHAR, which elsewhere means one character.
    unbounded = sa.CHAR if inspector.dialect.name == "sqlite" else ()
    natives = ("TEXT" if isinstance(t, unbounded) and t.length is None else str(t) for t in (c["type"] for c in listed))
    found = (
        found_column(column["name"], native, nullable=bool(column["nullable"]))
        for column, native in zip(listed, natives, strict=True)
    )
    columns = tuple(replace(each, comment=column.get("comment")) for each, column in zip(found, listed, strict=True))
    keys = tuple(
        FoundKey(tuple(key["constrained_columns"]), key["referred_table"], tuple(key["referred_columns"]))
        for key in inspector.get_foreign_keys(name)
    )
    # In SQLite's statements SQLAlchemy misses a UNIQUE after `varchar(50)`; SQLite makes an index for it.
    automatic: dict[str, Any] = {"include_auto_indexes": True} if inspector.dialect.name == "sqlite" else {}
    indexes = []
    for index in inspector.get_indexes(name, **automatic):
        named = tuple(column for column in index["column_names"] if column is not None)
        is_whole = len(named) == len(index["column_names"])
        indexes.append((str(index["name"]), bool(index["unique"]), named if is_whole else None))
    unique = tuple(tuple(each["column_names"]) for each in inspector.get_unique_constraints(name))
    primary = tuple(inspector.get_pk_constraint(name)["constrained_columns"])
    checks: list[tuple[str, str]] = []
    with suppress(NotImplementedError):  # not every dialect reports them
        numbered = enumerate(inspector.get_check_constraints(name), 1)
        checks = [(check["name"] or f"{name}_check{number}", check["sqltext"]) for number, check in numbered]
    table = declared_table(FoundTable(name, columns, primary, keys, unique), indexes, checks, inspector.dialect.name)
    return replace(table, unique=tuple(group for group in table.unique if group != primary))
