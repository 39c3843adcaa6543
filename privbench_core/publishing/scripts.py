"""The scripts of a bundle that load it without privbench: one for psql, one for DuckDB.

psql reads no Parquet, so a bundle holds its rows a second time as compressed CSV, in the form that COPY reads; every
place with psql and gzip can load it. DuckDB reads the Parquet files.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from privbench_core.backends.postgres.ddl import (
    create_keys_sql,
    create_tables_sql,
    name_list,
    quote_identifier,
    quote_text,
)
from privbench_core.backends.postgres.load import copy_text
from privbench_core.schema.tables import Schema

PSQL, DUCKDB = "load.sql", "load.duckdb.sql"
_BATCH_ROWS = 100_000  # as many as loading into PostgreSQL sends at a time
_LEVEL = 1  # of gzip: the fastest; Parquet is the small form of the rows


def write_csv(rows: Path, target: Path) -> None:
    """Write the rows of a Parquet file as CSV that COPY reads, compressed; equal rows give equal bytes."""
    with (
        target.open("wb") as raw,
        gzip.GzipFile("", "wb", _LEVEL, raw, mtime=0) as packed,
        pq.ParquetFile(rows) as file,
    ):
        for batch in file.iter_batches(_BATCH_ROWS):
            packed.write(copy_text(batch))


def psql_script(schema: Schema, tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Return load.sql: tables, rows, then keys and indexes, in one transaction.

    Args:
        schema: The database.
        tables: The manifest's entries by table name.
    """
    copies = "".join(
        f"\\copy {quote_identifier(name)} ({name_list(column['name'] for column in entry['columns'])})"
        f" FROM PROGRAM 'gzip -dc {entry['csv']}' WITH (FORMAT csv)\n"
        for name, entry in tables.items()
    )
    return (
        "-- Loads this bundle into PostgreSQL, all of it or nothing. Run it in this folder:\n"
        "--     psql postgresql://user@host/database -f load.sql\n"
        "\\set ON_ERROR_STOP on\n"
        "BEGIN;\n\n"
        f"{create_tables_sql(schema)}\n{copies}\n{create_keys_sql(schema)}\n"
        "COMMIT;\nANALYZE;\n"
    )


def duckdb_script(schema: Schema, tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Return load.duckdb.sql; what DuckDB cannot hold of the schema is listed at its top.

    Args:
        schema: The database.
        tables: The manifest's entries by table name.
    """
    from privbench_core.backends.duckdb.load import duckdb_schema, insert_rows

    translated = duckdb_schema(schema)
    left_out = "".join(f"-- Left out, because DuckDB cannot hold it: {part}\n" for part in translated.left_out)
    statements = [*translated.enums]
    for name, create in translated.tables.items():
        statements += [create, f"{insert_rows(schema.table(name), quote_text(tables[name]['file']))};"]
    body = "\n".join([*statements, *translated.after])
    return (
        "-- Loads this bundle into a DuckDB file, all of it or nothing. Run it in this folder:\n"
        "--     duckdb benchmark.duckdb < load.duckdb.sql\n"
        f"{left_out}BEGIN;\n\n{body}\n\nCOMMIT;\nANALYZE;\n"
    )
