"""From a spec to the kind of source it names."""

from __future__ import annotations

from privbench_core.errors import SourceError
from privbench_core.schema.location import expand, home, is_url
from privbench_core.schema.spec import Spec
from privbench_core.source.base import Source


def open_source(spec: Spec) -> Source:
    """The source of a spec: a folder, a DuckDB file or a database. Nothing is read yet.

    Raises:
        SourceError: A variable is not set, or there is nothing at the path.
    """
    place = expand(spec.source)
    # Only the kind of source in use is imported: a folder needs neither DuckDB nor SQLAlchemy.
    if is_url(place):
        from privbench_core.source.database import DatabaseSource

        return DatabaseSource(place)
    path = spec.path.parent / home(place)
    if path.is_dir():
        from privbench_core.source.folder import FolderSource

        return FolderSource(path)
    if path.is_file():
        from privbench_core.source.duckdb_file import DuckDBSource

        return DuckDBSource(path)
    raise SourceError(f"source: there is neither a folder nor a file at {path}; check the path in {spec.path.name}")
