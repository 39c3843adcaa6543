"""Lags, as released: how long after a date of their owner rows are dated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.discretizer import Discretizer

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Lag:
    """Released: how long after a column of their owner a column of rows is dated.

    Attributes:
        base: The owner's column.
        column: The rows' own.
        classes: Coder of their difference.
        shares: Of the rows, by cells of ``classes``, adding up to 1, shape (cells,).
        above: Coder of the owner's column: a joint with its codes is among those that children are drawn from.
    """

    base: str
    column: str
    classes: Discretizer
    shares: Array
    above: Discretizer

    @property
    def context(self) -> str:
        """How the owner's column is called where it has the codes of ``above``."""
        return f"{self.base}, finer for {self.column}"

    def to_dict(self) -> dict[str, Any]:
        """Return a description that `Artifact` can store."""
        coders = {"classes": self.classes.to_dict(), "above": self.above.to_dict()}
        return {"base": self.base, "column": self.column, **coders, "shares": self.shares}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Lag:
        """Return the inverse of `to_dict`."""
        classes, above = (Discretizer.from_dict(stored[name]) for name in ("classes", "above"))
        return cls(stored["base"], stored["column"], classes, stored["shares"], above)
