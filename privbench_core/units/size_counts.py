"""How many groups there are of each size, from noisy counts of sizes and a noisy number of rows.

A histogram of sizes says little about rows where the tail is heavy: noise of one group of 5,000 is noise of 5,000 rows.
A number of rows says nothing else. Both are fitted together, by least squares in units of their noise, and no size is
dropped because noise hides it: what the number of rows asks for stays, only how it spreads over sizes follows a prior,
the smooth shapes of `size_shapes`. Post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from privbench_core.arrays import Array
from privbench_core.columns.discretizer import Binning
from privbench_core.columns.fanout_bins import FanoutCodec
from privbench_core.estimators.denoising import least_squares
from privbench_core.estimators.segmentation import SIGNIFICANT
from privbench_core.estimators.size_shapes import Shapes, model_deviation, shrink_to_shapes, size_shapes
from privbench_core.guards import NEGLIGIBLE, TINY, TOLERANCE


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
        shapes: What is known of all of them together, where single ones are below the noise.
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
        """Return the number of rows, those of larger groups counted as ``most``."""
        return float(self.counts @ mean_sizes(self.codec, self.binning, most))

    def rows_up_to(self, classes: Sequence[int], most: float = np.inf) -> Array:
        """Return `rows` by class of sizes: up to the first number, from there to the second, ..; shape (classes,)."""
        rows = self.counts[np.asarray(self.binning.code_of)] * np.asarray(self.binning.weights) * self.codec.means(most)
        return np.bincount(class_of_cells(self.codec, classes), rows, len(classes)).astype(np.float64)

    def beyond(self, most: float) -> float:
        """Return the expected number of the rows that `rows` leaves out, from what is known of sizes alone.

        It completes a noisy number of the others: neither is cut at zero, nor is the number of the others moved to
        where sizes are more likely. Of shapes the median counts: the heaviest tails are unlikely, and have most rows.
        """
        rows = float((self.counts if self.alone is None else self.alone) @ self._sizes_beyond(most))
        beyond = self._excess(most)
        if self.shapes is None:
            return rows
        return rows * self.shapes.median(beyond) / max(self.shapes.mean(beyond), NEGLIGIBLE)

    def unknown_beyond(self, most: float) -> float:
        """Return how far off `beyond` may be, on average over shapes."""
        of_shape = 0.0 if self.shapes is None else self.shapes.mean_deviation(self._excess(most))
        return math.hypot(of_shape, self._unknown_means(most))

    def deviation_beyond(self, most: float) -> float:
        """Return the standard deviation of `beyond`, which the unlikely shapes of the heaviest tails decide."""
        of_shape = 0.0 if self.shapes is None else self.shapes.deviation(self._excess(most))
        return math.hypot(of_shape, self._unknown_means(most))

    def _unknown_means(self, most: float) -> float:
        # Where in a class sizes are is not known: the mean of their excess may be anything between those of its ends.
        excess, cells = self._excess(most), np.asarray(self.binning.code_of)
        ends = np.full(self.binning.size, np.inf), np.zeros(self.binning.size)
        np.minimum.at(ends[0], cells, excess)
        np.maximum.at(ends[1], cells, excess)
        return float(np.linalg.norm(self.counts * (ends[1] - ends[0])) / math.sqrt(12))

    def _excess(self, most: float) -> Array:
        return self.codec.means() - self.codec.means(most)

    def _sizes_beyond(self, most: float) -> Array:
        return mean_sizes(self.codec, self.binning) - mean_sizes(self.codec, self.binning, most)


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
        """Return sizes that follow the codec's prior, but for a factor x^θ by which their mean is the released one.

        Args:
            codec: Of sizes.
            classes: Largest size of each class; the last one holds all that is larger.
            mean: Rows per group.
        """
        means, shapes = codec.means(), codec.prior * _powers(codec)
        shape = shapes[np.argmin(np.abs(shapes @ means / shapes.sum(axis=1) - mean))]
        band = class_of_cells(codec, classes)
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
    """Return numbers of groups by class of sizes that agree with all that was measured, as far as noise lets them.

    Args:
        codec: Of sizes.
        classes: Largest size of each class; the last one holds all that is larger.
        noisy: Released number of groups of each class, shape (classes,).
        sigma: Standard deviation of their noise.
        bar: Standard deviations that noise alone does not reach in any class.
        groups: Released number of groups.
        rows: Released sum of their sizes.
    """
    band = class_of_cells(codec, classes)
    sums = [] if rows is None else [(codec.means(rows.most), rows.value, rows.sigma)]
    shapes = size_shapes(codec.starts, codec.bound, band, noisy, sigma, sums)
    prior = shapes.expected() + codec.prior * TINY**0.5 * ((codec.starts > 0) | (classes[0] == 0))
    if rows is not None:
        prior = prior * _tilt(codec, band, prior, np.maximum(noisy, 0.0), sigma, rows)
    mass = np.bincount(band, prior).astype(np.float64)
    binning = Binning(tuple(band.tolist()), tuple((prior / mass[band]).tolist()), len(mass))
    alone, sigmas = shrink_to_shapes(shapes, band, noisy, sigma, bar)
    return replace(_fitted(codec, binning, alone, sigmas, groups, rows), shapes=shapes, alone=alone)


def _tilt(
    codec: FanoutCodec, band: NDArray[np.int64], prior: Array, counts: Array, sigma: float, rows: NoisySum
) -> Array:
    """Return factors x^θ on the prior of each size, so that sizes within classes add up to the measured rows.

    Classes say little of where in them sizes are: the exponent of the prior is the one number that a number of rows can
    show. θ is the maximum a posteriori under a standard normal prior, found on a grid; shape (cells,).
    """
    powers = _powers(codec)
    shapes = prior * powers
    inside = band[:, None] == np.arange(len(counts))
    expected = (shapes * codec.means(rows.most)) @ inside / np.maximum(shapes @ inside, TINY)
    spread = np.hypot(rows.sigma, sigma * np.sqrt((expected**2).sum(axis=1)))
    loss = ((rows.value - expected @ counts) / np.maximum(spread, TOLERANCE)) ** 2 + _exponents() ** 2
    return np.asarray(powers[np.argmin(loss)])


def _exponents() -> Array:
    """Return exponents θ to try, from sizes that are all the least to all the largest."""
    return np.linspace(-30.0, 30.0, 601)


def _powers(codec: FanoutCodec) -> Array:
    """Return x^θ of the sizes of all cells, shape (exponents, cells)."""
    return np.asarray(np.maximum(codec.starts, 1.0) ** _exponents()[:, None])


def refine_bands(
    bands: SizeCounts, noisy: Array, sigma: float, groups: NoisySum | None = None, rows: NoisySum | None = None
) -> SizeCounts:
    """Refine classes by noisy counts of their cells, where these stand out of the noise.

    Args:
        bands: Classes of sizes.
        noisy: Released number of groups of each cell, shape (cells,).
        sigma: Standard deviation of their noise.
        groups: Released number of groups.
        rows: Released sum of their sizes.
    """
    codec, band, whole = bands.codec, np.asarray(bands.binning.code_of), bands.counts
    weights, cells = np.asarray(bands.binning.weights), np.bincount(band)
    significant = (whole > SIGNIFICANT * sigma * cells)[band]
    # A class was counted twice: by itself, and as the sum of its cells.
    sums, of_band, of_sums = bands.binning.sums(noisy), bands.sigmas**2, cells * sigma**2
    better = (whole * of_sums + sums * of_band) / np.maximum(of_band + of_sums, TINY)
    variance = of_band * of_sums / np.maximum(of_band + of_sums, TINY)
    even = noisy + ((better - sums) / cells)[band]
    smooth = better[band] * weights
    even = smooth + (even - smooth) / (1 + (sigma / np.maximum(model_deviation(smooth), TOLERANCE)) ** 2)
    counts = np.where(significant, even, whole[band] * weights)
    of_cell = np.sqrt(sigma**2 * (1 - 1 / cells) + variance / cells**2)
    sigmas = np.where(significant, of_cell[band], (bands.sigmas / np.sqrt(cells))[band])
    inside = np.where(significant, 1.0, weights * (whole > 0)[band])
    begins = significant | np.append(True, band[1:] != band[:-1]) & (whole > 0)[band]
    begins[0] = True
    code_of = np.cumsum(begins) - 1
    inside[np.bincount(code_of, inside)[code_of] <= 0] = 1.0
    inside /= np.bincount(code_of, inside)[code_of]
    binning = Binning(tuple(code_of.tolist()), tuple(inside.tolist()), int(code_of[-1]) + 1)
    return _fitted(codec, binning, binning.sums(counts), np.sqrt(binning.sums(sigmas**2)), groups, rows)


def _fitted(
    codec: FanoutCodec, binning: Binning, noisy: Array, sigmas: Array, groups: NoisySum | None, rows: NoisySum | None
) -> SizeCounts:
    """Fit counts by non-negative least squares in units of noise to themselves and to weighted sums of them."""
    matrix, right = [np.diag(1 / np.maximum(sigmas, TOLERANCE))], [noisy / np.maximum(sigmas, TOLERANCE)]
    for measured in (groups, rows):
        if measured is not None:
            weights = np.ones(binning.size) if measured is groups else mean_sizes(codec, binning, measured.most)
            matrix.append(weights[None, :] / max(measured.sigma, TOLERANCE))
            right.append(np.array([measured.value / max(measured.sigma, TOLERANCE)]))
    return SizeCounts(codec, binning, least_squares(np.vstack(matrix), np.concatenate(right)), sigmas)


def mean_sizes(codec: FanoutCodec, binning: Binning, most: float = np.inf) -> Array:
    """Return the expected size of the groups of each code, larger ones counted as ``most``, shape (codes,)."""
    return binning.sums(np.asarray(binning.weights) * codec.means(most))


def class_of_cells(codec: FanoutCodec, classes: Sequence[int]) -> NDArray[np.int64]:
    """Return the class of each cell of sizes; those beyond the last class are in it, shape (cells,)."""
    return np.minimum(np.searchsorted(classes, codec.starts), len(classes) - 1)
