"""Low-variance draws by systematic sampling: counts of codes are the expected ones, rounded; all groups in one pass."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.columns.systematic import diffused_counts, distribute, group_counts, narrow, systematic_counts


def draw_grouped(
    conditionals: NDArray[np.float64],
    groups: NDArray[np.integer[Any]],
    rng: np.random.Generator,
    *,
    diffused: bool = False,
) -> Codes:
    """Draw one code per row from the distribution of the row's group, by systematic sampling within each group.

    In a group of m rows a code of probability p is drawn ⌊mp⌋ or ⌈mp⌉ times, and every row's code has the right
    distribution.

    Args:
        conditionals: Non-negative weights, shape (groups, codes); a group without weight is drawn uniformly.
        groups: Group of each row, shape (n,).
        rng: Sampling only.
        diffused: Whether codes are as even over all groups as within each (`diffused_counts`), which takes a moment for
            each group; a row's code then has the distribution of its group and of those before.
    """
    n, size = len(groups), conditionals.shape[1]
    if n == 0:
        return np.zeros(0, dtype=np.uint8)
    counts = group_counts(groups, len(conditionals))
    present = np.flatnonzero(counts)
    weights = np.maximum(conditionals[present], 0.0)
    sums = weights.sum(axis=1, keepdims=True)
    weights = np.where(sums > 0, weights, 1.0)
    codes = np.tile(narrow(np.arange(size), size), len(present))
    if diffused:
        expected = weights / weights.sum(axis=1, keepdims=True) * counts[present][:, None]
        numbers = diffused_counts(expected, counts[present]).ravel()
        return distribute(codes, numbers, groups if len(present) > 1 else None, rng)
    cumulated = np.cumsum(weights, axis=1)
    shares = (cumulated / cumulated[:, -1:]).ravel()
    numbers = systematic_counts(shares, np.repeat(np.arange(len(present)), size), counts[present], rng)
    return distribute(codes, numbers, groups if len(present) > 1 else None, rng)
