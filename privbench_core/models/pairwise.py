"""Fitting a leaf over several columns: which pairs depend on each other, measured where it pays.

Three looks at the rows: dependence scores of all pairs, the one-way marginals again, and the joints of the chosen
pairs; public arithmetic on released numbers says how the price is shared between the last two.

The score of a pair is its R-score, half the L1 distance between its exact counts and the product of the *released*
one-way marginals (PrivMRF; PrivPetal section 5), whose sensitivity is half the view's stability, whatever n. Pairs are
chosen to maximise the expected reduction of L1 error: a pair left out costs its score, a pair measured costs the noise
on its cells.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from privbench_core.models.estimate import combine, onto_simplex
from privbench_core.models.joints import estimated_joint
from privbench_core.models.nodes import Leaf
from privbench_core.privacy.budget import Measure, Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.queries import Distances, Marginal

Array = NDArray[np.float64]
Pair = tuple[str, str]
_ACCIDENT = 0.01  # probability that noise alone makes a spike
_EXACT = 1e-9  # noise of counts that are known exactly: what is divided by it stays finite
_STRONG = 0.3  # of all rows: the score of two columns that determine each other is one minus the likeliest values
_ABSOLUTE = 0.4  # half of the expected absolute value of noise, in standard deviations
_RANK = 1.5  # of what a joint usually has over the product of its marginals
_POSSIBLE = 0.3  # standard deviations that a count is at least: noise does not rule a value out
_CLEAR = 0.2  # of all rows: largest noise of scores that is no reason to pay more for them
_MORE_FOR_SCORES = (1.0, 2.0, 3.0)  # times the usual share, where scores would say little for less
_RARELY = 0.2  # of an equal share of the rows: most that a value is given without evidence
_SHARES = (0.0, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 1.0)  # of what a leaf has left, for joints rather than marginals


@dataclass(frozen=True)
class OneWay:
    """Released one-way counts of some columns.

    Attributes:
        counts: Column -> noisy counts, shape (size,).
        sigmas: Column -> standard deviation of the noise on each of them, shape (size,).
        rows: Noisy number of rows, where there are no columns to add up.
    """

    counts: Mapping[str, Array]
    sigmas: Mapping[str, Array]
    rows: float = 1.0

    @classmethod
    def alike(cls, counts: Mapping[str, Array], sigma: float, rows: float = 1.0) -> OneWay:
        """With the same noise on every count."""
        return cls(counts, {name: np.full(len(values), sigma) for name, values in counts.items()}, rows)

    @property
    def total(self) -> float:
        """Number of rows (weighted): the columns' sums averaged by their variances, at least 1."""
        if not self.counts:
            return self.rows
        variances = np.array([self._variances(name).sum() for name in self.counts])
        sums = np.array([c.sum() for c in self.counts.values()])
        return max(1.0, float(np.average(sums, weights=1 / variances)))

    def clean(self) -> dict[str, Array]:
        """Counts that add up to `total`, none of them zero unless its noise is."""
        return {name: self._possible(name) for name in self.counts}

    def _possible(self, name: str) -> Array:
        total, variances = self.total, self._variances(name)
        nearest = onto_simplex(self.counts[name], total, variances)
        least = np.minimum(_POSSIBLE * np.sqrt(variances), _RARELY * total / len(nearest))
        raised = np.maximum(nearest, least)
        return np.asarray(raised * (total / raised.sum()))

    def only(self, names: Iterable[str]) -> OneWay:
        """Some of the columns."""
        kept = tuple(names)
        return OneWay({name: self.counts[name] for name in kept}, {name: self.sigmas[name] for name in kept}, self.rows)

    def _variances(self, name: str) -> Array:
        return np.maximum(self.sigmas[name], _EXACT) ** 2


