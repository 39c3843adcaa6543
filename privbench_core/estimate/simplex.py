"""Projection of noisy counts onto the simplex. Post-processing only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


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
