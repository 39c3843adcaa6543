"""Spark: rows are counted by a cluster, through Spark Connect, and counts travel.

One session serves a run. What is read of a table is copied once (`localCheckpoint`: blocks on the cluster's own
executors, which are not computed a second time), so a run sees one state of each table, and a lost copy is an error
instead of other rows. Copies belong to the session: nobody else sees them, and they go with it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from sqlglot import exp

from privbench_core.backends import check_columns
from privbench_core.backends.folder import FolderSource
from privbench_core.backends.spark import CatalogueSource, Cluster, DataFrame, SparkSession, rows_of
from privbench_core.backends.spark import types as spark
from privbench_core.engines.sql import ListSearch, Search, of_column, refuse_unfit
from privbench_core.engines.stored import LoadedRows
from privbench_core.errors import SourceError
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.tables import Table

_LOG = logging.getLogger(__name__)
_PLAIN = re.compile(r"[A-Za-z0-9_ .:+-]*")  # texts that need no quoting in any dialect
_GLOB = re.compile(r"([\\{}\[\]*?])")
_INTEGERS = (spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType)
_FLOATS = (spark.FloatType, spark.DoubleType)
_TIMES = (spark.TimestampType, spark.TimestampNTZType)
_TEXTS = (spark.StringType,)
_MOMENT = "unix_micros(CAST(x AS TIMESTAMP))"
_UUID = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
_DIGITS = "^-?[0-9]+([.][0-9]{{0,{scale}}}0*)?$"
_NOT_UTF8 = "NOT is_valid_utf8(x)"
# By the declared type of a column x: the types of the source that it is read from here, its stored value
# (`engines.stored`), and which values do not fit; `backends` reads the same values of them, and refuses the same ones.
_FORMS: dict[ColumnType, tuple[tuple[type[Any], ...], str, str | None]] = {
    ColumnType.INTEGER: (_INTEGERS, "CAST(x AS BIGINT)", None),
    ColumnType.FLOAT: (_FLOATS, "CAST(x AS DOUBLE)", None),
    ColumnType.BOOLEAN: ((spark.BooleanType,), "x", None),
    ColumnType.DATE: ((spark.DateType,), "CAST(unix_date(x) AS BIGINT)", None),
    ColumnType.TIMESTAMP: (_TIMES, _MOMENT, None),
    ColumnType.TIMESTAMPTZ: (_TIMES, _MOMENT, None),
    ColumnType.CATEGORY: (_TEXTS, "x", _NOT_UTF8),
    ColumnType.TEXT: (_TEXTS, "x", _NOT_UTF8),
    ColumnType.JSON: (_TEXTS, "x", _NOT_UTF8),
    ColumnType.UUID: (_TEXTS, "x", f"NOT x RLIKE '{_UUID}'"),
    ColumnType.BYTES: ((spark.BinaryType,), "x", None),
    ColumnType.DECIMAL: (
        (*_INTEGERS, spark.DecimalType),
        "CAST(REPLACE(CAST(CAST(x AS DECIMAL({precision}, {scale})) AS STRING), '.', '') AS DECIMAL(38, 0))",
        # More digits before the point than declared, or another one than 0 behind the last one that is declared.
        "TRY_CAST(x AS DECIMAL({precision}, {scale})) IS NULL OR NOT CAST(x AS STRING) RLIKE '" + _DIGITS + "'",
    ),
}


class SparkDatabase:
    """Temporary views of one session of a cluster.

    Args:
        source: A folder of Parquet files, which the cluster reads by the same path, or tables of its catalogue.
        url: Of the cluster, see `Cluster`; that of the source, if it is a catalogue.

    Raises:
        SourceError: The cluster cannot be reached, or would compute something else.
    """

    dialect = "spark"
    zeros = True
    near = False
    search: Search = ListSearch()
    scans = 4  # measured with DuckDB as it grouped, 12 million rows

    def __init__(self, source: FolderSource | CatalogueSource, url: str) -> None:
        self._source = source
        self._copies: dict[str, DataFrame] = {}
        self._cluster = Cluster(url, "engine spark", "counting in the cluster")
        self._session = self._cluster.session

    def load(self, table: Table, name: str, *, hashed: bool) -> LoadedRows:
        """See `Database.load`: a copy on the cluster, of the columns as they are stored there."""
        _LOG.info("engine spark: %s is copied to the cluster", table.name)  # how far a copy is depends on the rows
        rows = self._rows(table)
        with self._cluster.clear_errors():
            found = {field.name: field.dataType for field in rows.schema.fields}
        check_columns(table, found)
        problems = [
            f"{table.name}.{column.name}: engine spark cannot read {column.logical} from"
            f" {found[column.name].simpleString()}; run with --engine duckdb"
            for column in table.columns
            if not _readable(column, found[column.name])
        ]
        if problems:
            raise SourceError("\n".join(problems))
        held, seen = f"{name}_held", f"{name}_seen"
        with self._cluster.clear_errors():
            rows.createOrReplaceTempView(seen)
        copied = [exp.alias_(exp.column(_named(column)), f"c{place}") for place, column in enumerate(table.columns)]
        numbers = exp.alias_(exp.Anonymous(this="monotonically_increasing_id"), "n")
        self.create(held, exp.select(numbers, *copied).from_(seen))
        self.drop(seen)
        _LOG.info("engine spark: %s is copied; its values are checked", table.name)
        self._refuse_unfit(table, held)
        forms = [_parsed(_FORMS[column.type][1], column, place) for place, column in enumerate(table.columns)]
        stored = [exp.alias_(form, f"c{place}") for place, form in enumerate(forms)]
        self.create(name, exp.select("n", *stored).from_(held), "VIEW")
        return LoadedRows()

    def _rows(self, table: Table) -> DataFrame:
        """Return the rows of the source, at least the declared columns."""
        if isinstance(self._source, CatalogueSource):
            return rows_of(self._cluster, table)
        files = self._source.parquet_files(table)
        with self._cluster.clear_errors():
            return self._session.read.parquet(*("file://" + _GLOB.sub(r"\\\1", str(path)) for path in files))

    def insert(self, name: str, rows: pa.Table) -> None:
        some = rows if rows.num_rows else pa.table([pa.nulls(1, kind) for kind in rows.schema.types], rows.column_names)
        with self._cluster.clear_errors():  # PySpark takes no table without rows
            self._keep(name, self._session.createDataFrame(some).limit(rows.num_rows))

    def create(self, name: str, query: exp.Query, kind: str = "TABLE") -> None:
        """See `Database.create`: a table is a copy, a view is its query."""
        with self._cluster.clear_errors():
            rows = self._session.sql(self._text(query))
            if kind == "TABLE":
                self._keep(name, rows)
            else:
                rows.createOrReplaceTempView(name)

    def replace(self, name: str, query: exp.Query) -> None:
        """See `Database.replace`: the copy is made before it has the name."""
        self.create(name, query)

    def drop(self, name: str) -> None:
        """See `Database.drop`, of views too."""
        with self._cluster.clear_errors():
            self._session.catalog.dropTempView(name)
        self._copies.pop(name, None)
        if f"{name}_held" in self._copies:
            self.drop(f"{name}_held")

    def fetch(self, query: exp.Query) -> pa.Table:
        with self._cluster.clear_errors():
            return self._session.sql(self._text(query)).toArrow()

    def batches(self, query: exp.Query, rows: int) -> Iterator[pa.RecordBatch]:
        """See `Database.batches`: the cluster decides how many rows come together."""
        with self._cluster.clear_errors():
            found = self._session.sql(self._text(query))
        return self._cluster.batches(found)

    def digest(self, text: exp.Expr) -> exp.Expr:
        """See `Database.digest`: hexadecimal digits are in the order of the bytes."""
        return exp.Anonymous(this="sha2", expressions=[text, exp.Literal.number(256)])

    def hexadecimal(self, value: exp.Expr) -> exp.Expr:
        return exp.Lower(this=exp.Anonymous(this="hex", expressions=[value]))

    def close(self) -> None:
        """See `Database.close`: copies and views end with the session."""
        self._copies.clear()
        self._cluster.close()

    def _keep(self, name: str, rows: DataFrame) -> None:
        """Copy rows to the cluster's executors, under a name."""
        SparkSession._active_session.session = self._session  # PySpark looks for the copy in this thread's session
        copy = rows.localCheckpoint(eager=True)
        copy.createOrReplaceTempView(name)
        self._copies[name] = copy

    def _refuse_unfit(self, table: Table, held: str) -> None:
        """Refuse values that are not of the declared types, as reading them does."""
        unfit = [
            (column, _parsed(f"COALESCE(BOOL_OR(x IS NOT NULL AND ({condition})), FALSE)", column, place))
            for place, column in enumerate(table.columns)
            if (condition := _FORMS[column.type][2])
        ]
        todo = ", as engine spark reads it; declare another type, fix the source, or run with --engine duckdb"
        refuse_unfit(self, table, exp.to_table(held), unfit, todo)

    def _text(self, query: exp.Query) -> str:
        """Return a statement; no text in it needs quoting, whatever the settings of the server are."""
        return query.transform(_spelled).sql(self.dialect)


