"""The public grid on which a range is learned: it covers all that a type can hold, coarsely, and knows no data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from privbench_core.columns.equal_width import OrderedCodec
from privbench_core.columns.grid import Grid, Numbers
from privbench_core.schema.columns import Column

_FIRST_YEAR, _LAST_YEAR = 1900, 2101  # one cell each up to the last; cells beyond them grow by powers of two
_FLOAT_EXPONENTS = range(-32, 129)


@dataclass(frozen=True)
class LogScaleCodec(OrderedCodec):
    """A public grid over all that a type can hold, on which a range is learned under differential privacy.

    Integers, decimals, intervals (in microseconds) and floats: powers of two of either sign around zero (floats from
    2^-32 to 2^128; smaller ones count as zero). Dates and timestamps: calendar years 1900 to 2100, and before and after
    these stretches of 1, 2, 4 and so on years.
    """

    @classmethod
    def of(cls, column: Column, *, table: str = "") -> LogScaleCodec:
        """Return the grid for an ordered column."""
        return cls(Grid.of(column, table), column.nullable)

    @cached_property
    def starts(self) -> Numbers:
        """First number of each interval cell."""
        if self.grid.continuous:
            powers = [2.0**exponent for exponent in _FLOAT_EXPONENTS]
            negative = [np.nextafter(-power, 0) for power in reversed(powers[:-1])]
            return np.array([-powers[-1], *negative, *powers[:-1]])
        low, high = self.grid.extent
        if self.grid.logical.calendar:
            return np.array([low, *(self.grid.number(f"{year:04}-01-01") for year in _years())], np.int64)
        powers_up = [2**k for k in range(high.bit_length())]
        # The mirror image of [2^k, 2^(k+1) - 1] starts at 1 - 2^(k+1); the outermost cells end where the type does.
        negative = [1 - 2 * power for power in reversed(powers_up[:-1])]
        return np.array([low, *negative, 0, *powers_up], np.int64)

    @property
    def last(self) -> int | float:
        """The largest number of the grid."""
        return 2.0 ** _FLOAT_EXPONENTS[-1] if self.grid.continuous else self.grid.extent[1]

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able description."""
        return {"codec": "magnitude", **self.grid.to_dict(), "nullable": self.nullable}

    @classmethod
    def from_dict(cls, description: dict[str, Any]) -> LogScaleCodec:
        """Return the codec of a description: the inverse of `to_dict`."""
        return cls(Grid.from_dict(description), description["nullable"])


def _years() -> list[int]:
    """The calendar years that cells begin with, ascending; what is before the first is a cell, too.

    >>> years = _years()
    >>> years[:3], years[-3:], [year for year in years if 1880 < year < 1902]
    ([877, 1389, 1645], [2356, 2612, 3124], [1885, 1893, 1897, 1899, 1900, 1901])
    """
    reach = [(1 << power) - 1 for power in range(1, 11)]  # a thousand years
    before = [_FIRST_YEAR - years for years in reversed(reach)]
    after = [_LAST_YEAR + years for years in reach]
    return [*before, *range(_FIRST_YEAR, _LAST_YEAR + 1), *after]
