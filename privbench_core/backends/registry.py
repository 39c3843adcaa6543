"""From a source or a spec to the back-end that reads it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from privbench_core.backends.base import Source
from privbench_core.backends.catalogue import Catalogue
from privbench_core.backends.spark import pyspark_needed
from privbench_core.errors import SourceError, first_of
from privbench_core.spec.location import check_spark_url, expand, home, is_spark_url, is_url
from privbench_core.spec.model import Spec

_SQLITE = b"SQLite format 3\0"


def read_catalogue(source: str, schemas: tuple[str, ...] = ()) -> Catalogue:
    """Read the catalogue of a folder, a DuckDB file, or a URL of a database or a cluster; ``${VARIABLE}`` is expanded.

    Args:
        source: The folder, the file or the URL.
        schemas: Those of PostgreSQL to read; empty for all, or the one that the URL names.

    Raises:
        SourceError: Nothing there, no database of a kind that is read, or no table in it that may be read.
    """
    place = expand(source)
    if schemas and not place.startswith("postgres"):
        raise SourceError("source: only PostgreSQL has schemas to choose from; leave --schemas out")
    opened = _open(place, Path(place), schemas)
    if opened is None:
        raise SourceError(f"source: {place} is neither a folder nor a file nor a URL; check the path")
    catalogue = opened.catalogue()
    if not catalogue.tables:
        raise SourceError(f"source: no table in {catalogue.name}; check the path, the schema and your rights")
    unreadable = [table.name for table in catalogue.tables if table.unreadable]
    if len(unreadable) == len(catalogue.tables):
        raise SourceError(
            f"source: {catalogue.name} has tables, but the login may read none of them; grant it SELECT on"
            f" {first_of(unreadable)}"
        )
    return catalogue


def open_source(spec: Spec, secret: bytes) -> Source:
    """Return the source of a spec; its tables without a key get row numbers, see `row_ids`. Nothing is read yet.

    Args:
        spec: The spec.
        secret: Keys the numbers: that of the workspace, wherever rows are measured.

    Raises:
        SourceError: A variable is not set, or there is nothing at the path.
    """
    from privbench_core.backends.row_ids import NumberedSource

    source = open_stored(spec)
    return NumberedSource(source, secret) if any(table.row_id for table in spec.schema.tables) else source


def open_stored(spec: Spec) -> Source:
    """Return the source of a spec as it is: a folder, a DuckDB file, a database or a cluster. Nothing is read yet.

    Raises:
        SourceError: A variable is not set, or there is nothing at the path.
    """
    place = expand(spec.source)
    path = spec.path.parent / home(place)
    opened = _open(place, path, spec.schema.schemas)
    if opened is None:
        raise SourceError(f"source: there is neither a folder nor a file at {path}; check the path in {spec.path.name}")
    return opened


def _open(place: str, path: Path, schemas: tuple[str, ...]) -> Source | None:
    """Return the source at a URL or a path, None if there is nothing; only what this kind of source needs is imported.

    Args:
        place: As the owner writes it, with variables expanded.
        path: The file or folder that it names if it is no URL.
        schemas: Those of PostgreSQL that its tables are in; empty for the current one.
    """
    if is_spark_url(place):
        check_spark_url(place)
        with pyspark_needed("source"):
            from privbench_core.backends.spark.read import CatalogueSource

        return CatalogueSource(place)
    if is_url(place):
        from privbench_core.backends.sqlalchemy.read import DatabaseSource

        return DatabaseSource(place, schemas)
    if path.is_dir():
        from privbench_core.backends.folder.read import FolderSource

        return FolderSource(path)
    if not path.is_file():
        return None
    from privbench_core.backends.duckdb.read import DuckDBSource

    with suppress(OSError), path.open("rb") as file:  # DuckDB says of other files what is wrong
        if file.read(len(_SQLITE)) == _SQLITE:
            raise SourceError(
                f"source: {path.name} is a SQLite file, not a DuckDB one; write sqlite:///{path.resolve()}"
            )
    return DuckDBSource(path)