def _readable(column: Column, stored: spark.DataType) -> bool:
    """Return whether a column's values are read from such a type here; texts only if they compare by their bytes."""
    kinds = _FORMS[column.type][0] if column.type in _FORMS else ()
    return type(stored) in kinds and (not isinstance(stored, spark.StringType) or stored == spark.StringType())


def _parsed(form: str, column: Column, place: int) -> exp.Expr:
    """Return a form, with the copy of a column for x."""
    text = form.format(precision=column.precision or 38, scale=column.scale or 0) if "{p" in form else form
    return of_column(text, exp.column(f"c{place}"), "spark")


def _named(column: Column) -> exp.Identifier:
    return exp.to_identifier(column.name, quoted=True)


def _spelled(node: exp.Expr) -> exp.Expr:
    """Return a text that needs quoting as its bytes, and an element of a list by a function that all servers have."""
    if isinstance(node, exp.Bracket):
        place = exp.Sub(this=node.expressions[0], expression=exp.Literal.number(1))
        return exp.Anonymous(this="get", expressions=[node.this, place])
    if not isinstance(node, exp.Literal) or not node.is_string or _PLAIN.fullmatch(node.this):
        return node
    return exp.cast(exp.HexString(this=node.this.encode().hex()), exp.DataType.Type.TEXT)
