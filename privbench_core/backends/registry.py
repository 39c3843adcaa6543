"""From a source or a spec to the back-end that reads it, and numbers for the rows of tables without a key.

``row_id: generated`` numbers the rows of a table that has no key of its own, so that each is identified. The number is
a digest of the row's own values and of how many equal rows stand before it, not of its place: no other row can change
it, except rows that equal it in every column. Such rows are interchangeable, and those of an owned table refer to the
same owner. So the numbers of a unit's rows are the same with another unit and without it, which the order of truncation
rests on (``docs/privacy.md``, section 3); and the order in which a source returns rows has no say.

The digest is keyed with the workspace's secret: someone who can insert rows cannot search for two that get one number,
which would stop every run.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privbench_core.backends import Source
from privbench_core.backends.catalogue import Catalogue
from privbench_core.errors import SourceError, first_of
from privbench_core.schema.tables import Table
from privbench_core.spec.location import check_spark_url, expand, home, is_spark_url, is_url
from privbench_core.spec.model import Spec, VersionQuery, Watermark

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
    """Return the source of a spec; its tables without a key get row numbers, see `NumberedSource`. Nothing is read yet.

    Args:
        spec: The spec.
        secret: Keys the numbers: that of the workspace, wherever rows are measured.

    Raises:
        SourceError: A variable is not set, or there is nothing at the path.
    """
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
            from privbench_core.backends.spark import CatalogueSource

        return CatalogueSource(place)
    with suppress(OSError), path.open("rb") as file:
        place = f"sqlite:///{quote(str(path.resolve()))}" if file.read(len(_SQLITE)) == _SQLITE else place
    if is_url(place):
        from privbench_core.backends.sqlalchemy import DatabaseSource

        return DatabaseSource(place, schemas)
    if path.is_dir():
        from privbench_core.backends.folder import FolderSource

        return FolderSource(path)
    if not path.is_file():
        return None
    from privbench_core.backends.duckdb import DuckDBSource

    return DuckDBSource(path)


@contextmanager
def pyspark_needed(what: str) -> Iterator[None]:
    """Say how to install PySpark if an import of it fails; ``what`` needs it."""
    try:
        yield
    except ImportError:
        raise SourceError(f"{what}: PySpark is not installed; run: pip install 'privbench[spark]'") from None


@dataclass(frozen=True)
class NumberedSource(Source):
    """A source whose tables without a key get a column of row numbers; all other tables are as in the source."""

    source: Source
    secret: bytes = field(repr=False)  # keys the numbers

    def catalogue(self) -> Catalogue:
        return self.source.catalogue()

    def stored_rows(self, table: Table) -> Iterator[pa.Table]:
        return self.source.stored_rows(_stored(table))

    def read(self, table: Table) -> pa.Table:
        rows = self.source.read(_stored(table))
        return rows if table.row_id is None else rows.append_column(table.row_id, number_rows(rows, self.secret))

    def batches(self, table: Table) -> Iterator[pa.Table]:
        """See `Source.batches`: rows are numbered together."""
        return self.source.batches(table) if table.row_id is None else iter([self.read(table)])

    def known_rows(self, table: Table) -> int | None:
        return self.source.known_rows(table)

    def version(self, table: Table, change: Watermark | VersionQuery) -> str:
        return self.source.version(_stored(table), change)

    def stored(self, tables: Sequence[Table]) -> dict[str, str]:
        return self.source.stored([_stored(table) for table in tables])


def number_rows(rows: pa.Table, secret: bytes) -> pa.Array:
    """Return a 63-bit number per row that is distinct but for accidents of the hash, which the key check refuses.

    SipHash-2-4 of the row's values and of the number of equal rows before it, under a key that follows from ``secret``.

    >>> rows = pa.table({"a": ["x", "y", "x"], "b": [1, None, 1]})
    >>> numbers = number_rows(rows, b"secret")
    >>> len(numbers.unique()), numbers == number_rows(rows, b"secret"), numbers == number_rows(rows, b"another")
    (3, True, False)
    """
    import pandas as pd

    key = urlsafe_b64encode(blake2b(b"numbers of rows without a key", key=secret, digest_size=12).digest()).decode()

    texts = pd.Series(_texts(rows).to_numpy(zero_copy_only=False), dtype=object)
    seen = texts.groupby(texts, sort=False).cumcount().astype(str)
    hashed = pd.util.hash_array((seen + "\x1f" + texts).to_numpy(dtype=object), hash_key=key, categorize=False)
    return pa.array((hashed >> np.uint64(1)).astype(np.int64))


def _stored(table: Table) -> Table:
    """Return the table as the source has it."""
    if table.row_id is None:
        return table
    return replace(table, columns=table.columns[:-1], primary_key=(), row_id=None)


def _texts(rows: pa.Table) -> pa.Array:
    """Return a text per row from which its values follow: each value by its type alone, after its length."""
    parts = [_part(column.combine_chunks()) for column in rows.columns]
    return pc.binary_join_element_wise(*parts, pa.scalar("", pa.large_string()))


def _part(values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_duration(kind) or pa.types.is_timestamp(kind):
        values = values.cast(pa.int64())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        texts = pa.array([None if value is None else value.hex() for value in values.to_pylist()], pa.large_string())
    else:
        texts = values.cast(pa.large_string())
    lengths = pc.binary_length(texts).cast(pa.large_string())
    return pc.fill_null(pc.binary_join_element_wise(lengths, texts, pa.scalar(":", texts.type)), "-")
