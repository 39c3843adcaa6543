"""Attributes of public parents as targets of links: codes of their rows by position, for marginals across tables.

The rows are public, and which one a private row refers to is what a view may look at (`ParentRow`): so any function of
the position is a column of the view, whatever the type of the attribute. Nothing private is looked at here.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.columns.binning import Binning
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.grid import Grid
from privbench_core.columns.variable_width import VariableWidthCodec
from privbench_core.measure.popularity import order_of_alike
from privbench_core.models.lookup import TARGET
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.tables import Table

_MOST_CODES = 32  # of an attribute; chosen by hand: cross-table marginals merge them further
ROW = "#row"


def public_targets(table: Table, rows: pa.Table, *, optional: bool) -> dict[str, Discretizer]:
    """Return a coding of the row positions for each attribute, and one by position, by target.

    Args:
        table: Public.
        rows: Its rows, at least one.
        optional: Whether the key may be NULL: one more code, the last.
    """
    names = tuple(column.name for column in table.attributes)
    found = {
        f"{TARGET}{name}": _by_position(_codes(rows.column(name)), optional=optional, ordered=True) for name in names
    }
    blocks = _blocks(order_of_alike(rows, names))
    return {**found, f"{TARGET}{ROW}": _by_position(blocks, optional=optional, ordered=False)}


def _by_position(code_of: NDArray[np.int64], *, optional: bool, ordered: bool) -> Discretizer:
    """Return the discretizer of row positions that gives each row its code: a cell for each run of equal codes."""
    starts = np.flatnonzero(np.diff(code_of, prepend=-1))
    grid = Grid.of(Column(ROW, ColumnType.INTEGER), "")
    codec = VariableWidthCodec(grid, False, tuple(starts.tolist()), len(code_of) - 1)
    size = int(code_of.max()) + 1
    cells = np.zeros(codec.size, dtype=np.int64)
    cells[: len(starts)] = code_of[starts]
    if optional:
        cells[codec.below] = size
    shares = 1 / np.bincount(cells)[cells]
    return Discretizer(codec, Binning(tuple(cells.tolist()), tuple(shares.tolist()), size if ordered else 0))


def _codes(values: pa.ChunkedArray) -> NDArray[np.int64]:
    """Return a code for each row, in the order of the values; neighbours share one where there are too many."""
    series = values.to_pandas()
    present = series.notna().to_numpy()
    values_of, found = np.unique(series[present].to_numpy(), return_inverse=True)
    ranks = np.full(len(series), len(values_of), dtype=np.int64)  # NULL is a value of its own, the last
    ranks[present] = found
    return _dense(ranks)


def _dense(ranks: NDArray[np.int64]) -> NDArray[np.int64]:
    if ranks.max() < _MOST_CODES:
        return ranks
    share = np.cumsum(np.bincount(ranks)) / len(ranks)
    block = np.minimum((share * _MOST_CODES).astype(np.int64), _MOST_CODES - 1)
    return np.asarray(np.unique(block[ranks], return_inverse=True)[1], dtype=np.int64)


def _blocks(places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return blocks of rows that are alike."""
    return places * min(len(places), _MOST_CODES) // len(places)
