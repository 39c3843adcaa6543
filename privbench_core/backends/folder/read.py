"""A folder with one Parquet or CSV file per table, or a folder of Parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from privbench_core.backends.base import check_columns, check_table
from privbench_core.backends.cast import canonical_batches, canonical_parts, canonical_table
from privbench_core.backends.fingerprint import fingerprint_files, fingerprint_rows
from privbench_core.backends.folder.catalogue import csv_header, is_csv, may_be_names, stored_tables
from privbench_core.backends.folder.csv_lines import irregular, refuse_broken_quotes, separator
from privbench_core.errors import SourceError, did_you_mean
from privbench_core.schema.change import VersionQuery, Watermark
from privbench_core.schema.tables import Table

_ROWS = 1 << 18  # of a Parquet file at a time: more take memory, and no less time
_BYTES = 1 << 24  # of a CSV file at a time: more than any row has


@dataclass(frozen=True)
class FolderSource:
    r"""Files named ``<table>.parquet``, ``.csv`` or ``.tsv``, or folders of Parquet files named ``<table>``.

    CSV files have a header and UTF-8, and commas, semicolons, tabs or bars between fields. An empty field is NULL, and
    so is ``\N``, as databases write it; quoted, they are text.
    """

    folder: Path

    def tables(self) -> list[str]:
        """Stems of the files, and names of the folders."""
        return sorted({name for name, _ in self._stored()})

    def read(self, table: Table) -> pa.Table:
        """See `Source.read`."""
        first, *rest = self._files(table)
        if is_csv(first):
            return canonical_batches(table, _csv_batches(table, first))
        return pa.concat_tables([_read_parquet(table, path) for path in (first, *rest)])

    def batches(self, table: Table) -> Iterator[pa.Table]:
        """See `Source.batches`."""
        files = self._files(table)
        stored = _csv_batches if is_csv(files[0]) else _parquet_batches
        return chain.from_iterable(canonical_parts(table, stored(table, path)) for path in files)

    def parquet_files(self, table: Table) -> tuple[Path, ...]:
        """Return the Parquet files of a table; SourceError if it is a CSV file."""
        files = self._files(table)
        if is_csv(files[0]):
            found = f"engine spark reads Parquet files, and {files[0].name} is none"
            raise SourceError(f"{table.name}: {found}; run with --engine duckdb")
        return files

    def _files(self, table: Table) -> tuple[Path, ...]:
        """Return the one file of a table, or those of its folder."""
        check_table(table.name, self.tables())
        found = [files for name, files in self._stored() if name == table.name]
        if len(found) > 1:
            ends = (files[0] if files[0].parent == self.folder else files[0].parent for files in found)
            names = " and ".join(path.name for path in ends)
            raise SourceError(f"{table.name}: two files hold this table, {names}; remove one")
        return found[0]

    def known_rows(self, table: Table) -> int | None:
        """See `Source.known_rows`: Parquet files say it."""
        files = self._files(table)
        try:
            return None if is_csv(files[0]) else sum(pq.read_metadata(file).num_rows for file in files)
        except (pa.ArrowException, OSError):  # reading the table reports it
            return None

    def fingerprint(self, table: Table) -> str:
        """See `Source.fingerprint`."""
        return fingerprint_rows(table, self.read(table))

    def version(self, table: Table, change: Watermark | VersionQuery) -> str:
        """See `Source.version`. A folder has none."""
        asked = "watermark" if isinstance(change, Watermark) else "sql"
        found = f"change: {{{asked}: ..}} needs a database, and the source is a folder"
        raise SourceError(
            f"{table.name}: {found}; remove the line: files whose bytes did not change are not read again"
        )

    def stored(self, tables: Sequence[Table]) -> dict[str, str]:
        """See `Source.stored`."""
        digests: dict[str, str] = {}
        files: dict[str, list[Path]] = {table.name: [] for table in tables}
        for name, stored in self._stored():
            files.get(name, []).extend(stored)
        for name, paths in files.items():
            with suppress(OSError):  # reading the table reports it
                digests |= {name: fingerprint_files(paths)} if paths else {}
        return digests

    def _stored(self) -> list[tuple[str, tuple[Path, ...]]]:
        try:
            return stored_tables(self.folder)
        except OSError as error:
            raise SourceError(f"source: {self.folder} cannot be read ({error.strerror}); check the folder") from None


@dataclass(frozen=True)
class _Stored:
    """The columns of a Parquet file, each read when it is asked for."""

    file: pq.ParquetFile

    def column(self, name: str, /) -> pa.ChunkedArray:
        return self.file.read([name]).column(name)


def _read_parquet(table: Table, path: Path) -> pa.Table:
    with _parquet(table, path) as file:
        return canonical_table(table, _Stored(file))


def _parquet_batches(table: Table, path: Path) -> Iterator[pa.Table]:
    with _parquet(table, path) as file:
        wanted = [column.name for column in table.columns]
        yield file.schema_arrow.empty_table().select(wanted)  # a table without rows still has its columns
        for batch in file.iter_batches(_ROWS, columns=wanted, use_threads=False):
            yield pa.Table.from_batches([batch])


@contextmanager
def _parquet(table: Table, path: Path) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file that has the declared columns, and replace Arrow's errors, which may quote values."""
    if path.stat().st_size == 0:
        raise SourceError(f"{table.name}: {path.name} is an empty file; write the table again")
    try:
        with pq.ParquetFile(path) as file:
            check_columns(table, file.schema_arrow.names)
            yield file
    except (pa.ArrowException, OSError):
        raise SourceError(f"{table.name}: {path.name} is not a readable Parquet file; write it again") from None


def _csv_batches(table: Table, path: Path) -> Iterator[pa.Table]:
    wanted = [column.name for column in table.columns]
    header = _header(table, path)
    names = header if may_be_names(header) else []  # else nothing of it is quoted
    check_columns(table, header, lambda name, _: _nearest(name, names))
    convert = pyarrow.csv.ConvertOptions(
        include_columns=wanted,
        column_types=dict.fromkeys(wanted, pa.string()),
        null_values=["", r"\N"],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    parse = pyarrow.csv.ParseOptions(delimiter=separator(path), newlines_in_values=True)
    refuse_broken_quotes(table.name, path)
    try:
        read = pyarrow.csv.ReadOptions(block_size=_BYTES)
        with pyarrow.csv.open_csv(path, read_options=read, parse_options=parse, convert_options=convert) as reader:
            yield reader.schema.empty_table()  # a table without rows still has its columns
            for batch in reader:
                yield pa.Table.from_batches([batch])
    except (pa.ArrowException, UnicodeDecodeError) as error:
        if "utf8" in str(error).lower():  # Arrow's message goes no further: it may quote a row
            raise _not_utf8(table, path) from None
        raise irregular(table.name, path) from None


def _header(table: Table, path: Path) -> list[str]:
    header = csv_header(table.name, path)
    if not header:
        raise SourceError(f"{table.name}: {path.name} is empty; it needs at least a line with the column names")
    return header


def _nearest(name: str, header: list[str]) -> str:
    """A hint that quotes no more of the first line than a name like ``name``."""
    if get_close_matches(name, header, n=1):
        return did_you_mean(name, header)
    return "the first line of the file must name the columns, with commas between them"


def _not_utf8(table: Table, path: Path) -> SourceError:
    return SourceError(f"{table.name}: {path.name} is not UTF-8; convert it to UTF-8")
