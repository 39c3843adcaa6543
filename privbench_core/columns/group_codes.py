"""Codes of what a row is in its group: its place, whether its code is a sibling's, and whether it has an owner."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privbench_core.arrays import Numbers
from privbench_core.columns.discretizer import Binning, Discretizer
from privbench_core.columns.intervals import equal_width_codec
from privbench_core.schema.columns import Column, ColumnType

ALONE, DIFFERENT, SAME = range(3)
AGREEMENTS = SAME + 1
"""Number of codes of whether a row and a sibling of it have the same code of a column."""


def index_coder(name: str, size: int, *, ordered: bool = True) -> Discretizer:
    """Return a discretizer of the whole numbers below ``size``, each its own code, which have an order or not.

    >>> index_coder("#place", 3).size
    3
    """
    codec = equal_width_codec(Column(name, ColumnType.INTEGER), 0, size - 1, size)
    none = codec.size - size  # cells of other numbers, of which there are none
    return Discretizer(
        codec, Binning((*range(size), *[0] * none), (*[1.0] * size, *[0.0] * none), size if ordered else 0)
    )


def present_or_not(name: str) -> Discretizer:
    """Return a discretizer of row positions: code 0 for any row, 1 for none (position -1).

    >>> present_or_not("#any").encode_numbers(np.array([-1, 0, 7])).tolist()
    [1, 0, 0]
    """
    codec = equal_width_codec(Column(name, ColumnType.INTEGER), 0, np.iinfo(np.int64).max, 1)
    none = [cell == codec.below for cell in range(codec.size)]
    drawn = tuple(float(cell in {0, codec.below}) for cell in range(codec.size))
    return Discretizer(codec, Binning(tuple(map(int, none)), drawn))


def agreement_codes(own: NDArray[np.integer[Any]], sibling: NDArray[np.integer[Any]]) -> Numbers:
    """Return whether the code of each row is that of a sibling, -1 where there is none; all of shape (n,).

    >>> agreement_codes(np.array([3, 3, 0]), np.array([3, 1, -1])).tolist()
    [2, 1, 0]
    """
    return np.where(sibling < 0, ALONE, np.where(own == sibling, SAME, DIFFERENT))


def place_count(most: int) -> int:
    """Return the number of codes of places where members and sizes are distinguished up to ``most``."""
    return most * (most + 1) // 2


def place_codes(ranks: NDArray[np.integer[Any]], sizes: NDArray[np.integer[Any]], most: int) -> Numbers:
    """Return the code of each place in a group, ordered by rank, then by size; shape (n,).

    ``ranks`` are members that stand before a row, ``sizes`` all members; what is beyond ``most`` is counted as that.

    >>> place_codes(np.array([0, 0, 0, 1, 1, 2, 7]), np.array([1, 2, 3, 2, 3, 3, 9]), 3).tolist()
    [0, 1, 2, 3, 4, 5, 5]
    """
    size = np.minimum(sizes, most).astype(np.int64)
    rank = np.minimum(ranks, size - 1).astype(np.int64)
    return np.asarray(rank * most - rank * (rank - 1) // 2 + size - 1 - rank)


def sizes_and_ranks(most: int) -> tuple[Numbers, Numbers]:
    """Return the size and the rank of each code of a place, shape (codes,)."""
    rank = np.repeat(np.arange(most), np.arange(most, 0, -1))
    return rank + 1 + np.concatenate([np.arange(most - first) for first in range(most)]), rank
