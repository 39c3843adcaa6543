"""Which type each group of children has: the one with the largest score, from released scores of its rows' codes.

Scores are whole numbers, so their sums are the same in whatever order rows stand, and a group's type is a function of
the group's own rows and of what was released: removing another group does not change it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes

Numbers = NDArray[np.int64]
_HELD = 4_000_000  # scores of groups that are held at once: 32 MB


def best_types(sizes: Numbers, of_sizes: tuple[Codes, Numbers], columns: Sequence[tuple[Codes, Numbers]]) -> Numbers:
    """Return the type with the largest score of each group, the first of equal ones, shape (groups,).

    Args:
        sizes: Number of rows of each group, shape (groups,).
        of_sizes: Code of each group's size, and the scores of each code, shapes (groups,) and (codes, types).
        columns: Code of each row, rows of a group side by side, groups in order, shape (rows,); and the scores of each
            code, shape (codes, types).

    >>> scores = np.array([[0, 1], [3, 0]])
    >>> no_sizes = np.zeros(2, dtype=np.int64), np.zeros((1, 2), dtype=np.int64)
    >>> best_types(np.array([1, 2]), no_sizes, [(np.array([0, 0, 1]), scores)]).tolist()
    [1, 0]
    """
    codes, size_scores = of_sizes
    ends = np.append(0, np.cumsum(sizes))
    found = np.zeros(len(sizes), dtype=np.int64)
    step = max(1, _HELD // size_scores.shape[1])
    for start in range(0, len(sizes), step):
        part = slice(start, start + step)
        total = size_scores[codes[part]]
        begin = ends[part.start : min(part.stop, len(sizes)) + 1]
        for column, scores in columns:
            inside = column[begin[0] : begin[-1]]
            ones = np.ones(len(inside), dtype=np.int64)
            counts = scipy.sparse.csr_array((ones, inside, begin - begin[0]), shape=(len(begin) - 1, len(scores)))
            total += counts @ scores
        found[part] = np.argmax(total, axis=1)
    return found
