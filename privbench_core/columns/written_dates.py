"""Dates that are written in one number: 20201231."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def written_day(days: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return days since 1970-01-01 as dates are written in one number, shape (n,).

    >>> written_day(day_of(np.array([20200230, 20201231, 20201399, 20210031]))).tolist()
    [20200229, 20201231, 20201231, 20201231]
    """
    months = days.astype("datetime64[D]").astype("datetime64[M]")
    number = months.astype(np.int64)
    of_month = (days - months.astype("datetime64[D]").astype(np.int64)) + 1
    return np.asarray((1970 + number // 12) * 10_000 + (number % 12 + 1) * 100 + of_month, np.int64)


def day_of(numbers: NDArray[np.int64] | NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the last day that is written with no larger number, in days since 1970-01-01, shape (n,)."""
    whole = np.asarray(numbers, np.int64)
    month, day = whole // 100 % 100, whole % 100
    months = (whole // 10_000 - 1970) * 12 + np.minimum(month, 13) - 1
    begin, end = ((months + more).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) for more in (0, 1))
    of_month = np.where(month > 12, 0, np.minimum(day, end - begin))  # noqa: PLR2004 - months
    return np.where(month == 0, end, begin + of_month) - 1
