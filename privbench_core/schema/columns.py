"""Columns: their types, their declared domains, and what the DDL keeps of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

Scalar = str | int | float | bool


class ColumnType(StrEnum):
    """Logical column types; the physical (Arrow, SQL) ones follow from these."""

    INTEGER = "integer"
    DECIMAL = "decimal"
    FLOAT = "float"
    BOOLEAN = "boolean"
    DATE = "date"
    TIMESTAMP = "timestamp"
    CATEGORY = "category"  # text with a declared or learned list of values
    TEXT = "text"  # opaque text: only its length is modelled, or it follows a public pattern
    TIMESTAMPTZ = "timestamptz"  # a point in time: microseconds since 1970 in UTC
    INTERVAL = "interval"  # a span of time in microseconds, 30 days to the month
    UUID = "uuid"  # opaque: fresh random ones
    BYTES = "bytes"  # opaque: only their length is modelled
    JSON = "json"  # opaque: only the length of its text is modelled

    @property
    def ordered(self) -> bool:
        """Whether a range makes sense as a domain."""
        return self in _ORDERED

    @property
    def opaque(self) -> bool:
        """Whether at most the length of a value is looked at, so that it needs no domain."""
        return self in {ColumnType.TEXT, ColumnType.UUID, ColumnType.BYTES, ColumnType.JSON}


_ORDERED = frozenset(
    {
        ColumnType.INTEGER,
        ColumnType.DECIMAL,
        ColumnType.FLOAT,
        ColumnType.DATE,
        ColumnType.TIMESTAMP,
        ColumnType.TIMESTAMPTZ,
        ColumnType.INTERVAL,
    }
)


@dataclass(frozen=True)
class Range:
    """A declared interval, ends included.

    Dates and timestamps stand as ISO 8601 text here, decimals as text or numbers.

    Attributes:
        low: Smallest value of the domain.
        high: Largest value of the domain.
        cells: How many equal cells the interval is measured in; None picks a default from the width.
        step: What the values are apart, counted from ``low``: a number, or a span of time for dates and times; None
            for all values of the type.
    """

    low: Scalar
    high: Scalar
    cells: int | None = None
    step: Scalar | None = None


@dataclass(frozen=True)
class Values:
    """A declared list of values, in their natural order where they have one."""

    values: tuple[Scalar, ...]


@dataclass(frozen=True)
class Learn:
    """The domain is learned under differential privacy, and paid for."""


@dataclass(frozen=True)
class Pattern:
    """Opaque text that is made anew by a public rule; nothing of the source's text is looked at but NULL.

    Attributes:
        regex: A regular expression that made values match in full.
        provider: A provider of the Faker library (``email``, ``name``, ``phone_number``, ``address``); one of the two.
    """

    regex: str | None = None
    provider: str | None = None


Domain = Range | Values | Learn | Pattern


@dataclass(frozen=True)
class IdentitySequence:
    """How the database numbers a column, where that is not PostgreSQL's usual way.

    Attributes:
        name: Of the sequence; None for the one that PostgreSQL gives it.
        increment: From one number to the next, above 0.
        always: Whether the database takes no other number (GENERATED ALWAYS).
    """

    name: str | None = None
    increment: int = 1
    always: bool = False


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        name: Name in the source.
        type: Logical type.
        domain: Declared domain; None for key columns, booleans and opaque text.
        nullable: Whether NULL may occur.
        precision, scale: Of a decimal.
        max_length: Declared bound on the length of opaque values, in characters or bytes.
        sql_type: The type in the source's own words, kept in the DDL; None takes the default of the logical type.
        default: The source's DEFAULT expression, kept in the DDL.
        identity: Whether the database numbers the column itself (identity, serial).
        comment: The source's comment, kept in the DDL.
        sequence: Of an identity; None for the usual one.
    """

    name: str
    type: ColumnType
    domain: Domain | None = None
    nullable: bool = False
    precision: int | None = None
    scale: int | None = None
    max_length: int = 64
    sql_type: str | None = None
    default: str | None = None
    identity: bool = False
    comment: str | None = None
    sequence: IdentitySequence | None = None


@dataclass(frozen=True)
class Generated:
    """A column that the database computes: kept in the DDL, neither read nor sampled.

    Attributes:
        name: Its name.
        sql_type: Its type in PostgreSQL's words, or the name of an enum.
        expression: SQL over the other columns of a row.
        nullable: Whether it is without NOT NULL.
        comment: The source's.
    """

    name: str
    sql_type: str
    expression: str
    nullable: bool = True
    comment: str | None = None


@dataclass(frozen=True)
class EnumType:
    """A named type of the source with a list of values."""

    name: str
    values: tuple[str, ...]
