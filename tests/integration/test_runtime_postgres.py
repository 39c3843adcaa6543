"""Run times in a real PostgreSQL: both databases loaded, measured, and gone afterwards."""

from __future__ import annotations

import numpy as np
import psycopg
import pyarrow as pa
import pytest

from privbench_core.errors import PublishError
from privbench_core.explain import plan
from privbench_core.explain.comparison import RunTimeSettings, compare_plans
from privbench_core.explain.plan import both_loaded
from privbench_core.publishing import write_bundle
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.workload import Workload
from tests.helpers.postgres import new_database, rows

SCHEMA = Schema(
    "shop",
    (
        Table("Customer", (Column("id", ColumnType.INTEGER), Column("age", ColumnType.INTEGER)), ("id",)),
        Table(
            "orders",
            (Column("id", ColumnType.INTEGER), Column("Customer", ColumnType.INTEGER)),
            ("id",),
            (ForeignKey("orders", ("Customer",), "Customer", ("id",), max_children=5, owner=True),),
        ),
    ),
    unit="Customer",
)
QUERIES = (
    "select count(*) from customer where age < 30",
    "select count(*) from customer c join orders o on o.customer = c.id where c.id = 77",
    "select count(*) from nowhere",
    "select count(*) from orders where price > 3",
    "select 1 / (id - id) from customer",
    "with gone as (delete from orders returning id) select count(*) from gone",
    "select pg_sleep(60)",
    "select pg_sleep(0.02)",
)


def shop(customers, ages=60):
    rng = np.random.default_rng(customers)
    return {
        "Customer": pa.table({"id": range(customers), "age": rng.integers(0, ages, customers)}),
        "orders": pa.table({"id": range(customers), "Customer": rng.integers(0, customers, customers)}),
    }


def compare_run_times(schema, source, bundle, workload, *, url, settings=None):
    with both_loaded(schema, source, bundle, url) as databases:
        return compare_plans(schema, databases, workload, settings).to_dict()


@pytest.fixture(scope="module")
def url(postgres):
    return new_database(postgres, "measured")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return write_bundle(tmp_path_factory.mktemp("b") / "shop", SCHEMA, shop(20_000, ages=31), {})


def schemas(url):
    return [name for (name,) in rows(url, "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'privbench%'")]


def test_queries_are_measured_on_both_and_failures_are_reported(url, bundle):
    settings = RunTimeSettings(repetitions=3, timeout=1.5)
    found = compare_run_times(SCHEMA, shop(20_000), bundle, Workload.of(QUERIES), url=url, settings=settings)
    assert [time["number"] for time in found["times"]] == [1, 2, 8]
    scan, lookup, sleep = found["times"]
    assert (scan["plan_distance"], lookup["plan_distance"]) == (0, 0)
    assert scan["operators"] == (2, 2)
    # The same number of rows of the same width: the same pages.
    assert scan["buffers"][0] == scan["buffers"][1] > 50
    assert lookup["buffers"][0] < scan["buffers"][0]
    assert min(*scan["milliseconds"], scan["again"]) > 0
    assert min(*sleep["milliseconds"], sleep["again"]) >= 20  # how much longer is up to the machine
    reasons = {each["query"]: each["reason"] for each in found["failed"]}
    assert list(reasons) == [3, 4, 5, 6, 7]
    assert reasons[3].startswith("nowhere: no such table")
    assert reasons[4] == 'column "price" does not exist (on the source)'
    assert reasons[5] == "failed (DivisionByZero) (on the source)"
    assert reasons[6] == "failed (ReadOnlySqlTransaction) (on the source)"
    assert reasons[7] == "took longer than it may (on the source)"
    assert found["server"].startswith("1")
    assert schemas(url) == []


def test_another_size_shows_in_plans_and_pages(url, tmp_path):
    small = write_bundle(tmp_path / "small", SCHEMA, shop(20), {})
    found = compare_run_times(SCHEMA, shop(20_000), small, Workload.of(QUERIES[:2]), url=url)
    assert found["buffers_discrepancy_percent"]["mean"] > 50
    assert found["same_plan"] == 0.5
    assert found["times"][1]["plan_distance"] > 0


def test_large_workloads_are_sampled(url, bundle):
    workload = Workload.of([f"select count(*) from orders where id < {i}" for i in range(30)])
    once, again = (
        compare_run_times(SCHEMA, shop(100), bundle, workload, url=url, settings=RunTimeSettings(1, 1, limit=4))
        for _ in range(2)
    )
    assert (once["measured"], once["queries"]) == (4, 30)
    assert [time["number"] for time in once["times"]] == [time["number"] for time in again["times"]]


def test_private_rows_are_in_no_file_once_they_are_loaded(url, bundle, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen = []
    load = plan.load_bundle

    def loading(folder, target):
        seen.extend((path.stat().st_mode & 0o777, path.name) for path in tmp_path.iterdir())
        return load(folder, target)

    monkeypatch.setattr(plan, "load_bundle", loading)
    with both_loaded(SCHEMA, shop(50), bundle, url) as (source, _):
        assert source.execute('SELECT count(*) FROM "Customer"').fetchone() == (50,)
        assert not any(tmp_path.rglob("*"))
    ((mode, name),) = seen
    assert mode == 0o700
    assert name.startswith("privbench-")


def test_an_embedded_server_comes_and_goes(bundle):
    with both_loaded(SCHEMA, shop(50), bundle) as (source, synthetic):
        counts = [
            connection.execute('SELECT count(*) FROM "Customer"').fetchone() for connection in (source, synthetic)
        ]
        place = source.info.dsn
    assert counts == [(50,), (20_000,)]
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(place)


def test_a_server_that_is_not_there_is_told_without_the_password(bundle):
    place = "postgresql://me:hunter2@localhost:9/db"
    with pytest.raises(PublishError, match="postgresql database db at localhost:9: OperationalError") as caught:
        compare_run_times(SCHEMA, shop(5), bundle, Workload.of(["select 1"]), url=place)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_source_that_does_not_load_leaves_nothing_behind(url, bundle):
    broken = {**shop(5), "orders": pa.table({"id": [1], "Customer": [99]})}
    with pytest.raises(PublishError, match="refused the bundle"):
        compare_run_times(SCHEMA, broken, bundle, Workload.of(["select 1"]), url=url)
    assert schemas(url) == []
