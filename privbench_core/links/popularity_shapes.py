"""Estimate how often parents are referred to, from noisy sums: by rank, by row, and with a bound on each parent.

Private parents are known by their rank, public ones by their row, and parents along keys that become NULL by totals in
which none counts more than some bound.

Noise hides single parents of the tail, so both estimates fall back on a shape: Poisson references to parents whose
popularity is a power of their rank, from uniform to Zipf's law and beyond, whichever fits the noisy sums best.
Significant counts are kept instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import scipy

from privbench_core.arrays import Array, Numbers
from privbench_core.estimators.segmentation import PENALTY, segments
from privbench_core.guards import (
    BOUND_STEP,
    FITTING_ROUNDS,
    GRID_POINTS,
    NEGLIGIBLE,
    SMOOTHING,
    TINY,
    TOLERANCE,
)


def rank_ends(parents: int) -> Numbers:
    """Return one past the last rank of each block, up to ``parents`` ranks: single ranks first, then growing blocks.

    >>> rank_ends(3).tolist(), rank_ends(200)[-4:].tolist()
    ([1, 2, 3], [185, 190, 195, 200])
    """
    ends = [1]
    while ends[-1] < parents:
        ends.append(min(parents, max(ends[-1] + 1, int(ends[-1] * 1.03))))  # large numbers grow by 3%
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


def rows_without_reference(noisy: float, sigma: float, rows: float) -> float:
    """Return how many of ``rows`` rows refer to none, given a noisy number.

    Many keys that may be NULL never are. So either all rows refer to some row, or any number from 0 on refers to none,
    each with a prior probability of a half: where the former explains the noisy number better, it is taken to be true.

    >>> [round(rows_without_reference(noisy, 10.0, 1000.0)) for noisy in (-5.0, 20.0, 40.0, 200.0)]
    [0, 0, 40, 200]
    """
    apart = noisy / max(sigma, TINY)
    no_nulls = scipy.stats.norm.logpdf(apart) + math.log(max(rows, TINY) / max(sigma, TINY))
    return 0.0 if no_nulls > scipy.stats.norm.logcdf(apart) else truncated_mean(noisy, sigma, rows)


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


def extrapolated(noisy: Array, sigmas: Array, bounds: Sequence[float] | Array, most: tuple[float, float]) -> Array:
    """Return the totals with each bound, shape (bounds,), from noisy ones with the first of them.

    From one bound to the next, fewer parents are left that have so many references: what is added per reference
    decreases. Where noise hides how, it is taken to go on as between the last two bounds; and where it hides all of it,
    the last total is about half of what it can be.

    Args:
        noisy: Totals with the first bounds, shape (k,).
        sigmas: Standard deviations of their noise, shape (k,).
        bounds: None below the one before, or more than 4 times as large; equal ones count the same references.
        most: What the first total cannot exceed, and what none can.
    """
    usual = typical = 0.5  # between parents alike (0) and the tail of Zipf's law (1)
    half, noise = most[1] / 2, float(sigmas[0]) ** 2
    times = np.array(bounds[1:]) / np.array(bounds[:-1])
    for _ in range(2):  # where the first total is below the noise, parents are taken to be more similar
        half = most[1] / 2 / (1 + float(usual ** np.arange(1, len(bounds)) @ _part(usual, times)))
        usual = typical * half**2 / max(half**2 + noise, NEGLIGIBLE)
    spread = half**2  # off by as much as itself, as a rule
    first = (float(noisy[0]) * spread + half * noise) / max(spread + noise, NEGLIGIBLE)
    variance = noise * spread / max(spread + noise, NEGLIGIBLE)
    totals = [truncated_mean(first, math.sqrt(variance), min(most))]
    added, width, ratio = totals[0], bounds[0], usual
    for place in range(1, len(bounds)):
        wider, part = bounds[place] - bounds[place - 1], float(_part(ratio, times[place - 1]))
        largest = min(added * wider / max(width, NEGLIGIBLE), most[1] - totals[-1])
        step = likely = min(added * ratio * part, largest)
        if place < len(noisy):
            prior, noise = max(likely, NEGLIGIBLE) ** 2, float(sigmas[place]) ** 2
            seen = float(noisy[place]) - totals[-1]
            every = prior + noise + variance
            step = (seen * prior + likely * (noise + variance)) / every
            step = min(truncated_mean(step, math.sqrt(prior * (noise + variance) / every), math.inf), largest)
            variance = 1 / (1 / max(noise, NEGLIGIBLE) + 1 / (variance + prior))
            ratio = (min(step / max(added * part, NEGLIGIBLE), 1.0) + usual) / 2
        totals.append(totals[-1] + step)
        added, width = step, wider
    return np.array(totals)


def _part(ratio: float, times: Array | float) -> Array:
    """Return what a bound that is so many times as large adds, as a share of what one adds that is 4 times as large.

    >>> _part(0.5, np.array([1.0, 2.0, 4.0])).round(2).tolist(), _part(1.0, 2.0).round(2).tolist()
    ([0.0, 0.59, 1.0], 0.5)
    """
    falling = max(-math.log(max(ratio, NEGLIGIBLE)) / math.log(BOUND_STEP), NEGLIGIBLE)  # exponent of a power law
    return np.asarray(np.expm1(-falling * np.log(times)) / np.expm1(-falling * math.log(BOUND_STEP)))


def unbounded_means(bounded: Array, bound: float) -> Array:
    """Return the means of exponential degrees of which at most ``bound`` count of each, from the means of what counts.

    Args:
        bounded: Means of what counts, of any shape; noise may have moved them beyond what is possible.
        bound: Above 0.

    >>> unbounded_means(np.array([0.0, 1.0, 10 * (1 - np.exp(-2.0))]), 20.0).round(3).tolist()
    [0.0, 1.0, 10.0]
    """
    in_means = np.geomspace(1 / BOUND_STEP**1.5, 1 / TOLERANCE, GRID_POINTS)  # bounds; no mean is beyond the next two
    counted = -np.expm1(-in_means) / in_means  # descending
    shares = np.maximum(bounded / bound, TINY)
    return np.asarray(bound / np.exp(np.interp(-np.log(shares), -np.log(counted), np.log(in_means))) * (bounded > 0))


def ranked(bounds: Array, totals: Array, ends: Numbers, alike: float) -> Array:
    """Return the references to parents in blocks of ranks, shape (blocks,), the most popular first.

    Args:
        bounds: Numbers of references, ascending.
        totals: Of references, where none of the groups of parents counts more than each bound; shape (bounds,).
        ends: One past the last rank of each block.
        alike: Parents of each group.
    """
    lower = np.append(0.0, bounds[:-1])
    parents = np.diff(totals, prepend=0.0) / (bounds - lower)  # that have so many references, on average in each step
    parents = np.minimum.accumulate(parents) * alike
    degree = np.sqrt(np.maximum(lower, 1.0) * bounds)
    ranks = np.arange(1, int(ends[-1]) + 1, dtype=np.float64)
    falling = np.log(np.maximum(parents, NEGLIGIBLE))[::-1]
    degrees = np.exp(np.interp(np.log(ranks - 0.5), falling, np.log(degree)[::-1]))
    degrees[ranks > np.ceil(parents[0])] = 0.0
    degrees *= totals[-1] / max(float(degrees.sum()), NEGLIGIBLE)
    return np.add.reduceat(degrees, np.append(0, ends[:-1]))
