"""A codec for numbers of children: small ones in cells of their own, then cells that widen geometrically up to τ."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa
import scipy
from numpy.typing import NDArray

from privbench_core.columns.codec import Codec, Codes
from privbench_core.guards import CELLS_PER_OCTAVE, SINGLE_NUMBERS


@dataclass(frozen=True)
class FanoutCodec(Codec):
    """Numbers 0..``bound`` <-> cells; numbers above the bound are clamped (truncation has made them impossible).

    >>> FanoutCodec(3).size
    4
    """

    bound: int
    nullable: ClassVar[bool] = False  # type: ignore[misc]
    in_order: ClassVar[bool] = True

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """First number of each cell, shape (size,)."""
        octaves = np.log2(max(self.bound, SINGLE_NUMBERS) / SINGLE_NUMBERS)
        wide = SINGLE_NUMBERS * 2 ** (np.arange(int(octaves * CELLS_PER_OCTAVE) + 1) / CELLS_PER_OCTAVE)
        starts = np.append(np.arange(SINGLE_NUMBERS + 1), np.rint(wide).astype(np.int64) + 1)
        return np.asarray(starts[starts <= self.bound], dtype=np.int64)

    @property
    def in_singles(self) -> bool:
        """Whether each number has a cell of its own."""
        return self.bound <= SINGLE_NUMBERS

    @cached_property
    def prior(self) -> NDArray[np.float64]:
        """Return what cells hold, in proportion, under a tail of P[X >= x] ~ x^-1.5: a public prior.

        Each octave has 0.7 times the rows of the one before it.
        """
        ends = np.append(self.starts[1:], self.bound + 1)
        return np.asarray(np.maximum(self.starts, 0.5) ** -1.5 - ends**-1.5)

    @property
    def proper(self) -> int:
        return len(self.starts)

    def encode(self, values: pa.ChunkedArray) -> Codes:
        numbers = np.clip(values.to_numpy(), 0, self.bound)
        return np.asarray(np.searchsorted(self.starts, numbers, side="right") - 1, dtype=np.int32)

    def decode(self, cells: Codes, rng: np.random.Generator) -> pa.Array:
        """Whole numbers; inside a cell [a, b) a number x is about as likely as 1/x²."""
        return pa.array(self.within(cells, rng.random(len(cells))))

    def within(self, cells: NDArray[np.integer], quantiles: NDArray[np.float64]) -> NDArray[np.int64]:
        """The number of each cell that this share of the cell's numbers is below, shape (n,).

        >>> FanoutCodec(20).within(np.array([3, 17, 17]), np.array([0.5, 0.0, 0.99])).tolist()
        [3, 17, 19]
        """
        first, end = self.starts[cells], np.append(self.starts[1:], self.bound + 1)[cells]
        drawn = first * end / (end - quantiles * (end - first) + (end == 0))
        return np.where(first == 0, 0, np.clip(drawn.astype(np.int64), first, end - 1))

    def means(self, most: float = np.inf) -> NDArray[np.float64]:
        """Expected number of each cell as `decode` draws it, those above ``most`` counted as ``most``; shape (size,).

        >>> FanoutCodec(20).means()[[0, 3, 17]].round(2).tolist()
        [0.0, 3.0, 17.93]
        """
        first, end = self.starts.astype(float), np.append(self.starts[1:], self.bound + 1).astype(float)
        few, middle = np.maximum(first, 1), np.clip(most, np.maximum(first, 1), end)
        # P[n] is 1/n - 1/(n + 1) but for a factor: n times that adds up to differences of harmonic numbers.
        sums = (
            scipy.special.digamma(middle + 1)
            - scipy.special.digamma(few + 1)
            + np.minimum(most, end) * (1 / middle - 1 / end)
        )
        return np.where(first > 0, sums / np.where(first > 0, 1 / few - 1 / end, 1.0), 0.0)
