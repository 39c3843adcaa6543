"""Spans of time as whole microseconds: from text, from months and days, and back to text.

A month has no length of its own, so it counts as 30 days and a year as 12 such months. That is how PostgreSQL
compares intervals, so order, range checks and indexes agree with the database. Months of a source come back as days.
"""

from __future__ import annotations

import re
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_MICROSECOND = 1
_SECOND = 1_000_000 * _MICROSECOND
_MINUTE, _HOUR, _DAY = 60 * _SECOND, 3600 * _SECOND, 86_400 * _SECOND
_MONTH = 30 * _DAY
_LARGEST = 2**63 - 1  # its negative too; one below that is what numpy reads as no time at all
_NUMBER = r"[+-]?\d+(?:\.\d*)?"
_ISO_UNITS = {"Y": 12 * _MONTH, "M": _MONTH, "W": 7 * _DAY, "D": _DAY}
_ISO_TIME_UNITS = {"H": _HOUR, "M": _MINUTE, "S": _SECOND}
_ISO = re.compile(rf"([+-]?)P(?=.)((?:{_NUMBER}[YMWD])*)(?:T((?:{_NUMBER}[HMS])+))?")
_PART = re.compile(rf"({_NUMBER})([YMWDHS])")
_WORDS = {
    "year": 12 * _MONTH,
    "mon": _MONTH,
    "month": _MONTH,
    "week": 7 * _DAY,
    "day": _DAY,
    "hour": _HOUR,
    "hr": _HOUR,
    "min": _MINUTE,
    "minute": _MINUTE,
    "sec": _SECOND,
    "second": _SECOND,
}
_TOKEN = re.compile(rf"\s*(?:({_NUMBER})\s*([a-z]+)|([+-]?)(\d+):(\d\d)(?::(\d\d(?:\.\d*)?))?)\s*,?")


def parse_duration(text: str) -> int:
    """Microseconds of an interval in ISO 8601 or in the words of PostgreSQL and DuckDB.

    Digits below a microsecond are cut off.

    Raises:
        ValueError: The text is neither, or the interval does not fit 64 bits.

    >>> parse_duration("P1DT2H") == parse_duration("1 day 02:00:00") == 26 * 3600 * 1_000_000
    True
    """
    stripped = text.strip()
    found = _ISO.fullmatch(stripped)
    total = _in_words(stripped.lower()) if found is None else _in_iso(found)
    if abs(total) > _LARGEST:
        raise ValueError(text)
    return total


def format_duration(microseconds: int) -> str:
    """The interval in ISO 8601, of days, hours, minutes and seconds.

    >>> format_duration(26 * 3600 * 1_000_000), format_duration(-1), format_duration(0)
    ('P1DT2H', '-PT0.000001S', 'PT0S')
    """
    sign = "-" if microseconds < 0 else ""
    left = abs(microseconds)
    days, left = divmod(left, _DAY)
    hours, left = divmod(left, _HOUR)
    minutes, left = divmod(left, _MINUTE)
    seconds = format(Decimal(left) / _SECOND, "f")
    seconds = seconds.rstrip("0").rstrip(".") if "." in seconds else seconds
    parts = ((str(hours), "H"), (str(minutes), "M"), (seconds, "S"))
    time = "".join(f"{value}{unit}" for value, unit in parts if value != "0")
    if not days and not time:
        time = "0S"
    return f"{sign}P{f'{days}D' if days else ''}{f'T{time}' if time else ''}"


def durations(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Intervals of whatever kind as ``duration[us]``.

    Args:
        values: Durations, months with days and nanoseconds, times of day, or text as `parse_duration` takes it.

    Raises:
        ArrowInvalid: A value is none, or does not fit.
    """
    kind, target = values.type, pa.duration("us")
    if pa.types.is_duration(kind):
        return pc.cast(values, options=pc.CastOptions(target, allow_time_truncate=True))
    if pa.types.is_time(kind):
        times = pc.cast(values, options=pc.CastOptions(pa.time64("us"), allow_time_truncate=True))
        return times.cast(pa.int64()).cast(target)
    if kind == pa.month_day_nano_interval():
        return pa.chunked_array([_from_calendar(chunk) for chunk in values.chunks], target)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _from_text(values)
    if pa.types.is_null(kind):
        return values.cast(target)
    raise pa.ArrowInvalid("no intervals")


def _in_iso(found: re.Match[str]) -> int:
    sign, date, time = found.groups()
    total = Decimal(0)
    for units, part in ((_ISO_UNITS, date), (_ISO_TIME_UNITS, time or "")):
        total += sum(Decimal(number) * units[unit] for number, unit in _PART.findall(part))
    return int(-total if sign == "-" else total)


def _in_words(text: str) -> int:
    total, position = Decimal(0), 0
    if not text:
        raise ValueError(text)
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise ValueError(text)
        number, word, sign, hours, minutes, seconds = found.groups()
        if word is None:
            clock = Decimal(hours) * _HOUR + Decimal(minutes) * _MINUTE + Decimal(seconds or 0) * _SECOND
            total += -clock if sign == "-" else clock
        else:
            unit = _WORDS.get(word) or _WORDS.get(word.removesuffix("s"))
            if unit is None:
                raise ValueError(text)
            total += Decimal(number) * unit
        position = found.end()
    return int(total)


def _from_text(values: pa.ChunkedArray) -> pa.ChunkedArray:
    encoded = values.cast(pa.string()).combine_chunks().dictionary_encode()
    try:
        listed = [parse_duration(text) if text.strip() else None for text in encoded.dictionary.to_pylist()]
    except ValueError:
        raise pa.ArrowInvalid("no interval") from None
    return pa.chunked_array([pa.array(listed, pa.int64()).cast(pa.duration("us")).take(encoded.indices)])


def _from_calendar(values: pa.Array) -> pa.Array:
    null = pc.is_null(values).to_numpy(zero_copy_only=False)
    if not len(values):
        return pa.array([], pa.duration("us"))
    layout = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])
    parts = np.frombuffer(values.buffers()[1], layout, len(values), layout.itemsize * values.offset)
    days = np.where(null, 0, parts["months"].astype(np.int64) * 30 + parts["days"])
    rest = np.where(null, 0, parts["nanoseconds"]) // 1000
    if (np.abs(days) >= _LARGEST // _DAY - 10**6).any():  # the rest is less than a million days
        raise pa.ArrowInvalid("beyond 64 bits")
    return pa.array(days * _DAY + rest, pa.int64(), mask=null).cast(pa.duration("us"))
