"""Small estimators on released counts: fitting to marginals, mutual information, averaging. Post-processing only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from privbench_core.guards import FITTING_ROUNDS, NEGLIGIBLE, TINY

Array = NDArray[np.float64]
MAX_RAISE = 1 / NEGLIGIBLE
"""Factor by which one round may raise a cell."""


def fit_margins(joint: Array, margins: Sequence[tuple[tuple[int, ...], Array]], rounds: int = FITTING_ROUNDS) -> Array:
    """Fit ``joint`` to the given marginals by iterative proportional fitting; return the fitted table.

    Args:
        joint: Starting point, any shape; its zeros stay.
        margins: (axes in ascending order, target of these axes' shape), fitted in turn.
        rounds: Sweeps over all margins.
    """
    fitted = joint.copy()
    kept = [tuple(size if axis in axes else 1 for axis, size in enumerate(joint.shape)) for axes, _ in margins]
    summed = [tuple(axis for axis in range(joint.ndim) if axis not in axes) for axes, _ in margins]
    targets = [np.asarray(target, dtype=float).reshape(shape) for (_, target), shape in zip(margins, kept, strict=True)]
    for _ in range(rounds):
        for target, others in zip(targets, summed, strict=True):
            current = np.add.reduce(fitted, axis=others, keepdims=True)
            ratio = np.divide(target, current, out=np.zeros(target.shape), where=current > TINY)
            fitted *= np.minimum(ratio, MAX_RAISE, out=ratio)
    return fitted


def relative_entropy(found: Array, expected: Array) -> float:
    """Return the relative entropy of one distribution to another that is positive where it is, in nats."""
    seen = found > 0
    return float(max(0.0, (found[seen] * np.log(found[seen] / np.maximum(expected[seen], TINY))).sum()))


def mutual_information(joint: Array) -> float:
    """Return the mutual information of a two-way table of probabilities or counts, in nats; 0 of an empty one."""
    joint = joint / max(float(joint.sum()), TINY)
    product = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    seen = (joint > 0) & (product > 0)  # products of next to nothing underflow
    return float(max(0.0, (joint[seen] * np.log(joint[seen] / product[seen])).sum()))


def combine(
    first: Array, sigma_first: Array | float, second: Array, sigma_second: Array | float
) -> tuple[Array, Array]:
    """Return the inverse-variance average of two noisy measurements of the same counts, and its standard deviations."""
    a, b = np.broadcast_to(sigma_first, first.shape) ** 2, np.broadcast_to(sigma_second, second.shape) ** 2
    both = a + b
    share = np.divide(b, both, out=np.ones(first.shape), where=both > 0)  # of the first: all of it if both are exact
    return share * first + (1 - share) * second, np.sqrt(share * a)


def shrunk(noisy: Array, sigma: float, towards: Array) -> Array:
    """Return noisy counts, no further from a guess than noise does not explain (James and Stein 1961).

    Args:
        noisy: Counts.
        sigma: Standard deviation of the noise on each.
        towards: The guess, of the same shape; it has nothing of this noise.
    """
    apart = noisy - towards
    explained = noisy.size * sigma**2 / max(float((apart**2).sum()), sigma**2)
    return np.asarray(towards + max(0.0, 1 - explained) * apart)
