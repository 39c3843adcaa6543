"""Which of the synthetic parents a row refers to, where it may not be just any of them.

A row may have to choose inside of a group (an overlapping key fixes some of the parent's columns already), and rows
may have to choose differently from each other (a unique reference, the pairs of a junction table). Rows ask for the
attributes their parent should have, the most telling first, and get the parent that has most of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
Level = tuple[Numbers, Numbers]
_TRIES = 3  # per level of preferences, where choices must differ
_LAST_TRIES = 6
_LEAST = 1e-6  # of the mean weight: a parent that nobody refers to is still chosen where there is no other
_MOST_PAIRS = 10_000_000  # rows times parents that may be gone through one by one for what is left


@dataclass(frozen=True)
class Distinct:
    """No two rows of the same scope may refer to parents of the same identity.

    Attributes:
        scope: Of each row, shape (rows,); -1 where the rule does not hold (a NULL in a unique key).
        identity: Of each parent, shape (parents,).
    """

    scope: Numbers
    identity: Numbers


@dataclass(frozen=True)
class ParentChoice:
    """What rows may choose from.

    Attributes:
        of_row: Group of each row, shape (rows,).
        of_parent: Group of each parent, shape (parents,): rows choose inside their group, and group -1 is never chosen.
        distinct: Rules on choices of different rows.
        weights: How often each parent is to be chosen, relative to the others, shape (parents,); None for all alike.
    """

    of_row: Numbers
    of_parent: Numbers
    distinct: tuple[Distinct, ...] = ()
    weights: NDArray[np.float64] | None = None

    @classmethod
    def free(cls, rows: int, parents: int) -> ParentChoice:
        """Every row may refer to every parent."""
        return cls(np.zeros(rows, dtype=np.int64), np.zeros(parents, dtype=np.int64))

    def inside(self, of_row: Numbers, of_parent: Numbers) -> ParentChoice:
        """The same choice, for each row only among the parents with its number.

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
        """The choice of some rows, among themselves."""
        rules = tuple(Distinct(rule.scope[index], rule.identity) for rule in self.distinct)
        return replace(self, of_row=self.of_row[index], distinct=rules)


def pick_parents(
    preferences: Sequence[Level], wanting: NDArray[np.bool_], choice: ParentChoice, rng: np.random.Generator
) -> Numbers:
    """A parent for each row that wants one, -1 where there is none left that it may have; shape (rows,).

    Args:
        preferences: (code of each parent, code that each row wants), coarsest first; a row gets a parent of the
            finest preference that can be fulfilled, and any parent of its group if none can.
        wanting: Which rows want a parent at all.
        choice: What they may choose from.
        rng: Sampling only.
    """
    result = np.full(len(wanting), -1, dtype=np.int64)
    taken = [np.zeros(0, dtype=np.int64) for _ in choice.distinct]
    pending = np.flatnonzero(wanting)
    anything = (np.zeros(len(choice.of_parent), dtype=np.int64), np.zeros(len(wanting), dtype=np.int64))
    levels = [anything, *preferences]
    for depth in range(len(levels) - 1, -1, -1):
        index_of_candidates = _CandidateIndex(levels[depth], choice, rng)
        tries = 1 if not choice.distinct else _TRIES if depth else _LAST_TRIES
        for attempt in range(tries):
            if not len(pending):
                return result
            # Rows that must differ take turns in the end: neighbours in the index cannot collide.
            scope = choice.distinct[0].scope[pending] if choice.distinct else None
            if scope is not None and attempt > 0 and attempt >= tries // 2:
                places = index_of_candidates.in_turn(pending, scope, rng)
            else:
                places = index_of_candidates.shared_out(pending, scope, rng)
            given = places >= 0
            given[given] = _accept(pending[given], places[given], choice, taken)
            result[pending[given]] = places[given]
            pending = pending[~given]
    if _one_each(choice):
        _assign_remaining(pending, choice, taken[0], result, rng)
    elif choice.distinct:
        _assign_greedily(pending, choice, taken, result, rng)
    return result


class _CandidateIndex:
    """The parents in random order, sorted by what rows may ask for."""

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
        least = _LEAST * weights.mean() if weights.any() else 1.0
        self._cumulated = np.append(0.0, np.cumsum(np.maximum(weights, least)))

    def shared_out(self, rows: Numbers, scope: Numbers | None, rng: np.random.Generator) -> Numbers:
        """A parent for each of ``rows``, -1 where there is none.

        Systematic sampling: of the rows that ask for the same, each parent gets its share, rounded up or down.
        Parents get them in a row, and rows stand in rounds, one of each scope: so a parent is not given twice to a
        scope unless it has more rows than a round.
        """
        places = np.full(len(rows), -1, dtype=np.int64)
        possible = np.flatnonzero(self._sizes[rows] > 0)
        order = rng.permutation(possible)
        starts = self._starts[rows]
        if scope is not None:
            turn = _in_random_order(scope, rng)
            order = order[np.lexsort((turn[order], starts[order]))]
            order = order[np.lexsort((turn[order], _ranks(starts[order], turn[order]), starts[order]))]
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
        places[order] = self._parents[np.clip(found, first, last)]
        return places

    def in_turn(self, rows: Numbers, scope: Numbers, rng: np.random.Generator) -> Numbers:
        """A parent for each of ``rows``, -1 where there is none: one after the other inside of a scope."""
        starts, sizes = self._starts[rows], self._sizes[rows]
        offset = (rng.random(len(rows)) * sizes).astype(np.int64)
        order = np.lexsort((rng.random(len(rows)), starts, scope))
        rank, begin = np.empty_like(offset), np.empty_like(offset)
        rank[order] = _ranks(scope[order], starts[order])
        begin[order] = offset[order][np.arange(len(rows)) - rank[order]]
        possible = (sizes > 0) & ((rank < sizes) | (scope < 0))
        offset = np.where(possible, (begin + rank) % np.maximum(sizes, 1), 0)
        places = np.full(len(rows), -1, dtype=np.int64)
        places[possible] = self._parents[starts[possible] + offset[possible]]
        return places


