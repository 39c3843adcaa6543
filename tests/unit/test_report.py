"""Reports: figures that are known in advance, the verdict, alarms, and the page."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privbench_core.errors import PublishError, SourceError
from privbench_core.evaluation import (
    BundleAndSource,
    BundleSummary,
    DatabasePair,
    read_bundle_and_source,
    summarize_bundle,
)
from privbench_core.evaluation.comparison import FANOUT_METRICS, JOIN_METRICS, Comparison, TableFigures, compare
from privbench_core.evaluation.evaluation import Evaluation, evaluate_bundle, judge
from privbench_core.evaluation.marginals import BRIEF, MarginalDistances, Scope
from privbench_core.evaluation.privacy_figures import alarms_of, odds, privacy_figures
from privbench_core.evaluation.q_error import WorkloadResult, run_workload
from privbench_core.explain.comparison import ComparedQuery, PlanComparison, RunTimeSettings
from privbench_core.explain.plan import Explained, QueryPlan
from privbench_core.publishing import write_bundle
from privbench_core.publishing.verdicts import Grade
from privbench_core.report import advice_on, plots, render
from privbench_core.schema.columns import Column, ColumnType, Learn, Range, Values
from privbench_core.schema.tables import Schema, Table
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import FidelityPolicy
from privbench_core.version import __version__
from privbench_core.workload import Workload
from tests.conftest import Town
from tests.helpers.databases import shop
from tests.helpers.planted import integer, owner_key

SMALL = Scope(orders=(1, 2, 3), counting=100)
POLICY = FidelityPolicy()
PLAN = Column("plan", ColumnType.CATEGORY, Values(("free", "paid")))
KIND = Column("kind", ColumnType.CATEGORY, Learn())
OF_CUSTOMER = (integer("id"), integer("customer"))
SHOP = Schema(
    "shop",
    (
        Table("customer", (integer("id"), integer("age", 0, 99), PLAN), ("id",)),
        Table("purchase", (*OF_CUSTOMER, KIND), ("id",), (owner_key("purchase", "customer", "customer", 4),)),
        Table("tag", (integer("id"),), ("id",), public=True),
        Table("visit", OF_CUSTOMER, ("id",), (owner_key("visit", "customer", "customer", 4),)),
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


def lost_links() -> dict[str, pa.Table]:
    """The same tables, but what is bought has nothing to do with who buys it."""
    broken = database()
    shuffled = np.random.default_rng(3).permutation(broken["purchase"]["kind"].to_numpy(zero_copy_only=False))
    return broken | {"purchase": broken["purchase"].set_column(2, "kind", pa.array(shuffled, pa.string()))}


def test_a_database_is_at_no_distance_from_itself_and_shuffling_is() -> None:
    found = compare(DatabasePair(SHOP, database(), database()), SMALL)
    assert list(found.tables) == ["customer", "purchase", "visit"]
    customer, key = found.tables["customer"], found.keys["purchase.customer"]
    assert (customer.tvd(1), customer.tvd(2), customer.tvd(3)) == (0, 0, None)
    assert customer["tvd_of_values"] == {1: 0, 2: 0, 3: None}
    assert customer["shuffled"] > 0.3
    assert [key[name] for name in ("joint", "three", "fanout_tvd", "siblings")] == [0, 0, 0, 0]
    kinds = [(f["children"], f["attributes"], f["queries"], f["mean"]) for f in key["counting"]]
    assert kinds == [(1, 1, 25, 0), (1, 2, 25, 0), (2, 1, 25, 0), (2, 2, 25, 0)]
    assert key["shuffled"] > 0.2
    assert found.tables["visit"].tvd(1) is None
    assert judge(found.verdicts(POLICY)).grade is Grade.CLOSE
    assert found.overall[2]["codes"] == MarginalDistances(0, 0)
    assert json.loads(json.dumps(found.to_dict()))["overall"]["2"]["values"]["kld"] == pytest.approx(0)


def test_lost_links_are_found_although_tables_agree() -> None:
    found = compare(DatabasePair(SHOP, database(), lost_links()), SMALL)
    key = found.keys["purchase.customer"]
    assert found.tables["purchase"].tvd(1) == 0
    assert key["joint"] == pytest.approx(key["shuffled"], rel=0.2)
    assert key["joint"] > 0.2
    assert max(f["mean"] for f in key["counting"]) > 0.2


def test_values_and_codes_differ_where_nearly_every_value_is_unique() -> None:
    wide = Schema("w", (Table("t", (integer("id"), integer("v", 0, 10**6)), ("id",)),), "t")
    a, b = (
        {"t": pa.table({"id": np.arange(2000), "v": np.random.default_rng(seed).integers(0, 10**6, 2000)})}
        for seed in (0, 1)
    )
    figures = compare(DatabasePair(wide, a, b), SMALL).tables["t"]
    assert figures["kld"][1] < 0.3
    assert figures["kld_of_values"][1] > 10
    assert figures["tvd_of_values"][1] > 0.9


def test_documents_are_compared_by_their_leaves_which_are_shuffled_together() -> None:
    """Documents have one of two forms, each with its own leaf; in the bundle the numbers of one are all the same."""
    payload = Column("payload", ColumnType.JSON, Learn())
    schema = Schema("d", (Table("event", (integer("id"), payload), ("id",)),), "event")

    def events(number: str) -> dict[str, pa.Table]:
        texts = [
            f'{{"plan": "p{i % 3}"}}' if i % 2 else f'{{"tags": ["a"], "ms": {number.format(i % 7)}}}'
            for i in range(420)
        ]
        return {"event": pa.table({"id": np.arange(420), "payload": texts})}

    source = events("{}")
    figures = compare(DatabasePair(schema, source, events("3")), SMALL).tables["event"]
    distances = {name: facts["tvd"] for name, facts in figures["columns"].items() if name.startswith("payload->")}
    assert distances.pop('payload->integer["ms"]') == pytest.approx(3 / 7, abs=0.01)
    assert distances == dict.fromkeys(("payload->shape[]", 'payload->text["plan"]', 'payload->text["tags",-1]'), 0)
    assert figures["without_values"] == ()
    assert figures["shuffled"] == 0
    assert compare(DatabasePair(schema, source, source), SMALL).tables["event"].tvd(2) == 0


def test_nulls_and_distinct_values_are_counted_for_keys_too() -> None:
    half = database()
    kind = pa.array([None if i % 2 else "book" for i in range(half["purchase"].num_rows)])
    half["purchase"] = half["purchase"].set_column(2, "kind", kind)
    columns = compare(DatabasePair(SHOP, database(), half), BRIEF).tables["purchase"]["columns"]
    assert (columns["kind"]["nulls"], columns["kind"]["distinct"]) == ((0, 0.5), (2, 1))
    assert (columns["customer"]["tvd"], columns["customer"]["distinct"]) == (None, (400, 400))


def test_chains_and_meetings_have_figures_of_their_own() -> None:
    example = shop(2, units=120, learned=False)
    found = compare(DatabasePair(example.schema, example.tables, shop(3, units=120, learned=False).tables), SMALL).joins
    assert found["item.order_id → order.user_id → user"]["tables"] == ("user", "item")
    assert "order ← item.order_id, item.product_id → product" in found


def comparison(*tables: float, **join: float) -> Comparison:
    """Tables at these distances from the source, and a join with these figures."""
    found = {str(i): TableFigures(tvd={1: tvd / 3, 2: tvd}, shuffled=0.4) for i, tvd in enumerate(tables)}
    along = dict.fromkeys(JOIN_METRICS) | join | {"tables": ("p", "0")}
    return Comparison({}, found, {"0.p": along} if join else {})


def answered(estimated: float, **more: Any) -> WorkloadResult:
    """One query with two joins and 100 rows in the source."""
    return WorkloadResult(({"query": 1, "joins": 2, "source": 100, "q_error": estimated / 100},), **more)


@pytest.mark.parametrize(
    ("distance", "estimated", "grade"),
    [
        (0.05, 100, Grade.CLOSE),
        (0.2, 100, Grade.ROUGH),
        (0.5, 100, Grade.FAR),
        (0.01, 300, Grade.ROUGH),
        (0.01, 1000, Grade.FAR),
    ],
)
def test_the_verdict_is_that_of_the_worst_table_or_workload(distance: float, estimated: float, grade: Grade) -> None:
    verdict = judge([*comparison(0.01, distance).verdicts(POLICY), *answered(estimated).verdicts()])
    assert (verdict.grade, verdict.verdicts[0].grade) == (grade, grade), "worst first"
    assert ("no closer than shuffled columns" in str(verdict.verdicts[0])) == (distance > 0.4)
    worst = "Workload" if estimated > 100 else "1"
    assert verdict.summary.startswith(f"{grade.capitalize()}: {'everything' if grade is Grade.CLOSE else worst}. ")


def test_the_verdict_says_what_is_lost_and_where_shuffled_columns_are_closer() -> None:
    (verdict,) = comparison(0.05, joint=0.2, shuffled=0.2, fanout_tvd=0.0).verdicts(POLICY)
    lost = "joined pairs along 0.p are no closer than shuffled columns (0.20 off; shuffled: 0.20)"
    assert (verdict.subject, verdict.grade, verdict.reason) == ("0", Grade.FAR, lost)
    (verdict,) = comparison(0.05, fanout_tvd=0.2).verdicts(POLICY)
    assert str(verdict) == "0: rough: children per parent along 0.p are 0.20 off"
    reference = answered(110).by_joins
    (verdict,) = answered(150, shuffled=reference).verdicts()
    assert str(verdict).endswith("With 2 joins, the source with its columns shuffled answers better")
    assert "shuffled" not in str(next(iter(answered(105, shuffled=reference).verdicts())))


def evaluation(schema: Schema = SHOP, **more: Any) -> Evaluation:
    """A report on lost links."""
    receipt = {
        "guarantee": {
            "add_or_remove_one_unit": {"epsilon": 0.8, "delta": 0},
            "replace_one_unit": {"epsilon": 1.6, "delta": 0},
            "all_releases_so_far": {"epsilon_at_most": 2.5, "delta": 0},
        },
        "spend": [
            {"step": "profile/customer", "measure": "pure", "amount": 0.6},
            {"step": "m", "measure": "pure", "amount": 0.2},
        ],
        "sampling": {"scale": 2.0},
    }
    pair = DatabasePair(schema, database(), lost_links())
    subjects = BundleAndSource(BundleSummary(schema.name, "bundle", receipt), pair, {"README.md": "about"})
    return Evaluation(subjects, compare(pair, SMALL), privacy_figures(subjects, lambda tables: tables), **more)


@pytest.fixture(scope="module")
def report() -> Evaluation:
    return evaluation()


def test_every_metric_of_joins_is_in_the_file_and_on_the_page(report: Evaluation) -> None:
    key, page = report.to_dict()["foreign_keys"]["purchase.customer"], html.unescape(render(report))
    for name, label in (JOIN_METRICS | FANOUT_METRICS).items():
        assert key[name] is not None
        assert label in page


def test_privacy_is_put_into_words_and_numbers(report: Evaluation) -> None:
    found = report.privacy
    assert found["odds"]["right"] == pytest.approx(0.69, abs=0.001)
    assert [step["share"] for step in found["spent"]] == pytest.approx([0.75, 0.25])
    assert found["all_releases_so_far"] == {"epsilon": 2.5, "delta": 0}
    assert odds(800, 0) == {"right": 1, "advantage": 1, "factor": None}
    assert odds(1e-9, 0.5)["right"] == pytest.approx(0.75)


def test_alarms_say_what_must_not_be(report: Evaluation) -> None:
    caught = {"name": "guessing", "epsilon": 2.0}
    found = list(alarms_of(report.privacy | {"membership_attacks": [caught]}))
    assert any(
        "same key" in alarm for alarm in found if alarm.startswith("customer.id: ")
    )  # customers are those of the source, key by key
    assert any("proves ε ≥" in alarm and "0.8 was promised" in alarm for alarm in found)
    assert not any("toy" in alarm or "book" in alarm for alarm in found)


def test_without_a_promise_and_a_plan_there_is_nothing_to_attack() -> None:
    pair = DatabasePair(SHOP, database(), database(1))
    found = privacy_figures(BundleAndSource(BundleSummary("shop", "b", {}), pair, {}), None)
    assert {found[name] for name in ("add_or_remove_one_unit", "odds", "all_releases_so_far")} == {None}
    assert found["membership_attacks"] == found["spent"] == []
    assert found["unit"] == SHOP.unit_in_words


def test_the_page_shows_the_banner_first_and_escapes_names() -> None:
    source, odd = database(), "select count(*) from customer where plan <> '<script>alert(1)</script>'"
    workload = run_workload(Workload.of([odd, "select nonsense from nowhere"]), source, source)
    report = evaluation(Schema("a<b", SHOP.tables, "customer"), workload=workload)
    page = render(report)
    assert (
        page.index("Do not publish") < page.index("<h1>") < page.index('class="alarm"') < page.index('class="verdict')
    )
    assert "a&lt;b" in page
    assert "<script" not in page
    assert not re.search(r"""(src|href)=["']?(https?:|//)""", page)
    assert "Public tables are published unchanged: tag" in page
    assert "divided by its scale" in page
    assert page.count("Exactly") == 2 * page.count("Query heat map") > 0
    assert "69.0%" in page
    assert render(report) == page


