"""Choose a synthetic parent for each row, under constraints.

A row may be limited to a group of parents (an overlapping key fixes some of the parent's columns already), and rows may
need different parents (a unique reference, the pairs of a junction table), and no parent gets more rows than its key
declares. Rows ask for the attributes that their
parent should have, the most informative first, and get a parent that has as many of them as possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
from numpy.typing import NDArray

from privbench_core.arrays import Numbers, dense, finer
from privbench_core.guards import MAX_CELLS, NEGLIGIBLE, REDRAWING_ROUNDS, TINY

Level = tuple[Numbers, Numbers]


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
        common: A code of each parent, and the one that each row wants before all else, which no parent has for rows
            that want none; None without such rows.
    """

    of_row: Numbers
    of_parent: Numbers
    distinct: tuple[Distinct, ...] = ()
    weights: NDArray[np.float64] | None = None
    room: Numbers | None = None
    common: Level | None = None

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
        numbers = finer(np.concatenate([of_row, of_parent]), group)
        numbers[group < 0] = -1
        return replace(self, of_row=numbers[: len(of_row)], of_parent=numbers[len(of_row) :])

    def take(self, index: Numbers) -> ParentChoice:
        """Return the choice of some rows, with rules among these only."""
        rules = tuple(Distinct(rule.scope[index], rule.identity) for rule in self.distinct)
        common = None if self.common is None else (self.common[0], self.common[1][index])
        return replace(self, of_row=self.of_row[index], distinct=rules, common=common)

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

    def with_room_for_rules(self) -> ParentChoice:
        """Return the same choice where a rule that no two rows have the same parent is room for one row each.

        >>> same = Distinct(np.zeros(2, dtype=np.int64), np.arange(3))
        >>> ParentChoice.free(2, 3).with_room_for_rules().room is None
        True
        >>> replace(ParentChoice.free(2, 3), distinct=(same,)).with_room_for_rules().room.tolist()
        [1, 1, 1]
        """
        room, rules = self.room, list[Distinct]()
        for rule in self.distinct:
            identity = rule.identity[self.of_parent >= 0]
            if rule.scope.any() or (identity < 0).any() or len(np.unique(identity)) < len(identity):
                rules.append(rule)
            else:
                room = np.ones(len(self.of_parent), dtype=np.int64) if room is None else np.minimum(room, 1)
        return replace(self, room=room, distinct=tuple(rules))


def pick_parents(
    preferences: Sequence[Level], wanting: NDArray[np.bool_], choice: ParentChoice, rng: np.random.Generator
) -> Numbers:
    """Return a parent for each row that wants one, -1 if none is left that it may have; shape (rows,).

    At each level parents get their share of the rows that ask for them. Rows that a rule or a full parent has left over
    are given what is still free at that level, then at the next.

    Args:
        preferences: (code of each parent, code that each row wants), coarsest first; a row gets a parent of the
            finest preference that can be met, and any parent of its group if none can.
        wanting: Which rows refer to a parent.
        choice: What they may choose from.
        rng: Sampling only.
    """
    any_parent = (np.zeros(len(choice.of_parent), dtype=np.int64), np.zeros(len(wanting), dtype=np.int64))
    draft = _Draft(choice.with_room_for_rules(), wanting)
    if choice.common is not None:
        preferences = [*preferences, choice.common, *(_both(choice.common, level) for level in preferences)]
    for level in (*reversed(preferences), any_parent):
        draft.give(draft.pending, draft.candidates(level, rng).systematic(draft.pending, draft.scope, rng), rng)
        if draft.room is not None and len(draft.pending):
            by_room = draft.candidates(level, rng, draft.room.astype(np.float64))
            draft.give(draft.pending, by_room.systematic(draft.pending, draft.scope, rng), rng)
        if draft.choice.distinct and len(draft.pending):
            draft.give_free(*draft.candidates(level, rng).pairs(draft.pending, rng), rng)
    return draft.result


def _both(first: Level, second: Level) -> Level:
    """Return the combinations of two codes of parents, and of those that rows want."""
    span = int(max(codes.max(initial=0) for codes in second)) + 1
    return first[0] * span + second[0], first[1] * span + second[1]


