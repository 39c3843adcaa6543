"""Weighted counts of coded columns: exact where a float's 53 bits are too few, and stop at a bound where 64 bits are.

How many rows there are is private, so no sum may fail, or wrap around, because there are many. Clipping at `LARGEST`
moves two sums no further apart than they were.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privbench_core.arrays import Numbers
from privbench_core.columns.codec import Codes
from privbench_core.guards import BLOCK_ROWS, EXACT_FLOAT
from privbench_core.schema.types.base import INT64_MAX

LARGEST = INT64_MAX // 2
HALF = LARGEST.bit_length() // 2  # bits of a low word


def cell_index(codes: Mapping[str, Codes], sizes: Mapping[str, int], columns: Sequence[str]) -> Codes:
    """Row-major cell number of each row in the table over ``columns``, shape (n,), in 32 bits where they suffice."""
    few = math.prod(sizes[name] for name in columns) <= np.iinfo(np.int32).max
    cells: Codes = codes[columns[0]].astype(np.int32 if few else np.int64)
    for name in columns[1:]:
        cells *= sizes[name]
        cells += codes[name]
    return cells


def contingency(
    codes: Mapping[str, Codes],
    sizes: Mapping[str, int],
    columns: Sequence[str],
    weights: NDArray[np.integer[Any]] | None = None,
) -> Numbers:
    """Counts (or sums of integer weights, each below 2⁵³) over all code combinations of ``columns``, shape (size, ...).

    Additive over chunks of rows, and exact in 64 bits: a block adds up to no more than a float holds.

    >>> contingency({"a": np.array([0, 1, 1], np.int32)}, {"a": 3}, ["a"])
    array([1, 2, 0])
    """
    shape = tuple(sizes[name] for name in columns)
    total = np.zeros(math.prod(shape), dtype=np.int64)
    rows, block = len(codes[columns[0]]), max(BLOCK_ROWS, len(total))
    if weights is not None:
        block = max(1, min(block, EXACT_FLOAT // max(1, int(weights.max(initial=0)))))
    for start in range(0, rows, block):  # what a block needs stays in the cache
        part = slice(start, start + block)
        cells = cell_index({name: codes[name][part] for name in columns}, sizes, columns)
        here = None if weights is None else weights[part]
        total += np.bincount(cells, weights=here, minlength=len(total)).astype(np.int64, copy=False)
    return total.reshape(shape)


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
