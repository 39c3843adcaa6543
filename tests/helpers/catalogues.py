"""Schemas of a cluster's catalogue, whose tables are Parquet files."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest


def in_catalogue(monkeypatch: pytest.MonkeyPatch, url: str, folder: Path, *statements: str) -> str:
    """Return the URL of a new schema: a table for each Parquet file of a folder, and what statements make there.

    Whatever session looks for the schema makes it first: Sail keeps a catalogue for each session.
    """
    from privbench_core.backends.spark import Cluster, quoted

    schema = f"Town_{uuid4().hex}"
    use = Cluster._use

    def made(self: Cluster, names: tuple[str, ...]) -> None:
        if names[-1] != schema:
            use(self, names)
            return
        self.session.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        use(self, names)
        for file in folder.glob("*.parquet"):
            self.session.sql(f"CREATE TABLE IF NOT EXISTS {quoted(file.stem)} USING parquet LOCATION '{file}'")
        for statement in statements:
            self.session.sql(statement)

    monkeypatch.setattr(Cluster, "_use", made)
    place, mark, parameters = url.partition(";")
    return f"{place.removesuffix('/')}/{schema}{mark}{parameters}"
