"""Conditions that stop early ask for what Dagster's own ask for, and remember what those remember, whatever happens."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.automation_condition_sensor_definition import MAX_ENTITIES

from privbench_assets import automation
from privbench_assets.build import build_defs
from privbench_assets.stopping import LIMIT, stopping
from tests.helpers.fake_synthesizer import FakeSynthesizer
from tests.helpers.orchestrated import Orchestrated

LOW, HIGH = "0.8", "3.2"
STEPS = ("profile/household", "model/person", "fanout/person.household_id", "sample/person", "publish/bundle")


@dataclass
class Compared(Orchestrated):
    """A town whose ticks are evaluated by conditions that stop and by Dagster's own, each from the other's memory."""

    plain: dg.Definitions = field(init=False)
    remembered: Any = None
    requests: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.plain = self._build_plain()

    def reload(self) -> None:
        super().reload()
        self.plain = self._build_plain()

    def tick(self) -> dict[str, list[str]]:
        expected = dg.evaluate_automation_conditions(self.plain, self.instance, cursor=self.remembered)
        requested = super().tick()
        wanted = {"/".join(r.key.path[1:]): r.true_subset for r in expected.results if not r.true_subset.is_empty}
        assert requested == {
            step: sorted(subset.expensively_compute_partition_keys()) if subset.is_partitioned else []
            for step, subset in wanted.items()
        }
        assert memory(self.cursor) == memory(expected.cursor)
        self.cursor, self.remembered = expected.cursor, self.cursor
        self.requests += len(requested)
        return requested

    def _build_plain(self) -> dg.Definitions:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(automation, "LIMIT", 0)
            return build_defs(self.path)


def memory(cursor: Any) -> dict[str, dict[str, tuple[Any, Any]]]:
    """By asset: for what is true of each condition that remembers, and what it keeps besides.

    "Newly true" remembers what it keeps alone: for what it is true is read by nobody, and is that of the last place
    where the tree asks for it, which here may be another one.
    """
    found: dict[str, dict[str, tuple[Any, Any]]] = {}
    for one in cursor.previous_condition_cursors:
        kept = {
            name: (node.true_subset if node.metadata else None, node.extra_state)
            for name, node in one.node_cursors_by_unique_id.items()
            if node.metadata or isinstance(node.extra_state, type(node.true_subset))
        }
        found[one.key.to_user_string()] = kept
    return found


@pytest.fixture
def compared(town_spec: Path, fake: FakeSynthesizer) -> Iterator[Compared]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Compared(town_spec, fake, instance)


def happenings(town: Compared, rng: random.Random) -> list[Callable[[], object]]:
    """What can happen before a tick; what is there twice happens more often."""
    asked: dict[str, list[str]] = {}

    def change() -> None:
        town.change(rng.choice(("person", "household")))
        town.observe()

    def answer() -> None:
        """One ε of what is asked for now; nobody answers what was asked for at the other."""
        asked.clear()
        asked.update(town.tick())
        at_each = {
            epsilon: [step for step, epsilons in asked.items() if epsilon in epsilons] for epsilon in (LOW, HIGH)
        }
        epsilon = rng.choice([epsilon for epsilon, steps in at_each.items() if steps] or [LOW])
        if at_each[epsilon]:
            town.answer(epsilon, at_each[epsilon])

    def change_and_answer() -> None:
        change()
        answer()

    def break_a_step() -> None:
        town.fake.once.add(tuple(rng.choice(STEPS).split("/")))
        change_and_answer()

    def break_a_check() -> None:
        town.fake.fails.add(("person", "fidelity"))
        change_and_answer()
        town.tick()
        town.fake.fails.clear()

    def meanwhile() -> None:
        """A change that is seen, and a tick, while a step is at work."""
        town.fake.during[rng.choice([("model", "person"), ("sample", "person")])] = lambda: (change(), town.tick())
        change_and_answer()

    def by_hand() -> None:
        town.refresh(rng.choice((LOW, HIGH)), [rng.choice(STEPS)])

    return [
        change,
        answer,
        change_and_answer,
        change_and_answer,
        break_a_step,
        break_a_check,
        meanwhile,
        by_hand,
        town.reload,
    ]


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8))])
def test_conditions_that_stop_decide_and_remember_what_dagsters_own_do(compared: Compared, seed: int) -> None:
    rng = random.Random(seed)
    can_happen = happenings(compared, rng)
    compared.observe()
    compared.tick()
    for epsilon in (LOW, HIGH):
        assert compared.refresh(epsilon).success
    for happens in [*can_happen, *rng.choices(can_happen, k=4)]:
        happens()
        compared.tick()
    assert compared.requests > 20


def test_a_quiet_tick_asks_a_fraction_of_the_questions(compared: Compared) -> None:
    for _ in range(2):
        compared.tick()

    def asked(defs: dg.Definitions) -> int:
        result = dg.evaluate_automation_conditions(defs, compared.instance, cursor=compared.cursor)
        assert result.total_requested == 0
        return sum(map(nodes, result.results))

    assert asked(compared.defs) < asked(compared.plain) / 3


def nodes(result: Any) -> int:
    """How many conditions an evaluation is of."""
    return 1 + sum(map(nodes, result.child_results))


def test_what_remembers_is_asked_about_nothing_unless_it_is_remembered_elsewhere(compared: Compared) -> None:
    """Else it would miss what happens while the operand before it is false."""
    failed = dg.AutomationCondition.execution_failed().newly_true()
    never = dg.AutomationCondition.will_be_requested()
    alone = stopping(never & failed & never)
    elsewhere = stopping(failed.since(never & failed))

    def asked(condition: dg.AutomationCondition[Any]) -> list[str]:
        asset = dg.asset(key="one", automation_condition=condition)(lambda: None)
        (result,) = dg.evaluate_automation_conditions([asset], compared.instance).results
        return names(result)

    assert asked(alone) == ["AND", "will_be_requested", "NEWLY_TRUE", "execution_failed"]
    assert asked(elsewhere) == ["SINCE", "NEWLY_TRUE", "execution_failed", "AND", "will_be_requested"]


def names(result: Any) -> list[str]:
    """Of the conditions that were asked, in order."""
    return [result.condition.name, *(name for child in result.child_results for name in names(child))]


@pytest.mark.usefixtures("fake")
def test_more_steps_than_dagster_evaluates_beside_the_code_are_left_to_its_daemon(
    town_spec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert LIMIT == MAX_ENTITIES
    few = sum(1 for node in build_defs(town_spec).resolve_asset_graph().asset_nodes if node.automation_condition)
    for limit, where in ((few, "AUTOMATION"), (few - 1, "AUTO_MATERIALIZE")):
        monkeypatch.setattr(automation, "LIMIT", limit)
        defs = build_defs(town_spec)
        (sensor,) = defs.sensors or []
        assert sensor.sensor_type.value == where
        conditions = [
            node.automation_condition for node in defs.resolve_asset_graph().asset_nodes if node.automation_condition
        ]
        assert len(conditions) == few
        assert {condition.is_serializable for condition in conditions} == {where == "AUTO_MATERIALIZE"}


def test_what_is_remembered_outlives_a_daemon_that_was_killed_while_it_launched_runs(operated: Orchestrated) -> None:
    """Dagster then launches the rest of the runs, but comes back without a cursor."""
    (sensor,) = operated.defs.sensors or []
    repository = operated.defs.get_repository_def()

    def tick(cursor: str | None) -> tuple[str, set[str]]:
        context = dg.build_sensor_context(operated.instance, cursor=cursor, repository_def=repository)
        found = sensor.evaluate_tick(context)
        requests = found.run_requests or []
        return found.cursor or "", {"/".join(key.path[1:]) for one in requests for key in one.asset_selection or []}

    operated.observe()
    assert operated.refresh(LOW).success
    cursor, requested = tick(None)
    assert requested == set()
    operated.change("person")
    operated.observe()
    _, requested = tick(cursor)
    assert "profile/person" in requested
    operated.change("household")
    operated.observe()
    _, requested = tick(None)
    assert "profile/household" in requested
    assert "profile/person" not in requested
