"""Marginals of rows with units clipped in L2 norm, where more rows count then than the noise grows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from privbench_core.models.row_count import RowCount
from privbench_core.privacy.budget import Measure, Price
from privbench_core.privacy.clipping import LARGEST_SCALE
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.queries import Marginal

Array = NDArray[np.float64]
_POSSIBLE = 1e-9  # what is divided by it stays finite
_WORTH = 1.05  # times as many rows that count: less is not worth the time that clipping units takes


@dataclass(frozen=True)
class Vectors:
    """How long rows make the vector of a unit's counts, in cells that are not alike.

    Noise of the length of a vector is spread over its cells as evenly as its counts should be: where some cells hold
    most rows, these need to be counted to more than the others. A count of a cell that holds a share p of the rows is
    multiplied by about √(max p / p), for noise that is so much smaller. Of s rows that have their cells by chance the
    vector is then at most s √max p long, and noise of all cells together is Σ√p / (k √Σp²) times as large, at most 1
    (Jensen), for k cells and as many rows that count.

    Attributes:
        lengths: Of a row in each cell, powers of two, shape (cells,).
        square: Mean of their squares over all rows.
        by_chance: Share of ``square`` that is left of the product of the lengths of two rows in the same cell, 0
            elsewhere, whose cells have nothing to do with each other.
    """

    lengths: NDArray[np.int64]
    square: float
    by_chance: float

    @classmethod
    def of(cls, shares: Array, likely: Array) -> Vectors:
        """For cells with these shares of all rows, and what they may have, neither negative."""
        most = max(float(likely.max(initial=0.0)), _POSSIBLE)
        powers = np.round(np.log2(most / np.maximum(likely, most / LARGEST_SCALE**2)) / 2)
        lengths, shares = (2**powers).astype(np.int64), shares / max(float(shares.sum()), _POSSIBLE)
        square = max(float(shares @ lengths**2), 1.0)
        return cls(lengths, square, min(float(((shares * lengths) ** 2).sum()) / square, 1.0))

    @property
    def scale(self) -> tuple[int, ...]:
        """The lengths as `Marginal` takes them."""
        return tuple(self.lengths.tolist())

    def most(self, most: int) -> float:
        """T for vectors of rows that are all 1 long."""
        return most / math.sqrt(self.square)

    def counted(self, size: RowCount, most: int, alike: float) -> Array:
        """`RowCount.counted`, if units are clipped to T = ``most`` and two of their rows are alike so likely."""
        return size.counted(self.most(most), alike + (1 - alike) * self.by_chance)

    def alike(self, collisions: float) -> float:
        """How likely two rows of a unit are alike for what their unit is, by what collisions of scaled rows tell."""
        return max(0.0, (collisions - self.by_chance) / max(1 - self.by_chance, _POSSIBLE))


@dataclass(frozen=True)
class RowsCounted:
    """Noisy counts, as of the rows that count where units are not clipped.

    Attributes:
        counts: Of the cells.
        sigma: Standard deviation of the noise of each.
        gain: How many times as many rows have counted.
    """

    counts: Array
    sigma: float
    gain: float


def worth_clipping(size: RowCount | None, curator: Curator, price: Price) -> RowCount | None:
    """The size of a view's table if clipping units for joints does more than its noise undoes."""
    if size is None or price.measure is Measure.PURE or size.gain() < _WORTH * curator.noise_of_clipping:
        return None
    return size


def measure_rows(curator: Curator, what: str, asked: Marginal, price: Price, clipped: RowCount | None) -> RowsCounted:
    """Measure a marginal for ``price``, with units clipped if the size of their table is given.

    Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or removing
    one privacy unit; ``docs/privacy.md``, section 5, mechanisms 1 and 4.
    """
    noisy = curator.measure(what, [replace(asked, clipped=clipped is not None)], price)
    gain = 1.0 if clipped is None else clipped.gain(float(noisy.values[0].sum()))
    return RowsCounted(noisy.values[0] / gain, noisy.sigma / gain, gain)
