"""Two databases in one folder: each has paths of its own, and what belongs to one is refused to the other."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from privbench_assets.build import build_defs
from privbench_core.cli import app
from privbench_core.errors import PublishError, ReleaseError
from privbench_core.pipeline import plan_for
from privbench_core.pipeline.executor import run_spec
from privbench_core.pipeline.workspace import Workspace, database_folder
from privbench_core.publishing import read_bundle
from privbench_core.spec.load import load_spec
from tests.helpers.orchestrated import Orchestrated, errors


@pytest.fixture
def village_spec(town_spec: Path) -> Path:
    """Another database of the same shape, whose spec stands in the same folder and names the same state folder."""
    path = town_spec.with_name("village.yaml")
    path.write_text(town_spec.read_text().replace("database: town", "database: village"), encoding="utf-8")
    assert load_spec(path).state == load_spec(town_spec).state
    return path


def privbench(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return done.exit_code, done.output


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_dagster_keeps_two_databases_of_one_folder_apart(operated: Orchestrated, village_spec: Path) -> None:
    assert operated.refresh("0.8").success
    town = database_folder(operated.spec)
    before = everything(town)
    village = build_defs(village_spec).resolve_job_def("village_refresh")
    assert village.execute_in_process(partition_key="0.8", instance=operated.instance).success
    assert everything(town) == before
    other = database_folder(load_spec(village_spec))
    assert {"DATABASE", "record.sqlite"} <= set(everything(other))
    for folder, name in ((town, "town"), (other, "village")):
        assert read_bundle(folder / "bundles" / "0.8").manifest["database"] == name
    shared = {path.name for path in operated.spec.state.iterdir()}
    assert shared == {
        "town",
        "village",
        "secret.key",
        "spending",
        *(n for n in shared if n.startswith("ledger.sqlite")),
    }


def test_dagster_refuses_the_folder_of_another_database(operated: Orchestrated) -> None:
    state = operated.spec.state / "town"
    state.mkdir(parents=True)
    (state / "DATABASE").write_text("Town", encoding="utf-8")
    result = operated.refresh("0.8")
    assert not result.success
    assert f"ReleaseError: {state}: this folder belongs to the database Town, so nothing of town" in errors(result)
    assert operated.fake.runs == []
    assert set(everything(state)) == {"DATABASE"}


@pytest.mark.usefixtures("fake")
def test_the_command_line_keeps_two_databases_of_one_folder_apart(town_spec: Path, village_spec: Path) -> None:
    for spec in (town_spec, village_spec):
        code, said = privbench("refresh", spec, "--epsilon", "0.8")
        assert code == 0, said
    state = load_spec(town_spec).state
    for name in ("town", "village"):
        assert read_bundle(state / name / "bundles" / "0.8").manifest["database"] == name


@pytest.mark.usefixtures("fake")
def test_the_command_line_refuses_what_belongs_to_another_database(
    town_spec: Path, village_spec: Path, tmp_path: Path
) -> None:
    out = tmp_path / "bundle"
    assert privbench("run", town_spec, "--epsilon", "0.8", "--out", out)[0] == 0
    before = everything(out)
    code, said = privbench("run", village_spec, "--epsilon", "0.8", "--out", out)
    assert code == 1
    assert "holds a bundle of the database town, not of village" in said
    assert everything(out) == before
    assert not database_folder(load_spec(village_spec)).exists(), "refused before anything was begun"
    shutil.copytree(database_folder(load_spec(town_spec)), database_folder(load_spec(village_spec)))
    for command in (("refresh", village_spec, "--epsilon", "0.8"), ("status", village_spec)):
        code, said = privbench(*command)
        assert code == 1
        assert "this folder belongs to the database town, so nothing of village is written there" in said


@pytest.mark.usefixtures("fake")
def test_a_bundle_of_another_database_is_not_replaced_by_a_library_call(
    town_spec: Path, village_spec: Path, tmp_path: Path
) -> None:
    run_spec(load_spec(town_spec), 0.8, out=tmp_path / "bundle")
    with pytest.raises(PublishError, match="holds a bundle of the database town"):
        run_spec(load_spec(village_spec), 0.8, out=tmp_path / "bundle")


@pytest.mark.usefixtures("fake")
def test_a_folder_that_no_database_made_is_refused(town_spec: Path) -> None:
    spec = load_spec(town_spec)
    (spec.state / "town").mkdir(parents=True)
    (spec.state / "town" / "notes.txt").touch()
    with pytest.raises(ReleaseError, match="does not say which database it belongs to"):
        Workspace(spec)


@pytest.mark.usefixtures("fake")
def test_status_and_refresh_do_what_they_say(town_spec: Path, operated: Orchestrated) -> None:
    code, said = privbench("status", town_spec)
    assert (code, said.startswith("town: nothing released yet; a release at all ε costs")) == (0, True)
    code, said = privbench("refresh", town_spec)
    assert (code, "first release is your decision" in said) == (0, True)
    code, said = privbench("refresh", town_spec, "--epsilon", "0.8", "--dry-run")
    assert (code, said.count("never made")) == (0, 9)
    assert not load_spec(town_spec).state.exists(), "none of these began anything"
    code, said = privbench("refresh", town_spec, "--epsilon", "0.5")
    assert (code, "0.5 is not among privacy.epsilons (0.8, 3.2)" in said) == (1, True)
    code, said = privbench("refresh", town_spec, "--epsilon", "0.8")
    assert (code, "town: up to date at 0.8" in said) == (0, True)
    operated.change("person")
    spent = operated.spent()
    data = json.loads(privbench("status", town_spec, "--json")[1])
    assert data["headline"].startswith("stale at 0.8: person changed; refreshing costs ")
    low, high = data["releases"]
    assert (low["state"], low["why"], high["state"]) == ("stale", "person changed", "never released")
    assert [stale["step"] for stale in low["stale"] if stale["pending"]] == [
        ["profile", "person"],
        ["model", "person"],
        ["fanout", "person.household_id"],
        ["sample", "person"],
        ["validate", "all"],
        ["publish", "bundle"],
    ]
    code, said = privbench("refresh", town_spec, "--dry-run")
    assert (code, "person changed" in said, operated.spent()) == (0, True, spent)
    operated.fake.runs.clear()
    code, said = privbench("refresh", town_spec)
    assert (code, bool(re.search(r"ε=0\.8: paid [\d.]+% of the lifetime budget \(ρ=", said))) == (0, True)
    assert ("model", "household") not in operated.fake.runs
    assert privbench("refresh", town_spec)[1].startswith("ε=0.8: up to date.")
    assert operated.tick() == {}, "Dagster sees what the command line made"


@pytest.mark.usefixtures("fake")
def test_what_a_run_bought_for_a_bundle_elsewhere_is_said_to_cost_nothing_here(town_spec: Path) -> None:
    code, _ = privbench("run", town_spec, "--epsilon", "0.8", "--out", town_spec.parent / "elsewhere")
    assert code == 0
    said = privbench("status", town_spec)[1]
    assert said.startswith("town: up to date at 0.8 (by privbench run); ")
    said = privbench("refresh", town_spec, "--dry-run")[1]
    assert "pass --epsilon. At ε=0.8 it costs nothing: privbench run has already paid for it." in " ".join(said.split())


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("damage", [b"", b"cut", b"\0" * 4096])
def test_status_and_refresh_name_a_damaged_release_in_one_line(town_spec: Path, damage: bytes) -> None:
    spec = load_spec(town_spec)
    assert privbench("run", town_spec, "--epsilon", "0.8", "--out", town_spec.parent / "elsewhere")[0] == 0
    paid = [step.key for step in plan_for(spec, 0.8).steps if step.reads]
    named = 0
    for path in sorted((database_folder(spec) / "releases").glob("*/*.bin")):
        whole = path.read_bytes()
        path.write_bytes(damage)
        for command in (["status", town_spec], ["refresh", town_spec, "--epsilon", "0.8", "--dry-run"]):
            code, said = privbench(*command)
            lines = said.strip().splitlines()
            if code:
                assert " ".join(lines).startswith(
                    f"privbench: the stored release {path.stem[:12]} is damaged (checksum)."
                )
                assert "Restore" in said
            assert "Traceback" not in said
            named += code
        path.write_bytes(whole)
    assert named == 2 * len(paid), "those that were paid for, and no others: what costs nothing is made again"


@pytest.mark.usefixtures("fake")
def test_status_names_the_table_that_cannot_be_read(town_spec: Path, operated: Orchestrated) -> None:
    assert privbench("refresh", town_spec, "--epsilon", "0.8")[0] == 0
    operated.change("person")
    (town_spec.parent / "household.parquet").write_bytes(b"no parquet")
    code, said = privbench("status", town_spec)
    assert (code, "household could not be observed" in said, "person changed" in said) == (0, True, True)
    assert privbench("refresh", town_spec)[0] == 1
