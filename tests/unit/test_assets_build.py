"""What is drawn from a spec: keys, groups, dependencies, partitions, jobs, all before anything is opened."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster.components.testing import create_defs_folder_sandbox

from privbench_assets import identifier, op_name, step_key
from privbench_assets.automation import longest_pause
from privbench_assets.build import build_defs
from privbench_assets.checks import UP_TO_DATE
from privbench_assets.component import Benchmark
from privbench_assets.status import BUDGET
from privbench_core.errors import InternalError, SpecError
from privbench_core.privacy.budget import Budget
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import FidelityPolicy
from privbench_core.synthesizers.contract import Plan
from tests.helpers.fake_synthesizer import FakeSynthesizer


def names(keys: set[dg.AssetKey]) -> set[str]:
    return {"/".join(key.path[1:]) for key in keys}


@pytest.mark.usefixtures("fake")
def test_every_step_is_an_asset_and_only_profiles_depend_on_the_source(town_spec: Path) -> None:
    graph = build_defs(town_spec).resolve_asset_graph()
    depends = {"/".join(node.key.path): names(node.parent_keys) for node in graph.asset_nodes}
    assert depends == {
        "town/source/household": set(),
        "town/source/person": set(),
        "town/profile/household_profile": {"source/household"},
        "town/profile/person_profile": {"source/person"},
        "town/model/household_model": {"profile/household_profile"},
        "town/model/person_model": {"profile/person_profile"},
        "town/fanout/person.household_id_fanout": {"model/household_model", "model/person_model"},
        "town/sample/household_sample": {"model/household_model"},
        "town/sample/person_sample": {"fanout/person.household_id_fanout"},
        "town/validate/all_validate": {"sample/household_sample", "sample/person_sample"},
        "town/publish/bundle": {"validate/all_validate"},
        "town/evaluate/report": {"publish/bundle"},
        "town/benchmark_status": {"publish/bundle"},
    }
    assert not (town_spec.parent / ".privbench").exists()


def test_assets_say_what_they_are(town_spec: Path, fake: FakeSynthesizer) -> None:
    owners = ["data@example.org", "team:statistics"]
    defs = build_defs(replace(load_spec(town_spec), owners=tuple(owners)))
    specs = {"/".join(spec.key.path[1:]): spec for spec in defs.resolve_all_asset_specs()}
    for name, spec in specs.items():
        assert list(spec.owners) == owners, name
        assert spec.group_name == "__".join(["town", *(t for t in ("household", "person") if f"/{t}" in name)]), name
        assert spec.kinds, name
        assert spec.description, name
        assert {"privbench/stage", "privbench/spends"} <= spec.tags.keys(), name
        free = spec.tags["privbench/stage"] in {"fanout", "sample", "validate"}  # with the fake synthesizer
        assert (spec.automation_condition is not None) is free, name
    model, sample = specs["model/person_model"], specs["sample/person_sample"]
    assert model.kinds == {"fake", "model"}
    assert (model.tags["privbench/spends"], sample.tags["privbench/spends"]) == ("yes", "no")
    assert model.partitions_def is not None
    assert model.partitions_def.get_partition_keys() == ["0.8", "3.2"]
    assert specs["benchmark_status"].partitions_def is None
    price = fake.plan(load_spec(town_spec).schema, Budget(0.8, 1e-9), {}).step(("model", "person")).price
    assert f"25.0% of a release ({price} at ε=0.8" in (model.description or "")
    assert "reads no private row" in (sample.description or "")
    assert all(defs.resolve_job_def(name).description for name in ("town_refresh", "town_observe"))


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("block", [False, True])
def test_integrity_blocks_fidelity_where_the_owner_says_so_and_checks_are_partitioned_by_epsilon(
    town_spec: Path, block: bool
) -> None:
    spec = replace(load_spec(town_spec), fidelity=FidelityPolicy(block=block))
    graph = build_defs(spec).resolve_asset_graph()
    found = {key.name: graph.get(key) for key in graph.asset_check_keys}
    for name, asset in ((BUDGET, "town/benchmark_status"), (UP_TO_DATE, "town/publish/bundle")):
        warning = found.pop(name)
        assert not warning.blocking
        assert warning.key.asset_key.to_user_string() == asset
    assert set(found) == {
        f"{table}__{suite}" for table in ("household", "person") for suite in ("integrity", "fidelity")
    }
    for name, node in found.items():
        assert node.blocking is (block or name.endswith("integrity"))
        assert node.partitions_def is not None
        assert node.partitions_def.get_partition_keys() == ["0.8", "3.2"]


@pytest.mark.usefixtures("fake")
def test_a_bundle_gets_old_when_its_schedule_is_missed(town_spec: Path) -> None:
    def policies(schedule: str | None) -> dict[str, dg.FreshnessPolicy]:
        specs = build_defs(replace(load_spec(town_spec), schedule=schedule)).resolve_all_asset_specs()
        return {"/".join(s.key.path[1:]): s.freshness_policy for s in specs if s.freshness_policy}

    assert policies(None) == {}
    policy = policies("0 3 * * 1")
    warn, fail = timedelta(days=8.75), timedelta(days=15.75)
    assert policy == {"publish/bundle": dg.FreshnessPolicy.time_window(fail_window=fail, warn_window=warn)}
    assert longest_pause("0 3 * * 1,4") == timedelta(days=4)
    assert longest_pause("*/15 * * * *") == timedelta(minutes=15)
    assert longest_pause("0 0 1 * *") == timedelta(days=31)
    with pytest.raises(SpecError, match="not a cron expression"):
        policies("99 3 * * 1")


@pytest.mark.usefixtures("fake")
def test_nothing_runs_by_itself_before_somebody_turns_it_on(town_spec: Path) -> None:
    spec = load_spec(town_spec)
    own = dg.ResourceDefinition.hardcoded_resource("mine")
    defs = build_defs(spec, resource_overrides={"town__session": own})
    timed = build_defs(replace(spec, schedule="30 4 * * *", observe="*/10 * * * *"))
    for made, crons in ((defs, ["0 3 * * 1", "0 * * * *"]), (timed, ["30 4 * * *", "*/10 * * * *"])):
        schedules = [made.resolve_schedule_def(f"town_{name}_schedule") for name in ("refresh", "observe")]
        assert [schedule.cron_schedule for schedule in schedules] == crons
        assert {schedule.default_status for schedule in schedules} == {dg.DefaultScheduleStatus.STOPPED}
    (sensor,) = defs.sensors or []
    assert sensor.default_status is dg.DefaultSensorStatus.STOPPED
    assert [job.name for job in sensor.jobs] == ["town_refresh"]
    assert (defs.resources or {})["town__session"] is own


def test_steps_that_depend_on_epsilon_and_a_wrong_spec_are_refused(town_spec: Path, fake: FakeSynthesizer) -> None:
    whole = fake.plan

    def plan(schema, budget, options):
        made = whole(schema, budget, options)
        return Plan(made.synthesizer, made.budget, made.steps[: 4 if budget.epsilon > 1 else None])

    fake.plan = plan
    with pytest.raises(InternalError, match="only their prices may"):
        build_defs(town_spec)
    town_spec.write_text(town_spec.read_text().replace("unit: household", "unit: houshold"))
    with pytest.raises(SpecError, match="houshold"):
        build_defs(town_spec)


def test_free_text_names_become_legal_and_stay_apart() -> None:
    assert step_key("town", ("fanout", "person.household_id")).path == ["town", "fanout", "person.household_id_fanout"]
    odd = [step_key("my town", ("fanout", name)).path for name in ("a.(b,c)", "a.(b c)", "a.b_c", "größe", "%")]
    assert len({tuple(path) for path in odd}) == 5
    assert all(set(part) <= set("abcdefghijklmnopqrstuvwxyz0123456789_.") for path in odd for part in path)
    assert op_name("town", ("fanout", "person.household_id")) == "town__fanout__person__household_id"
    assert len({identifier("a_", "b"), identifier("a", "_b"), identifier("a__b"), identifier("a", "b")}) == 4


def test_the_work_grows_with_the_number_of_steps_not_with_its_square(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Databases of hundreds of tables have thousands of steps: no asset may look at all the others."""
    asked: list[object] = []

    def counted(database: str, key: tuple[str, ...]) -> dg.AssetKey:
        asked.append(key)
        return step_key(database, key)

    for module in ("assets", "build"):
        monkeypatch.setattr(f"privbench_assets.{module}.step_key", counted)
    counts = {}
    for parts in (20, 60):  # from five on, each looks at as many of its siblings
        asked.clear()
        defs = build_defs(wide_spec(tmp_path / f"{parts}.yaml", parts))
        counts[len([*defs.resolve_all_asset_specs()])] = len(asked)
    (fewer, first), (more, second) = counts.items()
    assert second / first < 1.2 * more / fewer


