"""Weighted contingency counts of coded columns, exact for integer weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.guards import BLOCK_ROWS, EXACT_FLOAT


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
) -> NDArray[np.int64]:
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
