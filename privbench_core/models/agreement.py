"""How often children of one owner agree in a column, as released: the intraclass agreement of a one-way layout."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privbench_core.stored import Storable


@dataclass(frozen=True)
class Agreement(Storable):
    """Released: how often rows have the same code as a sibling.

    Attributes:
        column: Of the children.
        groups: Of each of its codes, those that count as the same, shape (codes,).
        share: Of the rows that have siblings, those that agree with one of them.
        sigma: Standard deviation of its noise.
    """

    column: str
    groups: NDArray[np.int64]
    share: float
    sigma: float

    def wanted(self, now: float) -> float:
        """Return the share to reach from ``now``: as far as noise does not explain the distance."""
        gap = self.share - now
        return now + gap * max(0.0, 1 - (self.sigma / gap) ** 2) if gap else now
