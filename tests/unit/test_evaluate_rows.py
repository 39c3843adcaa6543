"""Row-level distances: none between equal databases, the planted ones found, and what shuffling keeps and loses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.evaluation.inputs import shuffled_reference
from privbench_core.evaluation.joins import LinkedTables
from privbench_core.schema.columns import Column, ColumnType, Learn
from privbench_core.schema.tables import Schema, Table
from tests.helpers.heavy_tails import CONVERGING, Database, chain, many_to_many, optional_keys
from tests.helpers.planted import codes_of, integer, rows_of
from tests.helpers.row_cases import CASES, FEW_GAMES, bestsellers, few_customers, hospital_stays, seasons
from tests.helpers.row_figures import popularity_distance, row_figures, size_class_distance

KINDS = ("rows", "one_way", "joined", "further", "fanout", "group_size", "popularity", "by_name")


def rekeyed(schema: Schema, tables: dict[str, pa.Table], seed: int = 0) -> dict[str, pa.Table]:
    """The same database with private rows in another order, and new keys in the place of single-column ones."""
    rng = np.random.default_rng(seed)
    made = {name: rows.take(pa.array(rng.permutation(rows.num_rows))) for name, rows in tables.items()}
    for table in (t for t in schema.private_tables if t.primary_key == ("id",)):
        new = rng.permutation(tables[table.name].num_rows) + 10**6
        holders = [(table.name, "id")]
        holders += [(k.child, k.columns[0]) for t in schema.tables for k in t.foreign_keys if k.parent == table.name]
        for name, column in holders:
            old = made[name][column].combine_chunks()
            where = made[name].column_names.index(column)
            made[name] = made[name].set_column(where, column, pa.array(new).take(old))
    return {name: made[name] if name in {t.name for t in schema.private_tables} else tables[name] for name in made}


@pytest.mark.parametrize("make", CONVERGING.values(), ids=CONVERGING.keys())
def test_other_keys_in_another_order_are_no_difference(make: Callable[[], Database]):
    schema, tables = make()
    figures = row_figures(schema, tables, rekeyed(schema, tables))
    assert figures.beyond(**dict.fromkeys(KINDS, 1e-9)) == {}


@pytest.mark.parametrize("make", {**CONVERGING, **CASES}.values(), ids={**CONVERGING, **CASES}.keys())
def test_generators_are_pure_and_keep_their_declared_bounds_and_domains(make: Callable[[], Database]):
    schema, tables = make()
    again = make()[1]
    assert all(tables[name].equals(again[name]) for name in tables)
    for table in schema.tables:
        for key in table.foreign_keys:
            references = tables[table.name][key.columns[0]].drop_null().to_numpy()
            assert set(references) <= set(tables[key.parent]["id"].to_numpy())
            assert key.max_children is None or np.bincount(references).max() <= key.max_children, key.name
        for column in (c for c in table.attributes if hasattr(c.domain, "low")):
            values = tables[table.name][column.name].to_numpy()
            assert column.domain.low <= values.min() <= values.max() <= column.domain.high, column.name


@pytest.mark.parametrize("make", CONVERGING.values(), ids=CONVERGING.keys())
def test_the_shuffled_reference_keeps_counts_and_loses_every_join(make: Callable[[], Database]):
    schema, tables = make()
    reference = shuffled_reference(schema, tables, 0)
    figures = row_figures(schema, tables, reference)
    kept = ("rows", "one_way", "fanout", "group_size", "popularity", "by_name")
    assert figures.beyond(**dict.fromkeys(kept, 1e-9)) == {}
    along = {key.name for table in schema.private_tables for key in table.foreign_keys}
    for name in along:
        worst = max(value for pair, value in figures.joined.items() if pair.startswith(f"{name}: "))
        assert worst > 0.1, name
    assert reference["user" if "user" in tables else schema.unit].schema == tables[schema.unit].schema


def test_a_table_of_uniform_sizes_is_found_out():
    schema, tables = chain(1000)
    rng = np.random.default_rng(0)
    orders = tables["order"]
    spread = orders.set_column(1, "user_id", pa.array(rng.integers(0, 1000, orders.num_rows)))
    figures = row_figures(schema, tables, {**tables, "order": spread})
    assert figures.fanout["order.user_id"] > 0.2
    assert figures.group_size["order.user_id"] > 0.3
    assert figures.beyond(rows=1e-9, one_way=1e-9) == {}


def test_wide_columns_are_compared_in_bins_that_hold_enough_rows():
    schema, tables = seasons(3000)
    other = seasons(3000, seed=1)[1]
    figures = row_figures(schema, tables, other)
    assert figures.one_way["season.at_bats"] < 0.05  # 701 codes: value by value another draw is .1 away
    hits = tables["season"]["hits"].to_numpy() // 2
    halved = tables["season"].set_column(tables["season"].column_names.index("hits"), "hits", pa.array(hits))
    assert row_figures(schema, tables, {**tables, "season": halved}).one_way["season.hits"] > 0.1


def test_missing_rows_are_signed_and_named():
    schema, tables = chain(500)
    half = {**tables, "item": tables["item"].slice(0, tables["item"].num_rows // 2)}
    figures = row_figures(schema, tables, half)
    assert figures.beyond(rows=0.01) == {"rows of item": pytest.approx(-0.5, abs=0.001)}


def test_size_classes_are_powers_of_two():
    sizes = np.array([0, 1, 2, 4, 8])
    assert size_class_distance(sizes, np.array([0, 1, 3, 7, 15])) == 0
    assert size_class_distance(sizes, np.array([0, 1, 3, 8, 15])) == pytest.approx(0.2)
    assert size_class_distance(np.array([0, 0]), np.array([1, 1])) == 1


def linked(*counts: int, none: int = 0) -> LinkedTables:
    """Parents with these numbers of children, and some children without a parent."""
    links = np.append(np.repeat(np.arange(len(counts)), counts), np.full(none, -1)).astype(np.int64)
    empty = np.zeros((len(counts), 0), np.int64)
    return LinkedTables(empty, (), np.zeros((len(links), 0), np.int64), (), links)


def test_popularity_is_the_share_of_references_at_another_rank():
    assert popularity_distance(linked(6, 2, 2), linked(2, 2, 6)) == 0
    assert popularity_distance(linked(6, 2), linked(4, 4)) == pytest.approx(0.25)
    assert popularity_distance(linked(6, 2), linked(12, 4)) == 0
    assert popularity_distance(linked(6, 2), linked(6, 6, 2, 2)) == pytest.approx(0)
    assert popularity_distance(linked(4), linked(2, none=2)) == pytest.approx(0.5)
    assert popularity_distance(linked(4, 0), linked(0, 0)) == 1
    assert popularity_distance(linked(), linked()) == 0


def test_popularity_of_public_rows_is_kept_by_name():
    schema, tables = bestsellers(500)
    sales = tables["sale"]
    renamed = sales.set_column(2, "product_id", pa.array((sales["product_id"].to_numpy() + 1) % 400))
    figures = row_figures(schema, tables, {**tables, "sale": renamed})
    assert figures.popularity["sale.product_id"] == 0
    assert figures.by_name["sale.product_id"] > 0.5


def test_values_that_few_rows_have_are_one_code():
    """Numbers of documents, which nobody can name: other ones are no error, one frequent value less is."""
    column = Column("code", ColumnType.CATEGORY, Learn())
    table = Table("unit", (integer("id"), column), ("id",))
    schema = Schema("papers", (table,), "unit")

    def rows(prefix: str, frequent: str) -> dict[str, pa.Table]:
        values = [frequent] * 300 + [f"{prefix}{i}" for i in range(2700)]
        return {"unit": rows_of(table, id=np.arange(3000), code=pa.array(values))}

    source = rows("a", "often")
    assert row_figures(schema, source, rows("b", "often")).one_way["unit.code"] == pytest.approx(31 / 3000)
    assert row_figures(schema, source, rows("a", "never")).one_way["unit.code"] == pytest.approx(0.1)


def test_chains_and_parents_that_meet_are_compared():
    schema, tables = chain(300)
    assert "item.order_id → order.user_id: level, price" in row_figures(schema, tables, tables).further
    schema, tables = many_to_many(300, 20)
    name = "enrolment.student_id and enrolment.course_id: year, level"
    assert name in row_figures(schema, tables, tables).further


def test_an_empty_synthetic_table_is_as_far_away_as_can_be():
    schema, tables = optional_keys(200)
    figures = row_figures(schema, tables, {**tables, "vote": tables["vote"].slice(0, 0)})
    worst = figures.worst()
    assert (worst["rows"], worst["one_way"], worst["popularity"]) == (1, 1, 1)


def test_what_there_is_nothing_of_is_not_a_number_and_never_beyond_a_limit():
    schema, tables = few_customers()
    figures = row_figures(schema, tables, tables)
    assert np.isnan(figures.worst()["popularity"])
    assert np.isnan(figures.mean()["by_name"])
    broken = replace(figures, rows={"order": float("nan")})
    assert list(broken.beyond(rows=0.1, popularity=0)) == ["rows of order"]


def test_cases_are_what_their_docstrings_say():
    _, tables = few_customers()
    assert (tables["customer"].num_rows, tables["order"].num_rows) == (89, 830)
    _, tables = hospital_stays()
    assert [tables[n].num_rows for n in ("stay", "chart", "input", "output")] == [2520, 42_080, 38_256, 5_436]
    _, tables = bestsellers()
    sold = np.sort(np.bincount(tables["sale"]["product_id"].to_numpy()))
    assert sold[-2:].sum() / sold.sum() == pytest.approx(0.6, abs=0.02)
    _, tables = seasons()
    few, player = tables["season"]["games"].to_numpy() < FEW_GAMES, tables["season"]["player_id"].to_numpy()
    weight = 1 / np.bincount(player)[player]
    assert few.mean() == pytest.approx(0.32, abs=0.02)
    assert np.average(few, weights=weight) == pytest.approx(0.5, abs=0.02)


def test_columns_of_the_chain_follow_the_size_of_the_group():
    _, tables = chain()
    orders = np.bincount(tables["order"]["user_id"].to_numpy(), minlength=tables["user"].num_rows)
    assert np.corrcoef(np.log2(np.maximum(orders, 1)), tables["user"]["level"].to_numpy())[0, 1] > 0.6
    kind = codes_of(tables["order"]["kind"])
    large = orders[tables["order"]["user_id"].to_numpy()] >= 16
    assert kind[large].mean() - kind[~large].mean() > 2