def test_the_page_says_when_by_what_and_what_to_do(report: Evaluation) -> None:
    report = replace(report, source_state="The source is as it was.")
    page = render(report)
    assert f"Evaluated on {report.at} with privbench {__version__}" in page
    assert "The source is as it was." in page
    assert "prefers-color-scheme: dark" in page
    assert report.to_dict()["source_state"] == "The source is as it was."
    advised = report.verdict.grade is not Grade.CLOSE
    assert ("What to do" in page) == bool(list(advice_on(report))) == advised
    assert advised, "the figures of this database are far from it"
    assert any("larger ε" in line for line in advice_on(report))


def test_run_times_are_shown_with_their_noise(report: Evaluation) -> None:
    scan, other = (Explained(QueryPlan(name), 1, 1, (), (), pages=10) for name in ("scan", "other"))
    times = [
        ComparedQuery(i, f"select {i}", ("", ""), ([1.0 + i], [1.1 + i], [1.05 + i]), (scan, (scan, other)[i % 2]))
        for i in range(4)
    ]
    failed = ({"query": 9, "reason": "took too long"},)
    found = PlanComparison(tuple(times), failed, 5, RunTimeSettings(), "16.2").to_dict()
    report = replace(report, run_time=found)
    page = render(report)
    assert "the source against itself (noise of the machine)" in page
    assert "took too long" in page
    said = report.verdict.verdicts[-1]
    assert (said.grade, said.subject) == (None, "Run time")
    assert "50% of the queries have the same plan" in said.reason
    assert report.to_dict()["run_time"]["measured"] == 4


