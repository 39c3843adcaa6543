"""The files of a table's rows in a bundle: Parquet, and the same rows as CSV, of the whole table or range by range."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from privbench_core.columns.systematic import ascends
from privbench_core.errors import InternalError
from privbench_core.files import file_name
from privbench_core.guards import RANGE_ROWS
from privbench_core.publishing.texts import write_csv
from privbench_core.schema.tables import Schema, Table
from privbench_core.workers import side_by_side

if TYPE_CHECKING:
    from privbench_core.backends.duckdb import RowTrial


def write_rows(sink: Path | pa.NativeFile, rows: pa.Table) -> None:
    """Write rows as a Parquet file whose bytes depend on the rows alone.

    There is one chunk per row group, whatever chunks they are in, and no metadata of other programs. Finished ranges of
    rows are stored in this form, so that publishing them takes no more than copying.

    Keys in ascending order are stored as differences, in a quarter of the time that a dictionary of them takes to find
    out that it is too large.
    """
    rising = [name for name in rows.column_names if ascends(rows.column(name), strictly=False)]
    options = {
        "compression": "zstd",
        "use_dictionary": [name for name in rows.column_names if name not in rising],
        "column_encoding": dict.fromkeys(rising, "DELTA_BINARY_PACKED"),
    }
    with pq.ParquetWriter(sink, rows.schema.remove_metadata(), **options) as writer:
        for start in range(0, max(rows.num_rows, 1), RANGE_ROWS):
            part = rows.slice(start, RANGE_ROWS).replace_schema_metadata()
            writer.write_table(part.combine_chunks(), row_group_size=RANGE_ROWS)


@dataclass(frozen=True)
class RowRanges:
    """The rows of a table, range by range.

    Attributes:
        count: Number of ranges.
        write: Writes a range as `write_rows` does; picklable if there are several.
    """

    count: int
    write: Callable[[int, Path], None]


def write_ranges(
    folder: Path, schema: Schema, table: Table, rows: pa.Table | RowRanges, *, csv: bool, workers: int | None
) -> list[dict[str, Any]]:
    """Write the rows of a table, and return what the manifest says of each file; see `write_bundle`."""
    from privbench_core.backends.duckdb import RowTrial

    ranges = rows if isinstance(rows, RowRanges) else RowRanges(1, lambda _, file: write_table(file, table, rows))
    trial = RowTrial.of(schema, [table.name]) if ranges.count > 1 else None
    writing = partial(_write_range, folder, table, ranges, trial, csv)
    return list(side_by_side(writing, range(ranges.count), workers))


def _write_range(
    folder: Path, table: Table, ranges: RowRanges, trial: RowTrial | None, csv: bool, number: int
) -> dict[str, Any]:
    """Write a range and return its files, their checksums and its rows; one of several is tried against the DDL."""
    stem = f"data/{file_name(table.name)}" + (f"/part-{number:05d}" if ranges.count > 1 else "")
    (folder / stem).parent.mkdir(exist_ok=True)
    file, copy = f"{stem}.parquet", f"{stem}.csv.gz" if csv else None
    ranges.write(number, folder / file)
    written = pq.read_metadata(folder / file)
    found = written.schema.to_arrow_schema()
    _refuse_other_columns(table, found.names)
    if not found.equals(table.arrow_schema):
        raise InternalError(f"{table.name}: the rows for the bundle do not fit their columns: {found}")
    if trial is not None:
        trial({table.name: folder / file})
    if copy is not None:
        write_csv(table, folder / file, folder / copy)
    csv_digest = file_digest(folder / copy) if copy else None
    described = {"file": file, "rows": written.num_rows, "sha256": file_digest(folder / file)}
    return {**described, "csv": copy, "csv_sha256": csv_digest}


def write_table(file: Path, table: Table, rows: pa.Table) -> None:
    """Write the rows of a table as its file in a bundle; InternalError if they do not fit its columns."""
    _refuse_other_columns(table, rows.column_names)
    try:
        canonical = rows.select(table.arrow_schema.names).cast(table.arrow_schema)
    except ValueError as error:
        raise InternalError(f"{table.name}: the rows for the bundle do not fit their columns: {error}") from error
    write_rows(file, canonical)


def _refuse_other_columns(table: Table, found: Sequence[str]) -> None:
    names = [column.name for column in table.columns]
    if sorted(found) != sorted(names):
        raise InternalError(f"{table.name}: columns {list(found)} were given for the bundle; expected {names}")


def file_digest(file: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
