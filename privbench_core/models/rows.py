"""Synthetic rows while they are drawn: the codes so far, and the released tables that link new columns to them.

Draws have low variance, by systematic sampling: counts of codes are the expected ones, rounded; all groups in one pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.columns.systematic import diffused_counts, distribute, group_counts, narrow, systematic_counts

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


class Model(Protocol):
    """A released model of a table's attributes; a new class of models is `stored.Storable`."""

    def draw(self, rows: Rows, rng: np.random.Generator) -> None:
        """Add all columns of the model to ``rows``, given the context columns there."""
        ...


def draw_grouped(
    conditionals: NDArray[np.float64],
    groups: NDArray[np.integer[Any]],
    rng: np.random.Generator,
    *,
    diffused: bool = False,
) -> Codes:
    """Draw one code per row from the distribution of the row's group, by systematic sampling within each group.

    In a group of m rows a code of probability p is drawn ⌊mp⌋ or ⌈mp⌉ times, and every row's code has the right
    distribution.

    Args:
        conditionals: Non-negative weights, shape (groups, codes); a group without weight is drawn uniformly.
        groups: Group of each row, shape (n,).
        rng: Sampling only.
        diffused: Whether codes are as even over all groups as within each (`diffused_counts`), which takes a moment for
            each group; a row's code then has the distribution of its group and of those before.
    """
    n, size = len(groups), conditionals.shape[1]
    if n == 0:
        return np.zeros(0, dtype=np.uint8)
    counts = group_counts(groups, len(conditionals))
    present = np.flatnonzero(counts)
    weights = np.maximum(conditionals[present], 0.0)
    sums = weights.sum(axis=1, keepdims=True)
    weights = np.where(sums > 0, weights, 1.0)
    codes = np.tile(narrow(np.arange(size), size), len(present))
    if diffused:
        expected = weights / weights.sum(axis=1, keepdims=True) * counts[present][:, None]
        numbers = diffused_counts(expected, counts[present]).ravel()
        return distribute(codes, numbers, groups if len(present) > 1 else None, rng)
    cumulated = np.cumsum(weights, axis=1)
    shares = (cumulated / cumulated[:, -1:]).ravel()
    numbers = systematic_counts(shares, np.repeat(np.arange(len(present)), size), counts[present], rng)
    return distribute(codes, numbers, groups if len(present) > 1 else None, rng)
