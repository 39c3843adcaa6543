"""Domains proposed from public example data: a folder of files like the source's, whose rows anybody may see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from privbench_core.backends.folder.catalogue import arrow_column
from privbench_core.errors import SourceError
from privbench_core.schema.columns import ColumnType, Domain, Range, Values

if TYPE_CHECKING:
    import pyarrow as pa

_MAX_VALUES = 50  # a longer list is for the owner to write, or to be learned


@dataclass(frozen=True)
class SampleColumn:
    """What the example rows show of a column: its type, and a domain that holds them."""

    type: ColumnType | None
    domain: Domain | None


Samples = Mapping[str, Mapping[str, SampleColumn]]


def read_samples(folder: Path) -> Samples:
    """Read every Parquet and CSV file of a folder; by table, then by column.

    Raises:
        SourceError: The folder holds no such file, or one that cannot be read.
    """
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix.lower() in {".parquet", ".csv"})
    except OSError as error:
        raise SourceError(f"samples: {folder} cannot be read ({error.strerror}); check the folder") from None
    if not files:
        raise SourceError(f"samples: {folder} holds no .parquet or .csv file; put one per table there")
    return {path.stem: _columns(path) for path in files}


def _columns(path: Path) -> dict[str, SampleColumn]:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq

    try:
        rows = pa.csv.read_csv(path) if path.suffix.lower() == ".csv" else pq.read_table(path)
    except (pa.ArrowException, OSError):
        raise SourceError(
            f"samples: {path.name} is not readable; write it again as Parquet or as CSV in UTF-8"
        ) from None
    return {field.name: _column(field, rows.column(index)) for index, field in enumerate(rows.schema)}


def _column(field: pa.Field, values: pa.ChunkedArray) -> SampleColumn:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = arrow_column(field).type
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    values = values.drop_null()
    if kind is None or len(values) == 0:
        return SampleColumn(kind, None)
    if kind is ColumnType.CATEGORY:
        distinct = sorted(set(values.unique().to_pylist()))
        return SampleColumn(kind, Values(tuple(distinct)) if len(distinct) <= _MAX_VALUES else None)
    if kind not in {ColumnType.INTEGER, ColumnType.DECIMAL, ColumnType.FLOAT, ColumnType.DATE, ColumnType.TIMESTAMP}:
        return SampleColumn(kind, None)
    ends = pc.min_max(values).as_py()
    low, high = (_canonical(kind, ends[end]) for end in ("min", "max"))
    return SampleColumn(kind, None if low is None or high is None else Range(low, high))


def _canonical(kind: ColumnType, value: object) -> str | int | float | None:
    plain = value if isinstance(value, int | float) else str(value)
    return kind.logical.parse(plain)
