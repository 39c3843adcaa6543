"""Keys that are not on the ownership path, as released, and which parent each synthetic row refers to.

A key is a bi-adjacency: the row that has it is the edge between its owner (and itself) and the row it refers to, so a
junction table is a many-to-many relationship with attributes. Released are how often parents are referred to
(`links.popularity`), the distributions of the attributes of what rows refer to, marginals across the key, and the share
of rows that refer to none. Each synthetic parent has as many places as it gets references, and rows are linked to
places (`links.linking`). Keys of every kind are configurations of this: rows of a *public* parent are known by
position, and of a private parent without attributes only whether a row refers to one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.systematic import systematic_counts
from privbench_core.estimators.fitting import mutual_information
from privbench_core.guards import EXCHANGE_ROUNDS, MAX_KINDS, TINY
from privbench_core.links.linking import CrossMarginal, link_rows
from privbench_core.links.parent_choice import Distinct, Level, ParentChoice, pick_parents, repeated
from privbench_core.links.popularity import ByRank, ByRow, Margin, Popularity, raked
from privbench_core.marginals.sampler import PairTables, Rows
from privbench_core.profiles.names import OWN_FANOUT
from privbench_core.stored import Storable

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]
Rng = np.random.Generator
TARGET = "target."
ROW = f"{TARGET}#row"
COUNTED = f"{TARGET}{OWN_FANOUT}"  # numbers of children: informative of who is popular, and not asked for by rows
ANY = "target.#any"  # code 0: refers to some row, 1: to none


@dataclass(frozen=True)
class LinkModel(Storable):
    """Released: the link along one key that is not on the ownership path.

    Attributes:
        targets: Column of the target ("target.<column>") -> discretizer; of a public parent, of the position of its
            row, whose own code is `ROW`.
        marginals: The same -> probabilities; where the key may be NULL, the last code means "refers to none".
        joints: Marginals of columns of the row or its owner, and targets.
        popularity: How often parents are referred to, None where a row can refer to one alone.
        null_share: Share of rows that refer to none.
        optional: Whether the key may be NULL.
    """

    targets: Mapping[str, Discretizer]
    marginals: Mapping[str, Array]
    joints: tuple[CrossMarginal, ...] = ()
    popularity: Popularity | None = None
    null_share: float = 0.0
    optional: bool = False

    @property
    def context(self) -> frozenset[str]:
        """Columns of rows that the choice depends on: their own, and their owner's."""
        return frozenset(cross.left for cross in self.joints)

    @property
    def pair_tables(self) -> PairTables:
        """(target, column) -> joint, for columns that are drawn after the key and follow what rows refer to."""
        return {(cross.right, cross.left): cross.counts.T for cross in self.joints if not cross.groups}

    def looks_at(self, name: str) -> bool:
        """Whether references depend on a column of the rows that they refer to."""
        return f"{TARGET}{name}" in self.targets

    def at_scale(self, scale: float) -> Self:
        """Return the link where there are so many synthetic parents per parent."""
        return self if self.popularity is None else replace(self, popularity=self.popularity.at_scale(scale))

    def with_places(self, places: NDArray[np.number]) -> Self:
        """Return the link for rows that share so many places of each parent, shape (parents,)."""
        return replace(self, popularity=ByRow(places.astype(np.float64)))

    def kind_columns(self, parents: Mapping[str, Codes]) -> tuple[str, ...]:
        """Return the targets that distinguish parents, the most informative first."""
        kinds = self._kinds(parents, len(next(iter(parents.values()), ())))[1]
        return (*kinds, *(name for name in self.targets if name.startswith(COUNTED)))

    def referred(self, parents: Mapping[str, Codes], places: NDArray[np.signedinteger[Any]]) -> dict[str, Codes]:
        """Return codes of the targets of rows with these parents (row numbers, -1 for none); shape (n,) each."""
        result: dict[str, Codes] = {}
        for name, marginal in self.marginals.items():
            last = len(marginal) - 1  # none, where the key may be NULL
            if name == ANY:
                result[name] = (places < 0).astype(np.uint8)
            elif not name.startswith(COUNTED):  # which may not be drawn yet
                codes = parents[name.removeprefix(TARGET)]
                result[name] = np.append(codes, np.array([last], dtype=np.min_scalar_type(last)))[places]
        return result

    def draw(
        self,
        rows: Rows,
        parents: Mapping[str, Codes],
        count: int,
        rng: Rng,
        choice: ParentChoice | None = None,
        drawn: Numbers | None = None,
    ) -> Numbers:
        """Return the row number of each row's parent, -1 for none; shape (n,).

        Args:
            rows: Rows with their own attributes drawn; without, they are to follow what the row refers to.
            parents: Codes of the synthetic parents' attributes, by column name; {} for a public parent.
            count: Number of parent rows.
            rng: Sampling only.
            choice: Which parents each row may refer to; None for any.
            drawn: Parents of rows that were drawn before, -1 for none: these are drawn in their place, so that parents
                stay as popular; None in the first place.
        """
        if count == 0 or rows.n == 0:
            return np.full(rows.n, -1, dtype=np.int64)
        choice = choice or ParentChoice.free(rows.n, count)
        if ROW in self.targets:
            parents = {n.removeprefix(TARGET): codes for n, codes in coded_by_position(self.targets, count).items()}
        kinds, _ = self._kinds(parents, count)
        referring = rows.n - min(int(rows.n * self.null_share + rng.random()), rows.n)
        weights = self._degrees(parents, kinds, referring, rng, drawn)
        places = np.append(_rounded(weights, referring, rng), np.full(rows.n - referring, -1))
        assigned = places[link_rows(rows, self.referred(parents, places), self.joints, rng)]
        preferences: list[Level] = [(kinds, kinds[assigned])]
        if isinstance(self.popularity, ByRank) and choice.of_row.any():
            weights = self.popularity.weights_inside(choice.of_parent, choice.of_row[assigned >= 0], rng)
        else:
            assigned = _differing(assigned, kinds, choice.distinct, rng)
            preferences.append((np.arange(count), assigned))
        return pick_parents(preferences, assigned >= 0, replace(choice, weights=weights), rng)

    def _kinds(self, parents: Mapping[str, Codes], count: int) -> tuple[Numbers, tuple[str, ...]]:
        """Return the kind of each parent, shape (count,), and the targets that distinguish kinds."""
        information: dict[str, float] = {}
        for cross in self.joints:
            known = mutual_information(np.maximum(cross.counts, 0) + TINY)
            information[cross.right] = information.get(cross.right, 0.0) + known
        kinds, columns = np.zeros(count, dtype=np.int64), list[str]()
        asked = (name for name in self.targets if name != ANY and not name.startswith(COUNTED))
        for name in sorted(asked, key=lambda name: -information.get(name, 0.0)):
            codes = parents[name.removeprefix(TARGET)]
            finer = np.unique(kinds * (int(codes.max(initial=0)) + 1) + codes, return_inverse=True)[1].astype(np.int64)
            if finer.max(initial=0) < MAX_KINDS:
                kinds = finer
                columns.append(name)
        return kinds, tuple(columns)

    def _degrees(
        self, parents: Mapping[str, Codes], kinds: Numbers, references: int, rng: Rng, drawn: Numbers | None
    ) -> Array:
        """Return how often each parent is to be referred to, relative to the others, shape (parents,)."""
        if drawn is not None:
            return np.bincount(drawn[drawn >= 0], minlength=len(kinds)).astype(np.float64)
        if not isinstance(self.popularity, ByRank):
            return self.popularity.counts if self.popularity else np.ones(len(kinds))
        room, first = np.bincount(kinds).astype(np.float64), np.unique(kinds, return_index=True)[1]
        of_kinds, others = list[Margin](), list[Margin]()
        for name, marginal in self.marginals.items():
            codes = parents.get(name.removeprefix(TARGET))
            if codes is None:  # whether a row refers to any, or numbers of children that are not drawn yet
                continue
            margin = marginal[: len(marginal) - int(self.optional)]
            if not name.startswith(COUNTED) and (codes[first][kinds] == codes).all():
                of_kinds.append((codes[first].astype(np.int64), margin))
            else:
                others.append((codes.astype(np.int64), margin))
        wanted = raked(room, of_kinds)
        numbers = _rounded(wanted if wanted.any() else room, references, rng)
        return self.popularity.weights(kinds, numbers, rng, others)


