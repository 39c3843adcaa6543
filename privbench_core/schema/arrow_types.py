"""The one Arrow type that each declared column has inside privbench, whatever the source stores."""

from __future__ import annotations

import pyarrow as pa

from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.tables import Table

_ARROW_TYPES = {
    ColumnType.INTEGER: pa.int64(),
    ColumnType.FLOAT: pa.float64(),
    ColumnType.BOOLEAN: pa.bool_(),
    ColumnType.DATE: pa.date32(),
    ColumnType.TIMESTAMP: pa.timestamp("us"),
    ColumnType.TIMESTAMPTZ: pa.timestamp("us", "UTC"),
    ColumnType.INTERVAL: pa.duration("us"),  # a month is 30 days, see `durations`
    ColumnType.CATEGORY: pa.string(),
    ColumnType.TEXT: pa.string(),
    ColumnType.UUID: pa.string(),  # 36 characters, lower case
    ColumnType.BYTES: pa.binary(),
    ColumnType.JSON: pa.string(),
}


def arrow_type(column: Column) -> pa.DataType:
    """The canonical Arrow type of a column."""
    if column.type is ColumnType.DECIMAL:
        return pa.decimal128(column.precision, column.scale)
    return _ARROW_TYPES[column.type]


def arrow_schema(table: Table) -> pa.Schema:
    """The canonical Arrow schema of a table: what sources read and bundles hold."""
    return pa.schema([pa.field(column.name, arrow_type(column), column.nullable) for column in table.columns])
