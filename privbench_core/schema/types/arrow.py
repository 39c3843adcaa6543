"""From whatever a source stores to the canonical Arrow types, without loss or with an error.

Arrow's errors quote the value that they stumble over: callers replace them by an error of their own.
"""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.schema.types.durations import DAY, parse_duration

_UUID = r"^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"
_WIDTH = 36  # characters of a UUID as text
_DIGITS = [place for place in range(_WIDTH) if place not in {8, 13, 18, 23}]
_HEX = r"^\\x([0-9a-fA-F]{2})*$"
_MICROSECONDS = pa.duration("us")
_MOST_DAYS = (2**63 - 1) // DAY - 10**6  # what nanoseconds of 64 bits add is less than a million days


def cast_values(values: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    """Return values of any kind as ``target``; ArrowInvalid if one does not fit."""
    if pa.types.is_duration(target):
        return _durations(values)
    if _is_text(values.type):
        return _bytes_of_text(values) if pa.types.is_binary(target) else _cast_text(values, target)
    if pa.types.is_floating(values.type) and not pa.types.is_floating(target):
        # pandas stores integers with gaps as floats, the gaps being NaN.
        values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
    if pa.types.is_temporal(target) and pa.types.is_integer(values.type):
        raise pa.ArrowInvalid("a number is a point in time only with an origin and a unit")
    if pa.types.is_decimal(target) and pa.types.is_integer(values.type):
        return values.cast(pa.string()).cast(target)  # Arrow insists on 19 digits in the direct way
    if pa.types.is_boolean(target) and pa.types.is_integer(values.type):
        return _exactly(values, target)
    if pa.types.is_date(target) and pa.types.is_timestamp(values.type):
        return _exactly(_without_zone(values), target)
    if pa.types.is_timestamp(target) and pa.types.is_timestamp(values.type):
        # Digits below a microsecond are dropped without an error.
        options = pc.CastOptions(target, allow_time_truncate=True)
        return pc.cast(_without_zone(values), options=options)
    return values.cast(target)


def read_documents(values: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    """Return JSON as text; lists and structs become arrays and objects."""
    if not pa.types.is_nested(values.type):
        return cast_values(values, target)
    found = [
        None if value is None else json.dumps(value, default=_plain, ensure_ascii=False) for value in values.to_pylist()
    ]
    return pa.chunked_array([pa.array(found, target)])


def _plain(value: object) -> object:
    """Return a scalar that JSON has no form for as a number or text."""
    if isinstance(value, Decimal):
        return float(value)
    return value.isoformat() if isinstance(value, dt.date | dt.time) else str(value)


def uuid_text(raw: NDArray[np.uint8]) -> pa.Array:
    """Return the text of UUIDs.

    Args:
        raw: Their bytes, shape (n, 16).

    Returns:
        Lower-case text with hyphens, shape (n,).
    """
    text = np.full((len(raw), _WIDTH), ord("-"), np.uint8)
    text[:, _DIGITS] = np.frombuffer(raw.tobytes().hex().encode(), np.uint8).reshape(-1, 32)
    offsets = np.arange(len(raw) + 1, dtype=np.int64) * _WIDTH
    large = pa.Array.from_buffers(pa.large_string(), len(raw), [None, pa.py_buffer(offsets), pa.py_buffer(text)])
    return large.cast(pa.string())


def read_uuids(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return UUIDs as canonical text, from 16 bytes or from text (with braces, capitals or without hyphens).

    Raises:
        ArrowInvalid: A value is not a UUID.
    """
    if _is_text(values.type) or pa.types.is_null(values.type):
        return _uuids_of_text(values.cast(pa.string()))
    return pa.chunked_array([_uuids_of_bytes(chunk.cast(pa.binary(16))) for chunk in values.chunks], pa.string())


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _bytes_of_text(values: pa.ChunkedArray) -> pa.ChunkedArray:
    r"""Return the bytes of text in PostgreSQL's hexadecimal form (``\x6869``), or text as UTF-8."""
    if values.null_count == len(values) or not pc.all(pc.match_substring_regex(values, _HEX)).as_py():
        return values.cast(pa.binary())
    found = [text and bytes.fromhex(text[2:]) for text in values.to_pylist()]
    return pa.chunked_array([pa.array(found, pa.binary())])


def _durations(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return spans of time as ``duration[us]``, with 30 days to the month.

    Text is in ISO 8601 (``P1DT2H``), or as PostgreSQL, DuckDB and Python write it (``1 day 02:00:00``, ``-1 days
    +22:00:00``).
    """
    kind = values.type
    if pa.types.is_duration(kind):
        return pc.cast(values, options=pc.CastOptions(_MICROSECONDS, allow_time_truncate=True))
    if pa.types.is_time(kind):
        times = pc.cast(values, options=pc.CastOptions(pa.time64("us"), allow_time_truncate=True))
        return times.cast(pa.int64()).cast(_MICROSECONDS)
    if kind == pa.month_day_nano_interval():
        return pa.chunked_array([_durations_of_calendar(chunk) for chunk in values.chunks], _MICROSECONDS)
    if _is_text(kind):
        return _durations_of_text(values)
    if pa.types.is_null(kind):
        return values.cast(_MICROSECONDS)
    raise pa.ArrowInvalid("no intervals")


def _cast_text(values: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_string(target):
        return values.cast(target)
    values = pc.utf8_trim_whitespace(values)
    values = pc.if_else(pc.equal(values, ""), pa.scalar(None, values.type), values)
    if pa.types.is_floating(target) or pa.types.is_decimal(target):
        values = _plain_numbers(values)
    if pa.types.is_integer(target):
        values = pc.replace_substring_regex(values, r"^([-+]?\d+)\.0*$", r"\1")  # pandas' integers with gaps
    if pa.types.is_integer(target) or pa.types.is_decimal(target):
        values = pc.replace_substring_regex(values, r"^\+", "")
    if pa.types.is_date(target):
        values = pc.replace_substring_regex(values, r"^(\d{4}-\d\d-\d\d)[T ]00:00(:00(\.0*)?)?$", r"\1")
    return _moments(values, target) if pa.types.is_timestamp(target) else values.cast(target)


def _plain_numbers(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return numbers as text without a currency, a per cent sign, and commas that are plainly between thousands."""
    grouped = pc.match_substring_regex(values, r"^[-+]?([$€£¥]?\d{1,3}(,\d{3})+\.\d+|[$£¥]\d{1,3}(,\d{3})+)$")
    values = pc.if_else(grouped, pc.replace_substring(values, ",", ""), values)
    return pc.replace_substring_regex(values, r"^([-+]?)[$€£¥]?([\d.].*?) ?%?$", r"\1\2")


def _moments(values: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    """Return timestamps from text, each with or without a zone; without one it is UTC."""
    values = pc.replace_substring_regex(values, r"(\.\d{6})\d+", r"\1")
    values = pc.replace_substring_regex(values, r"\s*(?:UTC|GMT|z)$", "Z")
    values = pc.replace_substring_regex(values, r"\s+([+-]\d\d(?::?\d\d)?)$", r"\1")
    values = pc.replace_substring_regex(values, r"^(\d{4}-\d\d-\d\d)$", r"\1T00:00:00")
    # Arrow reads a column only if all its text has a zone, or none.
    values = pc.replace_substring_regex(values, r"^(\d{4}-\d\d-\d\d[T ][0-9:.]+)$", r"\1Z")
    return values.cast(pa.timestamp("us", "UTC")).cast(target)


def _without_zone(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return timestamps with a zone as naive ones in UTC."""
    return values if values.type.tz is None else values.cast(pa.timestamp(values.type.unit))


def _exactly(values: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    """Cast, and refuse what does not cast back: Arrow itself casts 2 to true, and noon to a day."""
    result = values.cast(target)
    if not result.cast(values.type).equals(values):
        raise pa.ArrowInvalid("lossy")
    return result


def _uuids_of_text(values: pa.ChunkedArray) -> pa.ChunkedArray:
    plain = pc.utf8_lower(pc.utf8_trim(values, characters=" {}\t"))
    plain = pc.if_else(pc.equal(plain, ""), pa.scalar(None, pa.string()), plain)
    if pc.all(pc.match_substring_regex(plain, _UUID)).as_py() is False:
        raise pa.ArrowInvalid("no UUID")
    digits = pc.replace_substring(plain, "-", "")
    cuts = (0, 8, 12, 16, 20, 32)
    parts = (pc.utf8_slice_codeunits(digits, start, stop) for start, stop in pairwise(cuts))
    return pc.binary_join_element_wise(*parts, "-")


def _uuids_of_bytes(values: pa.Array) -> pa.Array:
    null = pc.is_null(values).to_numpy(zero_copy_only=False)
    whole = values.fill_null(bytes(16))
    raw = np.frombuffer(whole.buffers()[1], np.uint8, 16 * len(whole), 16 * whole.offset).reshape(-1, 16)
    return pc.if_else(pa.array(null), pa.scalar(None, pa.string()), uuid_text(raw))


def _durations_of_text(values: pa.ChunkedArray) -> pa.ChunkedArray:
    encoded = values.cast(pa.string()).combine_chunks().dictionary_encode()
    texts = [text.strip() for text in encoded.dictionary.to_pylist()]
    # A plus marks the time after a negative number of days, and Python sets a comma before it.
    listed = [parse_duration(text.replace("+", " ").replace(",", " ")) for text in texts]
    if any(text and number is None for text, number in zip(texts, listed, strict=True)):
        raise pa.ArrowInvalid("no interval")
    return pa.chunked_array([pa.array(listed, pa.int64()).cast(_MICROSECONDS).take(encoded.indices)])


def _durations_of_calendar(values: pa.Array) -> pa.Array:
    if not len(values):
        return pa.array([], _MICROSECONDS)
    null = pc.is_null(values).to_numpy(zero_copy_only=False)
    layout = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])
    parts = np.frombuffer(values.buffers()[1], layout, len(values), layout.itemsize * values.offset)
    days = np.where(null, 0, parts["months"].astype(np.int64) * 30 + parts["days"])
    rest = np.where(null, 0, parts["nanoseconds"]) // 1000
    if (np.abs(days) > _MOST_DAYS).any():
        raise pa.ArrowInvalid("beyond 64 bits")
    return pa.array(days * DAY + rest, pa.int64(), mask=null).cast(_MICROSECONDS)
