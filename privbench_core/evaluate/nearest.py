"""Are synthetic records copies? Distances to the nearest_distances record of the source, against those between its own halves.

Rows are compared attribute by attribute: ordered ones by their distance in codes as a share of the domain, others by
equality; the distance is the mean over attributes, from 0 (the same in every code) to 1. A synthesizer that copies puts
its rows closer to the source than the source's other half is. Rows that are common in the source (few attributes, small
domains) are at distance 0 from it whoever makes them, so the two figures only mean something side by side.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privbench_core.evaluate.encode import EncodedTable

SAMPLE = 2_000
"""Rows that are looked up at most."""
REFERENCE = 20_000
"""Rows they are looked up among at most."""
_BLOCK = 200
_UNLIKE = 0.05  # the least excess of exact copies that is worth a warning, as a share of rows


@dataclass(frozen=True)
class NearestRecords:
    """Distances to the nearest_distances record of one half of the source.

    Attributes:
        rows: Rows looked up, of either kind.
        synthetic_same: Share of synthetic rows at distance 0.
        source_same: The same of rows of the source's other half.
        synthetic: 5th percentile and median of the distances of synthetic rows.
        source: The same of rows of the other half.
    """

    rows: int
    synthetic_same: float
    source_same: float
    synthetic: tuple[float, float]
    source: tuple[float, float]

    @property
    def suspicious(self) -> bool:
        """Whether synthetic rows coincide with the source more often than the source with itself."""
        noise = 3 * math.sqrt(0.25 / max(self.rows, 1))
        return self.synthetic_same > self.source_same + max(_UNLIKE, noise)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return asdict(self) | {"suspicious": self.suspicious}


def nearest_records(true: EncodedTable, synthetic: EncodedTable, rng: np.random.Generator) -> NearestRecords | None:
    """Compare a table with its source; None where there is nothing to compare (no attributes, too few rows)."""
    mixed = rng.permutation(len(true.codes))
    half = min(len(mixed) // 2, REFERENCE)
    count = min(SAMPLE, len(mixed) - half, len(synthetic.codes))
    if not true.names or not half or not count:
        return None
    reference = EncodedTable(true.names, true.codes[mixed[:half]], true.sizes, true.ordered)
    made = nearest_distances(synthetic, reference, rows=rng.choice(len(synthetic.codes), count, replace=False))
    real = nearest_distances(true, reference, rows=mixed[half : half + count])
    return NearestRecords(
        count, float((made == 0).mean()), float((real == 0).mean()), _low_and_median(made), _low_and_median(real)
    )


def _low_and_median(distances: NDArray[np.float64]) -> tuple[float, float]:
    return float(np.percentile(distances, 5)), float(np.percentile(distances, 50))


def nearest_distances(of: EncodedTable, among: EncodedTable, rows: NDArray[np.integer]) -> NDArray[np.float64]:
    """Distance of each of ``rows`` of one table to its nearest_distances record of another; shape (len(rows),).

    Args:
        of: Where the rows are.
        among: The records, of the same columns and codes; at most `REFERENCE` of them, spread evenly, are looked at.
        rows: Positions in ``of``.
    """
    step = np.linspace(0, len(among.codes) - 1, min(len(among.codes), REFERENCE)).astype(np.int64)
    records = [np.ascontiguousarray(_column(among.codes[step, i], among, i)) for i in range(len(among.names))]
    wanted = [_column(of.codes[rows, i], among, i) for i in range(len(among.names))]
    found = np.empty(len(rows))
    for start in range(0, len(rows), _BLOCK):
        block = slice(start, start + _BLOCK)
        total = np.zeros((len(rows[block]), len(step)), np.float32)
        for i, (mine, theirs) in enumerate(zip(wanted, records, strict=True)):
            total += np.abs(mine[block, None] - theirs) if among.ordered[i] else mine[block, None] != theirs
        found[block] = total.min(axis=1) if len(step) else np.inf
    return found / max(len(among.names), 1)


def _column(codes: NDArray[np.integer], table: EncodedTable, position: int) -> NDArray[np.float32]:
    """Codes as numbers in [0, 1] where they are ordered, as they are where they are names."""
    scale = max(table.sizes[position] - 1, 1) if table.ordered[position] else 1
    return (codes / np.float32(scale)).astype(np.float32)
