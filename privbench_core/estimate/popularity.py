"""Estimate how often parents are referred to, from noisy sums: of private parents by rank, of public ones by row.

Noise hides single parents of the tail, so both estimates fall back on a shape: Poisson references to parents whose
popularity is a power of their rank, from uniform to Zipf's law and beyond, whichever fits the noisy sums best.
Significant counts are kept instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import scipy
from numpy.typing import NDArray

from privbench_core.estimate.segmentation import PENALTY, segments

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]
# Of the ranks and the shapes, chosen by hand.
_GROWTH = 1.03  # of blocks of ranks: parents that share a block differ by few references
_EXPONENTS = tuple(tenth / 10 for tenth in range(17))  # 0 is uniform, 1 is Zipf's law
_TOLERANCE = 4.0  # noise variances by which a more even shape may fit worse
# Of the grids of ranks and degrees that a shape is computed on, chosen by hand for time.
_RANKS = 120  # ranks, geometrically spaced
_SINGLE_DEGREES = 100  # degrees one by one; larger ones grow by the next factor
_DEGREE_GROWTH = 1.05  # at most 2.5% off in the middle of a step
# Of the degrees of public rows that noise hides, chosen by hand.
_LEVEL = 1.1  # factor between two degrees
_SMALL = 1e-3  # references that count as none
_STEEPEST, _HALVINGS = 20.0, 40  # of the power of a share that its odds are, and of the interval that it is found in
_BLOCK = 1 << 14  # parents at a time, to bound memory
_PARTS = 6  # shares of a parent's references that a closer look may count, from the least to all
_GOLDEN = (math.sqrt(5) - 1) / 2  # multiples modulo 1 are evenly spread
_SPREAD, _LIKELY = 8, 1001  # standard deviations of noise, and numbers among them, that an average is over
_FAR = 1e9  # standard deviations; keeps squares finite
_TINY = float(np.finfo(np.float64).tiny) * 1e16  # keeps divisions finite


@dataclass(frozen=True)
class CloserLook:
    """References to the same rows once more: at less noise, and counting fewer of those from units with many rows.

    Attributes:
        noisy: Noisy references to each row that count, shape (parents,).
        sigma: Standard deviation of their noise.
        least: Share of a parent's references that count where all are from units with many rows.
        mean: Share of all references that count.
    """

    noisy: Array
    sigma: float
    least: float
    mean: float

    def energies(self, parents: Numbers, references: Array) -> Array:
        """Return by how much the look speaks against each number of references, as a negative log-likelihood.

        Which share of a parent's references counts is not known: one from the least to all, as likely as a power of it
        with which the mean is what it is.

        Args:
            parents: Of the rows that are asked about, shape (n,).
            references: Their numbers of references, shape (n, values).
        """
        likely: Array = np.zeros(references.shape)
        for part, odds in zip(*self._parts(), strict=True):
            off = np.minimum(np.abs(self.noisy[parents, None] - part * references) / self.sigma, _FAR)
            likely += odds * np.exp(-(off**2) / 2)
        return np.asarray(-np.log(np.maximum(likely, _TINY)))

    def _parts(self) -> tuple[Array, Array]:
        """Shares that may count, and their odds."""
        parts = np.geomspace(self.least, 1.0, _PARTS)
        low, high = -_STEEPEST, _STEEPEST
        for _ in range(_HALVINGS):
            power = (low + high) / 2
            odds = (parts / self.mean) ** power
            odds /= odds.sum()
            low, high = (power, high) if float(odds @ parts) < self.mean else (low, power)
        return parts, odds


def rank_ends(parents: int) -> Numbers:
    """Return one past the last rank of each block, up to ``parents`` ranks: single ranks first, then growing blocks.

    >>> rank_ends(3).tolist(), rank_ends(200)[-4:].tolist()
    ([1, 2, 3], [185, 190, 195, 200])
    """
    ends = [1]
    while ends[-1] < parents:
        ends.append(min(parents, max(ends[-1] + 1, int(ends[-1] * _GROWTH))))
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
    fits = [_fitted(noisy, _shape(ends, references, power, parents), sigma, references) for power in _EXPONENTS]
    least = min(cost for cost, _ in fits)
    found = next(found for cost, found in fits if cost <= least + _TOLERANCE * sigma**2)  # the most even of the best
    sizes = np.diff(ends, prepend=0).astype(np.float64)
    falling = scipy.optimize.isotonic_regression(found / sizes, weights=sizes, increasing=False).x
    return np.asarray(falling * sizes)


def _fitted(noisy: Array, shape: Array, sigma: float, references: float) -> tuple[float, Array]:
    """Return the misfit of ``shape`` once its significant segments are scaled, and the scaled shape.

    The misfit is the sum of squares plus a penalty in noise variances per segment (`segmentation.segments`).
    """
    widths = np.maximum(shape, 1e-6 * shape.max())
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


def row_counts(
    noisy: Array,
    sigma: float,
    group_of: Numbers,
    groups: tuple[Array, float],
    ranked: tuple[Array, Array],
    references: float,
    closer: Sequence[CloserLook] = (),
) -> Array:
    """Return the references to each row of a public parent, shape (parents,), none below zero.

    Significant rows (heavy hitters) keep their own noisy count. Each other row gets one draw from its posterior under
    the released shape, scaled to its group: these rows then vary as much as the true ones, though not row by row.

    Args:
        noisy: Noisy references to each row.
        sigma: Standard deviation of their noise.
        group_of: Group of each row.
        groups: Noisy references to each group, and the standard deviation of their noise.
        ranked: References per parent of each block of ranks, and the number of its parents.
        references: Released number of all references.
        closer: Where units with many rows may refer to other rows than those with few: the latter in more detail.
    """
    parents = len(noisy)
    threshold = sigma * stands_out(parents)
    heavy = noisy > threshold
    values, numbers = _levels(*_cut_to(parents, *ranked))
    below = np.clip(np.cumsum(numbers) - heavy.sum(), 0.0, numbers)  # parents of lower ranks than the heavy hitters
    left = _left_by(noisy[heavy], sigma, float(values @ below), references)
    remaining, members = _remaining_by_group(noisy, sigma, group_of, groups, heavy, left)
    numbers = numbers * scipy.special.ndtr((threshold - values) / sigma)  # expected number of them below the threshold
    mean = float(values @ numbers) / max(float(numbers.sum()), _TINY)
    relative = remaining / np.maximum(members, 1) / max(mean, _TINY)
    drawn = np.maximum(noisy, 0.0)
    hidden = np.flatnonzero(~heavy)
    uniform = (np.arange(1, len(hidden) + 1) * _GOLDEN) % 1.0  # deterministic: a release follows from its noise
    for start in range(0, len(hidden), _BLOCK):
        block = hidden[start : start + _BLOCK]
        scaled = relative[group_of[block], None] * values
        energy = np.minimum(np.abs(noisy[block, None] - scaled) / sigma, _FAR) ** 2 / 2
        for look in closer:
            energy += look.energies(block, scaled)
        posterior = numbers * np.exp(energy.min(axis=1, keepdims=True) - energy)
        cumulated = np.cumsum(posterior, axis=1)
        chosen = (cumulated < uniform[start : start + _BLOCK, None] * cumulated[:, -1:]).sum(axis=1)
        drawn[block] = scaled[np.arange(len(block)), np.minimum(chosen, len(values) - 1)]
    sums = np.bincount(group_of, np.where(heavy, 0.0, drawn))
    even = remaining / np.maximum(members, 1)
    factor = np.divide(remaining, sums, out=np.zeros_like(remaining), where=sums > 0)[group_of]
    return np.where(heavy, drawn, np.where(sums[group_of] > 0, drawn * factor, even[group_of]))


def stands_out(parents: int) -> float:
    """Return the standard deviations of noise that it hardly exceeds in any of so many rows.

    >>> round(stands_out(1000), 1)
    4.7
    """
    return math.sqrt(2 * math.log(max(parents, 2))) + 1


def some_of_all(noisy: float, sigma: float, rows: float) -> float:
    """Return how many of ``rows`` refer to none: about half of them, as far as noise hides it, and seldom all or none.

    The mean under a uniform prior; noisy numbers cut at zero and at all rows would leave either nobody or one parent.
    """
    least, most = (min(max(noisy + far * sigma, 0.0), rows) for far in (-_SPREAD, _SPREAD))
    likely = np.linspace(least, most, _LIKELY)
    apart = ((likely - noisy) / max(sigma, _TINY)) ** 2 / 2
    return float(np.average(likely, weights=np.exp(apart.min() - apart)))


def _left_by(heavy: Array, sigma: float, shaped: float, references: float) -> float:
    """Return the references that heavy hitters leave to the other rows.

    By the shape it is what lower ranks have; there, the shape may be no more than a guess at what noise hides. It is
    also all references less those to the heavy hitters, up to the noise of these. The two are averaged as if the
    shape's were off by as much as itself, which is the prior of its levels (`_fitted`).

    Args:
        heavy: Noisy references to each heavy hitter.
        sigma: Standard deviation of their noise.
        shaped: References to all lower ranks, by the shape.
        references: Released number of all references.
    """
    less = max(0.0, references - float(heavy.sum()))
    known = shaped**2 / max(shaped**2 + len(heavy) * sigma**2, _TINY)
    return shaped + known * (less - shaped)


def _remaining_by_group(
    noisy: Array, sigma: float, group_of: Numbers, groups: tuple[Array, float], heavy: NDArray[np.bool_], total: float
) -> tuple[Array, Array]:
    """Return the references to the other rows of each group, ``total`` in all, and the number of these rows.

    The groups' own counts and the sums of their rows' counts are averaged by inverse variance, and shrunk towards all
    rows alike (`_shrunk_by_halves`), as neighbouring groups are.
    """
    members = np.bincount(group_of, ~heavy).astype(np.float64)
    summed, summed_variance = np.bincount(group_of, np.where(heavy, 0.0, noisy)), members * sigma**2
    counted = groups[0] - np.bincount(group_of, np.where(heavy, noisy, 0.0))
    counted_variance = groups[1] ** 2 + np.bincount(group_of, heavy) * sigma**2
    weight = summed_variance / (summed_variance + counted_variance)
    average = weight * counted + (1 - weight) * summed
    found = np.maximum(_shrunk_by_halves(average, weight * counted_variance, members, total), 0.0)
    return found * (total / max(float(found.sum()), _TINY)), members


def _shrunk_by_halves(noisy: Array, variances: Array, sizes: Array, total: float) -> Array:
    """Return counts in an order in which neighbours are alike, shape (n,), that add up to ``total``.

    All are halved, and halves again. What the halves of a part have beside their share by size is shrunk by how much of
    it noise explains (James and Stein 1961), together with all other parts of that level: differences between large
    parts stand out where those between neighbours do not.

    Args:
        noisy: Counts, shape (n,).
        variances: Of their noise.
        sizes: That counts are proportional to where nothing else is known.
        total: Of all.
    """
    ends, levels = np.array([0, len(noisy)]), list[tuple[Numbers, Numbers]]()
    while np.diff(ends).max() > 1:
        halved = np.unique(np.append(ends, (ends[:-1] + ends[1:]) // 2))
        levels.append((ends, halved))
        ends = halved
    sums, spread, rows = (np.append(0.0, np.cumsum(each)) for each in (noisy, variances, sizes))
    found = np.array([total])
    for outer, inner in levels:
        part = np.searchsorted(outer, inner[:-1], side="right") - 1  # that each half is of
        whole = np.diff(rows[outer])[part]
        share = np.divide(np.diff(rows[inner]), whole, out=np.zeros(len(part)), where=whole > 0)
        beside = np.diff(sums[inner]) - share * np.diff(sums[outer])[part]
        own = np.diff(spread[inner])
        by_noise = (1 - 2 * share) * own + share**2 * np.diff(spread[outer])[part]
        squared = float((beside**2).sum())
        kept = max(0.0, 1 - float(by_noise.sum()) / squared) if squared > 0 else 0.0
        found = share * found[part] + kept * beside
    return found


def _levels(values: Array, numbers: Array) -> tuple[Array, Array]:
    """Return the same shape with similar neighbouring values merged, and without values of no parent."""
    present = numbers > 0
    values, numbers = values[present], numbers[present]
    level = np.floor(np.log(np.maximum(values, _SMALL)) / math.log(_LEVEL))
    starts = np.flatnonzero(np.append(True, level[1:] != level[:-1]))
    sizes = np.add.reduceat(numbers, starts)
    return np.add.reduceat(values * numbers, starts) / sizes, sizes


def _cut_to(parents: int, values: Array, numbers: Array) -> tuple[Array, Array]:
    """Return a shape of exactly ``parents`` parents: drops the last ones, or adds some without references."""
    before = np.cumsum(numbers) - numbers
    kept = np.append(np.clip(parents - before, 0, numbers), max(0.0, parents - float(numbers.sum())))
    return np.append(values, 0.0), kept


def _shape(ends: Numbers, references: float, exponent: float, parents: int) -> Array:
    """Return the expected references to each block of ranks, if the i-th parent is chosen in proportion to i^-exponent.

    The sum of the L largest of some numbers is Σ over k ≥ 1 of min(L, number of them that are at least k).
    """
    ranks = _ranks(parents)
    sizes = np.diff(ranks, prepend=0).astype(np.float64)
    popularity = (ranks - (sizes - 1) / 2) ** -exponent
    means = popularity * references / (popularity @ sizes)
    steps = np.array(_steps(int(means.max() + 6 * math.sqrt(means.max()) + 20)), dtype=np.float64)
    at_least = scipy.special.gammainc(steps[:, None], means[None, :]) @ sizes  # P[Poisson(m) >= k], by k
    widths = np.diff(np.append(steps, steps[-1] + 1))
    tops = np.minimum(ends[:, None], at_least[None, :]) @ widths
    return np.asarray(np.diff(tops, prepend=0.0))


@cache
def _ranks(parents: int) -> Array:
    return np.unique(np.geomspace(1, parents, _RANKS).astype(np.int64)).astype(np.float64)


@cache
def _steps(most: int) -> tuple[int, ...]:
    steps = list(range(1, min(most, _SINGLE_DEGREES) + 1))
    while steps[-1] < most:
        steps.append(max(steps[-1] + 1, int(steps[-1] * _DEGREE_GROWTH)))
    return tuple(steps)
