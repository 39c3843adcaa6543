"""How often parents are referred to, from totals in which no parent counts more than some bound."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from privbench_core.guards import BOUND_STEP, GRID_POINTS, NEGLIGIBLE, TINY, TOLERANCE
from privbench_core.links.popularity_shapes import truncated_mean

Array = NDArray[np.float64]


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


def ranked(bounds: Array, totals: Array, ends: NDArray[np.int64], alike: float) -> Array:
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
