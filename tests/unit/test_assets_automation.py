"""What runs by itself, tick by tick: a change travels along its line, once per ε, and nothing else moves."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

import privbench_core.pipeline.run as pipeline_run
from tests.helpers.fake_synthesizer import FakeSynthesizer
from tests.helpers.orchestrated import Orchestrated

BOTH = ["0.8", "3.2"]
LINE_OF_PERSON = [
    "profile/person",
    "model/person",
    "fanout/person.household_id",
    "sample/person",
    "validate/all",
    "publish/bundle",
]
STATUS = "benchmark_status"


@pytest.fixture
def town(town_spec: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Orchestrated]:
    """A town that was made at both ε, with a sensor that has settled."""
    fake = FakeSynthesizer()
    monkeypatch.setattr(pipeline_run, "load_synthesizer", lambda name: fake)
    with dg.DagsterInstance.ephemeral() as instance, warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        town = Orchestrated(town_spec, fake, instance)
        town.observe()
        town.tick()
        for epsilon in BOTH:
            assert town.refresh(epsilon).success
        town.tick()
        town.tick()
        yield town


def steps(requested: dict[str, list[str]]) -> dict[str, list[str]]:
    return {step: epsilons for step, epsilons in requested.items() if step != STATUS}


def test_the_first_release_is_left_to_a_person(town_spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeSynthesizer()
    monkeypatch.setattr(pipeline_run, "load_synthesizer", lambda name: fake)
    with dg.DagsterInstance.ephemeral() as instance:
        town = Orchestrated(town_spec, fake, instance)
        assert town.tick() == {}
        town.observe()
        assert steps(town.tick()) == {}
        town.change("person")
        town.observe()
        assert steps(town.tick()) == {}


def test_an_unchanged_source_runs_nothing(town: Orchestrated) -> None:
    town.observe()
    assert town.tick() == {}
    assert town.tick() == {}


def test_a_change_runs_its_line_once_at_every_epsilon(town: Orchestrated) -> None:
    town.change("person")
    assert town.tick() == {}  # nobody has looked yet
    town.observe()
    assert steps(town.tick()) == dict.fromkeys(LINE_OF_PERSON, BOTH)
    for epsilon in BOTH:
        assert town.refresh(epsilon, LINE_OF_PERSON).success
        assert steps(town.tick()) == {}
    town.observe()
    assert steps(town.tick()) == {}


def test_a_change_of_the_parent_leaves_the_childs_model_alone(town: Orchestrated) -> None:
    town.change("household")
    town.observe()
    requested = steps(town.tick())
    assert "profile/household" in requested
    assert "fanout/person.household_id" in requested
    assert requested.keys().isdisjoint({"profile/person", "model/person"})


def test_a_change_that_is_seen_while_a_request_is_answered_is_not_lost(town: Orchestrated) -> None:
    town.change("person")
    town.observe()
    assert steps(town.tick())
    town.change("person")
    town.observe()
    assert steps(town.tick()) == dict.fromkeys(LINE_OF_PERSON, BOTH)


def test_a_failed_step_is_tried_once_more_and_then_waits(town: Orchestrated) -> None:
    town.fake.broken[("model", "person")] = ValueError("x")
    town.change("person")
    town.observe()
    line = list(steps(town.tick()))
    assert not town.refresh("0.8", line).success
    retried = steps(town.tick())
    assert retried == dict.fromkeys(LINE_OF_PERSON[1:], ["0.8"])
    assert not town.refresh("0.8", list(retried)).success
    assert steps(town.tick()) == {}
    assert steps(town.tick()) == {}


def test_a_failed_check_keeps_the_bundle_from_being_requested(town: Orchestrated) -> None:
    town.fake.fails = {("person", "fidelity")}
    town.change("person")
    town.observe()
    line = list(steps(town.tick()))
    assert not town.refresh("0.8", line).success
    for _ in range(3):
        requested = steps(town.tick())
        assert "publish/bundle" not in requested or "validate/all" in requested
        if requested:
            assert not town.refresh("0.8", list(requested)).success


def test_the_status_follows_bundles_and_the_source(town: Orchestrated) -> None:
    town.change("household")
    town.observe()
    assert STATUS in town.tick()
    assert town.refresh("0.8").success
    assert STATUS in town.tick()
