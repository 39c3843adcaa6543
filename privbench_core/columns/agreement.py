"""Whether a row and a sibling of it have the same code of a column, as a code itself."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

ALONE, DIFFERENT, SAME = range(3)
AGREEMENTS = 3
"""Number of codes."""


def agreement_codes(own: NDArray[np.integer[Any]], sibling: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Return whether codes agree, shape (n,).

    Args:
        own: Code of each row, from 0, shape (n,).
        sibling: Code of a sibling, -1 where there is none, shape (n,).

    >>> agreement_codes(np.array([3, 3, 0]), np.array([3, 1, -1])).tolist()
    [2, 1, 0]
    """
    return np.where(sibling < 0, ALONE, np.where(own == sibling, SAME, DIFFERENT))
