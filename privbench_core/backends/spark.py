"""Spark, through Spark Connect: sessions of a cluster, and tables of its catalogue, whatever they are stored as.

Sessions fix what statements mean, and what is said when they fail. Rows come in Arrow.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from privbench_core.backends import Source, check_columns, check_table, version_of
from privbench_core.backends.catalogue import Catalogue, FoundColumn, FoundTable, found_column
from privbench_core.errors import SourceError
from privbench_core.schema.tables import Table
from privbench_core.spec.location import split_spark_url
from privbench_core.spec.model import VersionQuery, Watermark

# PySpark takes a process without a main module (`python -c`, a worker) for a run of its own tests, and may end it.
_has_main = nullcontext() if hasattr(sys, "ps1") else patch.object(sys, "ps1", "", create=True)
with warnings.catch_warnings(), _has_main:
    warnings.simplefilter("ignore", FutureWarning)  # of pandas 3, which PySpark gets nothing of here
    import grpc
    from pyspark.errors import AnalysisException, PySparkException
    from pyspark.errors.exceptions.connect import SparkException
    from pyspark.logger import PySparkLogger
    from pyspark.sql import DataFrame, types
    from pyspark.sql.connect import logging as spark_logging
    from pyspark.sql.connect.client.core import DefaultChannelBuilder
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.pandas.types import to_arrow_schema

# Of PySpark: others take it from here, where importing it neither warns nor ends the process.
__all__ = ["AnalysisException", "DataFrame", "PySparkException", "SparkSession", "to_arrow_schema", "types"]

_OLDEST = 4  # major version of Spark: the first that keeps copies for a session through Spark Connect
_RETRIES = 5  # of a call that a cluster does not answer: 50 ms, then 4 times longer each, is 17 s
_PATIENCE = 2.0  # seconds: a busy server answers in fractions of one, a stuck one never
_CLOSING = ("/Interrupt", "/ReleaseExecute", "/ReleaseSession")  # calls whose answers nothing depends on
_FORBIDDEN = "42501"  # no right
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")  # of PySpark: they write errors to stderr
_PINNED = {
    "spark.sql.ansi.enabled": "true",  # what does not fit is an error, not NULL
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.variable.substitute": "false",  # else ${..} in a text is replaced
    "spark.sql.ansi.enforceReservedKeywords": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.session.collation.default": "UTF8_BINARY",
    "spark.sql.parquet.binaryAsString": "false",
    "spark.sql.parquet.int96AsTimestamp": "true",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",  # days as they are stored
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.legacy.parquet.nanosAsLong": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",  # a file that cannot be read is no table without its rows
    "spark.sql.files.ignoreMissingFiles": "false",
}
# A catalogue may spell names in another way than the files of its tables, which then would be read as NULL: there, what
# is the same name is for the server to say.
_OF_FILES = {"spark.sql.caseSensitive": "true"}
# What a server must compute, whatever its settings are: each of these is true.
_COMPUTED = """SELECT
    sha2(CAST(X'C3A4' AS STRING), 256) = '33e6d73fee82904c8d7afb78de1154d1e8dc2a0edb08120e63df5b9385c2d9cc'
    AND LENGTH(CAST(X'F09F9880' AS STRING)) = 1 AND LENGTH(chr(0)) = 1
    AND 'Z' < 'a' AND 'z' < CAST(X'C3A4' AS STRING) AND 'a' <> 'A' AND 'a' <> 'a '
    AND CAST('nan' AS DOUBLE) = CAST('nan' AS DOUBLE) AND CAST('nan' AS DOUBLE) > CAST('inf' AS DOUBLE)
    AND CAST('-0.0' AS DOUBLE) = CAST('0.0' AS DOUBLE) AND CAST('5e-324' AS DOUBLE) > CAST('0.0' AS DOUBLE)
    AND CAST(CAST('0' AS DECIMAL(20, 10)) AS STRING) = '0.0000000000'
    AND unix_micros(CAST(TIMESTAMP_NTZ'1969-12-31 23:59:59.999999' AS TIMESTAMP)) = -1
    AND unix_date(DATE'0001-01-01') = -719162 AS fits"""


class _Deadline(grpc.UnaryUnaryClientInterceptor):  # type: ignore[misc]  # grpc has no types
    """Gives the calls that end things a deadline: PySpark sets none, and a busy server may answer none."""

    def intercept_unary_unary(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        """See grpc."""
        closing = details.method.endswith(_CLOSING)
        return continuation(details._replace(timeout=_PATIENCE) if closing else details, request)


class Cluster:
    """A session of a cluster, in a schema of its catalogue if the URL has one.

    Args:
        url: Of Spark Connect, with its parameters: ``sc://host:port``, or ``sc://host:port/schema``; variables already
            expanded.
        what: Needs it, for messages: ``source``, or an engine.
        doing: What it is needed for.

    Raises:
        SourceError: The cluster cannot be reached, would compute something else, or has no such schema.
    """

    def __init__(self, url: str, what: str, doing: str) -> None:
        place, self.schema = split_spark_url(url)
        self._what, self._doing = what, doing
        self._remedy = "" if what == "source" else ", or run with --engine duckdb"
        for logger in (spark_logging.logger, *map(PySparkLogger.getLogger, _LOGGERS)):
            logger.disabled = True  # the errors that they log quote values
        with self.clear_errors():
            try:
                channel = DefaultChannelBuilder(place)
                channel.add_interceptor(_Deadline())
                self.session = SparkSession(connection=channel)
            except ValueError:  # PySpark's message repeats the URL, which may hold a token
                named = "source" if self.schema else "cluster"
                todo = f"write sc://host:port{'/schema' * bool(self.schema)}"
                raise SourceError(f"{named}: not a URL of Spark Connect; {todo}") from None
            self.session.client.set_retry_policies([DefaultPolicy(max_retries=_RETRIES)])
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        """Fix what statements mean, and refuse a server that would compute something else."""
        with self.clear_errors():
            if int(self.session.version.partition(".")[0]) < _OLDEST:
                raise self._unfit(f"needs Spark {_OLDEST} or later; the cluster has {self.session.version}")
            for setting, value in (_PINNED | ({} if self.schema else _OF_FILES)).items():
                self.session.conf.set(setting, value)
            if not self.session.sql(_COMPUTED).toArrow().column(0)[0].as_py():
                raise self._unfit("the cluster compares or converts values differently from Apache Spark")
            if self.schema:
                self._use(self.schema)

    def _unfit(self, found: str) -> SourceError:
        remedy = "" if self.schema else self._remedy
        return SourceError(f"{self._what}: {found}; choose another cluster{remedy}")

    def _use(self, names: tuple[str, ...]) -> None:
        """Take tables from a schema, the last of these names; the first of several is its catalogue."""
        try:
            if names[1:]:
                self.session.catalog.setCurrentCatalog(names[0])
            self.session.sql(f"USE NAMESPACE {'.'.join(map(quoted, names[1:] or names))}")
        except (AnalysisException, SparkException):
            found = f"the cluster has no schema {'.'.join(names)}, or the login may not use it"
            todo = "check the name; its catalogue may precede it, as in sc://host:port/catalogue.schema"
            raise SourceError(f"source: {found}; {todo}") from None

    def batches(self, rows: DataFrame) -> Iterator[pa.RecordBatch]:
        """Return rows in parts; the cluster decides how many come together."""
        with self.clear_errors():
            found: Any = rows
            client, plan = self.session.client, found._plan
            # What `toLocalIterator` takes its rows from, which would make a Python object of each.
            for part in client.to_table_as_iterator(plan.to_proto(client), plan.observations):
                if isinstance(part, pa.Table):
                    yield from part.to_batches()

    def close(self) -> None:
        """End the session, and with it all that was made in it."""
        with suppress(PySparkException, grpc.RpcError):  # the cluster is gone, and with it all that was made
            self.session.stop()

    @contextmanager
    def clear_errors(self) -> Iterator[None]:
        """Replace Spark's errors, which quote values and plans, by one that says what to do."""
        try:
            with warnings.catch_warnings():  # its warnings repeat what is said here, and what servers write
                warnings.simplefilter("ignore")
                yield
        except (PySparkException, grpc.RpcError, pa.ArrowException, OSError) as error:
            if _was_stopped(error):
                raise KeyboardInterrupt from None
            found = str(error)
            kind = (isinstance(error, PySparkException) and error.getCondition()) or type(error).__name__
            if "No space left on device" in found:
                todo = f"the cluster has no room for temporary copies; make room{self._remedy}"
            elif self.schema and is_forbidden(error):
                todo = "the login may not read a table; grant it SELECT"
            elif "PATH_NOT_FOUND" in kind or "FAILED_READ_FILE" in kind or "FileNotFound" in found:
                todo = f"the cluster cannot read the files; give it the same folder{self._remedy}"
                if self.schema:
                    todo = "the cluster cannot read the files of a table, or it was written meanwhile; run again"
            elif "UNAUTHENTICATED" in found:
                todo = "it does not accept the token; check it"
            elif "UNAVAILABLE" in found or isinstance(error, grpc.RpcError):
                todo = "it cannot be reached, or stopped answering; check the URL and the cluster, and run again"
            else:
                lost = ", or lost what it had copied" if self._remedy else ""
                todo = f"it refused{lost} ({kind}); run again{self._remedy}"
            raise SourceError(f"{self._what}: {self._doing} failed: {todo}") from None


