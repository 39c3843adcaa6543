"""Distance to the closest record (DCR): are synthetic rows nearer to one half of the source than its other half is?

The distance of two rows is the mean over attributes, from 0 (equal codes) to 1: ordered attributes differ by the
distance of their codes as a share of the domain, others by 0 or 1. Rows of a synthesizer that copies are nearer to the
source than the source's other half. Frequent rows (few attributes, small domains) always have distance 0, so only the
comparison counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from privbench_core.evaluation.encode import EncodedTable
from privbench_core.evaluation.marginals import Figures

SAMPLE = 2_000
"""Maximum number of rows to search neighbours for."""
REFERENCE = 20_000
"""Maximum number of rows to search among, and of units that attackers guess about."""


def nearest_records(true: EncodedTable, synthetic: EncodedTable, rng: np.random.Generator) -> Figures | None:
    """Return whether synthetic rows are nearer to one half of the source than its other half is.

    Returns:
        The number of "rows" compared on each side; the share of them at distance 0 ("synthetic_same", "source_same");
        5th percentile and median of the distances ("synthetic", "source"); and whether it is "suspicious" that
        synthetic rows equal source rows significantly more often. None without attributes or with too few rows.
    """
    mixed = rng.permutation(len(true.codes))
    half = min(len(mixed) // 2, REFERENCE)
    count = min(SAMPLE, len(mixed) - half, len(synthetic.codes))
    if not true.names or not half or not count:
        return None
    reference = replace(true, codes=true.codes[mixed[:half]])
    made = nearest_distances(synthetic, reference, rows=rng.choice(len(synthetic.codes), count, replace=False))
    real = nearest_distances(true, reference, rows=mixed[half : half + count])
    same, same_of_source = float((made == 0).mean()), float((real == 0).mean())
    return {
        "rows": count,
        "synthetic_same": same,
        "source_same": same_of_source,
        "synthetic": tuple(np.percentile(made, (5, 50)).tolist()),
        "source": tuple(np.percentile(real, (5, 50)).tolist()),
        "suspicious": same > same_of_source + max(0.05, 3 * math.sqrt(0.25 / count)),
    }


def nearest_distances(of: EncodedTable, among: EncodedTable, rows: NDArray[np.integer]) -> NDArray[np.float64]:
    """Return the distance of each of ``rows`` of one table to its nearest record in another; shape (len(rows),)."""
    return find_nearest(of, among, rows, range(len(among.names)))[1]


def find_nearest(
    of: EncodedTable, among: EncodedTable, rows: NDArray[np.integer], columns: Sequence[int]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the record of another table that is nearest to each of ``rows``, and its distance; shapes (len(rows),).

    Args:
        of: The table of the rows.
        among: The other table, with the same columns and codes; at most `REFERENCE` evenly spaced rows are used.
        rows: Positions in ``of``.
        columns: Those that are compared. Of equally near records the first is returned.
    """
    step = np.linspace(0, len(among.codes) - 1, min(len(among.codes), REFERENCE)).astype(np.int64)
    records = [np.ascontiguousarray(_column(among.codes[step, i], among, i)) for i in columns]
    wanted = [_column(of.codes[rows, i], among, i) for i in columns]
    found, distance = np.zeros(len(rows), np.int64), np.full(len(rows), np.inf)
    for start in range(0, len(rows) if len(step) else 0, 200):  # a part at a time, to bound memory
        block = slice(start, start + 200)
        total = np.zeros((len(rows[block]), len(step)), np.float32)
        for i, mine, theirs in zip(columns, wanted, records, strict=True):
            total += np.abs(mine[block, None] - theirs) if among.ordered[i] else mine[block, None] != theirs
        best = total.argmin(axis=1)
        found[block], distance[block] = step[best], total[np.arange(len(best)), best]
    return found, distance / max(len(columns), 1)


def _column(codes: NDArray[np.integer], table: EncodedTable, position: int) -> NDArray[np.float32]:
    """Return ordered codes as numbers in [0, 1], and other codes unchanged."""
    scale = max(table.sizes[position] - 1, 1) if table.ordered[position] else 1
    return (codes / np.float32(scale)).astype(np.float32)
