"""A codec for numbers of children: small ones in cells of their own, then cells that widen geometrically up to τ."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.columns.binning import Binning
from privbench_core.columns.codec import Codes
from privbench_core.columns.segmentation import SIGNIFICANT

_SINGLES = 16
_GROWTH = 1.2


@dataclass(frozen=True)
class FanoutCodec:
    """Numbers 0..``bound`` <-> cells; numbers above the bound are clamped (truncation has made them impossible).

    >>> FanoutCodec(3).size
    4
    """

    bound: int

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """First number of each cell."""
        starts = list(range(min(self.bound, _SINGLES) + 1))
        while starts[-1] < self.bound:
            starts.append(min(self.bound + 1, max(starts[-1] + 1, int(starts[-1] * _GROWTH))))
        return np.array([start for start in starts if start <= self.bound], dtype=np.int64)

    @property
    def size(self) -> int:
        """Number of cells."""
        return len(self.starts)

    @property
    def ordered(self) -> int:
        """All cells are ordered."""
        return self.size

    @property
    def null(self) -> int | None:
        """There is no NULL."""
        return None

    @property
    def outside(self) -> tuple[int, ...]:
        """There is nothing outside."""
        return ()

    def encode(self, values: pa.ChunkedArray) -> Codes:
        """Cells of numbers, shape (n,)."""
        numbers = np.clip(values.to_numpy(), 0, self.bound)
        return np.asarray(np.searchsorted(self.starts, numbers, side="right") - 1, dtype=np.int32)

    def decode(self, cells: Codes, rng: np.random.Generator) -> pa.Array:
        """Whole numbers; inside a cell [a, b) a number x is about as likely as 1/x², see `decaying`."""
        first, end = self.starts[cells], np.append(self.starts[1:], self.bound + 1)[cells]
        drawn = first * end / (end - rng.random(len(cells)) * (end - first) + (end == 0))
        return pa.array(np.where(first == 0, 0, np.clip(drawn.astype(np.int64), first, end - 1)))

    def labels(self) -> list[str]:
        """One number, or the first and the last of a cell."""
        ends = np.append(self.starts[1:], self.bound + 1) - 1
        return [str(a) if a == b else f"{a}-{b}" for a, b in zip(self.starts, ends, strict=True)]

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able description."""
        return {"codec": "group size", "bound": self.bound}

    def decaying(self, binning: Binning, noisy: NDArray[np.float64], sigma: float) -> Binning:
        """``binning`` with the cells of each code that is lost in noise weighing as under a tail of P[x] ~ 1/x².

        Numbers of children are heavy-tailed, and noise merges the tail into a few wide codes. Spreading a code evenly
        over its cells would put most of its children on sizes that hardly a parent has. A public prior, for codes whose
        cells hold less than three standard deviations of the noise each; where the counts speak, they are believed.

        Args:
            binning: Of this codec's cells.
            noisy: Released count of each cell, shape (size,).
            sigma: Standard deviation of their noise.
        """
        mass = 1 / np.maximum(self.starts, 0.5) - 1 / np.append(self.starts[1:], self.bound + 1)
        code_of = np.asarray(binning.code_of)
        weights = np.asarray(binning.weights)
        cells = np.bincount(code_of, minlength=binning.size)
        lost = (cells > 1) & (binning.sums(noisy) <= SIGNIFICANT * sigma * cells)
        mass = np.where(lost[code_of], mass, weights)
        mass /= np.bincount(code_of, weights=mass, minlength=binning.size)[code_of]
        return Binning(binning.code_of, tuple(mass.tolist()), binning.ordered)

    def held(self, noisy: NDArray[np.float64], sigma: float, bar: float) -> NDArray[np.float64]:
        """Counts of cells without the noise on sizes that nothing speaks for.

        An accident of noise at 5,000 children is as many rows as a small database has. The largest size that is spoken
        for is the last cell that stands out of the noise, by itself or with all cells above it. What noise leaves of
        the sum above that is spread as under a tail of P[x] ~ 1/x², see `decaying`. Post-processing.

        Args:
            noisy: Released count of each cell, shape (size,).
            sigma: Standard deviation of their noise.
            bar: Standard deviations that noise alone does not reach.

        >>> FanoutCodec(4).held(np.array([60.0, 30.0, -2.0, 4.0, 3.0]), 2.0, 4.0).round(1).tolist()
        [60.0, 30.0, 0.9, 0.4, 0.3]
        """
        above = np.cumsum(noisy[::-1])[::-1]
        spread = sigma * np.sqrt(np.arange(self.size, 0, -1))
        told = np.flatnonzero((noisy > bar * sigma) | (above > bar * spread))
        if not len(told) or told[-1] == self.size - 1:
            return noisy
        first = int(told[-1]) + 1
        held = noisy.copy()
        mass = (1 / np.maximum(self.starts, 0.5) - 1 / np.append(self.starts[1:], self.bound + 1))[first:]
        held[first:] = max(0.0, above[first] - spread[first]) * mass / mass.sum()
        return held

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> FanoutCodec:
        """The inverse of `to_dict`."""
        return cls(stored["bound"])
