"""Counts of the pieces of a long tail, each twice as wide as the one before, drawn towards what such tails look like.

A heavy-tailed column (a reputation, an amount) has few rows over most of its range. Noise of one row in a piece at
50,000 is noise of 50,000 in the column's sum, and counts that may not be negative make all of it one way: the mean of a
column would come out ten times too large. As numbers of children are (`models.size_counts`), counts that noise hides
are drawn towards the smooth shapes of a density that fit all pieces together. Post-processing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privbench_core.estimate.segmentation import SIGNIFICANT
from privbench_core.estimate.size_shapes import believed_counts, size_shapes

Array = NDArray[np.float64]


def tail_counts(noisy: Array, sigmas: Array) -> tuple[Array, Array]:
    """Return estimates and their standard deviations, both of shape (pieces,).

    Args:
        noisy: Released counts on the way outwards, shape (pieces,), at least two.
        sigmas: Standard deviations of their noise, all positive.
    """
    pieces = np.arange(len(noisy))
    shapes = size_shapes(1 << pieces, (1 << len(noisy)) - 1, pieces, noisy, sigmas)
    return believed_counts(shapes, pieces, noisy, sigmas, SIGNIFICANT)
