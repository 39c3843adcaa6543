"""Cells for drawn codes, spread evenly beside the cells of all other columns.

A code may stand for many cells, as the rare values of a list do, or a stretch of a range. Which of its rows get which
cell was dealt column by column; so of two columns, chance decides which cells meet, and many never do. Here rows with
the same code exchange cells until pairs of cells are about as frequent as their shares of the codes say: each about as
often as it should be, rounded, instead of as often as chance has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np

from privbench_core.domain.codec import Codes
from privbench_core.domain.coder import Coder
from privbench_core.models.exchange import Exchange, Wanted

_SWEEPS = 2
_FEWEST = 200  # rows: below that, a cell is all chance
_MOST = 1 << 20  # rows: of more, an exchange would move too small a part
_MOST_TABLES = 200  # of two columns, the smallest first
_MOST_CELLS = 1 << 20  # of all tables


def spread_cells(codes: Mapping[str, Codes], coders: Mapping[str, Coder], rng: np.random.Generator) -> dict[str, Codes]:
    """A cell for every code of every column, as `Coder.cells`, but evenly beside the other columns.

    Args:
        codes: Column -> codes of all rows.
        coders: Of these columns.
        rng: Sampling only.
    """
    cells = {name: coder.cells(codes[name], rng) for name, coder in coders.items()}
    merged = [name for name, coder in coders.items() if np.count_nonzero(coder.shares[1]) > coder.size]
    n = len(next(iter(cells.values()), ()))
    if not merged or not _FEWEST <= n <= _MOST:
        return cells
    pairs = [(a, b) for a, b in combinations(coders, 2) if a in merged or b in merged]
    pairs = sorted(pairs, key=lambda pair: coders[pair[0]].codec.size * coders[pair[1]].codec.size)[:_MOST_TABLES]
    sizes = np.cumsum([coders[a].codec.size * coders[b].codec.size for a, b in pairs])
    tables = [_even(a, b, codes, coders) for a, b in pairs[: int(np.searchsorted(sizes, _MOST_CELLS, side="right"))]]
    exchange = Exchange(cells, tables, np.ones(n))
    for _ in range(_SWEEPS):
        exchange.sweep(merged, rng, within=codes)
    return cells


def _even(first: str, second: str, codes: Mapping[str, Codes], coders: Mapping[str, Coder]) -> Wanted:
    """Rows of two codes, spread over the cells of both by their shares."""
    size = coders[second].size
    both = np.bincount(codes[first].astype(np.int64) * size + codes[second], minlength=coders[first].size * size)
    (code_of, share), (other_code, other_share) = coders[first].shares, coders[second].shares
    counts = both.reshape(-1, size)[code_of[:, None], other_code] * np.outer(share, other_share)
    return Wanted(first, second, counts)