def _ranks(*sorted_by: Numbers) -> Numbers:
    """Number of each element within its run of equal ones, from 0, shape (n,)."""
    n = len(sorted_by[0])
    new = np.zeros(n, dtype=bool)
    for values in sorted_by:
        new[1:] |= values[1:] != values[:-1]
    new[:1] = True
    return np.arange(n) - np.maximum.accumulate(np.where(new, np.arange(n), 0))


def _in_random_order(scope: Numbers, rng: np.random.Generator) -> Numbers:
    """Numbers of scopes in random order; rows that no rule holds for (-1) are scopes of their own."""
    dense = np.unique(np.where(scope >= 0, scope, -1 - np.arange(len(scope))), return_inverse=True)[1]
    return np.asarray(rng.permutation(int(dense.max(initial=0)) + 1)[dense], dtype=np.int64)


def _accept(rows: Numbers, places: Numbers, choice: ParentChoice, taken: list[Numbers]) -> NDArray[np.bool_]:
    """Which of some choices break no rule; they are entered into ``taken``."""
    fine = np.ones(len(rows), dtype=bool)
    pairs = [_pairs(rule, rows, places) for rule in choice.distinct]
    for pair, before in zip(pairs, taken, strict=True):
        fine &= (pair < 0) | ~np.isin(pair, before)
    for pair in pairs:
        among = np.flatnonzero(fine & (pair >= 0))
        first = np.unique(pair[among], return_index=True)[1]
        fine[np.delete(among, first)] = False
    for number, pair in enumerate(pairs):
        taken[number] = np.concatenate([taken[number], pair[fine & (pair >= 0)]])
    return fine


def _pairs(rule: Distinct, rows: Numbers, places: Numbers) -> Numbers:
    """A number per (scope, identity), -1 where the rule does not hold."""
    scope, identity = rule.scope[rows], rule.identity[places]
    span = int(rule.identity.max(initial=0)) + 1
    return np.where((scope >= 0) & (identity >= 0), scope * span + identity, -1)


def _one_each(choice: ParentChoice) -> bool:
    """Whether all that rows have to keep to is that no two of them get the same parent."""
    if len(choice.distinct) != 1 or choice.distinct[0].scope.any():
        return False
    identity = choice.distinct[0].identity[choice.of_parent >= 0]
    return bool((identity >= 0).all() and len(np.unique(identity)) == len(identity))


def _assign_remaining(
    pending: Numbers, choice: ParentChoice, taken: Numbers, result: Numbers, rng: np.random.Generator
) -> None:
    """Deal the parents that no row has out to the rows that are left, group by group; see `_one_each`."""
    got = np.isin(choice.distinct[0].identity, taken)
    free = rng.permutation(np.flatnonzero((choice.of_parent >= 0) & ~got))
    rows = rng.permutation(pending[choice.of_row[pending] >= 0])
    free = free[np.argsort(choice.of_parent[free], kind="stable")]
    rows = rows[np.argsort(choice.of_row[rows], kind="stable")]
    have, want = choice.of_parent[free], choice.of_row[rows]
    places = np.searchsorted(have, want, side="left") + np.arange(len(rows)) - np.searchsorted(want, want, side="left")
    given = places < np.searchsorted(have, want, side="right")
    result[rows[given]] = free[places[given]]


def _assign_greedily(
    pending: Numbers, choice: ParentChoice, taken: list[Numbers], result: Numbers, rng: np.random.Generator
) -> None:
    """Give each row that is left any parent that is still free for it, unless there are too many to go through."""
    by_group = np.argsort(choice.of_parent, kind="stable")
    groups, wanted = choice.of_parent[by_group], choice.of_row[pending]
    starts, ends = (np.searchsorted(groups, wanted, side=side) for side in ("left", "right"))
    possible = (wanted >= 0) & (starts < ends)
    if not possible.any() or int((ends - starts)[possible].sum()) > _MOST_PAIRS:
        return
    used = [set(before.tolist()) for before in taken]
    for row, start, end in zip(*(numbers[possible].tolist() for numbers in (pending, starts, ends)), strict=True):
        candidates = rng.permutation(by_group[start:end])
        pairs = [_pairs(rule, np.full(len(candidates), row), candidates) for rule in choice.distinct]
        for position, place in enumerate(candidates.tolist()):
            numbers = [int(pair[position]) for pair in pairs]
            if not any(number in before for number, before in zip(numbers, used, strict=True)):
                result[row] = place
                for number, before in zip(numbers, used, strict=True):
                    if number >= 0:
                        before.add(number)
                break
