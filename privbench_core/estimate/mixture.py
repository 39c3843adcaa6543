"""Mix estimates of the same numbers so that the estimated risk is least. Post-processing only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from privbench_core.guards import FITTING_ROUNDS_PER_NUMBER, TINY

Array = NDArray[np.float64]


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
    """Return the convex mixture with the least estimated risk.

    The risk of Σ wᵢ xᵢ is |Σ wᵢ xᵢ - y|² + 2σ² Σ wᵢ · freedomᵢ, up to a constant (Stein 1981). As weights add up to 1,
    this is a quadratic form in them, and adding a multiple of 1 to the form changes the risk by a constant and makes it
    a sum of squares. Non-negative least squares with one more equation, that weights add up to 1, finds its best
    direction; the sum is scaled to 1.

    Args:
        estimates: At least one.
        found: The noisy numbers y.
        sigma: Standard deviation of the noise of each.
    """
    errors = np.stack([(estimate.values - found).ravel() for estimate in estimates])
    penalty = sigma**2 * np.array([estimate.freedom for estimate in estimates])
    risks = errors @ errors.T + penalty[:, None] + penalty
    values, vectors = np.linalg.eigh(risks / max(float(np.trace(risks)), TINY) + 100.0)  # of a trace of 1, so positive
    squares = np.vstack([np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T, np.ones(len(estimates))])
    rounds = FITTING_ROUNDS_PER_NUMBER * len(estimates)
    weights, _ = scipy.optimize.nnls(squares, np.append(np.zeros(len(estimates)), 1.0), maxiter=rounds)
    weights /= weights.sum()
    return np.asarray(sum(weight * estimate.values for weight, estimate in zip(weights, estimates, strict=True)))
