"""The command line as a user meets it: real processes, the real synthesizer, the bundled example."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest

from privbench_core.publishing import read_bundle
from privbench_core.spec.load import load_spec
from tests.helpers.drafts import call
from tests.helpers.example import part_of_the_example
from tests.helpers.servers import wait_for

REPOSITORY = Path(__file__).parents[2]
RELEASED = "select step from reservation join result on result.reservation = reservation.id"
COMMAND = (sys.executable, "-m", "privbench_core")


def environment() -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]),
        "PRIVBENCH_DEBUG": "",
    }


def privbench(*arguments: object, expect: int = 0) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *(str(argument) for argument in arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=300, check=False)
    assert done.returncode == expect, done.stderr
    assert "Traceback" not in done.stderr
    return done


def json_of(*arguments: object) -> Any:
    return json.loads(privbench(*arguments, "--json").stdout)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a demo with a part of the example's rows, and what it printed."""
    folder, part = tmp_path_factory.mktemp("user") / "demo", tmp_path_factory.mktemp("example")
    part_of_the_example(part, 4_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("privbench_core.commands.demo.find_example", lambda _: part)
        done = call("demo", "--dir", folder)
    assert done.exit_code == 0, done.stderr
    return folder, done.stdout


def test_the_demo_says_where_the_bundle_is_what_it_cost_and_what_next(demo: tuple[Path, str]) -> None:
    folder, printed = demo
    assert str(folder / "bundle") in printed
    assert re.search(r"This run: +paid \d\.\d% of the lifetime budget \(ρ=0\.01\d+\)", printed)
    assert re.search(r"Lifetime: +ε=0\.\d+ of 20 spent", printed)
    assert printed.count("    privbench ") == 4
    assert "Total variation distance from the source (0: identical; internal" in printed
    assert read_bundle(folder / "bundle").tables == ("household", "person")


@pytest.mark.slow
def test_the_report_costs_nothing_and_finds_the_bundle_close_and_its_joins_better_than_chance(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "demo"
    privbench("demo", "--dir", folder)
    workload = folder.parent / "queries.sql"
    workload.write_text(
        """select count(*) from person where pemploy = 1;
        select count(*) from person p join household h on p.household_id = h."HHID" where p.age < 10 and h.workers = 2;
        """,
        encoding="utf-8",
    )
    out = folder.parent / "report"
    before = json_of("ledger", folder / "spec.yaml")
    found = json_of("evaluate", folder / "spec.yaml", folder / "bundle", "--workload", workload, "--out", out)
    assert json_of("ledger", folder / "spec.yaml") == before
    for table in found["tables"].values():
        assert table["tvd"]["2"] < table["shuffled"]
    key = found["foreign_keys"]["person.household_id"]
    assert key["joint"] < 0.8 * key["shuffled"]
    assert key["fanout_tvd"] < 0.05
    assert found["workload"]["q_error"]["max"] < 2
    assert found["privacy"]["alarms"] == []
    for attack in found["privacy"]["membership_attacks"]:
        assert attack["epsilon"] < 0.8
    assert key["counting"][0]["mean"] < 0.3
    assert "Do not publish" in (out / "report.html").read_text(encoding="utf-8")


def test_a_published_bundle_joins(demo: tuple[Path, str]) -> None:
    folder, _ = demo
    target = folder.parent / "target.duckdb"
    rows = json.loads(call("publish", folder / "bundle", target, "--json").stdout)["rows"]
    with duckdb.connect(str(target), read_only=True) as connection:
        query = 'select count(*) from person p join household h on p.household_id = h."HHID"'
        assert connection.execute(query).fetchall() == [(rows["person"],)]


def test_an_interrupted_run_resumes_without_paying_twice(tmp_path: Path) -> None:
    part_of_the_example(tmp_path, 4_000)
    spec, out = tmp_path / "spec.yaml", tmp_path / "bundle"
    arguments = ("run", spec, "--epsilon", "0.8", "--out", out)
    # A shell starts what it runs in the background with interrupts ignored, and so would this process be.
    ours = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen([*COMMAND, *map(str, arguments)], stderr=subprocess.PIPE, text=True, env=environment())
    signal.signal(signal.SIGINT, ours)
    ledger = load_spec(spec).state / "ledger.sqlite"
    wait_for("a release", lambda: released_in(ledger) or process.poll() is not None, every=0.01)
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=300)
    assert process.returncode == 130
    released = released_in(ledger)  # one step; or two, where this process had to wait
    steps = f"{len(released)} step{'s' * (len(released) > 1)}"
    assert complaint.startswith(f"privbench: stopped; releases so far are kept: {steps} of this run (0.")
    assert not out.exists()
    resumed = json.loads(call(*arguments, "--json").stdout)
    assert resumed["cost"]["reused"] > 0
    times = Counter(entry["step"] for entry in json.loads(call("ledger", spec, "--json").stdout)["entries"])
    assert all(times[step] == 1 for step in released)


def released_in(ledger: Path) -> list[str]:
    """Steps that have been released."""
    if not ledger.exists():
        return []
    with contextlib.closing(sqlite3.connect(ledger)) as connection:
        try:
            return [step for (step,) in connection.execute(RELEASED)]
        except sqlite3.OperationalError:
            return []  # its tables are still being made
