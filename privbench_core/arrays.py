"""Arrays by what they hold, as all modules call them, and what is often asked of them; docstrings give their shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]
Mask = NDArray[np.bool_]
_SPARSE = 8  # different numbers that there could be, for each that there is, up to which none need be sorted


def dense(numbers: NDArray[Any]) -> Numbers:
    """Return numbers from 0 on for different ones, in their order, all of shape (n,).

    >>> dense(np.array([7, -1, 7, 30])).tolist()
    [1, 0, 1, 2]
    """
    least, most = (int(end) for end in (numbers.min(), numbers.max())) if len(numbers) else (0, 0)
    if numbers.dtype.kind not in "iu" or most - least > _SPARSE * len(numbers):
        return np.unique(numbers, return_inverse=True)[1].astype(np.int64)
    places, there = numbers - least, np.zeros(most - least + 1, dtype=np.int64)
    there[places] = 1
    return (np.cumsum(there) - 1)[places]


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
