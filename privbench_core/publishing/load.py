"""Load a bundle into a database, completely or not at all."""

from __future__ import annotations

import re
from pathlib import Path

from privbench_core.backends.loading import Loaded
from privbench_core.errors import PublishError
from privbench_core.publishing.bundle import read_bundle

_DUCKDB_SCHEME = "duckdb:///"


def load_bundle(bundle: Path, target_url: str, *, replace: bool = False) -> Loaded:
    """Create the tables in a database, load the rows, then create keys and indexes, then gather statistics.

    Args:
        bundle: Folder of a bundle; its checksums are verified first.
        target_url: ``postgresql://...`` (optionally with a SQLAlchemy driver such as ``+psycopg``, and
            ``?schema=name``), ``duckdb:///path`` or a path that ends in ``.duckdb``.
        replace: Whether to drop tables and enums of the same names first. Nothing that depends on them is dropped, and
            no other table changes.

    Returns:
        Loaded rows by table, and what was left out.

    Raises:
        PublishError: The bundle is damaged, the target is unknown or refuses, or is not empty. The target is then
            unchanged. No message contains a password.
    """
    opened = read_bundle(bundle)
    files = {table: opened.files(table) for table in opened.tables}
    if target_url.startswith(_DUCKDB_SCHEME) or ("://" not in target_url and target_url.endswith(".duckdb")):
        from privbench_core.backends.duckdb.load import load_duckdb

        return load_duckdb(opened.schema, files, Path(target_url.removeprefix(_DUCKDB_SCHEME)), replace=replace)
    if re.match(r"postgres(ql)?(\+\w+)?://", target_url):
        from privbench_core.backends.postgres.load import load_postgres

        return load_postgres(opened.schema, files, target_url, replace=replace)
    raise PublishError(
        "target: neither PostgreSQL nor DuckDB; give postgresql://user@host/database, or a path that ends in .duckdb"
    )
