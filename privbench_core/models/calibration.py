"""Calibrate drawn rows to all released pair tables at once.

Columns are drawn one after the other, each given the few most informative others (`conditional.draw_column`): other
tables are ignored, and sampling adds error. Here rows swap values (`record_swapping`), which brings them closer to all
tables; rows keep their context.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.systematic import group_counts
from privbench_core.estimate.fitting import fit_margins
from privbench_core.guards import FEW_ROWS, SWEEPS
from privbench_core.models.record_swapping import TargetTable, swap
from privbench_core.models.rows import Rows

JointTables = Mapping[tuple[str, ...], NDArray[np.float64]]


def swap_to_fit(
    rows: Rows,
    columns: Sequence[str],
    tables: JointTables,
    rng: np.random.Generator,
) -> None:
    """Swap values of ``columns`` between rows, in place.

    Tables are first fitted to the margins of the rows: swaps cannot change these, and the rows of one part of a
    mixture, or of a context, may have other margins than the whole.

    Args:
        rows: With all columns of the tables drawn.
        columns: The columns that may change; the others are context.
        tables: Released joints, in any scale: (column, column, ..) -> shape (size, size, ..).
        rng: Sampling only.
    """
    if rows.n < FEW_ROWS or not tables:
        return
    weights = None if rows.weights is None else rows.weights / rows.weights.mean()
    names = {name for table in tables for name in table}
    counts = {
        name: (
            group_counts(rows.codes[name], rows.sizes[name])
            if weights is None
            else np.bincount(rows.codes[name], weights, rows.sizes[name])
        ).astype(float)
        for name in names
    }
    targets = []
    for table, joint in tables.items():
        fitted = fit_margins(joint, [((axis,), counts[name]) for axis, name in enumerate(table)])
        targets.append(TargetTable(table, fitted))
    swap(rows.codes, targets, [(name,) for name in columns], rng, sweeps=SWEEPS, weights=weights)
