"""A folder of Parquet and CSV files.

A table is a file, or a folder of Parquet files with the same columns (``orders/part-*.parquet``, as engines write it).
What is called ``.name`` or ``_name`` is not data, as for those engines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from privbench_core.backends.base import Source, check_columns, check_table
from privbench_core.backends.cast import canonical_parts
from privbench_core.backends.catalogue import SEVERAL_VALUES, Catalogue, FoundColumn, FoundTable, found_column
from privbench_core.backends.fingerprint import fingerprint_files
from privbench_core.backends.folder.csv_files import csv_batches, csv_columns, is_csv, unzipped
from privbench_core.errors import SourceError
from privbench_core.schema.columns import ColumnType
from privbench_core.schema.tables import Table
from privbench_core.schema.types.base import is_kind
from privbench_core.spec.model import VersionQuery, Watermark

_ROWS = 1 << 18  # of a Parquet file at a time: more take memory, and no less time
_ELEMENTS = {
    "int64": "bigint",
    "int32": "integer",
    "double": "double precision",
    "bool": "boolean",
    "large_string": "text",
}


@dataclass(frozen=True)
class FolderSource(Source):
    r"""Files named ``<table>.parquet``, ``.csv`` or ``.tsv``, or folders of Parquet files named ``<table>``.

    CSV files may be compressed (``.csv.gz``).

    CSV files have a header and UTF-8, and commas, semicolons, tabs or bars between fields. An empty field is NULL, and
    so is ``\N``, as databases write it; quoted, they are text.
    """

    folder: Path

    def catalogue(self) -> Catalogue:
        """See `Source.catalogue`: files declare no keys."""
        tables = tuple(FoundTable(name, _columns(name, files)) for name, files in stored_tables(self.folder, "source"))
        return Catalogue(self.folder.resolve().name, tables)

    def stored_rows(self, table: Table) -> Iterator[pa.Table]:
        """See `Source.stored_rows`; parts of several Parquet files may be of different types."""
        return chain.from_iterable(_stored_rows(table, path) for path in self._files(table))

    def batches(self, table: Table) -> Iterator[pa.Table]:
        if table.empty:
            return super().batches(table)
        return chain.from_iterable(canonical_parts(table, _stored_rows(table, path)) for path in self._files(table))

    def parquet_files(self, table: Table) -> tuple[Path, ...]:
        """Return the Parquet files of a table; SourceError if it is a CSV file."""
        files = self._files(table)
        if is_csv(files[0]):
            found = f"engine spark reads Parquet files only, and {files[0].name} is not one"
            raise SourceError(f"{table.name}: {found}; run with --engine duckdb")
        return files

    def known_rows(self, table: Table) -> int | None:
        """See `Source.known_rows`: Parquet files say it."""
        files = self._files(table)
        try:
            return None if is_csv(files[0]) else sum(pq.read_metadata(file).num_rows for file in files)
        except (pa.ArrowException, OSError):  # reading the table reports it
            return None

    def version(self, table: Table, change: Watermark | VersionQuery) -> str:
        """See `Source.version`. A folder has none."""
        asked = "watermark" if isinstance(change, Watermark) else "sql"
        found = f"change: {{{asked}: ..}} needs a database, and the source is a folder"
        todo = "remove the line: unchanged files are not read again"
        raise SourceError(f"{table.name}: {found}; {todo}")

    def stored(self, tables: Sequence[Table]) -> dict[str, str]:
        digests: dict[str, str] = {}
        there = stored_tables(self.folder, "source")
        for table in tables:
            paths = [path for name, files in there if name == table.name for path in files]
            with suppress(OSError):  # reading the table reports it
                digests |= {table.name: fingerprint_files(paths)} if paths else {}
        return digests

    def _files(self, table: Table) -> tuple[Path, ...]:
        """Return the one file of a table, or those of its folder."""
        there = stored_tables(self.folder, "source")
        check_table(table.name, sorted({name for name, _ in there}))
        found = [files for name, files in there if name == table.name]
        if len(found) > 1:
            ends = (files[0] if files[0].parent == self.folder else files[0].parent for files in found)
            names = " and ".join(path.name for path in ends)
            raise SourceError(f"{table.name}: two files hold this table, {names}; remove one")
        return found[0]


def stored_tables(folder: Path, what: str) -> list[tuple[str, tuple[Path, ...]]]:
    """Return the tables of a folder with their files, in the order of names; SourceError if it cannot be read.

    Args:
        folder: The folder.
        what: Is in it, for messages.
    """
    found = []
    try:
        for path in _data(folder):
            if path.is_dir():
                with suppress(PermissionError):  # lost+found, and the like: not a table that could be declared
                    parts = tuple(part for part in _data(path) if _is_parquet(part) and part.is_file())
                    found += [(path.stem if _is_parquet(path) else path.name, parts)] if parts else []
            elif _is_parquet(path) or is_csv(path):
                found.append((unzipped(path).stem, (path,)))
    except OSError as error:
        raise SourceError(f"{what}: {folder} cannot be read ({error.strerror}); check the folder") from None
    return found


def _data(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith((".", "_")))


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() == ".parquet"


def _columns(table: str, files: Sequence[Path]) -> tuple[FoundColumn, ...]:
    if is_csv(files[0]):
        return csv_columns(table, files[0])
    columns = [_parquet_columns(table, path) for path in files]
    names = [{column.name for column in listed} for listed in columns]
    for path, held in zip(files, names, strict=True):
        if missing := names[0] - held:
            found = f"{path.name} has no {min(missing)}, unlike {files[0].name}, but a folder in a source is one table"
            raise SourceError(f"{table}: {found}; give {path.parent} as the source if its files are tables")
    return columns[0]


def _parquet_columns(table: str, path: Path) -> tuple[FoundColumn, ...]:
    try:
        return tuple(map(arrow_column, pq.read_schema(path)))
    except (pa.ArrowException, OSError):
        raise _no_parquet(table, path) from None


def _no_parquet(table: str, path: Path) -> SourceError:
    return SourceError(f"{table}: {path.name} is not a readable Parquet file; write it again")


def arrow_column(field: pa.Field) -> FoundColumn:
    """Return a column by its Arrow type."""
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if pa.types.is_time(kind):
        return FoundColumn(field.name, ColumnType.INTERVAL, str(field.type), field.nullable, clock=True)
    if is_kind(kind, "list", "large_list", "fixed_size_list"):
        element = _ELEMENTS.get(str(kind.value_type), str(kind.value_type))
        return found_column(field.name, f"{element}[]", nullable=field.nullable)
    if pa.types.is_struct(kind):
        return found_column(field.name, "STRUCT", nullable=field.nullable)
    logical = next((found for found in ColumnType if is_kind(kind, *found.logical.arrow_kinds)), None)
    precision, scale = (kind.precision, kind.scale) if pa.types.is_decimal(kind) else (None, None)
    unknown = (
        SEVERAL_VALUES
        if pa.types.is_nested(kind)
        else "has no counterpart here; store it as another type, or do without this column"
    )
    note = unknown if logical is None else None
    return FoundColumn(field.name, logical, str(field.type), field.nullable, precision, scale, note=note)


def _stored_rows(table: Table, path: Path) -> Iterator[pa.Table]:
    return csv_batches(table, path) if is_csv(path) else _parquet_batches(table, path)


def _parquet_batches(table: Table, path: Path) -> Iterator[pa.Table]:
    if path.stat().st_size == 0:
        raise SourceError(f"{table.name}: {path.name} is an empty file; write the table again")
    wanted = [column.name for column in table.columns]
    try:
        with pq.ParquetFile(path) as file:
            check_columns(table, file.schema_arrow.names)
            yield file.schema_arrow.empty_table().select(wanted)  # a table without rows still has its columns
            for batch in file.iter_batches(_ROWS, columns=wanted, use_threads=False):
                yield pa.Table.from_batches([batch])
    except (pa.ArrowException, OSError):  # Arrow's message may quote values
        raise _no_parquet(table.name, path) from None
