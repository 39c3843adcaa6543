"""How many groups there are of each size, from noisy counts of sizes and a noisy number of rows.

A histogram of sizes says little about rows where the tail is heavy: noise of one group of 5,000 is noise of 5,000 rows.
A number of rows says nothing else. Both are fitted together, by least squares in units of their noise, and no size is
dropped because noise hides it: what the number of rows asks for stays, only how it spreads over sizes follows a prior.

Where noise hides single classes of sizes, all of them together still tell how heavy the tail is. Shapes are densities
exp(-a x - b x²/2) of the logarithm x of a size: power laws (b = 0), log-normal ones, and narrow ones. Each is weighted
by its likelihood under the noise, with the number of groups integrated out; what is expected of a class is the mean
over shapes. Real sizes have no such shape exactly, so counts far above the noise weigh no more than those a little
above it. Counts of the pieces of a long tail of a column are drawn towards such shapes, too. Post-processing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import scipy
from numpy.typing import NDArray

from privbench_core.columns.binning import Binning
from privbench_core.columns.fanout_bins import FanoutCodec
from privbench_core.estimators.segmentation import SIGNIFICANT
from privbench_core.guards import FITTING_ROUNDS_PER_NUMBER, TINY, TOLERANCE
from privbench_core.tuning import TUNING

Array = NDArray[np.float64]


@dataclass(frozen=True)
class NoisySum:
    """A noisy sum of group sizes, sizes above ``most`` counted as ``most``."""

    value: float
    sigma: float
    most: float = np.inf


@dataclass(frozen=True)
class SizeCounts:
    """An estimate.

    Attributes:
        codec: Of sizes.
        binning: Its cells merged into codes, and how groups of a code spread over its cells.
        counts: Number of groups of each code, shape (codes,), none negative.
        sigmas: Standard deviations of the noise that these were measured with, shape (codes,).
        shapes: What is known of all of them together, where noise hides single ones.
        alone: ``counts`` before they were fitted to any sum; some may be negative, so that noise adds up to nothing.
    """

    codec: FanoutCodec
    binning: Binning
    counts: Array
    sigmas: Array
    shapes: Shapes | None = None
    alone: Array | None = None

    @property
    def groups(self) -> float:
        """Number of groups."""
        return float(self.counts.sum())

    def rows(self, most: float = np.inf) -> float:
        """Number of rows, those of larger groups counted as ``most``."""
        return float(self.counts @ mean_sizes(self.codec, self.binning, most))

    def rows_up_to(self, classes: Sequence[int], most: float = np.inf) -> Array:
        """`rows` by class of sizes: up to the first number, from there to the second, and so on; shape (classes,)."""
        code_of = np.asarray(self.binning.code_of)
        rows = self.counts[code_of] * np.asarray(self.binning.weights) * self.codec.means(most)
        place = np.minimum(np.searchsorted(classes, self.codec.starts), len(classes) - 1)
        return np.bincount(place, rows, len(classes)).astype(np.float64)

    def beyond(self, most: float) -> float:
        """Expected number of the rows that `rows` leaves out, from what is known of sizes alone.

        It completes a noisy number of the others without bias of its own: neither is cut at zero, nor is the number of
        the others moved to where sizes are more likely.
        """
        counts = self.counts if self.alone is None else self.alone
        return float(counts @ (mean_sizes(self.codec, self.binning) - mean_sizes(self.codec, self.binning, most)))

    def unknown_beyond(self, most: float) -> float:
        """Standard deviation of what is known of the rows that `rows` leaves out."""
        beyond = mean_sizes(self.codec, self.binning) - mean_sizes(self.codec, self.binning, most)
        of_shape = 0.0 if self.shapes is None else self.shapes.deviation(self.codec.means() - self.codec.means(most))
        # The mean of a class [c, 2c] is 1.5 c if all sizes are as many, and 2 ln 2 c if they fall as 1/x².
        of_mean = (1.5 / (2 * np.log(2)) - 1) * float(self.counts @ beyond)
        return float(np.linalg.norm([of_shape, *(self.sigmas * beyond), of_mean]))


@dataclass(frozen=True)
class ExpectedSizes:
    """What numbers of children may be, before any are measured.

    Attributes:
        groups: Share of the groups in each class of sizes, shape (classes,).
        sizes: Mean size in each of them, shape (classes,).
    """

    groups: Array
    sizes: Array

    @classmethod
    def of_mean(cls, codec: FanoutCodec, classes: Sequence[int], mean: float) -> ExpectedSizes:
        """Sizes that follow the codec's prior, but for a factor x^θ by which their mean is the released one.

        Args:
            codec: Of sizes.
            classes: Largest size of each class; the last one holds all that is larger.
            mean: Rows per group.
        """
        means, places = codec.means(), np.maximum(codec.starts, 1.0)
        shapes = codec.prior * places ** _exponents()[:, None]
        shape = shapes[np.argmin(np.abs(shapes @ means / shapes.sum(axis=1) - mean))]
        band = np.minimum(np.searchsorted(classes, codec.starts), len(classes) - 1)
        groups = np.bincount(band, shape / shape.sum()).astype(np.float64)
        return cls(groups, np.bincount(band, shape / shape.sum() * means) / np.maximum(groups, TINY))


def estimate_bands(
    codec: FanoutCodec,
    classes: Sequence[int],
    noisy: Array,
    sigma: float,
    bar: float,
    groups: NoisySum | None = None,
    rows: NoisySum | None = None,
) -> SizeCounts:
    """Numbers of groups by class of sizes that agree with all that was measured, as far as noise lets them.

    Args:
        codec: Of sizes.
        classes: Largest size of each class; the last one holds all that is larger.
        noisy: Released number of groups of each class, shape (classes,).
        sigma: Standard deviation of their noise.
        bar: Standard deviations that noise alone does not reach in any class.
        groups: Released number of groups.
        rows: Released sum of their sizes.
    """
    band = np.minimum(np.searchsorted(classes, codec.starts), len(classes) - 1)
    sums = [] if rows is None else [(codec.means(rows.most), rows.value, rows.sigma)]
    shapes = size_shapes(codec.starts, codec.bound, band, noisy, sigma, sums)
    prior = shapes.expected() + codec.prior * TINY**0.5 * ((codec.starts > 0) | (classes[0] == 0))
    if rows is not None:
        prior = prior * _tilt(codec, band, prior, np.maximum(noisy, 0.0), sigma, rows)
    mass = np.bincount(band, prior).astype(np.float64)
    binning = Binning(tuple(band.tolist()), tuple((prior / mass[band]).tolist()), len(mass))
    alone, sigmas = believed_counts(shapes, band, noisy, sigma, bar)
    return replace(_counts(codec, binning, alone, sigmas, groups, rows), shapes=shapes, alone=alone)


def _tilt(
    codec: FanoutCodec, band: NDArray[np.int64], prior: Array, counts: Array, sigma: float, rows: NoisySum
) -> Array:
    """Factors x^θ on the prior of each size, so that sizes within their classes add up to the measured number of rows.

    Classes say little of where in them sizes are: the exponent of the prior is the one number that a number of rows can
    tell. θ is the maximum a posteriori under a standard normal prior, found on a grid; shape (cells,).
    """
    places = np.maximum(codec.starts, 1.0)
    shapes = prior * places ** _exponents()[:, None]
    inside = band[:, None] == np.arange(len(counts))
    expected = (shapes * codec.means(rows.most)) @ inside / np.maximum(shapes @ inside, TINY)
    spread = np.hypot(rows.sigma, sigma * np.sqrt((expected**2).sum(axis=1)))
    loss = ((rows.value - expected @ counts) / np.maximum(spread, TOLERANCE)) ** 2 + _exponents() ** 2
    return np.asarray(places ** _exponents()[np.argmin(loss)])


def _exponents() -> Array:
    """Exponents θ that are tried, from sizes that are all the least to all the largest."""
    return np.linspace(-30.0, 30.0, 601)


def refine_bands(
    bands: SizeCounts, noisy: Array, sigma: float, groups: NoisySum | None = None, rows: NoisySum | None = None
) -> SizeCounts:
    """The same by code of sizes, with noisy counts of the cells of each class where these stand out of the noise.

    Args:
        bands: Classes of sizes.
        noisy: Released number of groups of each cell, shape (cells,).
        sigma: Standard deviation of their noise.
        groups: Released number of groups.
        rows: Released sum of their sizes.
    """
    codec, band, whole = bands.codec, np.asarray(bands.binning.code_of), bands.counts
    cells = np.bincount(band)
    significant = (whole > SIGNIFICANT * sigma * cells)[band]
    # A class was counted twice: by itself, and as the sum of its cells.
    sums, of_band, of_sums = bands.binning.sums(noisy), bands.sigmas**2, cells * sigma**2
    better = (whole * of_sums + sums * of_band) / np.maximum(of_band + of_sums, TINY)
    variance = of_band * of_sums / np.maximum(of_band + of_sums, TINY)
    even = noisy + ((better - sums) / cells)[band]
    smooth = better[band] * np.asarray(bands.binning.weights)
    even = smooth + (even - smooth) / (1 + (sigma / np.maximum(apart(smooth), TOLERANCE)) ** 2)
    weights = np.where(significant, 1.0, np.asarray(bands.binning.weights) * (whole > 0)[band])
    begins = significant | np.append(True, band[1:] != band[:-1]) & (whole > 0)[band]
    begins[0] = True
    code_of = np.cumsum(begins) - 1
    weights[np.bincount(code_of, weights)[code_of] <= 0] = 1.0
    weights /= np.bincount(code_of, weights)[code_of]
    binning = Binning(tuple(code_of.tolist()), tuple(weights.tolist()), int(code_of[-1]) + 1)
    counts = np.where(significant, even, whole[band] * np.asarray(bands.binning.weights))
    of_cell = np.sqrt(sigma**2 * (1 - 1 / cells) + variance / cells**2)
    sigmas = np.where(significant, of_cell[band], (bands.sigmas / np.sqrt(cells))[band])
    return _counts(codec, binning, binning.sums(counts), np.sqrt(binning.sums(sigmas**2)), groups, rows)


def _counts(
    codec: FanoutCodec, binning: Binning, noisy: Array, sigmas: Array, groups: NoisySum | None, rows: NoisySum | None
) -> SizeCounts:
    sums = [] if groups is None else [(np.ones(binning.size), groups)]
    sums += [] if rows is None else [(mean_sizes(codec, binning, rows.most), rows)]
    return SizeCounts(codec, binning, _fitted(noisy, sigmas, sums), sigmas)


def _fitted(noisy: Array, sigmas: Array, sums: Sequence[tuple[Array, NoisySum]]) -> Array:
    """Non-negative least squares in units of noise: the counts, and weighted sums of them; shape of the counts."""
    matrix, right = [np.diag(1 / np.maximum(sigmas, TOLERANCE))], [noisy / np.maximum(sigmas, TOLERANCE)]
    for weights, measured in sums:
        matrix.append(weights[None, :] / max(measured.sigma, TOLERANCE))
        right.append(np.array([measured.value / max(measured.sigma, TOLERANCE)]))
    rounds = FITTING_ROUNDS_PER_NUMBER * len(noisy)
    return np.asarray(scipy.optimize.nnls(np.vstack(matrix), np.concatenate(right), maxiter=rounds)[0], dtype=float)


def mean_sizes(codec: FanoutCodec, binning: Binning, most: float = np.inf) -> Array:
    """Expected size of the groups of each code, larger ones counted as ``most``, shape (codes,)."""
    return binning.sums(np.asarray(binning.weights) * codec.means(most))


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
        """Expected sum over groups of a value of their cell, shape (cells,)."""
        return float(self.weights @ (self.numbers * (self.cells @ values)))

    def deviation(self, values: Array) -> float:
        """Standard deviation of that sum."""
        each = self.cells @ values
        square = float(self.weights @ ((self.numbers**2 + self.deviations**2) * each**2))
        return float(np.sqrt(max(square - self.mean(values) ** 2, 0.0)))

    def expected(self) -> Array:
        """Expected number of groups in each cell, shape (cells,)."""
        return np.asarray((self.weights * self.numbers) @ self.cells)


def size_shapes(
    starts: NDArray[np.integer],
    bound: int,
    band: NDArray[np.integer],
    noisy: Array,
    sigma: float | Array,
    sums: Sequence[tuple[Array, float, float]] = (),
) -> Shapes:
    """The shapes, given what was released.

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
    classes, counts = _inside(band, len(noisy))[there], noisy[there]
    spread = np.hypot(sigma, apart(counts))
    design = (cells @ classes.T) / spread
    right = counts / spread
    for values, found, off in sums:
        design = np.column_stack([design, cells @ values / max(off, TINY)])
        right = np.append(right, found / max(off, TINY))
    precision = (design**2).sum(axis=1)
    best = design @ right / precision
    off = 1 / np.sqrt(precision)
    ratio = best / off
    # Larger mean sizes are as much less likely: Jeffreys' prior of a scale.
    scale = np.log(cells @ np.maximum(starts, 1))
    likelihood = ratio**2 / 2 + scipy.special.log_ndtr(ratio) + np.log(off) - scale
    weights = np.exp(likelihood - likelihood.max())
    # Mean and deviation of a normal number that is not negative.
    hazard = np.sqrt(2 / np.pi) / scipy.special.erfcx(-ratio / np.sqrt(2))
    numbers = best + off * hazard
    deviations = off * np.sqrt(np.maximum(1 - hazard * (hazard + ratio), 0.0))
    return Shapes(cells, numbers, deviations, weights / weights.sum())


