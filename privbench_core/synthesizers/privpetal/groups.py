"""Measuring groups: normalised permutation marginals of an owned table, class by class of group sizes.

Per class three looks, each worth a share of the price: one-way marginals; R-scores of all pairs of columns (of one
child, of a child and its owner, of two children) against the product of these; the pairs that promise to lower the
error more than their noise raises it. As parts of a split by group size the classes cost what the dearest of them
costs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations, combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

from privbench_core.domain.coder import Coder
from privbench_core.linking.fanout import SIBLINGS, Fanout, parent_column
from privbench_core.models.members import GroupClass, Members
from privbench_core.models.pairwise import PairwiseFit, pair_scores
from privbench_core.models.privspn import measure_one_way
from privbench_core.privacy.budget import Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.door import Door
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.rules import ByValue
from privbench_core.privacy.views import Feature, Fellow, OfParent, Own, Siblings, ViewSpec
from privbench_core.schema.model import ForeignKey
from privbench_core.synthesizers.privpetal.sizes import GroupSizes
from privbench_core.synthesizers.stages.profile import Profile

Array = NDArray[np.float64]
Pair = tuple[str, str]
_OTHER = "other."  # column of the second child of a pair


@dataclass(frozen=True)
class GroupFit:
    """How the price of an owned table's groups is spent; see `privpetal.options.Options`."""

    scores: float
    margins: float
    usefulness: float
    pairs: PairwiseFit = field(default_factory=lambda: PairwiseFit(independence=0.002, max_pairs=1000))

    def least(self, curator: Curator, price: Price, pairs: int, cells: float) -> float:
        """Groups that make a marginal of so many cells λ-useful, if so many of them are measured for ``price``."""
        sigma = curator.sigma([Marginal(())], price.share(1 / pairs))
        return self.usefulness * math.sqrt(2 / math.pi) * sigma * cells

    def fit(
        self, door: Door, key: ForeignKey, parent: Profile, child: Profile, fanout: Fanout, price: Price
    ) -> Members:
        """Measure the groups along an ownership key, for at most ``price``.

        Args:
            door: Open for the step.
            key: The ownership key.
            parent: Released profile of the owners.
            child: The same of the children; they have attributes.
            fanout: Released sizes of the groups.
            price: Of everything here.
        """
        own = list(child.coders)
        context = {SIBLINGS: fanout.sizes} | {parent_column(name): coder for name, coder in parent.coders.items()}
        curator = door.view(_view(key, parent.coders, child.coders, fanout.sizes), "groups")
        pairs = _Pairs.of(own, list(context), curator.sizes)
        sizes = GroupSizes.of(fanout, parent.total)
        rest = price.share(1 - self.scores - self.margins)
        class_of = sizes.classes(self.least(curator, rest, max(len(pairs.all), 1), pairs.cells(curator.sizes)))
        parts = curator.split(ByValue(SIBLINGS, class_of))
        classes = []
        for number, part in enumerate(parts):
            inside = np.asarray(class_of) == number
            several = sizes.several[inside].sum() / max(sizes.groups[inside].sum(), 1.0)
            classes.append(self._class(part, [*context, *own], own, pairs, float(several), price))
        return Members(SIBLINGS, class_of, tuple(classes))

    def _class(
        self, part: Curator, columns: list[str], own: list[str], pairs: _Pairs, several: float, price: Price
    ) -> GroupClass:
        """One class of sizes; ``several`` is the share of its groups that have pairs."""
        one_way = measure_one_way(part, columns, price.share(self.margins))
        clean = one_way.clean()
        marginals = {name: clean[name] / one_way.total for name in own}
        of_two = {name: counts * several for name, counts in clean.items()}
        of_two |= {f"{_OTHER}{name}": of_two[name] for name in own}
        candidates = [p for p in pairs.all if len(clean[p[0]]) > 1 and part.sizes[p[1]] > 1]
        if several <= 0:
            candidates = [p for p in candidates if p not in pairs.between]
        for_scores, rest = price.share(self.scores), price.share(1 - self.scores - self.margins)
        if not candidates or self.pairs.hopeless(part, candidates, one_way.total, for_scores):
            return GroupClass(marginals)
        scores = pair_scores(part, {**of_two, **clean}, candidates, for_scores)
        cells = np.array([part.sizes[a] * part.sizes[b] for a, b in candidates], dtype=float)
        _, chosen = self.pairs.choose(part, scores, cells, rest)
        kinds = [[candidates[i] for i in chosen if candidates[i] in kind] for kind in pairs.kinds]
        weights = [sum(float(part.sizes[a] * part.sizes[b]) ** (2 / 3) for a, b in kind) for kind in kinds]
        joints: list[dict[Pair, Array]] = []
        for kind, weight, counts in zip(kinds, weights, (clean, clean, of_two), strict=True):
            share = rest.share(weight / sum(weights)) if kind else rest
            joints.append(self.pairs.measure(part, kind, counts, share) if kind else {})
        within, above, between = joints
        return GroupClass(marginals, within, above, {(a, b.removeprefix(_OTHER)): j for (a, b), j in between.items()})


@dataclass(frozen=True)
class _Pairs:
    """Candidate pairs of columns: of one child, of its owner and it, of two children."""

    within: frozenset[Pair]
    above: frozenset[Pair]
    between: frozenset[Pair]
    all: tuple[Pair, ...]

    @classmethod
    def of(cls, own: list[str], context: list[str], sizes: Mapping[str, int]) -> _Pairs:
        within = list(combinations(own, 2))
        above = [(name, column) for name in context for column in own]
        between = [(a, f"{_OTHER}{b}") for a, b in combinations_with_replacement(own, 2)]
        both = [pair for pair in (*within, *above, *between) if min(sizes[name] for name in pair) > 1]
        return cls(frozenset(within), frozenset(above), frozenset(between), tuple(both))

    @property
    def kinds(self) -> tuple[frozenset[Pair], ...]:
        """Within, above, between."""
        return self.within, self.above, self.between

    def cells(self, sizes: Mapping[str, int]) -> float:
        """Average number of cells of a pair's marginal."""
        return float(np.mean([sizes[a] * sizes[b] for a, b in self.all])) if self.all else 1.0


def _view(key: ForeignKey, parent: Mapping[str, Coder], child: Mapping[str, Coder], sizes: Coder) -> ViewSpec:
    """Columns of a child, of its owner, and of another child."""
    features: dict[str, tuple[Feature, Coder]] = {SIBLINGS: (Siblings(key), sizes)}
    features |= {parent_column(name): (OfParent(key, name), coder) for name, coder in parent.items()}
    features |= {name: (Own(name), coder) for name, coder in child.items()}
    features |= {f"{_OTHER}{name}": (Fellow(key, 1, name), coder) for name, coder in child.items()}
    return ViewSpec(key.child, features)
