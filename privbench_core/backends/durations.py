"""Spans of time from whatever a source stores, as whole microseconds.

A month has no length of its own, so it counts as 30 days and a year as 12 such months. That is how PostgreSQL
compares intervals, so order, range checks and indexes agree with the database. Months of a source come back as days.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privbench_core.schema.durations import parse_duration

_MICROSECONDS = pa.duration("us")
_DAY = 86_400 * 1_000_000
_MOST_DAYS = (2**63 - 1) // _DAY - 10**6  # what nanoseconds of 64 bits add is less than a million days


def durations(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Intervals of whatever kind as ``duration[us]``.

    Args:
        values: Durations; months with days and nanoseconds; times of day; text in ISO 8601 (``P1DT2H``), or as
            PostgreSQL, DuckDB and Python write it (``1 day 02:00:00``, ``-1 days +22:00:00``).

    Raises:
        ArrowInvalid: A value is none, or does not fit.
    """
    kind = values.type
    if pa.types.is_duration(kind):
        return pc.cast(values, options=pc.CastOptions(_MICROSECONDS, allow_time_truncate=True))
    if pa.types.is_time(kind):
        times = pc.cast(values, options=pc.CastOptions(pa.time64("us"), allow_time_truncate=True))
        return times.cast(pa.int64()).cast(_MICROSECONDS)
    if kind == pa.month_day_nano_interval():
        return pa.chunked_array([_from_calendar(chunk) for chunk in values.chunks], _MICROSECONDS)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _from_text(values)
    if pa.types.is_null(kind):
        return values.cast(_MICROSECONDS)
    raise pa.ArrowInvalid("no intervals")


def _from_text(values: pa.ChunkedArray) -> pa.ChunkedArray:
    encoded = values.cast(pa.string()).combine_chunks().dictionary_encode()
    texts = [text.strip() for text in encoded.dictionary.to_pylist()]
    # A plus marks the time after a negative number of days, and Python sets a comma before it.
    listed = [parse_duration(text.replace("+", " ").replace(",", " ")) for text in texts]
    if any(text and number is None for text, number in zip(texts, listed, strict=True)):
        raise pa.ArrowInvalid("no interval")
    return pa.chunked_array([pa.array(listed, pa.int64()).cast(_MICROSECONDS).take(encoded.indices)])


def _from_calendar(values: pa.Array) -> pa.Array:
    if not len(values):
        return pa.array([], _MICROSECONDS)
    null = pc.is_null(values).to_numpy(zero_copy_only=False)
    layout = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])
    parts = np.frombuffer(values.buffers()[1], layout, len(values), layout.itemsize * values.offset)
    days = np.where(null, 0, parts["months"].astype(np.int64) * 30 + parts["days"])
    rest = np.where(null, 0, parts["nanoseconds"]) // 1000
    if (np.abs(days) > _MOST_DAYS).any():
        raise pa.ArrowInvalid("beyond 64 bits")
    return pa.array(days * _DAY + rest, pa.int64(), mask=null).cast(_MICROSECONDS)
