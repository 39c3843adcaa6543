"""Weighted contingency counts of coded columns, exact for integer weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from privbench_core.domain.codec import Codes
from privbench_core.errors import InternalError

_MAX_EXACT = 1 << 53


def cell_index(codes: Mapping[str, Codes], sizes: Mapping[str, int], columns: Sequence[str]) -> NDArray[np.int64]:
    """Row-major cell number of each row in the table over ``columns``, shape (n,)."""
    cells = codes[columns[0]].astype(np.int64)
    for name in columns[1:]:
        cells *= sizes[name]
        cells += codes[name]
    return cells


def contingency(
    codes: Mapping[str, Codes],
    sizes: Mapping[str, int],
    columns: Sequence[str],
    weights: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """Counts (or sums of integer weights) over all code combinations of ``columns``, shape (size, ...).

    Additive over chunks of rows. InternalError if the weights add up beyond what a float holds exactly.

    >>> contingency({"a": np.array([0, 1, 1], np.int32)}, {"a": 3}, ["a"])
    array([1, 2, 0])
    """
    shape = tuple(sizes[name] for name in columns)
    cells = cell_index(codes, sizes, columns)
    if weights is None:
        return np.bincount(cells, minlength=math.prod(shape)).astype(np.int64).reshape(shape)
    if len(weights) and len(weights) * int(weights.max()) >= _MAX_EXACT:
        raise InternalError("too much weight for exact accumulation")
    return np.bincount(cells, weights=weights, minlength=math.prod(shape)).astype(np.int64).reshape(shape)
