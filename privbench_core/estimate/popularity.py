"""How often parents are referred to, from noisy sums: of private parents by rank, of public ones by row.

Noise hides single parents of the tail, so both estimates fall back on a shape: references at random to parents whose
popularity is a power of their rank, from all alike to Zipf's law and beyond, whichever fits the noisy sums best. What
stands out of the noise is believed instead.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from scipy.special import gammainc, ndtr

from privbench_core.estimate.segmentation import PENALTY, segments

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]
_GROWTH = 1.03  # of blocks of ranks: parents that share a block differ by few references
_EXPONENTS = tuple(tenth / 10 for tenth in range(17))
_EVEN_ENOUGH = 4.0  # noise variances by which a more even shape may fit worse
_SINGLE_DEGREES = 100  # counted one by one; above that in steps
_TINY = float(np.finfo(np.float64).tiny) * 1e16
_GOLDEN = (math.sqrt(5) - 1) / 2
_LEVEL = 1.1  # factor between degrees that public rows hidden by noise may have
_SMALL = 1e-3  # references that count as none
_BLOCK = 1 << 14  # parents at a time


def rank_ends(parents: int) -> Numbers:
    """One past the last rank of each block, up to ``parents`` ranks: single ones first, then blocks that widen.

    >>> rank_ends(3).tolist(), rank_ends(200)[-4:].tolist()
    ([1, 2, 3], [185, 190, 195, 200])
    """
    ends = [1]
    while ends[-1] < parents:
        ends.append(min(parents, max(ends[-1] + 1, int(ends[-1] * _GROWTH))))
    return np.array(ends)


def rank_sums(noisy: Array, ends: Numbers, sigma: float, references: float, parents: int) -> Array:
    """References to the parents of each block of ranks, shape (blocks,); their means do not increase.

    Blocks beyond the number of parents hold none.

    Args:
        noisy: The same with noise, as `RankSums` releases them.
        ends: Of the blocks.
        sigma: Standard deviation of the noise.
        references: Released number of all of them.
        parents: Number of parents.
    """
    blocks = int(np.searchsorted(ends, max(parents, 1))) + 1
    if blocks < len(ends):
        inside = rank_sums(noisy[:blocks], np.minimum(ends[:blocks], max(parents, 1)), sigma, references, parents)
        return np.append(inside, np.zeros(len(ends) - blocks))
    fits = [_fitted(noisy, _shape(ends, references, power, parents), sigma, references) for power in _EXPONENTS]
    least = min(cost for cost, _ in fits)
    found = next(found for cost, found in fits if cost <= least + _EVEN_ENOUGH * sigma**2)  # the most even of the best
    sizes = np.diff(ends, prepend=0).astype(np.float64)
    falling = isotonic_regression(found / sizes, weights=sizes, increasing=False).x
    return np.asarray(falling * sizes)


def _fitted(noisy: Array, shape: Array, sigma: float, references: float) -> tuple[float, Array]:
    """``shape``, raised or lowered in those segments that stand out of the noise, and how badly it fits.

    The misfit is the sum of squares, and noise variances for what each segment takes to explain (`merging.segments`).
    """
    widths = np.maximum(shape, 1e-6 * shape.max())
    starts = segments(noisy, sigma, widths)
    counts = np.diff(np.append(starts, len(noisy)))
    # What noise hides is as the shape says: a level of 1, give or take 1.
    precision = 1 + np.add.reduceat(widths**2, starts) / sigma**2
    levels = (1 + np.add.reduceat(noisy * widths, starts) / sigma**2) / precision
    cost = ((noisy - widths * np.repeat(levels, counts)) ** 2).sum() + sigma**2 * ((levels - 1) ** 2 + PENALTY).sum()
    sums = np.add.reduceat(widths, starts)
    variances = sums**2 / precision
    levels += (references - levels @ sums) * variances / variances.sum() / sums  # the total is known best
    return float(cost), widths * np.repeat(np.maximum(levels, 0.0), counts)


def row_counts(
    noisy: Array, sigma: float, group_of: Numbers, groups: tuple[Array, float], ranked: tuple[Array, Array]
) -> Array:
    """References to each row of a public parent, shape (parents,), none below zero.

    Rows that stand out of the noise get their own noisy count: heavy hitters by name. Each of the others gets one draw
    from its posterior under the released shape, scaled to its group: rows that noise hides are then as different from
    each other as they are in truth, though not one by one the same.

    Args:
        noisy: Noisy references to each row.
        sigma: Standard deviation of their noise.
        group_of: Group of each row.
        groups: Noisy references to each group, and the standard deviation of their noise.
        ranked: References per parent of each block of ranks, and the number of its parents.
    """
    parents = len(noisy)
    bar = sigma * (math.sqrt(2 * math.log(max(parents, 2))) + 1)  # noise alone hardly reaches it in any row
    named = noisy > bar
    values, numbers = _levels(*_cut_to(parents, *ranked))
    below = np.clip(np.cumsum(numbers) - named.sum(), 0.0, numbers)  # parents of lower ranks than those named
    left, members = _left_to_groups(noisy, sigma, group_of, groups, named, float(values @ below))
    numbers = numbers * ndtr((bar - values) / sigma)  # how many of them noise leaves unnamed
    usual = float(values @ numbers) / max(float(numbers.sum()), _TINY)
    relative = left / np.maximum(members, 1) / max(usual, _TINY)
    drawn = np.maximum(noisy, 0.0)
    hidden = np.flatnonzero(~named)
    uniform = (np.arange(1, len(hidden) + 1) * _GOLDEN) % 1.0  # the same whenever the noise is: sampling is elsewhere
    for start in range(0, len(hidden), _BLOCK):
        some = hidden[start : start + _BLOCK]
        scaled = relative[group_of[some], None] * values
        likely = np.minimum(np.abs(noisy[some, None] - scaled) / sigma, 1e9) ** 2 / 2
        posterior = numbers * np.exp(likely.min(axis=1, keepdims=True) - likely)
        cumulated = np.cumsum(posterior, axis=1)
        chosen = (cumulated < uniform[start : start + _BLOCK, None] * cumulated[:, -1:]).sum(axis=1)
        drawn[some] = scaled[np.arange(len(some)), np.minimum(chosen, len(values) - 1)]
    rest = np.bincount(group_of, np.where(named, 0.0, drawn))
    even = left / np.maximum(members, 1)
    factor = np.divide(left, rest, out=np.zeros_like(left), where=rest > 0)[group_of]
    return np.where(named, drawn, np.where(rest[group_of] > 0, drawn * factor, even[group_of]))


def _left_to_groups(
    noisy: Array, sigma: float, group_of: Numbers, groups: tuple[Array, float], named: NDArray[np.bool_], total: float
) -> tuple[Array, Array]:
    """References to the rows of each group that are not named, ``total`` in all, and how many of these rows there are.

    The groups' own counts and the sums of their rows' are averaged by their variances; what noise does not explain of
    the differences between groups is kept (James and Stein).
    """
    members = np.bincount(group_of, ~named).astype(np.float64)
    summed, spread = np.bincount(group_of, np.where(named, 0.0, noisy)), members * sigma**2
    counted = groups[0] - np.bincount(group_of, np.where(named, noisy, 0.0))
    beside = groups[1] ** 2 + np.bincount(group_of, named) * sigma**2
    weight = spread / (spread + beside)
    share = members / max(float(members.sum()), 1.0)
    left = weight * counted + (1 - weight) * summed
    apart = left - share * left.sum()
    squared = float((apart**2).sum())
    kept = max(0.0, 1 - float((weight * beside).sum()) / squared) if squared > 0 else 0.0
    found = np.maximum(share * total + kept * apart, 0.0)
    return found * (total / max(float(found.sum()), _TINY)), members


def _levels(values: Array, numbers: Array) -> tuple[Array, Array]:
    """The same shape with neighbouring values put together that differ by little, and without those of no parent."""
    there = numbers > 0
    values, numbers = values[there], numbers[there]
    level = np.floor(np.log(np.maximum(values, _SMALL)) / math.log(_LEVEL))
    starts = np.flatnonzero(np.append(True, level[1:] != level[:-1]))
    sizes = np.add.reduceat(numbers, starts)
    return np.add.reduceat(values * numbers, starts) / sizes, sizes


def _cut_to(parents: int, values: Array, numbers: Array) -> tuple[Array, Array]:
    """A shape of exactly so many parents: the last ones are left out, or some without references are added."""
    before = np.cumsum(numbers) - numbers
    kept = np.append(np.clip(parents - before, 0, numbers), max(0.0, parents - float(numbers.sum())))
    return np.append(values, 0.0), kept


def _shape(ends: Numbers, references: float, exponent: float, parents: int) -> Array:
    """Expected references to each block of ranks, where the i-th of ``parents`` is chosen as often as i^-exponent.

    The sum of the L largest of some numbers is Σ over k ≥ 1 of min(L, how many are at least k).
    """
    ranks = _ranks(parents)
    sizes = np.diff(ranks, prepend=0).astype(np.float64)
    popularity = (ranks - (sizes - 1) / 2) ** -exponent
    means = popularity * references / (popularity @ sizes)
    steps = np.array(_steps(int(means.max() + 6 * math.sqrt(means.max()) + 20)), dtype=np.float64)
    at_least = gammainc(steps[:, None], means[None, :]) @ sizes  # P[Poisson(m) >= k], by k
    widths = np.diff(np.append(steps, steps[-1] + 1))
    tops = np.minimum(ends[:, None], at_least[None, :]) @ widths
    return np.asarray(np.diff(tops, prepend=0.0))


@cache
def _ranks(parents: int) -> Array:
    return np.unique(np.geomspace(1, parents, 120).astype(np.int64)).astype(np.float64)


@cache
def _steps(most: int) -> tuple[int, ...]:
    steps = list(range(1, min(most, _SINGLE_DEGREES) + 1))
    while steps[-1] < most:
        steps.append(max(steps[-1] + 1, int(steps[-1] * 1.05)))
    return tuple(steps)
