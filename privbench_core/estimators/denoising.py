"""Bring noisy counts nearer to the truth: onto the simplex, towards expected ones, or by mixing several estimates.

Post-processing only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from privbench_core.arrays import Array
from privbench_core.guards import TINY


def onto_simplex(noisy: Array, total: float, variances: Array | None = None) -> Array:
    """Return the nearest array of non-negative numbers that add up to ``total``, same shape.

    Args:
        noisy: Any shape.
        total: The sum of the result.
        variances: Of the noise, same shape, all positive: squared distances are divided by them. None for equal ones.

    >>> onto_simplex(np.array([3.0, -1.0, 1.0]), 2.0)
    array([2., 0., 0.])
    >>> onto_simplex(np.array([-3.0, -5.0]), 0.0)
    array([0., 0.])
    """
    scales = np.ones(noisy.size) if variances is None else variances.ravel()
    order = np.argsort(-noisy.ravel() / scales, kind="stable")
    descending, scaled = noisy.ravel()[order], scales[order]
    excess = (np.cumsum(descending) - total) / np.cumsum(scaled)
    inside = np.flatnonzero(descending > excess * scaled)
    shift = excess[inside[-1] if len(inside) else 0]  # none is above 0 if the total is
    return np.asarray(np.maximum(noisy - shift * scales.reshape(noisy.shape), 0.0))


def shrink_haar(found: Array, sigmas: Array | float, expected: Array) -> Array:
    """Return noisy numbers, shrunk towards expected ones by as much of the difference as noise explains (Stein 1956).

    Scale by scale, on Haar coefficients (Donoho and Johnstone 1995): the bias of what is expected is a trend over many
    codes, and noise is independent from code to code. All have shape (codes,); sigmas are standard deviations.

    >>> shrink_haar(np.array([0.5, 0.5]), np.array([0.3, 0.3]), np.array([0.6, 0.4])).tolist()
    [0.6, 0.4]
    """
    padding = (0, (1 << (len(found) - 1).bit_length()) - len(found))
    off, variances = np.pad(found - expected, padding), np.pad(np.broadcast_to(sigmas, found.shape) ** 2.0, padding)
    details = []
    while len(off) > 1:
        pairs, variances = off.reshape(-1, 2), variances.reshape(-1, 2).mean(axis=1)
        details.append(_unexplained(np.diff(pairs)[:, 0] / np.sqrt(2), variances))
        off = pairs.sum(axis=1) / np.sqrt(2)
    off = _unexplained(off, variances)
    for detail in reversed(details):
        off = np.column_stack([off - detail, off + detail]).ravel() / np.sqrt(2)
    return np.asarray(expected + off[: len(found)])


def _unexplained(off: Array, variances: Array) -> Array:
    """Return the part of differences that noise does not explain: none if they are as large as noise makes them."""
    most = float(variances.sum() + np.sqrt(2 * (variances**2).sum()))
    return off * max(0.0, 1 - most / max(float((off**2).sum()), TINY))


@dataclass(frozen=True)
class Estimate:
    """An estimate of what noise was added to.

    Attributes:
        values: Same shape as the noisy ones.
        freedom: Its degrees of freedom (divergence): the sum over all numbers of the derivative of the estimate by the
            noisy number.
    """

    values: Array
    freedom: float


def least_risk(estimates: Sequence[Estimate], found: Array, sigma: float) -> Array:
    """Return the convex mixture of estimates xᵢ of noisy numbers y with the least estimated risk (Stein 1981).

    Up to a constant it is |Σ wᵢ xᵢ - y|² + 2σ² Σ wᵢ · freedomᵢ. As weights add up to 1, this is a quadratic form in
    them, and adding a multiple of 1 to the form changes the risk by a constant and makes it a sum of squares.
    Non-negative least squares with one more equation, that weights add up to 1, finds its best direction.
    """
    errors = np.stack([(estimate.values - found).ravel() for estimate in estimates])
    penalty = sigma**2 * np.array([estimate.freedom for estimate in estimates])
    risks = errors @ errors.T + penalty[:, None] + penalty
    values, vectors = np.linalg.eigh(risks / max(float(np.trace(risks)), TINY) + 100.0)  # of a trace of 1, so positive
    squares = np.vstack([np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T, np.ones(len(estimates))])
    weights = least_squares(squares, np.append(np.zeros(len(estimates)), 1.0))
    weights /= weights.sum()
    return np.asarray(sum(weight * estimate.values for weight, estimate in zip(weights, estimates, strict=True)))


def least_squares(matrix: Array, right: Array) -> Array:
    """Return the non-negative x of the least |matrix · x - right|², shape (columns,)."""
    rounds = 1000 * matrix.shape[1]  # SciPy's own bound, 3 for each number, stops before the end
    return np.asarray(scipy.optimize.nnls(matrix, right, maxiter=rounds)[0], dtype=float)
