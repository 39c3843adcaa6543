"""Values of ordered types as numbers on a grid, exactly.

The column type says which number stands for a value (`OrderedType`); here Arrow arrays become arrays of numbers and
back, in whole steps. One arithmetic serves all ordered codecs, and it is exact: only floats pass through a float.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR, Decimal
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.columns.codec import wrong_type
from privbench_core.errors import InternalError, SourceError, SpecError
from privbench_core.guards import EXACT_FLOAT, FINEST_CELL, FLOAT_DUST, LEAST_FLOAT, TOLERANCE
from privbench_core.schema.columns import Column, ColumnType, Scalar
from privbench_core.schema.types.base import INT64_MAX, OrderedType
from privbench_core.schema.types.times import NO_DISTANCE, CalendarType
from privbench_core.stored import Storable

Numbers = NDArray[np.int64] | NDArray[np.float64]


@dataclass(frozen=True)
class Grid(Storable):
    """The number line of one ordered column.

    Attributes:
        where: ``table.column`` (or just the column), for messages.
        type: An ordered column type.
        precision, scale: Of a decimal.
        bits: Of an integer, as its SQL type declares them.
        step: Grid points of the type from one number to the next; those between are rounded down.
        origin: The grid point of number zero, from 0 to ``step`` - 1.
        spacing: Of floats with a step: the step. Numbers are whole steps from ``start`` then, the nearest to each
            value, because floats do not hold most decimals exactly.
        start: Of floats with a step: the value of number zero, from 0 to less than ``spacing``.
    """

    where: str
    type: ColumnType
    precision: int | None = None
    scale: int | None = None
    bits: int = 64
    step: int = 1
    origin: int = 0
    spacing: float | None = None
    start: float = 0.0

    @classmethod
    def of(cls, column: Column, table: str = "") -> Grid:
        """Return the grid of a column; InternalError if its type has no order."""
        where = qualified(column, table)
        if not column.type.ordered:
            raise InternalError(f"{where}: a {column.type} column has no number line")
        return cls(where, column.type, column.precision, column.scale, column.bits)

    def stepped(self, low: Scalar, step: Scalar) -> Grid:
        """Return the grid of the values some ``step`` above or below ``low``; SpecError if that is not a step."""
        if self.logical.continuous:
            first, width = Decimal(repr(float(low))), Decimal(repr(float(step)))
            return replace(
                self, spacing=float(width), start=float(first - (first / width).to_integral(ROUND_FLOOR) * width)
            )
        try:
            points = self.logical.points(step)
        except (ValueError, ArithmeticError, TypeError):
            points = 0
        if not 0 < points <= INT64_MAX:
            raise SpecError(f"{self.where}: step {step!r} is not a step of type {self.logical}; correct the domain")
        return replace(self, step=points, origin=int(self.number(low)) % points)

    def in_multiples(self, unit: float) -> Grid:
        """Return the grid of the multiples of a unit: grid points, of floats a decimal; see `StepCodec.units`."""
        return self.stepped(0.0, unit) if self.logical.continuous else replace(self, step=int(unit))

    @property
    def logical(self) -> OrderedType:
        """The entry of the type with its digits or bits."""
        return cast(OrderedType, self.type.logical.sized(self.precision, self.scale, self.bits))

    @property
    def continuous(self) -> bool:
        """Whether the numbers are floats rather than integers."""
        return self.logical.continuous and self.spacing is None

    @property
    def extent(self) -> tuple[int, int]:
        """The smallest and largest number of a grid of whole numbers that the column's type can hold."""
        return self.logical.extent

    @property
    def reach(self) -> tuple[float, float]:
        """The smallest and largest number that stands for a value of the type."""
        if self.continuous:
            return -float(2**127), float(2**127)
        if self.spacing is not None:
            return -EXACT_FLOAT, EXACT_FLOAT
        low, high = self.extent
        return -((self.origin - low) // self.step), (high - self.origin) // self.step

    def number(self, value: Scalar) -> int | float:
        """Return the number of a declared value; SpecError if it is not a value of the column's type."""
        try:
            number = self.logical.number(value)
        except (ValueError, ArithmeticError, TypeError):
            raise SpecError(
                f"{self.where}: {value!r} is not a value of type {self.logical}; correct the domain"
            ) from None
        if self.continuous:
            return number
        if self.spacing is not None:
            return math.floor((number - self.start) / self.spacing + TOLERANCE)  # a bound may be below its decimal
        if not self.extent[0] <= number <= self.extent[1]:
            raise SpecError(f"{self.where}: {value!r} does not fit type {self.logical}; correct the domain")
        return (int(number) - self.origin) // self.step

    def scalar(self, number: float) -> Scalar:
        """Return the value of a number as `Range` and `Values` hold it: the inverse of `number`."""
        if self.spacing is not None:
            return float(self._floats(np.array([number]))[0])
        return self.logical.scalar(number if self.continuous else int(number) * self.step + self.origin)

    def numbers(self, values: pa.ChunkedArray) -> tuple[Numbers, NDArray[np.bool_]]:
        """Return the numbers of ``values`` and where they are NULL (NaN counts as NULL), both of shape (n,).

        Decimals beyond 64 bits are clamped to the largest number; they are outside of any domain anyway.

        Raises:
            SourceError: The values are of another type.
        """
        if not self.logical.accepts(values.type):
            raise wrong_type(self.where, self.type, values.type)
        target = self.logical.arrow_type
        is_time = pa.types.is_timestamp(target) or pa.types.is_duration(target)  # finer digits are dropped
        # All digits of a wider decimal are read, so that large ones can be clamped.
        readable = pa.decimal128(38, target.scale) if pa.types.is_decimal(target) else target
        try:
            array = pc.cast(values, readable, safe=not is_time).combine_chunks()
        except pa.ArrowInvalid:
            # Arrow's own message quotes the value, so it must not travel on.
            raise SourceError(
                f"{self.where}: holds values that {self.logical} cannot represent; "
                "correct the type in the spec or fix the source"
            ) from None
        null = pc.is_null(array, nan_is_null=True).to_numpy(zero_copy_only=False)
        if pa.types.is_decimal(target):
            return self._in_steps(_decimal_numbers(array, null)), null
        if pa.types.is_temporal(target):
            array = array.view(pa.int32() if pa.types.is_date32(target) else pa.int64())
        dtype = np.float64 if self.logical.continuous else np.int64
        numbers = array.fill_null(0).to_numpy(zero_copy_only=False).astype(dtype, copy=False)
        if self.spacing is not None:
            with np.errstate(over="ignore"):  # a warning would tell of a value; it is clipped
                steps = np.rint((np.where(null, 0.0, numbers) - self.start) / self.spacing)
            return np.clip(steps, -EXACT_FLOAT, EXACT_FLOAT).astype(np.int64), null
        # Adding zero makes -0.0 the same value as 0.0 for lists of values too.
        return (np.where(null, 0.0, numbers) + 0.0 if self.continuous else self._in_steps(numbers)), null

    def array(self, numbers: Numbers, null: NDArray[np.bool_] | None = None) -> pa.Array:
        """Return values of the column's Arrow type for ``numbers``, NULL where ``null`` says so."""
        if self.step > 1:
            numbers = numbers * self.step + self.origin
        if self.spacing is not None:
            numbers = self._floats(numbers)
        target = self.logical.arrow_type
        if pa.types.is_decimal(target):
            words = np.empty((len(numbers), 2), np.int64)
            words[:, 0] = numbers
            words[:, 1] = words[:, 0] >> 63  # the upper half of 128 bits is the sign
            array = pa.Array.from_buffers(target, len(numbers), [None, pa.py_buffer(words.tobytes())])
        elif pa.types.is_temporal(target):
            array = pa.array(numbers.astype(np.int32 if pa.types.is_date32(target) else np.int64)).view(target)
        else:
            array = pa.array(numbers)
        if null is None or not null.any():
            return array
        return pc.if_else(pa.array(null), pa.scalar(None, target), array)

    def _floats(self, steps: Numbers) -> NDArray[np.float64]:
        """Return the floats nearest to the decimals that whole steps stand for."""
        width = self.spacing or 1.0
        digits = max(-int(Decimal(repr(part)).normalize().as_tuple().exponent) for part in (width, self.start))
        return np.asarray(np.round(self.start + np.asarray(steps, np.float64) * width, max(digits, 0)))

    def _in_steps(self, points: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return grid points as whole steps from the origin, rounded down."""
        if self.step == 1:
            return points
        steps, rest = np.divmod(points, self.step)
        return np.asarray(steps - (rest < self.origin), np.int64)


def sentinels_of(column: Column) -> tuple[int, ...]:
    """Return from which number on a date that is coded stands for no day, and then the usual ones of these numbers.

    Such a date has no distance from another one: its difference is its number and `NO_DISTANCE`. Empty where a column
    holds neither dates nor differences that may be of dates.
    """
    of_days: dict[ColumnType, ColumnType] = {
        ColumnType.INTEGER: ColumnType.DATE,
        ColumnType.INTERVAL: ColumnType.TIMESTAMP,
    }
    kind = column.type if column.relative is None else of_days.get(column.type, column.type)
    if not isinstance(kind.logical, CalendarType):
        return ()
    above = 0 if column.relative is None else NO_DISTANCE
    return tuple(above + number for number in (kind.logical.endless, *kind.logical.sentinels))


def qualified(column: Column, table: str) -> str:
    """Return ``table.column`` for messages; the column alone if the table is not known."""
    return f"{table}.{column.name}" if table else column.name


def is_multiple(numbers: Numbers, unit: float) -> NDArray[np.bool_]:
    """Return which floats are multiples of a decimal unit, to the digits that a float of 64 bits has, shape (n,).

    Floats do not hold most decimals exactly, and sums of them are a little off. Those that were stored in 32 bits have
    as many digits less. `engines.sql.codes` has the same arithmetic, operation by operation.

    >>> is_multiple(np.array([0.3, 0.1 + 0.2, float(np.float32(0.3)), 0.35, -7.0, 1 / 3]), 0.1).tolist()
    [True, True, True, False, True, False]
    """
    size = np.clip(np.abs(numbers), LEAST_FLOAT, 1 / LEAST_FLOAT)
    digits = np.where(size == size.astype(np.float32), FINEST_CELL, FLOAT_DUST)
    factor, divisor = in_units(unit)
    steps = np.minimum(size * factor / divisor, EXACT_FLOAT)
    return np.asarray(np.abs(steps - np.floor(steps + 0.5)) <= digits * np.maximum(steps, 1.0))


def in_units(unit: float) -> tuple[float, float]:
    """Return whole numbers by which to multiply and to divide a float to count it in a decimal unit.

    >>> in_units(0.01), in_units(50.0)
    ((100.0, 1.0), (1.0, 50.0))
    """
    return (float(round(1 / unit)), 1.0) if unit < 1 else (1.0, unit)


def _decimal_numbers(array: pa.Array, null: NDArray[np.bool_]) -> NDArray[np.int64]:
    if len(array) == 0:
        return np.empty(0, np.int64)
    words = np.frombuffer(array.buffers()[1], np.int64, 2 * len(array), 16 * array.offset).reshape(-1, 2)
    low, high = words[:, 0], words[:, 1]
    clamped = np.where(high < 0, np.int64(-INT64_MAX - 1), np.int64(INT64_MAX))
    return np.where(null, 0, np.where(high == low >> 63, low, clamped))


def written_day(days: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return days since 1970-01-01 as dates are written in one number, shape (n,).

    >>> written_day(day_of(np.array([20200230, 20201231, 20201399, 20210031]))).tolist()
    [20200229, 20201231, 20201231, 20201231]
    """
    months = days.astype("datetime64[D]").astype("datetime64[M]")
    number = months.astype(np.int64)
    of_month = (days - months.astype("datetime64[D]").astype(np.int64)) + 1
    return np.asarray((1970 + number // 12) * 10_000 + (number % 12 + 1) * 100 + of_month, np.int64)


def day_of(numbers: NDArray[np.int64] | NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the last day that is written with no larger number, in days since 1970-01-01, shape (n,)."""
    whole = np.asarray(numbers, np.int64)
    month, day = whole // 100 % 100, whole % 100
    months = (whole // 10_000 - 1970) * 12 + np.minimum(month, 13) - 1
    begin, end = ((months + more).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) for more in (0, 1))
    of_month = np.where(month > 12, 0, np.minimum(day, end - begin))  # noqa: PLR2004 - months
    return np.where(month == 0, end, begin + of_month) - 1
