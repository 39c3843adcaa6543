"""How many rows an owned table has, and how many of them a unit: as released."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from privbench_core.arrays import Array
from privbench_core.columns.discretizer import Binning, Discretizer
from privbench_core.columns.fanout_bins import FanoutCodec
from privbench_core.guards import LARGEST_ANY, TINY
from privbench_core.privacy.relations import WEIGHT_SCALE
from privbench_core.stored import Storable

UNIT_SIZE = "#rows of unit"


@dataclass(frozen=True)
class UnitCount(Storable):
    """Released before all else of a table: how many units have rows in it, by class of their number of rows.

    Attributes:
        units: Noisy number of units of each class up to the declared bound, all powers of two, shape (powers,); of
            rows, shape (1,), where no unit has more than one.
        sigma: Standard deviation of the noise of each.
        bound: Declared: most rows of a unit.
    """

    units: Array
    sigma: float
    bound: int = 1


@dataclass(frozen=True)
class RowCount(Storable):
    """Released: the size of a table.

    Attributes:
        rows: Estimated number of rows.
        sigma: Standard deviation of what it may be off by.
        rows_per_unit: T, up to how many rows a unit's are counted in full, here and in all that is asked of the table.
        classes: Of units by their number of rows: the most rows in each, powers of two.
        rows_of: Estimated number of rows of each class, shape (classes,).
        units_of: Estimated number of units of each class, shape (classes,).
        bound: Declared: most rows of a unit.
        units: Noisy number of units by class of their number of rows up to the declared bound, all powers of two, shape
            (powers,); none where no unit has more than one row.
        noise: Standard deviation of these.
    """

    rows: float
    sigma: float
    rows_per_unit: int = 1
    classes: tuple[int, ...] = (1,)
    rows_of: Array = field(default_factory=lambda: np.ones(1))
    units_of: Array = field(default_factory=lambda: np.ones(1))
    bound: int = 1
    units: Array | None = None
    noise: float = 0.0

    def counted(self, most: float | Array, collisions: float | Array = 1.0) -> Array:
        """Return how many rows of each class count if units with more than T of them do as T; shape (.., classes).

        Numbers of rows of a class are taken to be spread evenly below their mean, and above it, up to the ends of the
        class: only as many as its largest count all of its rows.

        Args:
            most: T, or several, shape (.., 1).
            collisions: Where units are clipped in L2 norm: how likely two rows of a unit are in the same cell, so that
                the vector of counts of a unit of s rows is √(s + s(s - 1) times that) long; else 1. One for each T.
        """
        last, first = np.array(self.classes, dtype=float), np.append(1.0, self.classes[:-1])
        mean = np.clip(self.rows_of / np.maximum(self.units_of, TINY), first, last)
        above = (mean - first) / np.maximum(last - first, TINY)  # share of units
        in_full = most / np.sqrt(collisions + (1 - collisions) / mean)  # rows of a unit whose vector is as long as T
        of_unit = (1 - above) * _mean_up_to(in_full, first, mean) + above * _mean_up_to(in_full, mean, last)
        return np.asarray(self.rows_of * np.minimum(of_unit / mean, 1.0))

    def collisions(self, most: float, rows: float) -> float:
        """Return how likely two rows of a unit are in one cell, at most, if so many rows were counted: `counted`⁻¹."""
        least, largest = 0.0, 1.0
        for _ in range(30):  # halvings of an interval
            middle = (least + largest) / 2
            least, largest = (middle, largest) if self.counted(most, middle).sum() > rows else (least, middle)
        return largest

    def truncation_bias(self, shape: Array, counted: Array) -> Array:
        """Return the distribution of a column over all rows, less that over those that count; shape (codes,).

        Args:
            shape: Distributions in each class, shape (classes, codes).
            counted: Number of rows of each class that count, see `counted`.
        """
        every = self.rows_of
        return np.asarray((every / max(every.sum(), TINY) - counted / max(counted.sum(), TINY)) @ shape)

    @property
    def effective_units(self) -> float:
        """Of how many units with equally many rows the counts would be as noisy: n²/Σs², where a unit has s rows."""
        squares = float((self.rows_of**2 / np.maximum(self.units_of, TINY)).sum())
        return self.rows if self.bound == 1 else float(self.rows_of.sum()) ** 2 / max(squares, TINY)

    @property
    def in_full(self) -> bool:
        """Whether all rows are counted, of whatever unit."""
        return self.rows_per_unit >= self.classes[-1]


def _mean_up_to(most: Array, least: Array, largest: Array) -> Array:
    """Return the mean of the smaller one of ``most`` and a number uniform between ``least`` and ``largest``."""
    beyond = np.clip(most - least, 0.0, largest - least)
    return np.asarray(np.minimum(most, largest) - beyond**2 / np.maximum(2 * (largest - least), TINY))


def size_classes(numbers: NDArray[np.integer], classes: Sequence[int]) -> NDArray[np.int64]:
    """Return the class of each number of rows; numbers beyond the last class are in it.

    >>> size_classes(np.array([1, 2, 3, 4, 99]), (1, 2, 4)).tolist()
    [0, 1, 2, 2, 2]
    """
    largest = int(numbers.max(initial=0))
    if largest + 1 < len(numbers):  # one number after the other, it would take ten times as long
        return np.asarray(size_classes(np.arange(largest + 1), classes)[numbers])
    return np.minimum(np.searchsorted(classes, numbers), len(classes) - 1)


def class_coder(codec: FanoutCodec, classes: Sequence[int]) -> Discretizer:
    """Return a discretizer of numbers of rows by class, for classes that begin where a cell does."""
    class_of = size_classes(codec.starts, classes)
    return Discretizer(codec, Binning.even(class_of, int(class_of.max()) + 1))


def powers_up_to(bound: int) -> list[int]:
    """Return powers of two, and then the bound, or the first power not below it where the bound is large.

    >>> powers_up_to(10), powers_up_to(3000)[-2:]
    ([1, 2, 4, 8, 10], [2048, 4096])
    """
    powers = [1 << power for power in range(min((bound - 1).bit_length(), WEIGHT_SCALE.bit_length() - 1) + 1)]
    return [*powers[:-1], min(powers[-1], bound)] if 1 <= bound <= LARGEST_ANY else powers


def counts_up_to(most: int) -> list[int]:
    """Return numbers of rows of a unit to choose T from: powers of two, as many between them, and the largest.

    >>> counts_up_to(10)
    [1, 2, 3, 4, 6, 8, 10]
    """
    between = [3 << power for power in range(most.bit_length()) if 3 << power < min(most, LARGEST_ANY)]
    return sorted({*powers_up_to(most), *between})