def wide_spec(path: Path, parts: int) -> Path:
    """A unit with many tables below it."""
    table = "    primary_key: id\n    columns: {id: integer, value: {type: integer, domain: {min: 0, max: 9}}"
    lines = ["database: wide", "source: .", "privacy:", "  unit: base", "  delta: 0", "  epsilons: [0.8, 3.2]"]
    lines += ["  lifetime: {epsilon: 20, delta: 0}", "tables:", "  base:", f"{table}}}"]
    for number in range(parts):
        key = "    foreign_keys: [{columns: base_id, references: base, max_children: 3, owner: true}]"
        lines += [f"  part_{number}:", key, f"{table}, base_id: integer}}"]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.mark.usefixtures("fake")
def test_a_component_defines_its_database(town_spec: Path) -> None:
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(
            Benchmark,
            defs_path="town",
            defs_yaml_contents={"type": "privbench_assets.component.Benchmark", "attributes": {"spec": "spec.yaml"}},
        )
        shutil.copytree(town_spec.parent, path, dirs_exist_ok=True)
        with sandbox.load_component_and_build_defs(defs_path="town") as (component, defs):
            assert isinstance(component, Benchmark)
            both = [{spec.key for spec in each.resolve_all_asset_specs()} for each in (defs, build_defs(town_spec))]
            assert both[0] == both[1]
            assert {job.name for job in defs.jobs or []} == {"town_refresh", "town_observe"}
