"""Counts in which each unit's own vector of counts is clipped in L2 norm: the exact arithmetic, in whole numbers.

Gaussian noise pays for the length of what a unit adds, not for the sum of it. A unit whose rows are spread over many
cells adds a vector that is much shorter than the number of its rows, so that more of them count at the same noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.exact_sums import weighted_sums
from privbench_core.privacy.relations import WEIGHT_SCALE

_FEW = 16  # possible pairs of a unit and a cell per row: so many are counted in less time than rows are put in order
Numbers = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class UnitsOfRows:
    """Whose rows a view shows: private.

    Attributes:
        most: T, the longest vector of counts of a unit that counts in full.
        units: A number for the unit of each row, shape (n,).
        rows: Number of rows of that unit in the view, shape (n,).
    """

    most: int
    units: Numbers
    rows: Numbers

    def counts(self, cells: Numbers, size: int) -> NDArray[np.int64]:
        """Return the sum of all units' clipped vectors of counts, in weights, shape (size,).

        The vector c of a unit is multiplied by ⌊U/max(T, ‖c‖₂)⌋, where U is `WEIGHT_SCALE`; of a unit with more than U
        rows, by 0.

        Args:
            cells: The cell that each row is in, shape (n,).
            size: Number of cells.

        >>> UnitsOfRows(1, np.array([7, 7, 7, 7]), np.array([4, 4, 4, 4])).counts(np.array([0, 1, 2, 3]), 4).tolist()
        [524288, 524288, 524288, 524288]
        """
        in_full, clipped, units = self._apart
        counts = np.bincount(cells[in_full], minlength=size).astype(np.int64) * (WEIGHT_SCALE // self.most)
        pairs = units * size + cells[clipped]
        if int(units.max(initial=-1)) * size < _FEW * len(pairs):
            every = np.bincount(pairs)
            found = np.flatnonzero(every)
            numbers = every[found]
        else:
            found, numbers = np.unique(pairs, return_counts=True)
        of_unit, of_cell = found // size, found % size
        squares = np.bincount(of_unit, numbers.astype(np.float64) ** 2).astype(np.int64)  # at most 2^40: exact
        shares = np.sqrt(WEIGHT_SCALE**2 // squares).astype(np.int64)
        weights = np.minimum(WEIGHT_SCALE // self.most, shares)
        return counts + weighted_sums(of_cell, numbers * weights[of_unit], size)

    @cached_property
    def _apart(self) -> tuple[Numbers, Numbers, NDArray[np.int64]]:
        """Which rows are of units that count in full, which of units to be clipped, and whose these are, from 0."""
        longer = self.rows > self.most  # a vector is no longer than the number of rows
        clipped = np.flatnonzero(longer & (self.rows <= WEIGHT_SCALE))
        _, units = np.unique(self.units[clipped], return_inverse=True)
        return np.flatnonzero(~longer), clipped, units.astype(np.int64)
