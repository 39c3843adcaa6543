"""Data frames for the integrity suite: a synthetic table's columns, and derived columns for checks beyond one column.

Derived columns say whether the referenced parent exists, how many rows share it, whether a column has its Arrow type,
and whether text is well formed. Then every expectation is about columns.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.columns.opaque import length_limit
from privbench_core.columns.systematic import ascends, group_counts
from privbench_core.links.parent_choice import repeated
from privbench_core.sampling.keys import group_numbers, parent_rows, unit_rows
from privbench_core.schema.columns import Column, Pattern
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table

if TYPE_CHECKING:
    import pandas as pd

BETWEEN = "expect_column_values_to_be_between"
IN_SET = "expect_column_values_to_be_in_set"
LENGTHS = "expect_column_value_lengths_to_be_between"


def integrity_frame(
    schema: Schema, table: Table, tables: Mapping[str, pa.Table], wanted: Collection[str] | None = None
) -> pd.DataFrame:
    """Return the rows of ``table`` as a frame, with the derived columns of `integrity_suite`.

    Decimals become floats: rounding keeps the order, so a value inside its range stays inside. Timestamps with a zone
    become UTC without one, intervals their microseconds.

    Args:
        schema: The database.
        table: The table to check.
        tables: Rows of all `tables_to_check`.
        wanted: Columns of the frame, derived ones included; None for all.
    """
    import pandas as pd

    rows = tables[table.name]
    frame = _frame(rows if wanted is None else rows.select([name for name in rows.column_names if name in wanted]))
    derived = pd.DataFrame(_derived(schema, table, tables, wanted), index=pd.RangeIndex(rows.num_rows))
    return pd.concat([frame, derived], axis=1)


def witness_frame(
    schema: Schema, table: Table, tables: Mapping[str, pa.Table], asked: Mapping[str, Collection[str]]
) -> pd.DataFrame:
    """Return witnesses for each column: a few values for which a check holds exactly if it holds for all values.

    Each column has its own witnesses, so the rows are not the table's; the last witness is repeated to make columns
    equally long. NULL is a witness where it occurs. Columns of a wrong type are left out.
    """
    rows = tables[table.name]
    sound = [column.name for column in table.columns if column.name in asked and _has_its_type(column, rows)]
    columns = {name: rows[name].cast(_comparable(rows[name].type)) for name in sound}
    for name, values in _derived(schema, table, tables, asked).items():
        columns[name] = pa.chunked_array([pa.array(values if np.ndim(values) else [values] * min(1, rows.num_rows))])
    found = {name: _witnesses(values, asked[name]) for name, values in columns.items()}
    longest = max((len(values) for values in found.values()), default=0)
    each = np.arange(longest)
    padded = {name: values.take(pa.array(np.minimum(each, len(values) - 1))) for name, values in found.items()}
    return _frame(pa.table(padded))


def repeated_rows(rows: pa.Table, columns: Sequence[str]) -> pd.DataFrame:
    """Return two rows with equal values in some columns, none of them NULL or NaN; if there are none, the first row.

    Columns that are missing are so in the frame, too.
    """
    there = rows.select([name for name in columns if name in rows.column_names])
    compared = [_comparable_values(values.combine_chunks()) for values in there.columns]
    if len(compared) == 1 and ascends(compared[0]):
        return _frame(there.slice(0, 1))
    numbers = group_numbers(compared, rows.num_rows)
    repeats = np.flatnonzero(repeated(numbers))
    which = np.flatnonzero(numbers == numbers[repeats[0]])[:2] if len(repeats) else np.arange(min(1, rows.num_rows))
    return _frame(there.take(pa.array(which)))


def _comparable_values(values: pa.Array) -> pa.Array:
    """Return values that are equal where pandas holds them for equal: there is one zero, and NaN is missing."""
    if not pa.types.is_floating(values.type):
        return values
    return pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), pc.add(values, pa.scalar(0.0, values.type)))


def _witnesses(values: pa.ChunkedArray, asked: Collection[str]) -> pa.Array:
    missing = values.is_null(nan_is_null=True)
    found = [
        values.slice(pc.index(missing, flag).as_py(), 1)
        for flag in (True, False)
        if pc.any(pc.equal(missing, flag)).as_py()
    ]
    if IN_SET in asked:
        found.append(pc.unique(values))
    if BETWEEN in asked:
        ends = pc.min_max(values)
        found.append(pa.array([ends["min"].as_py(), ends["max"].as_py()], values.type))
    if LENGTHS in asked:
        lengths = pc.unique(pc.utf8_length(values)).drop_null()
        found.append(pa.array(["x" * length for length in lengths.to_pylist()], values.type))
    chunks = [chunk for part in found for chunk in (part.chunks if isinstance(part, pa.ChunkedArray) else [part])]
    return pa.concat_arrays(chunks) if len(values) else values.combine_chunks()


def _derived(
    schema: Schema, table: Table, tables: Mapping[str, pa.Table], wanted: Collection[str] | None
) -> dict[str, Any]:
    """Return the derived columns among ``wanted`` (None for all): a value for each row, or one for all."""
    rows = tables[table.name]
    derived: dict[str, Any] = {}
    for column in table.columns:
        fits = _has_its_type(column, rows)
        derived[type_column(column)] = fits
        form = form_column(column)
        if has_form(column) and not table.public and (wanted is None or form in wanted):
            derived[form] = _formed(column, rows[column.name]) if fits else False
    for key in table.foreign_keys:
        names = {reference_column(key), fanout_column(key), unit_column(key)}
        # If columns are missing, the expectations on types and references fail anyway.
        if set(key.columns) <= set(rows.column_names) and (wanted is None or not names.isdisjoint(wanted)):
            derived |= _references(schema, key, tables)
    return {name: values for name, values in derived.items() if wanted is None or name in wanted}


def _has_its_type(column: Column, rows: pa.Table) -> bool:
    if column.name not in rows.column_names:
        return False
    found, texts = rows.schema.field(column.name).type, {pa.string(), pa.large_string()}
    return found == column.arrow_type or {found, column.arrow_type} <= texts


def _references(schema: Schema, key: ForeignKey, tables: Mapping[str, pa.Table]) -> dict[str, NDArray[Any]]:
    """Return the derived columns of a foreign key."""
    rows, parent = tables[key.child], tables[key.parent]
    parents = parent_rows(parent, rows, key)
    missing = np.zeros(rows.num_rows, bool)
    if key.optional:
        for name in key.columns:
            missing |= np.asarray(rows[name].is_null(nan_is_null=True))
    fanout = group_counts(parents, parent.num_rows + 1)  # -1 takes the last entry, 0
    derived = {
        reference_column(key): (parents >= 0) | missing,
        fanout_column(key): fanout[parents],
    }
    if key.same_unit:
        mine, theirs = unit_rows(schema, key.child, tables), unit_rows(schema, key.parent, tables)
        derived[unit_column(key)] = (parents < 0) | (mine == np.append(theirs, -1)[parents])
    return derived


def tables_to_check(schema: Schema, table: Table) -> tuple[str, ...]:
    """Return the tables `integrity_frame` needs: the table, its parents, and those that determine privacy units."""
    names = [table.name, *sorted({key.parent for key in table.foreign_keys})]
    for key in table.foreign_keys:
        if key.same_unit:
            names += [step.parent for name in (key.child, key.parent) for step in schema.ownership_path(name)]
    return tuple(dict.fromkeys(names))


def type_column(column: Column) -> str:
    """Return the name of the derived column: whether ``column`` has its Arrow type."""
    return f"{column.name} has its type"


def has_form(column: Column) -> bool:
    """Return whether values of ``column`` have a form that their Arrow type does not show: UUIDs, JSON, patterns."""
    return column.logical.has_form or (isinstance(column.domain, Pattern) and column.domain.regex is not None)


def form_column(column: Column) -> str:
    """Return the name of the derived column: whether a value of ``column`` is NULL or well formed."""
    return f"{column.name} has its form"


def reference_column(key: ForeignKey) -> str:
    """Return the name of the derived column: whether a row's key has a parent, or is NULL where allowed."""
    return f"{','.join(key.columns)} refers to {key.parent}"