def _inside(band: NDArray[np.integer], classes: int) -> Array:
    """Return 1 where a cell is in a class, shape (classes, cells)."""
    return np.asarray(np.arange(classes)[:, None] == band, dtype=float)


def believed_counts(
    shapes: Shapes, band: NDArray[np.integer], noisy: Array, sigma: float | Array, bar: float
) -> tuple[Array, Array]:
    """Averages of noisy counts and of what smooth shapes expect of each class, and their standard deviations.

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
    unsure = np.array([shapes.deviation(cells) for cells in inside])
    spread = np.hypot(apart(expected), unsure)
    spread[(noisy > bar * sigma) | (inside @ shapes.cells.sum(axis=0) <= 0)] = np.inf
    share = 1 / (1 + (sigma / np.maximum(spread, TOLERANCE)) ** 2)
    return expected + share * (noisy - expected), sigma * np.sqrt(share)


def apart(counts: Array) -> Array:
    """Standard deviation of true counts of classes from what a shape expects: of the shape, and by chance (Poisson)."""
    return np.asarray(np.sqrt(np.maximum(counts, 0.0) + (TUNING.shape_error * np.maximum(counts, 0.0)) ** 2))


@cache
def _densities(starts: tuple[int, ...], bound: int) -> Array:
    """Distributions over cells, shape (shapes, cells); cells that begin with 0 have nothing.

    Each is there up to the bound, and up to each smaller power of two beyond which it has some of its rows, not most.
    """
    first = np.array(starts, dtype=float)
    ends = np.append(first[1:], bound + 1.0)
    low, high = np.log(np.maximum(first - 0.5, 0.5)), np.log(ends - 0.5)
    x = low[:, None] + (high - low)[:, None] * np.linspace(0.1, 0.9, 5)  # inside of each cell
    widths = np.where(first > 0, high - low, 0.0)
    found = []
    for b in (0.0, *np.geomspace(0.03, 30, 12)):  # from power laws to sizes that are all alike
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
    return believed_counts(shapes, pieces, noisy, sigmas, SIGNIFICANT)
