"""Estimate how often parents are referred to, from noisy sums: of private parents by rank, of public ones by row.

Noise hides single parents of the tail, so both estimates fall back on a shape: Poisson references to parents whose
popularity is a power of their rank, from uniform to Zipf's law and beyond, whichever fits the noisy sums best.
Significant counts are kept instead.
"""

from __future__ import annotations

import math

import numpy as np
import scipy
from numpy.typing import NDArray

from privbench_core.estimators.segmentation import PENALTY, segments
from privbench_core.guards import FITTING_ROUNDS, GRID_GROWTH, GRID_POINTS, SMOOTHING, TINY, TOLERANCE

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]


def rank_ends(parents: int) -> Numbers:
    """Return one past the last rank of each block, up to ``parents`` ranks: single ranks first, then growing blocks.

    >>> rank_ends(3).tolist(), rank_ends(200)[-4:].tolist()
    ([1, 2, 3], [185, 190, 195, 200])
    """
    ends = [1]
    while ends[-1] < parents:
        ends.append(min(parents, max(ends[-1] + 1, int(ends[-1] * GRID_GROWTH))))
    return np.array(ends)


def rank_sums(noisy: Array, ends: Numbers, sigma: float, references: float, parents: int) -> Array:
    """Return the references to the parents of each block of ranks, shape (blocks,); their means do not increase.

    Blocks beyond the number of parents hold none.

    Args:
        noisy: Noisy sums, as `RankSums` releases them.
        ends: Of the blocks, see `rank_ends`.
        sigma: Standard deviation of the noise.
        references: Released number of references.
        parents: Number of parents.
    """
    blocks = int(np.searchsorted(ends, max(parents, 1))) + 1
    if blocks < len(ends):
        inside = rank_sums(noisy[:blocks], np.minimum(ends[:blocks], max(parents, 1)), sigma, references, parents)
        return np.append(inside, np.zeros(len(ends) - blocks))
    powers = np.linspace(0.0, 1.6, 9).tolist()  # 0 is uniform, 1 is Zipf's law
    fits = [_fitted(noisy, _shape(ends, references, power, parents), sigma, references) for power in powers]
    least = min(cost for cost, _ in fits)
    found = next(found for cost, found in fits if cost <= least + PENALTY * sigma**2)  # the most even of the best
    sizes = np.diff(ends, prepend=0).astype(np.float64)
    falling = scipy.optimize.isotonic_regression(found / sizes, weights=sizes, increasing=False).x
    return np.asarray(falling * sizes)


def _fitted(noisy: Array, shape: Array, sigma: float, references: float) -> tuple[float, Array]:
    """Return the misfit of ``shape`` once its significant segments are scaled, and the scaled shape.

    The misfit is the sum of squares plus a penalty in noise variances per segment (`segmentation.segments`).
    """
    widths = np.maximum(shape, TOLERANCE * shape.max())
    starts = segments(noisy, sigma, widths)
    counts = np.diff(np.append(starts, len(noisy)))
    # A normal prior on each segment's level, with mean 1 (the shape as it is) and standard deviation 1.
    precision = 1 + np.add.reduceat(widths**2, starts) / sigma**2
    levels = (1 + np.add.reduceat(noisy * widths, starts) / sigma**2) / precision
    cost = ((noisy - widths * np.repeat(levels, counts)) ** 2).sum() + sigma**2 * ((levels - 1) ** 2 + PENALTY).sum()
    sums = np.add.reduceat(widths, starts)
    variances = sums**2 / precision
    levels += (references - levels @ sums) * variances / variances.sum() / sums  # match the total, which is known best
    return float(cost), widths * np.repeat(np.maximum(levels, 0.0), counts)


