"""How many rows an owned table has, and how many of them a unit: as released."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.binning import Binning
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.fanout_bins import FanoutCodec
from privbench_core.privacy.relations import WEIGHT_SCALE

Array = NDArray[np.float64]
UNIT_SIZE = "#rows of unit"
LARGEST_ANY = 1 << 10  # T up to here may be any number (`ViewSpec.rows_per_unit`), larger ones powers of two
_NOTHING = 1e-300
_HALVINGS = 30


@dataclass(frozen=True)
class Clipping:
    """What clipping units in L2 norm is expected to do.

    Attributes:
        rows: Number of rows that count where units are not clipped.
        gain: How many times as many count where they are.
        most: How many times as many there are.
    """

    rows: float = 1.0
    gain: float = 1.0
    most: float = 1.0


@dataclass(frozen=True)
class RowCount:
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
        pairs_together: How likely two rows of a unit have the same codes in two columns (`counted`): as a rule.
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
    pairs_together: float = 1.0

    def counted(self, most: int, together: float = 1.0) -> Array:
        """Number of rows of each class where those of units with more than ``most`` count as so many.

        In the class that ``most`` is in, a number of rows x is taken to be as likely as 1/x.

        Args:
            most: T.
            together: Where units are clipped in L2 norm: how likely two rows of a unit are in the same cell. A unit of
                s rows then has a vector of counts as long as √(s + s(s - 1) times that), its mean; 1 where they are
                not clipped.
        """
        last, first = np.array(self.classes, dtype=float), np.append(1.0, self.classes[:-1])
        mean = np.clip(self.rows_of / np.maximum(self.units_of, _NOTHING), first, last)
        most_of = most / np.sqrt(together + (1 - together) / mean)  # T itself, to the last bit, for 1
        inside = np.clip(most_of, first, last)
        part = (inside - first + inside * np.log(last / inside)) / np.maximum(last - first, _NOTHING)
        beyond = np.minimum(self.rows_of, most_of * self.units_of)
        partly = np.where(first >= most_of, beyond, np.minimum(part, 1) * self.rows_of)
        return np.where(last <= most_of, self.rows_of, partly)

    def together(self, most: int, rows: float) -> float:
        """How likely two rows of a unit are in the same cell, as `counted` has it, if so many rows were counted.

        Args:
            most: T, of a look in which no unit's vector of counts was longer.
            rows: Number of rows that it counted.
        """
        least, largest = 0.0, 1.0
        for _ in range(_HALVINGS):
            middle = (least + largest) / 2
            if float(self.counted(most, middle).sum()) > rows:
                least = middle
            else:
                largest = middle
        return largest

    @property
    def clipping(self) -> Clipping:
        """What clipping units in L2 norm is expected to do for joints."""
        most, every = self.rows_per_unit, float(self.rows_of.sum())
        plain = max(float(self.counted(most).sum()), _NOTHING)
        return Clipping(plain, float(self.counted(most, self.pairs_together).sum()) / plain, every / plain)

    @property
    def for_half(self) -> int:
        """The largest T with which at most half of the rows count: it tells what is gained where units are clipped."""
        possible = counts_up_to(self.classes[-1])
        half = float(self.rows_of.sum()) / 2
        return max((most for most in possible if float(self.counted(most).sum()) <= half), default=possible[0])

    def left_out(self, shape: Array, most: int, together: float = 1.0) -> Array:
        """The distribution of a column over all rows, less that over those that `counted` counts; shape (codes,).

        Args:
            shape: Distributions in each class, shape (classes, codes).
            most: T.
            together: As in `counted`.
        """
        every, counted = self.rows_of, self.counted(most, together)
        return np.asarray((every / max(every.sum(), _NOTHING) - counted / max(counted.sum(), _NOTHING)) @ shape)

    @property
    def in_full(self) -> bool:
        """Whether all rows are counted, of whatever unit."""
        return self.rows_per_unit >= self.classes[-1]

    def to_dict(self) -> dict[str, Any]:
        """A description that `Artifact` can store."""
        return {**vars(self), "classes": list(self.classes)}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> RowCount:
        """The inverse of `to_dict`."""
        return cls(**{**stored, "classes": tuple(stored["classes"])})


def size_classes(numbers: NDArray[np.integer], classes: Sequence[int]) -> NDArray[np.int64]:
    """The class of each number of rows; numbers beyond the last class are in it.

    >>> size_classes(np.array([1, 2, 3, 4, 99]), (1, 2, 4)).tolist()
    [0, 1, 2, 2, 2]
    """
    return np.minimum(np.searchsorted(classes, numbers), len(classes) - 1)


def class_coder(codec: FanoutCodec, classes: Sequence[int]) -> Discretizer:
    """A discretizer of numbers of rows by class, for classes that begin where a cell does."""
    class_of = size_classes(codec.starts, classes)
    cells = np.bincount(class_of)
    return Discretizer(codec, Binning(tuple(class_of.tolist()), tuple((1 / cells[class_of]).tolist()), len(cells)))


def powers_up_to(bound: int) -> list[int]:
    """Powers of two, and in the end the bound, or the first power that is not below it where the bound is large.

    >>> powers_up_to(10), powers_up_to(3000)[-2:]
    ([1, 2, 4, 8, 10], [2048, 4096])
    """
    powers = [1 << power for power in range(min((bound - 1).bit_length(), WEIGHT_SCALE.bit_length() - 1) + 1)]
    return [*powers[:-1], min(powers[-1], bound)] if 1 <= bound <= LARGEST_ANY else powers


def counts_up_to(most: int) -> list[int]:
    """Numbers of rows of a unit to choose T from: powers of two, as many between them, and the largest.

    >>> counts_up_to(10)
    [1, 2, 3, 4, 6, 8, 10]
    """
    between = [3 << power for power in range(most.bit_length()) if 3 << power < min(most, LARGEST_ANY)]
    return sorted({*powers_up_to(most), *between})
