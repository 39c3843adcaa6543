"""Engines: what finds the kept rows of views, and counts them. Only they and `backends` read private rows.

Here a spec gets the engine that counts its rows.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from privbench_core.backends import Source
from privbench_core.backends.registry import NumberedSource, open_stored, pyspark_needed
from privbench_core.errors import SourceError
from privbench_core.schema.documents import documents_to_learn
from privbench_core.spec.location import expand, is_spark_url, is_url, split_spark_url
from privbench_core.spec.model import DEFAULT_ENGINE, Spec

if TYPE_CHECKING:
    from privbench_core.engines.sql import Database
    from privbench_core.engines.sql.engine import SqlEngine

_MANY = 3_000_000  # private rows; with more, DuckDB is not slower on two cores, and takes less memory


def engine_of(spec: Spec) -> str:
    """Return the engine that counts the rows of a spec: the one it names, or one by what its source is.

    No row is read, and releases do not depend on it. A source that cannot be looked at is for `memory` to report.
    """
    if spec.engine != DEFAULT_ENGINE:
        return spec.engine
    if any(documents_to_learn(table.attributes) for table in spec.schema.private_tables):
        return "memory"  # the one that takes documents apart
    from privbench_core.backends.folder import FolderSource

    with suppress(SourceError):
        place = expand(spec.source)
        if is_spark_url(place):  # which numbers no rows
            return "duckdb" if any(table.row_id for table in spec.schema.private_tables) else "spark"
        folder = None if is_url(place) else open_stored(spec)
        if isinstance(folder, FolderSource):
            rows = sum(folder.known_rows(table) or 0 for table in spec.schema.private_tables)
            return "duckdb" if rows >= _MANY else "memory"
    return "memory"


def open_engine(spec: Spec, source: Source, secret: bytes, folder: Path) -> SqlEngine:
    """Return the engine that a spec names, one of those in databases. Nothing is read yet.

    Args:
        spec: The spec.
        source: Its source.
        secret: Keys the hash that decides which children beyond τ are dropped.
        folder: For temporary files; its owner's alone.

    Raises:
        SourceError: The engine cannot count rows of this source, or nothing can be written.
    """
    from privbench_core.engines.sql.engine import SqlEngine

    return SqlEngine(spec.schema, _database(spec, source, folder), secret, spec.changes)


def _database(spec: Spec, source: Source, folder: Path) -> Database:
    for table in spec.schema.private_tables:
        for column in documents_to_learn(table.attributes):
            found = f"engine {spec.engine}: cannot split the documents of {table.name}.{column.name} into values"
            raise SourceError(f"{found}; run with --engine memory, or leave domain: learn out there")
    if spec.engine == "duckdb":
        from privbench_core.engines.duckdb import DuckDBDatabase

        return DuckDBDatabase(source, folder)
    plain = source.source if isinstance(source, NumberedSource) else source  # only public tables are numbered here
    if spec.engine == "spark":
        with pyspark_needed("engine spark"):
            from privbench_core.backends.spark import CatalogueSource
            from privbench_core.engines.spark import SparkDatabase
        from privbench_core.backends.folder import FolderSource

        if isinstance(plain, CatalogueSource):
            return SparkDatabase(plain, plain.url)
        if not isinstance(plain, FolderSource):
            found = "needs a folder of Parquet files or a Spark catalogue, and this source is neither"
            raise SourceError(f"engine spark: {found}; run with --engine duckdb")
        url = expand(spec.cluster or "", "cluster")
        if split_spark_url(url)[1]:
            raise SourceError("cluster: not a URL of Spark Connect; write sc://host:port")
        return SparkDatabase(plain, url)
    from privbench_core.backends.sqlalchemy import DatabaseSource

    if not isinstance(plain, DatabaseSource) or not plain.is_postgres:
        raise SourceError("engine source: needs a PostgreSQL source, and this one is not; run with --engine duckdb")
    from privbench_core.engines.postgres import PostgresDatabase

    return PostgresDatabase(plain)
