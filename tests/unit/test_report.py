"""Reports: figures that are known in advance, the verdict, and the workload's rules."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.errors import SourceError
from privbench_core.report import plots
from privbench_core.report.comparison import Comparison, KeyFigures, Pair, TableFigures, compare
from privbench_core.report.page import Subject, metrics, render, subject_of
from privbench_core.report.verdict import Level, judge
from privbench_core.report.workload import Answer, WorkloadFigures, read_queries, run_workload
from privbench_core.schema.model import Column, ColumnType, ForeignKey, Learn, Range, Schema, Table, Values

SHOP = Schema(
    "shop",
    (
        Table(
            "customer",
            (
                Column("id", ColumnType.INTEGER),
                Column("age", ColumnType.INTEGER, Range(0, 99)),
                Column("plan", ColumnType.CATEGORY, Values(("free", "paid"))),
            ),
            ("id",),
        ),
        Table(
            "purchase",
            (
                Column("id", ColumnType.INTEGER),
                Column("customer", ColumnType.INTEGER),
                Column("kind", ColumnType.CATEGORY, Learn()),
            ),
            ("id",),
            (ForeignKey("purchase", ("customer",), "customer", ("id",), max_children=4, owner=True),),
        ),
        Table("tag", (Column("id", ColumnType.INTEGER),), ("id",), public=True),
        Table(
            "visit",
            (Column("id", ColumnType.INTEGER), Column("customer", ColumnType.INTEGER)),
            ("id",),
            (ForeignKey("visit", ("customer",), "customer", ("id",), max_children=4, owner=True),),
        ),
    ),
    "customer",
)


def database(seed: int = 0, customers: int = 400) -> dict[str, pa.Table]:
    """Customers whose plan follows from their age and decides what they buy."""
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 90, customers)
    paid = age >= 50
    owner = np.repeat(np.arange(customers), 2)
    return {
        "customer": pa.table({"id": np.arange(customers), "age": age, "plan": np.where(paid, "paid", "free")}),
        "purchase": pa.table(
            {"id": np.arange(len(owner)), "customer": owner, "kind": np.where(paid[owner], "book", "toy")}
        ),
        "tag": pa.table({"id": [1]}),
        "visit": pa.table({"id": np.arange(customers), "customer": np.arange(customers)}),
    }


def test_a_database_is_at_no_distance_from_itself_and_shuffling_is() -> None:
    found = compare(Pair(SHOP, database(), database()))
    assert list(found.tables) == ["customer", "purchase", "visit"]
    customer, key = found.tables["customer"], found.keys["purchase.customer"]
    assert (customer.tvd[1], customer.tvd[2], customer.tvd[3]) == (0, 0, None)
    assert customer.kld[2] == pytest.approx(0)
    assert customer.shuffled is not None
    assert customer.shuffled > 0.3
    assert (key.joint, key.fanout_tvd, key.counting) == (0, 0, 0)
    assert key.shuffled is not None
    assert key.shuffled > 0.2
    assert found.tables["visit"].tvd[1] is None
    assert judge(found).level is Level.CLOSE


def test_lost_links_are_found_although_tables_agree() -> None:
    broken = database()
    shuffled = np.random.default_rng(3).permutation(broken["purchase"]["kind"].to_numpy(zero_copy_only=False))
    broken["purchase"] = broken["purchase"].set_column(2, "kind", pa.array(shuffled, pa.string()))
    found = compare(Pair(SHOP, database(), broken))
    key = found.keys["purchase.customer"]
    assert found.tables["purchase"].tvd[1] == 0
    assert key.joint == pytest.approx(key.shuffled, rel=0.2)
    assert key.joint is not None
    assert key.joint > 0.2


def figures(pairs: float, shuffled: float) -> TableFigures:
    return TableFigures((10, 10), {"a": pairs}, {1: pairs, 2: pairs}, {1: 0.0, 2: 0.0}, {1: "", 2: ""}, shuffled)


@pytest.mark.parametrize(("distance", "level"), [(0.05, Level.CLOSE), (0.2, Level.ROUGH), (0.5, Level.FAR)])
def test_the_verdict_is_that_of_the_worst_table(distance: float, level: Level) -> None:
    verdict = judge(Comparison({"good": figures(0.01, 0.4), "t": figures(distance, 0.4)}, {}))
    assert verdict.level is level
    assert ("lost" in verdict.remarks[1]) == (distance > 0.4)


@pytest.mark.parametrize(("estimated", "level"), [(100, Level.CLOSE), (300, Level.ROUGH), (1000, Level.FAR)])
def test_the_verdict_minds_the_workload(estimated: float, level: Level) -> None:
    workload = WorkloadFigures((Answer("select 1", 100, estimated),), ())
    assert judge(Comparison({"t": figures(0.01, 0.4)}, {}), workload).level is level


def test_the_verdict_says_that_a_link_is_lost() -> None:
    key = KeyFigures("p", {("a", "b"): 0.2}, 0.2, 0.2, 0.0, 0.0, None)
    assert "link between parents and children is lost" in judge(Comparison({}, {"c.p": key})).remarks[0]


def test_queries_are_split_at_semicolons_that_end_them(tmp_path: Path) -> None:
    file = tmp_path / "w.sql"
    file.write_text("-- one; two\nselect ';' ;;\n /* a; b */ select 2; select 3", encoding="utf-8")
    assert read_queries(file) == ["select ';'", "select 2", "select 3"]


def test_a_workload_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "w.sql"
    file.write_bytes(b"select '\xff\xfe'")
    with pytest.raises(SourceError, match="not UTF-8"):
        read_queries(file)


def test_failing_queries_are_left_out_and_their_reasons_quote_no_value() -> None:
    rows = {"t": pa.table({"x": ["secret-value", "2"]})}
    queries = ["select count(*) from t", "select count(*) from t where cast(x as int) > 1", "select x from t limit 1"]
    found = run_workload([*queries, "not sql at all ((", "select * from 'spec.yaml'"], rows, rows)
    assert [answer.true for answer in found.answers] == [2]
    assert [number for number, _ in found.failed] == [2, 3, 4, 5]
    assert "secret-value" not in str(found.failed)


def test_postgres_dialect_is_understood() -> None:
    rows = {"t": pa.table({"x": ["a", None, "b"]})}
    assert run_workload(["select count(*) from t where x ~ '^[ab]$'"], rows, rows).answers[0].true == 2
    assert run_workload(["select count(*)::int from t where x is distinct from 'a'"], rows, rows).answers[0].true == 2


def test_a_workload_without_answers_has_no_q_error() -> None:
    found = run_workload(["select count(*) from nowhere"], {}, {})
    assert found.errors is None
    assert found.to_dict()["q_error"] is None


def test_the_page_shows_the_banner_first_and_escapes_names() -> None:
    odd = {"customer": "<script>alert(1)</script>"}
    source = database()
    schema = Schema("a<b", SHOP.tables, "customer")
    pair = Pair(schema, source, source)
    workload = run_workload([f"select count(*) from customer where plan <> '{odd['customer']}'"], source, source)
    subject = Subject("a<b", "bundle", "", 2.0)
    page = render(subject, pair, compare(pair), workload)
    assert page.index("Do not publish") < page.index("<h1>")
    assert "a&lt;b" in page
    assert "<script" not in page
    assert "Public tables are published as they are: tag" in page
    assert "divided by its scale" in page
    assert render(subject, pair, compare(pair), workload) == page
    assert metrics(subject, compare(pair), None)["workload"] is None


def test_the_subject_is_read_from_the_manifest() -> None:
    promise = {"guarantee": {"add_or_remove_one_unit": {"epsilon": 0.8, "delta": 0}}, "sampling": {"scale": 10}}
    found = subject_of("b", {"database": "shop", "privacy": promise})
    assert found == Subject("shop", "b", "ε=0.8, δ=0 for adding or removing one unit", 10.0)
    assert subject_of("b", {"database": "shop"}) == Subject("shop", "b", "")


@pytest.mark.parametrize("ordered", [True, False])
def test_large_domains_are_condensed_without_losing_order_or_the_largest(ordered: bool) -> None:
    shares = np.zeros(600)
    shares[[3, 599]] = [0.75, 0.25]
    source, synthetic = plots._condensed(shares, shares, ordered=ordered)
    assert len(source) == 60
    assert source.sum() == pytest.approx(1)
    assert source[0] == 0.75
    assert np.array_equal(source, synthetic)
