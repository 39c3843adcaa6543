"""The catalogue of a folder: the schemas of Parquet files and the headers of CSV files.

A table is a file, or a folder of Parquet files with the same columns (``orders/part-*.parquet``, as engines write it).
What is called ``.name`` or ``_name`` is not data, as for those engines.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from privbench_core.backends.catalogue import Catalogue, FoundColumn, FoundTable
from privbench_core.backends.folder.csv_lines import separator
from privbench_core.errors import SourceError
from privbench_core.schema.columns import ColumnType
from privbench_core.schema.types.base import is_kind

if TYPE_CHECKING:
    import pyarrow as pa

CSV = "CSV"
"""The native type of every column of a CSV file, which gives none."""


def folder_catalogue(folder: Path) -> Catalogue:
    """Return one table per file or folder of files, called by its stem.

    Raises:
        SourceError: A file cannot be read, or one of several files of a table lacks a column.
    """
    tables = tuple(
        FoundTable(name, _csv_columns(name, files[0]) if is_csv(files[0]) else _columns_of_parts(name, files))
        for name, files in stored_tables(folder)
    )
    return Catalogue(folder.resolve().name, tables)


def stored_tables(folder: Path) -> list[tuple[str, tuple[Path, ...]]]:
    """Return the tables of a folder with their files, in the order of names; OSError if it cannot be read."""
    found = []
    for path in _data(folder):
        if path.is_dir():
            with suppress(PermissionError):  # lost+found, and the like: not a table that could be declared
                parts = tuple(part for part in _data(path) if _is_parquet(part) and part.is_file())
                found += [(path.stem if _is_parquet(path) else path.name, parts)] if parts else []
        elif _is_parquet(path) or is_csv(path):
            found.append((path.stem, (path,)))
    return found


def _data(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith((".", "_")))


def is_csv(path: Path) -> bool:
    """Whether a file is CSV, by its name; what separates its fields, its first line says."""
    return path.suffix.lower() in {".csv", ".tsv"}


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() == ".parquet"


def _columns_of_parts(table: str, files: Sequence[Path]) -> tuple[FoundColumn, ...]:
    columns, *others = (_parquet_columns(table, path) for path in files)
    for path, other in zip(files[1:], others, strict=True):
        if missing := {column.name for column in columns} - {column.name for column in other}:
            found = f"{path.name} has no {min(missing)}, unlike {files[0].name}: a folder in a source is one table"
            raise SourceError(f"{table}: {found}; give {path.parent} as the source if its files are tables")
    return columns


def _parquet_columns(table: str, path: Path) -> tuple[FoundColumn, ...]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(path)
    except (pa.ArrowException, OSError):
        raise SourceError(f"{table}: {path.name} is not a readable Parquet file; write it again") from None
    return tuple(arrow_column(field) for field in schema)


def arrow_column(field: pa.Field) -> FoundColumn:
    """Return a column by its Arrow type."""
    import pyarrow as pa

    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    logical = next((found for found in ColumnType if is_kind(kind, *found.logical.arrow_kinds)), None)
    precision, scale = (kind.precision, kind.scale) if pa.types.is_decimal(kind) else (None, None)
    note = None
    if pa.types.is_time(kind):
        return FoundColumn(field.name, ColumnType.INTERVAL, str(field.type), field.nullable, clock=True)
    if logical is None and pa.types.is_nested(kind):
        note = "holds several values in one; make it a table of its own in the source, or do without"
    elif logical is None:
        note = "has no type here; store it as another, or do without"
    return FoundColumn(field.name, logical, str(field.type), field.nullable, precision, scale, note=note)


def _csv_columns(table: str, path: Path) -> tuple[FoundColumn, ...]:
    header = csv_header(table, path)
    if not may_be_names(header):
        found = "the first line has the same name twice, or one without a letter or with a separator in it"
        todo = "put a line with the names of the columns before the rows, with commas between them"
        raise SourceError(f"{table}: {path.name}: {found}; {todo}")
    return tuple(FoundColumn(name, ColumnType.CATEGORY, CSV, nullable=True) for name in header)


def may_be_names(header: list[str]) -> bool:
    """Whether columns may be called so.

    A first line of values is a private row, which nothing may quote; nearly all have a number, a date or NULL among
    them, or, if read with the wrong separator, that separator.
    """
    usual = (n.isprintable() and any(map(str.isalpha, n)) and not {";", "|"}.intersection(n) for n in header)
    return len(set(header)) == len(header) and all(usual)


def csv_header(table: str, path: Path) -> list[str]:
    """Return the first line of a CSV file; [] if it has none. No message quotes it: it may be a private row.

    Raises:
        SourceError: It cannot be read.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            return next(csv.reader(lines, delimiter=separator(path)), [])
    except UnicodeDecodeError:
        raise SourceError(f"{table}: {path.name} is not UTF-8; convert it to UTF-8") from None
    except csv.Error:  # a name with more characters than the reader takes, or a quote that is never closed
        found = "the first line does not name the columns, with commas between them"
        raise SourceError(f"{table}: {path.name}: {found}; write it again") from None
    except OSError as error:
        raise SourceError(f"{table}: {path.name} cannot be read ({error.strerror}); check the file") from None
