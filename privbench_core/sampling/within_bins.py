"""Cells for drawn codes, spread evenly beside the cells of all other columns.

A code may stand for many cells, as the rare values of a list do, or a stretch of a range. Which of its rows get which
cell was dealt column by column; so of two columns, chance decides which cells meet, and many never do. Here rows with
the same code exchange cells until pairs of cells are about as frequent as their shares of the codes say: each about as
often as it should be, rounded, instead of as often as chance has it. Along a range, what goes with what changes from
cell to cell rather than from code to code: cells between the middles of two codes are in between in that, too.
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
from privbench_core.models.record_swapping import RecordSwapping, TargetTable

Array = NDArray[np.float64]
_SWEEPS = 2
_RAKING = 5
_NOTHING = 1e-9  # rows
_FEWEST = 200  # rows: below that, a cell is all chance
_MOST = 1 << 20  # rows: of more, an exchange would move too small a part
_MOST_TABLES = 200  # of two columns, the smallest first
_MOST_CELLS = 1 << 20  # of all tables


def allocate_within_bins(
    codes: Mapping[str, Codes], discretizers: Mapping[str, Discretizer], rng: np.random.Generator
) -> dict[str, Codes]:
    """A cell for every code of every column, as `Discretizer.cells`, but evenly beside the other columns.

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
    if not merged or not _FEWEST <= n <= _MOST:
        return cells
    pairs = [(a, b) for a, b in combinations(discretizers, 2) if a in merged or b in merged]
    pairs = sorted(pairs, key=lambda pair: discretizers[pair[0]].codec.size * discretizers[pair[1]].codec.size)[
        :_MOST_TABLES
    ]
    sizes = np.cumsum([discretizers[a].codec.size * discretizers[b].codec.size for a, b in pairs])
    columns = {name: _Column.of(codes[name], discretizer) for name, discretizer in discretizers.items()}
    kept = pairs[: int(np.searchsorted(sizes, _MOST_CELLS, side="right"))]
    exchange = RecordSwapping(cells, [TargetTable(a, b, _even(columns[a], columns[b])) for a, b in kept], np.ones(n))
    for _ in range(_SWEEPS):
        exchange.sweep(merged, rng, within=codes)
    return cells


@dataclass(frozen=True)
class _Column:
    """A column's codes and what its cells are to be.

    Attributes:
        codes: Of all rows.
        rows: Expected number of rows of each cell, shape (cells,).
        members: Which cells are of which code, shape (codes, cells).
        between: The mixture of codes that each cell is like, shape (cells, codes).
    """

    codes: Codes
    rows: Array
    members: Array
    between: Array

    @classmethod
    def of(cls, codes: Codes, discretizer: Discretizer) -> _Column:
        """Cells are like their code; those of a range, like the codes whose middles they lie between."""
        code_of, shares = discretizer.shares
        members = np.zeros((discretizer.size, len(code_of)))
        members[code_of, np.arange(len(code_of))] = 1.0
        between = members.T.copy()
        ordered = 0 if discretizer.binning is None else discretizer.binning.ordered
        if ordered > 1:
            place = np.arange(len(code_of))
            middles = (members @ (shares * place))[:ordered]  # shares of a code add up to 1
            inside = np.flatnonzero(code_of < ordered)
            upper = np.clip(np.searchsorted(middles, place[inside]), 1, ordered - 1)
            gap = middles[upper] - middles[upper - 1]
            towards = np.clip((place[inside] - middles[upper - 1]) / gap, 0.0, 1.0)
            between[inside] = 0.0
            between[inside, upper] = towards
            between[inside, upper - 1] = 1 - towards
        rows = np.bincount(codes, minlength=discretizer.size)[code_of] * shares
        return cls(codes, rows, members, between)


def _even(first: _Column, second: _Column) -> Array:
    """Rows of pairs of cells: those of the pairs of codes as they are, and those of single cells as expected."""
    size = len(second.members)
    both = np.bincount(first.codes.astype(np.int64) * size + second.codes, minlength=len(first.members) * size)
    wanted = both.reshape(-1, size).astype(float)
    margins = np.maximum(wanted.sum(axis=1, keepdims=True), 1) * np.maximum(wanted.sum(axis=0), 1)
    counts = (first.between @ (wanted / margins) @ second.between.T) * np.outer(first.rows, second.rows)
    for _ in range(_RAKING):
        codes = first.members @ counts @ second.members.T
        counts *= first.members.T @ (wanted / np.maximum(codes, _NOTHING)) @ second.members
        counts = fit_margins(counts, [((0,), first.rows), ((1,), second.rows)], 1)
    return np.asarray(counts)
