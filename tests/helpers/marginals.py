"""The distances of one marginal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from privbench_core.evaluation.marginals import MarginalDistances, subset_distances


def marginal_distances(
    a: NDArray[np.integer], b: NDArray[np.integer], columns: Sequence[int], sizes: Sequence[int]
) -> MarginalDistances:
    """Of the marginals of ``a`` and ``b`` over some columns."""
    return next(subset_distances(a, b, sizes, [tuple(columns)]))
