"""CSV files: their columns, their rows as text, and where a file is not regular.

Arrow reads a quote that does not close as one long value, up to the next quote or the end of the file, and says
nothing: rows are lost. Which line it is follows from private rows, so only the owner sees it. The first line of a file
without a header is a private row too, so it is quoted only where it may be a line of names.
"""

from __future__ import annotations

import csv
import gzip
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv

from privbench_core.backends.base import check_columns, parts_of
from privbench_core.backends.catalogue import CSV, FoundColumn
from privbench_core.errors import SourceError, did_you_mean
from privbench_core.schema.columns import ColumnType
from privbench_core.schema.tables import Table

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
