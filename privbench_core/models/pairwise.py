"""Fitting a leaf over several columns: which pairs depend on each other, measured where it pays.

Three looks at the rows, each priced by the caller: dependence scores of all pairs, the joints of the chosen pairs, and, if
no pair is worth its noise, the one-way marginals again.

The score of a pair is its R-score, half the L1 distance between its exact counts and the product of the *released* one-way marginals
(PrivMRF; PrivPetal section 5), whose sensitivity is half the view's stability, whatever n. Pairs are chosen to maximise the
expected reduction of L1 error: a pair left out costs its score, a pair measured costs the noise on its cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from privbench_core.models.estimate import combine, fit_margins, onto_simplex
from privbench_core.models.nodes import Leaf
from privbench_core.privacy.budget import Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.queries import Distances, Marginal

Array = NDArray[np.float64]
Pair = tuple[str, str]


@dataclass(frozen=True)
class OneWay:
    """Released one-way counts of some columns.

    Attributes:
        counts: Column -> noisy counts, shape (size,).
        sigma: Standard deviation of their noise.
        rows: Noisy number of rows, where there are no columns to add up.
    """

    counts: Mapping[str, Array]
    sigma: float
    rows: float = 1.0

    @property
    def total(self) -> float:
        """Number of rows (weighted): the columns' sums averaged by their variances, at least 1."""
        if not self.counts:
            return self.rows
        sizes = np.array([len(c) for c in self.counts.values()], dtype=float)
        sums = np.array([c.sum() for c in self.counts.values()])
        return max(1.0, float(np.average(sums, weights=1 / sizes)))

    def clean(self) -> dict[str, Array]:
        """Non-negative counts that add up to `total`."""
        total = self.total
        return {name: onto_simplex(counts, total) for name, counts in self.counts.items()}


@dataclass(frozen=True)
class PairwiseFit:
    """How a pairwise leaf spends its price; public constants.

    Attributes:
        score_share: Part of the price for the dependence scores.
        noise_factor: Weight of the expected noise of a pair's cells against its score.
        independence: Weight of the independent product mixed into each joint, so that nothing released is exactly zero.
        max_pairs_per_column: Cap on pairs, times the number of columns.
    """

    score_share: float = 0.08
    noise_factor: float = 0.4
    independence: float = 0.02
    max_pairs_per_column: float = 4.0

    def fit(self, curator: Curator, one_way: OneWay, price: Price) -> Leaf:
        """A leaf over the columns of ``one_way``, for at most ``price``."""
        clean, total = one_way.clean(), one_way.total
        candidates = list(combinations(clean, 2))
        joints = self.fit_pairs(curator, clean, candidates, price) if candidates else {}
        if not joints:
            return self._margins_only(curator, one_way, price.share(1 - self.score_share) if candidates else price)
        return Leaf(total, {name: counts / total for name, counts in clean.items()}, joints)

    def fit_pairs(
        self, curator: Curator, clean: Mapping[str, Array], candidates: Sequence[Pair], price: Price
    ) -> dict[Pair, Array]:
        """Joint probabilities of those ``candidates`` that are worth their noise; {} spends the score share only.

        Args:
            curator: Of a view with all columns of the candidates.
            clean: Released counts of each column, all with the same total.
            candidates: Pairs of columns.
            price: Of scores and joints together.
        """
        scores = pair_scores(curator, clean, candidates, price.share(self.score_share))
        rest = price.share(1 - self.score_share)
        cells = np.array([len(clean[a]) * len(clean[b]) for a, b in candidates], dtype=float)
        columns = {name for pair in candidates for name in pair}
        chosen = self.choose(curator, scores, cells, rest, int(self.max_pairs_per_column * len(columns)))
        return self.measure(curator, [candidates[i] for i in chosen], clean, rest) if len(chosen) else {}

    def choose(self, curator: Curator, scores: Array, cells: Array, price: Price, most: int) -> NDArray[np.int64]:
        """Indices of the pairs that promise the largest total gain at the noise that measuring them all implies."""
        best: tuple[float, NDArray[np.int64]] = (0.0, np.zeros(0, dtype=np.int64))
        for number in range(1, min(most, len(scores)) + 1):
            sigma = curator.sigma([Marginal(())], price.share(1 / number))
            gain = scores - self.noise_factor * sigma * cells
            order = np.argsort(-gain)[:number]
            value = float(np.maximum(gain[order], 0).sum())
            if value > best[0]:
                best = (value, order[gain[order] > 0])
        return best[1]

    def measure(
        self, curator: Curator, pairs: Sequence[Pair], clean: Mapping[str, Array], price: Price
    ) -> dict[Pair, Array]:
        """Joint probabilities of ``pairs``: measured, projected, fitted to the one-way marginals, never exactly zero."""
        total = _total(clean)
        sizes = np.array([len(clean[a]) * len(clean[b]) for a, b in pairs], dtype=float)
        shares = sizes ** (2 / 3) / (sizes ** (2 / 3)).sum()  # minimises the sum of expected L1 errors
        joints = {}
        for (a, b), share in zip(pairs, shares, strict=True):
            noisy = curator.measure(f"{a} x {b}", [Marginal((a, b))], price.share(float(share)))
            margins = [((0,), clean[a]), ((1,), clean[b])]
            joint = fit_margins(onto_simplex(noisy.values[0], total), margins, 3)
            product = np.outer(clean[a], clean[b]) / total**2
            joints[a, b] = (1 - self.independence) * joint / max(joint.sum(), 1e-300) + self.independence * product
        return joints

    def _margins_only(self, curator: Curator, one_way: OneWay, price: Price) -> Leaf:
        """Spend the price on the one-way marginals once more, and average."""
        names = list(one_way.counts)
        again = curator.measure("one-way again", [Marginal((name,)) for name in names], price)
        merged = {
            name: combine(one_way.counts[name], one_way.sigma, counts, again.sigma)[0]
            for name, counts in zip(names, again.values, strict=True)
        }
        better = OneWay(merged, min(one_way.sigma, again.sigma))
        return Leaf(better.total, {name: counts / better.total for name, counts in better.clean().items()})


def pair_scores(curator: Curator, clean: Mapping[str, Array], candidates: Sequence[Pair], price: Price) -> Array:
    """Noisy R-scores of pairs, in counts, against the product of cleaned released one-way counts."""
    total = _total(clean)
    groups = tuple((((a, b), np.outer(clean[a], clean[b]) / total),) for a, b in candidates)
    noisy = curator.measure("dependence scores", [Distances(groups)], price)
    return noisy.values[0] / 2


def _total(clean: Mapping[str, Array]) -> float:
    return max(1.0, float(np.mean([counts.sum() for counts in clean.values()])))