class _Draft:
    """The references so far.

    Attributes:
        choice: What rows may choose from.
        result: Parent of each row, -1 for none yet, shape (rows,).
        pending: Rows that still want one.
        room: How many more rows may refer to each parent, shape (parents,); None without a bound.
    """

    def __init__(self, choice: ParentChoice, wanting: NDArray[np.bool_]) -> None:
        self.choice, self.room = choice, choice.room
        self.result = np.full(len(wanting), -1, dtype=np.int64)
        self.pending = np.flatnonzero(wanting)
        self._taken = [np.zeros(0, dtype=np.int64) for _ in choice.distinct]

    @property
    def scope(self) -> Numbers | None:
        """Scopes of the pending rows by the first rule."""
        return self.choice.distinct[0].scope[self.pending] if self.choice.distinct else None

    def candidates(
        self, level: Level, rng: np.random.Generator, weights: NDArray[np.float64] | None = None
    ) -> _CandidateIndex:
        """Return the parents that are not full, by ``weights`` or those of the choice."""
        open_ones = self.choice.of_parent if self.room is None else np.where(self.room > 0, self.choice.of_parent, -1)
        weights = self.choice.weights if weights is None else weights
        return _CandidateIndex(level, replace(self.choice, of_parent=open_ones, weights=weights), rng)

    def give(self, rows: Numbers, chosen: Numbers, rng: np.random.Generator) -> None:
        """Enter parents of some rows (-1 for none), as far as no rule is broken and there is room."""
        rows, chosen = rows[chosen >= 0], chosen[chosen >= 0]
        if self.room is not None:  # of the rows with the same parent, random ones as far as there is room
            fits, order = np.empty(len(chosen), dtype=bool), np.lexsort((rng.random(len(chosen)), chosen))
            fits[order] = _ranks(chosen[order]) < self.room[chosen[order]]
            rows, chosen = rows[fits], chosen[fits]
        pairs, good = [rule.pairs(rows, chosen) for rule in self.choice.distinct], np.ones(len(rows), dtype=bool)
        for pair, before in zip(pairs, self._taken, strict=True):
            good &= (pair < 0) | ~np.isin(pair, before)
        for pair in pairs:
            good[good] &= ~repeated(pair[good])
        for number, pair in enumerate(pairs):
            self._taken[number] = np.concatenate([self._taken[number], pair[good & (pair >= 0)]])
        self.result[rows[good]] = chosen[good]
        self.pending = self.pending[self.result[self.pending] < 0]
        if self.room is not None:
            self.room = self.room - np.bincount(chosen[good], minlength=len(self.room))

    def give_free(self, rows: Numbers, parents: Numbers, rng: np.random.Generator) -> None:
        """Give rows some of the parents offered to them until nothing is free: by weights, in the end by chance.

        Args:
            rows: Of each offer, in ascending order.
            parents: Of each offer.
            rng: Sampling only.
        """
        for number in count():
            free = self.result[rows] < 0
            if self.room is not None:
                free &= self.room[parents] > 0
            for rule, taken in zip(self.choice.distinct, self._taken, strict=True):
                free &= ~np.isin(rule.pairs(rows, parents), taken)
            rows, parents = rows[free], parents[free]
            if not len(rows):
                return
            race = rng.exponential(size=len(rows))
            if self.choice.weights is not None and number < REDRAWING_ROUNDS:
                race = race / np.maximum(self.choice.weights[parents], TINY)
            order = np.lexsort((race, rows))
            first = order[_ranks(rows) == 0]
            self.give(rows[first], parents[first], rng)


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
        least = NEGLIGIBLE * weights.mean() if weights.any() else 1.0  # chosen where there is no other
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
            scopes = dense(np.where(scope >= 0, scope, -1 - np.arange(len(scope))))
            shuffled = rng.permutation(int(scopes.max(initial=0)) + 1)[scopes]  # no rule (-1) is a scope of its own
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

    def pairs(self, rows: Numbers, rng: np.random.Generator) -> tuple[Numbers, Numbers]:
        """Return what each of ``rows`` may be offered, as rows and parents; of too many parents a random run each."""
        starts, sizes = self._starts[rows], self._sizes[rows]
        offers = np.minimum(sizes, max(MAX_CELLS // max(len(rows), 1), 1))
        of_row = np.repeat(np.arange(len(rows)), offers)
        first = (rng.random(len(rows)) * sizes).astype(np.int64)[of_row]
        number = np.arange(len(of_row)) - np.repeat(np.cumsum(offers) - offers, offers)
        return rows[of_row], self._parents[starts[of_row] + (first + number) % sizes[of_row]]


def _ranks(*sorted_by: Numbers) -> Numbers:
    """Return the number of each element within its run of equal ones, from 0, shape (n,)."""
    n = len(sorted_by[0])
    new = np.zeros(n, dtype=bool)
    for values in sorted_by:
        new[1:] |= values[1:] != values[:-1]
    new[:1] = True
    return np.arange(n) - np.maximum.accumulate(np.where(new, np.arange(n), 0))


def repeated(numbers: Numbers) -> NDArray[np.bool_]:
    """Return whether an earlier row has the same number; rows of number -1 are all different.

    >>> repeated(np.array([4, 2, 4, -1, -1])).tolist()
    [False, False, True, False, False]
    """
    first = np.unique(numbers, return_index=True)[1]
    result = numbers >= 0
    result[first] = False
    return result
