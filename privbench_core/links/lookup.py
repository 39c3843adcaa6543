"""Keys that are not on the ownership path: which row of another parent a row refers to, given its attributes.

A parent is referred to by its attributes: joints of (attribute of the parent, attribute of the row) are released where
that pays, a row draws the attributes its parent should have, and then one of the parents that have them. Which of the
rows it is, or which block of them, is an attribute of *public* parents. Of a private parent without attributes only
whether a row refers to one is released, where the key may be NULL. Among the parents that a row may refer to, some are
more popular than others (`links.popularity`); references to each row of a public parent are released.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privbench_core.arrays import Array, Numbers
from privbench_core.columns.codec import Codes
from privbench_core.columns.discretizer import Discretizer
from privbench_core.estimators.fitting import mutual_information
from privbench_core.guards import SETTLING_ROUNDS, TINY
from privbench_core.links.fanout import CommonReference
from privbench_core.links.parent_choice import Level, ParentChoice, pick_parents
from privbench_core.links.popularity import ByRank, ByRow, Margin, Popularity
from privbench_core.marginals.sampler import PairMarginal, Rows, draw_column
from privbench_core.profiles.profile import OWN_FANOUT
from privbench_core.stored import Storable

Rng = np.random.Generator
TARGET = "target."
ROW = f"{TARGET}#row"
COUNTED = f"{TARGET}{OWN_FANOUT}"  # numbers of children: informative of who is popular, and not asked for by rows
ANY = "target.#any"  # code 0: refers to some row, 1: to none


@dataclass(frozen=True)
class Lookup(Storable):
    """Released: the link along one key that is not on the ownership path.

    Attributes:
        targets: Column of the target ("target.<column>") -> discretizer; of a public parent, of the position of its
            row, whose own code is `ROW`.
        marginals: The same -> probabilities; where the key may be NULL, the last code means "refers to none".
        pair_tables: (target column, child's column) -> joint.
        popularity: How often parents are referred to, None where a row can refer to one alone.
        optional: Whether the key may be NULL.
        telling: Target -> how far rows that are referred to differ from all parents, as relative entropy in nats;
            those that do not differ are left out.
        common: How often rows refer to what leads to the same row as they do themselves, or their owner.
    """

    targets: Mapping[str, Discretizer]
    marginals: Mapping[str, Array]
    pair_tables: Mapping[tuple[str, str], Array]
    popularity: Popularity | None = None
    optional: bool = False
    telling: Mapping[str, float] = field(default_factory=dict)
    common: tuple[CommonReference, ...] = ()

    @property
    def context(self) -> frozenset[str]:
        """Columns of rows that the choice depends on: their own, and their owner's."""
        return frozenset(column for _, column in self.pair_tables)

    def looks_at(self, name: str) -> bool:
        """Whether references depend on a column of the rows that they refer to."""
        return f"{TARGET}{name}" in self.targets

    @property
    def none(self) -> float:
        """Share of rows that refer to none."""
        if not self.optional or not self.marginals:
            return 0.0
        return float(self.marginals[next(iter(self._informative or self.marginals))][-1])

    def kind_columns(self, _parents: Mapping[str, Codes]) -> tuple[str, ...]:
        """Targets that distinguish parents, the most informative first; () if all parents are alike to rows."""
        return (*self._informative, *self._counting)

    @property
    def _informative(self) -> list[str]:
        """What rows ask of their parents, the most informative first; which row it is comes last, as it says all."""
        if ANY in self.targets:
            return []
        information = {
            name: self.telling.get(name, 0.0)
            + sum(mutual_information(j) for (t, _), j in self.pair_tables.items() if t == name)
            for name in self.targets
            if not name.startswith(COUNTED)
        }
        # Three attributes choose a parent together: more are hardly ever met together.
        found = sorted((n for n in information if information[n] > 0), key=lambda n: -information[n])[:3]
        return sorted(found, key=lambda name: name == ROW)

    @property
    def _counting(self) -> list[str]:
        """Numbers of children that tell which parents are popular, the most informative first; rows ask for none."""
        found = [name for name in self.targets if name.startswith(COUNTED) and self.telling.get(name, 0.0) > 0]
        return sorted(found, key=lambda name: -self.telling[name])

    def of_all_rows(self) -> Self:
        """The link where every row refers to another, from one in which those that count may refer to none."""
        if not self.optional:
            return self
        pair_tables = {(target, column): t[:-1] for (target, column), t in self.pair_tables.items() if target != ANY}
        return replace(
            self,
            targets={name: discretizer for name, discretizer in self.targets.items() if name != ANY},
            marginals={name: _shares(p[:-1]) for name, p in self.marginals.items() if name != ANY},
            pair_tables={pair: joint / joint.sum() for pair, joint in pair_tables.items() if joint.sum() > 0},
            optional=False,
        )

    def at_scale(self, scale: float) -> Self:
        """The link where there are so many synthetic parents per parent."""
        return self if self.popularity is None else replace(self, popularity=self.popularity.at_scale(scale))

    def with_places(self, places: NDArray[np.number]) -> Self:
        """The link for rows that share so many places of each parent, shape (parents,): those of a range of rows."""
        marginals, counts = self.marginals, places.astype(np.float64)
        if ROW in self.targets:
            marginals = marginals_of(self.targets, counts, self.none)
        return replace(self, marginals=marginals, popularity=ByRow(counts))

    def draw(
        self,
        rows: Rows,
        parents: Mapping[str, Codes],
        count: int,
        rng: Rng,
        choice: ParentChoice | None = None,
        drawn: Numbers | None = None,
    ) -> Numbers:
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
        self, rows: Rows, parents: Mapping[str, Codes], choice: ParentChoice, drawn: Numbers | None, rng: Rng
    ) -> Numbers:
        """`draw`, where there are rows and parents."""
        parents = self._coded(parents, len(choice.of_parent))
        if ROW in self.targets:
            rows = replace(rows, weights=None)  # references to public rows are counted over rows
        if ROW in self.targets and choice.distinct and drawn is None:
            return self._refitted(rows, parents, choice, rng)
        return self._picked(rows, parents, choice, drawn, rng)

    def _picked(
        self, rows: Rows, parents: Mapping[str, Codes], choice: ParentChoice, drawn: Numbers | None, rng: Rng
    ) -> Numbers:
        """`draw`, with codes of the parents."""
        wanting, preferences = np.ones(rows.n, dtype=bool), list[Level]()
        if self.targets:
            wanting, preferences = self._preferences(rows, parents, self._asked(choice), rng)
        choice = replace(choice, weights=self._weights(preferences, wanting, parents, choice, drawn, rng))
        return pick_parents(preferences, wanting, choice, rng)

    def _refitted(self, rows: Rows, parents: Mapping[str, Codes], choice: ParentChoice, rng: Rng) -> Numbers:
        """`draw`, of a public parent where rows must differ: those that want a popular one often get another.

        So more rows are made to want what fewer rows got than should have, and all are drawn again.
        """
        have, wanted, link, least = parents[ROW.removeprefix(TARGET)], self.marginals[ROW], self, np.inf
        found = np.full(rows.n, -1, dtype=np.int64)
        counts = self._weights([], np.ones(rows.n, dtype=bool), parents, choice, None, rng)
        for _ in range(SETTLING_ROUNDS):
            picked = link._picked(rows, parents, choice, None, rng)
            got = np.bincount(have[picked[picked >= 0]], minlength=len(wanted)) / rows.n
            missed = float(np.abs(wanted - got)[: len(wanted) - self.optional].sum())
            found, least = (picked, missed) if missed < least else (found, least)
            counts = counts * np.divide(wanted, got, out=np.ones(len(wanted)), where=got > 0)[have]
            link = link.with_places(counts)
        return found

    def _coded(self, parents: Mapping[str, Codes], count: int) -> Mapping[str, Codes]:
        """Codes of the targets by column, where they are not given because the parent is public."""
        if ROW not in self.targets:
            return parents
        return {name.removeprefix(TARGET): codes for name, codes in coded_by_position(self.targets, count).items()}

    def referred(self, parents: Mapping[str, Codes], places: NDArray[np.signedinteger[Any]]) -> dict[str, Codes]:
        """Codes of the targets of rows with these parents (row numbers, -1 for none), by name; shape (n,) each."""
        result: dict[str, Codes] = {}
        for name, marginal in self.marginals.items():
            last = len(marginal) - 1  # none, where the key may be NULL
            if name.startswith(COUNTED):
                continue  # rows do not ask for them, and they may not be drawn yet
            if name == ANY:
                result[name] = (places < 0).astype(np.uint8)
            else:
                codes = parents[name.removeprefix(TARGET)]
                result[name] = np.append(codes, np.array([last], dtype=np.min_scalar_type(last)))[places]
        return result

    def _weights(
        self,
        preferences: list[Level],
        wanting: NDArray[np.bool_],
        parents: Mapping[str, Codes],
        choice: ParentChoice,
        drawn: Numbers | None,
        rng: Rng,
    ) -> Array:
        """How often each parent is to be referred to, relative to the others, shape (parents,)."""
        count = len(choice.of_parent)
        if drawn is not None or not isinstance(self.popularity, ByRank):
            return self.given_weights(count, drawn)
        if not preferences and choice.of_row.any():
            return self.popularity.weights_inside(choice.of_parent, choice.of_row[wanting], rng)
        alike = np.zeros(count, dtype=np.int64), np.zeros(len(wanting), dtype=np.int64)
        have, want = preferences[-1] if preferences else alike
        asked = self._asked(choice)
        further = [name for name in self._informative if name not in asked]
        return self.popularity.weights(have, want[wanting], rng, self._margins(parents, *further))

    def given_weights(self, count: int, drawn: Numbers | None) -> Array:
        """How often each parent is to be referred to where no degrees are allocated: as drawn before, or as known."""
        if drawn is not None:
            return np.bincount(drawn[drawn >= 0], minlength=count).astype(np.float64)
        return self.popularity.counts if isinstance(self.popularity, ByRow) else np.ones(count)

    def _margins(self, parents: Mapping[str, Codes], *further: str) -> list[Margin]:
        """How often parents are to be referred to, by targets that rows do not ask for, where these are known."""
        return [
            (parents[name.removeprefix(TARGET)].astype(np.int64), self.marginals[name][: self.targets[name].size])
            for name in (*further, *self._counting)
            if name.removeprefix(TARGET) in parents
        ]

    def _asked(self, choice: ParentChoice) -> list[str]:
        """What rows ask of their parents: what follows something of theirs, and all that tells where groups choose.

        What else tells which parents are popular decides how often each is referred to, not by which rows.
        """
        if choice.of_row.any() or not isinstance(self.popularity, ByRank):
            return self._informative
        followed = {target for target, _ in self.pair_tables}
        return [name for name in self._informative if name in followed]

    def _preferences(
        self, rows: Rows, parents: Mapping[str, Codes], wanted: Sequence[str], rng: Rng
    ) -> tuple[NDArray[np.bool_], list[Level]]:
        """Whether each row refers to a parent at all, and which attributes it asks for, as drawn for each row.

        Whether comes first, from all columns: of few columns those that tell which would be taken.
        """
        if self.optional:
            refers = self._refers(rows, rng)
            some = np.flatnonzero(refers)
            whole = list[Level]()
            for have, wanted_of_some in self.of_all_rows()._preferences(rows.take(some), parents, wanted, rng)[1]:
                want = np.zeros(rows.n, dtype=np.int64)  # those that refer to none do not count
                want[some] = wanted_of_some
                whole.append((have, want))
            return refers, whole
        drawn: dict[str, Codes] = {}
        context = Rows(rows.n, dict(rows.codes), dict(rows.sizes), rows.weights)
        for name in wanted:
            tables = [
                PairMarginal(column, joint)
                for (target, column), joint in self.pair_tables.items()
                if target == name and column in context.codes
            ]
            tables += [PairMarginal(other, self._of_parents(name, other, parents)) for other in drawn]
            drawn[name] = draw_column(context, self.marginals[name], tables, rng, diffused=ROW in self.targets)
            context.add(name, len(self.marginals[name]), drawn[name])
        preferences = []
        for depth in range(1, len(wanted) + 1 if rows.codes else 1):
            shape = [len(self.marginals[name]) for name in wanted[:depth]]
            have = np.ravel_multi_index([parents[name.removeprefix(TARGET)] for name in wanted[:depth]], shape)
            want = np.ravel_multi_index([drawn[name] for name in wanted[:depth]], shape)
            preferences.append((have.astype(np.int64), want.astype(np.int64)))
        return np.ones(rows.n, dtype=bool), preferences

    def _refers(self, rows: Rows, rng: Rng) -> NDArray[np.bool_]:
        """Whether each row refers to a parent at all, shape (n,)."""
        tables: dict[str, Array] = {}
        for (target, column), joint in self.pair_tables.items():
            if column in rows.codes and column not in tables:
                whole = self._completed(target, joint, rows, column)
                tables[column] = np.stack([whole[:-1].sum(axis=0), whole[-1]])
        pair_tables = [PairMarginal(column, table) for column, table in tables.items()]
        return np.asarray(draw_column(rows, np.array([1 - self.none, self.none]), pair_tables, rng) == 0)

    def _of_parents(self, name: str, other: str, parents: Mapping[str, Codes]) -> Array:
        """Joint of two targets among the synthetic parents.

        What rows want together is then there to be had, and parents of rare kinds are not asked for more than others.
        Of those that a range of rows may have, each counts as often as it is to be referred to: there are more of the
        popular ones than among all.
        """
        shape = len(self.marginals[name]), len(self.marginals[other])
        of_parents = np.ravel_multi_index([parents[target.removeprefix(TARGET)] for target in (name, other)], shape)
        often = None
        if isinstance(self.popularity, ByRow) and self.popularity.counts.any():  # else a range has places of none
            often = self.popularity.counts
        joint = np.bincount(of_parents, often, minlength=shape[0] * shape[1]).reshape(shape)
        return np.asarray(joint / joint.sum())

    def _completed(self, name: str, joint: Array, rows: Rows, column: str) -> Array:
        """A joint with what rows that refer to none have of a column, where that was not known when it was measured."""
        if not self.optional or joint[-1].any():
            return joint
        drawn = np.bincount(rows.codes[column], rows.weights, joint.shape[1]).astype(np.float64)
        present = 1 - float(self.marginals[name][-1])
        return with_code_of_none(
            joint * (present / max(float(joint.sum()), TINY)), drawn / max(float(drawn.sum()), TINY)
        )


