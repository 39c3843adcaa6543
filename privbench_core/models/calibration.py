"""Drawn rows, moved closer to all released pair tables at once.

Columns are drawn one after the other, each given the few that tell most about it (`conditional.draw_column`): what all
other tables say is lost, and chance adds to that. Here rows exchange values (`record_swapping`) until they are closer
to the tables; rows keep their context. Pairs that were not measured have a table too, of less weight: what the measured
ones imply. Without it, chance alone would decide them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from privbench_core.estimate.fitting import fit_margins
from privbench_core.models.record_swapping import RecordSwapping, Wanted
from privbench_core.models.rows import PairTables, Rows

_SWEEPS = 2
_FEWEST = 200  # rows: below that, tables are all chance
_RAKING = 10
_IMPLIED = 0.3  # weight of a table that was not measured


def swap_to_fit(
    rows: Rows, columns: Sequence[str], tables: PairTables, rng: np.random.Generator, implied: PairTables | None = None
) -> None:
    """Exchange values of ``columns`` between rows, in place.

    Tables are fitted to the margins that the rows have: exchanges cannot change those, and rows of a part of a mixture,
    or rows given their context, need not have the margins of the whole.

    Args:
        rows: With all columns of the tables drawn.
        columns: Those that may change; the others are context.
        tables: Released joints, adding up to 1 each: (column, column) -> shape (size, size).
        rng: Sampling only.
        implied: The same for pairs that were not measured.
    """
    known = {**tables, **(implied or {})}
    if rows.n < _FEWEST or not known:
        return
    weights = np.ones(rows.n) if rows.weights is None else rows.weights / rows.weights.mean()
    names = {name for pair in known for name in pair}
    counts = {name: np.bincount(rows.codes[name], weights, rows.sizes[name]).astype(float) for name in names}
    wanted = []
    for (a, b), joint in known.items():
        fitted = fit_margins(joint, [((0,), counts[a]), ((1,), counts[b])], _RAKING)
        wanted.append(Wanted(a, b, fitted, 1.0 if (a, b) in tables else _IMPLIED))
    exchange = RecordSwapping(rows.codes, wanted, weights)
    for _ in range(_SWEEPS):
        exchange.sweep(columns, rng)
