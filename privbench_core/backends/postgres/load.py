"""A bundle into PostgreSQL: one transaction, COPY, and no password in any message."""

from __future__ import annotations

from typing import Any

import psycopg
import pyarrow.parquet as pq

from privbench_core.backends.loading import Loadable, Loaded, refuse_tables
from privbench_core.backends.postgres.copy_text import copy_text
from privbench_core.backends.postgres.ddl import create_keys_sql, create_tables_sql, name_list, quote_identifier
from privbench_core.errors import PublishError, SourceError
from privbench_core.spec.location import connection_parameters, describe, parse_url, reason_of

_BATCH_ROWS = 100_000  # rows sent at once; chosen by hand


def load_postgres(bundle: Loadable, target_url: str, *, replace: bool) -> Loaded:
    """Load into the current schema of a PostgreSQL database; see `load_bundle`."""
    try:
        url = parse_url(target_url)
    except SourceError:
        # The text is not repeated: it may hold a password.
        raise PublishError("target: not a database URL; write postgresql://user@host:port/database") from None
    where = describe(url)
    try:
        connection = psycopg.connect(**connection_parameters(url))
    except psycopg.Error as error:
        raise PublishError(f"{where}: cannot connect ({reason_of(error, url)}); check the URL and the server") from None
    try:
        # The block commits at its end and rolls back on any error.
        with connection:
            return _load(bundle, connection, where, replace=replace)
    except psycopg.Error as error:
        raise PublishError(f"{where}: refused the bundle, and nothing was changed: {reason_of(error, url)}") from None


def _load(bundle: Loadable, connection: psycopg.Connection[Any], where: str, *, replace: bool) -> Loaded:
    schema = connection.execute("SELECT current_schema()").fetchone()
    if schema is None or schema[0] is None:
        raise PublishError(f"{where}: has no schema that the login may use; create it, or name another with ?schema=")
    query = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
    found = [name for (name,) in connection.execute(query)]
    if not replace:
        refuse_tables(found, bundle.tables, where)
    existing = [name for name in bundle.tables if name in found]
    if existing:
        # Together, because they refer to each other; without CASCADE, so what else depends on them makes this fail.
        connection.execute(f"DROP TABLE {name_list(existing)}")
    for enum in bundle.schema.enums if replace else ():
        connection.execute(f"DROP TYPE IF EXISTS {quote_identifier(enum.name)}")
    connection.execute(create_tables_sql(bundle.schema))
    rows = {table: _copy(bundle, connection, table) for table in bundle.tables}
    connection.execute(create_keys_sql(bundle.schema))
    for table in bundle.tables:
        connection.execute(f"ANALYZE {quote_identifier(table)}")
    return Loaded(rows)


def _copy(bundle: Loadable, connection: psycopg.Connection[Any], table: str) -> int:
    """COPY a table's Parquet files, batch by batch; returns the number of rows."""
    loaded = 0
    files = bundle.files(table)
    columns = ", ".join(quote_identifier(name) for name in pq.read_schema(files[0]).names)
    command = f"COPY {quote_identifier(table)} ({columns}) FROM STDIN (FORMAT csv)"
    with connection.cursor() as cursor, cursor.copy(command) as copy:
        for path in files:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(_BATCH_ROWS):
                    copy.write(copy_text(batch))
                    loaded += batch.num_rows
    return loaded
