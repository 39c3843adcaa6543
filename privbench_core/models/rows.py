"""Synthetic rows while they are drawn: the codes so far, and the released tables that link new columns to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes

PairTables = Mapping[tuple[str, str], NDArray[np.float64]]


@dataclass
class Rows:
    """Rows under construction.

    Attributes:
        n: Number of rows.
        codes: Columns drawn so far, each of shape (n,): attributes of the table, and context (columns of the parent
            row).
        sizes: Number of codes of each of them.
        weights: How much a row counts in the measure the model was fitted in (1/group size), None for all alike.
        links: Released joint probabilities of (context column, column), shape (size, size).
    """

    n: int
    codes: dict[str, Codes] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    weights: NDArray[np.float64] | None = None
    links: PairTables = field(default_factory=dict)

    def take(self, index: NDArray[np.int64] | slice) -> Rows:
        """A copy of some rows, to draw them apart."""
        codes = {name: values[index] for name, values in self.codes.items()}
        weights = None if self.weights is None else self.weights[index]
        n = len(index) if not isinstance(index, slice) else index.stop - index.start
        return Rows(n, codes, dict(self.sizes), weights, self.links)

    def put(self, index: NDArray[np.int64], part: Rows) -> None:
        """Copy back the columns that were drawn for the rows of ``index``."""
        for name, values in part.codes.items():
            if name not in self.codes:
                self.codes[name] = np.zeros(self.n, dtype=values.dtype)
                self.sizes[name] = part.sizes[name]
            self.codes[name][index] = values

    def add(self, name: str, size: int, codes: Codes) -> None:
        """Add a drawn column."""
        self.codes[name], self.sizes[name] = codes, size
