"""A Gaussian copula of ordered columns, from noisy sums of products of signs: one release, a joint for every pair.

Each ordered column is cut in two near its median; a row has the sign -1 below the cut and +1 above it. The mean product
of the signs of two columns says how they are correlated (Sheppard 1899: E[s t] = (2/π) asin ρ at the medians). Of all
scores that a bound of one row's influence allows, signs lose least to noise: with |s| ≤ b, E[s z] of a normal z is at
most b E|z|. The whole matrix is denoised before it is used; all of this is post-processing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import scipy
from numpy.typing import NDArray

from privbench_core.estimate.mixture import Estimate, least_risk

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]
Pair = tuple[str, str]
LARGEST = 0.985
"""Correlation: the grids below resolve all up to it."""
_ANGLES = np.linspace(-np.arcsin(LARGEST), np.arcsin(LARGEST), 129)  # odd: 0 is one of them
_FACTOR = np.linspace(-6.0, 6.0, 121)  # values of a common normal factor, and their weights
_WEIGHTS = np.exp(-(_FACTOR**2) / 2) / np.exp(-(_FACTOR**2) / 2).sum()
_FILLS = 5  # of the diagonal by that of the denoised matrix; changes are small from there on
_PROBES = 8  # random directions in which a divergence is measured; more change no weight by a percent
_STEP = 1e-3  # of these derivatives, in units of the noise
_EIGENVALUE = 1e-3  # least of a correlation matrix
_FAINT = (
    0.03  # correlation: a joint within 1% of the product, which is not worth the time that fitting rows to it takes
)
_POSSIBLE = 0.02  # share of the product that each cell has at least, so that none is ruled out; as of other joints
_TINY = 1e-12  # keeps divisions finite


@dataclass(frozen=True)
class Cut:
    """Where an ordered column is cut in two.

    Attributes:
        ordered: Number of its leading codes that are intervals, in order; the others have no sign.
        at: Number of codes below the cut.
    """

    ordered: int
    at: int

    @classmethod
    def nearest_median(cls, counts: Array, ordered: int) -> Cut | None:
        """Return the cut that halves the rows best; None of a column without two ordered codes.

        Args:
            counts: Clean one-way counts.
            ordered: Number of leading codes that are intervals; a list of two values has an order, too.
        """
        ordered = len(counts) if len(counts) == 2 else ordered  # noqa: PLR2004
        if ordered < 2:  # noqa: PLR2004
            return None
        below = np.cumsum(counts[:ordered])[:-1] / max(float(counts[:ordered].sum()), _TINY)
        return cls(ordered, int(np.argmin(np.abs(below - 0.5))) + 1)

    def signs(self, size: int) -> Numbers:
        """Return the sign of each of ``size`` codes."""
        signs = np.zeros(size, dtype=np.int64)
        signs[: self.at], signs[self.at : self.ordered] = -1, 1
        return signs


@dataclass(frozen=True)
class SignSums:
    """Released sums over rows of the products of the signs of two columns.

    Attributes:
        cuts: Column -> its cut, for at least two columns.
        sums: Of each pair of columns, in the order of `itertools.combinations`, in rows.
        sigma: Standard deviation of the noise of each sum.
    """

    cuts: Mapping[str, Cut]
    sums: Array
    sigma: float

    def joints(self, clean: Mapping[str, Array], most: int | None = None) -> dict[Pair, Array]:
        """Return counts of pairs with the columns' own marginals: by the copula, and of two values each as they are.

        Args:
            clean: Clean one-way counts with one total.
            most: How many of either kind at most: the strongest.
        """
        bits = pairs_of_bits(clean, self.cuts)
        found = {} if len(bits) == len(self.sums) else self.copula(clean).joints(most=most)
        excess = dict(zip(combinations(self.cuts, 2), self._excess(clean), strict=True)) if bits else {}
        strongest = sorted(bits, key=lambda pair: -abs(excess[pair]))[:most]
        of_bits = {(a, b): joint_of_bits(clean[a], clean[b], float(excess[a, b])) for a, b in strongest}
        return {**found, **of_bits}

    def copula(self, clean: Mapping[str, Array]) -> Copula:
        """Return the copula that these sums speak for, given clean one-way counts with one total."""
        held, below = self._halves(clean)
        first, second = np.triu_indices(len(self.cuts), 1)
        correlations = np.eye(len(self.cuts))
        excess = self._excess(clean) / (held[first] * held[second])
        correlations[first, second] = _correlation(
            scipy.special.ndtri(below[first]), scipy.special.ndtri(below[second]), excess
        )
        correlations[second, first] = correlations[first, second]
        values, vectors = np.linalg.eigh(correlations)
        positive = (vectors * np.maximum(values, _EIGENVALUE)) @ vectors.T
        deviations = np.sqrt(np.diag(positive))
        return Copula(self.cuts, clean, positive / np.outer(deviations, deviations))

    def _halves(self, clean: Mapping[str, Array]) -> tuple[Array, Array]:
        held, below = zip(*(_halves(clean[name], cut) for name, cut in self.cuts.items()), strict=True)
        return np.array(held), np.array(below)

    def _excess(self, clean: Mapping[str, Array]) -> Array:
        """Return the mean products of signs beyond those of independent columns, denoised."""
        held, below = self._halves(clean)
        first, second = np.triu_indices(len(self.cuts), 1)
        total, means = _total(clean, self.cuts), held * (1 - 2 * below)
        return _denoised(self.sums / total - means[first] * means[second], self.sigma / total, len(self.cuts))


def pairs_of_bits(clean: Mapping[str, Array], cuts: Mapping[str, Cut]) -> list[Pair]:
    """Return the pairs of columns of two codes each: their sign product is all there is to know beside marginals."""
    return list(combinations((name for name in cuts if len(clean[name]) == 2), 2))  # noqa: PLR2004


def joint_of_bits(first: Array, second: Array, excess: float) -> Array:
    """Return counts of two columns of two codes with their own marginals, no cell below a small share of the product.

    Args:
        first: Clean counts of the first column.
        second: Clean counts of the second column, with the same total.
        excess: Mean product of their signs beyond that of independent columns.
    """
    total = max(float(first.sum()), _TINY)
    product, sign = np.outer(first, second) / total, np.array([[1.0, -1.0], [-1.0, 1.0]])
    room = (1 - _POSSIBLE) * product
    return product + sign * float(np.clip(excess * total / 4, -room[sign > 0].min(), room[sign < 0].min()))


def sign_noise(clean: Mapping[str, Array], cuts: Mapping[str, Cut], sigma: float) -> float:
    """Return the mean standard deviation of the correlations that sums with this noise speak for, near 0."""
    total = _total(clean, cuts)
    steep = []
    for name, cut in cuts.items():
        held, below = _halves(clean[name], cut)
        steep.append(held * 2 * np.exp(-(scipy.special.ndtri(below) ** 2) / 2) / np.sqrt(2 * np.pi))
    return float(np.mean([sigma / total / max(a * b, _TINY) for a, b in combinations(steep, 2)]))


@dataclass(frozen=True)
class Copula:
    """Correlations of normal variables of which ordered columns show intervals.

    Attributes:
        cuts: Column -> its cut.
        clean: Clean one-way counts of the columns.
        correlations: Shape (columns, columns).
    """

    cuts: Mapping[str, Cut]
    clean: Mapping[str, Array]
    correlations: Array

    def joints(self, pairs: Sequence[Pair] | None = None, most: int | None = None) -> dict[Pair, Array]:
        """Return counts of pairs with the columns' own marginals; codes without order are independent of the other.

        Args:
            pairs: Those wanted, of which those that are faint or not covered are left out; None for all.
            most: How many at most: the strongest.
        """
        place = {name: index for index, name in enumerate(self.cuts)}
        wanted = list(combinations(place, 2)) if pairs is None else [p for p in pairs if set(p) <= place.keys()]
        strength = {(a, b): float(self.correlations[place[a], place[b]]) for a, b in wanted}
        strongest = sorted(strength, key=lambda pair: -abs(strength[pair]))[:most]
        return {pair: self._joint(*pair, strength[pair]) for pair in strongest if abs(strength[pair]) > _FAINT}

    def _joint(self, first: str, second: str, correlation: float) -> Array:
        ordered = self.cuts[first].ordered, self.cuts[second].ordered
        return joint_by_copula(self.clean[first], self.clean[second], *ordered, correlation)


def joint_by_copula(first: Array, second: Array, rows: int, columns: int, correlation: float) -> Array:
    """Return counts of two columns with their own marginals, by a Gaussian copula of their ordered codes.

    Args:
        first: Clean counts of the first column.
        second: Clean counts of the second column, with the same total.
        rows: How many leading codes of the first are intervals, in order; the others are independent of the second.
        columns: The same of the second.
        correlation: Of the normal variables, at most `LARGEST` in size.
    """
    joint = np.outer(first, second) / max(float(first.sum()), _TINY)
    part = joint[:rows, :columns]
    load = np.sqrt(abs(correlation))
    one = _given_factor(first[:rows], load)
    other = _given_factor(second[:columns], load * np.sign(correlation))
    joint[:rows, :columns] = part.sum() * (one * _WEIGHTS) @ other.T
    return joint


def _total(clean: Mapping[str, Array], names: Iterable[str]) -> float:
    return max(float(np.mean([clean[name].sum() for name in names])), 1.0)


def _halves(counts: Array, cut: Cut) -> tuple[float, float]:
    """Return the share of rows with a sign, and of these the share below the cut, strictly between 0 and 1."""
    held = float(counts[: cut.ordered].sum())
    below = float(counts[: cut.at].sum()) / max(held, _TINY)
    return max(held / max(float(counts.sum()), _TINY), _TINY), float(np.clip(below, 1e-6, 1 - 1e-6))


def _given_factor(counts: Array, load: float) -> Array:
    """Return the probability of each code given the common factor, shape (codes, values of the factor)."""
    edges = scipy.special.ndtri(np.clip(np.cumsum(counts)[:-1] / max(float(counts.sum()), _TINY), 0.0, 1.0))
    below = scipy.special.ndtr((edges[:, None] - load * _FACTOR) / np.sqrt(1 - load**2))
    return np.diff(below, axis=0, prepend=0.0, append=1.0)


def _correlation(first: Array, second: Array, excess: Array) -> Array:
    """Return the correlations for which signs cut at normal quantiles agree by so much more than independent ones.

    P(both below) - Φ(h)Φ(k) = ∫₀^asin ρ exp(-(h² + k² - 2hk sin θ) / (2 cos² θ)) dθ / 2π (Sheppard 1899), and the mean
    product of the signs is 4 times that beyond the product of their means.
    """
    h, k = first[:, None], second[:, None]
    density = np.exp(-(h**2 + k**2 - 2 * h * k * np.sin(_ANGLES)) / (2 * np.cos(_ANGLES) ** 2)) * 2 / np.pi
    agreement = scipy.integrate.cumulative_trapezoid(density, _ANGLES, axis=1, initial=0.0)
    agreement -= agreement[:, len(_ANGLES) // 2, None]
    angles = [np.interp(e, row, _ANGLES) for e, row in zip(excess, agreement, strict=True)]
    return np.asarray(np.sin(angles))


def _denoised(noisy: Array, sigma: float, columns: int) -> Array:
    """Return numbers above the diagonal of a symmetric matrix, as a mixture of none, themselves and few factors."""
    if sigma <= 0:
        return noisy
    low, rng = _few_factors(noisy, sigma, columns), np.random.default_rng(0)
    probes = rng.normal(size=(_PROBES, len(noisy)))
    step = _STEP * sigma
    moved = [probe @ (_few_factors(noisy + step * probe, sigma, columns) - low) / step for probe in probes]
    estimates = [
        Estimate(np.zeros_like(noisy), 0.0),
        Estimate(noisy, float(len(noisy))),
        Estimate(low, float(np.mean(moved))),
    ]
    return least_risk(estimates, noisy, sigma)


def _few_factors(noisy: Array, sigma: float, columns: int) -> Array:
    """Shrink the eigenvalues of a matrix of which only what is above the diagonal is known.

    Sources: Gavish and Donoho 2017 (the optimal shrinker, here of a symmetric matrix: √(y² - 4) in units of σ√d); the
    diagonal is filled by that of the result (principal factor method, Thomson 1934).
    """
    upper = np.triu_indices(columns, 1)
    matrix = np.zeros((columns, columns))
    matrix[upper] = noisy
    matrix += matrix.T
    scale = sigma * np.sqrt(columns)
    for _ in range(_FILLS):
        values, vectors = np.linalg.eigh(matrix)
        shrunk = np.sign(values) * scale * np.sqrt(np.maximum((values / scale) ** 2 - 4, 0.0))
        low = (vectors * shrunk) @ vectors.T
        np.fill_diagonal(matrix, np.diag(low))
    return np.asarray(low[upper])
