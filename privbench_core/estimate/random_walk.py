"""A distribution that drifts from class to class, from noisy counts: each class leans on its neighbours.

Neighbouring classes of sizes have similar habits, and the largest ones few units. Their distributions are taken for a
random walk: how far a step goes is estimated from the noisy counts themselves (maximum likelihood), so that classes
which noise cannot tell apart are pooled, and classes that differ keep what is their own. Filtered from the first class
to the last and smoothed backwards (Kalman 1960; Rauch, Tung and Striebel 1965). Post-processing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privbench_core.estimate.simplex import onto_simplex

Array = NDArray[np.float64]
_STEPS = np.append(0.0, np.geomspace(1e-6, 1e-1, 21))  # variances of a share from class to class
_UNKNOWN = 1.0  # variance of a share before anything is known
_NOTHING = 1e-12


def class_shapes(noisy: Array, sigmas: Array, rows: Array) -> Array:
    """Distributions of a column in each class, shape (classes, codes); each adds up to 1.

    Args:
        noisy: Counts of rows, shape (classes, codes).
        sigmas: Standard deviations of their noise, shape (classes,).
        rows: Number of rows of each class, shape (classes,).
    """
    there = np.flatnonzero(rows > 0)
    if not len(there):
        return np.full(noisy.shape, 1 / noisy.shape[1])
    shares = noisy[there] / rows[there, None]
    variances = np.maximum((sigmas[there] / rows[there]) ** 2, _NOTHING)
    step = max(_STEPS, key=lambda variance: _filtered(shares, variances, variance)[2])
    smooth = _smoothed(*_filtered(shares, variances, step)[:2], step)
    nearest = np.argmin(np.abs(there[:, None] - np.arange(len(rows))), axis=0)  # of a class without rows
    return np.stack([onto_simplex(smooth[place], 1.0) for place in nearest])


def _filtered(shares: Array, variances: Array, step: float) -> tuple[Array, Array, float]:
    """Means and variances given the classes so far, and the log-likelihood of all of them."""
    means, spreads = np.empty_like(shares), np.empty(len(shares))
    mean, spread, likelihood = np.full(shares.shape[1], 1 / shares.shape[1]), _UNKNOWN, 0.0
    for place, (found, noise) in enumerate(zip(shares, variances, strict=True)):
        spread += step if place else 0.0
        off, whole = found - mean, spread + noise
        likelihood -= 0.5 * (len(off) * float(np.log(whole)) + float(off @ off) / float(whole))
        mean, spread = mean + spread / whole * off, spread * noise / whole
        means[place], spreads[place] = mean, spread
    return means, spreads, likelihood


def _smoothed(means: Array, spreads: Array, step: float) -> Array:
    """Means given all classes."""
    smooth = means.copy()
    for place in range(len(means) - 2, -1, -1):
        gain = spreads[place] / (spreads[place] + step)
        smooth[place] += gain * (smooth[place + 1] - means[place])
    return smooth
