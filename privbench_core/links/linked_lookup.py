"""Keys off the ownership path as a bi-adjacency: links are learned from marginals, with the degrees of both sides.

The row that has the key is the edge between its owner (and itself) and the row it refers to: a junction table is a
many-to-many relationship with attributes. How often the parents are referred to is as released (`links.popularity`):
each synthetic parent has as many places as it gets references, and rows are linked to places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from privbench_core.arrays import Array, Numbers, finer
from privbench_core.columns.codec import Codes
from privbench_core.columns.systematic import systematic_counts
from privbench_core.estimators.fitting import mutual_information
from privbench_core.guards import SPREADING_ROUNDS, TINY
from privbench_core.links.linking import CrossMarginal, link_rows
from privbench_core.links.lookup import COUNTED, TARGET, Lookup
from privbench_core.links.parent_choice import Distinct, Level, ParentChoice, pick_parents, repeated
from privbench_core.links.popularity import ByRank, raked
from privbench_core.marginals.sampler import Rows

Rng = np.random.Generator


@dataclass(frozen=True)
class LinkedLookup(Lookup):
    """Released: the link along a key to a parent that has attributes; those of a public one are coded by position.

    Attributes:
        cross_marginals: Between columns of the row and its owner, and of what the row refers to.
    """

    cross_marginals: tuple[CrossMarginal, ...] = ()

    @property
    def context(self) -> frozenset[str]:
        """Columns on the left of the cross-table marginals."""
        return frozenset(cross.left for cross in self.cross_marginals)

    def _drawn(
        self, rows: Rows, parents: Mapping[str, Codes], choice: ParentChoice, drawn: Numbers | None, rng: Rng
    ) -> Numbers:
        """See `Lookup._drawn`."""
        count = len(choice.of_parent)
        parents = self._coded(parents, count)
        kinds, _ = self._kinds(parents, count)
        weights, places = self._places(parents, kinds, rows.n, rng, drawn)
        assigned = places[link_rows(rows, self.referred(parents, places), self.cross_marginals, rng)]
        preferences: list[Level] = [(kinds, kinds[assigned])]
        if isinstance(self.popularity, ByRank) and choice.of_row.any():
            weights = self.popularity.weights_inside(choice.of_parent, choice.of_row[assigned >= 0], rng)
        else:
            assigned = _differing(assigned, kinds, choice.distinct, rng)
            preferences.append((np.arange(count), assigned))
        return pick_parents(preferences, assigned >= 0, replace(choice, weights=weights), rng)

    def places(self, parents: Mapping[str, Codes], count: int, n: int, rng: Rng) -> dict[str, Codes]:
        """Return codes of what ``n`` rows refer to, whichever row to which, by target; shape (n,) each."""
        parents = self._coded(parents, count)
        return self.referred(parents, self._places(parents, self._kinds(parents, count)[0], n, rng, None)[1])

    def _places(
        self, parents: Mapping[str, Codes], kinds: Numbers, n: int, rng: Rng, drawn: Numbers | None
    ) -> tuple[Array, Numbers]:
        """Return how often each parent is to be referred to, and as many places: row numbers, -1 for none."""
        count, none = len(kinds), round(n * self.none)
        weights = self._degrees(parents, kinds, n - none, rng, drawn)
        shares = np.cumsum(weights) / float(weights.sum()) if weights.any() else np.linspace(0, 1, count + 1)[1:]
        numbers = systematic_counts(shares, np.zeros(count, dtype=np.int64), np.array([n - none]), rng)
        return weights, np.append(np.repeat(np.arange(count), numbers), np.full(none, -1))

    def linked(self, referred: Mapping[str, Codes], n: int) -> NDArray[np.bool_]:
        """Return whether each of ``n`` rows refers to another, from the codes of `places`; shape (n,)."""
        name, codes = next(iter(referred.items()), ("", np.zeros(n, dtype=np.uint8)))
        return np.asarray(codes < self.targets[name].size if self.optional and name else np.ones(n, dtype=bool))

    @property
    def none(self) -> float:
        """Return the share of rows that refer to none."""
        return float(np.mean([marginal[-1] for marginal in self.marginals.values()])) if self.optional else 0.0

    def kind_columns(self, parents: Mapping[str, Codes]) -> tuple[str, ...]:
        """Return the targets that kinds of parents are distinguished by: those that marginals tell most of."""
        return (*self._kinds(parents, len(next(iter(parents.values()), ())))[1], *self._counting)

    def _kinds(self, parents: Mapping[str, Codes], count: int) -> tuple[Numbers, tuple[str, ...]]:
        """Return the kind of each parent, shape (count,), and the targets that its codes of make it."""
        information: dict[str, float] = {}
        for cross in self.cross_marginals:
            known = mutual_information(np.maximum(cross.counts, 0) + TINY)
            information[cross.right] = information.get(cross.right, 0.0) + known
        kinds, columns = np.zeros(count, dtype=np.int64), list[str]()
        asked = (name for name in self.targets if not name.startswith(COUNTED))
        for name in sorted(asked, key=lambda name: -information.get(name, 0.0)):
            codes = parents[name.removeprefix(TARGET)]
            more = finer(kinds, codes)
            if more.max() < 1000:  # noqa: PLR2004 - kinds of parents that popularity is allocated by
                kinds = more
                columns.append(name)
        return kinds, tuple(columns)

    def _degrees(
        self, parents: Mapping[str, Codes], kinds: Numbers, references: int, rng: Rng, drawn: Numbers | None
    ) -> Array:
        """Return how often each parent is to be referred to, relative to the others, shape (parents,)."""
        if drawn is not None or not isinstance(self.popularity, ByRank):
            return self.given_weights(len(kinds), drawn)
        room = np.bincount(kinds).astype(np.float64)
        first = np.unique(kinds, return_index=True)[1]
        margins = []
        for name, marginal in self.marginals.items():
            if name.startswith(COUNTED):
                continue
            codes = parents[name.removeprefix(TARGET)]
            if (codes[first][kinds] == codes).all():  # else kinds do not tell the column
                margins.append((codes[first].astype(np.int64), marginal[: len(marginal) - int(self.optional)]))
        wanted = raked(room, margins)
        shares = np.cumsum(wanted) / wanted.sum() if wanted.any() else np.cumsum(room) / room.sum()
        numbers = systematic_counts(shares, np.zeros(len(room), dtype=np.int64), np.array([references]), rng)
        return self.popularity.weights(kinds, np.repeat(np.arange(len(room)), numbers), rng, self._margins(parents))


def _differing(assigned: Numbers, kinds: Numbers, rules: Sequence[Distinct], rng: Rng) -> Numbers:
    """Return parents that differ where rules say so, as far as exchanges with other rows go: degrees stay.

    A row that repeats a pair exchanges its parent with a row whose parent is of the same kind, which changes no
    cross-table marginal, or every other time with any row, if both pairs are new then.
    """
    result, rows = assigned.copy(), np.arange(len(assigned))
    of_kind = np.where(assigned >= 0, kinds[assigned], -1)
    order = np.argsort(of_kind, kind="stable")
    starts, ends = (np.searchsorted(of_kind[order], of_kind, side=side) for side in ("left", "right"))
    for attempt in range(SPREADING_ROUNDS if rules else 0):
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
