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

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np

from privbench_core.arrays import Array
from privbench_core.estimators.fitting import combine
from privbench_core.estimators.segmentation import ABSOLUTE, SIGNIFICANT
from privbench_core.marginals.measure_one_way import Marginals, measure_one_way, remeasure
from privbench_core.marginals.measure_pairs import PairwiseFit
from privbench_core.marginals.measure_scores import NO_JOINTS, Joints, clear_scores, has_power, references
from privbench_core.marginals.measured import Measured, MeasuredLeaf, MeasuredParts
from privbench_core.marginals.one_way import OneWay
from privbench_core.marginals.spn import split_by_attribute
from privbench_core.privacy.budget import Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.queries import CentreSums, Distances, Marginal
from privbench_core.privacy.split_rules import Centres, Rule
from privbench_core.schema.identity import Identity
from privbench_core.tuning import TUNING


@dataclass(frozen=True)
class PairwiseSPN:
    """Sum nodes over one attribute where they pay, pairwise leaves everywhere else: the default.

    Attributes:
        ordered: Columns with ordered codes -> how many of their leading codes are intervals, in order.
        beta: Smallest (noisy) number of rows of a part.
        max_depth: Most row splits on a path.
        max_noise: A node is split only if the expected noise of a pair's joint in its parts stays below this share of
            rows. Two parts double the noise of every pair and pay for marginals again; what they show is how pairs
            differ between them, about 0.002 in 3-way distance on nltcs. Verified on acs and on a million rows: at 0.01
            splits doubled 2-way errors and did not lower 3-way ones.
        leaf: How leaves spend their price.
    """

    ordered: Mapping[str, int]
    beta: float = 10_000
    max_depth: int = 2
    max_noise: float = 0.0005
    leaf: PairwiseFit = field(default_factory=PairwiseFit)

    def identity(self) -> Identity:
        """Return all that a release depends on, but for the coded rows."""
        own = {"beta": self.beta, "max_depth": self.max_depth, "max_noise": self.max_noise}
        return {"network": "pairwise", **own, "leaf": self.leaf.identity()}

    def build(
        self, curator: Curator, one_way: OneWay, price: Price, by_lags: Joints = NO_JOINTS, depth: int = 0
    ) -> Measured:
        """Measure the network over the columns of ``one_way``, for at most ``price``; see `find`.

        Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1, 2, 4, 7 and 8.
        """
        found = self.find(Marginals(curator, one_way), price, by_lags, depth)
        return MeasuredLeaf(remeasure(curator, one_way, found)) if isinstance(found, Price) else found

    def has_power(self, curator: Curator, columns: int, total: float, price: Price) -> bool:
        """Return whether strong dependences would show; see `measure_scores.has_power`."""
        return has_power(curator, columns * (columns - 1) // 2, total, price)

    def find(self, marginals: Marginals, price: Price, by_lags: Joints = NO_JOINTS, depth: int = 0) -> Measured | Price:
        """Measure a network below so many splits, or return what is left if only single columns are worth it.

        ``by_lags`` is as in `PairwiseFit.find`.
        """
        curator, one_way = marginals.curator, marginals.counted
        if depth >= self.max_depth or not self._affordable(curator, one_way, price):
            return self.leaf.find(marginals, price, self.ordered, by_lags)
        pairs = list(combinations(one_way.counts, 2))
        scores = clear_scores(curator, one_way, pairs, price.share(TUNING.score_share))
        rest = price.share(1 - TUNING.score_share)
        by_pair = dict(zip(pairs, scores.tolist(), strict=True))
        dependent = scores.max() > TUNING.clear * one_way.total
        rule = split_by_attribute(self.ordered, by_pair, one_way.clean()) if dependent else None
        if rule is None:
            return self.leaf.find(marginals, rest, self.ordered, by_lags)
        parts = _measured_parts(curator, rule, list(one_way.counts), rest)
        return MeasuredParts(tuple(self.build(*part, by_lags, depth + 1) for part in parts), rule)

    def _affordable(self, curator: Curator, one_way: OneWay, price: Price) -> bool:
        """Return whether halves would still be large, and measured well: both judged by released numbers."""
        if one_way.total < 2 * self.beta or len(one_way.counts) < 3:  # noqa: PLR2004 - two columns are one joint
            return False
        pairs = 2 * len(one_way.counts)
        sigma = curator.sigma([Marginal(())], price.share((1 - TUNING.score_share) / pairs))
        cells = float(np.mean([len(c) for c in one_way.counts.values()])) ** 2
        return ABSOLUTE * sigma * cells <= self.max_noise * one_way.total / 2


def _measured_parts(
    curator: Curator, rule: Rule, names: Sequence[str], price: Price
) -> Iterator[tuple[Curator, OneWay, Price]]:
    """Yield the parts of the rows, each with its one-way marginals and what is left of its price."""
    for part in curator.split(rule):
        inside = measure_one_way(part, names, price.share(2 * TUNING.score_share))
        yield part, inside, price.share(1 - 2 * TUNING.score_share)


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
        """Return all that a release depends on, but for the coded rows."""
        names = ("alpha", "beta", "gamma1", "gamma2", "iterations")
        return {"network": "histograms", **{name: getattr(self, name) for name in names}}

    def has_power(self, *_: object) -> bool:
        """Return True: every leaf measures its own histogram, so there is always something to spend on."""
        return True

    def find(self, marginals: Marginals, price: Price, _: object) -> Measured:
        """See `build`; of a column by itself there is nothing but its marginal."""
        if len(marginals.one_way.counts) == 1:
            return MeasuredLeaf(marginals.improve(price))
        return self.build(marginals.curator, marginals.counted, price)

    def build(self, curator: Curator, one_way: OneWay, price: Price) -> Measured:
        """Measure the network over the columns of ``one_way``, for at most ``price`` (Algorithm 2).

        Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1 to 5, 7 and 8.
        """
        names = tuple(one_way.counts)
        if len(names) == 1:
            found = curator.measure(f"histogram {names[0]}", [Marginal(names)], price)
            merged, sigmas = combine(*one_way.column(names[0]), found.values[0], found.sigma)
            return MeasuredLeaf(replace(one_way, counts={names[0]: merged}, sigmas={names[0]: sigmas}))
        scale = self.scale(one_way.total, len(names))
        node = price.share(1 / scale)
        if one_way.total < 2 * self.beta:
            halves = self._choose_columns(curator, one_way, node)
            return self._product(curator, one_way, halves, price.share(1 - 1 / scale))
        trial = node.share(self.gamma1)
        halves = self._choose_columns(curator, one_way, trial.share(self.gamma2))
        # Dependence of the halves: average R-score of the pairs across, as a share of rows, in [0, 1] but for noise.
        across = references(one_way.clean(), [(a, b) for a in halves[0] for b in halves[1]])
        noisy = curator.measure("correlation trial", [Distances((across,))], trial.share(1 - self.gamma2))
        if float(noisy.values[0][0]) / (2 * len(across) * one_way.total) <= self.alpha:
            return self._product(curator, one_way, halves, price.share(1 - self.gamma1 / scale))
        rest = price.share(1 - 1 / scale)
        rule = lloyd_split(curator, names, self.ordered, self.iterations, node.share(1 - self.gamma1), self.rng)
        parts = _measured_parts(curator, rule, names, rest)
        return MeasuredParts(tuple(self.build(*part) for part in parts), rule)

    def scale(self, rows: float, columns: int) -> float:
        """Return σ(T) = 2|T||attr(T)|/β - 1, at least the number of nodes of column splits alone (Algorithm 5)."""
        return max(2 * rows * columns / self.beta - 1, 2 * columns - 1)

    def _product(
        self, curator: Curator, one_way: OneWay, halves: tuple[tuple[str, ...], ...], price: Price
    ) -> MeasuredParts:
        """Measure halves of the columns, which share the price by their scales (Algorithm 2, line 18)."""
        scales = [self.scale(one_way.total, len(half)) if len(half) > 1 else 1.0 for half in halves]
        return MeasuredParts(
            tuple(
                self.build(curator, one_way.only(half), price.share(scale / sum(scales)))
                for half, scale in zip(halves, scales, strict=True)
            )
        )

    def _choose_columns(self, curator: Curator, one_way: OneWay, price: Price) -> tuple[tuple[str, ...], ...]:
        """Choose, of |attr| random halvings, (noisily) the one whose halves depend least on each other (Algorithm 4).

        All halvings have equally many pairs inside their halves, so least across is most inside: the exponential
        mechanism is asked for the largest sum of distances inside.
        """
        names = list(one_way.counts)
        if len(names) == 2:  # noqa: PLR2004
            return (names[0],), (names[1],)
        options = []
        for _ in names:
            mixed = [str(n) for n in self.rng.permutation(np.array(names))]
            options.append((tuple(mixed[: len(mixed) // 2]), tuple(mixed[len(mixed) // 2 :])))
        clean = one_way.clean()
        groups = tuple(references(clean, [p for half in halves for p in combinations(half, 2)]) for halves in options)
        return options[curator.select("column split", Distances(groups), price)]


def lloyd_split(
    curator: Curator,
    columns: Sequence[str],
    ordered: Collection[str],
    iterations: int,
    price: Price,
    rng: np.random.Generator,
) -> Centres:
    """Release two centres for ``price``, by DPLloyd (Su et al. 2016): noisy averages, then nearest centre.

    They start at random, without a look at any row: at a position of an ordered column, a distribution of another one.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 3, 4 and 7.

    Args:
        curator: Of a view with the columns.
        columns: By which rows are compared.
        ordered: Those whose codes are ordered; others are compared as one-hot vectors.
        iterations: J of the paper.
        price: Of all iterations.
        rng: For the start.
    """
    sizes = [curator.sizes[name] for name in columns]
    along = [name in ordered for name in columns]
    points = [
        [
            np.array([0.5 + away * rng.choice([-1.0, 1.0])]) if is_ordered else rng.dirichlet(np.ones(size))
            for is_ordered, size in zip(along, sizes, strict=True)
        ]
        for away in (-0.25, 0.25)
    ]
    kinds = tuple((name, "ordered" if name in ordered else "list") for name in columns)

    def centres() -> Centres:
        """Return lookup tables of the L1 distance of each code to each centre."""
        return Centres(kinds, tuple(sizes), tuple(tuple(map(_distances, along, sizes, centre)) for centre in points))

    ends = np.cumsum([1 if is_ordered else size for is_ordered, size in zip(along, sizes, strict=True)])
    for iteration in range(iterations):
        answer = curator.measure(f"centres {iteration}", [CentreSums(centres())], price.share(1 / iterations))
        for side, sums in enumerate(answer.values[0]):
            if sums[0] > max(1.0, SIGNIFICANT * answer.sigma):
                means = np.split(sums[1:] / sums[0], ends[:-1])
                points[side] = [
                    np.clip(mean + 0.5 * is_ordered, 0.0, 1.0) for mean, is_ordered in zip(means, along, strict=True)
                ]
    return centres()


def _distances(is_ordered: bool, size: int, point: Array) -> tuple[float, ...]:
    """Return the L1 distance of each code of a column to a centre."""
    positions = np.abs(np.arange(size) / max(size - 1, 1) - point[0])
    return tuple((positions if is_ordered else (point.sum() + 1 - 2 * point) / 2).tolist())
