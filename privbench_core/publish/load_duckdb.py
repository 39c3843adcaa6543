"""A bundle into a DuckDB file."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb

from privbench_core.errors import PublishError
from privbench_core.publish.bundle import Bundle
from privbench_core.publish.load import refuse_existing, statements_of
from privbench_core.schema.ddl import quote_identifier

# DuckDB cannot add foreign keys to a table that exists, and needs no index for joins.
_SUPPORTED_KEY = re.compile(r"\bADD\s+(PRIMARY\s+KEY|UNIQUE)\b", re.IGNORECASE)


def load_duckdb(bundle: Bundle, path: Path, *, replace: bool) -> dict[str, int]:
    """Load into the file at ``path``, which is made if it is not there; see `load_bundle`.

    Primary keys and unique constraints are kept; foreign keys and indexes are left out.
    """
    file = path.expanduser().resolve()
    is_new = not file.exists()
    try:
        try:
            with duckdb.connect(str(file)) as connection:
                return _load(bundle, connection, file, replace=replace)
        except BaseException:
            if is_new:
                file.unlink(missing_ok=True)
                file.with_name(f"{file.name}.wal").unlink(missing_ok=True)
            raise
    except duckdb.Error as error:
        raise PublishError(
            f"{file}: DuckDB refused the bundle, and nothing was changed: {_first_line(error)}"
        ) from error


def _load(bundle: Bundle, connection: duckdb.DuckDBPyConnection, file: Path, *, replace: bool) -> dict[str, int]:
    statements = statements_of(bundle)
    found = connection.execute("SELECT table_name FROM duckdb_tables() WHERE schema_name = current_schema()").fetchall()
    # Names differ by more than case in DuckDB, or not at all.
    names = {name.lower() for (name,) in found}
    existing = [table for table in bundle.tables if table.lower() in names]
    if not replace:
        refuse_existing(existing, str(file))
    connection.begin()
    for table in reversed(existing):
        connection.execute(f"DROP TABLE {quote_identifier(table)}")
    for statement in statements.tables:
        connection.execute(statement)
    loaded = {}
    for table in bundle.tables:
        source = str(bundle.file(table))
        connection.execute(f"INSERT INTO {quote_identifier(table)} BY NAME SELECT * FROM read_parquet($1)", [source])
        loaded[table] = int(bundle.manifest["tables"][table]["rows"])
    for statement in filter(_SUPPORTED_KEY.search, statements.keys):
        connection.execute(statement)
    connection.commit()
    connection.execute("ANALYZE")
    return loaded


def _first_line(error: duckdb.Error) -> str:
    return str(error).splitlines()[0]
