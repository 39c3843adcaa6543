"""The relaxed bi-adjacency of two sets of rows: how many links go from each class on the left to each on the right.

Rows with equal codes are interchangeable, so the matrix has a row and a column per *class* of rows, not per row. It is
fitted by mirror descent with the negative-entropy mirror (Alimohammadi et al., section 3 and appendix B): every step
multiplies the links of a cell of a cross-table marginal by a factor. Degrees on both sides are fixed. Post-processing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from privbench_core.estimators.fitting import raking_factors
from privbench_core.guards import FITTING_ROUNDS, TINY

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class ClassTarget:
    """The links wanted between cells of a cross-table marginal.

    Attributes:
        left, right: Cell of each class, shapes (left classes,) and (right classes,).
        links: Shape (left cells, right cells).
    """

    left: Numbers
    right: Numbers
    links: Array


def relaxed_links(left: Array, right: Array, targets: Sequence[ClassTarget]) -> Array:
    """Return the links between classes, shape (left classes, right classes), none below zero.

    A step along the gradient of one marginal in the dual of the negative entropy, as long as brings its cells to their
    targets, is the Bregman projection onto them: so there is no step size to choose. Rounds end with the degrees.

    Args:
        left: Links of each class on the left, shape (left classes,).
        right: The same on the right, with the same sum.
        targets: All with the sums of ``left`` and ``right`` in their cells.
    """
    links = np.outer(left, right) / max(float(right.sum()), TINY)
    sides = [(_sums(t.left, t.links.shape[0]), _sums(t.right, t.links.shape[1])) for t in targets]
    for _ in range(FITTING_ROUNDS if len(targets) > 1 else 1):
        for target, (of_left, of_right) in zip(targets, sides, strict=True):
            current = (of_right @ (of_left @ links).T).T
            links *= raking_factors(target.links, current)[:, target.right][target.left]
        links *= raking_factors(right, links.sum(axis=0))
        links *= raking_factors(left, links.sum(axis=1))[:, None]
    return links


def _sums(cells: Numbers, size: int) -> scipy.sparse.csr_array:
    """Return the matrix that adds up the classes of each cell, shape (size, classes)."""
    classes = np.arange(len(cells))
    return scipy.sparse.csr_array((np.ones(len(cells)), (cells, classes)), (size, len(cells)))
