"""Papers' tables and multi-hop figures: published lines are whole, marginals weigh alike, public parts are left out."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from benchmarks import multi_hop, papers
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from tests.helpers.planted import integer, owner_key, rows_of


def test_published_lines_have_a_figure_for_every_column():
    for line in papers.PUBLISHED_ADULT.strip().splitlines():
        assert len(line.split()) == 11, line
    for line in papers.PUBLISHED_CALIFORNIA.strip().splitlines():
        assert len(line.split(";")[2].split()) == len(papers.EPSILONS), line


def test_a_kld_is_the_mean_of_all_marginals_of_all_tables():
    one, other = np.array([[0, 0, 0]] * 8), np.array([[1, 1, 1]] * 8)
    alike, apart = papers.mean_kld([(one, one, (2, 2, 2))], 2), papers.mean_kld([(one, other, (2, 2, 2))], 2)
    assert alike == pytest.approx(0, abs=1e-6)
    both = papers.mean_kld([(one, other, (2, 2, 2)), (one[:, :2], one[:, :2], (2, 2))], 2)
    assert both == pytest.approx(apart * 3 / 4, rel=1e-3)  # three marginals of the first table, one of the second


def _database() -> tuple[Schema, dict[str, pa.Table]]:
    user = Table("user", (integer("id"), integer("age", 0, 9)), ("id",))
    town = Table("town", (integer("id"), integer("size", 0, 9)), ("id",), public=True)
    visit = Table(
        "visit",
        (integer("id"), integer("user_id"), integer("town_id"), integer("stars", 0, 5)),
        ("id",),
        (owner_key("visit", "user_id", "user", 9), ForeignKey("visit", ("town_id",), "town", ("id",))),
    )
    rows = {
        "user": rows_of(user, id=np.array([7, 5]), age=np.array([1, 2])),
        "town": rows_of(town, id=np.array([30, 20]), size=np.array([3, 4])),
        "visit": rows_of(
            visit,
            id=np.arange(3),
            user_id=np.array([5, 5, 7]),
            town_id=np.array([20, 30, 20]),
            stars=np.array([1, 2, 3]),
        ),
    }
    return Schema("trips", (user, town, visit), "user"), rows


def test_keys_become_numbers_of_rows_and_leave_the_attributes():
    schema, rows = _database()
    columns = {each.name: multi_hop.compared_columns(schema, each, rows[each.name]) for each in schema.tables}
    assert columns == {"user": ["age"], "town": ["size"], "visit": ["stars"]}
    visits = multi_hop.numbered(schema, rows, columns)["visit"]
    assert visits["key_0"].to_pylist() == [1, 1, 0]
    assert visits["key_1"].to_pylist() == [1, 0, 1]
    said = multi_hop.sdv_metadata(schema, rows, columns)
    found = [(each["parent_table_name"], each["child_foreign_key"]) for each in said["relationships"]]
    assert sorted(found) == [("town", "key_1"), ("user", "key_0")]


def test_what_is_public_alone_counts_in_no_mean():
    schema, _ = _database()
    found = {
        "town : size": 1.0,
        "visit : stars": 0.5,
        "town - visit : size stars": 0.25,
        "town - town : size size": 1.0,
    }
    assert multi_hop.of_private_parts(schema, "1-hop", found) == [0.5, 0.25]
    assert multi_hop.of_private_parts(schema, "C2ST", {"town": 0.5, "user": 0.8}) == [0.8]
    assert multi_hop.of_private_parts(schema, "C2ST-Agg", {"town": 0.9, "user": 0.8}) == [0.9, 0.8]  # counts of visits
