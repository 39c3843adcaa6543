"""Convert declared values of a domain to the canonical form of `Range` and `Values`."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation

from privbench_core.schema.columns import ColumnType, Scalar
from privbench_core.schema.durations import duration_text, parse_duration
from privbench_core.spec.fields import as_integer, as_number

_INT64 = 2**63

EXPECTED = {
    ColumnType.INTEGER: "an integer of 64 bits",
    ColumnType.DECIMAL: "a number",
    ColumnType.FLOAT: "a finite number",
    ColumnType.DATE: "a date like 2020-12-31",
    ColumnType.TIMESTAMP: "a time like 2020-12-31T23:59:59, in UTC and without offset",
    ColumnType.TIMESTAMPTZ: "a time with its offset, like 2020-12-31T23:59:59Z",
    ColumnType.INTERVAL: "a span of time like P1DT2H, or 1 day 02:00:00",
    ColumnType.CATEGORY: "text (quote what YAML reads as something else)",
}
"""Description of a valid value of each type with a domain, for messages."""


def canonical_scalar(kind: ColumnType, value: object) -> Scalar | None:
    """Return ``value`` in canonical form, or None if it is not a value of that type.

    Integers become ``int``, floats ``float``, decimals ``int`` or exact text, dates, timestamps and intervals ISO 8601
    text (points in time in UTC), categories text.

    >>> canonical_scalar(ColumnType.INTEGER, "1e3")
    1000
    >>> canonical_scalar(ColumnType.TIMESTAMPTZ, "2020-02-29 01:00+01:00")
    '2020-02-29T00:00:00Z'
    >>> canonical_scalar(ColumnType.DATE, "2020-02-30") is None
    True
    """
    match kind:
        case ColumnType.INTEGER:
            number = as_integer(value)
            return number if number is not None and -_INT64 <= number < _INT64 else None
        case ColumnType.FLOAT:
            return as_number(value)
        case ColumnType.DECIMAL:
            return _decimal(value)
        case ColumnType.DATE | ColumnType.TIMESTAMP | ColumnType.TIMESTAMPTZ:
            return _moment(kind, value)
        case ColumnType.INTERVAL:
            span = parse_duration(value) if isinstance(value, str) else None
            return None if span is None else duration_text(span)
        case _:
            whole = isinstance(value, int) and not isinstance(value, bool)
            return str(value) if whole or isinstance(value, str) else None


def sort_key(kind: ColumnType, value: Scalar) -> Decimal:
    """Return a number that orders canonical values of an ordered type."""
    if kind is ColumnType.INTERVAL:
        return Decimal(parse_duration(str(value)) or 0)
    if kind in {ColumnType.DATE, ColumnType.TIMESTAMP, ColumnType.TIMESTAMPTZ}:
        since = datetime.fromisoformat(str(value)).replace(tzinfo=None) - datetime.min
        return Decimal(since // timedelta(microseconds=1))
    return Decimal(str(value))


def _decimal(value: object) -> Scalar | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, int):
        return value
    try:
        number = Decimal(str(value).strip())
    except InvalidOperation:
        return None
    return str(number) if number.is_finite() else None


def _moment(kind: ColumnType, value: object) -> str | None:
    if not isinstance(value, str):
        return None
    try:
        if kind is ColumnType.DATE:
            return date.fromisoformat(value).isoformat()
        moment = datetime.fromisoformat(value)
        if kind is ColumnType.TIMESTAMP:
            return moment.isoformat() if moment.tzinfo is None else None
        if moment.tzinfo is None:
            return None
        return moment.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
    except (ValueError, OverflowError):  # no such day, or beyond the years 1 to 9999 once in UTC
        return None
