"""Arrays by what they hold, as all modules call them, and what is often asked of them; docstrings give their shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]
Mask = NDArray[np.bool_]


def dense(numbers: NDArray[Any]) -> Numbers:
    """Return numbers from 0 on for different ones, in their order, all of shape (n,).

    >>> dense(np.array([7, -1, 7, 30])).tolist()
    [1, 0, 1, 2]
    """
    return np.unique(numbers, return_inverse=True)[1].astype(np.int64)


def finer(numbers: NDArray[Any], codes: NDArray[Any]) -> Numbers:
    """Return `dense` numbers of the pairs of a number and a code, which is at least -1, all of shape (n,)."""
    return dense(numbers * (int(codes.max(initial=0)) + 1) + codes)


def runs(numbers: NDArray[Any]) -> tuple[Numbers, Numbers]:
    """Return where each run of equal numbers starts, and how long it is.

    >>> runs(np.array([4, 4, 7]))
    (array([0, 2]), array([2, 1]))
    """
    starts = np.flatnonzero(np.r_[True, numbers[1:] != numbers[:-1]][: len(numbers)])
    return starts, np.diff(np.append(starts, len(numbers)))


def order_within(groups: NDArray[Any], numbers: Numbers) -> Numbers:
    """Return the rows by their groups, and by their numbers in each; equal ones stay in their order; all of shape (n,).

    >>> order_within(np.array([1, 0, 1]), np.array([8, 9, 7])).tolist()
    [1, 2, 0]
    """
    if not len(groups):
        return np.empty(0, np.int64)
    first, low = int(groups.min()), int(numbers.min())
    span = int(numbers.max()) - low + 1
    if (int(groups.max()) - first + 1) * span > np.iinfo(np.int64).max:
        return np.lexsort((numbers, groups))
    return np.argsort((groups - first) * np.int64(span) + (numbers - low), kind="stable")
