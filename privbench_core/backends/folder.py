"""A folder of Parquet and CSV files.

A table is a file, or a folder of Parquet files with the same columns (``orders/part-*.parquet``, as engines write it).
What is called ``.name`` or ``_name`` is not data, as for those engines.

Arrow reads a quote of a CSV file that does not close as one long value, up to the next quote or the end of the file,
and says nothing: rows are lost. Which line it is follows from private rows, so only the owner sees it. The first line
of a file without a header is a private row too, so it is quoted only where it may be a line of names.
"""

from __future__ import annotations

import csv
import gzip
import re
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from privbench_core.backends import Source, canonical_parts, check_columns, check_table, parts_of
from privbench_core.backends.catalogue import CSV, SEVERAL_VALUES, Catalogue, FoundColumn, FoundTable, found_column
from privbench_core.backends.integrity import fingerprint_files
from privbench_core.errors import SourceError, did_you_mean
from privbench_core.schema.columns import ColumnType
from privbench_core.schema.tables import Table
from privbench_core.schema.types.base import is_kind
from privbench_core.spec.model import VersionQuery, Watermark

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
            # More rows at a time take memory, and no less time.
            for batch in file.iter_batches(1 << 18, columns=wanted, use_threads=False):
                yield pa.Table.from_batches([batch])
    except (pa.ArrowException, OSError):  # Arrow's message may quote values
        raise _no_parquet(table.name, path) from None


_SEPARATORS = ",;\t|"
_BYTES = 1 << 24  # of a file at a time: more than any row has


def unzipped(path: Path) -> Path:
    """Return the name of a file without the ``.gz`` of one that is compressed."""
    return path.with_suffix("") if path.suffix.lower() == ".gz" else path


def is_csv(path: Path) -> bool:
    """Return whether a file is CSV, perhaps compressed, by its name."""
    return unzipped(path).suffix.lower() in {".csv", ".tsv"}


def separator(path: Path) -> str:
    """Return what stands most often between the names in the first line of a file; a comma if nothing does."""
    with _text(path, errors="replace") as lines:
        unquoted = re.sub(r'"[^"]*"?', "", lines.readline(_BYTES))
    return max(_SEPARATORS, key=unquoted.count)


def csv_columns(table: str, path: Path) -> tuple[FoundColumn, ...]:
    """Return the columns that the first line names; SourceError if it may be a row of values."""
    header = _header(table, path)
    if not _may_be_names(header):
        found = "the first line has the same name twice, or a name without a letter or with a separator in it"
        todo = "put a line with the names of the columns before the rows, with commas between them"
        raise SourceError(f"{table}: {path.name}: {found}; {todo}")
    return tuple(FoundColumn(name, ColumnType.CATEGORY, CSV, nullable=True) for name in header)


def csv_batches(table: Table, path: Path) -> Iterator[pa.Table]:
    """Yield the declared columns as text, see `Source.stored_rows`."""
    with _readable(table.name, path):
        yield from _batches(table, path)


