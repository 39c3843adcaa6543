"""What released numbers can tell of the worst unit: never more than is claimed, and hardly less."""

from __future__ import annotations

import pytest

from benchmarks.tightness import BUDGETS, MOST, SYNTHESIZERS, UNITS, clinic, losses
from privbench_core.synthesizers.privlava import PrivLava
from privbench_core.synthesizers.privpetal import PrivPetal
from tests.helpers.databases import Database

CASES = [
    pytest.param(name, kind, marks=[pytest.mark.slow] * (kind == "pure" and not name.startswith("privbench")))
    for name, (make, _) in SYNTHESIZERS.items()
    for kind in BUDGETS
    if kind == "Gaussian" or make not in {PrivPetal, PrivLava}
]
LEAST = {"Gaussian": 0.9, "pure": 0.8}
"""Of μ, and of ε: L1 of several marginals at once is reached by fewer units."""


@pytest.fixture(scope="module")
def database() -> Database:
    """A few patients, among them all the special ones."""
    return clinic(300)


def test_the_units_are_what_they_are_called(database: Database) -> None:
    owners = database.tables["visit"].column("patient_id").to_pylist()
    number = {name: owners.count(unit) for name, unit in UNITS.items()}
    assert {name: found for name, found in number.items() if name.startswith("most")} == {
        f"most children, all {what}": MOST for what in ("alike", "extreme", "NULL", "different")
    }
    assert (number["one child"], number["no children"], number["ten times the bound"]) == (1, 0, 10 * MOST)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_nothing_is_lost_beyond_the_claim_and_little_noise_is_wasted(database: Database, name: str, kind: str) -> None:
    make, options = SYNTHESIZERS[name]
    found = losses(make().plan(database.schema, BUDGETS[kind], options), database, UNITS)
    for unit, loss in found.items():
        assert loss.total <= 1 + 1e-9, unit
        assert all(share <= 1 + 1e-9 for share in loss.steps.values()), (unit, loss.steps)
    assert max(loss.total for loss in found.values()) > LEAST[kind]
