"""A column is drawn from several released tables, which noise makes contradict each other."""

from __future__ import annotations

import numpy as np

from privbench_core.marginals.sampler import PairMarginal, Rows, draw_column

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


def test_latent_attributes_come_after_observed_columns() -> None:
    """A type that tells more than any column has no say where as many columns as are used tell something."""
    rng = np.random.default_rng(0)
    columns = {f"c{number}": rng.integers(0, 2, 20_000) for number in range(6)}
    rows = Rows(20_000, {**columns, "#type 1 of key": rng.integers(0, 2, 20_000)})
    rows.sizes = dict.fromkeys(rows.codes, 2)
    weak, strong = np.array([[0.3, 0.2], [0.2, 0.3]]), np.array([[0.45, 0.05], [0.05, 0.45]])
    tables = [PairMarginal(name, weak) for name in columns]
    for latent, share in ((True, 0.5), (False, 0.9)):
        told = PairMarginal("#type 1 of key", strong, latent=latent)
        drawn = draw_column(rows, np.array([0.5, 0.5]), [*tables, told], np.random.default_rng(1))
        assert abs((drawn == rows.codes["#type 1 of key"]).mean() - share) < 0.02


def test_where_tables_rule_each_other_out_the_one_that_tells_most_decides() -> None:
    """Codes of the only row of its kind: what one table leaves possible, the other does not."""
    rows = Rows(1_000, {"one": np.r_[0, np.full(999, 1)], "other": np.r_[0, np.full(999, 1)]})
    rows.sizes = {"one": 2, "other": 2}
    tells = np.array([[0.0, 0.5], [0.0, 0.499], [0.001, 0.0]])  # the row has the last code
    denies = np.array([[0.0005, 0.4995], [0.0005, 0.4985], [0.0, 0.001]])
    tables = [PairMarginal("other", denies), PairMarginal("one", tells)]
    drawn = draw_column(rows, np.array([0.5, 0.499, 0.001]), tables, np.random.default_rng(0))
    assert drawn[0] == 2
