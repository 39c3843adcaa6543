"""What a row weighs, by the number of rows that its unit has in the table: see `privacy.relations`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privbench_core.privacy.relations import WEIGHT_SCALE

Numbers = NDArray[np.integer[Any]]


def unit_weights(rows: Numbers, rows_per_unit: Sequence[int]) -> NDArray[np.int32]:
    """Return weights in multiples of 1/`WEIGHT_SCALE`, shape (n,).

    Args:
        rows: Kept rows of each row's unit, shape (n,).
        rows_per_unit: The T that weights may be shares of, ascending.

    >>> unit_weights(np.array([1, 2, 3]), (2,)).tolist()
    [524288, 524288, 349525]
    """
    numbers, places = _numbers(rows)
    return np.asarray((WEIGHT_SCALE // _divisors(numbers, rows_per_unit)).astype(np.int32)[places])


def unit_divisors(rows: Numbers, rows_per_unit: Sequence[int]) -> NDArray[np.int64]:
    """Return by what the weight of each row's unit is divided: T, or the number of its rows; shape (n,)."""
    numbers, places = _numbers(rows)
    return np.asarray(_divisors(numbers, rows_per_unit)[places])


def _numbers(rows: Numbers) -> tuple[Numbers, Numbers | slice]:
    """Return numbers of rows and which of them each row has: all there could be, where these are fewer than rows."""
    most = int(rows.max(initial=0))
    return (np.arange(most + 1), rows) if most < len(rows) else (rows, slice(None))


def _divisors(rows: Numbers, rows_per_unit: Sequence[int]) -> NDArray[np.int64]:
    place = np.searchsorted(rows_per_unit, rows)
    return np.where(place < len(rows_per_unit), np.append(rows_per_unit, 1)[place], np.maximum(rows, 1))
