"""What holds between the columns of each row, in the forms that can be measured and computed: a closed list.

They are read out of declared checks, or found under the guarantee (`profiles.measure_constraints`); what a row makes of
one is in `columns.row_constraints`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from privbench_core.stored import Storable


class DatePart(Storable, StrEnum):
    """A number that a date has; weeks and weekdays in the ways that are usual."""

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
    """A number is a part of a date or time: ``birth_year`` and ``birth_date``."""

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


RowConstraint = PartOfDate | SameValue | MissingTogether
