"""A column is drawn from several released tables, which noise makes contradict each other."""

from __future__ import annotations

import numpy as np

from privbench_core.models.conditional import PairMarginal, draw_column
from privbench_core.models.rows import Rows

CODES, N = 10, 20_000


def agreeing(share: float) -> np.ndarray:
    """Joint of two columns that are equal in this share of the rows."""
    joint = np.full((CODES, CODES), (1 - share) / CODES / (CODES - 1))
    np.fill_diagonal(joint, share / CODES)
    return joint


def test_of_tables_that_contradict_each_other_the_one_that_tells_most_holds() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, CODES, N).astype(np.int32)
    rows = Rows(N, {"one": codes, "same": codes, "other": rng.integers(0, CODES, N).astype(np.int32)})
    rows.sizes = dict.fromkeys(rows.codes, CODES)
    tables = [
        PairMarginal("same", agreeing(0.6)),
        PairMarginal("other", agreeing(0.2)),
        PairMarginal("one", agreeing(0.9)),
    ]
    drawn = draw_column(rows, np.full(CODES, 1 / CODES), tables, rng)
    assert abs(float((drawn == codes).mean()) - 0.9) < 0.01
