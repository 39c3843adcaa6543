"""Copulas of ordered columns: Gaussian ones from noisy sums of products of signs, and the one nearest to noisy counts.

Each ordered column is cut in two near its median; a row has the sign -1 below the cut and +1 above it. The mean product
of the signs of two columns says how they are correlated (Sheppard 1899: E[s t] = (2/π) asin ρ at the medians). Of all
scores that a bound of one row's influence allows, signs lose least to noise: with |s| ≤ b, E[s z] of a normal z is at
most b E|z|. The whole matrix is denoised before it is used.

A joint may also be measured over groups of neighbouring codes (`coarsening`), the rare ones of a tail in one. Columns
that depend on each other over groups of neighbours do so within them, too. A Gaussian copula has no dependence left in
the tails, so a join of two heavy-tailed numbers is too small by half; where both grow with something common, an
extreme-value copula holds, so Gumbel's (1960) is tried with either tail of each column. Post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
import scipy

from privbench_core.arrays import Array, Numbers
from privbench_core.estimators.segmentation import SIGNIFICANT
from privbench_core.guards import (
    BLOCK_ROWS,
    MAX_CORRELATION,
    NORMAL_REACH,
    SETTLING_ROUNDS,
    SMOOTHING,
    TINY,
    TOLERANCE,
)
from privbench_core.stored import Storable
from privbench_core.tuning import TUNING

Pair = tuple[str, str]
_GRID = np.linspace(-1, 1, 129)  # an odd number: 0 is one of them
_ANGLES = np.arcsin(MAX_CORRELATION) * _GRID
_FACTOR = NORMAL_REACH * _GRID  # values of a common normal factor, and their weights
_WEIGHTS = np.exp(-(_FACTOR**2) / 2) / np.exp(-(_FACTOR**2) / 2).sum()


@dataclass(frozen=True)
class Cut(Storable):
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
        below = np.cumsum(counts[:ordered])[:-1] / max(float(counts[:ordered].sum()), SMOOTHING)
        return cls(ordered, int(np.argmin(np.abs(below - 0.5))) + 1)

    def signs(self, size: int) -> Numbers:
        """Return the sign of each of ``size`` codes."""
        return np.repeat(np.array([-1, 1, 0]), [self.at, self.ordered - self.at, size - self.ordered])

    def halves(self, counts: Array) -> tuple[float, float]:
        """Return the share of rows with a sign, and of these the share below the cut, strictly between 0 and 1."""
        held = float(counts[: self.ordered].sum())
        below = float(counts[: self.at].sum()) / max(held, SMOOTHING)
        share = held / max(float(counts.sum()), SMOOTHING)
        return max(share, SMOOTHING), min(max(below, TOLERANCE), 1 - TOLERANCE)


@dataclass(frozen=True)
class SignSums(Storable):
    """Released sums over rows of the products of the signs of two columns.

    Attributes:
        cuts: Column -> its cut, for at least two columns.
        sums: Of each pair of columns, in the order of `itertools.combinations`, in rows.
        sigma: Standard deviation of the noise of each sum.
    """

    cuts: Mapping[str, Cut]
    sums: Array
    sigma: float

    def joints(self, clean: Mapping[str, Array]) -> dict[Pair, Array]:
        """Return counts of pairs with the columns' own marginals; codes without order are independent of the other.

        The strongest pairs only, and none that is as good as independent.

        Args:
            clean: Clean one-way counts with one total.
        """
        pairs, found = list(combinations(self.cuts, 2)), self.correlations(clean)
        # Rows take time to fit to each joint.
        strongest = [i for i in np.argsort(-np.abs(found))[:500] if abs(found[i]) > TUNING.floor]
        joints = {}
        for a, b in (pairs[i] for i in strongest):
            ordered = self.cuts[a].ordered, self.cuts[b].ordered
            joints[a, b] = joint_by_copula(clean[a], clean[b], *ordered, float(found[pairs.index((a, b))]))
        return joints

    def correlations(self, clean: Mapping[str, Array]) -> Array:
        """Return the denoised correlation of each pair, shape of `sums`, given clean one-way counts with one total."""
        held, below = np.array([cut.halves(clean[name]) for name, cut in self.cuts.items()]).T
        first, second = np.triu_indices(len(self.cuts), 1)
        total, means = float(np.mean([clean[name].sum() for name in self.cuts])), held * (1 - 2 * below)
        total = max(total, 1.0)
        excess = few_factors(self.sums / total - means[first] * means[second], self.sigma / total, len(self.cuts))
        quantiles = scipy.special.ndtri(below)
        return _correlation(quantiles[first], quantiles[second], excess / (held[first] * held[second]))


def sign_noise(clean: Mapping[str, Array], cuts: Mapping[str, Cut], sigma: float) -> float:
    """Return the mean standard deviation of the correlations that sums with this noise speak for, near 0."""
    total = max(float(np.mean([clean[name].sum() for name in cuts])), 1.0)
    steep = []
    for name, cut in cuts.items():
        held, below = cut.halves(clean[name])
        steep.append(held * 2 * np.exp(-(scipy.special.ndtri(below) ** 2) / 2) / np.sqrt(2 * np.pi))
    return float(np.mean([sigma / total / max(a * b, SMOOTHING) for a, b in combinations(steep, 2)]))


def joint_by_copula(first: Array, second: Array, rows: int, columns: int, correlation: float) -> Array:
    """Return counts of two columns by a Gaussian copula of their ordered codes; others are independent.

    Args:
        first: Clean counts of the first column.
        second: Clean counts of the second column, with the same total.
        rows: How many leading codes of the first are intervals, in order.
        columns: The same of the second.
        correlation: Of the normal variables, at most `MAX_CORRELATION` in size.
    """
    joint = np.outer(first, second) / max(float(first.sum()), SMOOTHING)
    part = joint[:rows, :columns]
    load = np.sqrt(abs(correlation))
    one = _given_factor(first[:rows], load)
    other = _given_factor(second[:columns], load * np.sign(correlation))
    joint[:rows, :columns] = part.sum() * (one * _WEIGHTS) @ other.T
    return joint


def _given_factor(counts: Array, load: float) -> Array:
    """Return the probability of each code given the common factor, shape (codes, values of the factor)."""
    edges = scipy.special.ndtri(np.clip(np.cumsum(counts)[:-1] / max(float(counts.sum()), SMOOTHING), 0.0, 1.0))
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


def few_factors(noisy: Array, sigma: float, columns: int) -> Array:
    """Shrink the eigenvalues of a symmetric matrix of which only what is above the diagonal is known.

    Sources: Gavish and Donoho 2017 (the optimal shrinker, here of a symmetric matrix: √(y² - 4) in units of σ√d); the
    diagonal is filled by that of the result (principal factor method, Thomson 1934).

    Args:
        noisy: Above the diagonal, row by row.
        sigma: Standard deviation of the noise of each.
        columns: d, of the matrix.
    """
    if sigma <= 0:
        return noisy
    upper = np.triu_indices(columns, 1)
    matrix = np.zeros((columns, columns))
    matrix[upper] = noisy
    matrix += matrix.T
    scale = sigma * np.sqrt(columns)
    for _ in range(SETTLING_ROUNDS):
        values, vectors = np.linalg.eigh(matrix)
        shrunk = np.sign(values) * scale * np.sqrt(np.maximum((values / scale) ** 2 - 4, 0.0))
        low = (vectors * shrunk) @ vectors.T
        np.fill_diagonal(matrix, np.diag(low))
    return np.asarray(low[upper])


def nearest_copula(
    noisy: Array,
    sigma: float,
    groups: tuple[Numbers, ...],
    clean: tuple[Array, Array],
    ordered: tuple[int, int],
) -> Array | None:
    """Return counts of all codes by the copula that is nearest to a measured joint, None if noise explains it.

    Args:
        noisy: Counts, of groups of codes where there are ``groups``.
        sigma: Standard deviation of the noise of each.
        groups: Group of each code of both columns, or none.
        clean: Clean counts of both columns, with one total.
        ordered: How many of their leading codes are intervals, in order; others are independent of the other column.
    """
    if min(ordered) < 3:  # noqa: PLR2004 - of two codes there is nothing to interpolate
        return None
    best, least, off = np.zeros(0), np.inf, np.inf
    variance = sigma**2 + TINY
    for joints in _copulas(clean, ordered):
        merged = _merged(joints, groups)
        squares = (merged - noisy) ** 2
        distances = (squares / (variance + (TUNING.clear * merged) ** 2)).sum(axis=(1, 2))
        index = int(np.argmin(distances))
        if distances[index] < least:
            best, least, off = joints[index], distances[index], (squares[index] / variance).sum()
    independent = np.outer(*clean) / max(float(clean[0].sum()), TINY)
    explained = ((_merged(independent, groups) - noisy) ** 2 / variance).sum() - off
    return best if explained > SIGNIFICANT**2 else None


def _merged(joints: Array, groups: Sequence[Numbers]) -> Array:
    """Return counts over groups, given those of codes: `merge_codes` of the last two axes of many joints, fast."""
    for axis, group_of in zip((-2, -1), groups, strict=False):
        if np.array_equal(group_of, np.arange(len(group_of))):
            continue
        order = np.argsort(group_of, kind="stable")
        starts = np.flatnonzero(np.diff(group_of[order], prepend=-1))
        joints = np.add.reduceat(np.take(joints, order, axis), starts, axis=axis)
    return joints


def _copulas(clean: tuple[Array, Array], ordered: tuple[int, int]) -> Iterator[Array]:
    """Yield joints by all copulas that are tried, a few at a time: shape (some, codes, codes)."""
    steps = 41  # of a Gaussian copula, and of others as many; odd: no correlation is one of them
    for angle in math.asin(MAX_CORRELATION) * np.linspace(-1, 1, steps):
        yield joint_by_copula(*clean, *ordered, math.sin(angle))[None]
    several = max(1, BLOCK_ROWS // (len(clean[0]) * len(clean[1])))
    exponents = 1 / (1 - np.linspace(0, 1, steps, endpoint=False)[1:])  # evenly spaced by Kendall's τ
    for tails in product((1, -1), (1, -1)):
        for start in range(0, len(exponents), several):
            yield _joints_by_gumbel(*clean, *ordered, exponents[start : start + several], tails)


def _joints_by_gumbel(
    first: Array, second: Array, rows: int, columns: int, exponents: Array, tails: tuple[int, int]
) -> Array:
    """Return what `joint_by_copula` does, by Gumbel's copulas: shape (exponents, codes, codes).

    Exponents are from 1 (independent); tails are 1 for a column whose last codes depend on the other most, else -1.
    """
    independent = np.outer(first, second) / max(float(first.sum()), TINY)
    sides = zip((first[:rows], second[:columns]), tails, strict=True)
    one, other = (_depth(counts[::tail]) ** exponents[:, None] for counts, tail in sides)
    below = np.exp(-((one[:, :, None] + other[:, None, :]) ** (1 / exponents[:, None, None])))
    cells = np.diff(np.diff(below, axis=1, prepend=0.0), axis=2, prepend=0.0)
    joints = np.repeat(independent[None], len(exponents), axis=0)
    joints[:, :rows, :columns] = (
        independent[:rows, :columns].sum() * np.maximum(cells, 0.0)[:, :: tails[0], :: tails[1]]
    )
    return joints


def _depth(counts: Array) -> Array:
    """Return minus the logarithm of the distribution function at the end of each code."""
    share = np.cumsum(counts) / max(float(counts.sum()), TINY)
    share[-1] = 1.0
    return np.asarray(-np.log(np.clip(share, TINY, 1.0)))