def quoted(name: str) -> str:
    """Return a name as it stands in a statement.

    >>> quoted("a`b")
    '`a``b`'
    """
    return f"`{name.replace('`', '``')}`"


def is_forbidden(error: BaseException) -> bool:
    """Return whether an error says that the login lacks a right."""
    if isinstance(error, PySparkException) and error.getSqlState() == _FORBIDDEN:
        return True
    return any(sign in str(error) for sign in ("AccessControlException", "PERMISSION_DENIED", "Permission denied"))


def _was_stopped(error: BaseException | None) -> bool:
    """Return whether an error came up while Ctrl-C was passed on to the cluster."""
    return isinstance(error, KeyboardInterrupt) or (error is not None and _was_stopped(error.__context__))


# Where Spark's name of a type means another type in the words of `found_column`, or none.
_SQL_NAMES = {
    "string": "text",
    "binary": "bytea",
    "float": "real",
    "timestamp": "timestamp with time zone",
    "timestamp_ntz": "timestamp",
}


@dataclass(frozen=True)
class CatalogueSource(Source):
    """The tables and views of a schema, in the cluster behind a URL of Spark Connect (variables already expanded)."""

    url: str = field(repr=False)

    def catalogue(self) -> Catalogue:
        """See `Source.catalogue`. It declares no keys that one could rely on: none is enforced."""
        with closing(Cluster(self.url, "source", "reading the catalogue")) as cluster, cluster.clear_errors():
            listed = (each for each in cluster.session.catalog.listTables() if not each.isTemporary)
            found = sorted(listed, key=lambda each: each.name)
            tables = tuple(_table(cluster, each) for each in found if each.tableType != "VIEW")
        views = tuple(f"the view {each.name}; a benchmark holds tables" for each in found if each.tableType == "VIEW")
        return Catalogue(cluster.schema[-1], tables, notes=views)

    def stored_rows(self, table: Table) -> Iterator[pa.Table]:
        """See `Source.stored_rows`: the cluster decides how many rows come together."""
        with closing(self._open()) as cluster:
            rows, is_empty = rows_of(cluster, table), True
            for batch in cluster.batches(rows):
                is_empty = False
                yield pa.Table.from_batches([batch])
            if is_empty:  # a table without rows still has its columns
                with cluster.clear_errors():
                    yield to_arrow_schema(rows.schema, timezone="UTC").empty_table()

    def version(self, table: Table, change: Watermark | VersionQuery) -> str:
        """See `Source.version`: a statement that is no query is refused by Spark's parser."""
        with closing(self._open()) as cluster:
            known = [each.name for each in _fields(cluster, table.name)]
            if isinstance(change, Watermark):
                known = _as_spelled([change.column], known)

            def run(statement: str) -> list[tuple[object, ...]]:
                found = cluster.session.sql(f"SELECT * FROM (\n{statement.strip().removesuffix(';')}\n) LIMIT 2")
                return list(zip(*(column.to_pylist() for column in found.toArrow().columns), strict=True))

            with cluster.clear_errors():
                return version_of(table.name, quoted(table.name), change, known, quoted, run, errors=AnalysisException)

    def _open(self) -> Cluster:
        return Cluster(self.url, "source", "reading the cluster's tables")


