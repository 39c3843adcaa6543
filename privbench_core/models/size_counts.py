"""How many groups there are of each size, from noisy counts of sizes and a noisy number of rows.

A histogram of sizes says little about rows where the tail is heavy: noise of one group of 5,000 is noise of 5,000 rows.
A number of rows says nothing else. Both are fitted together, by least squares in units of their noise, and no size is
dropped because noise hides it: what the number of rows asks for stays, only how it spreads over sizes follows a prior.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from privbench_core.domain.binning import Binning, merge_cells
from privbench_core.domain.group_sizes import GroupSizeCodec

Array = NDArray[np.float64]
_MAX_CODES = 40
_EXACT = 1e-6  # noise of what is known exactly: what is divided by it stays finite
_UNKNOWN = 0.2  # of the rows beyond what is counted in full: what is not known of them


@dataclass(frozen=True)
class Sum:
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
    """

    codec: GroupSizeCodec
    binning: Binning
    counts: Array
    sigmas: Array

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

    def unknown_beyond(self, most: float) -> float:
        """Standard deviation of what is known of the rows that `rows` leaves out, and of what they may differ by."""
        beyond = mean_sizes(self.codec, self.binning) - mean_sizes(self.codec, self.binning, most)
        there = self.counts > 0
        return float(
            np.hypot(
                _UNKNOWN * self.counts @ beyond, np.sqrt((self.sigmas * beyond)[there] @ (self.sigmas * beyond)[there])
            )
        )


def estimate_sizes(
    codec: GroupSizeCodec, noisy: Array, sigma: float, bar: float, groups: Sum | None = None, rows: Sum | None = None
) -> SizeCounts:
    """Counts of sizes that agree with all that was measured, as far as noise lets them.

    Args:
        codec: Of sizes.
        noisy: Released number of groups of each cell, shape (codec.size,).
        sigma: Standard deviation of their noise.
        bar: Standard deviations that noise alone does not reach in any cell.
        groups: Released number of groups.
        rows: Released sum of their sizes.
    """
    held = codec.held(noisy, sigma, bar)
    binning = codec.decaying(merge_cells(held, codec, sigma, _MAX_CODES), held, sigma)
    cells = np.bincount(np.asarray(binning.code_of), minlength=binning.size)
    sigmas = sigma * np.sqrt(cells)
    sums = [] if groups is None else [(np.ones(binning.size), groups)]
    sums += [] if rows is None else [(mean_sizes(codec, binning, rows.most), rows)]
    return SizeCounts(codec, binning, _fitted(binning.sums(noisy), sigmas, sums), sigmas)


def _fitted(noisy: Array, sigmas: Array, sums: Sequence[tuple[Array, Sum]]) -> Array:
    """Non-negative least squares in units of noise: the counts, and weighted sums of them; shape of the counts."""
    matrix, right = [np.diag(1 / np.maximum(sigmas, _EXACT))], [noisy / np.maximum(sigmas, _EXACT)]
    for weights, measured in sums:
        matrix.append(weights[None, :] / max(measured.sigma, _EXACT))
        right.append(np.array([measured.value / max(measured.sigma, _EXACT)]))
    return np.asarray(nnls(np.vstack(matrix), np.concatenate(right))[0], dtype=float)


def mean_sizes(codec: GroupSizeCodec, binning: Binning, most: float = np.inf) -> Array:
    """Expected size of the groups of each code, larger ones counted as ``most``, shape (codes,)."""
    return binning.sums(np.asarray(binning.weights) * codec.means(most))
