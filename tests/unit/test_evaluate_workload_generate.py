"""Random workloads: connected joins, literals of the rows, the same for the same seed."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
import sqlglot
from sqlglot import exp

from privbench_core.errors import SourceError
from privbench_core.evaluation.generate import Recipe, generate_workload
from privbench_core.schema.columns import Column, ColumnType, Values
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.workload.engine import Engine, constant, literal

T = ColumnType
SCHEMA = Schema(
    "forum",
    (
        Table("user", (Column("id", T.INTEGER), Column("Age", T.INTEGER), Column("bio", T.TEXT)), ("id",)),
        Table(
            "post",
            (
                Column("id", T.INTEGER),
                Column("author", T.INTEGER),
                Column("at", T.TIMESTAMP, nullable=True),
                Column("kind", T.CATEGORY, Values(("ask", "it's"))),
            ),
            ("id",),
            (ForeignKey("post", ("author",), "user", ("id",), 9, owner=True),),
        ),
        Table(
            "vote",
            (Column("id", T.INTEGER), Column("post", T.INTEGER), Column("weight", T.FLOAT)),
            ("id",),
            (ForeignKey("vote", ("post",), "post", ("id",), 9, owner=True),),
        ),
        Table("alone", (Column("id", T.INTEGER), Column("flag", T.BOOLEAN)), ("id",), public=True),
    ),
    "user",
)


def forum(users=50):
    rng = np.random.default_rng(1)
    posts = users * 3
    times = [None if i % 7 == 0 else dt.datetime(2020, 1, 1) + dt.timedelta(hours=i) for i in range(posts)]
    return {
        "user": pa.table({"id": range(users), "Age": rng.integers(18, 80, users), "bio": ["x"] * users}),
        "post": pa.table({
            "id": range(posts), "author": rng.integers(0, users, posts),
            "at": pa.array(times, pa.timestamp("us")), "kind": rng.choice(["ask", "it's"], posts),
        }),
        "vote": pa.table({"id": range(posts), "post": rng.integers(0, posts, posts), "weight": rng.random(posts)}),
        "alone": pa.table({"id": [1, 2], "flag": [True, False]}),
    }  # fmt: skip


def test_queries_differ_find_rows_and_join_along_keys():
    tables = forum()
    workload = generate_workload(SCHEMA, tables, Recipe(queries=80, max_joins=2, seed=3))
    assert workload.internal
    texts = [statement.sql for statement in workload.statements]
    assert len(set(texts)) == 80
    engine = Engine(tables)
    joins = []
    for sql in texts:
        assert engine.cardinality(engine.resolve(sql)) > 0
        tree = sqlglot.parse_one(sql, read="postgres")
        mentioned = [node.name for node in tree.find_all(exp.Table)]
        linked = [e for e in tree.find_all(exp.EQ) if isinstance(e.expression, exp.Column)]
        assert len(set(mentioned)) == len(mentioned) == len(linked) + 1
        assert "alone" not in mentioned or len(mentioned) == 1
        joins.append(len(linked))
        for column in tree.find_all(exp.Column):
            if not (isinstance(column.parent, exp.EQ) and column.parent in linked):
                assert column.name in {"Age", "at", "kind", "weight", "flag"}
    assert set(joins) == {0, 1, 2}


def test_the_seed_decides():
    tables = forum()
    once, again = (generate_workload(SCHEMA, tables, Recipe(queries=20, seed=5)) for _ in range(2))
    assert once == again
    assert once != generate_workload(SCHEMA, tables, Recipe(queries=20, seed=6))


def test_small_databases_give_fewer_queries_and_empty_ones_an_error():
    lone = Schema("lone", (SCHEMA.table("alone"),), "alone")
    rows = {"alone": forum()["alone"]}
    texts = {statement.sql for statement in generate_workload(lone, rows, Recipe(queries=50)).statements}
    everything = 'SELECT COUNT(*) FROM "alone"'
    assert texts == {everything, *(f'{everything} WHERE "alone"."flag" = {value}' for value in ("TRUE", "FALSE"))}
    with pytest.raises(SourceError, match="no table has a row"):
        generate_workload(lone, {"alone": rows["alone"].slice(0, 0)}, Recipe())


@pytest.mark.parametrize(
    "value",
    [True, -5, 0.1, 1e-300, Decimal("1E+3"), "it's", "", dt.date(2020, 2, 29), dt.datetime(2020, 2, 29, 1, 2, 3, 4)],
)
def test_literals_come_back_as_they_were(value):
    engine = Engine({})
    tree = sqlglot.parse_one(f"select {literal(value)}", read="postgres").expressions[0]
    found = constant(tree, engine)
    # DuckDB reads 0.1 as a decimal, which is the same number once a column of floats is compared with it.
    assert (float(found) if isinstance(value, float) else found) == value
    assert isinstance(found, bool) == isinstance(value, bool)


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), "a\0b", b"x", [1]])
def test_what_has_no_literal_is_told(value):
    assert literal(value) is None


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("date '1994-01-01' + interval '1' year", dt.datetime(1995, 1, 1)),
        ("1 + 2 * 3", 7),
        ("'2020-01-01'::timestamp", dt.datetime(2020, 1, 1)),
        ("a + 1", None),
        ("(select 1)", None),
        ("null", None),
        ("cast('x' as int)", None),
        ("$1", None),
    ],
)
def test_constants_are_worked_out(sql, value):
    assert constant(sqlglot.parse_one(sql, read="postgres"), Engine({})) == value


def test_every_query_has_at_least_as_many_joins_as_asked_for():
    workload = generate_workload(SCHEMA, forum(), Recipe(queries=40, min_joins=1, max_joins=2, seed=3))
    tables = {len(list(sqlglot.parse_one(s.sql, read="postgres").find_all(exp.Table))) for s in workload.statements}
    assert tables == {2, 3}
