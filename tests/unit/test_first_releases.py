"""A first release is a decision: who may make one, at which ε, and what is said to those that may not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import privbench_core
from privbench_core.cli import app
from privbench_core.errors import SpecError
from privbench_core.pipeline import plans_for
from privbench_core.pipeline.executor import run_spec
from privbench_core.pipeline.record import Manifest, definition_of, read_manifest, write_manifests
from privbench_core.pipeline.status import staleness
from privbench_core.spec.load import load_spec
from tests.helpers.orchestrated import Orchestrated

LOW, HIGH = "0.8", "3.2"
BUNDLE = ("publish", "bundle")


def scheduled(operated: Orchestrated) -> tuple[list[str], str]:
    """One tick of the refresh schedule: the ε that it asks for, and why it skips."""
    schedule = operated.defs.resolve_schedule_def("town_refresh_schedule")
    context = dg.build_schedule_context(
        operated.instance,
        scheduled_execution_time=datetime(2026, 11, 23, 3, 0, tzinfo=UTC),
        repository_def=operated.defs.get_repository_def(),
    )
    tick = schedule.evaluate_tick(context)
    return [str(request.partition_key) for request in tick.run_requests or []], tick.skip_message or ""


def refresh(spec: Path, *options: object) -> str:
    result = CliRunner().invoke(app, ["refresh", str(spec), *map(str, options)])
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def other_synthesizer(operated: Orchestrated) -> None:
    """The owner names another synthesizer in the spec."""
    operated.fake.name = "another"
    operated.reload()


# -- an ε that the spec does not list ---------------------------------------------------------------------


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("run", [privbench_core.run, run_spec])
def test_the_library_buys_nothing_at_an_epsilon_that_nobody_declared(
    run: Callable[..., object], town_spec: Path
) -> None:
    spec = load_spec(town_spec)
    with pytest.raises(SpecError, match=r"epsilon 0\.5: the spec lists epsilons: \[0\.8, 3\.2\]; add it there, or"):
        run(spec, 0.5, out=town_spec.parent / "bundle")
    assert not spec.state.exists()
    assert not (town_spec.parent / "bundle").exists()
    made = run(spec, 0.5, out=town_spec.parent / "bundle", undeclared_epsilon=True)
    assert getattr(made, "paid", 0) > 0


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("epsilon", [0.0, -1.0, float("nan")])
def test_what_is_no_epsilon_is_said_to_be_none(epsilon: float, town_spec: Path) -> None:
    with pytest.raises(SpecError, match="is not positive"):
        run_spec(load_spec(town_spec), epsilon, out=town_spec.parent / "bundle")


# -- what runs by itself ----------------------------------------------------------------------------------


def test_the_schedule_refreshes_what_was_released_and_says_what_it_skips(operated: Orchestrated) -> None:
    asked, said = scheduled(operated)
    assert asked == []
    todo = "materialise it in Dagster, or run privbench refresh --epsilon 0.8"
    assert f"ε=0.8: never released: the first release is your decision; {todo}" in said
    assert "ε=3.2: never released" in said
    assert operated.refresh(HIGH, ["profile/household", "profile/person"]).success
    assert scheduled(operated)[0] == [], "half a release is none"
    assert operated.refresh(LOW).success
    assert scheduled(operated)[0] == [LOW]
    assert operated.refresh(HIGH).success
    assert scheduled(operated) == ([LOW, HIGH], "")


def test_another_synthesizer_has_released_nothing_yet(settled: Orchestrated) -> None:
    """A change of the source is no reason to buy a first release, and neither is the schedule or a plain refresh."""
    assert scheduled(settled)[0] == [LOW]
    other_synthesizer(settled)
    settled.change("person")
    settled.observe()
    spent = settled.spent()
    assert settled.tick() == {}
    assert "ε=0.8: never released with another: the first release is your decision" in settled.said
    assert scheduled(settled)[0] == []
    assert "first release is your decision: pass --epsilon" in refresh(settled.path)
    assert settled.spent() == spent
    assert settled.refresh(LOW).success, "by hand"
    assert settled.spent() > spent
    assert scheduled(settled)[0] == [LOW]
    settled.change("person")
    settled.observe()
    assert "model/person" in settled.tick()


def test_a_plain_refresh_names_what_it_leaves_to_a_person(operated: Orchestrated) -> None:
    assert refresh(operated.path, "--epsilon", LOW)
    spent = operated.spent()
    assert "ε=3.2: never released: the first release is your decision" in refresh(operated.path)
    assert operated.spent() == spent
    assert refresh(operated.path, "--epsilon", HIGH), "a person names the ε"
    assert operated.spent() > spent


@pytest.mark.usefixtures("fake")
def test_status_says_why_nothing_is_made(town_spec: Path) -> None:
    result = CliRunner().invoke(app, ["status", str(town_spec), "--json"])
    assert result.exit_code == 0
    assert (
        result.output.count("never released: the first release is your decision; materialise it in Dagster, or run")
        == 2
    )


PETS = """  pet:
    primary_key: id
    foreign_keys:
      - {columns: person_id, references: person, max_children: 2, owner: true}
    columns: {id: integer, person_id: integer}
"""


def test_a_table_that_is_added_belongs_to_the_refresh_of_its_release(settled: Orchestrated) -> None:
    """So do other edits of the spec: budget and refresh policy say what they may cost. The sensor leaves them alone."""
    settled.path.write_text(settled.path.read_text(encoding="utf-8") + PETS, encoding="utf-8")
    persons = pq.read_table(settled.path.parent / "person.parquet").column("id")
    pets = pa.table({"id": range(len(persons)), "person_id": persons})
    pq.write_table(pets, settled.path.parent / "pet.parquet")
    settled.reload()
    assert settled.tick() == {}
    assert scheduled(settled)[0] == [LOW]
    spent = settled.spent()
    said = refresh(settled.path)
    assert "never made" in said
    assert "ε=3.2: never released" in said
    assert settled.spent() > spent
    assert {("profile", "pet"), ("model", "pet")} <= set(settled.fake.runs)


def test_a_manifest_without_a_synthesizer_is_known_by_its_definition_alone(
    town_spec: Path, operated: Orchestrated
) -> None:
    assert operated.refresh(LOW).success
    spec = load_spec(town_spec)
    made = read_manifest(spec, BUNDLE, LOW)
    assert made is not None
    assert made.synthesizer == operated.fake.name
    plan = plans_for(spec)[LOW]
    step = plan.step(BUNDLE)
    unwritten = replace(made, synthesizer="")
    assert unwritten.definition == definition_of(plan, step)
    assert unwritten.is_of(plan, step)
    assert not replace(unwritten, definition="older").is_of(plan, step), "in doubt it is not"
    assert not Manifest("r", "d", {}, {}).is_of(plan, step)
    other_synthesizer(operated)
    assert not staleness(spec, plans_for(spec), {})[LOW].released
    write_manifests(spec, LOW, {BUNDLE: unwritten})
    assert not staleness(spec, plans_for(spec), {})[LOW].released
