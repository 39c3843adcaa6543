"""The source's own PostgreSQL: rows are counted on the server, and counts travel.

One connection and one transaction serve a run: all tables are seen as they were when it began (REPEATABLE READ), and
what is made for the run are temporary tables of this connection, which no other login sees and which end with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import adbc_driver_postgresql.dbapi as adbc  # type: ignore[import-untyped]
import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlglot import exp

from privbench_core.backends.sqlalchemy import DatabaseSource, base_type
from privbench_core.engines.sql import Search, of_column, refuse_unfit
from privbench_core.engines.stored import LoadedRows
from privbench_core.errors import SourceError
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.tables import Table
from privbench_core.spec.location import describe, libpq_uri, parse_url

_FIRST, _LAST = "'0001-01-01'", "'9999-12-31 23:59:59.999999'"
_WITHIN = f"CASE WHEN x < {_FIRST} THEN {_FIRST} WHEN x > {_LAST} THEN {_LAST} ELSE x END"
_DAYS = "((EXTRACT(YEAR FROM x) * 12 + EXTRACT(MONTH FROM x)) * 30 + EXTRACT(DAY FROM x))"  # 30 to the month
_REST = "EXTRACT(HOUR FROM x) * 3600000000 + EXTRACT(MINUTE FROM x) * 60000000 + EXTRACT(MICROSECONDS FROM x)"
_INTEGERS = (sa.SmallInteger, sa.Integer, sa.BigInteger)
_TIMES = (sa.DateTime,)
# The stored value (`engines.stored`) of a column x, by its declared type and the types of the source that it is read
# from here; `backends` reads the same values of them.
_FORMS: dict[ColumnType, tuple[tuple[type[Any], ...], str]] = {
    ColumnType.INTEGER: (_INTEGERS, "CAST(x AS BIGINT)"),
    ColumnType.FLOAT: ((sa.Float,), "CAST(x AS DOUBLE PRECISION)"),
    ColumnType.BOOLEAN: ((sa.Boolean,), "x"),
    ColumnType.DATE: ((sa.Date,), f"CAST(({_WITHIN}) - CAST('1970-01-01' AS DATE) AS BIGINT)"),
    ColumnType.TIMESTAMP: (_TIMES, f"CAST(EXTRACT(EPOCH FROM {_WITHIN}) * 1000000 AS BIGINT)"),
    ColumnType.TIMESTAMPTZ: (_TIMES, f"CAST(EXTRACT(EPOCH FROM {_WITHIN}) * 1000000 AS BIGINT)"),
    ColumnType.INTERVAL: (
        (postgresql.INTERVAL,),
        f"CAST({_DAYS} * 86400000000 + {_REST} AS BIGINT)",
    ),
    ColumnType.BYTES: ((postgresql.BYTEA,), "x"),
    ColumnType.UUID: ((sa.Uuid,), "CAST(x AS TEXT)"),
    ColumnType.JSON: ((sa.JSON,), "CAST(x AS TEXT)"),
}
_CANCELED = "57014"  # by a user, or by a timeout of the server
_FULL = {"53100", "53400"}  # no room on the disk; beyond temp_file_limit
_FORBIDDEN = "42501"  # no right
_READ_ONLY = "25006"


class PostgresDatabase:
    """Temporary tables of one connection to the source.

    Args:
        source: The source: a PostgreSQL of version 14 or later.

    Raises:
        SourceError: It cannot be reached, or is not such a server.
    """

    dialect = "postgres"
    zeros = False
    near = False
    search = Search()
    scans = 1  # measured with TPC-H 1: codes of 13 columns take three quarters of the first scan, which groups by them

    def __init__(self, source: DatabaseSource) -> None:
        self._source = source
        self._url = parse_url(source.url)
        plain = self._url.set(drivername="postgresql").update_query_dict({"client_encoding": "utf8"})
        with self._clear_errors():
            self._connection = adbc.connect(libpq_uri(plain))
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        """Fix what the run sees, and refuse a server that would compute something else."""
        self._statement("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        self._statement("SET TimeZone = 'UTC'")  # for moments that are read as text
        self._statement("SET LOCAL standard_conforming_strings = on")  # else \' ends no text
        # A search path may put temporary tables last, where a table of the owner's with such a name would hide them.
        path = "concat_ws(', ', 'pg_temp', nullif(current_setting('search_path'), ''))"
        self._statement(f"SELECT set_config('search_path', {path}, true)")
        self._statement("SET LOCAL idle_in_transaction_session_timeout = 0")  # between steps nothing is asked
        asked = "SELECT current_setting('server_version_num')::int8 AS v, current_setting('server_encoding') AS e"
        found = self._table(asked).to_pylist()[0]
        # EXTRACT is exact from version 14 on.
        is_exact = found["v"] >= 140_000  # noqa: PLR2004
        if not is_exact or found["e"] != "UTF8":
            needs = f"PostgreSQL 14 or later with the encoding UTF8, which {describe(self._url)} is not"
            raise SourceError(f"engine source: needs {needs}; run with --engine duckdb")

    def load(self, table: Table, name: str, *, hashed: bool) -> LoadedRows:
        """See `Database.load`: a copy on the server, so that each column is read once."""
        found = self._source.types(table)
        problems: list[str] = []
        columns: list[exp.Expr] = [exp.alias_(exp.Window(this=exp.RowNumber()), "n")]
        for place, column in enumerate(table.columns):
            form = _form(column, base_type(found[column.name]))
            if form is None:
                what = f"engine source cannot read {column.logical} from {found[column.name]}"
                problems.append(f"{table.name}.{column.name}: {what}; run with --engine duckdb")
                continue
            columns.append(exp.alias_(form, f"c{place}"))
        if problems:
            raise SourceError("\n".join(problems))
        self._refuse_long_decimals(table)
        self.create(name, exp.select(*columns).from_(self._named(table)))
        return LoadedRows()

    def insert(self, name: str, rows: pa.Table) -> None:
        sent = f"{name}_sent"
        with self._clear_errors(), self._connection.cursor() as cursor:
            cursor.adbc_ingest(sent, rows, mode="create", temporary=True)
        textual = {field.name for field in rows.schema if pa.types.is_string(field.type)}
        columns: list[exp.Expr] = [
            exp.alias_(_bytewise(exp.column(field)) if field in textual else exp.column(field), field)
            for field in rows.column_names
        ]
        self.create(name, exp.select(*columns).from_(sent))
        self.drop(sent)

    def create(self, name: str, query: exp.Query, kind: str = "TABLE") -> None:
        self._statement(f"CREATE TEMPORARY {kind} {name} AS {query.sql(self.dialect)}")
        if kind == "TABLE":
            self._statement(f"ANALYZE {name}")  # else joins are planned for a few rows

    def replace(self, name: str, query: exp.Query) -> None:
        self.create(f"{name}_new", query)
        self.drop(name)
        self._statement(f"ALTER TABLE {name}_new RENAME TO {name}")

    def drop(self, name: str) -> None:
        """See `Database.drop`: files of a table that is only dropped stay on the disk until the transaction ends."""
        self._statement(f"TRUNCATE {name}")
        self._statement(f"DROP TABLE {name}")

    def fetch(self, query: exp.Query) -> pa.Table:
        return self._table(query.sql(self.dialect))

    def batches(self, query: exp.Query, rows: int) -> Iterator[pa.RecordBatch]:
        """See `Database.batches`: the server decides how many rows come together."""
        with self._clear_errors(), self._connection.cursor() as cursor:
            cursor.execute(query.sql(self.dialect))
            reader: Iterator[pa.RecordBatch] = cursor.fetch_record_batch()
            yield from reader

    def digest(self, text: exp.Expr) -> exp.Expr:
        """See `Database.digest`: bytes are in their own order."""
        sent = exp.Anonymous(this="convert_to", expressions=[text, exp.Literal.string("UTF8")])
        return exp.Anonymous(this="sha256", expressions=[sent])

    def hexadecimal(self, value: exp.Expr) -> exp.Expr:
        return exp.Anonymous(this="encode", expressions=[value, exp.Literal.string("hex")])

    def close(self) -> None:
        """See `Database.close`: temporary tables end with the transaction that made them."""
        for end in (self._connection.rollback, self._connection.close):
            with suppress(adbc.Error):  # the server is gone, and with it all that was made
                end()

    def _refuse_long_decimals(self, table: Table) -> None:
        """Refuse decimals with more digits than declared, as reading them does."""
        decimals = [column for column in table.columns if column.type is ColumnType.DECIMAL]
        form = "BOOL_OR(NOT (x = TRUNC(x, {scale}) AND ABS(x) < 1e{whole}))"
        unfit = [
            (c, _parsed(form.format(scale=c.scale or 0, whole=(c.precision or 38) - (c.scale or 0)), c.name))
            for c in decimals
        ]
        refuse_unfit(self, table, self._named(table), unfit, "; declare another type, or fix the source")

    def _named(self, table: Table) -> exp.Table:
        """Return the table of the source."""
        place = self._source.place(table)
        return exp.table_(place.name, db=place.schema, quoted=True)

    def _statement(self, statement: str) -> None:
        with self._clear_errors(), self._connection.cursor() as cursor:
            cursor.execute(statement)

    def _table(self, query: str) -> pa.Table:
        with self._clear_errors(), self._connection.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetch_arrow_table()

    @contextmanager
    def _clear_errors(self) -> Iterator[None]:
        """Replace the server's errors, which may quote values, by one that says what to do."""
        try:
            yield
        except (adbc.Error, pa.ArrowException, OSError) as error:
            state = str(getattr(error, "sqlstate", None) or "")
            if state == _CANCELED and "due to user request" in str(error):  # Ctrl-C, which the driver passes on
                raise KeyboardInterrupt from None
            if state in _FULL:
                todo = "the server has no room for temporary tables; make room, or run with --engine duckdb"
            elif state == _READ_ONLY:
                todo = "the server, or the login, is read-only; allow writing there, or run with --engine duckdb"
            elif state == _FORBIDDEN:
                todo = "the login may not make temporary tables there; grant TEMPORARY, or run with --engine duckdb"
            else:
                todo = f"the server stopped answering, or refused ({state or type(error).__name__}); run again"
            raise SourceError(f"engine source: counting in {describe(self._url)} failed: {todo}") from None


