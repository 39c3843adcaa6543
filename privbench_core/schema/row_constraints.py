"""What holds between the columns of each row, in the forms that can be measured and computed: a closed list.

They are read out of declared checks, or found under the guarantee (`profiles.measure_constraints`); what a row makes of
one is in `columns.row_constraints`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import get_args

from privbench_core.schema.constraints import reachable
from privbench_core.stored import Storable


class DatePart(Storable, StrEnum):
    """A number that a date has, or the date of a time; weeks and weekdays in the ways that are usual."""

    DATE = "date"
    YEAR = "year"
    QUARTER = "quarter"
    MONTH = "month"
    WEEK = "ISO week"
    WEEK_FROM_SUNDAY = "week (of Sunday to Saturday)"
    WEEK_FROM_MONDAY = "week (of Monday to Sunday)"
    SEVEN_DAYS = "week (of seven days from January 1)"
    DAY = "day of the month"
    DAY_OF_YEAR = "day of the year"
    WEEKDAY_ISO = "weekday (1 is Monday)"
    WEEKDAY_FROM_MONDAY = "weekday (0 is Monday)"
    WEEKDAY_FROM_SUNDAY = "weekday (0 is Sunday)"
    WEEKDAY_FROM_SUNDAY_1 = "weekday (1 is Sunday)"
    HOUR = "hour"


@dataclass(frozen=True)
class PartOfDate(Storable):
    """A number is a part of a date or time: ``birth_year`` and ``birth_date``. Or a date is that of a time."""

    column: str
    of: str
    part: DatePart

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it is about, what follows from the others first."""
        return self.column, self.of

    @property
    def in_words(self) -> str:
        """What holds."""
        return f"{self.column} is the {self.part} of {self.of}"


@dataclass(frozen=True)
class SameValue(Storable):
    """Two numbers, or dates, of one type are equal."""

    column: str
    of: str

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it is about, what follows from the others first."""
        return self.column, self.of

    @property
    def in_words(self) -> str:
        """What holds."""
        return f"{self.column} is {self.of}"


@dataclass(frozen=True)
class MissingTogether(Storable):
    """Either all of some columns are NULL, or none of them is."""

    columns: tuple[str, ...]

    @property
    def in_words(self) -> str:
        """What holds."""
        return f"{', '.join(self.columns[:-1])} and {self.columns[-1]} are NULL together"


@dataclass(frozen=True)
class MissingWhere(Storable):
    """A column is NULL exactly where a list has some of its values, or exactly where it has others.

    Attributes:
        column: It.
        of: The list; where it is NULL, nothing holds.
        values: Of the list, as texts.
        null: Whether the column is NULL where the list has one of the values; else it is NULL everywhere else.
    """

    column: str
    of: str
    values: tuple[str, ...]
    null: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it is about, what follows from the others first."""
        return self.column, self.of

    @property
    def in_words(self) -> str:
        """What holds."""
        where = f"{self.of} is {'' if self.null else 'not '}{' or '.join(self.values)}"
        return f"{self.column} is NULL where {where}, and nowhere else"


@dataclass(frozen=True)
class Formula(Storable):
    """A number is the sum, or the product, of others.

    Attributes:
        column: The sum or product.
        of: Its parts.
        product: Whether they are multiplied.
        within: How far a value may be from that of the formula: half of what it is rounded to.
    """

    column: str
    of: tuple[str, ...]
    product: bool
    within: float

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it is about, what follows from the others first."""
        return self.column, *self.of

    @property
    def in_words(self) -> str:
        """What holds."""
        return f"{self.column} is {(' * ' if self.product else ' + ').join(self.of)}, rounded"


@dataclass(frozen=True)
class InOrder(Storable):
    """A number, date or time is not above another one of its type."""

    first: str
    last: str

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it is about."""
        return self.first, self.last

    @property
    def in_words(self) -> str:
        """What holds."""
        return f"{self.first} is at most {self.last}"


ValueConstraint = PartOfDate | SameValue | Formula
RowConstraint = ValueConstraint | MissingTogether | MissingWhere | InOrder
_KINDS = frozenset(get_args(RowConstraint))
MOST_PARTS = 4
"""Of a product: more factors could make it too large for a float. As many values of a list."""


def in_sequence(found: Sequence[RowConstraint]) -> tuple[RowConstraint, ...]:
    """Return constraints in the order in which they can be kept one after the other, without those that can't.

    Given best first: a column is computed once, after those that it is computed from. Columns that are NULL together
    are where the first one is, so that one goes first of which it is known where it is NULL.
    """
    groups = [each.columns for each in found if isinstance(each, MissingTogether)]
    names = [*dict.fromkeys(chain.from_iterable(groups))]
    connected = [reachable(name, lambda name: chain(*(group for group in groups if name in group))) for name in names]
    together = dict.fromkeys(tuple(name for name in names if name in each) for each in connected)
    where: dict[str, MissingWhere] = {}
    for each in found:
        if isinstance(each, MissingWhere):
            where.setdefault(each.column, each)
    unsettled = where.keys() | {*names}
    where = {name: each for name, each in where.items() if each.of not in unsettled}
    first = {each.column: each for each in reversed(found) if isinstance(each, ValueConstraint)}
    missing = [tuple(sorted(columns, key=lambda name: [*where, name].index(name))) for columns in together]
    following = {name for columns in missing for name in columns[1:]}
    settled: list[RowConstraint] = [each for name, each in where.items() if name not in following]
    settled += map(MissingTogether, missing)
    settled += [each for each in found if isinstance(each, InOrder) and first.keys().isdisjoint(each.columns)]
    waiting = {name: set(each.columns[1:]) & first.keys() for name, each in first.items()}
    while ready := [name for name, of in waiting.items() if waiting.keys().isdisjoint(of)]:
        settled += [first[name] for name in ready]
        for name in ready:
            del waiting[name]
    return tuple(settled)


def is_well_formed(constraint: RowConstraint) -> bool:
    """Return whether something is exactly of a kind of constraint, between columns that it names once.

    >>> is_well_formed(SameValue("a", "b")), is_well_formed(SameValue("a", "a"))
    (True, False)
    """
    if type(constraint) not in _KINDS:
        return False
    columns = constraint.columns
    if type(columns) is not tuple or any(type(name) is not str for name in columns):
        return False
    if isinstance(constraint, PartOfDate) and type(constraint.part) is not DatePart:
        return False
    if isinstance(constraint, MissingWhere):
        values = constraint.values
        if (type(values), type(constraint.null)) != (tuple, bool) or any(type(value) is not str for value in values):
            return False
        if not 0 < len(set(values)) == len(values) <= MOST_PARTS:
            return False
    if isinstance(constraint, Formula):
        kinds = type(constraint.of), type(constraint.product), type(constraint.within)
        too_many = constraint.product and len(constraint.of) > MOST_PARTS
        if kinds != (tuple, bool, float) or not 0 < constraint.within < math.inf or too_many:
            return False
    return len(set(columns)) == len(columns) > 1
