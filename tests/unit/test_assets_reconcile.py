"""What the sensor asks for, tick by tick: exactly what is missing, once, whatever happened meanwhile."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable

import dagster as dg
import pytest
from dagster._core.test_utils import create_run_for_test

from privbench_core.files import VARIABLE
from privbench_core.pipeline.workspace import record_file
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
MODEL = ("model", "person")


def at(epsilons: list[str], line: list[str]) -> dict[str, list[str]]:
    return dict.fromkeys(line, epsilons)


def test_the_first_release_is_left_to_a_person(operated: Orchestrated) -> None:
    assert operated.tick() == {}
    operated.observe()
    assert operated.tick() == {}
    operated.change("person")
    operated.observe()
    assert operated.tick() == {}
    assert "ε=0.8: never released" in operated.said
    assert operated.refresh(LOW, ["profile/household", "profile/person"]).success
    operated.change("person")
    operated.observe()
    assert operated.tick() == {}, "half a first release"


def test_a_change_runs_its_line_once_at_every_epsilon_that_was_made(settled: Orchestrated) -> None:
    settled.observe()
    assert settled.tick() == {}
    assert "never released" in settled.said  # at the other ε
    settled.change("person")
    settled.observe()
    assert settled.tick() == at([LOW], LINE_OF_PERSON)
    for epsilon in (LOW, HIGH):
        assert settled.refresh(epsilon).success
    assert settled.tick() == {}
    settled.change("person")
    assert settled.tick() == {}  # nobody has looked yet
    settled.observe()
    assert settled.tick() == at([LOW, HIGH], LINE_OF_PERSON)
    for epsilon in (LOW, HIGH):
        assert settled.answer(epsilon).success
    assert settled.tick() == {}
    settled.observe()
    assert settled.tick() == {}
    settled.change("household")  # the child's model needs no change
    settled.observe()
    requested = settled.tick()
    assert {"profile/household", "fanout/person.household_id"} <= requested.keys()
    assert requested.keys().isdisjoint({"profile/person", "model/person"})


@pytest.mark.parametrize(
    ("table", "line"),
    [
        ("person", LINE_OF_PERSON),
        (
            "household",
            [
                "profile/household",
                "model/household",
                "fanout/person.household_id",
                "sample/household",
                *LINE_OF_PERSON[3:],
            ],
        ),
    ],
)
def test_dagster_shows_as_stale_what_the_sensor_makes_though_the_graph_has_the_nearest_inputs_alone(
    settled: Orchestrated, table: str, line: list[str]
) -> None:
    settled.observe()
    assert settled.stale(LOW) == set()
    settled.change(table)
    settled.observe()
    requested, made = {*settled.tick()}, []
    while stale := settled.stale(LOW):
        assert settled.refresh(LOW, [*stale]).success
        made += sorted(stale)
    assert len(made) == len({*made})
    assert {*made} >= requested
    assert {*made} == {*line}
    assert settled.tick() == {}


def test_a_run_at_another_epsilon_is_an_observation_too(settled: Orchestrated) -> None:
    settled.change("person")
    assert settled.refresh(HIGH).success
    assert settled.tick() == at([LOW], LINE_OF_PERSON)


def test_the_same_request_has_the_same_key_until_it_is_answered(settled: Orchestrated) -> None:
    settled.change("person")
    settled.observe()
    keys = []
    for _ in range(2):
        settled.tick()
        keys.append(settled.requests[LOW].run_key)
    assert keys[0] == keys[1]
    settled.change("person")
    settled.observe()
    assert settled.tick() == at([LOW], LINE_OF_PERSON)
    assert settled.requests[LOW].run_key != keys[0]


def test_a_content_that_comes_back_is_asked_for_each_time(settled: Orchestrated) -> None:
    file = settled.path.parent / "person.parquet"
    first = shutil.copy(file, settled.path.parent / "first")
    settled.change("person")
    second = shutil.copy(file, settled.path.parent / "second")
    keys = set()
    for content in (second, first, second):
        shutil.copy(content, file)
        settled.observe()
        assert settled.tick() == at([LOW], LINE_OF_PERSON)
        keys.add(settled.requests[LOW].run_key)
        assert settled.answer(LOW).success
    assert len(keys) == 3
    assert settled.tick() == {}


def test_a_failed_step_is_tried_once_more_and_then_waits(settled: Orchestrated) -> None:
    settled.fake.broken[MODEL] = ValueError("x")
    settled.change("person")
    settled.observe()
    assert settled.tick() == at([LOW], LINE_OF_PERSON)
    assert "attempt=1" in str(settled.requests[LOW].run_key)
    assert not settled.answer(LOW).success
    assert settled.tick() == at([LOW], LINE_OF_PERSON[1:])
    assert "attempt=2" in str(settled.requests[LOW].run_key)
    assert not settled.answer(LOW).success
    spent = settled.spent()
    for _ in range(2):
        assert settled.tick() == {}
    assert "ε=0.8: failed 2 times; not tried again before the source changes or a person starts it" in settled.said
    assert not settled.refresh(LOW).success
    assert settled.tick() == {}, "a person who fails as well gives no new attempts"
    assert settled.spent() > spent
    settled.change("person")
    settled.observe()
    assert settled.tick() == at([LOW], LINE_OF_PERSON)


def test_what_is_free_follows_by_itself_once_all_that_is_paid_was_made_by_hand(settled: Orchestrated) -> None:
    assert settled.follow(LOW) == []
    settled.change("person")
    settled.observe()
    assert settled.follow(LOW) == []
    assert settled.refresh(LOW, ["profile/person"]).success
    assert settled.follow(LOW) == [], "the model, which costs something here, waits for a person"
    assert settled.refresh(LOW, ["model/person"]).success
    spent = settled.spent()
    assert settled.follow(LOW) == ["fanout/person.household_id"], "free with this synthesizer"
    assert settled.follow(LOW) == ["sample/person"]
    assert settled.follow(LOW) == ["validate/all"]
    assert settled.follow(LOW) == []
    assert settled.tick() == at([LOW], ["publish/bundle"])
    assert settled.answer(LOW).success
    assert settled.follow(LOW) == [], "a run that has them among its own"
    settled.fake.versions["sample", "household"] = "2"
    settled.reload()
    assert settled.follow(LOW) == [], "the models that go with an edit may not be bought yet"
    assert settled.spent() == spent


def test_what_followed_by_itself_gives_a_failed_refresh_no_new_attempts(settled: Orchestrated) -> None:
    settled.fake.broken[MODEL] = ValueError("x")
    settled.change("person")
    settled.observe()
    settled.settle()
    assert settled.follow(LOW) == []
    assert settled.refresh(LOW, ["sample/household"], tags={"dagster/from_automation_condition": "true"}).success
    assert settled.tick() == {}
    assert "failed 2 times" in settled.said


def test_what_a_person_has_repaired_in_part_is_finished(settled: Orchestrated) -> None:
    settled.fake.broken[MODEL] = ValueError("x")
    settled.change("person")
    settled.observe()
    settled.settle()
    settled.fake.broken.clear()
    assert settled.refresh(LOW, ["model/person"]).success
    assert settled.tick() == at([LOW], LINE_OF_PERSON[2:])


def test_a_run_that_is_lost_with_its_process_is_asked_for_again(
    settled: Orchestrated, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled.change("person")
    settled.observe()
    partition, started = {"dagster/partition": LOW}, dg.DagsterRunStatus.STARTED
    create_run_for_test(settled.instance, "village_refresh", tags=partition, status=started)
    assert settled.tick() == at([LOW], LINE_OF_PERSON), "a run of another database is not waited for"
    request = settled.requests[LOW]
    tags = {**request.tags, **partition, "dagster/run_key": str(request.run_key)}
    create_run_for_test(settled.instance, "town_refresh", tags=tags, status=started)
    assert settled.tick() == {}
    assert "a run is in progress" in settled.said
    monkeypatch.setenv(VARIABLE, "0.01")
    time.sleep(0.02)
    assert settled.tick() == at([LOW], LINE_OF_PERSON)
    assert "attempt=2" in str(settled.requests[LOW].run_key)
    assert settled.answer(LOW).success


def lose_the_event_log(settled: Orchestrated) -> None:
    settled.instance.wipe()


def restore_the_state_folder(settled: Orchestrated) -> None:
    kept = shutil.copy(record_file(settled.spec), settled.path.parent / "kept")
    settled.settle()
    shutil.copy(kept, record_file(settled.spec))


@pytest.mark.parametrize("lost", [lose_the_event_log, restore_the_state_folder])
def test_what_is_missing_is_caught_up_with_after_a_restore(
    settled: Orchestrated, lost: Callable[[Orchestrated], None]
) -> None:
    settled.change("person")
    settled.observe()
    lost(settled)
    assert settled.tick() == at([LOW], LINE_OF_PERSON)
    assert settled.answer(LOW).success
    assert settled.tick() == {}


def test_a_damaged_record_is_an_error_of_the_tick_that_says_what_to_do(settled: Orchestrated) -> None:
    spent = settled.spent()
    record_file(settled.spec).write_bytes(b"no database" * 100)
    with pytest.raises(dg.Failure, match=r"record\.sqlite of the state folder is damaged\. Delete it"):
        settled.tick()
    record_file(settled.spec).unlink()
    assert settled.tick() == {}
    assert settled.refresh(LOW).success
    assert settled.spent() == spent
