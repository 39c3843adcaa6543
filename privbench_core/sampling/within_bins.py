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
from privbench_core.models.calibration import MIN_ROWS, SWEEPS
from privbench_core.models.record_swapping import RecordSwapping, TargetTable

Array = NDArray[np.float64]
# Chosen by hand, for fit and time on the benchmark data sets.
_RAKING_ROUNDS = 5  # of fitting a table of cells to codes and margins
_MAX_ROWS = 1 << 20  # of more rows, swaps would move too small a part
_MAX_TABLES = 200  # of two columns, the smallest first
_MAX_CELLS = 1 << 20  # of all tables
_TINY = 1e-9  # rows; keeps divisions finite


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
    merged = [
        name for name, discretizer in discretizers.items() if np.count_nonzero(discretizer.shares[1]) > discretizer.size
    ]
    n = len(next(iter(cells.values()), ()))
    if not merged or not MIN_ROWS <= n <= _MAX_ROWS:
        return cells
    pairs = [(a, b) for a, b in combinations(discretizers, 2) if a in merged or b in merged]

    def cell_count(pair: tuple[str, str]) -> int:
        return discretizers[pair[0]].codec.size * discretizers[pair[1]].codec.size

    pairs = sorted(pairs, key=cell_count)[:_MAX_TABLES]
    sizes = np.cumsum([cell_count(pair) for pair in pairs])
    columns = {name: _Column.of(codes[name], discretizer) for name, discretizer in discretizers.items()}
    kept = pairs[: int(np.searchsorted(sizes, _MAX_CELLS, side="right"))]
    targets = [TargetTable((a, b), _expected(columns[a], columns[b])) for a, b in kept]
    swapping = RecordSwapping(cells, targets, None)
    for _ in range(SWEEPS):
        swapping.sweep(merged, rng, within=codes)
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
        members = np.zeros((discretizer.size, len(code_of)))
        members[code_of, np.arange(len(code_of))] = 1.0
        mixture = members.T.copy()
        ordered = 0 if discretizer.binning is None else discretizer.binning.ordered
        if ordered > 1:
            position = np.arange(len(code_of))
            middles = (members @ (shares * position))[:ordered]  # shares of a code add up to 1
            inside = np.flatnonzero(code_of < ordered)
            upper = np.clip(np.searchsorted(middles, position[inside]), 1, ordered - 1)
            gap = middles[upper] - middles[upper - 1]
            upper_weight = np.clip((position[inside] - middles[upper - 1]) / gap, 0.0, 1.0)
            mixture[inside] = 0.0
            mixture[inside, upper] = upper_weight
            mixture[inside, upper - 1] = 1 - upper_weight
        rows = np.bincount(codes, minlength=discretizer.size)[code_of] * shares
        return cls(codes, rows, members, mixture)


def _expected(first: _Column, second: _Column) -> Array:
    """Return the expected rows of pairs of cells, given the rows of the pairs of codes and of single cells."""
    size = len(second.members)
    both = np.bincount(first.codes.astype(np.int64) * size + second.codes, minlength=len(first.members) * size)
    drawn = both.reshape(-1, size).astype(float)
    margins = np.maximum(drawn.sum(axis=1, keepdims=True), 1) * np.maximum(drawn.sum(axis=0), 1)
    counts = (first.mixture @ (drawn / margins) @ second.mixture.T) * np.outer(first.rows, second.rows)
    for _ in range(_RAKING_ROUNDS):
        codes = first.members @ counts @ second.members.T
        counts *= first.members.T @ (drawn / np.maximum(codes, _TINY)) @ second.members
        counts = fit_margins(counts, [((0,), first.rows), ((1,), second.rows)], 1)
    return np.asarray(counts)
