"""Tables of a schema of a Spark cluster's catalogue, whatever they are stored as. Rows come in Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import pyarrow as pa

from privbench_core.backends.base import check_columns, check_table, check_watermark
from privbench_core.backends.cast import canonical_batches, canonical_parts
from privbench_core.backends.fingerprint import fingerprint_rows
from privbench_core.backends.spark.client import AnalysisException, DataFrame, to_arrow_schema, types
from privbench_core.backends.spark.session import Cluster, quoted
from privbench_core.backends.version import failed_query, version_of, watermark_sql
from privbench_core.schema.change import VersionQuery, Watermark
from privbench_core.schema.tables import Table


@dataclass(frozen=True)
class CatalogueSource:
    """The tables and views of a schema, in the cluster behind a URL of Spark Connect (variables already expanded)."""

    url: str = field(repr=False)

    def tables(self) -> list[str]:
        """See `Source.tables`."""
        with closing(self._open()) as cluster:
            return _names(cluster)

    def read(self, table: Table) -> pa.Table:
        """See `Source.read`."""
        with closing(self._open()) as cluster:
            return canonical_batches(table, _parts(cluster, table))

    def batches(self, table: Table) -> Iterator[pa.Table]:
        """See `Source.batches`: the cluster decides how many rows come together."""
        with closing(self._open()) as cluster:
            yield from canonical_parts(table, _parts(cluster, table))

    def known_rows(self, table: Table) -> int | None:
        """See `Source.known_rows`: no catalogue keeps a number that one could rely on."""
        return None

    def fingerprint(self, table: Table) -> str:
        """See `Source.fingerprint`."""
        return fingerprint_rows(table, self.read(table))

    def version(self, table: Table, change: Watermark | VersionQuery) -> str:
        """See `Source.version`: a statement that is no query is refused by Spark's parser."""
        with closing(self._open()) as cluster:
            known = [each.name for each in _fields(cluster, table.name)]
            if isinstance(change, VersionQuery):
                asked = change.sql.strip().removesuffix(";")
            else:
                check_watermark(table.name, change.column, _as_spelled([change.column], known))
                asked = watermark_sql(quoted(table.name), quoted(change.column))
            with cluster.clear_errors():
                try:
                    found = cluster.session.sql(f"SELECT * FROM (\n{asked}\n) LIMIT 2").toArrow()
                except AnalysisException as error:
                    raise failed_query(table.name, error) from None
            return version_of(table.name, list(zip(*(column.to_pylist() for column in found.columns), strict=True)))

    def stored(self, tables: Sequence[Table]) -> dict[str, str]:
        """See `Source.stored`: files, if there are any, are out of reach."""
        return {}

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


def _parts(cluster: Cluster, table: Table) -> Iterator[pa.Table]:
    rows, is_empty = rows_of(cluster, table), True
    for batch in cluster.batches(rows):
        is_empty = False
        yield pa.Table.from_batches([batch])
    if is_empty:  # a table without rows still has its columns
        with cluster.clear_errors():
            yield to_arrow_schema(rows.schema, timezone="UTC").empty_table()


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
