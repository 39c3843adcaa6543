"""Smooth shapes of distributions of sizes, and of long tails of columns, from noisy counts of classes.

Where single classes of sizes are below the noise, all of them still show how heavy the tail is. Shapes are densities
exp(-a x - b x²/2) of the logarithm x of a size: power laws (b = 0), log-normal ones, and narrow ones. Each is weighted
by its likelihood under the noise, with the number of groups integrated out; what is expected of a class is the mean
over shapes. Real sizes have no such shape exactly, so counts far above the noise weigh no more than those a little
above it. Post-processing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import scipy
from numpy.typing import NDArray

from privbench_core.arrays import Array
from privbench_core.estimators.segmentation import SIGNIFICANT
from privbench_core.guards import TINY, TOLERANCE
from privbench_core.tuning import TUNING

Bands = NDArray[np.integer]


@dataclass(frozen=True)
class Shapes:
    """Shapes with their weights.

    Attributes:
        cells: Distribution of groups that are not empty over cells of sizes, shape (shapes, cells).
        numbers: Expected number of these groups given the shape, shape (shapes,).
        deviations: Standard deviation of that, likewise.
        weights: Of the shapes; they add up to 1.
    """

    cells: Array
    numbers: Array
    deviations: Array
    weights: Array

    def mean(self, values: Array) -> float:
        """Return the expected sum over groups of a value of their cell, shape (cells,)."""
        return float(self.weights @ (self.numbers * (self.cells @ values)))

    def deviation(self, values: Array) -> float:
        """Return the standard deviation of that sum."""
        square = float(self.weights @ ((self.numbers**2 + self.deviations**2) * (self.cells @ values) ** 2))
        return float(np.sqrt(max(square - self.mean(values) ** 2, 0.0)))

    def median(self, values: Array) -> float:
        """Return the median of that sum over shapes; its mean is decided by the unlikely ones of the heaviest tails."""
        sums = self.numbers * (self.cells @ values)
        order = np.argsort(sums)
        below = np.cumsum(self.weights[order])
        return float(sums[order[np.searchsorted(below, below[-1] / 2)]])

    def mean_deviation(self, values: Array) -> float:
        """Return how far that sum is from its mean, the root mean square of each shape averaged over shapes."""
        sums = self.cells @ values
        return float(self.weights @ np.hypot(self.numbers * sums - self.mean(values), self.deviations * sums))

    def expected(self) -> Array:
        """Return the expected number of groups in each cell, shape (cells,)."""
        return np.asarray((self.weights * self.numbers) @ self.cells)


def size_shapes(
    starts: NDArray[np.integer],
    bound: int,
    band: Bands,
    noisy: Array,
    sigma: float | Array,
    sums: Sequence[tuple[Array, float, float]] = (),
) -> Shapes:
    """Return the shapes, given what was released.

    Args:
        starts: Smallest size of each cell, from 0; groups without rows are left out.
        bound: Largest size.
        band: Class of each cell.
        noisy: Noisy number of groups of each class.
        sigma: Standard deviation of their noise, or of each where no class is of empty groups alone.
        sums: Further measurements, as (value of a group by cell, noisy sum over all groups, standard deviation).
    """
    cells = _densities(tuple(starts.tolist()), bound)
    there = np.bincount(band, starts > 0) > 0
    counts = noisy[there]
    spread = np.hypot(sigma, model_deviation(counts))
    design = (cells @ _inside(band, len(noisy))[there].T) / spread
    right = counts / spread
    for values, found, off in sums:
        design = np.column_stack([design, cells @ values / max(off, TINY)])
        right = np.append(right, found / max(off, TINY))
    precision = (design**2).sum(axis=1)
    best, off = design @ right / precision, 1 / np.sqrt(precision)
    ratio = best / off
    # Larger mean sizes are as much less likely: Jeffreys' prior of a scale.
    scale = np.log(cells @ np.maximum(starts, 1))
    likelihood = ratio**2 / 2 + scipy.special.log_ndtr(ratio) + np.log(off) - scale
    weights = np.exp(likelihood - likelihood.max())
    # Mean and deviation of a normal number that is not negative.
    hazard = np.sqrt(2 / np.pi) / scipy.special.erfcx(-ratio / np.sqrt(2))
    deviations = off * np.sqrt(np.maximum(1 - hazard * (hazard + ratio), 0.0))
    return Shapes(cells, best + off * hazard, deviations, weights / weights.sum())


def shrink_to_shapes(
    shapes: Shapes, band: Bands, noisy: Array, sigma: float | Array, bar: float
) -> tuple[Array, Array]:
    """Return averages of noisy counts and of what shapes expect of each class, and their standard deviations.

    An accident of noise at 5,000 children is as many rows as a small database has. A count that stands out of the noise
    is taken as it is, and so is that of empty groups, of which shapes say nothing.

    Args:
        shapes: Given the counts.
        band: Class of each cell.
        noisy: Noisy number of groups of each class.
        sigma: Standard deviation of their noise, or of each.
        bar: Standard deviations that noise alone does not reach in any class.
    """
    inside = _inside(band, len(noisy))
    expected = inside @ shapes.expected()
    spread = np.hypot(model_deviation(expected), np.array([shapes.deviation(cells) for cells in inside]))
    spread[(noisy > bar * sigma) | (inside @ shapes.cells.sum(axis=0) <= 0)] = np.inf
    share = 1 / (1 + (sigma / np.maximum(spread, TOLERANCE)) ** 2)
    return expected + share * (noisy - expected), sigma * np.sqrt(share)


def model_deviation(counts: Array) -> Array:
    """Return the standard deviation of true counts from what a shape expects: of the shape, and by chance (Poisson)."""
    positive = np.maximum(counts, 0.0)
    return np.asarray(np.sqrt(positive + (TUNING.shape_error * positive) ** 2))


def tail_counts(noisy: Array, sigmas: Array) -> tuple[Array, Array]:
    """Return counts of the pieces of a tail, drawn towards smooth shapes, and standard deviations, shapes (pieces,).

    A heavy-tailed column (a reputation, an amount) has few rows over most of its range. Noise of one row in a piece at
    50,000 is noise of 50,000 in the column's sum, and counts that may not be negative make all of it one way: the mean
    of a column would come out ten times too large.

    Args:
        noisy: Released counts on the way outwards, shape (pieces,), at least two.
        sigmas: Standard deviations of their noise, all positive.
    """
    pieces = np.arange(len(noisy))
    shapes = size_shapes(1 << pieces, (1 << len(noisy)) - 1, pieces, noisy, sigmas)
    return shrink_to_shapes(shapes, pieces, noisy, sigmas, SIGNIFICANT)


def _inside(band: Bands, classes: int) -> Array:
    """Return 1 where a cell is in a class, shape (classes, cells)."""
    return np.asarray(np.arange(classes)[:, None] == band, dtype=float)


@cache
def _densities(starts: tuple[int, ...], bound: int) -> Array:
    """Return distributions over cells, shape (shapes, cells); cells that begin with 0 have nothing.

    Each is there up to the bound, and up to each smaller power of two beyond which it has some of its rows, not most.
    """
    first = np.array(starts, dtype=float)
    ends = np.append(first[1:], bound + 1.0)
    low, high = np.log(np.maximum(first - 0.5, 0.5)), np.log(ends - 0.5)
    x = low[:, None] + (high - low)[:, None] * np.linspace(0.1, 0.9, 5)  # inside of each cell
    widths = np.where(first > 0, high - low, 0.0)
    found = []
    for b in (0.0, *np.geomspace(0.03, 30, 12)):  # from power laws to sizes that are all equal
        spacing = max(np.sqrt(b), 0.2) / 2  # half a standard deviation of x
        # P[size >= x] ~ x^-4, the steepest, has nobody beyond the first classes.
        slopes = np.arange(-b * np.log(bound + 1.0), 4.0 + spacing, spacing)
        log_density = -slopes[:, None, None] * x - b * x**2 / 2
        log_density -= log_density.max(axis=(1, 2), keepdims=True)
        found.append(np.exp(log_density).mean(axis=2) * widths)
    whole = np.vstack(found)
    sizes = whole * np.maximum(first, 1.0)
    beyond = 1 - np.cumsum(sizes, axis=1) / sizes.sum(axis=1, keepdims=True)
    largest = np.flatnonzero(np.isin(ends - 1, 2.0 ** np.arange(1, 64)))
    kept = [
        (whole * (np.arange(len(first)) <= cell))[(beyond[:, cell] > 0.02) & (beyond[:, cell] < 0.9)]  # noqa: PLR2004
        for cell in largest
    ]
    every = np.vstack([whole, *kept])
    return np.asarray(every / every.sum(axis=1, keepdims=True))
