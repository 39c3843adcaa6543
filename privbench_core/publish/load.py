"""Loading a bundle into a database, all of it or nothing."""

from __future__ import annotations

import re
from pathlib import Path

from privbench_core.backends.loading import Loaded
from privbench_core.errors import PublishError
from privbench_core.publish.bundle import read_bundle

_DUCKDB_SCHEME = "duckdb:///"


def load_bundle(bundle: Path, target_url: str, *, replace: bool = False) -> Loaded:
    """Create the tables in a database and load the rows, then keys and indexes, then gather statistics.

    Args:
        bundle: Folder of a bundle; its checksums are verified first.
        target_url: ``postgresql://...`` (a SQLAlchemy driver such as ``+psycopg`` may stand in it, and
            ``?schema=name``), ``duckdb:///path`` or a path that ends in ``.duckdb``.
        replace: Whether the target may hold tables: those of the same names are dropped first, with the enums of the
            same names. Nothing that depends on them is, and no other table is touched.

    Returns:
        Rows loaded by table, and what was left out.

    Raises:
        PublishError: The bundle is damaged, the target is unknown or refuses, or is not empty. The target is then as it
            was. No message holds a password.
    """
    opened = read_bundle(bundle)
    if target_url.startswith(_DUCKDB_SCHEME) or ("://" not in target_url and target_url.endswith(".duckdb")):
        from privbench_core.backends.duckdb.load import load_duckdb

        return load_duckdb(opened, Path(target_url.removeprefix(_DUCKDB_SCHEME)), replace=replace)
    if re.match(r"postgres(ql)?(\+\w+)?://", target_url):
        from privbench_core.backends.postgres.load import load_postgres

        return load_postgres(opened, target_url, replace=replace)
    raise PublishError(
        "target: neither PostgreSQL nor DuckDB; give postgresql://user@host/database, or a path that ends in .duckdb"
    )