def test_a_column_whose_type_has_parameters_is_the_same_in_a_bundle(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "price": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2))})
    (tmp_path / "rows").mkdir()
    pq.write_table(rows, tmp_path / "rows" / "item.parquet")
    place = tmp_path / "spec.yaml"
    place.write_text(
        "database: shop\nsource: rows\n"
        "privacy: {unit: item, delta: 0, epsilons: [1], lifetime: {epsilon: 9, delta: 0}}\n"
        "tables:\n  item:\n    primary_key: id\n    columns:\n      id: integer\n"
        "      price: {type: decimal, precision: 10, scale: 2, domain: {min: 0, max: 9}, nullable: true}\n",
        encoding="utf-8",
    )
    spec = load_spec(place)
    bundle = write_bundle(tmp_path / "bundle", spec.schema, {"item": rows}, {})
    found = read_bundle_and_source(spec, bundle)
    assert found.pair.synthetic["item"].to_pylist() == rows.to_pylist()
    assert set(found.documents) == {"README.md", "schema.sql", "load.sql", "load.duckdb.sql", "statistics.sql"}


def test_a_bundle_of_another_schema_or_damaged_is_one_clear_error(town: Town, town_spec: Path, tmp_path: Path) -> None:
    spec = load_spec(town_spec)
    bundle = write_bundle(tmp_path / "bundle", spec.schema, town.tables, {})
    household, person = spec.schema.tables
    floats = tuple(replace(c, type=ColumnType.FLOAT) if c.name == "rooms" else c for c in household.columns)
    more = replace(household, columns=(*floats, Column("cars", ColumnType.INTEGER, Range(0, 9))))
    other = replace(spec, schema=Schema("town", (more, person), "household"))
    with pytest.raises(
        PublishError, match=r"rooms is integer in the bundle and float.*household\.cars is missing; use the spec"
    ):
        read_bundle_and_source(other, bundle)
    with pytest.raises(PublishError, match="table elsewhere is missing"):
        read_bundle_and_source(
            replace(spec, schema=Schema("town", (replace(household, name="elsewhere"),), "elsewhere")), bundle
        )
    with (bundle / "data" / "person.parquet").open("ab") as file:
        file.write(b"x")
    with pytest.raises(PublishError, match="checksum"):
        evaluate_bundle(spec, bundle)


