"""From the columns of a source to the canonical Arrow types, without loss or with an error.

How each type is read is in `LogicalType.read`. Arrow's errors quote the value that they stumble over, so none of them
may leave this module: they are replaced by one that names the column and the two types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from privbench_core.errors import SourceError
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.tables import Table
from privbench_core.schema.types.base import is_kind


def canonical_table(table: Table, read: Callable[[str], pa.ChunkedArray]) -> pa.Table:
    """Return the declared columns of a table in their canonical types, in spec order.

    Args:
        table: What the spec declares.
        read: Returns the values of a column by its name.

    Raises:
        SourceError: Some columns do not fit their types; a line for each, without a value.
    """
    arrays: list[pa.ChunkedArray] = []
    problems: list[str] = []
    for column in table.columns:
        values = _plain(read(column.name))
        refusal = refused(column, nested=pa.types.is_nested(values.type), time=pa.types.is_time(values.type))
        if refusal:
            problems.append(f"{table.name}.{column.name}: {refusal}")
            continue
        try:
            if column.logical.textual:
                values.validate(full=True)  # a Parquet file may hold bytes as text that are no UTF-8
            if column.format is not None and is_kind(values.type, "string", "large_string"):
                values = pc.strptime(values, column.format, "us")
            arrays.append(column.logical.read(values, column.arrow_type))
        except (pa.ArrowException, ValueError, OverflowError):  # what Python reads for Arrow fails in its own ways
            problems.append(_misfit(table, column, values.type))
    if problems:
        raise SourceError("\n".join(problems))
    # Undeclared NULLs are found by `integrity`: here every field admits them.
    return pa.table(arrays, pa.schema([(column.name, column.arrow_type) for column in table.columns]))


def joined(batches: Iterable[pa.Table]) -> pa.Table:
    """Return tables of the same columns, at least one, as one table with one chunk per column."""
    parts = list(batches)
    columns = dict(zip(parts[0].column_names, pa.concat_tables(parts).columns, strict=True))
    parts.clear()
    for name in list(columns):
        # One after the other, so that only one is in memory twice. Taking rows from many chunks joins them each time.
        columns[name] = pa.table({name: columns.pop(name)}).combine_chunks().column(0)
    return pa.table(columns)


def canonical_parts(table: Table, batches: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield `canonical_table` of each part, so that the source's form of the rows is never all in memory.

    Where all rows decide how a column's values are read, there is one part.

    Raises:
        SourceError: As `canonical_table`, of all rows, when the last part is asked for.
    """
    if any(column.logical.reads_whole for column in table.columns):
        batches = [pa.concat_tables(batches)]
    problems: dict[str, None] = {}
    for batch in batches:
        try:
            found = canonical_table(table, batch.column)
        except SourceError as error:
            problems |= dict.fromkeys(str(error).splitlines())
        else:
            yield found
    if problems:
        raise SourceError("\n".join(problems))


def refused(column: Column, *, nested: bool, time: bool) -> str | None:
    """Return why a column with such a source type is not read, and what to do; None if it is read.

    Args:
        column: As declared.
        nested: Whether the source's type holds several values: an array, a list, a struct or a map.
        time: Whether the source's type is a time of day.
    """
    if nested and not column.logical.structured:
        return "an array or a nested type; leave the column out of the spec, or give a view with one value per column"
    if time and not column.logical.time_of_day:
        return f"a time of day, which cannot be read as {column.type}; declare it as interval (or as text)"
    return None


def _misfit(table: Table, column: Column, found: pa.DataType) -> str:
    what = f"some values of the source's type {found} do not fit type {column.logical}"
    form, other = "", "another type"
    if "precision" in column.logical.options:
        form = "if they have more digits, correct precision and scale; else "
    if is_kind(found, "string", "large_string") and not column.logical.textual:
        other = "another type (category keeps them as they are written)"
        if column.logical.calendar:
            form = "if they are dates, declare how they are written, as format: '%d/%m/%Y'; else "
            if column.type is ColumnType.DATE:
                form = f"if they have times, declare type: timestamp; {form}"
    return f"{table.name}.{column.name}: {what}; {form}declare {other}, or fix the source"


def _plain(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return values without a dictionary or an extension type (Arrow's own ones for UUIDs and JSON) around them."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if isinstance(values.type, pa.BaseExtensionType):
        values = pa.chunked_array([chunk.storage for chunk in values.chunks], values.type.storage_type)
    if values.type in {pa.string_view(), pa.binary_view()}:
        values = values.cast(pa.large_string() if values.type == pa.string_view() else pa.large_binary())
    return values
