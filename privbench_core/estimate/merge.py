"""Sum counts over groups of codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from privbench_core.errors import InternalError

Number = TypeVar("Number", np.int64, np.float64)


def merge_codes(counts: NDArray[Number], groups: Sequence[NDArray[np.int64]]) -> NDArray[Number]:
    """Return counts over groups of codes. Integers must add up to less than 2⁶³.

    Args:
        counts: Any shape.
        groups: Per axis, the group of each code, dense from 0.

    Raises:
        InternalError: Not one group for each code of each axis.

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
