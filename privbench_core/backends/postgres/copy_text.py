"""Rows as the CSV that PostgreSQL's COPY reads."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv


def copy_text(batch: pa.RecordBatch) -> bytes:
    """Return rows as CSV. Arrow quotes all text and never NULL, which is how PostgreSQL tells '' from NULL."""
    buffer = io.BytesIO()
    spelled = pa.RecordBatch.from_arrays([_spelled(column) for column in batch.columns], names=batch.schema.names)
    pacsv.write_csv(spelled, buffer, pacsv.WriteOptions(include_header=False))
    return buffer.getvalue()


def _spelled(column: pa.Array) -> pa.Array:
    """Return bytes and spans of time as the text that PostgreSQL reads; CSV has no form for them."""
    if pa.types.is_binary(column.type):
        return pa.array([None if value is None else f"\\x{value.hex()}" for value in column.to_pylist()], pa.string())
    if pa.types.is_duration(column.type):
        number = column.cast(pa.int64()).cast(pa.string())
        return pc.binary_join_element_wise(number, pa.scalar("microseconds"), pa.scalar(" "))
    return column
