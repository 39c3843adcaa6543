"""Joints of parents' attributes and numbers of children, fitted to what share of the children such parents have.

A joint over parents says little of children where few parents have most of them: noise of one parent of 1,000 children
is noise of 1,000 rows. What share of the rows belongs to parents with an attribute can be counted over rows. Both are
released; the joint is tilted until it agrees with the other. Post-processing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privbench_core.guards import FITTING_ROUNDS, NEGLIGIBLE, TINY, TOLERANCE

Array = NDArray[np.float64]


def row_shares(joint: Array, sizes: Array) -> Array:
    """What share of the children belongs to the parents of each code.

    Args:
        joint: Of a parent's code and its number of children, shape (codes, numbers).
        sizes: Number of children of each code of them, shape (numbers,).
    """
    rows = joint @ sizes
    return np.asarray(rows / max(float(rows.sum()), TINY))


def with_row_shares(joint: Array, sizes: Array, shares: Array) -> Array:
    """The joint with other `row_shares`: each code's numbers n of children are tilted by (1 + n)^θ.

    Numbers of parents by code, and numbers of children over all parents, stay what they are.

    Args:
        joint: Adding up to 1, shape (codes, numbers).
        sizes: Number of children of each code of them, shape (numbers,).
        shares: None negative, shape (codes,).

    >>> joint = np.array([[0.4, 0.1], [0.4, 0.1]])
    >>> with_row_shares(joint, np.array([0.0, 10.0]), np.array([0.7, 0.3])).round(2).tolist()
    [[0.36, 0.14], [0.44, 0.06]]
    """
    parents, numbers = joint.sum(axis=1), joint.sum(axis=0)
    if not float(numbers @ sizes) > 0:
        return joint
    wanted = shares / shares.sum() * float(numbers @ sizes)
    logs = np.log1p(sizes)
    fitted = (1 - NEGLIGIBLE) * joint + NEGLIGIBLE * np.outer(parents, numbers)  # no cell is ruled out
    largest = -np.log2(NEGLIGIBLE)  # exponent: one child then is as much more likely than none
    for _ in range(FITTING_ROUNDS):
        low, high = np.full(len(parents), -largest), np.full(len(parents), largest)
        while (high - low).max() > TOLERANCE:
            middle = (low + high) / 2
            more = _tilted(fitted, parents, logs, middle) @ sizes < wanted
            low, high = np.where(more, middle, low), np.where(more, high, middle)
        fitted = _tilted(fitted, parents, logs, (low + high) / 2)
        fitted = fitted * (numbers / np.maximum(fitted.sum(axis=0), TINY))
    return fitted


def _tilted(joint: Array, parents: Array, logs: Array, exponents: Array) -> Array:
    powers = exponents[:, None] * logs
    tilted = joint * np.exp(powers - powers.max(axis=1, keepdims=True))
    return np.asarray(tilted * (parents / np.maximum(tilted.sum(axis=1), TINY))[:, None])
