"""Statements that write travel by their shape: none of their constants does, and what they do to the bundle holds."""

from __future__ import annotations

import re
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from privbench_core.schema.columns import Column, ColumnType, Range
from privbench_core.schema.constraints import Check, ForeignKey
from privbench_core.schema.partitions import Partition, Partitioning
from privbench_core.schema.tables import Schema, Table
from privbench_core.workload import Statement, Workload
from privbench_core.workload.anonymise import hide_literals
from privbench_core.workload.engine import Engine, UnansweredError, resolve
from privbench_core.workload.parameters import bind_parameters
from privbench_core.workload.rebind import ReboundWorkload, pgbench_files, rebind_workload
from privbench_core.workload.values import Documents
from privbench_core.workload.writes import outline
from tests.unit.test_evaluate_workload_rebind import SCHEMA as SHOP
from tests.unit.test_evaluate_workload_rebind import shop
from tests.unit.test_workload_hide import CANARY, EXPRESSION, SECRET

T = ColumnType
ITEM = Table(
    "item",
    (Column("id", T.INTEGER), Column("stock", T.INTEGER, Range(0, 9)), Column("held", T.INTEGER, Range(0, 9)),
     Column("maker", T.INTEGER, nullable=True)),
    ("id",),
    (ForeignKey("item", ("maker",), "item", ("id",), 9, optional=True),),
    checks=(Check("c", "held <= stock"),),
)  # fmt: skip
PART = Table(
    "part",
    (Column("item", T.INTEGER), Column("of", T.INTEGER)),
    ("item", "of"),
    (ForeignKey("part", ("item",), "item", ("id",), 9, owner=True), ForeignKey("part", ("of",), "item", ("id",), 9)),
)
DEPOT = Schema("depot", (ITEM, PART), "item")
ROWS = {
    "item": pa.table({
        "id": range(1, 9), "stock": range(1, 9), "held": [1, 1, 3, 4, 5, 6, 7, 8], "maker": [None] * 7 + [7],
    }),
    "part": pa.table({"item": [1, 2, 3, 4], "of": [2, 3, 4, 5]}),
}  # fmt: skip
CASCADE = replace(DEPOT, tables=(ITEM, replace(PART, foreign_keys=tuple(
    replace(key, actions="ON DELETE CASCADE") for key in PART.foreign_keys))))  # fmt: skip


def rebound(*queries: str, schema: Schema = DEPOT, rows: dict[str, pa.Table] = ROWS) -> ReboundWorkload:
    return rebind_workload(Workload.of(queries), schema, rows, {}, np.random.default_rng(0))


def everything(found: ReboundWorkload) -> str:
    files = pgbench_files(found) if found.kept else {}
    return "\n".join([found.to_sql(), *files, *files.values()])


CANARIES = r"""
/* zq */ -- zq\n insert into customer (id, age, kind, note) values (7771, -777, 'Zq', $zqtag$Zq$zqtag$) returning id as zq, 'Zq' || note /* zq */
insert into customer as zq values (7771, 0x1E5B, E'\nZq', 'Zq') on conflict (id) do update set note = 'Zq' || excluded.note, age = 777 where zq.age > 7771
insert into customer (id, age, note) values ((select max(id) from customer where note = 'Zq' or age in (7771, 7772)), '777'::int, cast('Zq' as varchar(777)))
insert into customer (id, age, note) values (nextval('zq'), abs(-777), coalesce(null, lower('Zq'))), (1, 2, 'Zq'), (3, 4, 'Zq'), (5, 6, 'Zq'), (7, 8, 'zq')
update customer zq set age = case when kind = 'Zq' then 777 else age + 7771 end, note = array['Zq', 'zq']::text where zq.id in (7771, 7772) returning 'Zq', 777 as zq2
update sale set "Day" = date '1977-07-07' + interval '777 days' where "Day" between '1977-07-01' and '1977-07-02' -- zq
update customer set note = /* zq */ 'zq', kind = (select kind from customer where note = 'Zq' limit 1), age = 777.7 from sale where sale.customer = customer.id and sale.id > 777
with zq as (select 7771 as zq) update customer set age = 7771
delete from sale using customer as zq where zq.id = sale.customer and zq.note ilike '%Zq%' and sale.id % 777 = 7
delete from sale where ("Day", id) in ((date '1977-07-07', 777))
insert into customer (id, age, "zq col") values (777, 777, 777)
insert into customer (id, age) values (777, 777) on conflict on constraint zq do nothing
insert into customer (id, age) select 777, 777
insert into "zq" values (777)
update customer set (age, note) = (777, 'Zq')
update customer set note = zqfn('Zq')
delete from customer where zqfn(id) = 777
delete from sale where id = any('{777,7771}'::int[])
merge into customer using sale on customer.id = 777 when matched then delete
insert into customer (id) values (777
""".strip().split("\n")  # noqa: E501 - a statement per line


@pytest.mark.parametrize("hide", [False, True])
@pytest.mark.parametrize("dialect", ["postgres", "duckdb"])
def test_no_constant_of_what_is_written_travels(dialect: str, hide: bool):
    """Not even where the text of queries is public."""
    workload = Workload(tuple(Statement(sql.replace("\\n ", "\n")) for sql in CANARIES), dialect, hide_literals=hide)
    found = rebind_workload(workload, SHOP, shop(), {}, np.random.default_rng(0))
    assert [line for line in everything(found).splitlines() if SECRET.search(line)] == []
    if dialect == "postgres":
        assert found.kept == (1, 2, 4, 5, 6, 7, 9, 16, 18)


ENGINE = Engine(shop())


