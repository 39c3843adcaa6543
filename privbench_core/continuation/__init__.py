"""What comes after a bundle: rows of the next days, made from the bundle alone, as a stream of inserts.

Here are the rows so far, those of the bundle and those appended to it: values, references, units, times, and what they
keep.

A table's own column says when its rows were added: the declared `Table.row_order`, a column whose default is the
current time, or else the earliest of its dates that are never NULL. A row without such a date came with its owner. A
row that has no owner either came with the first of the rows that it owns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.columns.row_constraints import NOT_APPLICABLE, VIOLATED, verdicts
from privbench_core.errors import PublishError
from privbench_core.guards import SAMPLE_ROWS
from privbench_core.publishing import Bundle
from privbench_core.sampling.keys import common_numbers, parent_rows
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.row_constraints import DatePart, PartOfDate
from privbench_core.schema.tables import Schema, Table
from privbench_core.schema.types.durations import DAY

Ints = NDArray[np.int64]

UNDATED = -(2**62)
"""The time of rows of which nothing says when they came: before all others."""
_NOW = re.compile(r"\bnow\(\)|\b(current|local)_?(date|timestamp)\b", re.IGNORECASE)
_OF_A_LIFE = re.compile(r"birth|born|dob|death|died", re.IGNORECASE)
WEEK, QUARTER = 7, 13
"""Days and weeks."""


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
        weeks = np.sort(days // WEEK)
        in_week, in_quarter = (
            np.searchsorted(weeks, weeks, side="right") - np.searchsorted(weeks, weeks - before)
            for before in (0, QUARTER - 1)
        )
        # Weeks with fewer rows than a quarter of a typical one may be noise.
        busy = (in_week >= np.median(in_week) / 4) & (in_quarter >= np.median(in_quarter) / 4)
        last = weeks[busy][-1]
        ends.append(int(days[days // WEEK == last].max()) + 1)
        weights.append(len(days))
    last_days, rows = np.array(ends), np.array(weights)
    sharing = (last_days <= last_days[:, None]) & (last_days > last_days[:, None] - WEEK)
    near = sharing[np.lexsort((sharing @ rows, sharing.sum(axis=1)))[-1]]
    days, which = np.unique(last_days[near], return_inverse=True)
    return int(days[np.bincount(which, rows[near]).argmax()]) * DAY


def parts_of_dates(table: Table, rows: pa.Table) -> list[PartOfDate]:
    """Return which columns of a table are parts of its dates (the year of an invoice), in every row of a sample."""
    numbers = [c.name for c in table.columns if c.type is ColumnType.INTEGER and c.name not in table.referring_columns]
    dates = [c.name for c in table.columns if is_calendar(c)]
    sample = rows.slice(max(0, rows.num_rows - SAMPLE_ROWS))
    values = {name: sample.column(name) for name in (*numbers, *dates)}
    found: dict[str, PartOfDate] = {}
    for number in numbers:
        for part in (PartOfDate(number, date, part) for date in dates for part in DatePart):
            judged = verdicts(table, part, values)
            if VIOLATED not in judged and (judged != NOT_APPLICABLE).sum() >= 20:  # noqa: PLR2004 - fewer may be chance
                found.setdefault(number, part)
    return list(found.values())


def repeated_columns(schema: Schema, key: ForeignKey, read: Mapping[str, pa.Table], parents: Ints) -> dict[str, str]:
    """Return columns of rows that repeat a column of the row that a key refers to, with that column.

    The currency of an order is that of its customer, the amount of a payment the total of its order: in a sample of the
    rows of the bundle they agree far more often than two columns of such values would by chance (Cohen's kappa of 0.9).

    Args:
        schema: The database.
        key: The key.
        read: All rows by table.
        parents: The row that each row refers to, shape (rows,); -1 for none.
    """
    table, above = schema.table(key.child), schema.table(key.parent)
    keys = {name for group in (table.primary_key, *table.unique) for name in group} | table.referring_columns
    columns = [column for column in table.columns if column.name not in keys and not is_calendar(column)]
    others = [column for column in above.columns if column.name not in key.parent_columns]
    rows = np.arange(max(0, len(parents) - SAMPLE_ROWS), len(parents))
    rows = rows[parents[rows] >= 0]
    found: dict[str, str] = {}
    for column in columns if len(rows) else ():
        here = read[key.child].column(column.name).take(pa.array(rows))
        for other in (other for other in others if other.arrow_type == column.arrow_type):
            there = read[key.parent].column(other.name).take(pa.array(parents[rows]))
            numbers, beside = common_numbers([here], [there], (len(rows), len(rows)))
            both = (numbers >= 0) & (beside >= 0)
            size = int(max(numbers.max(), beside.max())) + 2
            shares = [np.bincount(each[both], minlength=size) / max(1, both.sum()) for each in (numbers, beside)]
            chance = float(shares[0] @ shares[1])
            if both.any() and (numbers == beside)[both].mean() - chance > 0.9 * (1 - chance) > 0:
                found.setdefault(column.name, other.name)
    return found


@dataclass(frozen=True)
class TableRows:
    """The rows of a table.

    Attributes:
        rows: Their values.
        dated: The column that says when they came; None where they came with other rows.
        own: Whether a row has a time of its own, shape (rows,).
        time: When it came, in microseconds since 1970, shape (rows,).
        unit: Number of its unit (`Schema.unit_numbers`), shape (rows,); -1 in public tables.
        parents: The row that it refers to, by key, each of shape (rows,); -1 for NULL.
        parts: Columns that are parts of its dates.
        repeated: By key, columns that repeat one of the row that it refers to, with that column.
    """

    rows: pa.Table
    dated: str | None
    own: np.ndarray
    time: Ints
    unit: Ints
    parents: Mapping[ForeignKey, Ints]
    parts: Sequence[PartOfDate]
    repeated: Mapping[ForeignKey, Mapping[str, str]]

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def extended(self, rows: pa.Table, time: Ints, unit: Ints, parents: Mapping[ForeignKey, Ints]) -> TableRows:
        """Return these rows and further ones."""
        return replace(
            self,
            rows=pa.concat_tables([self.rows, rows]).combine_chunks(),
            own=np.append(self.own, np.full(rows.num_rows, self.dated is not None)),
            time=np.append(self.time, time),
            unit=np.append(self.unit, unit),
            parents={key: np.append(here, parents[key]) for key, here in self.parents.items()},
        )


@dataclass(frozen=True)
class World:
    """A database so far.

    Attributes:
        schema: The database.
        tables: Its rows by table, parents first.
        base: Number of rows of each table in the bundle.
        end: When the bundle ends, in microseconds since 1970: a midnight.
        begin: When it begins: the median of the first times of its dated tables.
    """

    schema: Schema
    tables: Mapping[str, TableRows]
    base: Mapping[str, int]
    end: int
    begin: int


def read_world(bundle: Bundle) -> World:
    """Read all rows of a bundle into memory.

    Raises:
        PublishError: No table that grows has a date or time, so nothing says what comes next.
    """
    schema = bundle.schema
    read = {table.name: bundle.table(table.name).combine_chunks() for table in schema.sampling_order}
    dated = {t.name: None if t.public else arrival_column(t, read[t.name]) for t in schema.sampling_order}
    named = {name: microseconds(read[name].column(column)) for name, column in dated.items() if column}
    if not named:
        raise PublishError(
            f"{bundle.path.name}: no table but public ones has a date or time that says when its rows were added, so"
            " nothing can be appended"
        )
    parents = {
        table.name: {key: parent_rows(read[key.parent], read[key.child], key) for key in table.foreign_keys}
        for table in schema.sampling_order
    }
    time = _times(schema, read, named, parents)
    tables: dict[str, TableRows] = {}
    for table in schema.sampling_order:
        number, key = read[table.name].num_rows, table.owner_key
        owners = None if key is None else (parents[table.name][key], tables[key.parent].unit)
        unit = np.full(number, -1) if table.public else schema.unit_numbers(table.name, number, owners)
        own = named.get(table.name, np.full(number, UNDATED)) != UNDATED
        keys = parents[table.name]
        repeated = (
            {} if table.public else {key: repeated_columns(schema, key, read, rows) for key, rows in keys.items()}
        )
        parts = [] if table.public else parts_of_dates(table, read[table.name])
        found = (own, time[table.name], unit, keys, parts, repeated)
        tables[table.name] = TableRows(read[table.name], dated[table.name], *found)
    begins = [int(found[found != UNDATED].min()) for found in named.values() if (found != UNDATED).any()]
    base = {name: len(rows) for name, rows in tables.items()}
    return World(schema, tables, base, end_of_time(named.values()), int(np.median(begins)))


def _times(
    schema: Schema,
    read: Mapping[str, pa.Table],
    named: Mapping[str, Ints],
    parents: Mapping[str, Mapping[ForeignKey, Ints]],
) -> dict[str, Ints]:
    """Return when each row came: its own time, that of its owner, or the first one of the rows that it owns."""
    never = -UNDATED
    time = {name: named.get(name, np.full(rows.num_rows, UNDATED)).copy() for name, rows in read.items()}
    first = {name: np.where(found == UNDATED, never, found) for name, found in time.items()}
    for table in reversed(schema.sampling_order):
        if (key := table.owner_key) is not None:
            owned = parents[table.name][key]
            np.minimum.at(first[key.parent], owned[owned >= 0], first[table.name][owned >= 0])
    for table in schema.sampling_order:
        own, key = time[table.name], table.owner_key
        above = np.full(len(own), -1) if key is None else parents[table.name][key]
        owners = np.zeros(0, np.int64) if key is None else time[key.parent]
        inherited = np.where(above >= 0, np.append(owners, 0)[above], first[table.name])
        time[table.name] = np.where(own != UNDATED, own, np.where(inherited == never, UNDATED, inherited))
    return time


def owner_rows(table: Table, rows: TableRows) -> Ints:
    """Return the row that owns each row, shape (rows,); -1 for rows without an owner."""
    key = table.owner_key
    return np.full(len(rows), -1) if key is None else rows.parents[key]
