"""How far every table is, as `benchmark_status` tells it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

import privbench_core.pipeline.run as pipeline_run
from privbench_assets.status import DATABASE
from tests.helpers.fake_synthesizer import FakeSynthesizer
from tests.helpers.orchestrated import Orchestrated, shown


@pytest.fixture
def operated(town_spec: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Orchestrated]:
    fake = FakeSynthesizer()
    monkeypatch.setattr(pipeline_run, "load_synthesizer", lambda _: fake)
    with dg.DagsterInstance.ephemeral() as instance:
        yield Orchestrated(town_spec, fake, instance)


def status(operated: Orchestrated) -> dict[str, str]:
    return shown(operated.refresh("0.8", ["benchmark_status"]))["benchmark_status"]


def states(operated: Orchestrated) -> dict[str, list[str]]:
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in status(operated)["state"].split("\n")]
    assert rows[0] == ["table", "ε=0.8", "ε=3.2"]
    return {row[0]: row[1:] for row in rows[2:]}


def test_states_from_nothing_to_published(operated: Orchestrated) -> None:
    nothing = ["not made", "not made"]
    assert states(operated) == {"household": nothing, "person": nothing, DATABASE: nothing}
    assert operated.refresh("0.8", ["profile/household", "model/household", "profile/person"]).success
    assert states(operated) == {
        "household": ["modelled", "not made"],
        "person": ["profiled", "not made"],
        DATABASE: nothing,
    }
    assert operated.refresh("0.8").success
    done = ["published", "not made"]
    assert states(operated) == {"household": done, "person": done, DATABASE: done}


def test_a_changed_source_and_its_half_made_refresh_are_told(operated: Orchestrated) -> None:
    operated.observe()
    assert operated.refresh("0.8").success
    operated.change("person")
    operated.observe()
    found = states(operated)
    assert found["household"][0] == "sampled"
    assert found["person"][0] == "sampled; source changed since (person)"
    assert found[DATABASE][0] == "published; source changed since (person)"
    line = ["profile/person", "model/person", "fanout/person.household_id", "sample/person"]
    assert operated.refresh("0.8", line).success
    found = states(operated)
    assert found["person"][0] == "sampled"
    assert found[DATABASE][0] == "published; source changed since (person)"
    assert operated.refresh("0.8").success
    assert states(operated)["person"][0] == "published"


def test_spending_is_told_by_epsilon_and_in_total(operated: Orchestrated) -> None:
    before = status(operated)
    assert (before["lifetime ε spent"], before["lifetime ε left"]) == (0, 20)
    assert before["spending"].count("| nothing | never | none |") == 2
    assert operated.refresh("0.8").success
    after = status(operated)
    line = next(line for line in after["spending"].split("\n") if line.startswith("| 0.8 "))
    assert "ε=0.79" in line  # a whole release at 0.8, a hair less for the part of δ set aside
    assert ".privbench/bundles/0.8" in line
    assert 0.7 < after["lifetime ε spent"] < 0.8
    assert after["lifetime ε spent"] + after["lifetime ε left"] == pytest.approx(20)
    assert after["lifetime budget"].startswith("![Lifetime budget](data:image/png;base64,")


def test_pure_budgets_are_told_in_epsilon(town_spec: Path, operated: Orchestrated) -> None:
    text = town_spec.read_text().replace("delta: 1.0e-9", "delta: 0").replace("delta: 1.0e-8", "delta: 0")
    town_spec.write_text(text)
    pure = Orchestrated(town_spec, operated.fake, operated.instance)
    found = shown(pure.refresh("0.8"))
    assert found["profile/person"]["paid ε"] == pytest.approx(0.2)
    assert "| 0.8 | ε=0.8 | ε=0.8 |" in status(pure)["spending"]
