"""How many values a list has beside the named ones, and how many rows share each: from noisy sums by rank."""

from __future__ import annotations

import math

import numpy as np
import scipy
from numpy.typing import NDArray

from privbench_core.guards import CLEAR_BLOCK, MAX_CELLS, NEGLIGIBLE, RANK_BLOCKS

Array = NDArray[np.float64]


def rank_blocks(rows: float, sigma: float) -> NDArray[np.int64]:
    """Return one past the last rank of each block: growing blocks, as many as noise can tell apart.

    Noise of K blocks adds up to σ√K, so K is at most (rows / 4σ)².

    Args:
        rows: That have a value which was not named; there are at most so many such values.
        sigma: Standard deviation of the noise on the rows of a block.
    """
    most = min(max(1, math.ceil(rows)), MAX_CELLS)
    blocks = int(np.clip((rows / (CLEAR_BLOCK * max(sigma, NEGLIGIBLE))) ** 2, *RANK_BLOCKS))
    return np.unique(np.geomspace(1, most, blocks).round().astype(np.int64))


def value_blocks(
    noisy: Array, ends: NDArray[np.int64], sigma: float, rows: float
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return the number of values in each block of ranks, and their rows.

    Means of blocks do not increase (isotonic regression), and sums add up to ``rows``. A value has at least one row, so
    a block holds at most as many values as rows: in one that is not full, each has one.

    >>> numbers, shared = value_blocks(np.array([50.0, 30.0, 20.0, 0.0]), np.array([1, 3, 33, 100]), 0.1, 100.0)
    >>> numbers, [round(each) for each in shared]
    ((1, 2, 20), [50, 30, 20])
    """
    widths = np.diff(ends, prepend=0).astype(np.float64)
    means = np.maximum(scipy.optimize.isotonic_regression(noisy / widths, weights=widths, increasing=False).x, 0.0)
    sums = means * widths
    # What noise leaves beyond the last value is spread thinly: less than half of a row per rank for most of its ranks.
    sums = np.where(np.cumsum(sums[::-1])[::-1] > sigma, sums, 0.0)
    sums = sums * (rows / sums.sum()) if sums.sum() > 0 else np.append(rows, np.zeros(len(widths) - 1))
    numbers = np.minimum(widths, np.rint(sums))
    kept = numbers > 0
    if not kept.any():
        return (1,), (1.0,)
    return tuple(numbers[kept].astype(int).tolist()), tuple(sums[kept].tolist())
