"""How alike the rows of a unit are in a column, from noisy numbers of rows that count where units are clipped.

A unit whose rows all have one code has a longer vector of counts than one whose rows are spread, so that fewer of its
rows count; and fewer still where that code's counts are scaled. What is said here of rows that count follows from one
number: the share of a unit's rows that have a code for what the unit is, the same for all of them, its own code being
distributed like all rows. The others have theirs by chance.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from privbench_core.models.row_count import RowCount

Array = NDArray[np.float64]
_ALIKE = np.linspace(0, 1, 11)  # two rows of a unit, for what it is: how likely; all as likely beforehand
_NOTHING = 1e-12


@dataclass(frozen=True)
class Alike:
    """What is known of it.

    Attributes:
        likelihoods: Logarithms of the probabilities of what was measured, up to a number, shape (possible,).
    """

    likelihoods: Array = field(default_factory=lambda: np.zeros(len(_ALIKE)))

    @staticmethod
    def counted(size: RowCount, lengths: NDArray[np.int64], shapes: Array, most: float) -> Array:
        """How many rows of each class count if all of them have a code, shape (possible, codes, classes).

        Args:
            size: Of the table.
            lengths: Of a row with each code, shape (codes,).
            shapes: Distributions in each class, shape (classes, codes).
            most: T.
        """
        own, squares = np.sqrt(_ALIKE)[:, None, None], lengths[:, None].astype(float) ** 2
        shares = shapes.T
        # Of units by their own code: mean square of the length of a row, and of what two rows add to that of a vector.
        row = own * squares + (1 - own) * (shares * squares).sum(axis=0)
        others = (shares**2 * squares).sum(axis=0)
        pair = own**2 * squares + 2 * own * (1 - own) * shares * squares + (1 - own) ** 2 * others
        counted = size.counted(most / np.sqrt(row), np.minimum(pair / row, 1.0))
        return np.asarray(own * counted + (1 - own) * (counted * shares).sum(axis=1, keepdims=True))

    def updated(self, expected: Array, rows: float, sigmas: Array) -> Alike:
        """The same, with a number of rows that was found to count, the numbers expected, and their deviations."""
        deviations = np.maximum(sigmas, _NOTHING)
        return Alike(self.likelihoods - 0.5 * ((rows - expected) / deviations) ** 2 - np.log(deviations))

    @property
    def expected(self) -> float:
        """How likely two rows of a unit are alike for what their unit is."""
        return float(self.mean(_ALIKE))

    def mean(self, values: Array) -> Array:
        """The mean of what depends on it, shape (possible, ..)."""
        return np.tensordot(self._odds, values, axes=1)

    def deviation(self, values: Array) -> Array:
        """The standard deviation of the same."""
        return np.sqrt(np.maximum(self.mean((values - self.mean(values)) ** 2), 0.0))

    @property
    def _odds(self) -> Array:
        odds = np.exp(self.likelihoods - self.likelihoods.max())
        return np.asarray(odds / odds.sum())
