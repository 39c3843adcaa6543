"""Number rows by the values they share: for keys, UNIQUE constraints and functional dependencies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
Column: TypeAlias = "pa.Array | pa.ChunkedArray"


def group_numbers(columns: Sequence[Column], n: int) -> Numbers:
    """Return a number per row, equal for rows with equal values; -1 if any value is NULL; shape (n,).

    >>> group_numbers([pa.array(["a", "b", "a", None]), pa.array([1, 1, 1, 1])], 4).tolist()
    [0, 1, 0, -1]
    """
    numbers = np.zeros(n, dtype=np.int64)
    complete = np.ones(n, dtype=bool)
    for place, column in enumerate(columns):
        values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        encoded = values.dictionary_encode()
        complete &= values.is_valid().to_numpy(zero_copy_only=False)
        codes = pc.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False)
        numbers = numbers * max(len(encoded.dictionary), 1) + codes
        if place:  # dense again, so that products stay small
            numbers = np.unique(numbers, return_inverse=True)[1].astype(np.int64)
    return np.where(complete, numbers, -1)


def common_numbers(left: Sequence[Column], right: Sequence[Column], sizes: tuple[int, int]) -> tuple[Numbers, Numbers]:
    """Return `group_numbers` of the rows of two tables, such that equal values have equal numbers in both.

    Args:
        left: Columns of one table.
        right: Corresponding columns of the other, of the same types.
        sizes: Numbers of rows of the two.
    """
    both = [
        pa.chunked_array([*_chunks(one), *(chunk.cast(one.type) for chunk in _chunks(other))], type=one.type)
        for one, other in zip(left, right, strict=True)
    ]
    numbers = group_numbers(both, sum(sizes))
    return numbers[: sizes[0]], numbers[sizes[0] :]


def _chunks(column: Column) -> list[pa.Array]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]
