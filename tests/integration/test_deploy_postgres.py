"""Dagster's storage and the ledger in PostgreSQL, as `deploy/postgres` sets them up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import psycopg
import pyarrow.parquet as pq
import pytest
from dagster._core.scheduler.instigation import TickStatus
from sqlalchemy import make_url

from privbench_core.errors import LedgerError
from privbench_core.privacy.budget import Budget, Measure, Price
from privbench_core.privacy.ledger.ledger import Ledger
from privbench_core.privacy.ledger.store import LAYOUT, POSTGRES_STATEMENTS, TABLES
from privbench_core.publishing import read_bundle
from privbench_core.spec.location import connection_parameters, parse_url
from tests.helpers.ledgers import raw
from tests.helpers.servers import answers, running, wait_for

DEPLOY = Path(__file__).parents[2] / "deploy" / "postgres"
PASSWORD = "correct-horse"


def beside(url: str, name: str, user: str | None = None) -> str:
    """URL of another database of the same server."""
    other = make_url(url).set(database=name)
    return (other.set(username=user, password=PASSWORD) if user else other).render_as_string(hide_password=False)


@pytest.fixture
def databases(postgres: str) -> Iterator[tuple[str, str]]:
    """URLs of Dagster's database, and of a ledger that ``ledger.sql`` made, for the role that may only add to it."""
    for statement in (
        "create role ledger_owner",
        f"create role privbench login password '{PASSWORD}'",
        "create database dagster",
        "create database ledger owner ledger_owner",
    ):
        raw(postgres, statement)
    script = (DEPLOY / "ledger.sql").read_text(encoding="utf-8")
    raw(beside(postgres, "ledger"), f"set role ledger_owner; {script}")
    yield beside(postgres, "dagster"), beside(postgres, "ledger", "privbench")
    for statement in ("database dagster", "database ledger"):
        raw(postgres, f"drop {statement} with (force)")
    for role in ("ledger_owner", "privbench"):
        raw(postgres, f"drop role {role}")


def home_of(tmp_path: Path) -> Path:
    """A DAGSTER_HOME as the page says, that looks after its runs more often."""
    home = tmp_path / "home"
    home.mkdir()
    text = (DEPLOY / "dagster.yaml").read_text(encoding="utf-8")
    assert "poll_interval_seconds: 60" in text
    (home / "dagster.yaml").write_text(text.replace("seconds: 60", "seconds: 1"), encoding="utf-8")
    return home


def for_dagster(url: str) -> str:
    """The URL with the driver that Dagster wants."""
    return url.replace("postgresql://", "postgresql+psycopg2://", 1)


