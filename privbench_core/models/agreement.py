"""How often children of one owner agree in a column, as released: the intraclass agreement of a one-way layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Agreement:
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

    def to_dict(self) -> dict[str, Any]:
        """Return a description that `Artifact` can store."""
        return dict(vars(self))

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Agreement:
        """Return the inverse of `to_dict`."""
        return cls(**stored)
