"""The real synthesizer under Dagster: the same plan, the same releases and the same bundle as from the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow.parquet as pq
import pytest
from dagster._core.execution.backfill import BulkActionStatus
from typer.testing import CliRunner

from privbench_assets import step_key
from privbench_assets.definitions import project_root
from privbench_core.cli import app
from privbench_core.pipeline import plan_for, run_name
from privbench_core.pipeline.executor import run_spec
from privbench_core.pipeline.record import last_observed, read_manifest
from privbench_core.pipeline.workspace import open_ledger
from privbench_core.privacy.budget import Price
from privbench_core.publishing import read_bundle
from privbench_core.spec.load import dump_spec, load_spec
from privbench_core.spec.model import Spec
from tests.helpers.servers import answers, code_server, free_port, graphql, running, wait_for

LAUNCH = "mutation($asked: LaunchBackfillParams!) {launchPartitionBackfill(backfillParams: $asked) {__typename}}"


@pytest.fixture
def big_town(town_spec: Path, make_town: Callable[..., Any]) -> Path:
    """A town large enough that its synthetic twin passes the fidelity checks, by seven deviations of their noise."""
    for name, rows in make_town(15_000).tables.items():
        pq.write_table(rows, town_spec.parent / f"{name}.parquet")
    return town_spec


def environment_of(home: Path, spec: Path) -> dict[str, str]:
    """The environment of Dagster's processes, for a home that is configured like the project's."""
    home.mkdir(exist_ok=True)
    (home / "dagster.yaml").write_text((project_root() / "dagster.yaml").read_text())
    return {**os.environ, "DAGSTER_HOME": str(home), "PRIVBENCH_SPECS": str(spec)}


def dagster(home: Path, spec: Path, *arguments: str) -> str:
    """What a command of Dagster says, once it has succeeded."""
    command = [sys.executable, "-W", "ignore", "-m", "dagster", *arguments]
    environment = environment_of(home, spec)
    done = subprocess.run(command, cwd=project_root(), env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout + done.stderr


def prices(spec: Spec) -> dict[tuple[str, str], Price]:
    """What a first release at every ε costs, by run and step."""
    plans = [plan_for(spec, epsilon) for epsilon in spec.epsilons]
    return {
        (run_name(plan.budget.epsilon), "/".join(step.key)): step.price
        for plan in plans
        for step in plan.steps
        if step.reads
    }


def paid(spec: Spec) -> list[tuple[tuple[str, str], Price]]:
    """What the ledger holds, by run and step."""
    with closing(open_ledger(spec)) as ledger:
        return [((entry.run, entry.step), entry.price) for entry in ledger.entries()]


@pytest.mark.parametrize("synthesizer", ["privbench", pytest.param("privlava", marks=pytest.mark.slow)])
def test_dagster_and_the_command_line_share_releases_and_bundles(
    big_town: Path, tmp_path: Path, synthesizer: str
) -> None:
    big_town.write_text(dump_spec(replace(load_spec(big_town), synthesizer=synthesizer)), encoding="utf-8")
    home = tmp_path / "home"
    location = ("-m", "privbench_assets.definitions")
    dagster(home, big_town, "asset", "materialize", *location, "--select", "*", "--partition", "3.2")
    spec = load_spec(big_town)
    made = read_bundle(spec.state / "town" / "bundles" / "3.2")
    assert made.table("person").num_rows > 0
    with dg.DagsterInstance.from_config(str(home)) as instance:
        checks = instance.event_log_storage.get_latest_asset_check_execution_by_key(
            [dg.AssetCheckKey(step_key("town", ("validate", "person")), suite) for suite in ("integrity", "fidelity")]
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
    said = dagster(tmp_path / "home", specs, "definitions", "validate", "-w", "workspace.yaml")
    assert "Validation successful for code location privbench" in said
    assert "broken.yaml cannot be used" in said


@pytest.mark.slow
def test_a_backfill_over_epsilon_makes_both_bundles_and_pays_for_both(big_town: Path, tmp_path: Path) -> None:
    home, port, spec = tmp_path / "home", free_port(), load_spec(big_town)
    environment = environment_of(home, big_town)
    steps = [step_key("town", step.key).path for step in plan_for(spec, 0.8).steps]
    with (
        code_server(environment, tmp_path) as served,
        running(environment, tmp_path / "web.log", "dagster_webserver", "--port", str(port), "-w", str(served)),
        running(environment, tmp_path / "daemon.log", "dagster._daemon", "run", "-w", str(served)),
        dg.DagsterInstance.from_config(str(home)) as instance,
    ):
        wait_for("the webserver", lambda: answers(port))
        assets = [{"path": path} for path in (*steps, ["town", "benchmark_status"])]
        asked = {"assetSelection": assets, "partitionNames": ["0.8", "3.2"]}
        assert (
            graphql(port, LAUNCH, {"asked": asked})["launchPartitionBackfill"]["__typename"] == "LaunchBackfillSuccess"
        )
        wait_for(
            "the end of the backfill", lambda: instance.get_backfills()[0].status is not BulkActionStatus.REQUESTED
        )
        assert instance.get_backfills()[0].status is BulkActionStatus.COMPLETED_SUCCESS
        runs = [run.tags.get("dagster/partition", "") for run in instance.get_runs()]
        assert sorted(runs) == ["", "0.8", "3.2"]  # the status is gathered last, once
        assert runs[0] == ""
    for epsilon in (0.8, 3.2):
        read_bundle(spec.state / "town" / "bundles" / f"{epsilon:g}")
    assert len(paid(spec)) == len(prices(spec))
    assert dict(paid(spec)) == prices(spec)
    assert all(run_spec(spec, epsilon, out=tmp_path / f"{epsilon:g}").paid == 0 for epsilon in (0.8, 3.2))


@pytest.mark.slow
def test_a_daemon_catches_up_with_what_it_did_not_see(big_town: Path, tmp_path: Path) -> None:
    """A change from before the sensor was on, then one from while the daemon was killed."""
    home, spec = tmp_path / "home", load_spec(big_town)
    environment, location = environment_of(home, big_town), ("-m", "privbench_assets.definitions")
    dagster(home, big_town, "asset", "materialize", *location, "--select", "*", "--partition", "3.2")

    def change() -> str:
        path = big_town.parent / "person.parquet"
        pq.write_table(pq.read_table(path).slice(1), path)
        dagster(home, big_town, "job", "execute", *location, "-j", "town_observe")
        return last_observed(spec)["person"]

    def published() -> str:
        manifest = read_manifest(spec, ("publish", "bundle"), "3.2")
        assert manifest is not None
        return manifest.sources["person"]

    wanted, log = change(), tmp_path / "daemon.log"
    with code_server(environment, tmp_path) as served, dg.DagsterInstance.from_config(str(home)) as instance:
        workspace = ("-w", str(served))
        dagster(home, big_town, "sensor", "start", "town_refresh_on_change", *workspace)
        with running(environment, log, "dagster._daemon", "run", *workspace) as daemon:
            wait_for("the refresh of what changed before", lambda: published() == wanted)
            daemon.kill()
        wanted = change()
        with running(environment, log, "dagster._daemon", "run", *workspace):
            wait_for("the refresh of what changed meanwhile", lambda: published() == wanted)
            asked = instance.get_runs(dg.RunsFilter(tags={"privbench/database": "town"}))
            assert len({run.tags["dagster/run_key"] for run in asked}) == len(asked) == 2


@pytest.mark.slow
def test_ticks_of_the_schedule_refresh_every_epsilon_that_a_person_has_released_and_pay_nothing_more(
    big_town: Path, tmp_path: Path
) -> None:
    text = big_town.read_text(encoding="utf-8")
    big_town.write_text(f'schedule: "* * * * *"\n{text}', encoding="utf-8")
    home, spec = tmp_path / "home", load_spec(big_town)
    for epsilon in spec.epsilons:
        made = CliRunner().invoke(app, ["refresh", str(big_town), "--epsilon", f"{epsilon:g}"])
        assert made.exit_code == 0, made.output
    environment = environment_of(home, big_town)
    by_schedule = {"dagster/schedule_name": "town_refresh_schedule"}
    done = dg.RunsFilter(statuses=[dg.DagsterRunStatus.SUCCESS], tags=by_schedule)
    with code_server(environment, tmp_path) as served, dg.DagsterInstance.from_config(str(home)) as instance:
        workspace = ("-w", str(served))
        dagster(home, big_town, "schedule", "start", "town_refresh_schedule", *workspace)
        with running(environment, tmp_path / "daemon.log", "dagster._daemon", "run", *workspace):
            wait_for("the runs of two ticks", lambda: len(instance.get_runs(done)) >= 2 * len(spec.epsilons))
            runs = instance.get_runs(dg.RunsFilter(tags=by_schedule))
    ticks = {run.tags["dagster/run_key"].partition(" ")[0] for run in runs}
    assert len(ticks) >= 2
    assert len({run.tags["dagster/run_key"] for run in runs}) == len(runs)  # one run per tick and ε
    for epsilon in spec.epsilons:
        read_bundle(spec.state / "town" / "bundles" / f"{epsilon:g}")
    assert sorted(key for key, _ in paid(spec)) == sorted(prices(spec))


def files(folder: Path) -> dict[str, bytes]:
    """Contents by file name."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
