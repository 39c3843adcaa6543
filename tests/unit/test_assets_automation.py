"""What runs by itself, tick by tick: a change travels along its line, once per ε, and nothing else moves."""

from __future__ import annotations

import pytest

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
def settled(operated: Orchestrated) -> Orchestrated:
    """A town that was made at ε=0.8 and not at 3.2, with a sensor that has settled."""
    operated.observe()
    operated.tick()
    assert operated.refresh(LOW).success
    operated.tick()
    operated.tick()
    return operated


def steps(requested: dict[str, list[str]]) -> dict[str, list[str]]:
    return {step: epsilons for step, epsilons in requested.items() if step != STATUS}


def at(epsilons: list[str], line: list[str]) -> dict[str, list[str]]:
    return dict.fromkeys(line, epsilons)


def test_the_first_release_is_left_to_a_person(operated: Orchestrated) -> None:
    assert operated.tick() == {}
    operated.observe()
    assert steps(operated.tick()) == {}
    operated.change("person")
    operated.observe()
    assert steps(operated.tick()) == {}


def test_an_unchanged_source_runs_nothing(settled: Orchestrated) -> None:
    settled.observe()
    assert settled.tick() == {}
    assert settled.tick() == {}


def test_a_change_runs_its_line_once_at_every_epsilon_that_was_made(settled: Orchestrated) -> None:
    settled.change("person")
    settled.observe()
    assert steps(settled.tick()) == at([LOW], LINE_OF_PERSON)
    for epsilon in (LOW, HIGH):
        assert settled.refresh(epsilon).success
    settled.tick()
    settled.change("person")
    assert settled.tick() == {}  # nobody has looked yet
    settled.observe()
    assert steps(settled.tick()) == at([LOW, HIGH], LINE_OF_PERSON)
    for epsilon in (LOW, HIGH):
        assert settled.refresh(epsilon, LINE_OF_PERSON).success
        assert steps(settled.tick()) == {}
    settled.observe()
    assert steps(settled.tick()) == {}


def test_a_change_of_the_parent_leaves_the_childs_model_alone(settled: Orchestrated) -> None:
    settled.change("household")
    settled.observe()
    requested = steps(settled.tick())
    assert "profile/household" in requested
    assert "fanout/person.household_id" in requested
    assert requested.keys().isdisjoint({"profile/person", "model/person"})


def test_a_change_that_is_seen_while_a_request_is_answered_is_not_lost(settled: Orchestrated) -> None:
    settled.change("person")
    settled.observe()
    assert steps(settled.tick())
    settled.change("person")
    settled.observe()
    assert steps(settled.tick()) == at([LOW], LINE_OF_PERSON)


def test_a_failed_step_is_tried_once_more_and_then_waits(settled: Orchestrated) -> None:
    settled.fake.broken[("model", "person")] = ValueError("x")
    settled.change("person")
    settled.observe()
    line = list(steps(settled.tick()))
    assert not settled.refresh(LOW, line).success
    retried = steps(settled.tick())
    assert retried == at([LOW], LINE_OF_PERSON[1:])
    assert not settled.refresh(LOW, list(retried)).success
    assert steps(settled.tick()) == {}
    assert steps(settled.tick()) == {}


def test_a_failed_check_keeps_the_bundle_from_being_requested(settled: Orchestrated) -> None:
    settled.fake.fails = {("person", "fidelity")}
    settled.change("person")
    settled.observe()
    line = list(steps(settled.tick()))
    assert not settled.refresh(LOW, line).success
    for _ in range(3):
        requested = steps(settled.tick())
        assert "publish/bundle" not in requested or "validate/all" in requested
        if requested:
            assert not settled.refresh(LOW, list(requested)).success


def test_the_status_follows_bundles_and_the_source(settled: Orchestrated) -> None:
    settled.change("household")
    settled.observe()
    assert STATUS in settled.tick()
    assert settled.refresh(LOW).success
    assert STATUS in settled.tick()
