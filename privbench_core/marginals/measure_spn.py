"""PrivSPN: a sum-product network grown over private rows (PrivBench section 3.3, Algorithms 2 to 5), soundly.

Planning, correlation trial, row split, column split, leaves, and the scale σ(T) that shares the budget are the
paper's. What differs, and why (``docs/privacy.md`` has the proofs):

- Sizes are noisy everywhere; the paper branches on exact ones.
- The dependence of two column sets is the average R-score of the pairs across them, against released marginals; the
  paper's NMI has a sensitivity that depends on n and holds for replace-one only.
- Rows are split by DPLloyd with released centres or by one attribute, each by its own values. The paper's RowSplit
  compares each row with exact centres: replacing one moves every row's distance, and its noise hides only one of them.
- With pairwise leaves (the default) a leaf models several columns, so columns are split where they are independent
  by not measuring the pair, and a sum node is grown only where its parts can pay for their own measurements.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from privbench_core.estimators.fitting import combine
from privbench_core.estimators.segmentation import ABSOLUTE, SIGNIFICANT
from privbench_core.marginals.measure_one_way import Marginals, measure_one_way, remeasure
from privbench_core.marginals.measure_pairs import Pair, PairwiseFit
from privbench_core.marginals.measure_scores import clear_scores, has_power
from privbench_core.marginals.measured import Measured, MeasuredLeaf, MeasuredParts
from privbench_core.marginals.one_way import OneWay
from privbench_core.marginals.spn import split_by_attribute
from privbench_core.privacy.budget import Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.queries import CentreSums, Distances, Marginal
from privbench_core.privacy.split_rules import Centres
from privbench_core.schema.identity import Identity
from privbench_core.tuning import TUNING

Array = NDArray[np.float64]


@dataclass(frozen=True)
class PairwiseSPN:
    """Sum nodes over one attribute where they pay, pairwise leaves everywhere else: the default.

    Attributes:
        ordered: Columns with ordered codes -> how many of their leading codes are intervals, in order.
        beta: Smallest (noisy) number of rows of a part.
        max_depth: Most row splits on a path.
        max_noise: A node is split only if the expected noise of a pair's joint in its parts stays below this share of
            rows. Two parts double the noise of every pair and pay for marginals again; what they show beside that is
            how pairs differ between them, about 0.002 in 3-way distance on nltcs. Verified on acs and on a million
            rows: at 0.01 splits doubled 2-way errors and did not lower 3-way ones.
        leaf: How leaves spend their price.
    """

    ordered: Mapping[str, int]
    beta: float = 10_000
    max_depth: int = 2
    max_noise: float = 0.0005
    leaf: PairwiseFit = field(default_factory=PairwiseFit)

    def identity(self) -> Identity:
        """Return all that a release depends on beside the coded rows."""
        return {
            "network": "pairwise",
            "beta": self.beta,
            "max_depth": self.max_depth,
            "max_noise": self.max_noise,
            "leaf": self.leaf.identity(),
        }

    def build(
        self,
        curator: Curator,
        one_way: OneWay,
        price: Price,
        by_lags: Mapping[Pair, Array] = MappingProxyType({}),
        depth: int = 0,
    ) -> Measured:
        """The network over the columns of ``one_way``, for at most ``price``, below so many splits.

        ``by_lags`` is as in `PairwiseFit.find`.

        Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1, 2, 4, 7 and 8.
        """
        found = self.find(Marginals(curator, one_way), price, by_lags, depth)
        return MeasuredLeaf(remeasure(curator, one_way, found)) if isinstance(found, Price) else found

    def has_power(self, curator: Curator, columns: int, total: float, price: Price) -> bool:
        """Return whether strong dependences would show; see `scores.has_power`."""
        return has_power(curator, columns * (columns - 1) // 2, total, price)

    def find(
        self,
        marginals: Marginals,
        price: Price,
        by_lags: Mapping[Pair, Array] = MappingProxyType({}),
        depth: int = 0,
    ) -> Measured | Price:
        """The same, or what is left of the price if nothing but the columns themselves is worth being measured."""
        curator, one_way = marginals.curator, marginals.counted
        if depth >= self.max_depth or not self._affordable(curator, one_way, price):
            return self.leaf.find(marginals, price, self.ordered, by_lags)
        pairs = list(combinations(one_way.counts, 2))
        scores = clear_scores(curator, one_way, pairs, price.share(TUNING.score_share))
        rest = price.share(1 - TUNING.score_share)
        telling = scores.max() > TUNING.clear * one_way.total
        by_pair = dict(zip(pairs, scores.tolist(), strict=True))
        rule = split_by_attribute(self.ordered, by_pair, one_way.clean()) if telling else None
        if rule is None:
            return self.leaf.find(marginals, rest, self.ordered, by_lags)
        parts = []
        for part in curator.split(rule):
            inside = measure_one_way(part, list(one_way.counts), rest.share(2 * TUNING.score_share))
            parts.append(self.build(part, inside, rest.share(1 - 2 * TUNING.score_share), by_lags, depth + 1))
        return MeasuredParts(tuple(parts), rule)

    def _affordable(self, curator: Curator, one_way: OneWay, price: Price) -> bool:
        """Whether halves would still be large, and measured well: both judged by released numbers."""
        if one_way.total < 2 * self.beta or len(one_way.counts) < 3:  # noqa: PLR2004 - two columns are one joint
            return False
        pairs = 2 * len(one_way.counts)
        sigma = curator.sigma([Marginal(())], price.share((1 - TUNING.score_share) / pairs))
        cells = float(np.mean([len(c) for c in one_way.counts.values()])) ** 2
        return ABSOLUTE * sigma * cells <= self.max_noise * one_way.total / 2


@dataclass(frozen=True)
class HistogramSPN:
    """The paper's own configuration: binary sum and product nodes down to one histogram per column.

    Attributes:
        ordered: Columns with ordered codes.
        alpha: Columns are split if the dependence across the trial split is at most this, rows otherwise.
        beta: Smallest (noisy) number of rows of a part; also sets the scale σ(T).
        gamma1: Share of a node's budget for the correlation trial.
        gamma2: Share of the trial's budget for choosing the trial split.
        iterations: J, DPLloyd's iterations.
        rng: For the halvings of columns that are tried, and for centres; not privacy noise.
    """

    ordered: frozenset[str]
    alpha: float = 0.5
    beta: float = 10_000
    gamma1: float = 0.5
    gamma2: float = 0.5
    iterations: int = 2
    rng: np.random.Generator = field(kw_only=True, repr=False, compare=False)

    def identity(self) -> Identity:
        """Return all that a release depends on beside the coded rows."""
        return {
            "network": "histograms",
            "alpha": self.alpha,
            "beta": self.beta,
            "gamma1": self.gamma1,
            "gamma2": self.gamma2,
            "iterations": self.iterations,
        }

    def has_power(self, *_: object) -> bool:
        """Return True: every leaf measures its own histogram, so there is always something to spend on."""
        return True

    def find(self, marginals: Marginals, price: Price, _: object) -> Measured:
        """See `build`; of a column by itself there is nothing but its marginal."""
        if len(marginals.one_way.counts) == 1:
            return MeasuredLeaf(marginals.improve(price))
        return self.build(marginals.curator, marginals.counted, price)

    def build(self, curator: Curator, one_way: OneWay, price: Price) -> Measured:
        """The network over the columns of ``one_way``, for at most ``price`` (Algorithm 2).

        Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1 to 5, 7 and 8.
        """
        names = tuple(one_way.counts)
        if len(names) == 1:
            return self._leaf(curator, one_way, price)
        scale = self.scale(one_way.total, len(names))
        node = price.share(1 / scale)
        if one_way.total < 2 * self.beta:
            halves = self._choose_columns(curator, one_way, node)
            return self._product(curator, one_way, halves, price.share(1 - 1 / scale))
        trial = node.share(self.gamma1)
        halves = self._choose_columns(curator, one_way, trial.share(self.gamma2))
        dependence = self._dependence(curator, one_way, halves, trial.share(1 - self.gamma2))
        if dependence <= self.alpha:
            return self._product(curator, one_way, halves, price.share(1 - self.gamma1 / scale))
        rest = price.share(1 - 1 / scale)
        rule = lloyd_split(curator, names, self.ordered, self.iterations, node.share(1 - self.gamma1), self.rng)
        parts = []
        for part in curator.split(rule):
            inside = measure_one_way(part, names, rest.share(2 * TUNING.score_share))
            parts.append(self.build(part, inside, rest.share(1 - 2 * TUNING.score_share)))
        return MeasuredParts(tuple(parts), rule)

    def scale(self, rows: float, columns: int) -> float:
        """σ(T) = 2|T||attr(T)|/β - 1, at least the number of nodes that column splits alone make (Algorithm 5)."""
        return max(2 * rows * columns / self.beta - 1, 2 * columns - 1)

    def _leaf(self, curator: Curator, one_way: OneWay, price: Price) -> MeasuredLeaf:
        (name,) = one_way.counts
        again = curator.measure(f"histogram {name}", [Marginal((name,))], price)
        merged, sigmas = combine(one_way.counts[name], one_way.sigmas[name], again.values[0], again.sigma)
        return MeasuredLeaf(replace(one_way, counts={name: merged}, sigmas={name: sigmas}))

    def _product(
        self, curator: Curator, one_way: OneWay, halves: tuple[tuple[str, ...], ...], price: Price
    ) -> MeasuredParts:
        """Children share the budget by their scales (Algorithm 2, line 18)."""
        scales = [self.scale(one_way.total, len(half)) if len(half) > 1 else 1.0 for half in halves]
        parts = []
        for half, scale in zip(halves, scales, strict=True):
            parts.append(self.build(curator, one_way.only(half), price.share(scale / sum(scales))))
        return MeasuredParts(tuple(parts))

    def _choose_columns(self, curator: Curator, one_way: OneWay, price: Price) -> tuple[tuple[str, ...], ...]:
        """ColSplit (Algorithm 4): of |attr| random halvings, (noisily) the one whose halves depend least on each other.

        All halvings have equally many pairs inside their halves, so least across is most inside: the exponential
        mechanism is asked for the largest sum of distances inside.
        """
        names = np.array(list(one_way.counts))
        if len(names) == 2:  # noqa: PLR2004
            return (str(names[0]),), (str(names[1]),)
        options = []
        for _ in names:
            mixed = [str(n) for n in self.rng.permutation(names)]
            options.append((tuple(mixed[: len(mixed) // 2]), tuple(mixed[len(mixed) // 2 :])))
        clean = one_way.clean()
        groups = tuple(_distances(clean, [p for half in halves for p in combinations(half, 2)]) for halves in options)
        return options[curator.select("column split", Distances(groups), price)]

    def _dependence(
        self, curator: Curator, one_way: OneWay, halves: tuple[tuple[str, ...], ...], price: Price
    ) -> float:
        """Noisy average R-score across the halves, as a share of rows: in [0, 1] but for the noise."""
        across = [(a, b) for a in halves[0] for b in halves[1]]
        noisy = curator.measure("correlation trial", [Distances((_distances(one_way.clean(), across),))], price)
        return float(noisy.values[0][0]) / (2 * len(across) * one_way.total)


def lloyd_split(
    curator: Curator,
    columns: Sequence[str],
    ordered: Collection[str],
    iterations: int,
    price: Price,
    rng: np.random.Generator,
) -> Centres:
    """Release two centres for ``price``, by DPLloyd (Su et al. 2016): noisy averages, then nearest centre.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 3, 4 and 7.

    Args:
        curator: Of a view with the columns.
        columns: By which rows are compared.
        ordered: Those whose codes are ordered; others are compared as one-hot vectors.
        iterations: J of the paper.
        price: Of all iterations.
        rng: For the start, which is drawn without looking at any row.
    """
    sizes = [curator.sizes[name] for name in columns]
    kinds = [(name, "ordered" if name in ordered else "list") for name in columns]
    points = [[_start(kind, size, side, rng) for (_, kind), size in zip(kinds, sizes, strict=True)] for side in (0, 1)]
    ends = np.cumsum([1 if kind == "ordered" else size for (_, kind), size in zip(kinds, sizes, strict=True)])
    for iteration in range(iterations):
        query = CentreSums(_centres(kinds, sizes, points))
        answer = curator.measure(f"centres {iteration}", [query], price.share(1 / iterations))
        for side, sums in enumerate(answer.values[0]):
            if sums[0] > max(1.0, SIGNIFICANT * answer.sigma):
                means = np.split(sums[1:] / sums[0], ends[:-1])
                points[side] = [
                    np.clip(mean + 0.5 * (kind == "ordered"), 0.0, 1.0)
                    for (_, kind), mean in zip(kinds, means, strict=True)
                ]
    return _centres(kinds, sizes, points)


def _start(kind: str, size: int, side: int, rng: np.random.Generator) -> Array:
    """A data-independent starting centre: a position, or a distribution over values."""
    if kind == "ordered":
        return np.array([0.5 + (0.25 if side else -0.25) * rng.choice([-1.0, 1.0])])
    return rng.dirichlet(np.ones(size))


def _centres(kinds: Sequence[tuple[str, str]], sizes: Sequence[int], points: Sequence[Sequence[Array]]) -> Centres:
    """Lookup tables of the L1 distance of each code to each centre."""

    def distances(kind: str, size: int, point: Array) -> tuple[float, ...]:
        positions = np.abs(np.arange(size) / max(size - 1, 1) - point[0])
        return tuple((positions if kind == "ordered" else (point.sum() + 1 - 2 * point) / 2).tolist())

    tables = tuple(
        tuple(distances(kind, size, point) for (_, kind), size, point in zip(kinds, sizes, centre, strict=True))
        for centre in points
    )
    return Centres(tuple(kinds), tuple(sizes), tables)


def _distances(clean: Mapping[str, Array], pairs: list[tuple[str, str]]) -> tuple[tuple[tuple[str, ...], Array], ...]:
    """Pairs with the product of their released marginals as the reference."""
    return tuple(((a, b), np.outer(clean[a], clean[b]) / max(clean[a].sum(), 1.0)) for a, b in pairs)
