"""What one synthetic table's rows cannot show by themselves, worked out as extra columns for the integrity suite.

Does the referenced parent exist, how many rows share it, does a column have its Arrow type, is text what it should be:
joins, types and forms are settled here, and `expectations` only has to look at columns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.domain.lengths import length_limit
from privbench_core.evaluate.joins import NO_PARENT, parent_rows, unit_rows
from privbench_core.schema.model.columns import Column, ColumnType, Pattern
from privbench_core.schema.model.constraints import ForeignKey
from privbench_core.schema.model.tables import Schema, Table
from privbench_core.source.arrow_types import arrow_type

_LENGTHS = frozenset({ColumnType.TEXT, ColumnType.JSON})


def integrity_frame(
    schema: Schema, table: Table, tables: Mapping[str, pa.Table], wanted: Collection[str] | None = None
) -> pd.DataFrame:
    """The rows of ``table`` as a frame, with the derived columns that `integrity_suite` asks for.

    Decimals become floats: rounding keeps the order, so a value inside of its range stays inside. Timestamps with a
    zone become those of UTC without one, intervals their microseconds.

    Opaque text that is in no key becomes text of the same length, because nothing else is asked of it: millions of
    different texts take gigabytes as Python objects.

    Args:
        schema: The database.
        table: The table whose rows are looked at.
        tables: Its rows, those of its parents, and of all `tables_to_check`.
        wanted: Columns of the frame, derived ones included; None for all.
    """
    rows = tables[table.name]
    frame = _frame(rows if wanted is None else rows.select([name for name in rows.column_names if name in wanted]))
    derived: dict[str, Any] = {}
    compared = table.key_columns.union(*table.unique)
    for column in table.columns:
        fits = column.name in rows.column_names and _fits(rows.schema.field(column.name).type, arrow_type(column))
        if fits and column.name in frame and column.type in _LENGTHS and column.name not in compared:
            frame[column.name] = _of_same_length(rows[column.name])
        derived[type_column(column)] = fits
        form = form_column(column)
        if has_form(column) and not table.public and (wanted is None or form in wanted):
            derived[form] = _formed(column, rows[column.name]) if fits else False
    for key in table.foreign_keys:
        names = {reference_column(key), siblings_column(key), unit_column(key)}
        # Without its columns the type expectation already fails, and the one on the reference will too.
        if set(key.columns) <= set(rows.column_names) and (wanted is None or not names.isdisjoint(wanted)):
            derived |= _references(schema, key, tables)
    shown = {name: values for name, values in derived.items() if wanted is None or name in wanted}
    # All at once: pandas copies the frame for each column that is added alone.
    return pd.concat([frame, pd.DataFrame(shown, index=pd.RangeIndex(rows.num_rows))], axis=1)


def _of_same_length(texts: pa.ChunkedArray) -> NDArray[np.object_]:
    """One text for all of the same length, None for NULL."""
    found = pc.utf8_length(texts).combine_chunks().dictionary_encode()
    shared = np.array([*("x" * length for length in found.dictionary.to_pylist()), None], dtype=object)
    same: NDArray[np.object_] = shared[found.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
    return same


def _references(schema: Schema, key: ForeignKey, tables: Mapping[str, pa.Table]) -> dict[str, NDArray[Any]]:
    """The derived columns of a foreign key."""
    rows, parent = tables[key.child], tables[key.parent]
    parents = parent_rows(parent, rows, key)
    missing = np.zeros(rows.num_rows, bool)
    if key.optional:
        for name in key.columns:
            missing |= np.asarray(rows[name].is_null(nan_is_null=True))
    siblings = np.bincount(parents[parents != NO_PARENT], minlength=parent.num_rows + 1)
    derived = {
        reference_column(key): (parents != NO_PARENT) | missing,
        siblings_column(key): np.where(parents == NO_PARENT, 0, siblings[parents]),
    }
    if key.same_unit:
        mine, theirs = unit_rows(schema, key.child, tables), unit_rows(schema, key.parent, tables)
        derived[unit_column(key)] = (parents == NO_PARENT) | (mine == np.append(theirs, NO_PARENT)[parents])
    return derived


def tables_to_check(schema: Schema, table: Table) -> tuple[str, ...]:
    """Names of the tables that `integrity_frame` needs: the table, its parents, and whoever decides about units."""
    names = [table.name, *sorted({key.parent for key in table.foreign_keys})]
    for key in table.foreign_keys:
        if key.same_unit:
            names += [step.parent for name in (key.child, key.parent) for step in schema.ownership_path(name)]
    return tuple(dict.fromkeys(names))


def type_column(column: Column) -> str:
    """Name of the derived column that says whether ``column`` has its Arrow type."""
    return f"{column.name} has its type"


def has_form(column: Column) -> bool:
    """Whether values of ``column`` have a form that their Arrow type does not show: UUIDs, JSON, bytes, patterns."""
    formed = {ColumnType.UUID, ColumnType.JSON, ColumnType.BYTES}
    return column.type in formed or (isinstance(column.domain, Pattern) and column.domain.regex is not None)


def form_column(column: Column) -> str:
    """Name of the derived column that says whether a value of ``column`` is NULL or has its form."""
    return f"{column.name} has its form"


def reference_column(key: ForeignKey) -> str:
    """Name of the derived column that says whether each row's key is NULL where it may be, or has a parent."""
    return f"{','.join(key.columns)} refers to {key.parent}"


def unit_column(key: ForeignKey) -> str:
    """Name of the derived column that says whether each row's reference stays inside of its unit."""
    return f"{','.join(key.columns)} {key.parent} of the same unit"


def siblings_column(key: ForeignKey) -> str:
    """Name of the derived column that counts the rows with the same parent as this one."""
    return f"{','.join(key.columns)} rows of the same {key.parent}"


def _frame(rows: pa.Table) -> pd.DataFrame:
    """Rows as pandas keeps NULL apart from numbers: nullable integers and booleans, datetimes, floats for decimals."""
    for position, field in enumerate(rows.schema):
        plain = _comparable(field.type)
        if plain != field.type:
            rows = rows.set_column(position, field.name, rows[field.name].cast(plain))
    nullable = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
    return rows.to_pandas(date_as_object=False, types_mapper=nullable.get)


def _comparable(kind: pa.DataType) -> pa.DataType:
    """The type in which values compare with the bounds of an expectation."""
    if pa.types.is_decimal(kind):
        return pa.float64()
    if pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit)
    return kind


def _formed(column: Column, values: pa.ChunkedArray) -> NDArray[np.bool_]:
    if column.type is ColumnType.BYTES:
        right = pc.less_equal(pc.binary_length(values), length_limit(column))
        return np.asarray(right.fill_null(fill_value=True))
    if column.type is ColumnType.UUID:
        right = pc.match_substring_regex(values, r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
        return np.asarray(right.fill_null(fill_value=True))
    if column.type is ColumnType.JSON:
        return np.array([text is None or _is_json(text) for text in values.to_pylist()], bool)
    pattern = re.compile(column.domain.regex or "" if isinstance(column.domain, Pattern) else "")
    return np.array([text is None or pattern.fullmatch(text) is not None for text in values.to_pylist()], bool)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _fits(found: pa.DataType, expected: pa.DataType) -> bool:
    texts = {pa.string(), pa.large_string()}
    return found == expected or (found in texts and expected in texts)
