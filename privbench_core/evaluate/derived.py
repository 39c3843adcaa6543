"""What one synthetic table's rows cannot show by themselves, worked out as extra columns for the integrity suite.

Does the referenced parent exist, how many rows share it, does a column have its Arrow type: joins and types are settled
here, and `expectations` only has to look at columns.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import pyarrow as pa

from privbench_core.evaluate.joins import NO_PARENT, parent_rows
from privbench_core.schema.model import Column, ForeignKey, Table
from privbench_core.source.arrow_types import arrow_type


def integrity_frame(table: Table, tables: Mapping[str, pa.Table]) -> pd.DataFrame:
    """The rows of ``table`` as a frame, with the derived columns that `integrity_suite` asks for.

    Decimals become floats: rounding keeps the order, so a value inside of its range stays inside.
    """
    rows = tables[table.name]
    frame = _frame(rows)
    for column in table.columns:
        fits = column.name in rows.column_names and _fits(rows.schema.field(column.name).type, arrow_type(column))
        frame[type_column(column)] = fits
    for key in table.foreign_keys:
        if not set(key.columns) <= set(rows.column_names):
            continue  # the type expectation already fails, and the one on the reference will too
        parents = parent_rows(tables[key.parent], rows, key)
        missing = np.zeros(len(frame), bool)
        if key.optional:
            for name in key.columns:
                missing |= frame[name].isna().to_numpy()
        frame[reference_column(key)] = (parents != NO_PARENT) | missing
        siblings = np.bincount(parents[parents != NO_PARENT], minlength=tables[key.parent].num_rows + 1)
        frame[siblings_column(key)] = np.where(parents == NO_PARENT, 0, siblings[parents])
    return frame


def type_column(column: Column) -> str:
    """Name of the derived column that says whether ``column`` has its Arrow type."""
    return f"{column.name} has its type"


def reference_column(key: ForeignKey) -> str:
    """Name of the derived column that says whether each row's key is NULL where it may be, or has a parent."""
    return f"{','.join(key.columns)} refers to {key.parent}"


def siblings_column(key: ForeignKey) -> str:
    """Name of the derived column that counts the rows with the same parent as this one."""
    return f"{','.join(key.columns)} rows of the same {key.parent}"


def _frame(rows: pa.Table) -> pd.DataFrame:
    """Rows as pandas keeps NULL apart from numbers: nullable integers and booleans, datetimes, floats for decimals."""
    for position, field in enumerate(rows.schema):
        if pa.types.is_decimal(field.type):
            rows = rows.set_column(position, field.name, rows[field.name].cast(pa.float64()))
    nullable = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
    return rows.to_pandas(date_as_object=False, types_mapper=nullable.get)


def _fits(found: pa.DataType, expected: pa.DataType) -> bool:
    texts = {pa.string(), pa.large_string()}
    return found == expected or (found in texts and expected in texts)