@settings(max_examples=20, deadline=None)
@patch("privbench_core.workload.parameters.DRAWS", 2)
@given(CANARY, EXPRESSION, EXPRESSION)
def test_no_written_expression_lets_a_constant_through(constant: str, written: str, where: str):
    documents = Documents(SHOP, shop())
    for sql in (
        f"update customer c set age = {written}, note = {constant} where {where} returning {written}",
        f"insert into customer (age, note, kind) values ({written}, {constant}, ({where})) returning {written}",
        f"delete from customer c where {where} returning {constant}",
    ):
        try:
            write = outline(resolve(sql, "postgres", ENGINE.catalogue, writes=True), SHOP, 1, ENGINE)
            hide_literals(write.query, {"coalesce", "now"}, documents)
            bound = bind_parameters(write.query, SHOP, shop(), documents, np.random.default_rng(0), write)
        except UnansweredError:
            continue
        for tree in (write.tree, bound.replay):
            assert not SECRET.search(tree.sql(dialect="postgres")), sql


def test_rows_that_are_inserted_are_new_and_whole():
    found = rebound(
        "insert into item (stock) values (777)",
        "insert into item values (1, 2, 3, 4), (5, 6, 7, 8), (9, 9, 9, 9), (1, 1, 1, 1)",
        "insert into item (id, maker, stock, held) values (777, 777, 777, 777) on conflict (id) do nothing",
        "insert into part values (1, 2)",
        "insert into part (item) values (1) on conflict do nothing",
        'insert into part values (1, 2) on conflict (item, "of") do update set "of" = 7',
    )
    assert found.kept == (1, 2, 3, 5, 6)
    assert found.rows == (1, 3, 0, 0, 1)
    assert found.left_out[0] == (4, "part: no column of the key item, of can have a new value")
    first, many, there, *_ = (statement.sql for statement in found.workload.statements)
    keys = [int(key) for key in re.findall(r"\((\d+), ", first + many)]
    assert first.startswith('INSERT INTO "item" ("stock", "id", "held") VALUES (')
    assert len(re.findall(r"\(\d+, \d+, \d+, (?:\d+|NULL)\)", many)) == 3
    assert len({*keys[1:]}) == 3
    assert min(keys[1:]) > 8
    assert int(re.findall(r"VALUES \((\d+)", there)[0]) <= 8
    # Any number of rows makes the same text, and pgbench counts its keys on.
    fewer = rebound("insert into item (stock) values (1)", "insert into item values (1, 2, 3, 4), (5, 6, 7, 8)")
    assert fewer.workload.statements[1].sql == many
    assert found.pgbench[1].count(":written * 1000 + :client_id") == 3


def test_what_breaks_a_check_or_a_reference_is_not_drawn():
    found = rebound(
        "update item set held = held + 1 where id = 777",
        "update item set held = held + stock",
        "delete from item where id = 777",
        "delete from item where stock > 777",
        "delete from item",
        'update part set "of" = 3 where item = 2',
        "update item set held = 1 where id = 777",
    )
    assert found.kept == (1, 3, 4, 7)
    draws = [{int(n) for n in re.findall(r"\d+", re.search(r"\[([\d, ]+)\]", text)[1])} for text in found.pgbench]
    assert draws[0] == {2}
    assert draws[1] == {6, 8}  # 7 is a maker, 1 to 5 are parts
    assert draws[2] == {8}
    assert {reason for number, reason in found.left_out if number in {2, 5}} == {
        "breaks a check or a reference with the values of every row that was tried"
    }
    cascading = rebound("delete from item where id = 777", schema=CASCADE)
    assert "7" not in re.findall(r"\d+", cascading.pgbench[0].partition("ARRAY")[2])
    assert {"1", "2", "3"} <= {*re.findall(r"\d+", cascading.pgbench[0].partition("ARRAY")[2])}


def test_unique_values_are_written_to_one_row_and_partitions_get_values_that_they_hold():
    parts = Partitioning("RANGE (stock)", ("stock",), (Partition("few", "FROM (0) TO (9)"),))
    item = replace(ITEM, unique=(("maker",),), foreign_keys=(), partitioned=parts)
    found = rebound(
        "insert into item (id, held) values (777, 777)",
        "update item set stock = stock + 777, held = 0 where id = 777",
        "update item set maker = 777",
        "update item set maker = 777 where id = 777",
        "insert into item (maker) values (777) on conflict (maker) do nothing",
        schema=replace(DEPOT, tables=(item, PART)),
    )
    assert found.kept == (1, 2, 4)
    inserted, updated, _ = (statement.sql for statement in found.workload.statements)
    assert int(re.search(r'"id", "held", "stock"\) VALUES \(\d+, \d, (\d)\)$', inserted)[1]) in range(1, 9)
    assert re.search(r'SET "stock" = \d, "held" = \d WHERE', updated)


def test_what_is_written_is_rolled_back_unless_the_recipient_wants_it():
    queries = ["select count(*) from part", "update item set stock = 7, held = 7 where id = 8"]
    found = rebound(*queries)
    assert "\nBEGIN;\n-- query 2: cardinality 1\nUPDATE " in found.to_sql()
    assert found.to_sql().endswith(";\nROLLBACK;\n")
    files = pgbench_files(found)
    assert "COMMIT" not in "".join(text for name, text in files.items() if name != "run.sh")
    assert files["002.sql"].endswith("\n:finish;\n")
    assert "-D finish=ROLLBACK" in files["run.sh"]
    assert "finish" not in pgbench_files(rebound(queries[0]))["run.sh"]
    assert [each.sql for each in found.workload.queries.statements] == [found.workload.statements[0].sql]
