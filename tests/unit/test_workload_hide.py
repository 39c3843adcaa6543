"""Hidden constants: nothing of a constant, comment or alias of the owner's queries occurs in what is published."""

from __future__ import annotations

import json
import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privbench_core.schema.columns import Column, ColumnType, Learn
from privbench_core.schema.tables import Schema, Table
from privbench_core.workload import Statement, Workload
from privbench_core.workload.anonymise import NOT_HIDDEN, hide_literals
from privbench_core.workload.engine import UnansweredError, resolve
from privbench_core.workload.parameters import bind_parameters
from privbench_core.workload.rebind import pgbench_files, rebind_workload
from privbench_core.workload.values import Documents
from tests.unit.test_evaluate_workload_rebind import SCHEMA, ages, shop

ROWS = shop()
SECRET = re.compile(r"zq|777|1977|1e5b|0111", re.IGNORECASE)
HIDDEN = r"""
select count(*) from customer where age = 7771 and kind in ('Zq1','Zq2','Zq3','Zq4','Zq5') -- Zqc
select "Day" as "Zq Alias", count(*) from sale where "Day" between date '1977-07-01' and '1977-07-01'::date + 777 group by 1 order by 2 desc limit 777
select date_trunc('month', "Day"), extract(year from "Day"), round(id::numeric(17,7), 7) from sale where id % 777 = 7
select lower(note) from customer where lower(note) like '%Zqfoo%' and note ilike 'zq%' and not note like 'Zq'
select case when age > 7772 then 'Zqgold' else $$Zqdollar$$ end as zqk, 'Zqa'||note||E'\\nZq' from customer
with zqw as (select age + 7777 as zqv, 'Zq' as zqx from customer) select zqv from zqw as zqt where zqt.zqv > 7778
select id from customer where id = -7771 and age = (7771 + 7772*2)::int and kind = cast('Zq' as varchar(777))
select sum(id) over (partition by customer order by "Day" rows between 777 preceding and current row) from sale
select * from customer left join lateral (select 7771 as zqone) zqs on true where age is distinct from 7771
select age from customer where age = any(array[7771,7772]) and kind <> all(array['Zq'])
select age from customer tablesample bernoulli (77) offset 777 rows fetch first 777 rows only
select coalesce(age, 7771) c, 1.7777e7, true, null from customer where kind is not null and not (age is null)
select to_char("Day", 'Zq-YYYY') from sale where "Day" > now() - interval '777 days' and "Day"::timestamp at time zone 'Zq/Zone' < timestamp '1977-07-07 07:07'
select count(*) from sale s join customer c on c.id = s.customer and c.age > 7771 where exists (select 7777 from region r where r.id = s.region and r.size > 7777)
select age from customer union all select 7771 from region order by 1 limit 777
select distinct on (kind) kind, age from customer where 'Zq' = kind and 7771 < age window zqw as (order by age range between interval '777' day preceding and current row)
select age as "customer; drop Zq" from customer where note = 'Zq''s' or note = $zqtag$Zq$zqtag$ or age = $777
select interval '7771' second, current_date - 7771, date '1977-07-07', array[7771, 7772], row(7771,'Zq') from customer
select age from customer where age > 77.71::float8 and id > 7771::bigint and 'Zq' like kind and age < 0x1E5B
""".strip().split("\n")  # noqa: E501 - a query per line
LEFT_OUT = r"""
select id from customer where (id, age) in ((7771,7772),(7773,7774))
select note->>'Zqkey' from customer
select * from (values (7771,'Zq')) as zqv(zqa, zqb)
select json_extract(note, '$.Zqkey') from customer
select zqfn(id, 'Zq') from customer
select max(zqfn(id)) from customer
select count(zqcol) from customer
select count(*) from zqtable
select age::zqtype from customer
select note collate "Zq" from customer
select age from zqschema.customer
select date_trunc('Zqunit', "Day") from sale
merge into customer using sale on customer.id = sale.customer when matched then delete
with zq as (delete from sale where id = 777 returning *) select * from zq
select 'Zq from customer
""".strip().split("\n")


def published(*queries: str, dialect: str = "postgres"):
    statements = tuple(Statement(sql, name="Zq name", weight=3) for sql in queries)
    workload = Workload(statements, dialect, hide_literals=True)
    return rebind_workload(workload, SCHEMA, shop(), {"customer": {"age": ages(0, 50)}}, np.random.default_rng(0))


@pytest.mark.parametrize("dialect", ["postgres", "duckdb"])
def test_nothing_of_a_constant_alias_or_comment_is_published(dialect: str):
    found = published(*HIDDEN, *LEFT_OUT, dialect=dialect)
    everything = "\n".join([found.to_sql(), *pgbench_files(found), *pgbench_files(found).values()])
    assert [line for line in everything.splitlines() if SECRET.search(line)] == []
    assert {reason for _, reason in found.left_out} == {NOT_HIDDEN}
    if dialect == "postgres":
        assert found.kept == tuple(range(1, len(HIDDEN) + 1))


