"""Counterparts: for an existing row of a past week, the row that is now what that one was then.

A customer who ordered in a past week, two years after joining and with ten orders so far, has as a counterpart one who
joined two years ago, has about ten orders now, and is like it in columns with few values. What one did in that week,
the other does in the next. All rows of a unit have their counterparts in one unit, so that rows that belong together
still do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow.compute as pc

from privbench_core.continuation.world import UNDATED, Ints, World, is_calendar, microseconds, owner_rows
from privbench_core.schema.tables import Table
from privbench_core.schema.types.durations import DAY

_NEAREST = 128  # rows of about the same age among which a counterpart is chosen


class Features:
    """What rows of a table are compared by, as it was at some time.

    Attributes:
        codes: Of columns with few values, whether dates have passed, and whether other rows refer to it, shape (rows,
            codes).
        weights: Cost of a difference in each, shape (codes,).
        sizes: Logarithms of age and of numbers of rows so far, times their cost, shape (rows, sizes).
    """

    def __init__(self, world: World, table: Table, now: int) -> None:
        here = world.tables[table.name]
        public = {other.name for other in world.schema.tables if other.public}
        private = {name for key in table.foreign_keys if key.parent not in public for name in key.columns}
        codes, happened = [np.zeros(len(here), dtype=bool)], []
        for column in table.columns:
            values = here.rows.column(column.name)
            if is_calendar(column):
                if values.null_count:
                    times = microseconds(values)
                    happened.append((times != UNDATED) & (times < now))
            elif column.name not in private:
                encoded = values.combine_chunks().dictionary_encode()
                if 1 < len(encoded.dictionary) <= 32:  # noqa: PLR2004 - of a column that counterparts should agree in
                    codes.append(pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False))
        age = np.where(here.time == UNDATED, 0, np.maximum(now - here.time, 0) / DAY)
        numbers = _numbers(world, table, now)
        happened += [number > 0 for number in numbers]
        self.codes = np.stack([*codes, *happened], axis=1).astype(np.int16)
        # Cost where a date has passed, or there are rows, for one alone; of another value of a column: 1.
        self.weights = np.append(np.ones(len(codes)), np.full(len(happened), 3.0))
        costs = np.array([0.5, *[1.5] * len(numbers)])  # of an age, and of a number of rows so far, twice as large
        self.sizes = (np.log2(1 + np.stack([age, *numbers], axis=1)) * costs).astype(np.float32)

    def cost(self, row: int, others: Features, rows: Ints) -> np.ndarray:
        """Return how unlike ``row`` some rows of ``others`` are, shape (rows,)."""
        unlike = (others.codes[rows] != self.codes[row]) @ self.weights
        return np.asarray(unlike + np.abs(others.sizes[rows] - self.sizes[row]).sum(axis=1))


def _numbers(world: World, table: Table, now: int) -> list[Ints]:
    """Return how many rows refer to each row so far, by key, and how many its unit has if the row stands for it."""
    number, found = len(world.tables[table.name]), []
    for child in world.schema.private_tables:
        rows = world.tables[child.name]
        so_far = rows.time < now
        found += [
            np.bincount(parents[so_far & (parents >= 0)], minlength=number)
            for key, parents in rows.parents.items()
            if key.parent == table.name
        ]
    if table.owner_key is None and not table.public:
        of_unit = np.zeros(number, np.int64)
        step, place = len(world.schema.tables), list(world.schema.by_name).index(table.name)
        for each in world.schema.private_tables:
            rows = world.tables[each.name]
            units = rows.unit[(rows.time < now) & (rows.unit % step == place)] // step
            of_unit += np.bincount(units, minlength=number)
        found.append(of_unit)
    return found


class Counterparts:
    """Chooses counterparts for one window.

    Args:
        world: The rows so far.
        then: When the past window begins, in microseconds since 1970.
        now: When the next one does.
        rng: For ties.
    """

    def __init__(self, world: World, then: int, now: int, rng: np.random.Generator) -> None:
        self.world, self.then, self.now, self.rng = world, then, now, rng
        self.tables = [table for table in world.schema.sampling_order if not table.public]
        self._features: dict[tuple[str, int], Features] = {}
        self._by_time: dict[str, tuple[Ints, Ints]] = {}
        self._by_unit: dict[str, tuple[Ints, Ints]] = {}
        self._used = {table.name: np.zeros(len(world.tables[table.name]), np.float32) for table in self.tables}

    def of_units(self, needed: Mapping[str, Ints]) -> dict[str, Ints]:
        """Return counterparts within one unit for rows of the same unit.

        Args:
            needed: Rows by private table; with each row, the one that owns it.

        Returns:
            The counterpart of each row by table, shape (rows,); -1 for rows that are not needed or have none.
        """
        found = {table.name: np.full(len(self.world.tables[table.name]), -1) for table in self.tables}
        of_unit: dict[int, list[tuple[Table, int]]] = {}
        for table in reversed(self.tables):  # what is owned before its owner: it is the more particular
            rows = self.world.tables[table.name]
            listed = needed[table.name]
            for row in listed[np.argsort(-rows.time[listed], kind="stable")].tolist():
                of_unit.setdefault(int(rows.unit[row]), []).append((table, row))
        for unit in self.rng.permutation(sorted(of_unit)).tolist():
            self._settle(of_unit[unit], found)
        return found

    def anywhere(self, table: str, rows: Ints) -> Ints:
        """Return counterparts of rows in any unit, shape (rows,); rows without a time are their own."""
        here = self.world.tables[table]
        return np.array(
            [
                row if here.time[row] == UNDATED else self._best(table, row, self._near(table, row))
                for row in rows.tolist()
            ],
            np.int64,
        )

    def _settle(self, members: Sequence[tuple[Table, int]], found: dict[str, Ints]) -> None:
        """Choose a unit for rows of one unit, and in it a counterpart for each."""
        unit = self._unit(members)
        for table, member in members:
            if found[table.name][member] >= 0:
                continue
            rows, row = self.world.tables[table.name], member
            options = self._rows_of(table.name, np.array([unit]))[0]
            owners, owner = owner_rows(table, rows), -1
            if table.owner_key is not None and owners[row] >= 0:
                owner = found[table.owner_key.parent][owners[row]]
            owned = options[owners[options] == owner] if owner >= 0 else options
            here, there = table, self._best(table.name, row, owned if len(owned) else options)
            while there >= 0 and found[here.name][row] < 0:  # and the owners of the one for those of the other
                found[here.name][row] = there
                self._used[here.name][there] += 2.0  # cost of a row that is a counterpart already
                key, rows = here.owner_key, self.world.tables[here.name]
                if key is None or rows.parents[key][row] < 0 or rows.parents[key][there] < 0:
                    break
                here, row, there = self.world.schema.table(key.parent), rows.parents[key][row], rows.parents[key][there]

    def _unit(self, members: Sequence[tuple[Table, int]]) -> int:
        """Return the unit whose rows are most like some rows of a unit."""
        lead, row = members[0]
        root = members[-1][0]  # owners come last
        near = self._near(lead.name, row)
        units = np.unique(self.world.tables[lead.name].unit[near])
        step, place = len(self.world.schema.tables), list(self.world.schema.by_name).index(root.name)
        units = units[units % step == place]
        if not len(units):
            return int(self.world.tables[lead.name].unit[row])
        costs = self.rng.random(len(units)) / 4
        for table, each in (*members[:8], members[-1]):  # rows of a unit that decide on its counterpart
            rows, which = self._rows_of(table.name, units)
            least = np.full(len(units), 20.0)  # cost of a unit that lacks rows of a table
            np.minimum.at(least, which, self._cost(table.name, each, rows))
            costs += least
        return int(units[costs.argmin()])

    def _best(self, table: str, row: int, options: Ints) -> int:
        if not len(options):
            return -1
        costs = self._cost(table, row, options) + self.rng.random(len(options)) / 4  # chance decides among the like
        return int(options[costs.argmin()])

    def _cost(self, table: str, row: int, options: Ints) -> np.ndarray:
        then, now = self._at(table, self.then), self._at(table, self.now)
        return then.cost(row, now, options) + self._used[table][options]

    def _at(self, table: str, time: int) -> Features:
        if (table, time) not in self._features:
            self._features[table, time] = Features(self.world, self.world.schema.table(table), time)
        return self._features[table, time]

    def _near(self, table: str, row: int) -> Ints:
        """Return rows that are now about as old as ``row`` was; any if it has no time."""
        time = self.world.tables[table].time
        if table not in self._by_time:
            order = np.argsort(time, kind="stable")
            self._by_time[table] = order, time[order]
        order, times = self._by_time[table]
        if time[row] == UNDATED:
            return self.rng.choice(len(time), min(_NEAREST, len(time)), replace=False)
        place = int(np.searchsorted(times, time[row] + self.now - self.then))
        first = max(0, min(place - _NEAREST // 2, len(order) - _NEAREST))
        return order[first : first + _NEAREST]

    def _rows_of(self, table: str, units: Ints) -> tuple[Ints, Ints]:
        """Return the rows of some units, and which of the units each is of; both of shape (rows,)."""
        if table not in self._by_unit:
            numbers = self.world.tables[table].unit
            order = np.argsort(numbers, kind="stable")
            self._by_unit[table] = order, numbers[order]
        order, numbers = self._by_unit[table]
        first, last = np.searchsorted(numbers, units), np.searchsorted(numbers, units, side="right")
        which = np.repeat(np.arange(len(units)), last - first)
        within = np.arange(len(which)) - np.repeat(np.cumsum(last - first) - (last - first), last - first)
        return order[first[which] + within], which
