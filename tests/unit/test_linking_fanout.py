from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.engines.memory import PrivateDatabase
from privbench_core.links.fanout import Fanout
from privbench_core.links.measure_fanout import Ownership, fit_fanout
from privbench_core.privacy.budget import Measure, Price
from privbench_core.privacy.filter import PrivacyFilter
from privbench_core.privacy.session import PrivateSession
from privbench_core.schema.tables import Schema, Table
from tests.helpers.planted import (
    PLENTY,
    NoNoise,
    category,
    codes_of,
    door_of,
    draw_exactly,
    integer,
    joint_of,
    owner_key,
    planted_pair,
    profile_of,
    rows_of,
    texts,
    tvd,
)


def places(parent: pa.Table, child: pa.Table, column: str = "parent_id") -> np.ndarray:
    """Row number of the parent of each child."""
    at = {value: row for row, value in enumerate(parent.column("id").to_pylist())}
    return np.array([at[value] for value in child.column(column).to_pylist()], dtype=np.int64)


def children_by(parent: pa.Table, child: pa.Table, most: int = 5) -> np.ndarray:
    """Relative frequencies of (parent's a, number of children)."""
    number = np.bincount(places(parent, child), minlength=parent.num_rows)
    return joint_of({"a": codes_of(parent.column("a")), "n": number}, {"a": 3, "n": most + 1}, "a", "n")


def joined(parent: pa.Table, child: pa.Table, above: str = "a", size: int = 3) -> np.ndarray:
    """Relative frequencies of (parent's ``above``, child's b) over children."""
    values = {"a": codes_of(parent.column(above))[places(parent, child)], "b": codes_of(child.column("b"))}
    return joint_of(values, {"a": size, "b": 3}, "a", "b")


def test_a_child_model_with_sum_nodes_still_follows_the_parent():
    schema, tables = planted_pair(4000)
    made = {n: s.table for n, s in draw_exactly(schema, tables, beta=300).items()}
    assert tvd(children_by(made["parent"], made["child"]), children_by(tables["parent"], tables["child"])) < 0.04
    assert tvd(joined(made["parent"], made["child"]), joined(tables["parent"], tables["child"])) < 0.06


def test_the_papers_leaves_follow_the_parent_too():
    schema, tables = planted_pair(2000)
    made = {n: s.table for n, s in draw_exactly(schema, tables, beta=300, alpha=0.05).items()}
    assert tvd(joined(made["parent"], made["child"]), joined(tables["parent"], tables["child"])) < 0.1


def fitted(session=None, price=PLENTY) -> tuple[Fanout, dict[str, pa.Table], Schema]:
    schema, tables = planted_pair(1000)
    parent, child = schema.tables
    above, below = profile_of(parent, tables["parent"]), profile_of(child, tables["child"], rows_per_unit=8)
    key = child.foreign_keys[0]
    door = session or door_of(schema, tables)
    return fit_fanout(door, Ownership(key, above, below), price), tables, schema


def test_where_noise_hides_all_joints_numbers_of_children_get_the_whole_price():
    schema, tables = planted_pair(1000)
    price, spent = Price(Measure.GDP, 1e-5), []
    account = PrivacyFilter(price, lambda label, cost: spent.append((label, cost.amount)))
    fanout, *_ = fitted(PrivateSession(PrivateDatabase(schema, tables, bytes(16)), account, NoNoise(), "t"), price)
    assert not fanout.fanout_tables
    assert not fanout.pair_tables
    assert sum(cost for label, cost in spent if "children" in label) == pytest.approx(price.amount)


def two_tables(parent: Table, child: Table) -> Schema:
    return Schema("two", (parent, child), "parent")


BARE_PARENT = Table("parent", (integer("id"),), ("id",))
BARE_CHILD = Table(
    "child", (integer("id"), integer("parent_id")), ("id",), (owner_key("child", "parent_id", "parent", 3),)
)


def test_tables_of_keys_alone_keep_the_number_of_children():
    rng = np.random.default_rng(0)
    number = rng.choice(4, 900, p=[0.4, 0.1, 0.2, 0.3])
    home = np.repeat(np.arange(900), number)
    tables = {
        "parent": rows_of(BARE_PARENT, id=np.arange(900)),
        "child": rows_of(BARE_CHILD, id=np.arange(len(home)), parent_id=home),
    }
    made = draw_exactly(two_tables(BARE_PARENT, BARE_CHILD), tables)
    found = np.bincount(places(made["parent"].table, made["child"].table), minlength=900)
    assert np.bincount(found, minlength=4) == pytest.approx(np.bincount(number, minlength=4), abs=2)


def test_a_parent_without_attributes_still_tells_children_how_many_they_are():
    """Children that are alone have another b than children in a crowd."""
    child = Table("child", (*BARE_CHILD.columns, category("b", 2)), ("id",), BARE_CHILD.foreign_keys)
    number = np.tile([1, 3], 500)
    home = np.repeat(np.arange(1000), number)
    b = (number[home] == 3).astype(int)
    tables = {
        "parent": rows_of(BARE_PARENT, id=np.arange(1000)),
        "child": rows_of(child, id=np.arange(len(home)), parent_id=home, b=texts(b)),
    }
    made = draw_exactly(two_tables(BARE_PARENT, child), tables)
    where = places(made["parent"].table, made["child"].table)
    crowd = np.bincount(where, minlength=1000)[where]
    assert ((crowd == 3) == (codes_of(made["child"].table.column("b")) == 1)).mean() > 0.97


def test_one_to_one_tables_share_their_key():
    parent = Table("parent", (integer("id"), category("a", 2)), ("id",))
    child = Table("child", (integer("id"), category("b", 2)), ("id",), (owner_key("child", "id", "parent", 1),))
    a = np.random.default_rng(0).integers(0, 2, 1000)
    has = np.flatnonzero((a == 1) | (np.arange(1000) % 4 == 0))
    tables = {
        "parent": rows_of(parent, id=np.arange(1000), a=texts(a)),
        "child": rows_of(child, id=has, b=texts(a[has])),
    }
    made = {n: s.table for n, s in draw_exactly(two_tables(parent, child), tables).items()}
    ids = made["child"].column("id").to_pylist()
    assert len(set(ids)) == len(ids) == pytest.approx(len(has), abs=3)
    where = places(made["parent"], made["child"], "id")
    above = codes_of(made["parent"].column("a"))
    assert (above[where] == codes_of(made["child"].column("b"))).mean() > 0.97
    assert np.isin(np.flatnonzero(above == 1), where).mean() > 0.97