def _shares(counts: Array) -> Array:
    """Return counts as shares, equal ones where there are none."""
    total = float(counts.sum())
    return np.asarray(counts / total if total > 0 else np.full(len(counts), 1 / len(counts)))


def with_code_of_none(joint: Array, every: Array) -> Array:
    """Return a joint in which rows that refer to none have what the others leave of a column.

    Args:
        joint: Of a target, whose last code is to refer to none, and the column; adds up to the share of rows that do.
        every: Distribution of the column over all rows.
    """
    found = joint.copy()
    found[-1] = 0.0
    of_present = found.sum(axis=0)
    left = np.maximum(every - of_present, 0.0)
    found[-1] = left * (max(1 - float(of_present.sum()), 0.0) / max(float(left.sum()), TINY))
    return found


def coded_by_position(targets: Mapping[str, Discretizer], count: int) -> dict[str, Codes]:
    """Return the codes of the rows of a public table, by target; shape (count,) each."""
    return {name: discretizer.encode_numbers(np.arange(count)) for name, discretizer in targets.items()}


def marginals_of(targets: Mapping[str, Discretizer], counts: Array, none: float) -> dict[str, Array]:
    """Return the probabilities of the codes of a public parent's targets, if its rows are referred to so often.

    Args:
        targets: Codings of the positions of its rows.
        counts: How often each row is referred to, relative to the others, shape (parents,).
        none: Share of rows that refer to none, which is the last code then; 0 where they must refer to one.
    """
    often = counts if counts.any() else np.ones(len(counts))
    found = {}
    for name, codes in coded_by_position(targets, len(counts)).items():
        marginal = np.bincount(codes, often, targets[name].size) * ((1 - none) / often.sum())
        marginal[-1] += none
        found[name] = marginal
    return found
