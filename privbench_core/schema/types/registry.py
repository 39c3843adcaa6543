"""The column types there are, and the SQL types that a spec may name for them, in PostgreSQL's words.

A spec is a file that people pass around, and its ``sql_type`` ends up in DDL. It is never pasted there: it is parsed
into a `SqlType` of a known name or refused, and the DDL spells the `SqlType`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from privbench_core.schema.types.base import LogicalType, OrderedType, SqlName
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


_NAMES = {sql.name: sql for kind in ColumnType for sql in kind.logical.sql}
_SYNONYMS = {synonym: sql.name for sql in _NAMES.values() for synonym in sql.synonyms}
_SPELLED = re.compile(
    r"([a-z][a-z0-9]*(?: [a-z]+)*?) ?(?:\( ?(\d{1,8})(?: ?, ?(\d{1,4}))? ?\))?((?: [a-z]+)*(?:\[\])?)"
)


@dataclass(frozen=True)
class SqlType:
    """A known SQL type.

    Attributes:
        name: In PostgreSQL's own words, like ``character varying``.
        arguments: Length, or precision and scale; empty for none.
    """

    name: str
    arguments: tuple[int, ...] = ()

    def __str__(self) -> str:
        if not self.arguments:
            return self.name
        inside = f"({','.join(str(number) for number in self.arguments)})"
        first, space, rest = self.name.partition(" ")  # timestamp(3) with time zone, but character varying(3)
        return f"{first}{inside}{space}{rest}" if first == "timestamp" else f"{self.name}{inside}"

    @property
    def facts(self) -> SqlName:
        """What the entries of `ColumnType` say about a type of this name."""
        return _NAMES[self.name]

    @property
    def read_as(self) -> ColumnType:
        """The column type of a source's column of this type."""
        return next(kind for kind in ColumnType if self.facts in kind.logical.sql)

    @property
    def stores(self) -> frozenset[ColumnType]:
        """The column types whose values a column of this type can hold."""
        return frozenset(
            kind for kind in ColumnType if self.facts in kind.logical.sql or self.name in kind.logical.also_stored_as
        )

    @property
    def is_array(self) -> bool:
        """Whether it is a type of arrays."""
        return self.name.endswith("[]")

    @property
    def length(self) -> int | None:
        """The maximal number of characters, if there is one."""
        return self.arguments[0] if self.arguments and self.name.startswith("character") else None


def parse_sql_type(text: str) -> SqlType | None:
    """Return the type that ``text`` names, or None if it is not a known one.

    >>> str(parse_sql_type("VARCHAR(80)")), str(parse_sql_type("timestamp(3) with time zone"))
    ('character varying(80)', 'timestamp(3) with time zone')
    >>> parse_sql_type("integer); DROP TABLE person; --") is None
    True
    """
    found = _SPELLED.fullmatch(" ".join(text.lower().split()))
    if not found:
        return None
    spelled = f"{found[1]}{found[4]}"
    name = _SYNONYMS.get(spelled, spelled)
    arguments = tuple(int(number) for number in (found[2], found[3]) if number is not None)
    if name not in _NAMES or len(arguments) > _NAMES[name].arguments:
        return None
    if name == "character" and not arguments:
        arguments = (1,)
    return SqlType("text") if name == "character varying" and not arguments else SqlType(name, arguments)


def default_sql_type(logical: LogicalType) -> SqlType:
    """Return the type of a column that names none."""
    return SqlType(logical.default_sql or logical.sql[0].name, logical.sql_arguments)


def known_sql_types() -> tuple[str, ...]:
    """Return the names that `parse_sql_type` knows, for messages."""
    return tuple(sorted({*_NAMES, *_SYNONYMS}))
