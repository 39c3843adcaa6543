"""The Gaussian copula nearest to noisy counts of two ordered columns: how they go on inside of groups of codes.

A joint is measured over groups of neighbouring codes (`estimate.coarsening`), the rare ones of a tail together. To take
columns for independent within these says that of the parents with many children any may have the most; but what
depends on each other over groups of neighbours hardly stops to do so within them. Post-processing of released counts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privbench_core.estimate.copula import LARGEST, joint_by_copula
from privbench_core.estimate.merge import merge_codes
from privbench_core.estimate.segmentation import SIGNIFICANT

Array = NDArray[np.float64]
_CORRELATIONS = np.sin(np.linspace(-np.arcsin(LARGEST), np.arcsin(LARGEST), 41))  # odd: 0 is one of them


def nearest_copula(
    noisy: Array,
    sigma: float,
    groups: tuple[NDArray[np.int64], ...],
    clean: tuple[Array, Array],
    ordered: tuple[int, int],
) -> Array | None:
    """Return counts of all codes by the copula that is nearest to a measured joint, None if noise explains it.

    Args:
        noisy: Counts, of groups of codes where there are ``groups``.
        sigma: Standard deviation of the noise of each.
        groups: Group of each code of both columns, or none.
        clean: Clean counts of both columns, with one total.
        ordered: How many of their leading codes are intervals, in order; others are independent of the other column.
    """
    if min(ordered) < 3:  # noqa: PLR2004 - of two codes there is nothing to interpolate
        return None
    joints = [joint_by_copula(*clean, *ordered, float(correlation)) for correlation in _CORRELATIONS]
    apart = [float((((merge_codes(j, groups) if groups else j) - noisy) ** 2).sum()) for j in joints]
    best = int(np.argmin(apart))
    independent = apart[len(apart) // 2]
    return joints[best] if independent - apart[best] > (SIGNIFICANT * sigma) ** 2 else None
