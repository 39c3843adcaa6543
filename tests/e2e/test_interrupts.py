"""Ctrl-C, really sent: one line, exit code 130, and nothing half-made, whatever the command was at."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest

from privbench_core.pipeline.executor import run_spec
from privbench_core.spec.load import load_spec
from tests.helpers.postgres import new_database, rows

REPOSITORY = Path(__file__).parents[2]
# What a command is at when the signal comes: the function is replaced by one that says so, and then takes its time.
_AT = """
import sys, time
import {module} as module
def at(*arguments, **named):
    print("HERE", flush=True)
    {work}
module.{name} = at
from privbench_core.cli import main
main()
"""
_WAITING = "time.sleep(600)"


def interrupted(
    place: str, *arguments: object, work: str = _WAITING, folder: Path, after: str = "HERE"
) -> tuple[str, str]:
    """Run a command until it is at a place, interrupt it, and return what it said on both streams."""
    module, _, name = place.rpartition(".")
    code = _AT.format(module=module, name=name, work=work)
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PRIVBENCH_DEBUG": ""}
    # A shell starts what it runs in the background with interrupts ignored, and so would this process be.
    ours = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        cwd=folder,
    )
    signal.signal(signal.SIGINT, ours)
    said = b""
    assert process.stdout is not None
    while after.encode() not in said and process.poll() is None:
        said += os.read(process.stdout.fileno(), 4096)
    time.sleep(0.5)  # inside of it
    process.send_signal(signal.SIGINT)
    try:
        out, error = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 130, error.decode()
    return (said + out).decode(), error.decode()


@pytest.fixture(scope="module")
def bundle(made_town: Path) -> Path:
    """A bundle of the town, made by the real synthesizer."""
    return run_spec(load_spec(made_town).accepting_noise, 3.2, out=made_town.parent.parent / "bundle").out


def said_in_one_line(error: str, what: str) -> None:
    assert re.fullmatch(rf"privbench: stopped{what}\n", error), error


def test_init_leaves_no_spec(made_town: Path) -> None:
    out = made_town.parent / "drafted.yaml"
    _, error = interrupted(
        "privbench_core.commands.init.reflect", "init", made_town.parent, "-o", out, folder=made_town.parent
    )
    said_in_one_line(error, "; no spec was written")
    assert not out.exists()


def test_an_interview_is_left_at_any_question(made_town: Path) -> None:
    out = made_town.parent / "asked.yaml"
    said, error = interrupted(
        "privbench_core.commands.init.show_plans",
        *("init", made_town.parent, "--interactive", "-o", out),
        folder=made_town.parent,
        after="1. Whose rows",
    )
    assert "1. Whose rows are protected?" in said
    assert error.strip().splitlines()[-1] == "privbench: stopped; no spec was written"
    assert "Traceback" not in error
    assert not out.exists()


def test_a_plan_stops(made_town: Path) -> None:
    _, error = interrupted("privbench_core.commands.plan.plan_for", "plan", made_town, folder=made_town.parent)
    said_in_one_line(error, "")
    assert not (made_town.parent / ".privbench").exists()


@pytest.mark.slow
def test_an_evaluation_leaves_no_half_of_a_report(made_town: Path, bundle: Path) -> None:
    out = made_town.parent / "report"
    for place in ("privbench_core.evaluation.evaluation.compare", "privbench_core.report.render"):
        _, error = interrupted(place, "evaluate", made_town, bundle, "--out", out, folder=made_town.parent)
        said_in_one_line(error, "; no report was written")
        assert not out.exists() or not any(out.iterdir())


# A statement of DuckDB that does not end by itself, in place of one that inserts rows.
_ENDLESS = "return 'CREATE TABLE endless AS SELECT count(*) FROM range(1000000000000) a, range(1000000000000) b'"


@pytest.mark.parametrize("there", [False, True])
def test_publishing_into_duckdb_changes_nothing(made_town: Path, bundle: Path, there: bool) -> None:
    target = made_town.parent / f"target{there}.duckdb"
    if there:
        with duckdb.connect(str(target)) as before:
            before.execute("create table person as select 42 as mine")
    _, error = interrupted(
        "privbench_core.backends.duckdb.insert_rows",
        *("publish", bundle, target, *(["--replace"] if there else [])),
        work=_ENDLESS,
        folder=made_town.parent,
    )
    said_in_one_line(error, "; the target is unchanged")
    assert target.exists() is there
    if there:
        with duckdb.connect(str(target), read_only=True) as after:
            assert after.execute("select mine from person").fetchall() == [(42,)]


def test_publishing_into_postgres_changes_nothing(made_town: Path, bundle: Path, postgres: str) -> None:
    url = new_database(postgres, "stopped")
    _, error = interrupted(
        "privbench_core.backends.postgres.load.create_keys_sql",
        *("publish", bundle, url),
        work="return 'SELECT pg_sleep(600)'",
        folder=made_town.parent,
    )
    said_in_one_line(error, "; the target is unchanged")
    assert rows(url, "select tablename from pg_tables where schemaname = 'public'") == []


@pytest.fixture(scope="module")
def made_town(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The town as a folder, and its spec in the folder above, so that the folder holds tables alone."""
    import pyarrow.parquet as pq

    from tests.conftest import SPEC, build_town  # the builder of the fixtures

    folder = tmp_path_factory.mktemp("interrupted") / "town"
    folder.mkdir()
    for name, table in build_town().tables.items():
        pq.write_table(table, folder / f"{name}.parquet")
    spec = folder / "spec.yaml"
    spec.write_text(SPEC, encoding="utf-8")
    return spec
