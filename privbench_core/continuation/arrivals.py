"""When each row of a bundle came into being, and where the bundle's time ends.

A table's own column says it: the declared `Table.row_order`, a column whose default is the current time, or else the
earliest of its dates that are never NULL. A row without such a date came with its owner. A row that has no owner
either came with the first of the rows that it owns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.schema.columns import Column
from privbench_core.schema.tables import Table
from privbench_core.schema.types.durations import DAY

Ints = NDArray[np.int64]

UNDATED = -(2**62)
"""The time of rows of which nothing says when they came: before all others."""
_NOW = re.compile(r"\bnow\(\)|\b(current|local)_?(date|timestamp)\b", re.IGNORECASE)
_OF_A_LIFE = re.compile(r"birth|born|dob|death|died", re.IGNORECASE)
_WEEK = 7
_QUARTER = 13  # weeks
_SPARSE = 0.25  # rows of a week as a share of those of a typical one, below which they may be noise


def is_calendar(column: Column) -> bool:
    """Return whether values are dates or points in time."""
    return column.type.logical.calendar


def arrival_column(table: Table, rows: pa.Table) -> str | None:
    """Return the column that says when rows of a table were added; None if there is none."""
    named = {column.name: column for column in table.columns if is_calendar(column)}
    if table.row_order in named:
        return table.row_order
    dates = [name for name in named if name not in table.referring_columns and not _OF_A_LIFE.search(name)]
    dates = [name for name in dates if not rows.column(name).null_count]
    by_default = [name for name in dates if _NOW.search(named[name].default or "")]
    if not rows.num_rows or not dates:
        return None
    return min(by_default or dates, key=lambda name: float(np.median(microseconds(rows.column(name)))))


def microseconds(values: pa.ChunkedArray | pa.Array) -> Ints:
    """Return dates or times as microseconds since 1970, shape (n,); `UNDATED` for NULL."""
    times = pc.fill_null(values.cast(pa.timestamp("us", getattr(values.type, "tz", None))).cast(pa.int64()), UNDATED)
    return np.asarray(times.to_numpy(zero_copy_only=False) if isinstance(times, pa.Array) else times.to_numpy())


def shifted(values: pa.Array, days: int) -> pa.Array:
    """Return dates or times some days later; NULL stays."""
    if pa.types.is_date32(values.type):
        return pc.add(values.cast(pa.int32()), pa.scalar(days, pa.int32())).cast(values.type)
    return pc.add(values, pa.scalar(days * DAY, pa.duration("us")))


def end_of_time(times: Iterable[Ints]) -> int:
    """Return the midnight at which a database ends, in microseconds: most of its tables end in the week before.

    Rows decide where as many end in other weeks, and between the days of a week. Noise scatters some dates of a bundle
    far beyond its end. So a table ends with its last week that has not much fewer rows than a typical one, as the
    quarter of a year before it.

    Args:
        times: Of the rows of each dated table; not all of them empty.
    """
    ends, weights = [], []
    for found in times:
        days = found[found != UNDATED] // DAY
        if not len(days):
            continue
        weeks = np.sort(days // _WEEK)
        in_week, in_quarter = (
            np.searchsorted(weeks, weeks, side="right") - np.searchsorted(weeks, weeks - before)
            for before in (0, _QUARTER - 1)
        )
        busy = (in_week >= _SPARSE * np.median(in_week)) & (in_quarter >= _SPARSE * np.median(in_quarter))
        last = weeks[busy][-1]
        ends.append(int(days[days // _WEEK == last].max()) + 1)
        weights.append(len(days))
    last_days, rows = np.array(ends), np.array(weights)
    sharing = (last_days <= last_days[:, None]) & (last_days > last_days[:, None] - _WEEK)
    near = sharing[np.lexsort((sharing @ rows, sharing.sum(axis=1)))[-1]]
    days, which = np.unique(last_days[near], return_inverse=True)
    return int(days[np.bincount(which, rows[near]).argmax()]) * DAY
