"""Reading PostgreSQL fast: Arrow batches straight from COPY, through ADBC."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from privbench_core.backends.base import parts_of
from privbench_core.backends.cast import refused
from privbench_core.backends.postgres.ddl import quote_identifier
from privbench_core.errors import SourceError
from privbench_core.schema.columns import Column
from privbench_core.schema.tables import Table
from privbench_core.spec.location import describe, libpq_uri

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


def readable(url: sa.URL) -> bool:
    """Return whether this module can read the database behind ``url``."""
    return url.drivername in _DRIVERS


def stored_rows(connection: sa.Connection, table: Table, place: sa.TableClause, found: Found) -> Iterator[pa.Table]:
    """Return the declared columns of a table as they are sent, in parts, to be made canonical.

    Dates and timestamps before the year 1 and after the year 9999, infinite ones included, become the first or last
    moment of these years.

    Args:
        connection: To a database that is `readable`; the rows come through another one of the same URL.
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
    statement = sa.select(*(_selected(column, base_type(found[column.name])) for column in table.columns))
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


def _selected(column: Column, stored: sa.types.TypeEngine[Any]) -> sa.Label[Any]:
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
