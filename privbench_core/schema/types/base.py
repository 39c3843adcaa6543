"""The declaration of a column type: what every entry states, with the defaults that most share."""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, ClassVar, Self

if TYPE_CHECKING:
    import pyarrow as pa

Scalar = str | int | float | bool
"""A declared value as `Range` and `Values` hold it."""

INT64_MAX = 2**63 - 1


@dataclass(frozen=True)
class SqlName:
    """An SQL type that values of a column type are stored in.

    Attributes:
        name: In PostgreSQL's own words, like ``character varying``.
        synonyms: Other names of the same type, in any database.
        arguments: How many arguments it takes at most: a length, or precision and scale.
        bits: Width of an integer type.
        any_text: Whether any text of a fitting length is a value, which is not so for network addresses.
        duckdb: What DuckDB stores it as, without arguments; None for the same type.
    """

    name: str
    synonyms: tuple[str, ...] = ()
    arguments: int = 0
    bits: int | None = None
    any_text: bool = True
    duckdb: str | None = None


@dataclass(frozen=True)
class LogicalType(ABC):
    """A column type. Subclasses are the entries; types with parameters have them as fields."""

    # In a spec.
    name: ClassVar[str]
    expected: ClassVar[str] = "text (quote what YAML reads as something else)"  # of a declared value
    options: ClassVar[frozenset[str]] = frozenset()  # fields of a column that belong to some types only
    no_domain: ClassVar[str | None] = None  # what to do about a declared domain, where a type has none
    listable: ClassVar[bool] = False  # whether the domain may be a list of values

    # In models.
    opaque: ClassVar[bool] = False  # whether at most the length of a value is modelled
    structured: ClassVar[bool] = False  # whether ``domain: learn`` takes its values apart
    fixed_values: ClassVar[tuple[Scalar, ...]] = ()  # all values, where the type has but a few
    numeric: ClassVar[bool] = False
    calendar: ClassVar[bool] = False  # points in time: zero is a value like any other
    textual: ClassVar[bool] = False  # plain text
    length_unit: ClassVar[str | None] = None  # what lengths are counted in, where they are modelled
    shortest: ClassVar[int] = 0  # length of a generated value
    frame: ClassVar[tuple[bytes, bytes]] = (b"", b"")  # what the text of a generated value begins and ends with
    has_form: ClassVar[bool] = False  # whether the Arrow type does not show all that a value must be
    form: ClassVar[str | None] = None  # a regular expression for it

    # In keys.
    keyable: ClassVar[bool] = True  # whether a key column may have the type
    surrogate: ClassVar[str | None] = "series"  # kind of its surrogate keys; None if private tables have no such keys

    # In Arrow. Kinds are names in `pyarrow.types` without ``is_``, and those of `is_kind`.
    arrow: ClassVar[str]  # alias of the canonical type; types with parameters define `arrow_type` instead
    arrow_kinds: ClassVar[tuple[str, ...]] = ()  # kinds that mean this type in a file
    arrow_accepts: ClassVar[tuple[str, ...]] = ()  # further kinds that hold its values
    reads_whole: ClassVar[bool] = False  # whether all rows of a column decide how each is read
    time_of_day: ClassVar[bool] = False  # whether a time of day can be read as this type

    # In SQL. A form is an expression of DuckDB where ``{}`` stands for the column.
    sql: ClassVar[tuple[SqlName, ...]]  # types that are read as this one
    default_sql: ClassVar[str | None] = None  # of a column that declares none; None for the first of `sql`
    also_stored_as: ClassVar[tuple[str, ...]] = ()  # types of other entries that hold its values, too
    native: ClassVar[str | None] = None  # how names in other databases begin: a regular expression, disjoint from all
    duckdb_form: ClassVar[str] = "{}"  # the value, from what Parquet holds
    compares_alike: ClassVar[bool] = True  # whether databases agree on how values compare

    def __str__(self) -> str:
        return self.name

    @property
    def arrow_type(self) -> pa.DataType:
        """The one Arrow type of a column inside the project, whatever the source stores."""
        import pyarrow as pa

        return pa.type_for_alias(self.arrow)

    @property
    def needs_domain(self) -> bool:
        """Whether a column that is modelled has to declare its domain."""
        return not (self.opaque or self.fixed_values)

    @property
    def sql_arguments(self) -> tuple[int, ...]:
        """Arguments of the default SQL type."""
        return ()

    @property
    def key_type(self) -> str:
        """What must agree along a foreign key."""
        return str(self)

    def sized(self, precision: int | None, scale: int | None, bits: int) -> Self:
        """Return the type of a column with these digits (of a decimal) or bits (of an integer)."""
        return self

    def parse(self, value: object) -> Scalar | None:
        """Return a declared value in its canonical form, or None if it is not a value of this type."""
        whole = isinstance(value, int) and not isinstance(value, bool)
        return str(value) if whole or isinstance(value, str) else None

    def bound(self, value: Scalar) -> Scalar | dt.datetime:
        """Return a declared value as it compares with values in a pandas frame."""
        return value

    def is_value(self, text: str) -> bool:
        """Return whether a text has the form of the type's values."""
        return True

    def accepts(self, found: pa.DataType) -> bool:
        """Return whether an Arrow array of this type can hold the column's values; one of NULLs always can."""
        return is_kind(found, "null", *self.arrow_kinds, *self.arrow_accepts)

    def read(self, values: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
        """Return what a source stores as ``target``, the canonical Arrow type; ArrowInvalid if it does not fit."""
        from privbench_core.schema.types.arrow import cast_values

        return cast_values(values, target)


class OrderedType(LogicalType):
    """A type whose values lie on a number line: numbers to and from values, exactly.

    Attributes:
        continuous: Whether the numbers are floats rather than integers.
        difference: Name of the type whose numbers are the differences of this type's; None where they are not exact.
        step_expected: What a declared step must be, for messages.
    """

    continuous: ClassVar[bool] = False
    difference: ClassVar[str | None] = None
    step_expected: ClassVar[str]

    @property
    def extent(self) -> tuple[int, int]:
        """The smallest and largest number that the type can hold, where numbers are integers."""
        raise NotImplementedError

    @abstractmethod
    def number(self, value: Scalar) -> int | float:
        """Return the number of a declared value; ValueError or ArithmeticError if it is not of this type."""

    @abstractmethod
    def scalar(self, number: float) -> Scalar:
        """Return the canonical value of a number."""

    @abstractmethod
    def parse_step(self, value: object) -> Scalar | None:
        """Return a declared step in its canonical form, or None if it is not one."""

    @abstractmethod
    def points(self, step: Scalar) -> int:
        """Return how many numbers make a step; ValueError or ArithmeticError if it is not a whole number of them."""

    @property
    def series(self) -> tuple[int, int]:
        """The number of the first surrogate key, and the distance to the next."""
        return 1, 1

    def sort_key(self, value: Scalar) -> Decimal:
        """Return a number to compare canonical values by."""
        return Decimal(self.number(value))


def is_kind(found: pa.DataType, *kinds: str) -> bool:
    """Return whether an Arrow type is of one of these kinds: names in ``pyarrow.types`` without ``is_``.

    ``local_time`` and ``zoned_time`` are timestamps without and with a time zone.
    """
    import pyarrow as pa

    times = {"local_time": False, "zoned_time": True}
    return any(
        pa.types.is_timestamp(found) and (found.tz is not None) == times[kind]
        if kind in times
        else getattr(pa.types, f"is_{kind}")(found)
        for kind in kinds
    )
