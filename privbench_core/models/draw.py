"""Low-variance draws: the numbers drawn follow the expected counts as closely as whole rows can, groups in one pass."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privbench_core.domain.codec import Codes

_BLOCK = 16


def draw_grouped(conditionals: NDArray[np.float64], groups: NDArray[np.int64], rng: np.random.Generator) -> Codes:
    """One code per row from the distribution of the row's group, by systematic sampling within each group.

    In a group of m rows a code of probability p is drawn ⌊mp⌋ or ⌈mp⌉ times, and every row's code has the right
    distribution.

    Args:
        conditionals: Non-negative weights, shape (groups, codes); a group without weight is drawn uniformly.
        groups: Group of each row, shape (n,).
        rng: Source of the order and the offsets.
    """
    n, size = len(groups), conditionals.shape[1]
    if n == 0:
        return np.zeros(0, dtype=np.int32)
    order = rng.permutation(n)
    order = order[np.argsort(groups[order], kind="stable")]
    ranked = groups[order]
    present, starts, counts = np.unique(ranked, return_index=True, return_counts=True)
    weights = np.maximum(conditionals[present], 0.0)
    sums = weights.sum(axis=1, keepdims=True)
    weights = np.where(sums > 0, weights, 1.0)
    cumulative = np.cumsum(weights, axis=1)
    cumulative /= cumulative[:, -1:]
    cumulative[:, -1] = 1.0
    position = np.repeat(np.arange(len(present)), counts)
    rank = np.arange(n) - np.repeat(starts, counts)
    offset = _spread(len(present), rng)
    places = (rank + offset[position]) / counts[position]
    flat = (np.arange(len(present))[:, None] + cumulative).ravel()
    found = np.searchsorted(flat, position + np.minimum(places, 1 - 1e-9), side="right") - position * size
    result = np.empty(n, dtype=np.int32)
    result[order] = np.minimum(found, size - 1)
    return result


def _spread(n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Numbers in [0, 1), each uniform, and those of each `_BLOCK` neighbours in different parts of it, shape (n,).

    Groups of few rows come in so large numbers that what their offsets have in common would be noise of its own.
    """
    blocks = -(-n // _BLOCK)
    order = np.argsort(rng.random((blocks, _BLOCK)), axis=1)
    return ((order + rng.random((blocks, _BLOCK))) / _BLOCK).ravel()[:n]


def split_total(weights: NDArray[np.float64], total: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """``total`` whole things shared out by ``weights``, each share rounded up or down."""
    drawn = draw_grouped(np.asarray(weights, dtype=float)[None, :], np.zeros(total, dtype=np.int64), rng)
    return np.bincount(drawn, minlength=len(weights)).astype(np.int64)