def _rounded(weights: Array, total: int, rng: Rng) -> Numbers:
    """Return each index as often as is its share of ``total``, rounded, in order; shape (total,)."""
    shares = np.cumsum(weights if weights.any() else np.ones(len(weights)))
    numbers = systematic_counts(shares / shares[-1], np.zeros(len(weights), dtype=np.int64), np.array([total]), rng)
    return np.repeat(np.arange(len(weights)), numbers)


def _differing(assigned: Numbers, kinds: Numbers, rules: Sequence[Distinct], rng: Rng) -> Numbers:
    """Return parents that differ where rules say so, as far as exchanges with other rows go: degrees stay.

    A row that repeats a pair exchanges its parent with a row whose parent is of the same kind, which changes no
    cross-table marginal, or every other time with any row, if both pairs are new then.
    """
    result, rows = assigned.copy(), np.arange(len(assigned))
    of_kind = np.where(assigned >= 0, kinds[assigned], -1)
    order = np.argsort(of_kind, kind="stable")
    starts, ends = (np.searchsorted(of_kind[order], of_kind, side=side) for side in ("left", "right"))
    for attempt in range(EXCHANGE_ROUNDS if rules else 0):
        known = [rule.pairs(rows, result) for rule in rules]
        broken = rng.permutation(np.flatnonzero(np.any([repeated(pairs) for pairs in known], axis=0) & (result >= 0)))
        if not len(broken):
            break
        others = rng.integers(0, len(result), len(broken))
        if attempt % 2 == 0:
            others = order[starts[broken] + others % (ends - starts)[broken]]
        both, moved = np.concatenate([broken, others]), np.concatenate([result[others], result[broken]])
        good = ~repeated(both) & (moved >= 0)
        for rule, pairs in zip(rules, known, strict=True):
            new = rule.pairs(both, moved)
            good &= (new < 0) | ~(np.isin(new, pairs) | repeated(new))
        swapped = np.tile(good[: len(broken)] & good[len(broken) :], 2)
        result[both[swapped]] = moved[swapped]
    return result


def coded_by_position(targets: Mapping[str, Discretizer], count: int) -> dict[str, Codes]:
    """Return the codes of the rows of a public table, by target; shape (count,) each."""
    return {name: discretizer.encode_numbers(np.arange(count)) for name, discretizer in targets.items()}
