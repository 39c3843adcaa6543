"""Marginals of rows with units clipped in L2 norm, where more rows count then than the noise grows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from privbench_core.models.row_count import RowCount
from privbench_core.privacy.budget import Measure, Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.queries import Marginal

Array = NDArray[np.float64]
_WORTH = 1.05  # times as many rows that count: less is not worth the time that clipping units takes


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