def _form(column: Column, stored: sa.types.TypeEngine[Any]) -> exp.Expr | None:
    """Return the stored value of a column as an expression; None where only the back-end reads such a type."""
    if isinstance(stored, sa.ARRAY | sa.Time | sa.types.NullType):
        return None
    if column.logical.textual:
        return _bytewise(_parsed("CAST(x AS TEXT)", column.name))
    if column.type is ColumnType.DECIMAL:
        exact = isinstance(stored, sa.Numeric | sa.Integer) and not isinstance(stored, sa.Float)
        fits = (column.precision or 38) <= 18  # noqa: PLR2004 - digits of 64 bits: comparing takes a tenth of the time
        kind = "BIGINT" if fits else "NUMERIC(38, 0)"
        power = f"CAST(x * 1e{column.scale or 0} AS {kind})"
        return _parsed(power, column.name) if exact else None
    kinds, form = _FORMS[column.type]
    if not isinstance(stored, kinds):
        return None
    found = _parsed(form, column.name)
    return _bytewise(found) if column.type in {ColumnType.UUID, ColumnType.JSON} else found


def _parsed(form: str, name: str) -> exp.Expr:
    """Return a form, with the column of the source for x."""
    return of_column(form, exp.column(exp.to_identifier(name, quoted=True)), "postgres")


def _bytewise(text: exp.Expr) -> exp.Expr:
    """Return a text that compares by its bytes, whatever the collation of its column."""
    return exp.Collate(this=exp.Paren(this=text), expression=exp.to_identifier("C", quoted=True))
