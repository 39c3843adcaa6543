"""The catalogue of a schema of a Spark cluster. It declares no keys that one could rely on: none is enforced."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

from privbench_core.backends.catalogue import Catalogue, FoundColumn, FoundTable
from privbench_core.backends.native_types import found_column
from privbench_core.backends.spark.client import PySparkException, types
from privbench_core.backends.spark.read import native_type
from privbench_core.backends.spark.session import Cluster, is_forbidden, quoted

# Where Spark's name of a type means another type in the words of `found_column`, or none.
_SQL_NAMES = {
    "string": "text",
    "binary": "bytea",
    "float": "real",
    "timestamp": "timestamp with time zone",
    "timestamp_ntz": "timestamp",
}


def spark_catalogue(url: str) -> Catalogue:
    """Return the tables of the schema that a URL of Spark Connect names, variables already expanded.

    Raises:
        SourceError: The cluster cannot be reached, has no such schema, or does not show it.
    """
    with closing(Cluster(url, "source", "reading the catalogue")) as cluster, cluster.clear_errors():
        found = sorted((each for each in cluster.session.catalog.listTables() if not each.isTemporary), key=_name)
        tables = tuple(_table(cluster, each) for each in found if each.tableType != "VIEW")
    views = tuple(f"the view {each.name}; a benchmark holds tables" for each in found if each.tableType == "VIEW")
    return Catalogue(cluster.schema[-1], tables, notes=views)


def _name(found: Any) -> str:
    return str(found.name)


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
