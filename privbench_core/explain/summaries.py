"""Summaries of the figures of many queries."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_RANKS = {"median": 50, "75th": 75, "95th": 95, "max": 100}


def summarize(values: NDArray[np.float64] | Sequence[float]) -> dict[str, float]:
    """Return the mean of some values, and their percentiles, by name."""
    return {"mean": float(np.mean(values))} | {name: float(np.percentile(values, r)) for name, r in _RANKS.items()}


def ratio(one: float, other: float, least: float = 1e-3) -> float:
    """Return the larger figure divided by the smaller, each at least ``least``: 1 where they are equal.

    >>> ratio(50, 100), ratio(100, 50), ratio(0, 3, least=1)
    (2.0, 2.0, 3.0)
    """
    one, other = max(one, least), max(other, least)
    return max(one / other, other / one)