def test_other_constants_make_the_same_text():
    first = published("select 1 from customer where age in (1, 2) and kind like 'a%' order by 77 limit 3").to_sql()
    other = published(
        "select 9.5 from customer where age in (8, 7, 6, 5) and kind like '%bc_' order by 7 limit 44"
    ).to_sql()
    assert first == other
    assert first.count("-- weight: 3") == 1


CANARY = st.one_of(
    st.integers(77_700, 77_799).map(str),
    st.integers(77_700, 77_799).map(lambda n: f"-{n}.5"),
    st.text("zq%_'\\ é", max_size=6).map(lambda text: "'zq" + text.replace("'", "''") + "'"),
    st.sampled_from(["date '1977-01-01'", "interval '777 days'", "'777'::varchar(77)", "$$zq$$", "E'\\n777'"]),
)
EXPRESSION = st.recursive(
    CANARY | st.sampled_from(["age", "c.id", "kind", "note", "$7", "null", "now()"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "||", "=", "<", "like", "and", "->>", "is distinct from"]), inner).map(
            lambda parts: f"({' '.join(parts)})"
        ),
        st.tuples(inner, inner).map(lambda parts: f"coalesce({', '.join(parts)})"),
        st.lists(inner, min_size=1, max_size=4).map(lambda items: f"age in ({', '.join(items)})"),
        inner.map(lambda item: f"case when {item} then 'zq' end /* zq */"),
        inner.map(lambda item: f"(select {item} as zq limit 777)"),
        inner.map(lambda item: f"cast({item} as numeric(17, 7))"),
        inner.map(lambda item: f"date_trunc('day', {item})"),
    ),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(EXPRESSION, EXPRESSION)
def test_no_expression_lets_a_constant_through(shown: str, where: str):
    sql = f'select {shown} as "zq", {shown} from customer c where {where} group by {shown} limit 777'
    documents = Documents(SCHEMA, ROWS)
    try:
        query = resolve(sql, "postgres", {name: rows.column_names for name, rows in ROWS.items()})
        hide_literals(query, {"coalesce", "now"}, documents)
        bound = bind_parameters(query, SCHEMA, ROWS, documents, np.random.default_rng(0))
    except UnansweredError:
        return
    for tree in (query.tree, bound.replay):
        assert not SECRET.search(tree.sql(dialect="postgres")), sql


EVENT = Table("event", (Column("id", ColumnType.INTEGER), Column("data", ColumnType.JSON, Learn()),
                        Column("raw", ColumnType.JSON)), ("id",))  # fmt: skip
DOCUMENT = json.dumps({"plan": "it's:1", "n": 1.5, "by": {"city": "Rome", "a.b": True}, "none": None, "tags": ["x"]})


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("data->>'plan' = 'zq'", "data\" ->> 'plan' = 'it''s:1'"),
        ("data->>'plan' like 'zq%' and data->>'n' >= '777'", "->> 'plan' LIKE 'it''%' AND \"data\" ->> 'n' >= '1.5'"),
        ("(data->'by')->>'city' in ('zq') and data->>'none' is null", "IN ('Rome', 'Rome', 'Rome') AND"),
        ("data->'by'->>'a.b' = 'zq' and lower((data->'tags')->>0) = 'zq'", "->> 0) = LOWER('x')"),
        (
            "cast(data->>'n' as numeric) between 777 and 778",
            "BETWEEN CAST('1.5' AS DECIMAL) AND CAST('1.5' AS DECIMAL)",
        ),
        ("lower(data->'tags'->>0) = 'zq'", ""),
        ("data->>'zq' = '1'", ""),
        ("data->>'city' = '1'", ""),
        ("data->'plan'->>'zq' = '1'", ""),
        ("data->'tags'->>777 = '1'", ""),
        ("data->'plan' = '1' || 'zq' or data->>'zq.plan' = '1'", ""),
        ("raw->>'plan' = '1'", ""),
        ("json_extract_path_text(data, 'by', 'zq') = '1'", ""),
        ("data->>'' = '1'", ""),
    ],
)
def test_a_json_path_stays_if_synthetic_documents_have_it(condition: str, expected: str):
    rows = {"event": pa.table({"id": [1, 2], "data": [DOCUMENT, None], "raw": [DOCUMENT, None]})}
    workload = Workload((Statement(f"select count(*) from event where {condition}"),), hide_literals=True)
    found = rebind_workload(workload, Schema("s", (EVENT,), "event"), rows, {}, np.random.default_rng(0))
    assert not SECRET.search(found.to_sql())
    assert expected in found.to_sql()
    assert found.kept == ((1,) if expected else ())
    assert found.rows == ((1,) if expected else ())
