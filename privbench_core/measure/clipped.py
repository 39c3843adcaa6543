"""What counts of rows say where units are clipped in L2 norm, so that more rows count than the noise grows.

Noise as long as a unit's vector of counts is spread over all codes alike, and rows are not: most have few codes, of
defaults and NULLs, and so have those of units with many. So the count of a code that a share p of the rows has is
multiplied by about √(max p / p) before units are clipped, for noise that is so much smaller after it.

A unit whose rows all have one code has a longer vector of counts than one whose rows are spread, so that fewer of its
rows count; and fewer still where that code's counts are scaled. How many do follows from one number: the share of a
unit's rows that have a code for what the unit is, the same for all of them, its own code being distributed like all
rows. The others have theirs by chance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from privbench_core.guards import GRID_STEPS, NEGLIGIBLE, SMOOTHING
from privbench_core.models.row_count import RowCount
from privbench_core.privacy.clipping import LARGEST_SCALE

Array = NDArray[np.float64]
Lengths = NDArray[np.int64]


def vector_lengths(likely: Array, most: float) -> Lengths:
    """Return how long a row with each code makes the vector of its unit's counts: powers of two, shape (codes,).

    Args:
        likely: What the shares of codes may well be, up to a factor; none of them negative.
        most: T. No row is longer: alone, a unit's only row counts in full, with whichever code.
    """
    largest = max(float(likely.max(initial=0.0)), NEGLIGIBLE)
    powers = np.round(np.log2(largest / np.maximum(likely, largest * NEGLIGIBLE)) / 2)
    longest = math.floor(math.log2(min(most, LARGEST_SCALE)))
    return np.asarray(2 ** np.minimum(powers, longest)).astype(np.int64)


@dataclass(frozen=True)
class CollisionPosterior:
    """How likely two rows of a unit have the same code for what their unit is: a posterior on a grid.

    Attributes:
        likelihoods: Logarithms of the probabilities of what was measured, up to a number, shape (grid,); all values are
            as likely beforehand.
    """

    likelihoods: Array = field(default_factory=lambda: np.zeros(GRID_STEPS))

    @staticmethod
    def counted(size: RowCount, lengths: Lengths, shapes: Array, most: float) -> Array:
        """How many rows of each class count if all of them have a code, shape (grid, codes, classes).

        Args:
            size: Of the table.
            lengths: Of a row with each code, shape (codes,).
            shapes: Distributions in each class, shape (classes, codes).
            most: T.
        """
        own, squares = np.sqrt(_grid())[:, None, None], lengths[:, None].astype(float) ** 2
        shares = shapes.T
        # Of units by their own code: mean square of the length of a row, and of what two rows add to that of a vector.
        row = own * squares + (1 - own) * (shares * squares).sum(axis=0)
        others = (shares**2 * squares).sum(axis=0)
        pair = own**2 * squares + 2 * own * (1 - own) * shares * squares + (1 - own) ** 2 * others
        counted = size.counted(most / np.sqrt(row), np.minimum(pair / row, 1.0))
        return np.asarray(own * counted + (1 - own) * (counted * shares).sum(axis=1, keepdims=True))

    def updated(self, expected: Array, rows: float, sigmas: Array) -> CollisionPosterior:
        """The same, with a number of rows that was found to count, the numbers expected, and their deviations."""
        deviations = np.maximum(sigmas, SMOOTHING)
        likelihoods = self.likelihoods - 0.5 * ((rows - expected) / deviations) ** 2 - np.log(deviations)
        return CollisionPosterior(likelihoods)

    @property
    def expected(self) -> float:
        """How likely two rows of a unit are alike for what their unit is."""
        return float(self.mean(_grid()))

    def mean(self, values: Array) -> Array:
        """The mean of what depends on it, shape (grid, ..)."""
        return np.tensordot(self._odds, values, axes=1)

    def deviation(self, values: Array) -> Array:
        """The standard deviation of the same."""
        return np.sqrt(np.maximum(self.mean((values - self.mean(values)) ** 2), 0.0))

    @property
    def _odds(self) -> Array:
        odds = np.exp(self.likelihoods - self.likelihoods.max())
        return np.asarray(odds / odds.sum())


def _grid() -> Array:
    return np.linspace(0.0, 1.0, GRID_STEPS)
