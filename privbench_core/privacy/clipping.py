"""Counts in which each unit's own vector of counts is clipped in L2 norm: the exact arithmetic, in whole numbers.

Gaussian noise pays for the length of what a unit adds, not for the sum of it. A unit whose rows are spread over many
cells adds a vector that is much shorter than the number of its rows, so that more of them count at the same noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.exact_sums import weighted_sums
from privbench_core.privacy.relations import WEIGHT_SCALE

LARGEST_SCALE = 64  # of what a row counts in a cell
_FEW = 16  # possible pairs of a unit and a cell per row: so many are counted in less time than rows are put in order
Numbers = NDArray[np.integer[Any]]
_ALIKE: Numbers = np.ones(1, dtype=np.int64)


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
    _found: dict[int, tuple[Numbers, Numbers, NDArray[np.int64]]] = field(default_factory=dict, init=False)

    def counts(self, cells: Numbers, size: int, lengths: Numbers = _ALIKE) -> NDArray[np.int64]:
        """Return the sum of all units' clipped vectors of counts, in weights, shape (size,).

        The vector c of a unit is multiplied by ⌊U/max(T, ‖a c‖₂)⌋, where U is `WEIGHT_SCALE` and a the length of a row
        in each cell; of a unit with more than U rows, by 0.

        Args:
            cells: The cell that each row is in, shape (n,).
            size: Number of cells.
            lengths: Of a row in each cell, whole numbers, shape (size,); or in all cells, shape (1,).

        >>> UnitsOfRows(1, np.array([7, 7, 7, 7]), np.array([4, 4, 4, 4])).counts(np.array([0, 1, 2, 3]), 4).tolist()
        [524288, 524288, 524288, 524288]
        """
        in_full, clipped, units = self._apart(int(lengths.max(initial=1)))
        counts: NDArray[np.int64] = np.bincount(cells[in_full], minlength=size) * (WEIGHT_SCALE // self.most)
        pairs, number = units * size + cells[clipped], int(units.max(initial=-1)) + 1
        if number * size < _FEW * len(pairs):
            vectors = np.bincount(pairs, minlength=number * size).reshape(number, size).astype(np.float64)
            weights = self._weights(np.square(vectors * lengths).sum(axis=1))
            summed = weights.astype(np.float64) @ vectors  # exact: no unit adds more than U to a cell
            return counts + summed.astype(np.int64)
        found, numbers = np.unique(pairs, return_counts=True)
        of_unit, of_cell = found // size, found % size
        longer = (numbers * np.broadcast_to(lengths, size)[of_cell]).astype(np.float64)
        weights = self._weights(np.asarray(np.bincount(of_unit, longer**2), dtype=np.float64))
        return counts + weighted_sums(of_cell, numbers * weights[of_unit], size)

    def _weights(self, squares: NDArray[np.float64]) -> Numbers:
        """Return the weight of each row of units, given the squared lengths of their vectors.

        Up to 2^53 sums are exact, and quotients of more than 2^40 are 0 however they are rounded.
        """
        shares = np.sqrt(np.floor(WEIGHT_SCALE**2 / squares)).astype(np.int64)
        return np.minimum(WEIGHT_SCALE // self.most, shares)

    def _apart(self, longest: int) -> tuple[Numbers, Numbers, NDArray[np.int64]]:
        """Return which rows are of units that count in full, which of units to be clipped, and whose these are, from 0.

        Args:
            longest: The largest length of a row.
        """
        if longest not in self._found:
            longer = self.rows > self.most // longest  # a vector is no longer than its number of rows, all so long
            clipped = np.flatnonzero(longer & (self.rows <= WEIGHT_SCALE))
            units = self.units[clipped]
            if (units[1:] >= units[:-1]).all():  # as they come out of databases: there is nothing to sort
                units = np.append(0, np.cumsum(units[1:] != units[:-1]))[: len(units)]
            else:
                units = np.unique(units, return_inverse=True)[1]
            self._found[longest] = np.flatnonzero(~longer), clipped, units.astype(np.int64)
        return self._found[longest]


def lengths_of_cells(scales: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """Return products of the scales of columns over all combinations of their codes, shape (codes of each column).

    >>> lengths_of_cells(((1, 2), (1, 4))).tolist(), lengths_of_cells(()).tolist()
    ([[1, 4], [2, 8]], 1)
    """
    return reduce(np.multiply.outer, [np.array(scale, dtype=np.int64) for scale in scales], np.array(1, dtype=np.int64))
