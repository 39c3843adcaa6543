"""A bundle into PostgreSQL: one transaction, COPY, and no password in any message."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from privbench_core.errors import PublishError
from privbench_core.publish.bundle import Bundle
from privbench_core.publish.load import refuse_existing, statements_of
from privbench_core.schema.ddl import quote_identifier
from privbench_core.schema.location import describe

if TYPE_CHECKING:
    from sqlalchemy import URL

_BATCH_ROWS = 100_000
_CONNECT_SECONDS = 15


def load_postgres(bundle: Bundle, target_url: str, *, replace: bool) -> dict[str, int]:
    """Load into the current schema of a PostgreSQL database; see `load_bundle`."""
    try:
        url = make_url(target_url)
    except (ArgumentError, ValueError):
        # The text is not repeated: it may hold a password.
        raise PublishError("target: not a database URL; write postgresql://user@host:port/database") from None
    where = describe(url)
    try:
        connection = psycopg.connect(**_parameters(url))
    except psycopg.Error as error:
        raise PublishError(f"{where}: cannot connect: {_without_password(str(error), url)}") from None
    try:
        # The block commits at its end and rolls back on any error.
        with connection:
            return _load(bundle, connection, where, replace=replace)
    except psycopg.Error as error:
        reason = _without_password(error.diag.message_primary or type(error).__name__, url)
        raise PublishError(f"{where}: refused the bundle, and nothing was changed: {reason}") from None


def _load(bundle: Bundle, connection: psycopg.Connection[Any], where: str, *, replace: bool) -> dict[str, int]:
    statements = statements_of(bundle)
    found = connection.execute(
        "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = current_schema() AND c.relname = ANY(%s)",
        [list(bundle.tables)],
    )
    existing = [name for (name,) in found]
    if not replace:
        refuse_existing(existing, where)
    if existing:
        # Together, because they refer to each other; without CASCADE, so what else depends on them makes this fail.
        connection.execute(f"DROP TABLE {', '.join(quote_identifier(name) for name in existing)}")
    for statement in statements.tables:
        connection.execute(statement)
    loaded = {table: _copy(bundle, connection, table) for table in bundle.tables}
    for statement in statements.keys:
        connection.execute(statement)
    for table in bundle.tables:
        connection.execute(f"ANALYZE {quote_identifier(table)}")
    return loaded


def _copy(bundle: Bundle, connection: psycopg.Connection[Any], table: str) -> int:
    """COPY a table's Parquet file, batch by batch; returns the number of rows."""
    loaded = 0
    with pq.ParquetFile(bundle.file(table)) as file, connection.cursor() as cursor:
        columns = ", ".join(quote_identifier(name) for name in file.schema_arrow.names)
        command = f"COPY {quote_identifier(table)} ({columns}) FROM STDIN (FORMAT csv)"
        with cursor.copy(command) as copy:
            for batch in file.iter_batches(_BATCH_ROWS):
                copy.write(_csv(batch))
                loaded += batch.num_rows
    return loaded


def _csv(batch: pa.RecordBatch) -> bytes:
    """Rows as CSV. Arrow quotes all text and never NULL, which is how PostgreSQL tells '' from NULL."""
    buffer = io.BytesIO()
    pacsv.write_csv(batch, buffer, pacsv.WriteOptions(include_header=False))
    return buffer.getvalue()


def _parameters(url: URL) -> dict[str, Any]:
    """Connection parameters: apart, because libpq quotes parts of a URL that it cannot parse in its message."""
    query = {key: value if isinstance(value, str) else ",".join(value) for key, value in url.query.items()}
    known = {"host": url.host, "port": url.port, "user": url.username, "password": url.password, "dbname": url.database}
    given = {key: value for key, value in known.items() if value is not None}
    return {"connect_timeout": _CONNECT_SECONDS, **query, **given}


def _without_password(message: str, url: URL) -> str:
    first = message.strip().splitlines()[0]
    secrets = [url.password, url.query.get("password")]
    for secret in secrets:
        if isinstance(secret, str) and secret:
            first = first.replace(secret, "***")
    return first
