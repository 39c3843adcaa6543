"""Any database SQLAlchemy speaks to. PostgreSQL's catalogue and rows come through `postgres`, in Arrow.

The rows of others come as Python objects. In their catalogues defaults are left out: they are in their own dialects.

Tables are those of the connection's default schema, or for PostgreSQL of the schemas that a spec lists; another one is
chosen in the URL, for PostgreSQL with ``?schema=name``.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from privbench_core.backends.base import Source, check_columns, check_table, version_of
from privbench_core.backends.cast import canonical_table
from privbench_core.backends.catalogue import (
    Catalogue,
    FoundKey,
    FoundTable,
    found_column,
    with_exact_names,
)
from privbench_core.backends.expressions import declared_table
from privbench_core.backends.postgres import read as postgres
from privbench_core.backends.postgres.catalogue import postgres_catalogue
from privbench_core.errors import SourceError
from privbench_core.guards import BLOCK_ROWS
from privbench_core.schema.tables import Table, split_name
from privbench_core.spec.location import describe, open_engine, parse_url
from privbench_core.spec.model import VersionQuery, Watermark


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
                yield from postgres.stored_rows(connection, table, self.place(table), found)
                return
            yield _chunk(table, [])  # a table without rows still has its columns
            statement = sa.select(*_selected(table, found)).select_from(self.place(table))
            streamed = connection.execution_options(stream_results=True, yield_per=BLOCK_ROWS).execute(statement)
            yield from (_chunk(table, part) for part in streamed.partitions())

    @property
    def is_postgres(self) -> bool:
        """Whether it is a PostgreSQL, with a driver whose options are understood."""
        return postgres.readable(parse_url(self.url))

    def types(self, table: Table) -> dict[str, sa.types.TypeEngine[Any]]:
        """Return the types of a table's columns; SourceError if it lacks declared ones, or one may not be read."""
        with self._connect() as connection:
            found = self._checked(connection, table)
            if self.is_postgres:
                postgres.check_rights(connection, table, self.place(table))
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
    found = (found_column(column["name"], str(column["type"]), nullable=bool(column["nullable"])) for column in listed)
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
