"""Workloads: reading files, resolving names, counting, generating, and Q-errors by joins and by cardinality."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
import sqlglot
from sqlglot import exp

from privbench_core.errors import SourceError
from privbench_core.evaluation.q_error import Recipe, WorkloadResult, generate_workload, q_errors, run_workload
from privbench_core.explain.comparison import summarize
from privbench_core.schema.columns import Column, ColumnType, Values
from privbench_core.schema.tables import Schema, Table
from privbench_core.workload import (
    Statement,
    Workload,
    read_workload,
)
from privbench_core.workload.engine import Engine, UnansweredError, constant, literal
from tests.helpers.planted import integer, owner_key

USERS = pa.table({"Id": [1, 2, 3, 4], "Views": [10, 20, None, 40], "name": ["a", "b", "it's", "secret-value"]})
POSTS = pa.table({"Id": [1, 2, 3], "ownerId": [1, 1, 3], "Score": [5, 6, 7]})
TABLES = {"users": USERS, "blogPosts": POSTS}


def written(tmp_path, text):
    file = tmp_path / "w.sql"
    file.write_text(text, encoding="utf-8")
    return file


def counted(*queries, tables=TABLES, **options):
    return run_workload(Workload.of(queries), tables, tables, **options)


def test_queries_are_split_at_semicolons_that_end_them(tmp_path):
    file = written(tmp_path, "-- one; two\nselect ';' ;;\n /* a; b */ select 2; select 3")
    assert [s.sql for s in read_workload(file).statements] == ["select ';'", "select 2", "select 3"]


def test_the_form_of_cardinality_benchmarks_is_read(tmp_path):
    file = written(tmp_path, "SELECT COUNT(*) FROM a as b WHERE b.x='p||q';||0||79\nSELECT 1||0||3\n")
    first, second = read_workload(file).statements
    assert first == Statement("SELECT COUNT(*) FROM a as b WHERE b.x='p||q'", 79)
    assert second == Statement("SELECT 1", 3)


def test_concatenation_is_not_taken_for_a_cardinality(tmp_path):
    queries = read_workload(written(tmp_path, "select name||1||2;\nselect 1;\n")).statements
    assert [s.stated for s in queries] == [None, None]
    assert queries[0].sql == "select name||1||2"


def test_a_file_may_be_in_the_dialect_of_duckdb(tmp_path):
    read = read_workload(written(tmp_path, "-- dialect: DuckDB\nselect count(*) from users where Views // 20 = 1"))
    assert read.dialect == "duckdb"
    assert run_workload(read, TABLES, TABLES).answers[0]["source"] == 1
    assert read_workload(written(tmp_path, read.to_sql())) == read
    with pytest.raises(SourceError, match="dialect mysql is unknown; known: duckdb, postgres"):
        read_workload(written(tmp_path, "-- dialect: mysql\nselect 1"))


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"select '\xff\xfe'", "not UTF-8"), (b"-- nothing", "holds no query"), (b"select 'open", "left open")],
)
def test_files_that_hold_no_workload_are_refused(tmp_path, content, message):
    (tmp_path / "w.sql").write_bytes(content)
    with pytest.raises(SourceError, match=message):
        read_workload(tmp_path / "w.sql")
    with pytest.raises(SourceError, match="cannot be read"):
        read_workload(tmp_path / "none.sql")


@pytest.mark.parametrize(
    "sql",
    [
        "select count(*) from BLOGPOSTS where OWNERID = 1",
        'select count(*) from public."blogPosts" p where P.ownerid = 1',
        "select count(*) from blogposts where BlogPosts.ownerId = 1",
        "with mine as (select OwnerId as OwnerId from blogPosts) select count(*) from mine m where m.ownerid = 1",
        "select count(*) from users u, blogposts p where u.id = p.ownerid and u.views = 10",
        "select x from blogposts b cross join lateral (select b.ownerid as x) y where x = 1",
    ],
)
def test_names_are_found_whatever_their_case(sql):
    engine = Engine(TABLES)
    query = engine.resolve(sql)
    assert engine.cardinality(query) == 2
    # In PostgreSQL the schema's spelling needs quotes.
    assert '"blogPosts"' in query.tree.sql("postgres")
    assert '"ownerId"' in query.tree.sql("postgres")


def test_a_column_that_tables_spell_differently_follows_its_qualifier():
    tables = {"a": pa.table({"Id": [1, 2]}), "b": pa.table({"ID": [2, 3]})}
    query = Engine(tables).resolve("select count(*) from a x, b y where x.id = y.id")
    assert query.tree.sql("postgres").endswith('WHERE x."Id" = y."ID"')
    with pytest.raises(UnansweredError, match="id: tables spell this column in several ways"):
        Engine(tables).resolve("select count(*) from a, b where id = 1")


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("select count(*)::int from users where Views > 10", 2),
        ("select count(distinct ownerId) from blogposts", 2),
        ("select sum(score), max(score) from blogposts where ownerid = 1 order by 1 limit 1", 2),
        ("select name from users order by views", 4),
        ("select id from users order by id limit 3", 3),
        ("select ownerid, count(*) from blogposts group by ownerid", 2),
        ("select count(*) from blogposts group by ownerid", 2),
        ("select distinct ownerid from blogposts union all select 1", 3),
        ("select count(*) over () from users", 4),
        ("select count(*) from users where name ~ '^[ab]$'", 2),
        ("select count(*) from users where views is distinct from 10", 3),
    ],
)
def test_cardinality_is_what_is_counted_aggregated_or_returned(sql, rows):
    assert counted(sql).answers[0]["source"] == rows


def test_failing_queries_are_left_out_and_their_reasons_quote_no_value():
    found = counted(
        "select count(*) from users",
        "select count(*) from users where cast(name as int) > 1",
        "not sql at all ((",
        "select * from 'spec.yaml'",
        "select * from read_text('/etc/hostname')",
        "delete from users",
        "select count(*) from user",
        "select count(*) from users where age > 3",
        "select count(*) from pg_catalog.pg_class",
    )
    assert [answer["query"] for answer in found.answers] == [1]
    reasons = {each["query"]: each["reason"] for each in found.failed}
    assert list(reasons) == [2, 3, 4, 5, 6, 7, 8, 9]
    assert reasons[2] == "failed while running (ConversionException) (on the source)"
    assert reasons[3] == "not understood as PostgreSQL"
    assert reasons[6] == "not a SELECT"
    assert reasons[7] == "user: no such table; did you mean 'users'?"
    assert '"age"' in reasons[8]
    assert "schema pg_catalog" in reasons[9]
    assert "secret-value" not in str(found.to_dict()["failed"])


def test_a_query_that_takes_too_long_is_reported_and_the_rest_goes_on():
    slow = "select count(*) from generate_series(1, 100000) a(x), generate_series(1, 10000000) b(y) where x * y = 7"
    found = counted(slow, "select count(*) from users", timeout=1)
    assert found.failed == ({"query": 1, "reason": "took longer than 1 s (on the source)"},)
    assert found.answers[0]["source"] == 4


def result(true, estimated, joins, **more):
    errors = q_errors(np.array(true), np.array(estimated)).tolist()
    rows = zip(range(1, len(true) + 1), true, estimated, joins, errors, strict=True)
    names = ("query", "source", "synthetic", "joins", "q_error")
    return WorkloadResult(tuple(dict(zip(names, row, strict=True)) for row in rows), **more)


def test_q_errors_are_symmetric_and_at_least_one():
    errors = q_errors(np.array([100, 10, 0, 5]), np.array([10, 100, 0, 0]))
    assert errors.tolist() == [10, 10, 1, 5]
    assert summarize(errors) == pytest.approx({"mean": 6.5, "median": 7.5, "75th": 10, "95th": 10, "max": 10})


def test_classes_of_joins_where_shuffled_columns_are_closer_are_named():
    reference = result([100] * 3, [100, 150, 300], range(3)).by_joins
    found = result([100] * 3, [101, 160, 200], range(3), shuffled=reference)
    assert found.worse_than_shuffled == (1,)
    assert found.to_dict()["shuffled_by_joins"][1]["median"] == 1.5
    assert result([100], [900], [0]).worse_than_shuffled == ()


def test_errors_are_given_by_joins_and_by_cardinality():
    true = [0, 10, 20, 20, 20, 1000]
    found = result(true, [t * (2 if t > 20 else 1) for t in true], [1, 0, 1, 0, 1, 0])
    assert [(each["joins"], each["queries"]) for each in found.by_joins] == [(0, 3), (1, 3)]
    assert found.by_joins[0]["mean"] == pytest.approx(4 / 3)
    # Equal cardinalities are in one class, so the middle one takes all three of them.
    classes = [tuple(each[name] for name in ("class", "from", "to", "queries")) for each in found.by_cardinality]
    assert classes == [("low", 0, 10, 2), ("medium", 20, 20, 3), ("high", 1000, 1000, 1)]
    assert found.by_cardinality[2]["mean"] == 2
    assert found.empty == (1,)
    assert found.to_dict()["queries"][5]["q_error"] == 2


def test_estimates_are_divided_by_the_scale_and_stated_cardinalities_checked():
    double = {"users": pa.concat_tables([USERS, USERS]), "blogPosts": POSTS}
    workload = Workload((Statement("select count(*) from users", 4), Statement("select 1 from users limit 2", 1)))
    found = run_workload(workload, TABLES, double, scale=2)
    assert found.answers[0] == {"query": 1, "sql": workload.statements[0].sql, "joins": 0, "source": 4,
                                "synthetic": 4, "q_error": 1}  # fmt: skip
    assert found.misstated == (2,)


def test_a_workload_without_answers_has_no_q_error():
    found = run_workload(Workload.of(["select count(*) from nowhere"], internal=True), {}, {})
    assert (found.summary, found.errors.size) == (None, 0)
    figures = found.to_dict()
    assert (figures["q_error"], *figures["by_joins"], *figures["by_cardinality"]) == (None,)
    assert figures["made_from_private_rows"]


T = ColumnType
KIND = Column("kind", T.CATEGORY, Values(("ask", "it's")))
POST = (integer("id"), integer("author"), Column("at", T.TIMESTAMP, nullable=True), KIND)
VOTE = (integer("id"), integer("post"), Column("weight", T.FLOAT))
SCHEMA = Schema(
    "forum",
    (
        Table("user", (integer("id"), integer("Age"), Column("bio", T.TEXT)), ("id",)),
        Table("post", POST, ("id",), (owner_key("post", "author", "user", 9),)),
        Table("vote", VOTE, ("id",), (owner_key("vote", "post", "post", 9),)),
        Table("alone", (integer("id"), Column("flag", T.BOOLEAN)), ("id",), public=True),
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


def test_small_databases_give_fewer_queries_and_empty_ones_an_error():
    lone = Schema("lone", (SCHEMA.table("alone"),), "alone")
    rows = {"alone": forum()["alone"]}
    texts = {statement.sql for statement in generate_workload(lone, rows, Recipe(queries=50)).statements}
    everything = 'SELECT COUNT(*) FROM "alone"'
    assert texts == {everything, *(f'{everything} WHERE "alone"."flag" = {value}' for value in ("TRUE", "FALSE"))}
    with pytest.raises(SourceError, match="no table has rows"):
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
