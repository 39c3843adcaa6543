"""Which specs the code location holds, and what becomes of a broken one."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

import privbench_core.pipeline as pipeline_plans
from privbench_assets.definitions import find_specs, load_defs, project_root
from privbench_core.errors import UnsupportedBudgetError

pytestmark = pytest.mark.usefixtures("fake")


def assets(*paths: Path) -> dict[str, str]:
    return {spec.key.to_user_string(): spec.description or "" for spec in load_defs(paths).resolve_all_asset_specs()}


def test_specs_are_found_in_the_project(tmp_path: Path) -> None:
    wanted = [tmp_path / "examples" / "a" / "spec.yaml", tmp_path / "specs" / "b.yaml"]
    for path in [*wanted, tmp_path / "examples" / "a" / "other.yaml", tmp_path / "c.yaml"]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert find_specs(None, tmp_path) == wanted
    assert find_specs("", tmp_path) == wanted
    assert project_root() / "examples" / "households" / "spec.yaml" in find_specs(None, project_root())


def test_specs_are_found_in_what_the_variable_lists(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    for name in ("b.yaml", "a.yml", "inner/spec.yaml", "inner/other.yaml", "readme.md"):
        (folder / name).touch()
    missing = tmp_path / "missing.yaml"
    listed = f"{folder}:{missing}:{folder / 'b.yaml'}"
    found = find_specs(listed, tmp_path / "elsewhere")
    assert found == [folder / "a.yml", folder / "b.yaml", folder / "inner" / "spec.yaml", missing]


def test_a_broken_spec_disables_only_itself(town_spec: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    broken = tmp_path / "shop.yaml"
    broken.write_text("database: shop\nsource: .\ntabels: {}\n")
    with caplog.at_level(logging.WARNING):
        found = assets(broken, town_spec)
    assert "town/publish/bundle" in found
    assert "tabels" in found["shop/broken_spec"]
    assert str(broken) in found["shop/broken_spec"]
    assert "shop.yaml cannot be used" in caplog.text


def test_a_missing_spec_and_two_of_one_name_are_told_apart(tmp_path: Path) -> None:
    found = assets(tmp_path / "a" / "spec.yaml", tmp_path / "b" / "spec.yaml", tmp_path / "c" / "b.yaml")
    assert set(found) == {"a/broken_spec", "b/broken_spec", "b_2/broken_spec"}
    assert all("cannot be read" in text for text in found.values())


def test_a_database_is_defined_once(town_spec: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.yaml"
    again.write_text(town_spec.read_text())
    found = assets(town_spec, again)
    assert str(town_spec) in found["again/broken_spec"]
    assert "town/publish/bundle" in found


def test_what_the_synthesizer_refuses_is_a_broken_spec(town_spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: str) -> None:
        raise UnsupportedBudgetError("no pure form")

    monkeypatch.setattr(pipeline_plans, "load_synthesizer", refuse)
    assert "no pure form" in assets(town_spec)["town/broken_spec"]

    def stumble(_: str) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(pipeline_plans, "load_synthesizer", stumble)
    assert "ZeroDivisionError: oh. Please report it" in assets(town_spec)["town/broken_spec"]


def test_two_databases_live_side_by_side(town_spec: Path, tmp_path: Path) -> None:
    other = tmp_path / "village.yaml"
    other.write_text(town_spec.read_text().replace("database: town", "database: village"))
    defs = load_defs([town_spec, other])
    assert {job.name for job in defs.jobs or []} == {
        "town_refresh",
        "town_observe",
        "village_refresh",
        "village_observe",
    }
    assert {"town__session", "village__session"} <= set(defs.resources or {})
    keys = {spec.key.path[0] for spec in defs.resolve_all_asset_specs()}
    assert keys == {"town", "village"}


def test_importing_the_definitions_loads_nothing_heavy() -> None:
    heavy = "{'great_expectations', 'matplotlib', 'opendp', 'pyarrow', 'scipy'}"
    code = f"import sys, privbench_assets.definitions; sys.exit(', '.join({heavy} & set(sys.modules)) or 0)"
    done = subprocess.run([sys.executable, "-c", code], cwd=project_root(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
