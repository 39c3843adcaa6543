"""Keys that are not on the ownership path: which row of another parent a row refers to, given its attributes.

A *public* parent is referred to by position: references per row are released, and the joint of (position, attribute of
the row) where it pays. A *private* parent is referred to by its attributes: joints of (attribute of the parent,
attribute of the row) are released, a row draws the attributes its parent should have, and then one of the synthetic
parents that have them. Of a private parent without attributes only whether a row refers to one is released, where the
key may be NULL. Among the parents that a row may refer to, some are more popular than others (`models.popularity`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.columns.discretizer import Discretizer
from privbench_core.estimate.fitting import EMPTY, mutual_information
from privbench_core.models.conditional import PairMarginal, draw_column
from privbench_core.models.parent_choice import Level, ParentChoice, pick_parents
from privbench_core.models.popularity import ByRank, ByRow, Popularity, popularity_from_dict
from privbench_core.models.rows import Rows

Array = NDArray[np.float64]
TARGET = "target."
_POSITION = "target.#row"
_ANY = "target.#any"  # code 0: refers to some row, 1: to none
_MAX_TARGETS = 3  # attributes that choose a parent together; chosen by hand
_REFITS = 4  # draws of references that must differ
_MOST_REFIT = 2.0  # by which one of them may raise what is wanted
_ROUNDS = 15  # of fitting kinds of parents to their one-way marginals, as in `conditional.draw_column`


@dataclass(frozen=True)
class Lookup:
    """Released: the link along one key that is not on the ownership path.

    Attributes:
        targets: Column of the target ("target.<column>" or its position) -> discretizer.
        marginals: The same -> probabilities; one more code than the discretizer has, the last, means "refers to none".
        pair_tables: (target column, child's column) -> joint.
        popularity: How often parents are referred to, None where a row can refer to one alone.
    """

    targets: Mapping[str, Discretizer]
    marginals: Mapping[str, Array]
    pair_tables: Mapping[tuple[str, str], Array]
    popularity: Popularity | None = None

    @property
    def context(self) -> frozenset[str]:
        """Columns of rows that the choice depends on besides their own: none."""
        return frozenset()

    @property
    def none(self) -> float:
        """Share of rows that refer to none."""
        if not self.targets:
            return 0.0
        first = next(iter(self._informative or self.targets))
        size = 1 if first == _ANY else self.targets[first].size
        none_from = _none_from(self.targets[first]) if first == _POSITION else size
        return float(self.marginals[first][none_from:].sum())

    def kind_columns(self, _parents: Mapping[str, Codes]) -> tuple[str, ...]:
        """Targets that distinguish parents, the most informative first; () if all parents are alike to rows."""
        return tuple(self._informative)

    @property
    def _informative(self) -> list[str]:
        """What rows ask of their parents, the most informative first."""
        if _ANY in self.targets:
            return []
        information = {
            name: sum(mutual_information(j) for (t, _), j in self.pair_tables.items() if t == name)
            for name in self.targets
        }
        return sorted((n for n in self.targets if information[n] > 0), key=lambda n: -information[n])[:_MAX_TARGETS]

    def to_dict(self) -> dict[str, Any]:
        """A description that `Artifact` can store."""
        return {
            "targets": [[name, discretizer.to_dict()] for name, discretizer in self.targets.items()],
            "marginals": [[name, p] for name, p in self.marginals.items()],
            "pair_tables": [[target, column, joint] for (target, column), joint in self.pair_tables.items()],
            "popularity": None if self.popularity is None else self.popularity.to_dict(),
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Lookup:
        """The inverse of `to_dict`."""
        targets = {name: Discretizer.from_dict(discretizer) for name, discretizer in stored["targets"]}
        pair_tables = {(target, column): joint for target, column, joint in stored["pair_tables"]}
        popularity = stored["popularity"]
        return cls(
            targets,
            dict(stored["marginals"]),
            pair_tables,
            None if popularity is None else popularity_from_dict(popularity),
        )

    def at_scale(self, scale: float) -> Self:
        """The link where there are so many synthetic parents per parent."""
        return self if self.popularity is None else replace(self, popularity=self.popularity.at_scale(scale))

    def with_places(self, places: NDArray[np.int64]) -> Self:
        """The link for rows that share so many places of each parent, shape (parents,): those of a range of rows."""
        marginals, counts = dict(self.marginals), places.astype(np.float64)
        if _POSITION in self.targets:
            discretizer, marginal = self.targets[_POSITION], self.marginals[_POSITION]
            have = discretizer.encode_numbers(np.arange(len(counts))).astype(np.int64)
            here = np.bincount(have, counts, len(marginal))
            if here.any():
                here *= (1 - self.none) / here.sum()
                marginals[_POSITION] = np.append(here[: _none_from(discretizer)], marginal[_none_from(discretizer) :])
        return replace(self, marginals=marginals, popularity=ByRow(counts))

    def draw(
        self,
        rows: Rows,
        parents: Mapping[str, Codes],
        count: int,
        rng: np.random.Generator,
        choice: ParentChoice | None = None,
        drawn: NDArray[np.int64] | None = None,
    ) -> NDArray[np.int64]:
        """The row number of each row's parent, -1 for none; shape (n,).

        Args:
            rows: Rows with their own attributes drawn; without, they are to follow what the row refers to, and any
                parent is as good that the row may have.
            parents: Codes of the synthetic parents' attributes, by column name; {} for a public parent.
            count: Number of parent rows.
            rng: Sampling only.
            choice: Which parents each row may refer to; None for any.
            drawn: Parents of rows that were drawn before, -1 for none: these are drawn in their place, so that parents
                stay as popular; None in the first place.
        """
        if count == 0 or rows.n == 0:
            return np.full(rows.n, -1, dtype=np.int64)
        return self._drawn(rows, parents, choice or ParentChoice.free(rows.n, count), drawn, rng)

    def _drawn(
        self,
        rows: Rows,
        parents: Mapping[str, Codes],
        choice: ParentChoice,
        drawn: NDArray[np.int64] | None,
        rng: np.random.Generator,
    ) -> NDArray[np.int64]:
        """`draw`, where there are rows and parents."""
        if _POSITION in self.targets:
            return self._draw_position(rows, len(choice.of_parent), rng, choice, drawn)
        wanting, preferences = np.ones(rows.n, dtype=bool), list[Level]()
        if _ANY in self.targets:
            wanting = self._draw_target(_ANY, rows, rng) == 0
        elif self.targets:
            wanting, preferences = self._preferences(rows, parents, rng)
        choice = replace(choice, weights=self._weights(preferences, wanting, choice, drawn, rng))
        return pick_parents(preferences, wanting, choice, rng)

    def _draw_position(
        self,
        rows: Rows,
        count: int,
        rng: np.random.Generator,
        choice: ParentChoice,
        drawn: NDArray[np.int64] | None,
    ) -> NDArray[np.int64]:
        """`draw`, of a public parent.

        Where rows must differ, those that want a popular parent often get another one. So more rows are made to want
        what fewer rows got than should have, and all are drawn again.
        """
        discretizer, marginal = self.targets[_POSITION], self.marginals[_POSITION]
        have = discretizer.encode_numbers(np.arange(count)).astype(np.int64)
        weights = self._weights([], np.ones(rows.n, dtype=bool), choice, drawn, rng)
        found, wanted, least = np.full(rows.n, -1, dtype=np.int64), marginal, np.inf
        for _ in range(_REFITS if choice.distinct and drawn is None else 1):
            codes = self._draw_target(_POSITION, rows, rng, wanted)
            levels = [(have, codes.astype(np.int64))]
            picked = pick_parents(levels, codes < _none_from(discretizer), replace(choice, weights=weights), rng)
            got = np.bincount(have[picked[picked >= 0]], minlength=len(marginal)) / max(1, rows.n)
            missed = float(np.abs(marginal - got)[: _none_from(discretizer)].sum())
            if missed < least:
                found, least = picked, missed
            more = np.divide(marginal, got, out=np.ones(len(marginal)), where=got > 0)
            wanted = wanted * np.clip(more, 1 / _MOST_REFIT, _MOST_REFIT)
            wanted = wanted / wanted.sum()
        return found

    def referred(self, parents: Mapping[str, Codes], places: NDArray[np.signedinteger[Any]]) -> dict[str, Codes]:
        """Codes of the targets of rows with these parents (row numbers, -1 for none), by name; shape (n,) each."""
        result: dict[str, Codes] = {}
        for name, marginal in self.marginals.items():
            last = len(marginal) - 1  # none, where the key may be NULL
            if name == _ANY:
                result[name] = (places < 0).astype(np.uint8)
            else:
                codes = parents[name.removeprefix(TARGET)]
                result[name] = np.append(codes, np.array([last], dtype=np.min_scalar_type(last)))[places]
        return result

    def _weights(
        self,
        preferences: list[Level],
        wanting: NDArray[np.bool_],
        choice: ParentChoice,
        drawn: NDArray[np.int64] | None,
        rng: np.random.Generator,
    ) -> Array:
        """How often each parent is to be referred to, relative to the others, shape (parents,)."""
        count = len(choice.of_parent)
        if drawn is not None:
            return np.bincount(drawn[drawn >= 0], minlength=count).astype(np.float64)
        if self.popularity is None:
            return np.ones(count)
        if isinstance(self.popularity, ByRank) and not preferences and choice.of_row.any():
            return self.popularity.weights_inside(choice.of_parent, choice.of_row[wanting], rng)
        have, want = (
            preferences[-1]
            if preferences
            else (np.zeros(count, dtype=np.int64), np.zeros(len(wanting), dtype=np.int64))
        )
        return self.popularity.weights(have, want[wanting], rng)

    def _preferences(
        self, rows: Rows, parents: Mapping[str, Codes], rng: np.random.Generator
    ) -> tuple[NDArray[np.bool_], list[Level]]:
        """Whether each row refers to a parent at all, and which of its attributes tell most, as drawn for each row."""
        wanted = self._informative
        first = wanted[0] if wanted else next(iter(self.targets))
        drawn: dict[str, Codes] = {}
        context = Rows(rows.n, dict(rows.codes), dict(rows.sizes), rows.weights)
        for name in wanted or [first]:
            together = [PairMarginal(other, self._of_parents(name, other, parents)) for other in drawn]
            drawn[name] = self._draw_target(name, context, rng, together=together)
            context.add(name, len(self.marginals[name]), drawn[name])
        preferences = []
        for depth in range(1, len(wanted) + 1 if rows.codes else 1):
            shape = [self.targets[name].size + 1 for name in wanted[:depth]]
            have = np.ravel_multi_index([parents[name.removeprefix(TARGET)] for name in wanted[:depth]], shape)
            want = np.ravel_multi_index([drawn[name] for name in wanted[:depth]], shape)
            preferences.append((have.astype(np.int64), want.astype(np.int64)))
        return drawn[first] < self.targets[first].size, preferences

    def _of_parents(self, name: str, other: str, parents: Mapping[str, Codes]) -> Array:
        """Joint of two targets among the synthetic parents, with as many again for "refers to none".

        What rows want together is then there to be had, and parents of rare kinds are not asked for more than others.
        Of those that a range of rows may have, each counts as often as it is to be referred to: there are more of the
        popular ones than among all.
        """
        shape = len(self.marginals[name]), len(self.marginals[other])
        of_parents = np.ravel_multi_index([parents[target.removeprefix(TARGET)] for target in (name, other)], shape)
        often = self.popularity.counts if isinstance(self.popularity, ByRow) else None
        joint = np.bincount(of_parents, often, minlength=shape[0] * shape[1]).reshape(shape)
        if shape[0] > self.targets[name].size:
            joint[-1, -1] = joint.sum()
        return np.asarray(joint / joint.sum())

    def _draw_target(
        self,
        name: str,
        rows: Rows,
        rng: np.random.Generator,
        marginal: Array | None = None,
        together: Sequence[PairMarginal] = (),
    ) -> Codes:
        pair_tables = [
            PairMarginal(column, joint)
            for (target, column), joint in self.pair_tables.items()
            if target == name and column in rows.codes
        ]
        pair_tables += together
        return draw_column(rows, self.marginals[name] if marginal is None else marginal, pair_tables, rng)


def raked(room: Array, margins: Sequence[tuple[NDArray[np.int64], Array]]) -> Array:
    """Return how often kinds of parents are to be referred to, from how many parents there are of each.

    Args:
        room: Parents of each kind, shape (kinds,).
        margins: Code of each kind in a column, shape (kinds,), and how often codes are to be referred to, of any total.
    """
    wanted = room.copy()
    for _ in range(_ROUNDS):
        for codes, marginal in margins:
            current = np.bincount(codes, wanted, len(marginal))
            wanted *= np.divide(marginal, current, out=np.zeros_like(marginal), where=current > EMPTY)[codes]
    return wanted


def _none_from(discretizer: Discretizer) -> int:
    """First code of a position that stands for "refers to none": below the first row."""
    return discretizer.codec.ordered