def test_runs_and_events_land_in_postgresql(
    databases: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIVBENCH_DAGSTER_URL", for_dagster(databases[0]))

    @dg.asset(partitions_def=dg.StaticPartitionsDefinition(["0.8"]))
    def bundle() -> dg.MaterializeResult:
        return dg.MaterializeResult(metadata={"rows": 3})

    with dg.DagsterInstance.from_config(str(home_of(tmp_path))) as instance:
        assert not instance.telemetry_enabled
        assert instance.managed_python_loggers == ["privbench_core"]
        assert "postgres" in type(instance.event_log_storage).__name__.lower()
        assert instance.run_monitoring_max_runtime_seconds == 86_400
        assert dg.materialize([bundle], instance=instance, partition_key="0.8").success
        event = instance.get_latest_materialization_event(dg.AssetKey("bundle"))
        assert event is not None
        assert event.asset_materialization.metadata["rows"].value == 3


def test_the_script_is_what_privbench_would_make() -> None:
    script = (DEPLOY / "ledger.sql").read_text(encoding="utf-8")
    assert "".join(f"{statement};\n" for statement in POSTGRES_STATEMENTS) in script
    assert f"values ({LAYOUT}, now())" in script
    assert f"grant select, insert on {', '.join(TABLES)} to privbench;" in script


def test_the_ledgers_role_can_only_add(databases: tuple[str, str]) -> None:
    url = databases[1]
    ledger = Ledger(url, "d", "u", Budget(2.0), relation={"person": {"unit": True}})
    hold = ledger.hold("run", Price(Measure.PURE, 1.0), "purpose", "mark")
    entry = ledger.reserve("r", "s", "run", Price(Measure.PURE, 1.0), purpose="purpose")
    ledger.end_hold(hold)
    ledger.charge(entry, "look", Price(Measure.PURE, 1.0))
    ledger.release(entry, "digest")
    ledger.claim("mark")
    for table in TABLES:
        assert raw(url, f"select count(*) from {table}") == [(1,)]
        column = "version" if table == "ledger_layout" else "at"
        for statement in (
            f"update {table} set {column} = {column}",
            f"delete from {table}",
            f"truncate {table} cascade",
            f"drop table {table} cascade",
            f"alter table {table} disable trigger all",
            f"select 1 from {table} for update",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                raw(url, statement)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        raw(url, "create or replace function refuse_change() returns trigger language plpgsql as $$ begin end $$")
    assert ledger.balance().spent == 1.0
    assert ledger.released("r") == {"digest"}
    ledger.close()


@pytest.mark.usefixtures("databases")  # for its roles
def test_a_role_that_finds_no_tables_is_told_what_to_do(postgres: str) -> None:
    raw(postgres, "create database empty")
    raw(beside(postgres, "empty"), "revoke create on schema public from public")
    try:
        with pytest.raises(LedgerError, match=r"ledger\.sql") as refused:
            Ledger(beside(postgres, "empty", "privbench"), "d", "u", Budget(2.0))
        assert PASSWORD not in f"{refused.value}{refused.value.private_detail}"
    finally:
        raw(postgres, "drop database empty with (force)")


@pytest.mark.slow
def test_a_deployment_refreshes_ticks_and_ends_what_hangs(
    databases: tuple[str, str],
    town_spec: Path,
    make_town: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, rows in make_town(3000).tables.items():
        pq.write_table(rows, town_spec.parent / f"{name}.parquet")
    text = town_spec.read_text(encoding="utf-8")
    town_spec.write_text(text.replace("privacy: {", "privacy: {ledger: '${PRIVBENCH_LEDGER}', "), encoding="utf-8")
    home, port = home_of(tmp_path), 3977
    workspace = ("--workspace", str(DEPLOY / "workspace.yaml"))
    monkeypatch.setenv("PRIVBENCH_DAGSTER_URL", for_dagster(databases[0]))
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(home),
        "PRIVBENCH_SPECS": str(town_spec),
        "PRIVBENCH_LEDGER": databases[1],
    }

    def dagster(*arguments: str) -> None:
        command = [sys.executable, "-W", "ignore", "-m", "dagster", *arguments, *workspace]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]

    def launch(partition: str, tags: dict[str, str]) -> None:
        all_tags = {"dagster/partition": partition, **tags}
        dagster("job", "launch", "--job", "town_refresh", "--tags", json.dumps(all_tags))

    logs = [tmp_path / name for name in ("webserver.log", "daemon.log")]
    address = ("--host", "127.0.0.1", "--port", str(port))
    with (
        running(environment, logs[0], "dagster_webserver", *address, *workspace),
        running(environment, logs[1], "dagster._daemon", "run", *workspace),
        dg.DagsterInstance.from_config(str(home)) as instance,
    ):
        wait_for("the webserver", lambda: answers(port))
        launch("3.2", {})
        done = wait_for("the refresh", lambda: instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.SUCCESS])))
        booked = raw(databases[1], "select step from reservation order by id")
        assert len(booked) == len(set(booked)) == len(raw(databases[1], "select * from result")) > 3
        read_bundle(town_spec.parent / ".privbench" / "town" / "bundles" / "3.2")

        dagster("sensor", "start", "town_refresh_on_change")
        wait_for(
            "a tick",
            lambda: [
                tick
                for state in instance.all_instigator_state()
                if state.instigator_name == "town_refresh_on_change"
                for tick in instance.get_ticks(state.instigator_origin_id, state.selector_id)
                if tick.status is TickStatus.SKIPPED  # evaluated, and nothing had changed
            ],
        )
        assert raw(databases[1], "select step from reservation order by id") == booked

        # A step that has reserved, and then hangs: its first charge waits for a lock.
        with psycopg.connect(**connection_parameters(parse_url(beside(databases[0], "ledger")))) as locked:
            locked.execute("lock table charge in exclusive mode")
            launch("0.8", {"dagster/max_runtime": "3"})
            wait_for(
                "the end of a run that hangs",
                lambda: instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE])),
            )
            spent = raw(databases[1], "select step from reservation order by id")
            assert len(spent) == len(booked) + 1
            assert not raw(databases[1], f"select * from result where reservation > {len(booked)}")
        events = "\n".join(str(record) for run in instance.get_runs() for record in instance.all_logs(run.run_id))
    assert done
    written = events + "".join(log.read_text(encoding="utf-8") for log in logs)
    for path in (town_spec.parent / ".privbench").rglob("*"):
        written += path.read_bytes().decode("latin-1") if path.is_file() else ""
    assert PASSWORD not in written
