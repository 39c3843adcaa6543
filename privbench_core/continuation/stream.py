"""New rows as INSERT statements that both psql and DuckDB read, and what finds such rows again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from privbench_core.backends.postgres.ddl import name_list, qualified, quote_identifier, quote_text, sql_type
from privbench_core.continuation.window import Window
from privbench_core.schema.columns import Column
from privbench_core.schema.tables import Schema, Table

_ROWS = 1000  # in a statement


def insert_statements(schema: Schema, window: Window) -> Iterator[str]:
    """Yield a statement per row, in the order of the stream: after each of them the database is consistent.

    Both databases read them, but for bytes and for columns that PostgreSQL alone always numbers.
    """
    tables = [schema.table(name) for name in window.rows]
    always = [any(column.sequence and column.sequence.always for column in table.columns) for table in tables]
    heads = [
        f"{_head(table, schema)}{' OVERRIDING SYSTEM VALUE' if numbered else ''} VALUES"
        for table, numbered in zip(tables, always, strict=True)
    ]
    values = [_row_values(table, window.rows[table.name], schema, for_duckdb=False) for table in tables]
    for table, row in window.order.tolist():
        yield f"{heads[table]} ({values[table][row]});"


def duckdb_statements(schema: Schema, window: Window) -> Iterator[str]:
    """Yield statements of many rows, table by table: DuckDB is slow with single rows, and holds no circle of keys."""
    for name, rows in window.rows.items():
        table = schema.table(name)
        values = _row_values(table, rows, schema, for_duckdb=True)
        for first in range(0, len(values), _ROWS):
            yield f"{_head(table, schema)} VALUES ({'), ('.join(values[first : first + _ROWS])});"


def _head(table: Table, schema: Schema) -> str:
    return f"INSERT INTO {qualified(table.name, schema.schemas)} ({name_list(c.name for c in table.columns)})"


def _row_values(table: Table, rows: pa.Table, schema: Schema, *, for_duckdb: bool) -> list[str]:
    """Return the values of each row as SQL, with commas."""
    columns = [_literals(column, rows.column(column.name), schema, for_duckdb=for_duckdb) for column in table.columns]
    return [", ".join(row) for row in zip(*columns, strict=True)]


def _literals(column: Column, values: pa.ChunkedArray, schema: Schema, *, for_duckdb: bool = False) -> list[str]:
    """Return values as SQL literals."""
    kind = values.type
    if column.is_array:
        stored = sql_type(column, schema.schemas)
        texts = values.to_pylist()
        return ["NULL" if text is None else f"{_array(json.loads(text))}::{stored}" for text in texts]
    if pa.types.is_binary(kind):
        return [
            "NULL" if value is None else f"'{_bytes(value, for_duckdb=for_duckdb)}'" for value in values.to_pylist()
        ]
    if pa.types.is_duration(kind):
        spelled = pc.binary_join_element_wise(values.cast(pa.int64()).cast(pa.string()), "microseconds", " ")
    else:
        spelled = values.cast(pa.string())
    bare = pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_boolean(kind)
    return ["NULL" if text is None else text if bare else quote_text(text) for text in spelled.to_pylist()]


def _bytes(value: bytes, *, for_duckdb: bool) -> str:
    return "".join(f"\\x{byte:02X}" for byte in value) if for_duckdb else f"\\x{value.hex()}"


def _array(value: Any) -> str:
    if isinstance(value, list):
        return f"ARRAY[{', '.join(map(_array, value))}]"
    if isinstance(value, str):
        return quote_text(value)
    return "NULL" if value is None else json.dumps(value)


def finding_query(schema: Schema, table: Table, dated: str, rows: pa.Table, row: int) -> str:
    """Return a query that finds a row by its key: whether it has the date or time that it should have."""
    one = rows.slice(row, 1)
    known = {name: _literals(table.column(name), one.column(name), schema)[0] for name in (*table.primary_key, dated)}
    keys = " AND ".join(f"{quote_identifier(name)} = {known[name]}" for name in table.primary_key)
    return (
        f"SELECT {quote_identifier(dated)} = {known[dated]} FROM {qualified(table.name, schema.schemas)} WHERE {keys}"
    )
