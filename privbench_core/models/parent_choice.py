"""Choose a synthetic parent for each row, under constraints.

A row may be limited to a group of parents (an overlapping key fixes some of the parent's columns already), and rows may
need different parents (a unique reference, the pairs of a junction table), and no parent gets more rows than its key
declares. Rows ask for the attributes that their
parent should have, the most informative first, and get a parent that has as many of them as possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
Level = tuple[Numbers, Numbers]
# Chosen by hand, for time and for few rows without a parent.
_ROUNDS = 3  # per level of preferences, where choices must differ
_LAST_ROUNDS = 6  # the same for the last level, any parent
_MIN_WEIGHT = 1e-6  # of the mean weight: even a parent of popularity 0 is chosen where there is no other
_MAX_PAIRS = 10_000_000  # rows times parents that the greedy assignment may go through


@dataclass(frozen=True)
class Distinct:
    """No two rows of the same scope may refer to parents of the same identity.

    Attributes:
        scope: Of each row, shape (rows,); -1 where the rule does not hold (a NULL in a unique key).
        identity: Of each parent, shape (parents,).
    """

    scope: Numbers
    identity: Numbers

    def pairs(self, rows: Numbers, parents: Numbers) -> Numbers:
        """Return a number per (scope, identity) of some rows and their parents, -1 where the rule does not apply."""
        scope, identity = self.scope[rows], self.identity[parents]
        span = int(self.identity.max(initial=0)) + 1
        return np.where((scope >= 0) & (identity >= 0) & (parents >= 0), scope * span + identity, -1)


@dataclass(frozen=True)
class ParentChoice:
    """The parents that rows may choose from.

    Attributes:
        of_row: Group of each row, shape (rows,).
        of_parent: Group of each parent, shape (parents,): rows choose inside their group, and group -1 is never chosen.
        distinct: Rules on choices of different rows.
        weights: Relative frequency of each parent, shape (parents,); None for equal ones.
        room: The most rows that may refer to each parent, shape (parents,); None without a bound.
    """

    of_row: Numbers
    of_parent: Numbers
    distinct: tuple[Distinct, ...] = ()
    weights: NDArray[np.float64] | None = None
    room: Numbers | None = None

    @classmethod
    def free(cls, rows: int, parents: int) -> ParentChoice:
        """Return the choice in which every row may refer to every parent."""
        return cls(np.zeros(rows, dtype=np.int64), np.zeros(parents, dtype=np.int64))

    def inside(self, of_row: Numbers, of_parent: Numbers) -> ParentChoice:
        """Return the same choice, limited for each row to the parents with its number.

        >>> choice = ParentChoice.free(3, 2).inside(np.array([7, 7, 9]), np.array([9, 7]))
        >>> choice.of_row.tolist(), choice.of_parent.tolist()
        ([0, 0, 1], [1, 0])
        """
        group = np.concatenate([self.of_row, self.of_parent])
        numbers = np.concatenate([of_row, of_parent]) * (int(group.max(initial=0)) + 1) + group
        dense = np.unique(numbers, return_inverse=True)[1].astype(np.int64)
        dense[group < 0] = -1
        return replace(self, of_row=dense[: len(of_row)], of_parent=dense[len(of_row) :])

    def take(self, index: Numbers) -> ParentChoice:
        """Return the choice of some rows, with rules among these only."""
        rules = tuple(Distinct(rule.scope[index], rule.identity) for rule in self.distinct)
        return replace(self, of_row=self.of_row[index], distinct=rules)

    def beside(self, places: Numbers) -> ParentChoice:
        """Return the same choice with less room: other rows have these parents (row numbers, -1 for none).

        >>> choice = replace(ParentChoice.free(1, 3), room=np.array([2, 2, 2]))
        >>> choice.beside(np.array([0, 0, 2, -1])).room.tolist()
        [0, 2, 1]
        """
        if self.room is None:
            return self
        used = np.bincount(places[places >= 0], minlength=len(self.room))
        return replace(self, room=np.maximum(self.room - used, 0))


def pick_parents(
    preferences: Sequence[Level], wanting: NDArray[np.bool_], choice: ParentChoice, rng: np.random.Generator
) -> Numbers:
    """Return a parent for each row that wants one, -1 if none is left that it may have; shape (rows,).

    Args:
        preferences: (code of each parent, code that each row wants), coarsest first; a row gets a parent of the
            finest preference that can be met, and any parent of its group if none can.
        wanting: Which rows refer to a parent.
        choice: What they may choose from.
        rng: Sampling only.
    """
    result = np.full(len(wanting), -1, dtype=np.int64)
    taken = [np.zeros(0, dtype=np.int64) for _ in choice.distinct]
    pending = np.flatnonzero(wanting)
    left = choice
    any_parent = (np.zeros(len(choice.of_parent), dtype=np.int64), np.zeros(len(wanting), dtype=np.int64))
    levels = [any_parent, *preferences]
    for depth in range(len(levels) - 1, -1, -1):
        index = _CandidateIndex(levels[depth], left, rng)
        rounds = 1 if not choice.distinct else _ROUNDS if depth else _LAST_ROUNDS
        for attempt in range(rounds):
            if not len(pending):
                return result
            # Rows that must differ are assigned round-robin in the end: neighbours in the index cannot collide.
            scope = choice.distinct[0].scope[pending] if choice.distinct else None
            if scope is not None and attempt > 0 and attempt >= rounds // 2:
                chosen = index.round_robin(pending, scope, rng)
            else:
                chosen = index.systematic(pending, scope, rng)
            pending, left = _given(pending, chosen, left, taken, result, rng)
        pending, left = _where_there_is_room(pending, levels[depth], left, taken, result, rng)
    if _is_one_to_one(choice):
        _assign_remaining(pending, left, taken[0], result, rng)
    elif choice.distinct:
        _assign_greedily(pending, left, taken, result, rng)
    return result


def _given(
    pending: Numbers,
    chosen: Numbers,
    choice: ParentChoice,
    taken: list[Numbers],
    result: Numbers,
    rng: np.random.Generator,
) -> tuple[Numbers, ParentChoice]:
    """Enter what was chosen into ``result``, as far as no rule is broken and there is room.

    Returns:
        The rows that still want a parent, and the choice they have.
    """
    given = chosen >= 0
    given[given] = _with_room(chosen[given], choice.room, rng)
    given[given] = _accept(pending[given], chosen[given], choice, taken)
    result[pending[given]] = chosen[given]
    return pending[~given], choice.beside(chosen[given])


def _with_room(chosen: Numbers, room: Numbers | None, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return which of the rows with these parents there is room for: of those with the same parent, random ones."""
    fits = np.ones(len(chosen), dtype=bool)
    crowded = np.zeros(0, dtype=bool) if room is None else np.bincount(chosen, minlength=len(room)) > room
    if room is None or not crowded.any():
        return fits
    luck = rng.random(len(chosen))
    some = np.flatnonzero(crowded[chosen])
    some = some[np.lexsort((luck[some], chosen[some]))]
    fits[some] = _ranks(chosen[some]) < room[chosen[some]]
    return fits


