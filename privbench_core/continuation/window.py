"""The rows of the next days: those of a past week once more, as other rows of the same world.

Rows that came in a past window are the templates. Their dates move by whole weeks. Rows that came with or below new
rows stay below them; the others get the counterparts of those that they belonged to. Keys go on, and what must be
unique is new.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privbench_core.columns.row_constraints import computed
from privbench_core.continuation import (
    QUARTER,
    UNDATED,
    WEEK,
    Ints,
    TableRows,
    World,
    is_calendar,
    owner_rows,
    shifted,
)
from privbench_core.continuation.matching import Counterparts, made_unique
from privbench_core.errors import PublishError
from privbench_core.sampling.constraints import row_rules
from privbench_core.sampling.keys import common_numbers
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.row_constraints import PartOfDate
from privbench_core.schema.tables import Table
from privbench_core.schema.types.durations import DAY

Masks = dict[str, np.ndarray]


@dataclass(frozen=True)
class Window:
    """The rows of some days.

    Attributes:
        number: 1 for the first days after the bundle.
        first, last: Its first and last day, in days since 1970.
        rows: New rows by private table, in the order in which they come.
        left_out: How many rows of each table were left out, because no row fits their references, or because they would
            break a check or a unique set.
        order: Number of the table in `rows` and row of it, in the order of the stream, shape (rows, 2): by time, and
            each after the rows that it refers to.
    """

    number: int
    first: int
    last: int
    rows: Mapping[str, pa.Table]
    left_out: Mapping[str, int]
    order: Ints

    @property
    def total(self) -> int:
        """How many rows it has."""
        return len(self.order)


def next_window(world: World, number: int, days: int, seed: int) -> tuple[Window, World]:
    """Return the rows of window ``number``, and the world with them.

    Args:
        world: The bundle, and the windows before.
        number: From 1.
        days: Length of each window.
        seed: The same seed makes the same windows.

    Raises:
        PublishError: The bundle covers fewer days than a window.
    """
    rng = np.random.default_rng([seed, number])
    begin = world.end + (number - 1) * days * DAY
    shift = _shift(world, number, days, seed)
    made = _Maker(world, begin - shift * DAY, begin, days, rng)
    for table in made.tables:
        made.add(table)
    for key in (key for table in made.tables for key in table.foreign_keys if key.name in world.schema.deferred_keys):
        made.defer(key)
    extended, rows, stream = {}, {}, []
    for place, table in enumerate(made.tables):
        name, new = table.name, made.new[table.name]
        extended[name] = new.after(world.tables[name])
        rows[name] = new.rows
        stream.append(np.stack([new.stream, np.full(len(new.stream), place), np.arange(len(new.stream))], axis=1))
    listed = np.concatenate(stream)
    order = listed[np.lexsort(listed.T[::-1])][:, 1:]
    first = begin // DAY
    left_out = {name: int(made.cloned[name].sum()) - new.num_rows for name, new in rows.items()}
    window = Window(number, first, first + days - 1, rows, left_out, order)
    return window, replace(world, tables={**world.tables, **extended})


def _shift(world: World, number: int, days: int, seed: int) -> int:
    """Return by how many days the templates of a window move: whole weeks, so many that they are rows of the bundle."""
    least = -(-number * days // WEEK)
    most = ((world.end - world.begin) // DAY + (number - 1) * days) // WEEK
    choices = min(QUARTER, most - least + 1)  # each week of the last quarter once before any again
    if choices < 1:
        covered = (world.end - world.begin) // DAY
        raise PublishError(
            f"the rows of the bundle cover {covered:,} days, too few to continue them by {days} days in whole weeks;"
            " append fewer days at a time"
        )
    return int(least + np.random.default_rng(seed).permutation(choices)[(number - 1) % choices]) * WEEK


@dataclass(frozen=True)
class _NewRows:
    """New rows of a table: as `TableRows`, and ``stream``, the time by which the stream is ordered."""

    rows: pa.Table
    template: Ints
    time: Ints
    stream: Ints
    unit: Ints
    parents: Mapping[ForeignKey, Ints]

    def after(self, before: TableRows) -> TableRows:
        return before.extended(self.rows, self.time, self.unit, self.parents)


class _Maker:
    """Makes the new rows of one window, table by table.

    Args:
        world: The rows so far.
        then: When the past window begins, in microseconds since 1970.
        begin: When the new one does.
        days: Length of both.
        rng: For choices.
    """

    def __init__(self, world: World, then: int, begin: int, days: int, rng: np.random.Generator) -> None:
        self.world, self.rng = world, rng
        self.shift = (begin - then) // DAY
        self.tables = [table for table in world.schema.sampling_order if not table.public]
        self.cloned, needed, others = templates(world, then, then + days * DAY)
        matching = Counterparts(world, then, begin, rng)
        self.within = matching.of_units({name: np.flatnonzero(mask) for name, mask in needed.items()})
        for name, found in self.within.items():
            missing = np.flatnonzero(needed[name] & (found < 0))
            found[missing] = matching.anywhere(name, missing)
        self.across = {name: np.arange(len(mask)) for name, mask in others.items()}
        for name, mask in others.items():
            self.across[name][mask] = matching.anywhere(name, np.flatnonzero(mask))
        self.place = {table.name: np.full(len(world.tables[table.name]), -1) for table in self.tables}
        self.new: dict[str, _NewRows] = {}
        self.so_far = dict(world.tables)  # and the new rows of tables that are made

    def add(self, table: Table) -> None:
        """Make the new rows of a table, all but its deferred keys; the tables that it refers to are made."""
        here, deferred = self.world.tables[table.name], self.world.schema.deferred_keys
        template = np.flatnonzero(self.cloned[table.name])
        keys = sorted((key for key in table.foreign_keys if key.name not in deferred), key=lambda key: not key.owner)
        parents = {key: self._parent(key, template) for key in keys}
        own, time = here.own[template], here.time[template] + self.shift * DAY
        stream = np.where(own | (owner_rows(table, here)[template] < 0), time, UNDATED)
        for key, rows in parents.items():
            first = len(self.world.tables[key.parent])
            came = self.new[key.parent].stream if key.parent in self.new else np.zeros(0, np.int64)
            is_new = rows >= first
            stream[is_new] = np.maximum(stream[is_new], came[rows[is_new] - first])
        order = np.argsort(stream, kind="stable")
        template, stream = template[order], stream[order]
        parents = {key: rows[order] for key, rows in parents.items()}
        taken = here.rows.take(pa.array(template)).combine_chunks()
        columns = {name: _flat(taken.column(name)) for name in taken.column_names}
        self._move_dates(table, here.parts, columns)
        kept, settled = np.ones(len(template), dtype=bool), set[str]()
        for key in keys:
            referred = here.parents[key][template] >= 0
            columns, parents[key] = self._refer(table, key, columns, parents, referred, settled)
            self._copy(key, columns, template, parents[key])
            settled |= set(key.columns)
            kept &= (parents[key] >= 0) | (key.optional & ~referred) | (key.optional & bool(table.emptied_columns(key)))
        for key in (key for key in table.foreign_keys if key.name in deferred):
            parents[key] = np.full(len(template), -1)
            columns |= _emptied(table, key, columns, np.ones(len(template), dtype=bool))
        state = (template, stream, parents)
        columns, state = _filtered(columns, kept, state)
        if len(state[0]):
            columns, kept = made_unique(table, columns, here.rows, self.rng)
            for rule in row_rules(table):
                kept &= ~rule.broken(columns)
            columns, state = _filtered(columns, kept, state)
        self._keep(table, columns, *state)

    def defer(self, key: ForeignKey) -> None:
        """Fill in a key that leads in a circle: with rows that come before, in the stream."""
        table, new = self.world.schema.table(key.child), self.new[key.child]
        wanted = self._parent(key, new.template)
        first = len(self.world.tables[key.parent])
        is_new = wanted >= first
        came = np.append(self.new[key.parent].stream, 0)[np.where(is_new, wanted - first, -1)]
        wanted[is_new & (came >= new.stream)] = -1
        columns = {name: _flat(new.rows.column(name)) for name in new.rows.column_names}
        referred, settled = wanted >= 0, set(table.referring_columns) - set(table.emptied_columns(key))
        parents = {**new.parents, key: wanted}
        columns, parents[key] = self._refer(table, key, columns, parents, referred, settled)
        rows = pa.table(columns, schema=new.rows.schema)
        self.new[key.child] = replace(new, rows=rows, parents=parents)

    def _parent(self, key: ForeignKey, template: Ints) -> Ints:
        """Return the row that each new row refers to, given their templates; -1 for none."""
        there = self.world.tables[key.child].parents[key][template]
        if key.parent not in self.place:
            return there
        own, above = self.world.tables[key.child].unit[template], self.world.tables[key.parent].unit
        same = own == np.append(above, -1)[there]
        found = np.where(same, self.within[key.parent][there], self.across[key.parent][there])
        copied = self.place[key.parent][there]
        return np.where(there < 0, -1, np.where(self.cloned[key.parent][there], copied, found))

    def _refer(
        self,
        table: Table,
        key: ForeignKey,
        columns: Mapping[str, pa.Array],
        parents: Mapping[ForeignKey, Ints],
        referred: np.ndarray,
        settled: set[str],
    ) -> tuple[dict[str, pa.Array], Ints]:
        """Return columns with the references of a key, and the rows that these refer to.

        Where a row does not agree with columns that earlier keys have settled, or is of another unit than it must be,
        some row that does takes its place, if there is one.
        """
        there, rows = self.so_far[key.parent], parents[key].copy()
        shared = [pair for pair in zip(key.columns, key.parent_columns, strict=True) if pair[0] in settled]
        here = [columns[name] for name, _ in shared]
        above = [there.rows.column(name) for _, name in shared]
        owner = table.owner_key
        if key.same_unit and owner is not None and owner in parents:
            units = np.append(self.so_far[owner.parent].unit, -1)[parents[owner]]
            here, above = [*here, pa.array(units)], [*above, pa.array(there.unit)]
        if here:
            numbers, others = common_numbers(here, above, (len(rows), len(there)))
            agrees = (rows >= 0) & (numbers >= 0) & (numbers == np.append(others, -1)[rows])
        else:
            numbers, others = np.zeros(len(rows), np.int64), np.zeros(len(there), np.int64)
            agrees = rows >= 0
        again = np.flatnonzero(referred & ~agrees)
        rows[again] = self._any_of(numbers[again], others[: len(self.world.tables[key.parent])])
        values = pa.array(rows, mask=rows < 0)
        found = dict(columns)
        for name, parent in zip(key.columns, key.parent_columns, strict=True):
            taken = _flat(there.rows.column(parent).take(values)).cast(columns[name].type)
            found[name] = pc.if_else(pa.array(rows >= 0), taken, columns[name])
        return found | _emptied(table, key, found, rows < 0), rows

    def _copy(self, key: ForeignKey, columns: dict[str, pa.Array], template: Ints, rows: Ints) -> None:
        """Take the values of columns that repeat one of the row that is referred to from that row, as templates do."""
        here, there = self.world.tables[key.child], self.so_far[key.parent].rows
        before, now = (pa.array(each, mask=each < 0) for each in (here.parents[key][template], rows))
        for name, of in here.repeated[key].items():
            repeats = pc.equal(
                _flat(here.rows.column(name).take(pa.array(template))), _flat(there.column(of).take(before))
            )
            taken = _flat(there.column(of).take(now))
            columns[name] = pc.if_else(pc.fill_null(pc.and_(repeats, taken.is_valid()), False), taken, columns[name])

    def _any_of(self, wanted: Ints, numbers: Ints) -> Ints:
        """Return for each number a row that has it; -1 if there is none or it is -1."""
        order = np.argsort(numbers, kind="stable")
        first, last = (np.searchsorted(numbers[order], wanted, side=side) for side in ("left", "right"))
        found = (wanted >= 0) & (last > first)
        picked = first + (self.rng.random(len(wanted)) * (last - first)).astype(np.int64)
        return np.where(found, np.append(order, -1)[np.where(found, picked, -1)], -1)

    def _move_dates(self, table: Table, parts: Sequence[PartOfDate], columns: dict[str, pa.Array]) -> None:
        """Move dates, and compute what columns say of them."""
        for column in table.columns:
            if is_calendar(column) and column.name not in table.referring_columns:
                columns[column.name] = shifted(columns[column.name], self.shift)
        for part in parts:
            columns[part.column] = computed(table, part, columns)

    def _keep(
        self,
        table: Table,
        columns: Mapping[str, pa.Array],
        template: Ints,
        stream: Ints,
        parents: dict[ForeignKey, Ints],
    ) -> None:
        here, first, owner = self.world.tables[table.name], len(self.world.tables[table.name]), table.owner_key
        self.place[table.name][template] = first + np.arange(len(template))
        owners = None if owner is None else (parents[owner], self.so_far[owner.parent].unit)
        unit = self.world.schema.unit_numbers(table.name, len(template), owners, first)
        time = np.where(here.own[template], here.time[template] + self.shift * DAY, stream)
        rows = pa.table(dict(columns), schema=here.rows.schema)
        new = _NewRows(rows, template, time, stream, unit, parents)
        self.new[table.name] = new
        self.so_far[table.name] = new.after(here)


def templates(world: World, then: int, until: int) -> tuple[Masks, Masks, Masks]:
    """Return by private table which rows come anew, and which existing ones these need counterparts of.

    A row comes anew if its own time is in the window, or if it has none and its owner comes anew. So does a row without
    which another would have no place: one that is older than its owner by mistake, where the owner comes anew.

    Returns:
        Rows that come anew; rows of the same units that they refer to, with their owners; and those of other units.
    """
    tables = [table for table in world.schema.sampling_order if not table.public]
    owners = {table.name: owner_rows(table, world.tables[table.name]) for table in tables}
    cloned: Masks = {}
    for table in tables:
        rows = world.tables[table.name]
        inside = (rows.time >= then) & (rows.time < until) & (np.arange(len(rows)) < world.base[table.name])
        cloned[table.name] = inside & (rows.own | (owners[table.name] < 0))
    while True:
        for table in tables:
            _come_with_owners(world, table, owners[table.name], cloned)
        needed, others = _referred(world, tables, cloned)
        for table in reversed(tables):
            if (key := table.owner_key) is not None:
                above = owners[table.name][needed[table.name]]
                needed[key.parent][above[above >= 0]] = True
        more = 0
        for table in tables:
            needed[table.name] &= ~cloned[table.name]
            if (key := table.owner_key) is not None:
                above = np.append(cloned[key.parent], False)[owners[table.name]]
                cloned[table.name] |= needed[table.name] & above
                more += int((needed[table.name] & above).sum())
        if not more:
            return cloned, needed, {name: mask & ~cloned[name] for name, mask in others.items()}


def _come_with_owners(world: World, table: Table, owners: Ints, cloned: Masks) -> None:
    if (key := table.owner_key) is not None:
        without = ~world.tables[table.name].own
        cloned[table.name] |= without & np.append(cloned[key.parent], False)[owners]


def _referred(world: World, tables: list[Table], cloned: Masks) -> tuple[Masks, Masks]:
    """Return which rows those that come anew refer to: in the same unit, and in others."""
    within, across = ({table.name: np.zeros(len(cloned[table.name]), dtype=bool) for table in tables} for _ in range(2))
    for table in tables:
        rows = world.tables[table.name]
        for key, parents in rows.parents.items():
            if key.parent in cloned:
                child = np.flatnonzero(cloned[table.name] & (parents >= 0))
                there = parents[child]
                same = rows.unit[child] == world.tables[key.parent].unit[there]
                within[key.parent][there[same]] = True
                across[key.parent][there[~same]] = True
    return within, across


def _emptied(table: Table, key: ForeignKey, columns: Mapping[str, pa.Array], rows: np.ndarray) -> dict[str, pa.Array]:
    """Return the columns of a key that are NULL where it refers to nothing, with NULL in some rows."""
    none = {name: pa.scalar(None, columns[name].type) for name in table.emptied_columns(key)}
    return {name: pc.if_else(pa.array(rows), null, columns[name]) for name, null in none.items()}


def _filtered(
    columns: Mapping[str, pa.Array], kept: np.ndarray, state: tuple[Ints, Ints, dict[ForeignKey, Ints]]
) -> tuple[dict[str, pa.Array], tuple[Ints, Ints, dict[ForeignKey, Ints]]]:
    template, stream, parents = state
    rows = {name: values.filter(pa.array(kept)) for name, values in columns.items()}
    return rows, (template[kept], stream[kept], {key: found[kept] for key, found in parents.items()})


def _flat(values: pa.ChunkedArray) -> pa.Array:
    flat = values.combine_chunks()
    return pa.concat_arrays(flat.chunks) if isinstance(flat, pa.ChunkedArray) else flat
