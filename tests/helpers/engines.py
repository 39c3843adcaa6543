"""Rows that are in memory, for engines that read a source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import adbc_driver_postgresql.dbapi as adbc
import pyarrow as pa
import pyarrow.parquet as pq

from privbench_core.backends.folder import FolderSource
from privbench_core.backends.sqlalchemy import DatabaseSource
from privbench_core.engines.duckdb import DuckDBDatabase
from privbench_core.engines.postgres import PostgresDatabase
from privbench_core.engines.sql.engine import SqlEngine
from privbench_core.schema.columns import ColumnType
from privbench_core.schema.tables import Table
from privbench_core.spec.model import VersionQuery, Watermark
from tests.helpers.databases import SECRET, Database


@dataclass(frozen=True)
class RowsInMemory:
    """A source of canonical rows."""

    rows: Mapping[str, pa.Table]

    def tables(self) -> list[str]:
        return sorted(self.rows)

    def read(self, table: Table) -> pa.Table:
        return self.rows[table.name]

    def batches(self, table: Table) -> Iterator[pa.Table]:
        """Small parts, so that there are several."""
        rows = self.rows[table.name]
        part = max(7, rows.num_rows // 8)
        yield from (rows.slice(start, part) for start in range(0, max(rows.num_rows, 1), part))

    def known_rows(self, table: Table) -> int | None:
        return self.rows[table.name].num_rows

    def fingerprint(self, table: Table) -> str:
        raise NotImplementedError

    def version(self, table: Table, change: Watermark | VersionQuery) -> str:
        raise NotImplementedError

    def stored(self, tables: Sequence[Table]) -> dict[str, str]:
        raise NotImplementedError


@dataclass(frozen=True)
class Cluster:
    """A cluster, and a folder that it reads."""

    url: str
    folder: Path


Place = Path | str | Cluster


def opened(database: Database, place: Place) -> SqlEngine:
    """The rows of a database in DuckDB (in a folder) or Spark, or those in PostgreSQL (at a URL), not yet checked."""
    if isinstance(place, Cluster):
        from privbench_core.engines.spark import SparkDatabase

        in_files(database, place.folder)
        engine = SqlEngine(database.schema, SparkDatabase(FolderSource(place.folder), place.url), SECRET)
    elif isinstance(place, Path):
        engine = SqlEngine(database.schema, DuckDBDatabase(RowsInMemory(database.tables), place), SECRET)
    else:
        engine = SqlEngine(database.schema, PostgresDatabase(DatabaseSource(place)), SECRET)
    try:
        engine.load(database.public)
    except BaseException:
        engine.close()
        raise
    return engine


def in_files(database: Database, folder: Path) -> None:
    """Write the tables of a database as Parquet files."""
    folder.mkdir(exist_ok=True)
    for name, rows in database.tables.items():
        pq.write_table(rows, folder / f"{name}.parquet")


def in_postgres(database: Database, url: str) -> None:
    """Make the tables of a database in an empty PostgreSQL."""
    with adbc.connect(url) as connection, connection.cursor() as cursor:
        for name, rows in database.tables.items():
            cursor.adbc_ingest(name, rows, mode="replace")
            for column in database.schema.table(name).columns:
                if column.type is ColumnType.UUID:
                    cursor.execute(f'ALTER TABLE "{name}" ALTER "{column.name}" TYPE uuid USING "{column.name}"::uuid')
        connection.commit()


def engine_of(database: Database, place: Place) -> SqlEngine:
    """The same with the rows of a database, checked and kept; the caller closes it."""
    if isinstance(place, str):
        in_postgres(database, place)
    engine = opened(database, place)
    try:
        engine.keep({})
    except BaseException:
        engine.close()
        raise
    return engine
