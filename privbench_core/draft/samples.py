"""Propose domains from public example data: a folder of files like the source's, whose rows are public."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from privbench_core.backends.folder import arrow_column, is_csv, separator, stored_tables
from privbench_core.errors import SourceError
from privbench_core.schema.columns import ColumnType, Domain, Range, Values

_RANGED = {ColumnType.INTEGER, ColumnType.DECIMAL, ColumnType.FLOAT, ColumnType.DATE, ColumnType.TIMESTAMP}


@dataclass(frozen=True)
class SampleColumn:
    """The type of a column in the example rows, and a domain that contains their values."""

    type: ColumnType | None
    domain: Domain | None


Samples = Mapping[str, Mapping[str, SampleColumn]]


def read_samples(folder: Path) -> Samples:
    """Read every Parquet file, folder of Parquet files and CSV file of a folder; by table, then by column.

    Raises:
        SourceError: The folder holds no such file, or one that cannot be read.
    """
    tables = stored_tables(folder, "samples")
    if not tables:
        raise SourceError(f"samples: {folder} holds no .parquet or .csv file; put one per table there")
    return {name: _columns(files) for name, files in tables}


def _columns(files: Sequence[Path]) -> dict[str, SampleColumn]:
    parts = [_read(path) for path in files]
    try:
        rows = pa.concat_tables(parts, promote_options="permissive") if len(parts) > 1 else parts[0]
    except pa.ArrowException:
        raise SourceError(f"samples: the files of {files[0].parent.name} differ in their columns") from None
    return {field.name: _column(field, rows.column(index)) for index, field in enumerate(rows.schema)}


def _read(path: Path) -> pa.Table:
    try:
        if is_csv(path):
            return pa.csv.read_csv(path, parse_options=pa.csv.ParseOptions(delimiter=separator(path)))
        return pq.ParquetFile(path).read()
    except (pa.ArrowException, OSError):
        raise SourceError(
            f"samples: {path.name} is not readable; write it again as Parquet or as CSV in UTF-8"
        ) from None


def _column(field: pa.Field, values: pa.ChunkedArray) -> SampleColumn:
    kind = arrow_column(field).type
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    values = values.drop_null()
    domain: Domain | None = None
    # Longer lists are left for the owner to write, or to be learned; chosen by hand.
    if kind is ColumnType.CATEGORY and 0 < pc.count_distinct(values).as_py() <= 50:  # noqa: PLR2004
        domain = Values(tuple(sorted(values.unique().to_pylist())))
    elif kind in _RANGED and len(values):
        ends = pc.min_max(values).as_py()
        plain = (ends[end] if isinstance(ends[end], int | float) else str(ends[end]) for end in ("min", "max"))
        low, high = map(kind.logical.parse, plain)
        domain = None if low is None or high is None else Range(low, high)
    return SampleColumn(kind, domain)
