"""Plausible bounds by type and name, for a range that noise hides. Public: they know no data.

Chosen by hand: the first words that fit a name decide. They are wide enough to hold common values, and narrow enough
that nothing looks absurd.
"""

from __future__ import annotations

import re

from privbench_core.columns.grid import Grid
from privbench_core.schema.columns import Column, Scalar

_NUMBERS = {
    "age": (0, 100),
    "year|yr": (1950, 2030),
    "month": (1, 12),
    "day|days": (0, 31),
    "hour|hours": (0, 24),
    "lat|latitude": (-90, 90),
    "lon|lng|long|longitude": (-180, 180),
    "percent|percentage|pct|share|discount|rate|score": (0, 100),
    "qty|quantity|count|number|num|units|stock": (0, 100),
    "salary|income|wage|budget|revenue": (0, 200_000),
}
_BIRTH = r"birth|born|dob|birthday|birthdate"
_SPANS = {"birth": ("1930-01-01", "2015-12-31"), "other": ("2000-01-01", "2030-12-31")}


def plausible_bounds(column: Column) -> tuple[Scalar, Scalar]:
    """Return the smallest and largest plausible value of an ordered column.

    >>> from privbench_core.schema.columns import ColumnType
    >>> plausible_bounds(Column("birthDate", ColumnType.DATE)), plausible_bounds(Column("age", ColumnType.INTEGER))
    (('1930-01-01', '2015-12-31'), (0, 100))
    """
    words = words_of(column.name)
    logical = column.logical
    if logical.calendar:
        low, high = _SPANS["birth" if words & set(_BIRTH.split("|")) else "other"]
        zone = "Z" if str(column.type) == "timestamptz" else ""
        return (low, high) if str(column.type) == "date" else (f"{low}T00:00:00{zone}", f"{high}T00:00:00{zone}")
    if not logical.numeric:
        return "PT0S", "P1D" if column.relative is None else "P30D"  # between two times lie days
    fitting = (bounds for names, bounds in _NUMBERS.items() if words & set(names.split("|")))
    first, last = next(fitting, (0, 1000))
    grid = Grid.of(column)
    if not grid.continuous:
        most = int(grid.extent[1] // 10 ** (column.scale or 0))
        first, last = max(first, -most), min(last, most)
    return first, last


def words_of(name: str) -> set[str]:
    """Return the words of a name.

    >>> sorted(words_of("birthDate_2"))
    ['birth', 'date']
    """
    return set(re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()))
