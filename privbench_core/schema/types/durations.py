"""Spans of time as text and as microseconds.

A month has no length of its own: it counts as 30 days, and a year as 12 such months. PostgreSQL compares intervals the
same way, so order, range checks and indexes agree with the database.
"""

from __future__ import annotations

import re
from decimal import Decimal

SECOND = 1_000_000  # in microseconds, like all below
_MINUTE, _HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND
_SIZES = {
    "year": 360 * DAY,
    "month": 30 * DAY,
    "mon": 30 * DAY,
    "week": 7 * DAY,
    "day": DAY,
    "hour": _HOUR,
    "minute": _MINUTE,
    "min": _MINUTE,
    "second": SECOND,
    "sec": SECOND,
}
_LIMIT = 2**63
_NUMBER = r"-?\d+(?:\.\d+)?"
_ISO = re.compile(
    rf"(-?)P(?:({_NUMBER})Y)?(?:({_NUMBER})M)?(?:({_NUMBER})W)?(?:({_NUMBER})D)?"
    rf"(?:T(?:({_NUMBER})H)?(?:({_NUMBER})M)?(?:({_NUMBER})S)?)?"
)
_ISO_SIZES = (360 * DAY, 30 * DAY, 7 * DAY, DAY, _HOUR, _MINUTE, SECOND)
_CLOCK = re.compile(r"(-?)(\d+):([0-5]?\d)(?::([0-5]?\d(?:\.\d+)?))?")
_PART = re.compile(rf"({_NUMBER})\s*([a-z]+?)s?\b")


def parse_duration(text: str) -> int | None:
    """Return the microseconds of a span written as ISO 8601 (``P1DT2H``) or as PostgreSQL does (``1 day 02:00:00``).

    Returns:
        The span, or None if the text is not one or does not fit in 64 bits.

    >>> parse_duration("P1DT2H") == parse_duration("1 day 02:00:00") == 26 * 3600 * 10**6
    True
    """
    plain = " ".join(text.split())
    iso = _ISO.fullmatch(plain.upper())
    if iso and any(iso.groups()[1:]) and not plain.upper().endswith("T"):
        pairs = zip(iso.groups()[1:], _ISO_SIZES, strict=True)
        total = sum((Decimal(number) * size for number, size in pairs if number), Decimal(0))
        return _whole(-total if iso[1] else total)
    return _words(plain.lower())


def duration_text(microseconds: int) -> str:
    """Return a span as ISO 8601, in days and smaller parts.

    >>> duration_text(26 * 3600 * 10**6), duration_text(-1_500_000), duration_text(0)
    ('P1DT2H', '-PT1.5S', 'PT0S')
    """
    days, rest = divmod(abs(microseconds), DAY)
    hours, rest = divmod(rest, _HOUR)
    minutes, rest = divmod(rest, _MINUTE)
    seconds = f"{Decimal(rest) / SECOND:f}"
    clock = f"{f'{hours}H' if hours else ''}{f'{minutes}M' if minutes else ''}{f'{seconds}S' if rest else ''}"
    body = f"{f'{days}D' if days else ''}{f'T{clock}' if clock else ''}" or "T0S"
    return f"{'-' if microseconds < 0 else ''}P{body}"


def _words(text: str) -> int | None:
    """Parse ``1 day 02:00:00``: numbers with units, then perhaps a clock."""
    total, rest = Decimal(0), text
    clock = _CLOCK.fullmatch(text.rpartition(" ")[2])
    if clock:
        sign, hours, minutes, seconds = clock.groups()
        size = int(hours) * _HOUR + int(minutes) * _MINUTE + Decimal(seconds or 0) * SECOND
        total, rest = Decimal(-size if sign else size), text.rpartition(" ")[0]
    parts = list(_PART.finditer(rest))
    if _PART.sub("", rest).strip() or not (parts or clock) or any(part[2] not in _SIZES for part in parts):
        return None
    return _whole(total + sum((Decimal(part[1]) * _SIZES[part[2]] for part in parts), Decimal(0)))


def _whole(total: Decimal) -> int | None:
    number = int(total.to_integral_value()) if abs(total) < _LIMIT else None
    return number if number is not None and -_LIMIT <= number < _LIMIT else None
