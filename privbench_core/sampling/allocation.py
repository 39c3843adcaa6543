"""References to a private parent allocated to ranges of rows, so that every parent stays as popular as over all rows.

Each parent has as many *places* as it is to be referred to. If the rows of each range chose among all parents by
themselves, caps would not hold, and if each range had parents of its own, none could have more rows than a range. So
each range gets some places of each kind of parent, and of each parent that has many: its share of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privbench_core.guards import SLOTS
from privbench_core.sampling.ranges import weighted_shares

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Allocation:
    """Which places each range of rows gets, known without a list of them.

    Places come in blocks as long as there are slots, 2^k, and ranges have slots in proportion to their rows. Place i of
    a block is in slot (i·g + o) mod 2^k, where g is the odd number next to the golden section of 2^k and o a random
    offset of the block. Consecutive places, those of a parent and of a kind, are so spread evenly over the ranges.

    Attributes:
        ends: Where the slots of each range begin, and where the last ones end; shape (ranges + 1,).
    """

    ends: tuple[int, ...]

    @classmethod
    def by_rows(cls, rows: Sequence[int]) -> Allocation:
        """Return the allocation to ranges of so many rows each."""
        slots = 1 << (len(rows) * SLOTS - 1).bit_length()
        return cls(tuple(weighted_shares(slots, rows)))

    def places(self, number: int, count: int, rng: np.random.Generator) -> Numbers:
        """Return which of ``count`` places a range gets, ascending: about as many as are its share.

        Args:
            number: Of the range.
            count: Places in all.
            rng: The same for every range: then each place is in one range.

        >>> allocation = Allocation.by_rows([1, 3])
        >>> found = [allocation.places(number, 1000, np.random.default_rng(0)) for number in range(2)]
        >>> [len(places) for places in found], (np.sort(np.concatenate(found)) == np.arange(1000)).all().item()
        ([249, 751], True)
        """
        slots = self.ends[-1]
        offsets = rng.integers(0, slots, -(-count // slots))
        mine = np.arange(*self.ends[number : number + 2])
        back = pow(round(slots * (5**0.5 - 1) / 2) | 1, -1, slots)
        inside = (mine - offsets[:, np.newaxis]) % slots * back % slots
        found = np.sort((inside + np.arange(len(offsets))[:, np.newaxis] * slots).ravel())
        return np.asarray(found[found < count], dtype=np.int64)

    def allocated(self, number: int, degrees: Numbers, rng: np.random.Generator) -> Numbers:
        """Return how many places of each parent a range gets, shape (parents,).

        Args:
            number: Of the range.
            degrees: Places of each parent; parents of a kind follow each other.
            rng: As in `places`.
        """
        ends = np.cumsum(degrees)
        places = self.places(number, int(ends[-1]) if len(ends) else 0, rng)
        parents = np.searchsorted(ends, places, side="right")
        return np.asarray(np.bincount(parents, minlength=len(degrees)), dtype=np.int64)
