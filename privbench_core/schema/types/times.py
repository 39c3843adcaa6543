"""Dates, timestamps and intervals."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from privbench_core.schema.types.base import INT64_MAX, OrderedType, Scalar, SqlName
from privbench_core.schema.types.durations import DAY, SECOND, duration_text, parse_duration

if TYPE_CHECKING:
    import pyarrow as pa

_MICROSECOND = dt.timedelta(microseconds=1)
_DAY_ZERO = dt.date(1970, 1, 1)
_TIME_ZERO = dt.datetime(1970, 1, 1)
# From this year on, a date stands for no day: "until further notice" is written as one of these.
_ENDLESS = "2900-01-01"
_SENTINELS = ("2999-12-31", "3000-01-01", "9999-01-01", "9999-12-31", "9999-12-31T23:59:59")
NO_DISTANCE = DAY << 24
"""More than lies between any two points in time, in days or microseconds; whole days in both."""
_SPAN = "a span of time like P1DT2H, or 1 day 02:00:00"


class _TimeType(OrderedType):
    """What types of time have in common: steps are spans of time.

    Attributes:
        point: Microseconds from one number to the next.
    """

    point = 1
    step_expected = f"{_SPAN}, above zero"

    def parse(self, value: object) -> Scalar | None:
        try:
            return self.scalar(self.number(value)) if isinstance(value, str) else None
        except (ValueError, TypeError, OverflowError):  # no such day, with an offset, or beyond the years 1 to 9999
            return None

    def parse_step(self, value: object) -> Scalar | None:
        span = parse_duration(value) if isinstance(value, str) else None
        return duration_text(span) if span is not None and span > 0 and span % self.point == 0 else None

    def points(self, step: Scalar) -> int:
        span = parse_duration(str(step))
        if span is None or span % self.point:
            raise ValueError
        return span // self.point


class CalendarType(_TimeType):
    """What points in time have in common."""

    calendar = True
    last: ClassVar[str]

    @cached_property
    def endless(self) -> int:
        """The number of the first point in time that is a sentinel (9999-12-31 for none), and has no distance."""
        return int(self.number(_ENDLESS))

    @cached_property
    def sentinels(self) -> tuple[int, ...]:
        """Numbers of the usual sentinels."""
        days = (value for value in _SENTINELS if self.point < DAY or "T" not in value)
        return tuple(int(self.number(value)) for value in days)

    @property
    def extent(self) -> tuple[int, int]:
        return int(self.number("0001-01-01")), int(self.number(self.last))

    @property
    def series(self) -> tuple[int, int]:
        return int(self.number("2000-01-01")), max(1, SECOND // self.point)

    def bound(self, value: Scalar) -> dt.datetime:
        return _TIME_ZERO + int(self.number(value)) * self.point * _MICROSECOND


@dataclass(frozen=True)
class DateType(CalendarType):
    """Days. A number counts days since 1970-01-01."""

    name = "date"
    options = frozenset({"format"})
    difference = "integer"  # days
    expected = "a date like 2020-12-31"
    step_expected = "whole days, like P7D"
    point = DAY
    last = "9999-12-31"
    arrow = "date32"
    arrow_kinds = ("date",)
    sql = (SqlName("date"),)
    native = r"DATE(?!TIME)"

    def number(self, value: Scalar) -> int | float:
        return (dt.date.fromisoformat(str(value)) - _DAY_ZERO).days

    def scalar(self, number: float) -> Scalar:
        return (_DAY_ZERO + dt.timedelta(days=int(number))).isoformat()


@dataclass(frozen=True)
class TimestampType(CalendarType):
    """Points in time without a zone. A number counts microseconds since 1970-01-01."""

    name = "timestamp"
    options = frozenset({"format"})
    difference = "interval"
    expected = "a time like 2020-12-31T23:59:59, in UTC and without offset"
    last = "9999-12-31T23:59:59.999999"
    arrow = "timestamp[us]"
    arrow_kinds = ("local_time",)
    sql = (SqlName("timestamp without time zone", ("timestamp", "datetime"), arguments=1),)
    native: ClassVar[str | None] = r"TIMESTAMP|DATETIME"

    def number(self, value: Scalar) -> int | float:
        return (dt.datetime.fromisoformat(str(value)) - _TIME_ZERO) // _MICROSECOND

    def scalar(self, number: float) -> Scalar:
        return (_TIME_ZERO + int(number) * _MICROSECOND).isoformat()


@dataclass(frozen=True)
class TimestamptzType(TimestampType):
    """Points in time. A number counts microseconds since 1970-01-01 in UTC."""

    name = "timestamptz"
    expected = "a time with its offset, like 2020-12-31T23:59:59Z"
    arrow_kinds = ("zoned_time",)
    sql = (SqlName("timestamp with time zone", ("timestamptz",), arguments=1, duckdb="timestamp with time zone"),)
    native = None

    @property
    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.timestamp("us", "UTC")

    def parse(self, value: object) -> Scalar | None:
        parsed = super().parse(value)
        return None if parsed is None or dt.datetime.fromisoformat(str(value)).tzinfo is None else parsed

    def number(self, value: Scalar) -> int | float:
        moment = dt.datetime.fromisoformat(str(value))
        utc = moment.astimezone(dt.UTC).replace(tzinfo=None) if moment.tzinfo else moment
        return (utc - _TIME_ZERO) // _MICROSECOND

    def scalar(self, number: float) -> Scalar:
        return f"{super().scalar(number)}Z"


@dataclass(frozen=True)
class IntervalType(_TimeType):
    """Spans of time. A number counts microseconds, with 30 days to the month."""

    name = "interval"
    difference = "interval"
    expected = _SPAN
    surrogate = None
    arrow = "duration[us]"
    arrow_kinds = ("duration",)
    time_of_day = True
    sql = (SqlName("interval", arguments=1, duckdb="interval"),)
    native = r"INTERVAL"
    duckdb_form = "to_microseconds({})"  # Parquet has no type for spans of time
    compares_alike = False

    @property
    def extent(self) -> tuple[int, int]:
        return -INT64_MAX, INT64_MAX  # the number below means no time at all to numpy

    def number(self, value: Scalar) -> int | float:
        span = parse_duration(str(value))
        if span is None:
            raise ValueError
        return span

    def scalar(self, number: float) -> Scalar:
        return duration_text(int(number))

    def bound(self, value: Scalar) -> Scalar:
        return self.number(value)