def unit_column(key: ForeignKey) -> str:
    """Return the name of the derived column: whether a row's reference stays inside its privacy unit."""
    return f"{','.join(key.columns)} {key.parent} of the same unit"


def fanout_column(key: ForeignKey) -> str:
    """Return the name of the derived column: the fanout of the row's parent."""
    return f"{','.join(key.columns)} rows of the same {key.parent}"


def _frame(rows: pa.Table) -> pd.DataFrame:
    """Return rows with pandas types that keep NULL: nullable integers and booleans, datetimes, floats for decimals."""
    import pandas as pd

    for position, field in enumerate(rows.schema):
        plain = _comparable(field.type)
        if plain != field.type:
            rows = rows.set_column(position, field.name, rows[field.name].cast(plain))
    nullable = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
    return rows.to_pandas(date_as_object=False, types_mapper=nullable.get)


def _comparable(kind: pa.DataType) -> pa.DataType:
    """Return the type in which values are compared with the bounds of an expectation."""
    if pa.types.is_decimal(kind):
        return pa.float64()
    if pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit)
    return kind


def _formed(column: Column, values: pa.ChunkedArray) -> NDArray[np.bool_]:
    if pa.types.is_binary(values.type):
        return _true_or_null(pc.less_equal(pc.binary_length(values), length_limit(column)))
    if column.logical.form is not None:
        return _true_or_null(pc.match_substring_regex(values, column.logical.form))
    regex = column.domain.regex if isinstance(column.domain, Pattern) else None
    matches = column.logical.is_value if regex is None else re.compile(regex).fullmatch
    texts = values.combine_chunks().dictionary_encode()
    right = pa.array([bool(matches(text)) for text in texts.dictionary.to_pylist()], pa.bool_())
    return _true_or_null(right.take(texts.indices))


def _true_or_null(holds: pa.Array | pa.ChunkedArray) -> NDArray[np.bool_]:
    return np.asarray(holds.fill_null(fill_value=True))
