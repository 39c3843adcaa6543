"""`check` of databases that hold a bundle: as loaded, with an index more, with other rows, and with less."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import privbench_core as privbench
from privbench_core.cli import app
from privbench_core.errors import PublishError, SpecError
from privbench_core.publishing import load_bundle, write_bundle
from privbench_core.spec.location import parse_url
from tests.helpers.postgres import execute, new_database
from tests.integration.test_runtime_postgres import SCHEMA, shop

QUERIES = """-- name: young
select count(*) from "Customer" where age = 3;
-- name: orders of one
select * from "orders" where "Customer" = 77;
select count(*) from nowhere;
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, postgres: str) -> tuple[Path, str]:
    """A bundle, and a database that holds it."""
    bundle = write_bundle(tmp_path_factory.mktemp("b") / "shop", SCHEMA, shop(20_000), {}, {"queries": QUERIES})
    url = new_database(postgres, "checked")
    load_bundle(bundle, url)
    return bundle, url


def ran(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["check", *map(str, arguments)])
    return done.exit_code, done.output


def test_a_baseline_finds_a_changed_plan_and_lower_costs_pass(place: tuple[Path, str], tmp_path: Path):
    bundle, url = place
    limits, baseline, junit = tmp_path / "checks.yaml", tmp_path / "base.json", tmp_path / "junit.xml"
    limits.write_text("answered: 0.6\nsame_plan: 1\ntime_ratio: 1000\n", encoding="utf-8")
    assert ran(bundle, url, "--write-baseline", baseline, "--thresholds", limits)[0] == 0
    code, said = ran(bundle, url, "--baseline", baseline, "--thresholds", limits, "--junit", junit)
    assert code == 0
    lines = said.splitlines()
    assert lines[:2] == ["1..5", "ok 1 - tables: 2 tables, 40,000 rows"]
    assert lines[2].startswith("ok 2 - young: cost ")
    assert lines[4].startswith('ok 4 - query 3: failed: relation "nowhere" does not exist')
    assert lines[-1] == "# Results: 5 passed"
    assert "ever vacuumed" not in said
    assert ET.parse(junit).getroot().attrib["failures"] == "0"
    execute(url, 'CREATE INDEX more ON "Customer" (age); ANALYZE "Customer"')
    try:
        code, said = ran(bundle, url, "--baseline", baseline, "--thresholds", limits, "--junit", junit)
        assert code == 1
        assert "not ok 2 - young: cost " in said
        assert "  # scan of Customer uses " in said
        assert "instead of no index" in said
        assert "# Threshold missed: queries with the same plan: 50.0%; at least 100.0% are required" in said
        (failed,) = ET.parse(junit).getroot().iter("failure")
        assert "instead of no index" in failed.attrib["message"]
        limits.write_text("answered: 0.6\nsame_plan: 0\ntime_ratio: 1000\n", encoding="utf-8")
        code, said = ran(bundle, url, "--baseline", baseline, "--thresholds", limits, "--json")
        found = json.loads(said)
        assert (code, found["passed"]) == (0, True)  # the plan changed for the better
        assert found["queries"][0]["now"]["cost"] < found["queries"][0]["before"]["cost"]
        # The changed query is called seldom, the one that fails never.
        weighed = "-- weight: 1\n" + QUERIES.replace("-- name: orders", "-- weight: 9\n-- name: orders")
        (tmp_path / "weighed.sql").write_text(
            weighed.replace("select count(*) from no", "-- weight: 0\nselect 1 from no")
        )
        found = privbench.check(bundle, url, baseline=baseline, workload=tmp_path / "weighed.sql")
        assert found.figures["same_plan"] == pytest.approx(0.9)
        assert found.passed
    finally:
        execute(url, "DROP INDEX more")


def test_without_a_baseline_the_bundle_is_loaded_next_to_it(
    place: tuple[Path, str], postgres: str, monkeypatch: pytest.MonkeyPatch
):
    bundle, url = place
    monkeypatch.setattr("privbench_core.explain.check.server", lambda: nullcontext(parse_url(postgres)))
    found = privbench.check(bundle, url, thresholds={"answered": 0.6, "time_ratio": 1000})
    assert found.passed
    assert found.baseline is not None
    assert set(found.baseline.queries) == {"young", "orders of one"}
    assert not privbench.check(bundle, url, baseline=False).passed  # a query fails
    execute(url, "CREATE SCHEMA none; CREATE TABLE none.orders AS TABLE orders; ANALYZE none.orders")
    empty = privbench.check(bundle, f"{url}&schema=none", baseline=False)
    assert empty.wrong_tables == ["Customer: there is no such table"]
    assert [table.name for table in empty.tables if table.never_vacuumed] == ["orders"]


def test_statistics_without_rows_are_enough_for_plans(
    place: tuple[Path, str], postgres: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("privbench_core.explain.check.server", lambda: nullcontext(parse_url(postgres)))
    bundle, _ = place
    url = new_database(postgres, "checked_statistics")
    privbench.publish(bundle, url, statistics_only=True)
    code, said = ran(bundle, url, "--json")
    found = json.loads(said)
    assert [query["problems"] for query in found["queries"]] == [[], [], ['relation "nowhere" does not exist']]
    assert [query["flips"] for query in found["queries"]] == [[], [], []]
    assert (code, found["figures"]["time_ratio"]) == (1, None)
    assert all(table["statistics_only"] for table in found["tables"])
    execute(url, "DROP TABLE orders")
    assert "orders: there is no such table" in ran(bundle, url, "--write-baseline", bundle.parent / "x.json")[1]


def test_a_database_with_other_rows_is_not_the_bundle(place: tuple[Path, str], tmp_path: Path):
    _, url = place
    rows = shop(20_000) | {"orders": pa.table({"id": range(7), "Customer": np.zeros(7, int)})}
    other = write_bundle(tmp_path / "other", SCHEMA, rows, {}, {"queries": QUERIES})
    found = privbench.check(other, url, baseline=False, thresholds={"answered": 0})
    assert found.wrong_tables == ["orders: 20,000 rows instead of 7"]
    assert not found.passed


def test_what_cannot_be_checked_is_one_clear_line(place: tuple[Path, str], tmp_path: Path):
    bundle, url = place
    (tmp_path / "x.json").write_text("{}", encoding="utf-8")
    (tmp_path / "x.yaml").write_text("same_plans: 1", encoding="utf-8")
    for expected, arguments in {
        "x.json: not a baseline; make it again": (bundle, url, "--baseline", tmp_path / "x.json"),
        "none.json: cannot be read": (bundle, url, "--baseline", tmp_path / "none.json"),
        "did you mean 'same_plan'": (bundle, url, "--thresholds", tmp_path / "x.yaml"),
        "not PostgreSQL": (bundle, "sqlite:///x"),
        "OperationalError": (bundle, "postgresql://nobody@127.0.0.1:1/x", "--write-baseline", tmp_path / "y.json"),
    }.items():
        code, said = ran(*arguments)
        assert code == 1
        assert expected in said
        assert "Traceback" not in said
    with pytest.raises(SpecError, match="a ratio of at least 1"):
        privbench.check(bundle, url, thresholds={"time_ratio": 0.5})
    with pytest.raises(PublishError, match="no queries of its own"):
        privbench.check(write_bundle(tmp_path / "bare", SCHEMA, shop(10), {}), url)
