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

LOW, HIGH = "0.8", "3.2"
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
def operated(town_spec: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Orchestrated]:
    """A town that was made at ε=0.8 and not at 3.2, with a sensor that has settled."""
    fake = FakeSynthesizer()
    monkeypatch.setattr(pipeline_run, "load_synthesizer", lambda _: fake)
    with dg.DagsterInstance.ephemeral() as instance, warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        operated = Orchestrated(town_spec, fake, instance)
        operated.observe()
        operated.tick()
        assert operated.refresh(LOW).success
        operated.tick()
        operated.tick()
        yield operated


def steps(requested: dict[str, list[str]]) -> dict[str, list[str]]:
    return {step: epsilons for step, epsilons in requested.items() if step != STATUS}


def at(epsilons: list[str], line: list[str]) -> dict[str, list[str]]:
    return dict.fromkeys(line, epsilons)


def test_the_first_release_is_left_to_a_person(town_spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeSynthesizer()
    monkeypatch.setattr(pipeline_run, "load_synthesizer", lambda _: fake)
    with dg.DagsterInstance.ephemeral() as instance:
        operated = Orchestrated(town_spec, fake, instance)
        assert operated.tick() == {}
        operated.observe()
        assert steps(operated.tick()) == {}
        operated.change("person")
        operated.observe()
        assert steps(operated.tick()) == {}


def test_an_unchanged_source_runs_nothing(operated: Orchestrated) -> None:
    operated.observe()
    assert operated.tick() == {}
    assert operated.tick() == {}


def test_a_change_runs_its_line_once_at_every_epsilon_that_was_made(operated: Orchestrated) -> None:
    operated.change("person")
    operated.observe()
    assert steps(operated.tick()) == at([LOW], LINE_OF_PERSON)
    for epsilon in (LOW, HIGH):
        assert operated.refresh(epsilon).success
    operated.tick()
    operated.change("person")
    assert operated.tick() == {}  # nobody has looked yet
    operated.observe()
    assert steps(operated.tick()) == at([LOW, HIGH], LINE_OF_PERSON)
    for epsilon in (LOW, HIGH):
        assert operated.refresh(epsilon, LINE_OF_PERSON).success
        assert steps(operated.tick()) == {}
    operated.observe()
    assert steps(operated.tick()) == {}


def test_a_change_of_the_parent_leaves_the_childs_model_alone(operated: Orchestrated) -> None:
    operated.change("household")
    operated.observe()
    requested = steps(operated.tick())
    assert "profile/household" in requested
    assert "fanout/person.household_id" in requested
    assert requested.keys().isdisjoint({"profile/person", "model/person"})


def test_a_change_that_is_seen_while_a_request_is_answered_is_not_lost(operated: Orchestrated) -> None:
    operated.change("person")
    operated.observe()
    assert steps(operated.tick())
    operated.change("person")
    operated.observe()
    assert steps(operated.tick()) == at([LOW], LINE_OF_PERSON)


def test_a_failed_step_is_tried_once_more_and_then_waits(operated: Orchestrated) -> None:
    operated.fake.broken[("model", "person")] = ValueError("x")
    operated.change("person")
    operated.observe()
    line = list(steps(operated.tick()))
    assert not operated.refresh(LOW, line).success
    retried = steps(operated.tick())
    assert retried == at([LOW], LINE_OF_PERSON[1:])
    assert not operated.refresh(LOW, list(retried)).success
    assert steps(operated.tick()) == {}
    assert steps(operated.tick()) == {}


def test_a_failed_check_keeps_the_bundle_from_being_requested(operated: Orchestrated) -> None:
    operated.fake.fails = {("person", "fidelity")}
    operated.change("person")
    operated.observe()
    line = list(steps(operated.tick()))
    assert not operated.refresh(LOW, line).success
    for _ in range(3):
        requested = steps(operated.tick())
        assert "publish/bundle" not in requested or "validate/all" in requested
        if requested:
            assert not operated.refresh(LOW, list(requested)).success


def test_the_status_follows_bundles_and_the_source(operated: Orchestrated) -> None:
    operated.change("household")
    operated.observe()
    assert STATUS in operated.tick()
    assert operated.refresh(LOW).success
    assert STATUS in operated.tick()
