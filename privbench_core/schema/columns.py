"""Columns: their declared domains, and what the DDL keeps of them; their types are in `types`."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from privbench_core.errors import InternalError
from privbench_core.schema.types.base import LogicalType, Scalar
from privbench_core.schema.types.registry import ColumnType, SqlType, default_sql_type, parse_sql_type
from privbench_core.stored import Storable

_DATE = re.compile(r"(?i)(?<!up)(?<!candi)(?<!man)(?<!vali)(date|ymd)")
_YEAR = re.compile(r"(?i)year(_?id)?$|(?<![a-z])(yr|season)$|(?<![a-z])year_?of(?=_[a-z]|(?-i:(?<=f)[A-Z]))")

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Column", "ColumnType", "Domain", "EnumType", "Generated", "IdentitySequence", "Learn", "Pattern", "Range",
           "Relative", "Scalar", "Values"]  # fmt: skip

MOST_DIGITS = 38
"""Of decimal128: room for the difference of any two decimals, and enough for every database's default."""


@dataclass(frozen=True)
class Range:
    """A declared interval, ends included.

    Dates and timestamps are ISO 8601 text, decimals text or numbers.

    Attributes:
        low: Smallest value of the domain.
        high: Largest value of the domain.
        cells: Number of equal cells that the interval is measured in; None picks a default from the width.
        step: Distance between values, counted from ``low``: a number, or a span of time for dates and times; None for
            all values of the type.
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
    """The domain is learned under differential privacy, and paid for.

    Attributes:
        listed: Of whole numbers: a list of values, like codes of diagnoses, in place of a range.
        names: Values that public rows name, as text; those of a list that is learned beyond them cost.
    """

    listed: bool = False
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pattern(Storable):
    """Opaque text that a public rule generates; of the source's text only NULL is measured.

    Attributes:
        regex: A regular expression that generated values match in full.
        provider: A provider of the Faker library (``email``, ``name``, ``phone_number``, ``address``); one of the two.
    """

    regex: str | None = None
    provider: str | None = None


Domain = Range | Values | Learn | Pattern


@dataclass(frozen=True)
class Relative:
    """What of a column is modelled is its difference from another one: of the same row, or of the row that owns it.

    Attributes:
        to: The base, of the same type: an attribute of the same table, or ``table.attribute`` of the owner's.
        domain: Of the difference: days between dates, a span between times, else a value of the column's own type.
    """

    to: str
    domain: Domain


@dataclass(frozen=True)
class IdentitySequence:
    """How the database numbers a column, where that is not PostgreSQL's usual way.

    Attributes:
        name: Of the sequence; None for the name that PostgreSQL gives it.
        increment: From one number to the next, above 0.
        always: Whether the database accepts no other number (GENERATED ALWAYS).
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
        domain: Declared domain; None for key columns, booleans, opaque text and where ``relative`` says what it is.
        nullable: Whether NULL may occur.
        precision, scale: Of a decimal.
        max_length: Declared bound on the length of opaque values, in characters or bytes.
        sql_type: The type in the source's own words, kept in the DDL; None takes the default of the logical type.
        default: The source's DEFAULT expression, kept in the DDL.
        identity: Whether the database numbers the column itself (identity, serial).
        comment: What the column is, as the source or the spec says it; kept in the DDL.
        sequence: Of an identity; None for the usual one.
        unit: What its numbers count: EUR, kg, minutes.
        format: How a source writes dates or times as text, in the words of strptime; None for ISO 8601.
        relative: The base, and the domain of the difference, where that is modelled in place of the column.
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
    unit: str | None = None
    format: str | None = None
    relative: Relative | None = None

    @property
    def modelled(self) -> Column:
        """What is coded, learned and drawn: the column itself, or its difference as a column of the same name."""
        if self.relative is None:
            return self
        kind = self.type.difference
        if kind is None:
            raise InternalError(f"{self.name}: a {self.type} column has no exact differences")
        scaled = kind is ColumnType.DECIMAL
        return replace(
            self,
            type=kind,
            domain=self.relative.domain,
            precision=MOST_DIGITS if scaled else None,
            scale=self.scale if scaled else None,
            sql_type=None,
        )

    @property
    def written_dates(self) -> bool:
        """Whether whole numbers may be dates, as 20201231: their name says so."""
        whole = self.type is ColumnType.INTEGER and self.bits > 16 and self.relative is None  # noqa: PLR2004 - has room
        return whole and _DATE.search(self.name) is not None

    @property
    def written_years(self) -> bool:
        """Whether whole numbers are probably years: their name says so."""
        return self.type is ColumnType.INTEGER and self.relative is None and _YEAR.search(self.name) is not None

    @property
    def learns_list(self) -> bool:
        """Whether a list of values is to be learned, which takes a δ."""
        if not isinstance(self.domain, Learn):
            return False
        return not self.type.ordered or (self.domain.listed and self.type is ColumnType.INTEGER)

    @property
    def public_names(self) -> tuple[str, ...]:
        """Values that public rows name, where a list is to be learned."""
        return self.domain.names if isinstance(self.domain, Learn) else ()

    @property
    def logical(self) -> LogicalType:
        """The entry of the column's type, with the column's digits or bits."""
        return self.type.logical.sized(self.precision, self.scale, self.bits)

    @property
    def bits(self) -> int:
        """The width of an integer, as its SQL type declares it."""
        stored = parse_sql_type(self.sql_type) if self.sql_type else None
        return (stored.facts.bits if stored else None) or 64

    @property
    def arrow_type(self) -> pa.DataType:
        """The one Arrow type that the column has inside the project, whatever the source stores."""
        return self.logical.arrow_type

    @property
    def stored_type(self) -> SqlType | None:
        """The type in the database; None if it is an enum (or one that `find_problems` refuses)."""
        return default_sql_type(self.logical) if self.sql_type is None else parse_sql_type(self.sql_type)

    @property
    def is_array(self) -> bool:
        """Whether the database stores an array; here it is a JSON array."""
        stored = None if self.sql_type is None else self.stored_type
        return stored is not None and stored.is_array


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
