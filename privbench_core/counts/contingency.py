"""Weighted contingency counts of coded columns, exact for integer weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from privbench_core.domain.codec import Codes
from privbench_core.errors import InternalError

Number = TypeVar("Number", np.int64, np.float64)
_MAX_EXACT = 1 << 53
_BLOCK = 1 << 15  # rows counted at a time


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
    rows, block = len(codes[columns[0]]), max(_BLOCK, len(total))
    if weights is not None:
        block = max(1, min(block, _MAX_EXACT // max(1, int(weights.max(initial=0)))))
    for start in range(0, rows, block):  # what a block needs stays in the cache
        part = slice(start, start + block)
        cells = cell_index({name: codes[name][part] for name in columns}, sizes, columns)
        here = None if weights is None else weights[part]
        total += np.bincount(cells, weights=here, minlength=len(total)).astype(np.int64, copy=False)
    return total.reshape(shape)


def merge_codes(counts: NDArray[Number], groups: Sequence[NDArray[np.int64]]) -> NDArray[Number]:
    """Counts over groups of codes: of each axis of ``counts``, the group of each code, dense from 0.

    InternalError if that is not one group for each code of each axis. Integers must add up to less than 2⁶³.

    >>> merge_codes(np.array([[1, 2, 3], [4, 5, 6]]), [np.array([0, 1]), np.array([0, 1, 0])])
    array([[ 4,  2],
           [10,  5]])
    """
    if tuple(group_of.shape for group_of in groups) != tuple((size,) for size in counts.shape) or any(
        group_of.min() < 0 for group_of in groups
    ):
        raise InternalError("each code of each column is in one group")
    merged = counts
    for axis, group_of in enumerate(groups):
        merged = np.moveaxis(_first_axis_merged(np.moveaxis(merged, axis, 0), group_of), 0, axis)
    return merged


def _first_axis_merged(counts: NDArray[Number], group_of: NDArray[np.int64]) -> NDArray[Number]:
    merged = np.zeros((int(group_of.max()) + 1, *counts.shape[1:]), dtype=counts.dtype)
    np.add.at(merged, group_of, counts)
    return merged