def _batches(table: Table, path: Path) -> Iterator[pa.Table]:
    wanted = [column.name for column in table.columns]
    header = _header(table.name, path)
    if not header:
        raise SourceError(f"{table.name}: {path.name} is empty; it needs at least a line with the column names")
    names = header if _may_be_names(header) else []  # else nothing of it is quoted
    check_columns(table, header, lambda name, _: _nearest(name, names))
    if _has_quotes(path) and (problem := _first_problem(path, fields=False)):
        what = "a quote is not closed, or stands unescaped inside a quoted value"
        raise _irregular(table, path, f"{what}; write the file again, with every quote inside a value doubled", problem)
    convert = pyarrow.csv.ConvertOptions(
        include_columns=wanted,
        column_types=dict.fromkeys(wanted, pa.string()),
        null_values=["", r"\N"],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    parse = pyarrow.csv.ParseOptions(delimiter=separator(path), newlines_in_values=True)
    read = pyarrow.csv.ReadOptions(block_size=_BYTES)
    try:
        with pyarrow.csv.open_csv(path, read_options=read, parse_options=parse, convert_options=convert) as reader:
            yield from parts_of(reader)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        if "utf8" in str(error).lower():  # Arrow's message goes no further: it may quote a row
            raise _not_utf8(table.name, path) from None
        what = "some line has more or fewer fields than the header; write the file again"
        raise _irregular(table, path, what, _first_problem(path, fields=True)) from None


def _opener(path: Path) -> Callable[..., IO[Any]]:
    return open if unzipped(path) == path else gzip.open


def _text(path: Path, errors: str = "strict") -> IO[str]:
    return _opener(path)(path, "rt", encoding="utf-8-sig", errors=errors, newline="")


@contextmanager
def _readable(table: str, path: Path) -> Iterator[None]:
    """Refuse a file that the system does not read, or whose compressed bytes are damaged."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or "it is not what its name says, or damaged"
        raise SourceError(f"{table}: {path.name} cannot be read ({why}); check the file") from None


def _header(table: str, path: Path) -> list[str]:
    """Return the first line of a file; [] if it has none. No message quotes it."""
    try:
        with _readable(table, path), _text(path) as lines:
            return next(csv.reader(lines, delimiter=separator(path)), [])
    except UnicodeDecodeError:
        raise _not_utf8(table, path) from None
    except csv.Error:  # a name with more characters than the reader takes, or a quote that is never closed
        found = "the first line does not name the columns, with commas between them"
        raise SourceError(f"{table}: {path.name}: {found}; write it again") from None


def _may_be_names(header: list[str]) -> bool:
    """Return whether columns may be called so.

    Nearly all rows of values have a number, a date or NULL among them, or, if read with the wrong separator, that one.
    """
    # A name like "+/-" has neither letters nor digits.
    wordy = (bool(n.strip()) and (any(map(str.isalpha, n)) or not any(map(str.isdigit, n))) for n in header)
    usual = (
        n.isprintable() and is_wordy and not {";", "|"}.intersection(n)
        for n, is_wordy in zip(header, wordy, strict=True)
    )
    return len(set(header)) == len(header) and all(usual)


def _nearest(name: str, header: list[str]) -> str:
    """Return a hint that quotes no more of the first line than a name like ``name``."""
    if get_close_matches(name, header, n=1):
        return did_you_mean(name, header)
    return "the first line of the file must name the columns, with commas between them"


def _not_utf8(table: str, path: Path) -> SourceError:
    return SourceError(f"{table}: {path.name} is not UTF-8; convert it to UTF-8")


def _irregular(table: Table, path: Path, what: str, where: str | None) -> SourceError:
    return SourceError(f"{table.name}: {path.name} is not regular CSV, {what}", private_detail=where)


def _has_quotes(path: Path) -> bool:
    """Return whether there is a quote in a file; one without is not parsed twice."""
    with _opener(path)(path, "rb") as file:
        return any(b'"' in block for block in iter(lambda: file.read(_BYTES), b""))


def _first_problem(path: Path, *, fields: bool) -> str | None:
    """Return where the file first breaks the rules, for the owner; None if Python's strict reader finds nothing.

    Args:
        path: The file.
        fields: Whether the number of fields counts, or only quotes.
    """
    limit = csv.field_size_limit(sys.maxsize)  # a value may be long; the default refuses 131,072 characters
    try:
        with _text(path) as lines:
            reader = csv.reader(lines, delimiter=separator(path), strict=True)
            header = next(reader, [])
            number, started = 1, reader.line_num + 1
            try:
                for number, row in enumerate(reader, start=2):
                    if fields and row and len(row) != len(header):
                        last = header[min(len(row), len(header)) - 1]
                        what = f"{len(row)} fields where the header has {len(header)}"
                        return f"line {started}, row {number - 1}: {what}; the last that fits is column {last}"
                    started = reader.line_num + 1
            except csv.Error:
                column = _column(path, started, header)
                return f"line {started}, row {number}: the quoted value of column {column} is not closed properly"
    except UnicodeDecodeError:
        return None
    finally:
        csv.field_size_limit(limit)
    return None


def _column(path: Path, started: int, header: list[str]) -> str:
    """Return the column of the first value of a row whose quote is still open at the end of the line, or goes on."""
    between = re.escape(separator(path))
    regular = re.compile(rf'(?:"(?:[^"]|"")*"|[^"{between}][^{between}]*|){between}')  # a value, and what ends it
    with _text(path) as lines:
        text = next((line for number, line in enumerate(lines, start=1) if number == started), "")
    position = end = 0
    while found := regular.match(text, end):
        position, end = position + 1, found.end()
    return header[position] if position < len(header) else str(position + 1)
