"""From whatever a source stores to the canonical Arrow types, without loss or with an error.

Arrow's errors quote the value they stumble over, so none of them may leave this module: they are replaced by one that
names the column and the two types.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from privbench_core.backends.durations import durations
from privbench_core.backends.opaque import as_bytes, uuids
from privbench_core.errors import SourceError
from privbench_core.schema.arrow_types import arrow_type
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.tables import Table

_TEXTUAL = frozenset({ColumnType.CATEGORY, ColumnType.TEXT})


class Columns(Protocol):
    """Columns by name: a table, or a file that reads each when it is asked for."""

    def column(self, name: str, /) -> pa.ChunkedArray:
        """The values of a column."""
        ...


def canonical_table(table: Table, rows: Columns) -> pa.Table:
    """The declared columns of ``rows``, cast, in spec order.

    Args:
        table: What the spec declares.
        rows: At least the declared columns, each once.

    Raises:
        SourceError: Some columns do not fit their types; one line for each, without a value.
    """
    return _canonical(table, table.columns, rows)


def canonical_batches(table: Table, batches: Iterable[pa.Table]) -> pa.Table:
    """`canonical_table` of rows that come in parts, so that what the source has is never in memory as a whole.

    Args:
        table: What the spec declares.
        batches: At least one, perhaps without rows; all of the same types.

    Raises:
        SourceError: As `canonical_table`.
    """
    # All of a column's texts decide whether they are bytes in hexadecimal.
    last = [column for column in table.columns if column.type is ColumnType.BYTES]
    first = [column for column in table.columns if column not in last]
    parts: list[pa.Table] = []
    problems: dict[str, None] = {}
    for batch in batches:
        found = _canonical_or_problems(table, first, batch)
        if isinstance(found, str):
            problems |= dict.fromkeys(found.splitlines())
            continue
        for column in last:
            found = found.append_column(column.name, batch.column(column.name))
        parts.append(found)
    if problems:
        raise SourceError("\n".join(problems))
    columns = dict(zip(parts[0].column_names, pa.concat_tables(parts).columns, strict=True))
    parts.clear()
    for column in table.columns:
        # One after the other, so that only one is there twice. Taking rows out of many chunks joins them each time.
        joined = pa.table({column.name: columns.pop(column.name)}).combine_chunks()
        columns[column.name] = (joined if column in first else _canonical(table, [column], joined)).column(0)
    return pa.table(columns)


def _canonical_or_problems(table: Table, columns: Sequence[Column], rows: pa.Table) -> pa.Table | str:
    try:
        return _canonical(table, columns, rows)
    except SourceError as error:
        return str(error)


def _canonical(table: Table, columns: Sequence[Column], rows: Columns) -> pa.Table:
    arrays: list[pa.ChunkedArray] = []
    problems: list[str] = []
    for column in columns:
        values = _plain(rows.column(column.name))
        refusal = refused(column, nested=pa.types.is_nested(values.type), time=pa.types.is_time(values.type))
        if refusal:
            problems.append(f"{table.name}.{column.name}: {refusal}")
            continue
        try:
            arrays.append(_cast(values, column))
        except pa.ArrowException:
            problems.append(_misfit(table, column, values.type))
    if problems:
        raise SourceError("\n".join(problems))
    # Whether NULLs are there although none are declared is `integrity`'s question: here every field admits them.
    return pa.Table.from_arrays(arrays, schema=pa.schema([(column.name, arrow_type(column)) for column in columns]))


def refused(column: Column, *, nested: bool, time: bool) -> str | None:
    """Why a column whose source type has no counterpart here is not read, and what to do; None where it is read.

    Args:
        column: As declared.
        nested: Whether the source's type holds several values in one: an array, a list, a struct or a map.
        time: Whether the source's type is a time of day.
    """
    if nested:
        return "an array or a nested type; leave the column out of the spec, or give a view that spreads its values out"
    if time and column.type is not ColumnType.INTERVAL and column.type not in _TEXTUAL:
        return f"a time of day, which cannot be read as {column.type}; declare it as interval (or as text)"
    return None


def _misfit(table: Table, column: Column, found: pa.DataType) -> str:
    declared = f"{column.type}({column.precision},{column.scale})" if column.precision is not None else str(column.type)
    what = f"not every value of the source's type {found} is of type {declared}"
    return f"{table.name}.{column.name}: {what}; declare another type, or fix the source"


def _plain(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values without a dictionary or an extension type (Arrow's own ones for UUIDs and JSON) around them."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if isinstance(values.type, pa.BaseExtensionType):
        values = pa.chunked_array([chunk.storage for chunk in values.chunks], values.type.storage_type)
    if values.type in {pa.string_view(), pa.binary_view()}:
        values = values.cast(pa.large_string() if values.type == pa.string_view() else pa.large_binary())
    return values


def _cast(values: pa.ChunkedArray, column: Column) -> pa.ChunkedArray:
    match column.type:
        case ColumnType.UUID:
            return uuids(values)
        case ColumnType.BYTES:
            return as_bytes(values)
        case ColumnType.INTERVAL:
            return durations(values)
        case _:
            return _converted(values, arrow_type(column))


def _converted(values: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        return _from_text(values, target)
    if pa.types.is_floating(values.type) and not pa.types.is_floating(target):
        # pandas stores integers with gaps as floats, the gaps being NaN.
        values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
    if pa.types.is_temporal(target) and pa.types.is_integer(values.type):
        raise pa.ArrowInvalid("a number is no moment before somebody says since when and in which unit")
    if pa.types.is_decimal(target) and pa.types.is_integer(values.type):
        return values.cast(pa.string()).cast(target)  # Arrow insists on 19 digits in the direct way
    if pa.types.is_boolean(target) and pa.types.is_integer(values.type):
        return _exactly(values, target)
    if pa.types.is_date(target) and pa.types.is_timestamp(values.type):
        return _exactly(_without_zone(values), target)
    if pa.types.is_timestamp(target) and pa.types.is_timestamp(values.type):
        # Below a microsecond nothing is kept; that is no loss worth an error.
        options = pc.CastOptions(target, allow_time_truncate=True)
        return pc.cast(_without_zone(values), options=options)
    return values.cast(target)


def _from_text(values: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_string(target):
        return values.cast(target)
    values = pc.utf8_trim_whitespace(values)
    values = pc.if_else(pc.equal(values, ""), pa.scalar(None, values.type), values)  # no number, no date: nothing
    if pa.types.is_integer(target):
        values = pc.replace_substring_regex(values, r"^([-+]?\d+)\.0*$", r"\1")  # integers with gaps, again
    if pa.types.is_integer(target) or pa.types.is_decimal(target):
        values = pc.replace_substring_regex(values, r"^\+", "")
    if pa.types.is_date(target):
        values = pc.replace_substring_regex(values, r"^(\d{4}-\d\d-\d\d)[T ]00:00(:00(\.0*)?)?$", r"\1")
    return _moments(values, target) if pa.types.is_timestamp(target) else values.cast(target)


def _moments(values: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    """Timestamps from text, each with or without a zone; where there is none it is UTC."""
    values = pc.replace_substring_regex(values, r"(\.\d{6})\d+", r"\1")
    values = pc.replace_substring_regex(values, r"\s*(?:UTC|GMT|z)$", "Z")
    values = pc.replace_substring_regex(values, r"\s+([+-]\d\d(?::?\d\d)?)$", r"\1")
    values = pc.replace_substring_regex(values, r"^(\d{4}-\d\d-\d\d)$", r"\1T00:00:00")
    # Arrow takes a column whose text has a zone everywhere, or nowhere.
    values = pc.replace_substring_regex(values, r"^(\d{4}-\d\d-\d\d[T ][0-9:.]+)$", r"\1Z")
    return values.cast(pa.timestamp("us", "UTC")).cast(target)


def _without_zone(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Timestamps with a zone as naive ones in UTC."""
    return values if values.type.tz is None else values.cast(pa.timestamp(values.type.unit))


def _exactly(values: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    """Cast, and refuse what does not come back: Arrow itself makes 2 a true, and noon a day."""
    result = values.cast(target)
    if not result.cast(values.type).equals(values):
        raise pa.ArrowInvalid("lossy")
    return result
