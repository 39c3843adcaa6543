"""Integers, decimals and floats."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Self

from privbench_core.schema.types.base import INT64_MAX, OrderedType, Scalar, SqlName

if TYPE_CHECKING:
    import pyarrow as pa


class _NumericType(OrderedType):
    """What numbers have in common: steps are values of the type itself."""

    numeric = True

    def parse_step(self, value: object) -> Scalar | None:
        step = self.parse(value)
        return step if step is not None and self.sort_key(step) > 0 else None

    def points(self, step: Scalar) -> int:
        return int(self.number(step))


@dataclass(frozen=True)
class IntegerType(_NumericType):
    """Integers of 64 bits, or as many as the SQL type has. A number stands for itself."""

    bits: int = 64

    name = "integer"
    difference = "integer"
    expected = "an integer of 64 bits"
    step_expected = f"{expected}, above zero"
    options = frozenset({"identity"})
    listable = True
    arrow = "int64"
    arrow_kinds = ("integer",)
    sql = (
        SqlName("bigint", ("int8", "uinteger"), bits=64),
        SqlName("integer", ("int", "int4", "mediumint", "usmallint"), bits=32),
        SqlName("smallint", ("int2", "tinyint", "utinyint"), bits=16),
    )
    also_stored_as = ("numeric",)
    native = r"(U|BIG|SMALL|TINY|MEDIUM|HUGE)*INT(?!ERVAL)|SERIAL"

    def sized(self, precision: int | None, scale: int | None, bits: int) -> Self:
        return replace(self, bits=bits)

    @property
    def extent(self) -> tuple[int, int]:
        return -(2 ** (self.bits - 1)), 2 ** (self.bits - 1) - 1

    def parse(self, value: object) -> Scalar | None:
        number = as_integer(value)
        return number if number is not None and -INT64_MAX - 1 <= number <= INT64_MAX else None

    def number(self, value: Scalar) -> int | float:
        return _whole(Decimal(str(value)))

    def scalar(self, number: float) -> Scalar:
        return int(number)


@dataclass(frozen=True)
class DecimalType(_NumericType):
    """Exact decimals of declared digits. A number is the integer without the point.

    Attributes:
        precision, scale: Digits in all, and after the point; None where a column does not declare them.
    """

    precision: int | None = None
    scale: int | None = None

    name = "decimal"
    difference = "decimal"
    expected = "a number"
    step_expected = f"{expected}, above zero"
    options = frozenset({"precision", "scale"})
    arrow_kinds = ("decimal",)
    arrow_accepts = ("integer", "floating")
    sql = (SqlName("numeric", ("decimal", "dec"), arguments=2),)
    also_stored_as = ("real", "double precision")
    native = r"DECIMAL|NUMERIC"

    def __str__(self) -> str:
        return self.name if self.precision is None else f"{self.name}({self.precision}, {self.scale})"

    @property
    def sql_arguments(self) -> tuple[int, ...]:
        return self.precision or 0, self.scale or 0

    @property
    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.decimal128(self.precision, self.scale)

    def sized(self, precision: int | None, scale: int | None, bits: int) -> Self:
        return replace(self, precision=precision, scale=scale)

    @property
    def extent(self) -> tuple[int, int]:
        largest = min(10 ** (self.precision or 38) - 1, INT64_MAX)
        return -largest, largest

    @property
    def series(self) -> tuple[int, int]:
        one = 10 ** (self.scale or 0)
        return one, one

    def parse(self, value: object) -> Scalar | None:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            return None
        if isinstance(value, int):
            return value
        try:
            number = Decimal(str(value).strip())
        except InvalidOperation:
            return None
        return str(number) if number.is_finite() else None

    def number(self, value: Scalar) -> int | float:
        return _whole(Decimal(str(value)).scaleb(self.scale or 0))

    def scalar(self, number: float) -> Scalar:
        return format(Decimal(int(number)).scaleb(-(self.scale or 0)), "f")

    def sort_key(self, value: Scalar) -> Decimal:
        return Decimal(str(value))

    def bound(self, value: Scalar) -> Scalar:
        """Return the float that Arrow makes of it, like those in the frame: Python's is not always the same one."""
        import pyarrow as pa

        return float(pa.scalar(Decimal(str(value)), self.arrow_type).cast(pa.float64()).as_py())


@dataclass(frozen=True)
class FloatType(_NumericType):
    """Floats of 64 bits. A number stands for itself."""

    name = "float"
    expected = "a finite number"
    step_expected = f"{expected}, above zero"
    continuous = True
    keyable = False
    surrogate = None
    arrow = "float64"
    arrow_kinds = ("floating",)
    arrow_accepts = ("integer",)
    sql = (
        SqlName("double precision", ("float", "float8", "double")),
        SqlName("real", ("float4",)),
    )
    native = r"DOUBLE|FLOAT|REAL"

    def parse(self, value: object) -> Scalar | None:
        return as_number(value)

    def number(self, value: Scalar) -> int | float:
        number = float(value)
        if isinstance(value, bool) or not math.isfinite(number):
            raise ValueError
        return number + 0.0  # -0.0 is the same value as 0.0

    def scalar(self, number: float) -> Scalar:
        return float(number)

    def points(self, step: Scalar) -> int:
        raise ValueError  # a step of floats is no whole number of points: see `columns.grid`

    def sort_key(self, value: Scalar) -> Decimal:
        return Decimal(repr(float(value)))

    def bound(self, value: Scalar) -> Scalar:
        return float(value)


def as_integer(value: object) -> int | None:
    """Return an integer written as a number or as numeric text (``1e6`` too); None for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    number = as_number(value)
    if isinstance(value, str) and value.strip().lstrip("+-").isdecimal():
        return int(value)  # exact beyond 2^53, where the way through a float is not
    return int(number) if number is not None and number.is_integer() else None


def as_number(value: object) -> float | None:
    """Return a finite number written as a number or as numeric text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _whole(number: Decimal) -> int:
    if number != number.to_integral_value():
        raise ValueError
    return int(number)