def test_a_sam_workload_needs_a_database_of_one_table(town_spec: Path, tmp_path: Path) -> None:
    file = tmp_path / "w.json"
    file.write_text('{"query_list": [], "card_list": []}', encoding="utf-8")
    with pytest.raises(SourceError, match="has several; write SQL"):
        evaluate_bundle(load_spec(town_spec), tmp_path, workload=file)


def test_the_subject_is_read_from_the_manifest() -> None:
    promise = {"guarantee": {"add_or_remove_one_unit": {"epsilon": 0.8, "delta": 0}}, "sampling": {"scale": 10}}
    found = summarize_bundle("b", {"database": "shop", "privacy": promise | {"software": {"synthesizer": "x"}}})
    assert (found.database, found.scale, found.synthesizer) == ("shop", 10.0, "x")
    assert found.guarantee_in_words == "ε=0.8, δ=0 for adding or removing one unit"
    assert summarize_bundle("b", {"database": "shop"}).guarantee_in_words == ""


def _condensed(*shares: np.ndarray, ordered: bool) -> list[np.ndarray]:
    groups = plots._groups(shares[0], ordered=ordered, most=60)
    return [np.array([share[group].sum() for group in groups]) for share in shares]


@pytest.mark.parametrize("ordered", [True, False])
def test_large_domains_are_condensed_without_losing_order_or_the_largest(ordered: bool) -> None:
    shares = np.zeros(600)
    shares[[3, 599]] = [0.75, 0.25]
    source, synthetic = _condensed(shares, shares, ordered=ordered)
    assert len(source) <= 60
    assert source.sum() == pytest.approx(1)
    assert list(source[source > 0]) == [0.75, 0.25]
    assert np.array_equal(source, synthetic)
