"""The place of a row in its group: how many members stand before it, and how large the group is, as one code."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


def place_count(most: int) -> int:
    """Return the number of codes where members and sizes are distinguished up to ``most``."""
    return most * (most + 1) // 2


def place_codes(ranks: NDArray[np.integer[Any]], sizes: NDArray[np.integer[Any]], most: int) -> Numbers:
    """Return the code of each place, ordered by rank, then by size; what is beyond ``most`` is counted as that.

    Args:
        ranks: Members of the group that stand before the row, shape (n,).
        sizes: Members of the group, shape (n,).
        most: At least 1.

    >>> place_codes(np.array([0, 0, 0, 1, 1, 2, 7]), np.array([1, 2, 3, 2, 3, 3, 9]), 3).tolist()
    [0, 1, 2, 3, 4, 5, 5]
    """
    size = np.minimum(sizes, most).astype(np.int64)
    rank = np.minimum(ranks, size - 1).astype(np.int64)
    return np.asarray(rank * most - rank * (rank - 1) // 2 + size - 1 - rank)


def sizes_and_ranks(most: int) -> tuple[Numbers, Numbers]:
    """Return the size and the rank of each code, shape (codes,)."""
    rank = np.repeat(np.arange(most), np.arange(most, 0, -1))
    return rank + 1 + np.concatenate([np.arange(most - first) for first in range(most)]), rank
