"""Values of ordered types as numbers on a grid, exactly.

Integers stand for themselves, decimals for the integer without their point, dates for days and timestamps for
microseconds since 1970-01-01 (in UTC where they have a zone), intervals for microseconds, floats for themselves. So one
arithmetic serves all ordered codecs, and it is exact: nothing passes through a float that is not one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.errors import InternalError, SourceError, SpecError
from privbench_core.schema.arrow_types import arrow_type
from privbench_core.schema.columns import Column, ColumnType, Scalar
from privbench_core.schema.durations import duration_text, parse_duration
from privbench_core.schema.sql_types import sql_type_of

Numbers = NDArray[np.int64] | NDArray[np.float64]

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
_DAY_ZERO = date(1970, 1, 1)
_TIME_ZERO = datetime.fromisoformat("1970-01-01")
_MICROSECOND = timedelta(microseconds=1)
_MOMENTS = frozenset({ColumnType.TIMESTAMP, ColumnType.TIMESTAMPTZ})
CALENDAR = _MOMENTS | {ColumnType.DATE}
"""Types whose zero is a day like any other."""


@dataclass(frozen=True)
class Grid:
    """The number line of one ordered column.

    Attributes:
        where: ``table.column`` (or just the column), for messages.
        type: An ordered column type.
        precision, scale: Of a decimal.
        bits: Of an integer, as its SQL type declares them.
        step: How many grid points of the type lie from one number to the next; what lies between is rounded down.
        origin: The grid point of number zero, from 0 to ``step`` - 1.
    """

    where: str
    type: ColumnType
    precision: int | None = None
    scale: int | None = None
    bits: int = 64
    step: int = 1
    origin: int = 0

    @classmethod
    def of(cls, column: Column, table: str = "") -> Grid:
        """The grid of a column; InternalError if its type has no order."""
        if not column.type.ordered:
            raise InternalError(f"{qualified(column, table)}: a {column.type} column has no number line")
        sql_type = sql_type_of(column)
        bits = 64 if sql_type is None or sql_type.integers is None else 1 + sql_type.integers[1].bit_length()
        return cls(qualified(column, table), column.type, column.precision, column.scale, bits)

    def stepped(self, low: Scalar, step: Scalar) -> Grid:
        """The grid of the values that are some ``step`` above or below ``low``; SpecError if that is no step of it."""
        try:
            points = self._points(step)
        except (ValueError, InvalidOperation, TypeError):
            points = 0
        if not 0 < points <= INT64_MAX:
            raise SpecError(f"{self.where}: step {step!r} is no step of type {self._type_text}; correct the domain")
        return replace(self, step=points, origin=int(self.number(low)) % points)

    @property
    def arrow_type(self) -> pa.DataType:
        """The canonical Arrow type of the column."""
        return arrow_type(Column(self.where, self.type, precision=self.precision, scale=self.scale))

    @property
    def continuous(self) -> bool:
        """Whether the grid is that of floats rather than of whole numbers."""
        return self.type is ColumnType.FLOAT

    @property
    def extent(self) -> tuple[int, int]:
        """Smallest and largest number of a whole-number grid that the column's type can hold."""
        match self.type:
            case ColumnType.DECIMAL:
                largest = min(10 ** (self.precision or 38) - 1, INT64_MAX)
                return -largest, largest
            case ColumnType.DATE:
                return _days("0001-01-01"), _days("9999-12-31")
            case ColumnType.TIMESTAMP | ColumnType.TIMESTAMPTZ:
                return _microseconds("0001-01-01"), _microseconds("9999-12-31T23:59:59.999999")
            case ColumnType.INTERVAL:
                return -INT64_MAX, INT64_MAX  # the number below means no time at all to numpy
            case _:
                return -(2 ** (self.bits - 1)), 2 ** (self.bits - 1) - 1

    def number(self, value: Scalar) -> int | float:
        """The number of a declared value; SpecError if it is not a value of the column's type."""
        try:
            number = self._number(value)
        except (ValueError, OverflowError, InvalidOperation, TypeError):
            raise SpecError(
                f"{self.where}: {value!r} is not a value of type {self._type_text}; correct the domain"
            ) from None
        if not self.continuous and not self.extent[0] <= number <= self.extent[1]:
            raise SpecError(f"{self.where}: {value!r} does not fit type {self._type_text}; correct the domain")
        return number if self.continuous else (int(number) - self.origin) // self.step

    def scalar(self, number: float) -> Scalar:
        """The inverse of `number`: a value as `Range` and `Values` hold it."""
        number = number if self.continuous else int(number) * self.step + self.origin
        match self.type:
            case ColumnType.FLOAT:
                return float(number)
            case ColumnType.DECIMAL:
                return format(Decimal(int(number)).scaleb(-self._places), "f")
            case ColumnType.DATE:
                return (_DAY_ZERO + timedelta(days=int(number))).isoformat()
            case ColumnType.TIMESTAMP | ColumnType.TIMESTAMPTZ:
                zone = "Z" if self.type is ColumnType.TIMESTAMPTZ else ""
                return (_TIME_ZERO + int(number) * _MICROSECOND).isoformat() + zone
            case ColumnType.INTERVAL:
                return duration_text(int(number))
            case _:
                return int(number)

    def numbers(self, values: pa.ChunkedArray) -> tuple[Numbers, NDArray[np.bool_]]:
        """Numbers of ``values`` and where they are NULL (NaN counts as NULL), both of shape (n,).

        Decimals beyond 64 bits are clamped to the largest number there is; they are outside of any domain anyway.

        Raises:
            SourceError: The values are of another type.
        """
        if not self._takes(values.type):
            found = f"declared {self.type}, found {values.type}"
            raise SourceError(f"{self.where}: {found}; correct the type in the spec or fix the source")
        try:
            array = pc.cast(values, self._exchange_type, safe=self.type not in _MOMENTS | {ColumnType.INTERVAL})
        except pa.ArrowInvalid:
            # Arrow's own message quotes the value, so it must not travel on.
            found = f"holds values that {self._type_text} cannot represent"
            raise SourceError(f"{self.where}: {found}; correct the type in the spec or fix the source") from None
        array = array.combine_chunks()
        null = pc.is_null(array, nan_is_null=True).to_numpy(zero_copy_only=False)
        if self.type is ColumnType.DECIMAL:
            return self._in_steps(_decimal_numbers(array, null)), null
        if self.type is ColumnType.DATE:
            array = array.view(pa.int32())
        elif self.type in _MOMENTS or self.type is ColumnType.INTERVAL:
            array = array.view(pa.int64())
        dtype = np.float64 if self.continuous else np.int64
        numbers = array.fill_null(0).to_numpy(zero_copy_only=False).astype(dtype, copy=False)
        # Adding zero makes -0.0 the same value as 0.0 for lists of values too.
        return (np.where(null, 0.0, numbers) + 0.0 if self.continuous else self._in_steps(numbers)), null

    def array(self, numbers: Numbers, null: NDArray[np.bool_] | None = None) -> pa.Array:
        """Values of the column's Arrow type for ``numbers``, NULL where ``null`` says so."""
        if self.step > 1:
            numbers = numbers * self.step + self.origin
        match self.type:
            case ColumnType.DECIMAL:
                words = np.empty((len(numbers), 2), np.int64)
                words[:, 0] = numbers
                words[:, 1] = words[:, 0] >> 63  # the upper half of 128 bits is the sign
                array = pa.Array.from_buffers(self.arrow_type, len(numbers), [None, pa.py_buffer(words.tobytes())])
            case ColumnType.DATE:
                array = pa.array(numbers.astype(np.int32)).view(self.arrow_type)
            case ColumnType.TIMESTAMP | ColumnType.TIMESTAMPTZ | ColumnType.INTERVAL:
                array = pa.array(numbers.astype(np.int64)).view(self.arrow_type)
            case _:
                array = pa.array(numbers)
        if null is None or not null.any():
            return array
        return pc.if_else(pa.array(null), pa.scalar(None, self.arrow_type), array)

    def to_dict(self) -> dict[str, Any]:
        """The grid's part of a codec's description."""
        digits = {"precision": self.precision, "scale": self.scale, "bits": self.bits}
        return {"where": self.where, "type": str(self.type), **digits, "step": self.step, "origin": self.origin}

    @classmethod
    def from_dict(cls, description: dict[str, Any]) -> Grid:
        """The inverse of `to_dict`; further entries are ignored."""
        kind = ColumnType(description["type"])
        rest = ("precision", "scale", "bits", "step", "origin")
        return cls(description["where"], kind, *(description[key] for key in rest))

    def _in_steps(self, points: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers of grid points: whole steps from the origin, rounded down."""
        if self.step == 1:
            return points
        steps, rest = np.divmod(points, self.step)
        return np.asarray(steps - (rest < self.origin), np.int64)

    def _points(self, step: Scalar) -> int:
        """Grid points to a step; ValueError if it is no whole number of them."""
        match self.type:
            case ColumnType.INTEGER | ColumnType.DECIMAL:
                return int(self._number(step))
            case ColumnType.FLOAT:
                raise ValueError
        span = parse_duration(str(step))
        point = timedelta(days=1) // _MICROSECOND if self.type is ColumnType.DATE else 1
        if span is None or span % point:
            raise ValueError
        return span // point

    @property
    def _places(self) -> int:
        """Digits after the point: other types than decimals have none, whatever the column declares."""
        return (self.scale or 0) if self.type is ColumnType.DECIMAL else 0

    @property
    def _type_text(self) -> str:
        return f"decimal({self.precision}, {self.scale})" if self.type is ColumnType.DECIMAL else str(self.type)

    def _number(self, value: Scalar) -> int | float:
        if isinstance(value, bool):
            raise ValueError
        match self.type:
            case ColumnType.FLOAT:
                number = float(value)
                if not np.isfinite(number):
                    raise ValueError
                return number + 0.0
            case ColumnType.DATE:
                return _days(str(value))
            case ColumnType.TIMESTAMP:
                return _microseconds(str(value))
            case ColumnType.TIMESTAMPTZ:
                moment = datetime.fromisoformat(str(value))
                utc = moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment
                return (utc - _TIME_ZERO) // _MICROSECOND
            case ColumnType.INTERVAL:
                span = parse_duration(str(value))
                if span is None:
                    raise ValueError
                return span
            case _:
                scaled = Decimal(str(value)).scaleb(self._places)
                if scaled != scaled.to_integral_value():
                    raise ValueError
                return int(scaled)

    def _takes(self, found: pa.DataType) -> bool:
        """Whether an Arrow type can hold values of the column's type."""
        match self.type:
            case ColumnType.FLOAT:
                kinds = [pa.types.is_floating, pa.types.is_integer]
            case ColumnType.DECIMAL:
                kinds = [pa.types.is_decimal, pa.types.is_integer]
            case ColumnType.DATE:
                kinds = [pa.types.is_date]
            case ColumnType.TIMESTAMP:
                kinds = [_is_local_time]
            case ColumnType.TIMESTAMPTZ:
                kinds = [_is_zoned_time]
            case ColumnType.INTERVAL:
                kinds = [pa.types.is_duration]
            case _:
                kinds = [pa.types.is_integer]
        return any(kind(found) for kind in [pa.types.is_null, *kinds])

    @property
    def _exchange_type(self) -> pa.DataType:
        """The Arrow type whose buffer `numbers` reads: the canonical one, with room to spare for decimals."""
        return pa.decimal128(38, self._places) if self.type is ColumnType.DECIMAL else self.arrow_type


def qualified(column: Column, table: str) -> str:
    """``table.column`` as messages have it; the column alone where the table is not known."""
    return f"{table}.{column.name}" if table else column.name


def _is_local_time(found: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(found)) and found.tz is None


def _is_zoned_time(found: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(found)) and found.tz is not None


def _days(text: str) -> int:
    return (date.fromisoformat(text) - _DAY_ZERO).days


def _microseconds(text: str) -> int:
    return (datetime.fromisoformat(text) - _TIME_ZERO) // _MICROSECOND


def _decimal_numbers(array: pa.Array, null: NDArray[np.bool_]) -> NDArray[np.int64]:
    if len(array) == 0:
        return np.empty(0, np.int64)
    words = np.frombuffer(array.buffers()[1], np.int64, 2 * len(array), 16 * array.offset).reshape(-1, 2)
    low, high = words[:, 0], words[:, 1]
    clamped = np.where(high < 0, np.int64(INT64_MIN), np.int64(INT64_MAX))
    return np.where(null, 0, np.where(high == low >> 63, low, clamped))