def _where_there_is_room(
    pending: Numbers,
    level: Level,
    choice: ParentChoice,
    taken: list[Numbers],
    result: Numbers,
    rng: np.random.Generator,
) -> tuple[Numbers, ParentChoice]:
    """Give rows whose parent is full another one of the same preference, by weights at first and by room in the end."""
    weights = choice.weights
    for _ in range(_LAST_ROUNDS):
        if choice.room is None or choice.room.all() or not len(pending):
            break
        open_ones = replace(choice, of_parent=np.where(choice.room > 0, choice.of_parent, -1))
        scope = choice.distinct[0].scope[pending] if choice.distinct else None
        chosen = _CandidateIndex(level, open_ones, rng).systematic(pending, scope, rng)
        pending, choice = _given(pending, chosen, choice, taken, result, rng)
        choice = replace(choice, weights=None if choice.room is None else choice.room.astype(np.float64))
    return pending, replace(choice, weights=weights)


class _CandidateIndex:
    """The parents, in random order within each group of parents that the same rows ask for."""

    def __init__(self, level: Level, choice: ParentChoice, rng: np.random.Generator) -> None:
        have, want = level
        span = int(max(have.max(initial=0), want.max(initial=0))) + 1
        allowed = rng.permutation(np.flatnonzero(choice.of_parent >= 0))
        label = choice.of_parent[allowed] * span + have[allowed]
        order = np.argsort(label, kind="stable")
        self._parents, labels = allowed[order], label[order]
        asked = np.where(choice.of_row >= 0, choice.of_row * span + want, -1)
        self._starts = np.searchsorted(labels, asked, side="left")
        self._sizes = np.searchsorted(labels, asked, side="right") - self._starts
        weights = np.ones(len(allowed)) if choice.weights is None else choice.weights[self._parents]
        least = _MIN_WEIGHT * weights.mean() if weights.any() else 1.0
        self._cumulated = np.append(0.0, np.cumsum(np.maximum(weights, least)))

    def systematic(self, rows: Numbers, scope: Numbers | None, rng: np.random.Generator) -> Numbers:
        """Return a parent for each of ``rows`` by systematic sampling, -1 where there is none.

        Of the rows that ask for the same, each parent gets its share, rounded up or down, as a run of rows. Rows are
        ordered in rounds with one row of each scope: so a scope gets a parent twice only if the parent has more rows
        than a round.
        """
        result = np.full(len(rows), -1, dtype=np.int64)
        possible = np.flatnonzero(self._sizes[rows] > 0)
        order = rng.permutation(possible)
        starts = self._starts[rows]
        if scope is not None:
            shuffled = _in_random_order(scope, rng)
            order = order[np.lexsort((shuffled[order], starts[order]))]
            order = order[np.lexsort((shuffled[order], _ranks(starts[order], shuffled[order]), starts[order]))]
        else:
            order = order[np.argsort(starts[order], kind="stable")]
        first = starts[order]
        last = first + self._sizes[rows][order] - 1
        rank = _ranks(first)
        begins = np.flatnonzero(rank == 0)
        lengths = np.diff(np.append(begins, len(order)))
        points = (rank + np.repeat(rng.random(len(begins)), lengths)) / np.repeat(lengths, lengths)
        low, high = self._cumulated[first], self._cumulated[last + 1]
        found = np.searchsorted(self._cumulated, low + points * (high - low), side="right") - 1
        result[order] = self._parents[np.clip(found, first, last)]
        return result

    def round_robin(self, rows: Numbers, scope: Numbers, rng: np.random.Generator) -> Numbers:
        """Return a parent for each of ``rows``, one after the other within a scope, -1 where there is none."""
        starts, sizes = self._starts[rows], self._sizes[rows]
        offset = (rng.random(len(rows)) * sizes).astype(np.int64)
        order = np.lexsort((rng.random(len(rows)), starts, scope))
        rank, begin = np.empty_like(offset), np.empty_like(offset)
        rank[order] = _ranks(scope[order], starts[order])
        begin[order] = offset[order][np.arange(len(rows)) - rank[order]]
        possible = (sizes > 0) & ((rank < sizes) | (scope < 0))
        offset = np.where(possible, (begin + rank) % np.maximum(sizes, 1), 0)
        result = np.full(len(rows), -1, dtype=np.int64)
        result[possible] = self._parents[starts[possible] + offset[possible]]
        return result


