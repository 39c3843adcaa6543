"""The real synthesizer under Dagster: the same plan, the same releases and the same bundle as from the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow.parquet as pq
import pytest

from privbench_assets.definitions import project_root
from privbench_core.pipeline.run import run_spec
from privbench_core.publish.bundle import read_bundle
from privbench_core.schema.spec import load_spec


@pytest.fixture
def big_town(town_spec: Path, make_town: Callable[..., Any]) -> Path:
    """A town large enough that its synthetic twin passes the fidelity checks."""
    for name, rows in make_town(3000).tables.items():
        pq.write_table(rows, town_spec.parent / f"{name}.parquet")
    return town_spec


def dagster(home: Path, spec: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    home.mkdir(exist_ok=True)
    (home / "dagster.yaml").write_text((project_root() / "dagster.yaml").read_text())
    environment = {**os.environ, "DAGSTER_HOME": str(home), "PRIVBENCH_SPECS": str(spec)}
    command = [sys.executable, "-W", "ignore", "-m", "dagster", *arguments]
    return subprocess.run(command, cwd=project_root(), env=environment, capture_output=True, text=True, check=False)


def test_dagster_and_the_command_line_share_releases_and_bundles(big_town: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    location = ("-m", "privbench_assets.definitions")
    done = dagster(home, big_town, "asset", "materialize", *location, "--select", "*", "--partition", "3.2")
    assert done.returncode == 0, done.stderr[-3000:]
    spec = load_spec(big_town)
    made = read_bundle(spec.state / "bundles" / "3.2")
    assert made.table("person").num_rows > 0
    with dg.DagsterInstance.from_config(str(home)) as instance:
        checks = instance.event_log_storage.get_latest_asset_check_execution_by_key(
            [
                dg.AssetCheckKey(dg.AssetKey(["town", "validate", "person"]), suite)
                for suite in ("integrity", "fidelity")
            ]
        )
        assert {record.status.value for record in checks.values()} == {"SUCCEEDED"}
        status = instance.get_latest_materialization_event(dg.AssetKey(["town", "benchmark_status"]))
        assert status is not None
        assert status.asset_materialization is not None
        assert "| person | not made | published, " in str(status.asset_materialization.metadata["state"].value)
    again = run_spec(spec, 3.2, out=tmp_path / "bundle")
    assert again.paid == 0
    assert files(again.out) == files(made.path)


def test_the_workspace_loads_as_privbench_even_with_a_broken_spec(town_spec: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("database: [")
    specs = Path(f"{town_spec}{os.pathsep}{broken}")
    done = dagster(tmp_path / "home", specs, "definitions", "validate", "-w", "workspace.yaml")
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-3000:]
    assert "Validation successful for code location privbench" in said
    assert "broken.yaml cannot be used" in said


def files(folder: Path) -> dict[str, bytes]:
    """Contents by file name."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
