"""The rows so far, those of the bundle and those appended to it: values, references, units and times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from privbench_core.continuation.arrivals import UNDATED, Ints, arrival_column, end_of_time, microseconds
from privbench_core.continuation.rules import parts_of_dates, repeated_columns
from privbench_core.errors import PublishError
from privbench_core.publishing.bundle import Bundle
from privbench_core.sampling.keys import common_numbers
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.row_constraints import PartOfDate
from privbench_core.schema.tables import Schema, Table


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
        table.name: {key: _parent_rows(key, read) for key in table.foreign_keys} for table in schema.sampling_order
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


def _parent_rows(key: ForeignKey, read: Mapping[str, pa.Table]) -> Ints:
    child, parent = read[key.child], read[key.parent]
    here, there = common_numbers(
        [child.column(name) for name in key.columns],
        [parent.column(name) for name in key.parent_columns],
        (child.num_rows, parent.num_rows),
    )
    place = np.full(max(here.max(initial=-1), there.max(initial=-1)) + 2, -1)  # the last one is that of NULL
    place[there[there >= 0]] = np.flatnonzero(there >= 0)
    return place[here]


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