@dataclass(frozen=True)
class PairwiseFit:
    """How a pairwise leaf spends its price; public constants.

    Attributes:
        score_share: Part of the price for the dependence scores; up to three times as much where that tells nothing.
        noise_factor: Weight of the expected noise of a pair's cells against its score.
        max_pairs: Cap on joints per leaf.
    """

    score_share: float = 0.08
    noise_factor: float = 0.28
    max_pairs: int = 400

    def fit(self, curator: Curator, one_way: OneWay, price: Price) -> Leaf:
        """A leaf over the columns of ``one_way``, for at most ``price``.

        What the scores leave of the price goes partly to joints and partly to the one-way marginals again, in the
        proportion that promises the smallest total error over all pairs.
        """
        clean = one_way.clean()
        pairs = _telling(clean, combinations(clean, 2))
        if not pairs:
            return _leaf(self._again(curator, one_way, price), {})
        for_scores = self._telling_share(curator, pairs, one_way.total, price)
        if for_scores is None:
            return _leaf(self._again(curator, one_way, price), {})
        scores = pair_scores(curator, clean, pairs, price.share(for_scores))
        rest = price.share(1 - for_scores)
        cells = noisy_cells(clean, pairs)

        def promise(share: float) -> float:
            """Expected L1 error over all pairs if ``share`` of the rest goes to joints."""
            gain, _ = self.choose(curator, scores, cells, rest.share(share)) if share > 0 else (0.0, None)
            left = second_look(curator, one_way, rest.share(1 - share)).noise if share < 1 else _noise(one_way)
            return _ABSOLUTE * left * (len(clean) - 1) - gain

        share = min(_SHARES, key=promise)
        better = self._again(curator, one_way, rest.share(1 - share)) if share < 1 else one_way
        if share == 0:
            return _leaf(better, {})
        _, chosen = self.choose(curator, scores, cells, rest.share(share))
        return _leaf(better, self.measure(curator, [pairs[i] for i in chosen], better.clean(), rest.share(share)))

    def _telling_share(self, curator: Curator, pairs: Sequence[Pair], total: float, price: Price) -> float | None:
        """The least share of the price for which scores are clear, else the largest; None if even that is hopeless."""
        shares = [self.score_share * more for more in _MORE_FOR_SCORES]
        if self.hopeless(curator, pairs, total, price.share(shares[-1])):
            return None
        noises = (_largest_noise(curator, len(pairs), price.share(share)) for share in shares)
        return next((share for share, noise in zip(shares, noises, strict=True) if noise <= _CLEAR * total), shares[-1])

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
        candidates = _telling(clean, candidates)
        for_scores = self._telling_share(curator, candidates, _total(clean), price) if candidates else None
        if for_scores is None:
            return {}
        scores = pair_scores(curator, clean, candidates, price.share(for_scores))
        rest = price.share(1 - for_scores)
        _, chosen = self.choose(curator, scores, noisy_cells(clean, candidates), rest)
        return self.measure(curator, [candidates[i] for i in chosen], clean, rest) if len(chosen) else {}

    def hopeless(self, curator: Curator, candidates: Sequence[Pair], total: float, price: Price) -> bool:
        """Whether even a strong dependence would drown in the noise of its score: then nothing is spent on scores."""
        return _largest_noise(curator, len(candidates), price) > _STRONG * total

    def choose(self, curator: Curator, scores: Array, cells: Array, price: Price) -> tuple[float, NDArray[np.int64]]:
        """The largest gain in L1 error that measuring some pairs for ``price`` promises, and their indices."""
        best: tuple[float, NDArray[np.int64]] = (0.0, np.zeros(0, dtype=np.int64))
        for number in range(1, min(self.max_pairs, len(scores)) + 1):
            sigma = curator.sigma([Marginal(())], price.share(1 / number))
            gain = scores - self.noise_factor * sigma * cells
            order = np.argsort(-gain)[:number]
            value = float(np.maximum(gain[order], 0).sum())
            if value > best[0]:
                best = (value, order[gain[order] > 0])
        return best

    def measure(
        self, curator: Curator, pairs: Sequence[Pair], clean: Mapping[str, Array], price: Price
    ) -> dict[Pair, Array]:
        """Joint probabilities of ``pairs``: measured, rid of noise, fitted to the marginals, never exactly zero."""
        total = _total(clean)
        sizes = noisy_cells(clean, pairs)
        shares = sizes ** (2 / 3) / (sizes ** (2 / 3)).sum()  # minimises the sum of expected L1 errors
        joints = {}
        for (a, b), share in zip(pairs, shares, strict=True):
            noisy = curator.measure(f"{a} x {b}", [Marginal((a, b))], price.share(float(share)))
            joints[a, b] = estimated_joint(noisy.values[0], clean[a], clean[b], noisy.sigma) / total
        return joints

    def _again(self, curator: Curator, one_way: OneWay, price: Price) -> OneWay:
        """Some one-way marginals measured once more and averaged with what is known."""
        counts, sigmas = dict(one_way.counts), dict(one_way.sigmas)
        for name, share in second_look(curator, one_way, price).shares.items():
            again = curator.measure(f"one-way again, {name}", [Marginal((name,))], price.share(share))
            counts[name], sigmas[name] = combine(counts[name], sigmas[name], again.values[0], again.sigma)
        return OneWay(counts, sigmas, one_way.rows)


