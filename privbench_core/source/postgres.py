"""Reading PostgreSQL fast: Arrow batches straight from COPY, through ADBC."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from privbench_core.errors import SourceError
from privbench_core.schema.location import describe
from privbench_core.schema.model import Column, ColumnType, Table
from privbench_core.source.cast import canonical_table, refused

# Other drivers of SQLAlchemy spell their options in the URL in ways that libpq does not read.
_DRIVERS = frozenset({"postgresql+psycopg", "postgresql+psycopg2"})
_TEXTUAL = frozenset({ColumnType.CATEGORY, ColumnType.TEXT})
# What ADBC reads as it is; all else is sent as text.
_NATIVE = (
    *(sa.Integer, sa.Numeric, sa.Float, sa.Boolean, sa.Date, sa.DateTime, sa.Time, sa.LargeBinary, sa.Uuid, sa.JSON),
    *(postgresql.INTERVAL, postgresql.BYTEA),
)
_FIRST, _LAST = "0001-01-01", "9999-12-31 23:59:59.999999"
_DENIED = "42501"
_STATE = re.compile(r"SQLSTATE: (\w{5})")

Found = Mapping[str, sa.types.TypeEngine[Any]]


def readable(url: sa.URL) -> bool:
    """Whether this module can read the database behind ``url``."""
    return url.drivername in _DRIVERS


def read_postgres(url: sa.URL, table: Table, found: Found) -> pa.Table:
    """The declared columns of a table, canonical.

    Dates and timestamps before the year 1 and after the year 9999, infinite ones included, become the first or last
    moment of these years.

    Args:
        url: Of the database; `readable`.
        table: As declared; all its columns are there.
        found: Types of the source's columns, by name.

    Raises:
        SourceError: The table may not be read, or a column does not fit its declared type.
    """
    problems = [f"{table.name}.{column.name}: {why}" for column in table.columns if (why := _refused(column, found))]
    if problems:
        raise SourceError("\n".join(problems))
    statement = sa.select(*(_selected(column, _base(found[column.name])) for column in table.columns))
    # Without parameters nothing is formatted, so a per cent sign in a name stays single.
    text = statement.select_from(sa.table(table.name)).compile(dialect=postgresql.dialect(paramstyle="named"))
    return pa.concat_tables([canonical_table(table, batch) for batch in _batches(url, table.name, str(text))])


def _base(stored: sa.types.TypeEngine[Any]) -> sa.types.TypeEngine[Any]:
    """The type under a domain, which is what the server sends."""
    while isinstance(stored, postgresql.DOMAIN):
        stored = stored.data_type
    return stored


def _refused(column: Column, found: Found) -> str | None:
    stored = _base(found[column.name])
    return refused(column, nested=isinstance(stored, sa.ARRAY), time=isinstance(stored, sa.Time))


def _selected(column: Column, stored: sa.types.TypeEngine[Any]) -> sa.Label[Any]:
    """The column as it is sent: natively where Arrow has the type, as text where not or where text is declared."""
    plain: sa.ColumnElement[Any] = sa.column(column.name)
    varying = isinstance(stored, sa.String) and not isinstance(stored, sa.CHAR | sa.Enum)
    if isinstance(stored, postgresql.MONEY) and column.type not in _TEXTUAL:
        sent = sa.cast(plain, sa.Numeric)  # its text has a currency, its binary form counts cents
    elif column.type in _TEXTUAL and not varying:
        # CHAR(n) as well: casting it takes off the blanks it is padded with, which mean nothing.
        sent = sa.cast(plain, sa.Text)
    elif isinstance(stored, sa.Date | sa.DateTime):
        sent = sa.func.least(sa.func.greatest(plain, sa.literal_column(f"'{_FIRST}'")), sa.literal_column(f"'{_LAST}'"))
    elif varying or isinstance(stored, _NATIVE):
        sent = plain
    else:
        sent = sa.cast(plain, sa.Text)
    return sent.label(column.name)


def _batches(url: sa.URL, table: str, statement: str) -> Iterator[pa.Table]:
    import adbc_driver_postgresql.dbapi as adbc

    plain = url.set(drivername="postgresql").update_query_dict({"client_encoding": "utf8"})
    try:
        with (
            adbc.connect(plain.render_as_string(hide_password=False)) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(statement)
            reader = cursor.fetch_record_batch()
            yield reader.schema.empty_table()  # a table without rows still has its columns
            for batch in reader:
                yield pa.Table.from_batches([batch])
    except (adbc.Error, pa.ArrowException, OSError) as error:  # its text may quote values, and the URL
        raise _failure(error, url, table) from None


def _failure(error: Exception, url: sa.URL, table: str) -> SourceError:
    from psycopg import errors

    state = getattr(error, "sqlstate", None) or next(iter(_STATE.findall(str(error))), None)
    if state == _DENIED:
        todo = "grant SELECT on its declared columns, or leave it out of the spec"
        return SourceError(f"{table}: the source's user may not read this table; {todo}")
    try:
        kind = errors.lookup(state or "").__name__
    except KeyError:
        kind = type(error).__name__
    return SourceError(f"{table}: reading {describe(url)} failed ({kind}); check rights and views")
