"""What a row that is appended takes from the rows so far: its counterpart, and values that must be new.

For an existing row of a past week, its counterpart is the row that is now what that one was then. A customer who
ordered in a past week, two years after joining and with ten orders so far, has as a counterpart one who joined two
years ago, has about ten orders now, and is like it in columns with few values. What one did in that week, the other
does in the next. All rows of a unit have their counterparts in one unit, so that rows that belong together still do.

Values that must be new are numbers that go on, UUIDs, and texts that no row has yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import ascii_lowercase, ascii_uppercase, digits

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privbench_core.columns.opaque import length_limit
from privbench_core.columns.surrogates import random_uuids
from privbench_core.continuation import UNDATED, Ints, World, is_calendar, microseconds, owner_rows
from privbench_core.sampling.keys import common_numbers, ordinal_within
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.tables import Table
from privbench_core.schema.types.durations import DAY


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
        """Return 128 rows that are now about as old as ``row`` was, or all; any if it has no time."""
        nearest = 128
        time = self.world.tables[table].time
        if table not in self._by_time:
            order = np.argsort(time, kind="stable")
            self._by_time[table] = order, time[order]
        order, times = self._by_time[table]
        if time[row] == UNDATED:
            return self.rng.choice(len(time), min(nearest, len(time)), replace=False)
        place = int(np.searchsorted(times, time[row] + self.now - self.then))
        first = max(0, min(place - nearest // 2, len(order) - nearest))
        return order[first : first + nearest]

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


_CLASSES = (digits, ascii_lowercase, ascii_uppercase)


def made_unique(
    table: Table, new: dict[str, pa.Array], old: pa.Table, rng: np.random.Generator
) -> tuple[dict[str, pa.Array], np.ndarray]:
    """Return columns of new rows that differ from all others where they must, and which rows do, shape (rows,).

    Args:
        table: The table, with the sets of columns that no two rows may share.
        new: The columns of the new rows, in the order in which they are numbered; references are final.
        old: All rows so far.
        rng: For UUIDs and texts.
    """
    new, kept = dict(new), np.ones(len(next(iter(new.values()))), dtype=bool)
    fresh: set[str] = set()  # columns whose new values no other row has
    groups = [group for group in (table.primary_key, *table.unique) if group]
    for group in groups:
        own = [table.column(name) for name in group if name not in table.referring_columns]
        for column in reversed(own):
            if column.name not in fresh and (made := _numbered(table, column, group, new, old, rng)) is not None:
                new[column.name], is_fresh = made
                fresh |= {column.name} if is_fresh else set()
                break
        if fresh.isdisjoint(group):
            texts = [c for c in own if c.type in {ColumnType.TEXT, ColumnType.CATEGORY} and c.stored_type is not None]
            if texts:
                new[texts[-1].name] = _respelled(texts[-1], group, new, old, rng)
    for group in groups:
        kept &= ~_collides(group, new, old)
    return new, kept


def _numbered(
    table: Table,
    column: Column,
    group: tuple[str, ...],
    new: dict[str, pa.Array],
    old: pa.Table,
    rng: np.random.Generator,
) -> tuple[pa.Array, bool] | None:
    """Return the next values of a column, and whether they differ from all others; None if it has no next values."""
    values, there = new[column.name], old.column(column.name)
    count = len(values)
    if column.type is ColumnType.UUID:
        return pc.if_else(values.is_valid(), random_uuids(count, rng).cast(values.type), values), True
    alone = old.num_rows > 1 and pc.count_distinct(there).as_py() == old.num_rows - there.null_count
    if column.type is ColumnType.INTEGER or (column.type is ColumnType.DECIMAL and not column.scale):
        if alone:
            step = column.sequence.increment if column.sequence else 1
            last = int(pc.max(there).as_py() or 0)
            made = pa.array(last + step * np.arange(1, count + 1)).cast(values.type)
            return pc.if_else(values.is_valid(), made, values), True
        return _counted_within(column, group, new, old), False
    if alone and column.type is ColumnType.TEXT:
        made = _numbered_text(column, there, count, is_key=group == table.primary_key)
        return None if made is None else (pc.if_else(values.is_valid(), made, values), True)
    return None


def _counted_within(column: Column, group: tuple[str, ...], new: dict[str, pa.Array], old: pa.Table) -> pa.Array:
    """Return numbers that go on within the rows that share the other columns of a unique set.

    All do where the numbers so far count these rows from one; else those alone that would repeat an old one.
    """
    values, there = new[column.name], old.column(column.name)
    others = [name for name in group if name != column.name]
    if others:
        sizes = old.num_rows, len(values)
        before, here = common_numbers([old.column(n) for n in others], [new[n] for n in others], sizes)
    else:
        before, here = np.zeros(old.num_rows, np.int64), np.zeros(len(values), np.int64)
    numbers = np.asarray(pc.fill_null(there.cast(pa.int64()), 0).to_numpy())
    size = max(before.max(initial=-1), here.max(initial=-1)) + 2
    last, first = np.zeros(size, np.int64), np.full(size, np.iinfo(np.int64).max)
    np.maximum.at(last, before, numbers)
    np.minimum.at(first, before, numbers)
    begun = first[np.unique(before)]
    chosen = values.is_valid().to_numpy(zero_copy_only=False)
    # Numbers count the rows of their group where nine in ten groups begin at 1.
    if not len(begun) or (begun <= 1).mean() < 0.9:  # noqa: PLR2004
        chosen = chosen & _collides(group, new, old)
        np.maximum.at(last, here, np.asarray(pc.fill_null(values.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)))
    made = np.zeros(len(values), np.int64)
    made[chosen] = last[here[chosen]] + ordinal_within(here[chosen])
    return pc.if_else(pa.array(chosen & (here >= 0)), pa.array(made).cast(values.type), values)


def _numbered_text(column: Column, there: pa.ChunkedArray, count: int, *, is_key: bool) -> pa.Array | None:
    """Return texts that go on numbering, as ``person-000042`` does; None if the texts so far are not numbered.

    Only those of keys are numbered where they are digits alone: other such texts may be telephone numbers.
    """
    heads = pc.unique(pc.utf8_rtrim(pc.drop_null(there), characters=digits)).to_pylist()
    if len(heads) != 1 or not (heads[0] or is_key):
        return None
    tails = pc.utf8_slice_codeunits(pc.drop_null(there), len(heads[0]))
    if pc.any(pc.equal(tails, "")).as_py() or pc.max(pc.utf8_length(tails)).as_py() > 18:  # noqa: PLR2004 - of 64 bits
        return None
    width, last = pc.max(pc.utf8_length(tails)).as_py(), int(pc.max(tails.cast(pa.int64())).as_py())
    made = [f"{heads[0]}{last + number:0{width}d}" for number in range(1, count + 1)]
    return pa.array(made) if len(made[-1]) <= length_limit(column) else None


def _respelled(
    column: Column, group: tuple[str, ...], new: dict[str, pa.Array], old: pa.Table, rng: np.random.Generator
) -> pa.Array:
    """Return texts spelled anew where a row has the same values as another one, in the form of the old ones."""
    made, limit = new[column.name], length_limit(column)
    for attempt in range(20):  # in which texts that exist already are spelled anew
        again = np.flatnonzero(_collides(group, {**new, column.name: made}, old))
        if not len(again):
            break
        texts = made.to_pylist()
        for row in again.tolist():
            texts[row] = _spelled_like(texts[row], old.num_rows + row + 1 + attempt * len(texts), limit, rng)
        made = pa.array(texts, made.type)
    return made


def _spelled_like(text: str, number: int, limit: int, rng: np.random.Generator) -> str:
    """Return another text of the same form: an address with a number, or other digits, or else other letters."""
    name, at, host = text.partition("@")
    numbered = f"{name.rstrip(digits) or name}{number}{at}{host}"
    if at and len(numbered) <= limit:
        return numbered
    changed = _CLASSES[:1] if sum(sign in digits for sign in text) >= len(str(number)) else _CLASSES
    signs = [next((kind for kind in changed if sign in kind), sign) for sign in text]
    return "".join(kind[rng.integers(len(kind))] for kind in signs)


def _collides(group: tuple[str, ...], new: dict[str, pa.Array], old: pa.Table) -> np.ndarray:
    """Return which new rows have the values of an old row, or of a new one before, shape (rows,)."""
    count = len(new[group[0]])
    there, here = common_numbers(
        [old.column(name) for name in group], [new[name] for name in group], (old.num_rows, count)
    )
    first = np.zeros(count, dtype=bool)
    first[np.unique(here, return_index=True)[1]] = True
    return (here >= 0) & (~first | np.isin(here, there))
