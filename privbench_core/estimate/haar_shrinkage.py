"""Shrinkage of noisy numbers towards expected ones, scale by scale."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privbench_core.guards import TINY

Array = NDArray[np.float64]


def shrink_haar(found: Array, sigmas: Array | float, expected: Array) -> Array:
    """Return noisy numbers, shrunk towards expected ones by as much of the difference as noise explains (Stein 1956).

    Scale by scale, on Haar coefficients (Donoho and Johnstone 1995): the bias of what is expected is a trend over many
    codes, and noise is independent from code to code.

    Args:
        found: Noisy shares or counts, shape (codes,).
        sigmas: Standard deviations of their noise, shape (codes,), or of each.
        expected: What something else says of them, shape (codes,).

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
