"""Choose among estimates of the same numbers by their estimated risk. Post-processing only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
    """Return the estimate x with the least |x - y|² + 2σ² · freedom, its risk up to a constant (Stein 1981).

    Args:
        estimates: At least one.
        found: The noisy numbers y.
        sigma: Standard deviation of the noise of each.
    """

    def risk(estimate: Estimate) -> float:
        return float(((estimate.values - found) ** 2).sum()) + 2 * sigma**2 * estimate.freedom

    return min(estimates, key=risk).values
