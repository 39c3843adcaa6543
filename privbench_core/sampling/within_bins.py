"""Within-bin allocation: a cell for each drawn code, balanced against the cells of all other columns.

A code (merged bin) may cover many cells: rare values of a list, or part of a range. Each column's rows get their cells
by systematic sampling, so pairs of cells of two columns occur with the frequencies of independent draws. Here rows with
the same code swap cells (`models.record_swapping`) until pairs of cells occur as often as expected, rounded. Along a
range, the expected dependence is interpolated: a cell between the middles of two codes behaves like a mixture of both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.columns.discretizer import Discretizer
from privbench_core.estimate.fitting import fit_margins
from privbench_core.guards import FEW_ROWS, MAX_CELLS, NEGLIGIBLE, SETTLING_ROUNDS, SWEEPS
from privbench_core.models.record_swapping import TargetTable, swap

Array = NDArray[np.float64]


def allocate_within_bins(
    codes: Mapping[str, Codes], discretizers: Mapping[str, Discretizer], rng: np.random.Generator
) -> dict[str, Codes]:
    """Draw a cell for every code of every column, as `Discretizer.cells`, balanced against the other columns.

    Args:
        codes: Column -> codes of all rows.
        discretizers: Of these columns.
        rng: Sampling only.
    """
    cells = {name: discretizer.cells(codes[name], rng) for name, discretizer in discretizers.items()}
    merged = {name for name, coder in discretizers.items() if np.count_nonzero(coder.shares[1]) > coder.size}
    if not merged or len(next(iter(codes.values()))) < FEW_ROWS:
        return cells
    columns = {name: _Column.of(codes[name], discretizer) for name, discretizer in discretizers.items()}
    pairs = [pair for pair in combinations(discretizers, 2) if not merged.isdisjoint(pair)]
    pairs.sort(key=lambda pair: len(columns[pair[0]].rows) * len(columns[pair[1]].rows))
    sizes = np.cumsum([len(columns[a].rows) * len(columns[b].rows) for a, b in pairs])
    kept = pairs[: int(np.searchsorted(sizes, MAX_CELLS, side="right"))]  # the smallest
    targets = [TargetTable((a, b), _expected(columns[a], columns[b])) for a, b in kept]
    swap(cells, targets, [(name,) for name in discretizers if name in merged], rng, sweeps=SWEEPS, within=codes)
    return cells


@dataclass(frozen=True)
class _Column:
    """A column's codes and its cells.

    Attributes:
        codes: Of all rows.
        rows: Expected number of rows of each cell, shape (cells,).
        members: 1 where a cell belongs to a code, shape (codes, cells).
        mixture: Weights of the codes that a cell is interpolated from, shape (cells, codes).
    """

    codes: Codes
    rows: Array
    members: Array
    mixture: Array

    @classmethod
    def of(cls, codes: Codes, discretizer: Discretizer) -> _Column:
        """Interpolate a cell of a range between the two codes whose middles enclose it; others equal their code."""
        code_of, shares = discretizer.shares
        position = np.arange(len(code_of))
        members = np.zeros((discretizer.size, len(code_of)))
        members[code_of, position] = 1.0
        mixture = members.T.copy()
        ordered = 0 if discretizer.binning is None else discretizer.ordered
        if ordered > 1:
            middles = (members @ (shares * position))[:ordered]  # shares of a code add up to 1
            inside = np.flatnonzero(code_of < ordered)
            upper = np.clip(np.searchsorted(middles, inside), 1, ordered - 1)
            weight = np.clip((inside - middles[upper - 1]) / (middles[upper] - middles[upper - 1]), 0.0, 1.0)
            mixture[inside] = 0.0
            mixture[inside, upper] = weight
            mixture[inside, upper - 1] = 1 - weight
        rows = np.bincount(codes, minlength=discretizer.size)[code_of] * shares
        return cls(codes, rows, members, mixture)


def _expected(first: _Column, second: _Column) -> Array:
    """Return the expected rows of pairs of cells, given the rows of the pairs of codes and of single cells."""
    size = len(second.members)
    both = np.bincount(first.codes.astype(np.int64) * size + second.codes, minlength=len(first.members) * size)
    drawn = both.reshape(-1, size).astype(np.float64)
    margins = np.maximum(drawn.sum(axis=1, keepdims=True), 1) * np.maximum(drawn.sum(axis=0), 1)
    counts = (first.mixture @ (drawn / margins) @ second.mixture.T) * np.outer(first.rows, second.rows)
    for _ in range(SETTLING_ROUNDS):
        codes = first.members @ counts @ second.members.T
        counts *= first.members.T @ (drawn / np.maximum(codes, NEGLIGIBLE)) @ second.members
        counts = fit_margins(counts, [((0,), first.rows), ((1,), second.rows)], 1)
    return np.asarray(counts)
