"""Row-level distances: none between equal databases, and what shuffling keeps and loses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.evaluation import shuffled_reference
from privbench_core.evaluation.joins import LinkedTables
from privbench_core.schema.tables import Schema
from tests.helpers.heavy_tails import CONVERGING, Database
from tests.helpers.row_cases import bestsellers
from tests.helpers.row_figures import popularity_distance, row_figures

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
