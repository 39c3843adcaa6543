"""Dates, timestamps and intervals."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from privbench_core.schema.types.base import INT64_MAX, OrderedType, Scalar, SqlName
from privbench_core.schema.types.durations import duration_text, parse_duration

if TYPE_CHECKING:
    import pyarrow as pa

_MICROSECOND = dt.timedelta(microseconds=1)
_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_DAY_ZERO = dt.date(1970, 1, 1)
_TIME_ZERO = dt.datetime(1970, 1, 1)
_SPAN = "a span of time like P1DT2H, or 1 day 02:00:00"
_FIRST_KEY = "2000-01-01"


class _TimeType(OrderedType):
    """What types of time have in common: steps are spans of time.

    Attributes:
        point: Microseconds from one number to the next.
    """

    point: ClassVar[int] = 1
    step_expected: ClassVar[str | None] = f"{_SPAN}, above zero"

    def parse_step(self, value: object) -> Scalar | None:
        span = parse_duration(value) if isinstance(value, str) else None
        return duration_text(span) if span is not None and span > 0 and span % self.point == 0 else None

    def points(self, step: Scalar) -> int:
        span = parse_duration(str(step))
        if span is None or span % self.point:
            raise ValueError
        return span // self.point


@dataclass(frozen=True)
class DateType(_TimeType):
    """Days. A number counts days since 1970-01-01."""

    name: ClassVar[str] = "date"
    expected: ClassVar[str] = "a date like 2020-12-31"
    step_expected: ClassVar[str | None] = "whole days, like P7D"
    point: ClassVar[int] = _DAY
    calendar: ClassVar[bool] = True
    arrow: ClassVar[str] = "date32"
    arrow_kinds: ClassVar[tuple[str, ...]] = ("date",)
    sql: ClassVar[tuple[SqlName, ...]] = (SqlName("date"),)
    default_sql: ClassVar[str] = "date"
    native: ClassVar[str | None] = r"DATE(?!TIME)"

    @property
    def extent(self) -> tuple[int, int]:
        return _days("0001-01-01"), _days("9999-12-31")

    @property
    def series(self) -> tuple[int, int]:
        return _days(_FIRST_KEY), 1

    def parse(self, value: object) -> Scalar | None:
        try:
            return dt.date.fromisoformat(value).isoformat() if isinstance(value, str) else None
        except ValueError:
            return None

    def number(self, value: Scalar) -> int | float:
        return _days(str(value))

    def scalar(self, number: float) -> Scalar:
        return (_DAY_ZERO + dt.timedelta(days=int(number))).isoformat()

    def bound(self, value: Scalar) -> dt.datetime:
        return dt.datetime.fromisoformat(str(value))


@dataclass(frozen=True)
class TimestampType(_TimeType):
    """Points in time without a zone. A number counts microseconds since 1970-01-01."""

    name: ClassVar[str] = "timestamp"
    expected: ClassVar[str] = "a time like 2020-12-31T23:59:59, in UTC and without offset"
    calendar: ClassVar[bool] = True
    arrow: ClassVar[str] = "timestamp[us]"
    arrow_kinds: ClassVar[tuple[str, ...]] = ("local_time",)
    sql: ClassVar[tuple[SqlName, ...]] = (
        SqlName("timestamp without time zone", ("timestamp", "datetime"), arguments=1),
    )
    default_sql: ClassVar[str] = "timestamp without time zone"
    native: ClassVar[str | None] = r"TIMESTAMP|DATETIME"

    @property
    def extent(self) -> tuple[int, int]:
        return _microseconds("0001-01-01"), _microseconds("9999-12-31T23:59:59.999999")

    @property
    def series(self) -> tuple[int, int]:
        return _microseconds(_FIRST_KEY), _SECOND

    def parse(self, value: object) -> Scalar | None:
        moment = _moment(value)
        return None if moment is None or moment.tzinfo is not None else moment.isoformat()

    def number(self, value: Scalar) -> int | float:
        return _microseconds(str(value))

    def scalar(self, number: float) -> Scalar:
        return (_TIME_ZERO + int(number) * _MICROSECOND).isoformat()

    def bound(self, value: Scalar) -> dt.datetime:
        return dt.datetime.fromisoformat(str(value))


@dataclass(frozen=True)
class TimestamptzType(TimestampType):
    """Points in time. A number counts microseconds since 1970-01-01 in UTC."""

    name: ClassVar[str] = "timestamptz"
    expected: ClassVar[str] = "a time with its offset, like 2020-12-31T23:59:59Z"
    arrow_kinds: ClassVar[tuple[str, ...]] = ("zoned_time",)
    sql: ClassVar[tuple[SqlName, ...]] = (
        SqlName("timestamp with time zone", ("timestamptz",), arguments=1, duckdb="timestamp with time zone"),
    )
    default_sql: ClassVar[str] = "timestamp with time zone"
    native: ClassVar[str | None] = None

    @property
    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.timestamp("us", "UTC")

    def parse(self, value: object) -> Scalar | None:
        moment = _moment(value)
        if moment is None or moment.tzinfo is None:
            return None
        try:
            return f"{moment.astimezone(dt.UTC).replace(tzinfo=None).isoformat()}Z"
        except (ValueError, OverflowError):  # beyond the years 1 to 9999 once in UTC
            return None

    def number(self, value: Scalar) -> int | float:
        moment = dt.datetime.fromisoformat(str(value))
        utc = moment.astimezone(dt.UTC).replace(tzinfo=None) if moment.tzinfo else moment
        return (utc - _TIME_ZERO) // _MICROSECOND

    def scalar(self, number: float) -> Scalar:
        return f"{super().scalar(number)}Z"

    def bound(self, value: Scalar) -> dt.datetime:
        return _TIME_ZERO + int(self.number(value)) * _MICROSECOND  # in UTC, as the frame has it


@dataclass(frozen=True)
class IntervalType(_TimeType):
    """Spans of time. A number counts microseconds, with 30 days to the month."""

    name: ClassVar[str] = "interval"
    expected: ClassVar[str] = _SPAN
    replaceable: ClassVar[bool] = False
    arrow: ClassVar[str] = "duration[us]"
    arrow_kinds: ClassVar[tuple[str, ...]] = ("duration",)
    time_of_day: ClassVar[bool] = True
    sql: ClassVar[tuple[SqlName, ...]] = (SqlName("interval", arguments=1, duckdb="interval"),)
    default_sql: ClassVar[str] = "interval"
    native: ClassVar[str | None] = r"INTERVAL"
    duckdb_form: ClassVar[str] = "to_microseconds({})"  # Parquet has no type for spans of time
    copy_form: ClassVar[str] = duckdb_form
    compares_alike: ClassVar[bool] = False

    @property
    def extent(self) -> tuple[int, int]:
        return -INT64_MAX, INT64_MAX  # the number below means no time at all to numpy

    @property
    def series(self) -> tuple[int, int]:
        return _SECOND, _SECOND

    def parse(self, value: object) -> Scalar | None:
        span = parse_duration(value) if isinstance(value, str) else None
        return None if span is None else duration_text(span)

    def number(self, value: Scalar) -> int | float:
        span = parse_duration(str(value))
        if span is None:
            raise ValueError
        return span

    def scalar(self, number: float) -> Scalar:
        return duration_text(int(number))

    def bound(self, value: Scalar) -> Scalar:
        return self.number(value)

    def read(self, values: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
        from privbench_core.schema.types.arrow import read_durations

        return read_durations(values)


def _days(text: str) -> int:
    return (dt.date.fromisoformat(text) - _DAY_ZERO).days


def _microseconds(text: str) -> int:
    return (dt.datetime.fromisoformat(text) - _TIME_ZERO) // _MICROSECOND


def _moment(value: object) -> dt.datetime | None:
    try:
        return dt.datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