def _ranks(*sorted_by: Numbers) -> Numbers:
    """Return the number of each element within its run of equal ones, from 0, shape (n,)."""
    n = len(sorted_by[0])
    new = np.zeros(n, dtype=bool)
    for values in sorted_by:
        new[1:] |= values[1:] != values[:-1]
    new[:1] = True
    return np.arange(n) - np.maximum.accumulate(np.where(new, np.arange(n), 0))


def _in_random_order(scope: Numbers, rng: np.random.Generator) -> Numbers:
    """Return numbers of scopes in random order; each row of scope -1 (no rule) is a scope of its own."""
    dense = np.unique(np.where(scope >= 0, scope, -1 - np.arange(len(scope))), return_inverse=True)[1]
    return np.asarray(rng.permutation(int(dense.max(initial=0)) + 1)[dense], dtype=np.int64)


def _accept(rows: Numbers, parents: Numbers, choice: ParentChoice, taken: list[Numbers]) -> NDArray[np.bool_]:
    """Return which of some choices break no rule, and add these to ``taken``."""
    accepted = np.ones(len(rows), dtype=bool)
    pairs = [rule.pairs(rows, parents) for rule in choice.distinct]
    for pair, before in zip(pairs, taken, strict=True):
        accepted &= (pair < 0) | ~np.isin(pair, before)
    for pair in pairs:
        among = np.flatnonzero(accepted & (pair >= 0))
        first = np.unique(pair[among], return_index=True)[1]
        accepted[np.delete(among, first)] = False
    for number, pair in enumerate(pairs):
        taken[number] = np.concatenate([taken[number], pair[accepted & (pair >= 0)]])
    return accepted