@dataclass(frozen=True)
class SecondLook:
    """A plan.

    Attributes:
        shares: Of the price, for columns that are measured again; they add up to 1.
        noise: Standard deviations of all counts of all columns after that, summed up.
    """

    shares: Mapping[str, float]
    noise: float


def second_look(curator: Curator, one_way: OneWay, price: Price) -> SecondLook:
    """Which one-way marginals to measure again, and for how much: those that leave the least noise in all.

    Noise with standard deviation ∝ share^-p on c counts is least in sum for shares ∝ c^(1 / (p + 1)). Which columns
    take part is tried from those that have most noise. With Laplace noise (p = 1) they are few: two looks at equal
    prices are worth √2 times one, one look at twice the price is worth twice as much.

    Args:
        curator: Of a view with these columns.
        one_way: Their counts so far; which columns are worth another look depends on released numbers alone.
        price: Of all that is measured again.
    """
    columns = sorted(one_way.counts, key=lambda name: -float(one_way.sigmas[name].sum()))
    told = [name for name in columns if len(one_way.counts[name]) > 1] or columns[:1]
    power = 1.0 if price.measure is Measure.PURE else 0.5
    weights = np.array([len(one_way.counts[name]) for name in told]) ** (1 / (power + 1))
    alone = curator.sigma([Marginal(())], price)
    best = SecondLook({}, math.inf)
    before = np.array([one_way.sigmas[name].sum() for name in columns])
    for number in range(1, len(told) + 1):
        shares = weights[:number] / weights[:number].sum()
        again = alone * shares**-power
        noise = float(before.sum() - before[:number].sum())
        for name, sigma in zip(told, again, strict=False):
            first = one_way.sigmas[name]
            noise += float((first / np.sqrt(1 + (first / sigma) ** 2)).sum())
        if noise < best.noise:
            best = SecondLook(dict(zip(told, shares.tolist(), strict=False)), noise)
    return best


def _noise(one_way: OneWay) -> float:
    return float(sum(sigmas.sum() for sigmas in one_way.sigmas.values()))


def _telling(clean: Mapping[str, Array], pairs: Iterable[Pair]) -> list[Pair]:
    """The pairs whose columns both have more than one code."""
    return [(a, b) for a, b in pairs if len(clean[a]) > 1 and len(clean[b]) > 1]


def _leaf(one_way: OneWay, joints: Mapping[Pair, Array]) -> Leaf:
    return Leaf(one_way.total, {name: c / one_way.total for name, c in one_way.clean().items()}, joints)


def noisy_cells(clean: Mapping[str, Array], pairs: Sequence[Pair]) -> Array:
    """How many cells' noise the joint of each pair is left with.

    Of the L1 norm of its cells' noise, an estimate of rank r keeps that of about r(rows + columns) free numbers, spread
    over all cells: √(cells · free).
    """
    rows, columns = (np.array([len(clean[pair[side]]) for pair in pairs], dtype=float) for side in (0, 1))
    free = np.minimum((rows - 1) * (columns - 1), _RANK * (rows + columns - 2))
    return np.asarray(np.sqrt(rows * columns * free))


def pair_scores(curator: Curator, clean: Mapping[str, Array], candidates: Sequence[Pair], price: Price) -> Array:
    """R-scores of pairs, in counts, against the product of cleaned released one-way counts, less their largest noise.

    The best of many noisy scores is best in part by its noise. Half of what the largest draw is expected to be is taken
    off all of them, so that a table of independent columns is not modelled as a table of accidents.
    """
    groups = tuple((((a, b), np.outer(clean[a], clean[b]) / max(1.0, clean[a].sum())),) for a, b in candidates)
    noisy = curator.measure("dependence scores", [Distances(groups)], price)
    return noisy.values[0] / 2 - _largest_noise(curator, len(candidates), price) / 2


def _largest_noise(curator: Curator, candidates: int, price: Price) -> float:
    """Expected largest noise on the scores of so many candidates, in counts: σ√(2 ln m), or b ln m for Laplace."""
    reference = np.zeros(1)
    each = curator.sigma([Distances(((((), reference),),) * candidates)], price) / 2
    m = max(candidates, 2)
    return each * (math.log(m) / math.sqrt(2) if price.measure is Measure.PURE else math.sqrt(2 * math.log(m)))


def highest_noise(measure: Measure, sigma: float, cells: int) -> float:
    """A count that none of so many empty cells reaches, but for `_ACCIDENT`."""
    odds = math.log(cells / _ACCIDENT)
    return sigma * (odds / math.sqrt(2) if measure is Measure.PURE else math.sqrt(2 * odds))


def _total(clean: Mapping[str, Array]) -> float:
    return max(1.0, float(np.mean([counts.sum() for counts in clean.values()])))