def row_counts(noisy: Array, sigma: float, references: float) -> Array:
    """Return the references to each row of a public parent, shape (parents,), none below zero.

    Significant rows (heavy hitters) keep their own noisy count. The numbers of references of the others have a
    distribution that is estimated from their noisy counts: the nonparametric maximum likelihood of Kiefer and Wolfowitz
    (1956), by EM from a gamma distribution, so that few rounds leave it smooth where noise says little. The variance of
    that is by the method of moments, averaged with an exponential one's, which is off by as much as itself. Quantiles
    go to these rows in the order of their counts, the triple-goal estimate of Shen and Louis (1998): so they vary as
    much as the true ones. What they have in all is averaged, by inverse variance, of the sum of their counts, and of
    what heavy hitters leave of all references.

    Args:
        noisy: Noisy references to each row.
        sigma: Standard deviation of their noise.
        references: Released number of all references.
    """
    threshold = sigma * stands_out(len(noisy))
    heavy = noisy > threshold
    hidden, share = noisy[~heavy], float(heavy.mean())
    left = share * float(hidden.sum()) + (1 - share) * (references - float(noisy[heavy].sum()))
    result = noisy.copy()
    if left <= 0 or not len(hidden):
        result[~heavy] = 0.0
        return result
    expected, uncertain = left / len(hidden), 2 * sigma**4 / len(hidden)
    seen, exponential = float(hidden.var()) - sigma**2, expected**2
    spread = max((seen * exponential**2 + exponential * uncertain) / (exponential**2 + uncertain), expected)
    values = np.append(0.0, np.geomspace(min(expected, sigma) / 16, max(threshold, expected) + 2 * sigma, GRID_POINTS))
    ends = np.concatenate([[0.0], (values[1:] + values[:-1]) / 2, [np.inf]])
    prior = np.diff(scipy.special.gammainc(exponential / spread, ends * (expected / spread))) + SMOOTHING
    bins, rows = np.unique(np.rint(8 * hidden / sigma), return_counts=True)
    energies = (bins[:, np.newaxis] / 8 - values / sigma) ** 2 / 2
    likelihoods = np.exp(energies.min(axis=1, keepdims=True) - energies)
    for _ in range(FITTING_ROUNDS):
        prior = prior * ((rows / (likelihoods @ prior)) @ likelihoods) / len(hidden)
    levels = (np.arange(len(hidden)) + 0.5) / len(hidden)
    quantiles = values[np.minimum(np.searchsorted(np.cumsum(prior), levels), GRID_POINTS)]
    total = float(quantiles.sum())
    by_rank = quantiles * (left / total) if total > 0 else np.full(len(hidden), expected)
    result[np.flatnonzero(~heavy)[np.argsort(hidden, kind="stable")]] = by_rank
    return result


def zipf(ends: Numbers) -> Array:
    """Return the share of references to each block of ranks under Zipf's law, shape (blocks,).

    Args:
        ends: One past the last rank of each block.
    """
    below = np.cumsum(1 / np.arange(1, int(ends[-1]) + 1))[ends - 1]
    return np.asarray(np.diff(below, prepend=0.0) / below[-1])


def stands_out(parents: int) -> float:
    """Return the standard deviations of noise that it hardly exceeds in any of so many rows.

    >>> round(stands_out(1000), 1)
    4.7
    """
    return math.sqrt(2 * math.log(max(parents, 2))) + 1


def truncated_mean(noisy: float, sigma: float, most: float) -> float:
    """Return the mean of a normal distribution of which only what is from 0 to ``most`` is possible.

    As an estimate of how many of ``most`` rows there are, it is about half of them as far as noise hides it, and seldom
    all or none: noisy numbers cut at both ends would leave either nobody or everybody.

    >>> round(truncated_mean(0.0, 1.0, math.inf), 2), round(truncated_mean(20.0, 1e6, 59.0), 1)
    (0.8, 29.5)
    """
    first, last = (min(max(noisy + far * sigma, 0.0), most) for far in (-8, 8))
    likely = np.linspace(first, last, GRID_POINTS)
    apart = ((likely - noisy) / max(sigma, TINY)) ** 2 / 2
    return float(np.average(likely, weights=np.exp(apart.min() - apart)))


def _shape(ends: Numbers, references: float, exponent: float, parents: int) -> Array:
    """Return the expected references to each block of ranks, if the i-th parent is chosen in proportion to i^-exponent.

    The sum of the L largest of some numbers is Σ over k ≥ 1 of min(L, number of them that are at least k).
    """
    ranks = rank_ends(parents)
    sizes = np.diff(ranks, prepend=0).astype(np.float64)
    popularity = (ranks - (sizes - 1) / 2) ** -exponent
    means = popularity * references / (popularity @ sizes)
    most = float(means.max())
    steps = np.append(0, rank_ends(math.ceil(most + 8 * math.sqrt(most) + 8)))  # hardly any Poisson number is larger
    at_least = scipy.special.gammainc(steps[:-1, None] + 1, means[None, :]) @ sizes  # P[Poisson(m) > k], by k
    tops = np.minimum(ends[:, None], at_least[None, :]) @ np.diff(steps)
    return np.asarray(np.diff(tops, prepend=0.0))
