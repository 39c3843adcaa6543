"""Find where a CSV file is not regular: quotes that do not close, lines with too few or too many fields.

Arrow reads a quote that does not close as one long value, up to the next quote or the end of the file, and says
nothing: rows are lost. Which line it is follows from private rows, so only the owner sees it.
"""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

from privbench_core.errors import SourceError

_SEPARATORS = ",;\t|"
_BYTES = 1 << 22  # of a file at a time, to see whether there is a quote in it; no more than a few values
_REMEDY = "write it again, with every quote inside of a value doubled"


def separator(path: Path) -> str:
    """Return what stands most often between the names in the first line of a file; a comma if nothing does."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
        unquoted = re.sub(r'"[^"]*"?', "", lines.readline(_BYTES))
    return max(_SEPARATORS, key=unquoted.count)


def refuse_broken_quotes(table: str, path: Path) -> None:
    """Raise SourceError if a quoted value does not end, or goes on after its closing quote.

    Files without a quote are not parsed: only their bytes are looked at.
    """
    with path.open("rb") as file:
        if not any(b'"' in block for block in iter(lambda: file.read(_BYTES), b"")):
            return
    found = _first_problem(path, fields=False)
    if found is not None:
        what = "a quote is not closed, or stands inside of a quoted value"
        raise SourceError(f"{table}: {path.name} is not regular CSV, {what}; {_REMEDY}", private_detail=found)


def irregular(table: str, path: Path) -> SourceError:
    """Return the error for a file that Arrow refuses."""
    what = "some line has not as many fields as the header"
    detail = _first_problem(path, fields=True)
    return SourceError(f"{table}: {path.name} is not regular CSV, {what}; write it again", private_detail=detail)


def _first_problem(path: Path, *, fields: bool) -> str | None:
    """Return where the file first breaks the rules, for the owner; None if Python's strict reader finds nothing.

    Args:
        path: The file.
        fields: Whether the number of fields counts, or only quotes.
    """
    limit = csv.field_size_limit(sys.maxsize)  # a value may be long; the default refuses 131,072 characters
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
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
                return f"line {started}, row {number}: the quoted value of column {column} does not end as it should"
    except UnicodeDecodeError:
        return None
    finally:
        csv.field_size_limit(limit)
    return None


def _column(path: Path, started: int, header: list[str]) -> str:
    """Return the column of the first value of a row whose quote is still open at the end of the line, or goes on."""
    between = re.escape(separator(path))
    regular = re.compile(rf'(?:"(?:[^"]|"")*"|[^"{between}][^{between}]*|){between}')  # a value, and what ends it
    with path.open(encoding="utf-8-sig", newline="") as lines:
        text = next((line for number, line in enumerate(lines, start=1) if number == started), "")
    position = end = 0
    while found := regular.match(text, end):
        position, end = position + 1, found.end()
    return header[position] if position < len(header) else str(position + 1)
