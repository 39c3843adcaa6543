"""Children are dated after their owners: where no column says what it is relative to, a histogram of lags does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.evaluation.rows import row_figures
from tests.helpers.heavy_tails import Database
from tests.helpers.noise import SeededNoise
from tests.helpers.planted import broken_expectations, place_of, samples_of
from tests.helpers.relatives import OWNERS, distances, mail_order, of_owners

OPTIONS = {"relational": {"tables": "independent"}}
DAYS = np.array([-np.inf, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, np.inf])


def lags(database: Database, tables: dict[str, pa.Table], later: str) -> np.ndarray:
    """Shares of the rows by days after their owner's, the first of them before it."""
    found = distances(of_owners(database[0], tables, later), later.split(".")[1], OWNERS[later])
    found = found[~np.isnan(found)]
    return np.asarray(np.histogram(found, DAYS)[0] / len(found))


@pytest.mark.parametrize("synthesizer", ["privbench", "privlava", "privpetal", "relational"])
@pytest.mark.parametrize("epsilon", [3.2, 10_000.0])
def test_children_come_after_their_owners(synthesizer: str, epsilon: float, tmp_path: Path):
    """Before lags were measured, a fifth to a half of them came before, and pairs of dates were .3 apart at 3.2."""
    schema, tables = mail_order(relative=False)
    options = OPTIONS.get(synthesizer, {})
    place = place_of(tmp_path, schema, tables, options=options, synthesizer=synthesizer)
    result = place.run_with(SeededNoise(0), epsilon)
    made = samples_of(result)
    assert broken_expectations(result) == []
    for later in OWNERS:
        true, found = lags((schema, tables), tables, later), lags((schema, tables), made, later)
        assert true[0] == 0
        assert found[0] < (0.17 if synthesizer == "relational" else 0.12), later
        assert np.abs(true - found).sum() / 2 < (0.4 if synthesizer == "relational" else 0.2), later
    figures = row_figures(schema, tables, made).mean()
    assert figures["joined"] < 0.13
    assert figures["one_way"] < 0.06
