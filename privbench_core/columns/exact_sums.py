"""Sums of integers that are exact where a float's 53 bits are too few, and stop at a bound where 64 bits are.

How many rows there are is private, so no sum may fail, or wrap around, because there are many. Clipping at `LARGEST`
moves two sums no further apart than they were.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privbench_core.guards import EXACT_FLOAT
from privbench_core.schema.types.base import INT64_MAX

Numbers = NDArray[np.int64]
LARGEST = INT64_MAX // 2
HALF = LARGEST.bit_length() // 2  # bits of a low word


def weighted_sums(cells: NDArray[np.integer[Any]], weights: NDArray[np.integer[Any]], size: int) -> Numbers:
    """Return Σ of integer weights (up to 2³⁶ in size, of fewer than 2³⁵ rows) per cell, shape (size,).

    >>> weighted_sums(np.array([1, 1, 0]), np.array([1 << 53, 1, -5]), 2).tolist()
    [-5, 9007199254740993]
    """
    heaviest = max(int(weights.max(initial=0)), -int(weights.min(initial=0)))
    if len(cells) * heaviest < EXACT_FLOAT:
        return np.bincount(cells, weights=weights, minlength=size).astype(np.int64)
    bits = 18  # of fewer than 2^35 rows, both words of weights up to 2^36 add up exactly in floats
    low, high = (np.bincount(cells, weights=word, minlength=size).astype(np.int64) for word in words(weights, bits))
    return low + (high << bits)


def words(numbers: NDArray[np.integer[Any]], bits: int) -> tuple[Numbers, Numbers]:
    """Return the low word (of so many bits) and the high word of each number, to be added up apart and `joined`."""
    wide = numbers.astype(np.int64, copy=False)
    return wide & ((1 << bits) - 1), wide >> bits


def joined(low: Numbers, high: Numbers, bits: int) -> Numbers:
    """Return the numbers (not negative) with these words, at most `LARGEST`; low words may have outgrown their bits.

    >>> joined(*words(np.array([5, 1 << 40]), 20), 20).tolist()
    [5, 1099511627776]
    >>> joined(np.array([0]), np.array([1 << 60]), 20).item() == LARGEST
    True
    """
    carried = high + (low >> bits)
    fits = carried <= LARGEST >> bits
    return np.where(fits, (np.where(fits, carried, 0) << bits) + (low & ((1 << bits) - 1)), LARGEST)


def total(numbers: NDArray[np.integer[Any]]) -> int:
    """Return the exact sum of fewer than 2³⁰ numbers of up to 63 bits."""
    low, high = words(numbers, HALF)
    return int(low.sum()) + (int(high.sum()) << HALF)
