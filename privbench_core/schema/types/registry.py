"""The column types there are."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from privbench_core.schema.types.base import LogicalType, OrderedType
from privbench_core.schema.types.numeric import DecimalType, FloatType, IntegerType
from privbench_core.schema.types.textual import BooleanType, BytesType, CategoryType, JsonType, TextType, UuidType
from privbench_core.schema.types.times import DateType, IntervalType, TimestampType, TimestamptzType
from privbench_core.stored import Storable


class ColumnType(Storable, StrEnum):
    """Logical column types by name.

    Attributes:
        logical: The entry of the type, which everything else follows from; `Column.logical` knows the column's digits.

    >>> ColumnType("date").logical.expected
    'a date like 2020-12-31'
    """

    logical: LogicalType

    INTEGER = IntegerType()
    DECIMAL = DecimalType()
    FLOAT = FloatType()
    BOOLEAN = BooleanType()
    DATE = DateType()
    TIMESTAMP = TimestampType()
    CATEGORY = CategoryType()
    TEXT = TextType()
    TIMESTAMPTZ = TimestamptzType()
    INTERVAL = IntervalType()
    UUID = UuidType()
    BYTES = BytesType()
    JSON = JsonType()

    def __new__(cls, logical: LogicalType) -> Self:
        """Make the member of an entry: its value is the entry's name."""
        member = str.__new__(cls, logical.name)
        member._value_ = logical.name
        member.logical = logical
        return member

    @property
    def ordered(self) -> bool:
        """Whether values lie on a number line, so that the domain may be a range."""
        return isinstance(self.logical, OrderedType)

    @property
    def difference(self) -> ColumnType | None:
        """The type of the difference of two values; None where there is no exact one."""
        name = self.logical.difference if isinstance(self.logical, OrderedType) else None
        return next((kind for kind in ColumnType if kind.value == name), None)

    @property
    def opaque(self) -> bool:
        """Whether at most the length of a value is modelled, so that a column needs no domain."""
        return self.logical.opaque
