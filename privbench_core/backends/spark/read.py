"""Tables of a schema of a Spark cluster's catalogue, whatever they are stored as. Rows come in Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from privbench_core.backends.base import Source, check_columns, check_table, version_of
from privbench_core.backends.catalogue import Catalogue, FoundColumn, FoundTable, found_column
from privbench_core.backends.spark.session import (
    AnalysisException,
    Cluster,
    DataFrame,
    PySparkException,
    is_forbidden,
    quoted,
    to_arrow_schema,
    types,
)
from privbench_core.schema.tables import Table
from privbench_core.spec.model import VersionQuery, Watermark

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
