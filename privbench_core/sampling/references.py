"""Foreign keys of synthetic rows, such that composite, overlapping and unique keys hold.

Keys are resolved one after the other: the owner key, then required keys, those with more columns first, then optional
ones. A key with columns that are filled already chooses among the parents that agree with these; a key that completes a
unique set of columns is chosen so that no two rows get the same. No parent gets more rows than ``max_children`` says: a
row that finds no room has no parent then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.columns.grid import Grid
from privbench_core.errors import InternalError
from privbench_core.guards import REDRAWING_ROUNDS
from privbench_core.links.fanout import wanting_common
from privbench_core.links.lookup import Lookup
from privbench_core.links.parent_choice import Distinct, ParentChoice, repeated
from privbench_core.marginals.sampler import Rows
from privbench_core.sampling.constraints import RowRule
from privbench_core.sampling.keys import common_numbers, group_numbers
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Table

Places = NDArray[np.int64]


@dataclass(frozen=True)
class Parent:
    """A synthetic parent table, for drawing references to it along one key.

    Attributes:
        table: Its rows, decoded.
        codes: Codes of its attributes, {} for a public table.
        sizes: Number of codes of each.
        weights: Weight of each of its rows in the measure of its model, None for equal weights.
        units: Number of the privacy unit of each of its rows, None if no key needs it.
        room: The most rows that may refer to each of its rows; None if that is what the key declares.
        lookup: Released of the key, to draw references by; None for an owner key.
    """

    table: pa.Table
    codes: Mapping[str, Codes]
    sizes: Mapping[str, int]
    weights: NDArray[np.float64] | None
    units: Places | None = None
    room: Places | None = None
    lookup: Lookup | None = None

    @property
    def link(self) -> Lookup:
        """Return `lookup`; InternalError without one."""
        if self.lookup is None:
            raise InternalError("references were to be drawn to parents without a link")
        return self.lookup

    def slice(self, start: int, stop: int) -> Parent:
        """Return some of its rows."""
        where = slice(start, stop)
        codes = {name: values[where] for name, values in self.codes.items()}
        weights = None if self.weights is None else self.weights[where]
        units = None if self.units is None else self.units[where]
        return Parent(self.table.slice(start, stop - start), codes, self.sizes, weights, units)


def lookup_order(table: Table, deferred: Collection[str] = ()) -> tuple[ForeignKey, ...]:
    """Return the keys off the ownership path, without deferred ones, in the order in which they are resolved."""
    keys = (key for key in table.foreign_keys if not key.owner and key.name not in deferred)
    return tuple(sorted(keys, key=lambda key: (key.optional, -len(key.columns))))


def room_for_children(
    table: Table, parent: pa.Table, distinct: Mapping[str, float], referred: Mapping[str, Places]
) -> Places:
    """Return the most rows of ``table`` that each row of its owner may have, shape (parents,).

    0 where the referenced columns are NULL, or a row has nothing to refer to; 1 where the owner key is unique (a
    primary key that is a foreign key); 7 where each row of an owner has another day of the week; as many as an account
    has users where each member of one of its teams is another one.

    Args:
        table: The owned table.
        parent: The owners.
        distinct: How many different values there are of each attribute.
        referred: From how many rows those of an owner may choose along each other required key, shape (parents,).
    """
    key = table.owner_key
    if key is None:
        return np.zeros(0, dtype=np.int64)
    known = table.required_columns.intersection(distinct)
    room = np.full(parent.num_rows, float(key.max_children or 1))
    for columns in (table.primary_key, *table.unique):
        names, combinations = set(columns) - set(key.columns), np.ones(parent.num_rows)
        for other in table.foreign_keys:
            if other.name in referred and not names.isdisjoint(other.columns):
                names, combinations = names - set(other.columns), combinations * referred[other.name]
        if names <= known:
            room = np.minimum(room, combinations * prod(distinct[name] for name in names))
    for choices in referred.values():
        room = np.where(choices > 0, room, 0)
    numbers = group_numbers([parent.column(name) for name in key.parent_columns], parent.num_rows)
    return np.where((numbers >= 0) & ~repeated(numbers), room, 0).astype(np.int64)


def choice_of(
    table: Table,
    key: ForeignKey,
    columns: Mapping[str, pa.Array],
    parent: Parent,
    n: int,
    units: Places | None = None,
) -> ParentChoice:
    """Return the parents that rows of ``table`` may refer to along ``key``, given the columns that are filled already.

    Args:
        table: The referring table.
        key: Not the owner key.
        columns: Attributes and key columns drawn so far, each of n values.
        parent: The referenced rows.
        n: Number of rows.
        units: Number of the privacy unit of each row, for a key that stays within the unit.
    """
    referred = dict(zip(key.columns, key.parent_columns, strict=True))
    fixed = [name for name in key.columns if name in columns]
    target = parent.table
    complete = group_numbers([target.column(name) for name in key.parent_columns], target.num_rows)
    of_row, of_parent = np.zeros(n, dtype=np.int64), np.zeros(target.num_rows, dtype=np.int64)
    if fixed:
        agree = [target.column(referred[name]) for name in fixed]
        of_parent, of_row = common_numbers(agree, [columns[name] for name in fixed], (target.num_rows, n))
    of_parent = np.where((complete >= 0) & ~repeated(complete), of_parent, -1)
    rules = []
    for unique in (table.primary_key, *table.unique):
        open_columns = [name for name in unique if name in referred and name not in fixed]
        others = [name for name in unique if name not in open_columns]
        if open_columns and all(name in columns for name in others):
            identity = group_numbers([target.column(referred[name]) for name in open_columns], target.num_rows)
            rules.append(Distinct(group_numbers([columns[name] for name in others], n), identity))
    room = parent.room
    if room is None and key.max_children is not None:
        room = np.full(target.num_rows, key.max_children)
    choice = ParentChoice(of_row, of_parent, tuple(rules), room=room)
    if not key.same_unit:
        return choice
    if units is None or parent.units is None:
        raise InternalError(f"{key.name}: stays inside of a unit, but the units of its rows are not known")
    return choice.inside(units, parent.units)


def draw_references(
    table: Table,
    keys: Sequence[ForeignKey],
    rows: Rows,
    parents: Mapping[str, Parent],
    columns: dict[str, pa.Array],
    rules: Sequence[RowRule],
    rng: np.random.Generator,
    units: Places | None = None,
    owners: tuple[pa.Table, Places] | None = None,
) -> dict[str, Places]:
    """Fill keys one after the other, and return the parent row of each row by key name, -1 for none, shape (n,) each.

    A reference that breaks a check is drawn again, and is left out in the end if the key is optional.

    Args:
        table: The referring table.
        keys: In the order in which they are filled.
        rows: With the codes of the attributes that references may follow.
        parents: By foreign key name, with their links.
        columns: Attributes and key columns drawn so far; those of the keys are added.
        rules: Checks; each is judged as soon as all of its columns are there.
        rng: Sampling only.
        units: As in `choice_of`.
        owners: Rows of the owners' table, and which of them each row has, -1 for none.
    """
    places: dict[str, Places] = {}
    for key in keys:
        choice = choice_of(table, key, columns, parents[key.name], rows.n, units)
        choice = _with_common(choice, parents[key.name], columns, owners, rng)
        found = _drawn(key, rows, parents[key.name], choice, columns, rules, rng)
        places[key.name] = found
        columns |= copied_columns(key, found, parents[key.name].table, columns)
    return places


def _with_common(
    choice: ParentChoice,
    parent: Parent,
    columns: Mapping[str, pa.Array],
    owners: tuple[pa.Table, Places] | None,
    rng: np.random.Generator,
) -> ParentChoice:
    """Return a choice in which as many rows as was measured want a parent that leads to the same row as they do.

    Where several ways lead from it, it is the one on which most do.
    """
    for common in sorted(parent.link.common, key=lambda each: -each.share):
        if common.of_owner and owners is not None:
            take = pa.array(owners[1], mask=owners[1] < 0)
            mine = [owners[0].column(name).take(take) for name in common.mine]
        elif common.of_owner or not columns.keys() >= set(common.mine):
            continue
        else:
            mine = [columns[name] for name in common.mine]
        theirs, count = [parent.table.column(name) for name in common.theirs], parent.table.num_rows
        ends = common_numbers(theirs, mine, (count, len(choice.of_row)))
        return wanting_common(choice, common, ends, parent.link.given_weights(count, None), rng)
    return choice


def _drawn(
    key: ForeignKey,
    rows: Rows,
    parent: Parent,
    choice: ParentChoice,
    columns: Mapping[str, pa.Array],
    rules: Sequence[RowRule],
    rng: np.random.Generator,
) -> Places:
    """Return the parent of each row; those that break a check that can be judged by then are drawn again."""
    filled = set(key.columns) - columns.keys()
    known = filled | columns.keys()
    judged = [rule for rule in rules if not filled.isdisjoint(rule.columns) and known.issuperset(rule.columns)]
    lookup, codes, count = parent.link, parent.codes, parent.table.num_rows
    found = lookup.draw(rows, codes, count, rng, choice)
    for attempt in range(REDRAWING_ROUNDS):
        if key.parent == key.child:
            found = without_cycles(found, choice, rng)
        made = {**columns, **copied_columns(key, found, parent.table, columns)} if judged else {}
        index = np.flatnonzero(np.logical_or.reduce([rule.broken(made) for rule in judged]))
        if not len(index):
            break
        before, last = found.copy(), attempt == REDRAWING_ROUNDS - 1
        if key.optional or not last:
            found[index] = -1
        if not last:
            some = choice.take(index).beside(found)
            found[index] = lookup.draw(rows.take(index), codes, count, rng, some, before)
    return found


def nearest_public(table: Table, parents: Mapping[str, Parent], columns: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    """Return the attributes that refer to public rows with the nearest values that these have, by column.

    Of several columns of one key each takes the nearest value of the rows that agree in those before it.

    Args:
        table: The referring table.
        parents: By foreign key name.
        columns: Its attributes, each of n values.
    """
    found: dict[str, pa.Array] = {}
    modelled = {column.name for column in table.attributes}
    for key in lookup_order(table):
        agree: list[tuple[pa.ChunkedArray, pa.Array]] = []
        for name, target in zip(key.columns, key.parent_columns, strict=True):
            if name in modelled:
                have, now = parents[key.name].table.column(target), found.get(name, columns[name])
                if name not in found:
                    now = _nearest(Grid.of(table.column(name), table.name), have, now, agree)
                agree.append((have, now))
                found[name] = now
    return found


def _nearest(
    grid: Grid, have: pa.ChunkedArray, wanted: pa.Array, agree: Sequence[tuple[pa.ChunkedArray, pa.Array]]
) -> pa.Array:
    """Return the nearest value to each wanted one among those of the parents that ``agree`` with its row, if any do."""
    sizes = len(have), len(wanted)
    of_parent, of_row = common_numbers([pair[0] for pair in agree], [pair[1] for pair in agree], sizes)
    (there, gone), (numbers, null) = grid.numbers(have), grid.numbers(pa.chunked_array([wanted]))
    values, ranks = np.unique(there, return_inverse=True)
    span = len(values) + 1
    known = np.unique((of_parent * span + ranks)[(of_parent >= 0) & ~gone])
    after = np.searchsorted(known, of_row * span + np.searchsorted(values, numbers))
    result, least = numbers.copy(), np.full(len(numbers), np.inf)
    for place in (after - 1, after) if len(known) else ():
        inside = known[np.clip(place, 0, len(known) - 1)]
        found = values[inside % span]
        apart = np.where(inside // span == of_row, np.abs(found.astype(np.float64) - numbers), np.inf)
        result = np.where(apart < least, found, result)
        least = np.minimum(apart, least)
    return grid.array(result, null)


def copied_columns(key: ForeignKey, places: Places, parent: pa.Table, columns: Collection[str]) -> dict[str, pa.Array]:
    """Return the key's columns that are not filled yet, copied from the parents' rows; NULL where there is none."""
    take = pa.array(places, mask=places < 0)
    return {
        name: parent.column(target).take(take).combine_chunks()
        for name, target in zip(key.columns, key.parent_columns, strict=True)
        if name not in columns
    }


def without_cycles(places: Places, choice: ParentChoice, rng: np.random.Generator) -> Places:
    """Return references of a table to itself (employee.manager) as a forest: with every cycle opened, shape (n,).

    One row of each cycle refers to a random row that does not depend on it instead, or to none if there is no such row.
    References drawn at random have about ln(n)/2 cycles, so few rows change.

    Args:
        places: Row that each row refers to, -1 for none.
        choice: What each row may refer to.
        rng: Sampling only.
    """
    result = places.copy()
    cuts = _one_of_each_cycle(places)
    result[cuts] = -1
    roots = _roots(result)
    room = choice.beside(result).room
    for row in rng.permutation(cuts).tolist():
        fits = (roots != row) & (choice.of_parent == choice.of_row[row])
        fits = fits if room is None else fits & (room > 0)
        candidates = np.zeros(0) if choice.distinct else np.flatnonzero(fits)
        if len(candidates):
            result[row] = rng.choice(candidates)
            if room is not None:
                room[result[row]] -= 1
            roots[roots == row] = roots[result[row]]
    return result


def _one_of_each_cycle(places: Places) -> Places:
    """Return the smallest row number of every cycle."""
    n = len(places)
    steps = np.append(places, n)  # row n represents "none" and refers to itself
    steps[steps < 0] = n
    least = np.arange(n + 1)
    for _ in range(max(1, n.bit_length())):  # after k rounds each step is 2^k references long
        least = np.minimum(least, least[steps])
        steps = steps[steps]
    on_cycle = np.zeros(n + 1, dtype=bool)
    on_cycle[steps] = True
    on_cycle[n] = False
    rows = np.flatnonzero(on_cycle)
    return np.asarray(rows[least[rows] == rows], dtype=np.int64)


def _roots(places: Places) -> Places:
    """Return the root of each row, in references without cycles."""
    roots = np.where(places < 0, np.arange(len(places)), places)
    for _ in range(max(1, len(places).bit_length())):
        roots = roots[roots]
    return roots