def repeated(numbers: Numbers) -> NDArray[np.bool_]:
    """Return whether an earlier row has the same number; rows of number -1 are all different.

    >>> repeated(np.array([4, 2, 4, -1, -1])).tolist()
    [False, False, True, False, False]
    """
    first = np.unique(numbers, return_index=True)[1]
    result = numbers >= 0
    result[first] = False
    return result


def _is_one_to_one(choice: ParentChoice) -> bool:
    """Return whether the only rule is that no two rows get the same parent."""
    if len(choice.distinct) != 1 or choice.distinct[0].scope.any():
        return False
    identity = choice.distinct[0].identity[choice.of_parent >= 0]
    return bool((identity >= 0).all() and len(np.unique(identity)) == len(identity))


def _assign_remaining(
    pending: Numbers, choice: ParentChoice, taken: Numbers, result: Numbers, rng: np.random.Generator
) -> None:
    """Assign unused parents to the pending rows, group by group, if the choice `_is_one_to_one`."""
    used = np.isin(choice.distinct[0].identity, taken)
    if choice.room is not None:
        used |= choice.room <= 0
    free = rng.permutation(np.flatnonzero((choice.of_parent >= 0) & ~used))
    rows = rng.permutation(pending[choice.of_row[pending] >= 0])
    free = free[np.argsort(choice.of_parent[free], kind="stable")]
    rows = rows[np.argsort(choice.of_row[rows], kind="stable")]
    have, want = choice.of_parent[free], choice.of_row[rows]
    rank = np.arange(len(rows)) - np.searchsorted(want, want, side="left")
    position = np.searchsorted(have, want, side="left") + rank
    given = position < np.searchsorted(have, want, side="right")
    result[rows[given]] = free[position[given]]


def _assign_greedily(
    pending: Numbers, choice: ParentChoice, taken: list[Numbers], result: Numbers, rng: np.random.Generator
) -> None:
    """Give each pending row any parent that is still free for it, unless that would take more than `_MAX_PAIRS`."""
    by_group = np.argsort(choice.of_parent, kind="stable")
    groups, wanted = choice.of_parent[by_group], choice.of_row[pending]
    starts, ends = (np.searchsorted(groups, wanted, side=side) for side in ("left", "right"))
    possible = (wanted >= 0) & (starts < ends)
    if not possible.any() or int((ends - starts)[possible].sum()) > _MAX_PAIRS:
        return
    used = [set(before.tolist()) for before in taken]
    room = None if choice.room is None else choice.room.copy()
    for row, start, end in zip(*(numbers[possible].tolist() for numbers in (pending, starts, ends)), strict=True):
        candidates = rng.permutation(by_group[start:end])
        pairs = [rule.pairs(np.full(len(candidates), row), candidates) for rule in choice.distinct]
        for position, parent in enumerate(candidates.tolist()):
            numbers = [int(pair[position]) for pair in pairs]
            if (room is None or room[parent] > 0) and not any(
                number in before for number, before in zip(numbers, used, strict=True)
            ):
                result[row] = parent
                if room is not None:
                    room[parent] -= 1
                for number, before in zip(numbers, used, strict=True):
                    if number >= 0:
                        before.add(number)
                break