def rows_of(cluster: Cluster, table: Table) -> DataFrame:
    """Return the declared columns of a table, in spec order, under the names and in the types that they are stored in.

    A ``char(n)`` comes without the blanks that it is padded with, which mean nothing.

    Raises:
        SourceError: The table or a column is missing, or may not be read.
    """
    fields = _fields(cluster, table.name)
    spelled = _as_spelled([column.name for column in table.columns], [each.name for each in fields])
    check_columns(table, spelled)
    natives = dict(zip(spelled, map(native_type, fields), strict=True))
    selected = []
    for column in table.columns:
        name = quoted(column.name)
        selected.append(f"{f'RTRIM({name})' if natives[column.name].startswith('char(') else name} AS {name}")
    with cluster.clear_errors():
        return cluster.session.sql(f"SELECT {', '.join(selected)} FROM {quoted(table.name)}")


def native_type(found: types.StructField) -> str:
    """Return Spark's name of the type of a column; a limit of length is in its metadata, a collation means nothing."""
    limited = found.metadata.get("__CHAR_VARCHAR_TYPE_STRING")
    return limited or found.dataType.simpleString().partition(" collate ")[0]


def _fields(cluster: Cluster, table: str) -> list[types.StructField]:
    """Return the columns of a table."""
    with cluster.clear_errors():
        try:
            return cluster.session.table(quoted(table)).schema.fields
        except AnalysisException:
            check_table(table, _as_spelled([table], _names(cluster)))
            raise


def _names(cluster: Cluster) -> list[str]:
    with cluster.clear_errors():
        found = cluster.session.sql("SHOW TABLES").toArrow().to_pylist()
    return sorted(row["tableName"] for row in found if not row["isTemporary"])


def _as_spelled(wanted: Iterable[str], known: Sequence[str]) -> list[str]:
    """Return known names, spelled as those that are wanted: Spark does not distinguish capital letters by default."""
    spelled = {name.lower(): name for name in wanted if name not in known}
    return [spelled.get(name.lower(), name) for name in known]


def _table(cluster: Cluster, found: Any) -> FoundTable:
    """Return a table; `found` is PySpark's, which says little of columns."""
    try:
        fields = cluster.session.table(quoted(found.name)).schema.fields
    except PySparkException as error:
        if not is_forbidden(error):
            raise
        return FoundTable(found.name, (), unreadable=True)
    return FoundTable(found.name, tuple(map(_column, fields)), comment=found.description)


def _column(field: types.StructField) -> FoundColumn:
    native = native_type(field)
    named = found_column(field.name, _SQL_NAMES.get(native, native), nullable=field.nullable)
    return replace(named, native=native, comment=field.metadata.get("comment"))
