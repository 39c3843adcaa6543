"""The table synthesizer of the optional package `mbi`: what it learns, what it costs, and what is said without it."""

from __future__ import annotations

import numpy as np
import pytest

from privbench_core.errors import SpecError
from privbench_core.marginals.one_way import OneWay
from privbench_core.privacy.budget import Measure, Price
from privbench_core.synthesizers.relational import mst
from tests.helpers.databases import adversaries, town
from tests.helpers.noise import RecordingNoise, ReplayNoise, SeededNoise
from tests.helpers.plans import Trace, run_step

CODES = 5


def counts(*columns: np.ndarray) -> np.ndarray:
    table = np.zeros((CODES,) * len(columns))
    np.add.at(table, columns, 1)
    return table


def test_without_the_package_a_plan_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(mst, "find_spec", lambda _: None)
    database = town(0)
    with pytest.raises(SpecError, match=r"privbench\[mbi\]"):
        mst.MST().steps(database.schema, database.schema.table("household"), Price(Measure.GDP, 1.0))


def test_the_model_has_the_pairs_of_the_tree():
    pytest.importorskip("mbi")
    rng = np.random.default_rng(0)
    a = rng.integers(0, CODES, 5000)
    b = (a + (rng.random(5000) < 0.3)) % CODES
    c = (b + (rng.random(5000) < 0.3)) % CODES
    columns = {"a": a, "b": b, "c": c}
    one_way = OneWay.with_sigma(
        {name: counts(codes) + rng.normal(0, 10, CODES) for name, codes in columns.items()}, 10.0
    )
    pairs = {("a", "b"): counts(a, b) + rng.normal(0, 20, (5, 5)), ("b", "c"): counts(b, c) + rng.normal(0, 20, (5, 5))}
    leaf = mst._estimated(one_way, pairs, 20.0)
    assert np.abs(leaf.pairs["a", "b"] - counts(a, b) / 5000).sum() / 2 < 0.03
    assert leaf.pairs["a", "b"].sum(axis=0) == pytest.approx(leaf.pairs["b", "c"].sum(axis=1), abs=1e-6)
    assert leaf.marginals["a"] == pytest.approx(leaf.pairs["a", "b"].sum(axis=1), abs=1e-6)


@pytest.mark.parametrize("measure", [Measure.GDP, Measure.PURE])
def test_a_neighbour_moves_no_noise_input_beyond_what_the_price_covers(measure: Measure):
    """Selections and answers are replayed on the rows without one household: all artifacts are the same bytes."""
    pytest.importorskip("mbi")
    database = town(0, learned=False)
    price = Price(measure, 50.0)
    tables = [database.schema.table(name) for name in ("household", "person")]
    steps = [step for table in tables for step in mst.MST().steps(database.schema, table, price)]
    recorded, first = RecordingNoise(SeededNoise(0)), Trace()
    for step in steps:
        run_step(step, database, recorded, first)
    assert sum("pair of a tree" in label for charges in first.charges.values() for label, _ in charges) > 1
    for unit in adversaries(database, 0):
        noise, second = ReplayNoise(recorded.tape), Trace()
        for step in steps:
            before = noise.loss
            run_step(step, database.without(unit), noise, second)
            assert noise.loss - before <= step.price.amount * (1 + 1e-9)
            assert first.artifacts[step.key].to_bytes() == second.artifacts[step.key].to_bytes()
        noise.finish()
        assert noise.moved > 0
