"""From a source or a spec to the back-end that reads it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from privbench_core.backends.base import Source
from privbench_core.backends.catalogue import Catalogue
from privbench_core.backends.spark import pyspark_needed
from privbench_core.errors import SourceError
from privbench_core.spec.location import check_spark_url, expand, home, is_spark_url, is_url, parse_url
from privbench_core.spec.model import Spec

_SQLITE = b"SQLite format 3\0"


def read_catalogue(source: str) -> Catalogue:
    """Read the catalogue of a folder, a DuckDB file, or a URL of a database or a cluster; ``${VARIABLE}`` is expanded.

    Raises:
        SourceError: Nothing there, no database of a kind that is read, or no table in it that may be read.
    """
    place = expand(source)
    if is_spark_url(place):
        check_spark_url(place)
        with pyspark_needed("source"):
            from privbench_core.backends.spark.catalogue import spark_catalogue

        catalogue = spark_catalogue(place)
    elif is_url(place):
        url = parse_url(place)
        if url.get_backend_name() == "postgresql":
            from privbench_core.backends.postgres.catalogue import postgres_catalogue as read
        else:
            from privbench_core.backends.sqlalchemy.catalogue import sqlalchemy_catalogue as read
        catalogue = read(url)
    elif Path(place).is_dir():
        from privbench_core.backends.folder.catalogue import folder_catalogue

        catalogue = folder_catalogue(Path(place))
    elif Path(place).is_file():
        from privbench_core.backends.duckdb.catalogue import duckdb_catalogue

        _check_file(Path(place))
        catalogue = duckdb_catalogue(Path(place))
    else:
        raise SourceError(f"source: neither a folder nor a file nor a URL: {place}; check the path")
    if not catalogue.tables:
        raise SourceError(f"source: no table in {catalogue.name}; check the path, the schema and your rights")
    unreadable = [table.name for table in catalogue.tables if table.unreadable]
    if len(unreadable) == len(catalogue.tables):
        raise SourceError(
            f"source: {catalogue.name} has tables, but the login may read none of them; grant it SELECT on"
            f" {', '.join(unreadable[:3])}{' and others' if len(unreadable) > 3 else ''}"  # noqa: PLR2004
        )
    return catalogue


def _check_file(path: Path) -> None:
    """Refuse a file of another database by the name that it goes by here; DuckDB says of others what is wrong."""
    with suppress(OSError), path.open("rb") as file:
        if file.read(len(_SQLITE)) == _SQLITE:
            raise SourceError(
                f"source: {path.name} is a SQLite file, not a DuckDB one; write sqlite:///{path.resolve()}"
            )


def open_source(spec: Spec, secret: bytes) -> Source:
    """Return the source of a spec; its tables without a key get row numbers, see `row_ids`. Nothing is read yet.

    Args:
        spec: The spec.
        secret: Keys the numbers: that of the workspace, wherever rows are measured.

    Raises:
        SourceError: A variable is not set, or there is nothing at the path.
    """
    source = open_stored(spec)
    if not any(table.row_id for table in spec.schema.tables):
        return source
    from privbench_core.backends.row_ids import NumberedSource

    return NumberedSource(source, secret)


def open_stored(spec: Spec) -> Source:
    """Return the source of a spec as it is: a folder, a DuckDB file, a database or a cluster. Nothing is read yet.

    Raises:
        SourceError: A variable is not set, or there is nothing at the path.
    """
    place = expand(spec.source)
    # Only the kind of source in use is imported: a folder needs neither DuckDB nor SQLAlchemy.
    if is_spark_url(place):
        check_spark_url(place)
        with pyspark_needed("source"):
            from privbench_core.backends.spark.read import CatalogueSource

        return CatalogueSource(place)
    if is_url(place):
        from privbench_core.backends.sqlalchemy.read import DatabaseSource

        return DatabaseSource(place)
    path = spec.path.parent / home(place)
    if path.is_dir():
        from privbench_core.backends.folder.read import FolderSource

        return FolderSource(path)
    if path.is_file():
        from privbench_core.backends.duckdb.read import DuckDBSource

        _check_file(path)
        return DuckDBSource(path)
    raise SourceError(f"source: there is neither a folder nor a file at {path}; check the path in {spec.path.name}")
