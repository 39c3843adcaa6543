"""Re-binding: literals move so that selectivities carry over, by what was released and nothing else."""

from __future__ import annotations

import datetime as dt
import re

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.registry import codec_for
from privbench_core.errors import PublishError
from privbench_core.schema.columns import Column, ColumnType, Range, Values
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.workload import Workload, read_workload
from privbench_core.workload.rebind import bind_missing, rebind_workload
from privbench_core.workload.values import Distribution, ReleasedMarginal

T = ColumnType
AGE = Column("age", T.INTEGER, Range(0, 99))
KIND = Column("kind", T.CATEGORY, Values(("a", "b", "c")), nullable=True)
DAY = Column("Day", T.DATE, Range("2020-01-01", "2020-04-09", 100))
SCHEMA = Schema(
    "shop",
    (
        Table("customer", (Column("id", T.INTEGER), AGE, KIND, Column("note", T.TEXT)), ("id",)),
        Table(
            "sale",
            (Column("id", T.INTEGER), Column("customer", T.INTEGER), Column("region", T.INTEGER), DAY),
            ("id",),
            (
                ForeignKey("sale", ("customer",), "customer", ("id",), 4, owner=True),
                ForeignKey("sale", ("region",), "region", ("id",)),
            ),
        ),
        Table("region", (Column("id", T.INTEGER), Column("size", T.INTEGER)), ("id",), public=True),
    ),
    "customer",
)


def released(column, counts):
    return ReleasedMarginal(Discretizer(codec_for(column)), np.array(counts, float))


def ages(low, high):
    """A released marginal of ages that are uniform from ``low`` to below ``high``."""
    counts = np.zeros(codec_for(AGE).size)
    counts[low:high] = 100
    counts[-1] = -50  # noise below 0 counts as nothing
    return released(AGE, counts)


def shop(first_age=50):
    """One hundred customers, of each age from ``first_age`` two; the first owns four sales, the next 20 one each."""
    owners = [0] * 4 + list(range(1, 21))
    return {
        "customer": pa.table({
            "id": range(1000, 1100), "age": [first_age + i // 2 for i in range(100)],
            "kind": ["a"] * 50 + ["b"] * 30 + [None] * 20, "note": ["zzz"] * 100,
        }),
        "sale": pa.table({
            "id": range(24), "customer": [1000 + o for o in owners], "region": [1] * 24,
            "Day": [dt.date(2020, 1, 1)] * 4 + [dt.date(2020, 1, 11) + dt.timedelta(days=i) for i in range(20)],
        }),
        "region": pa.table({"id": [1, 2], "size": [10, 20]}),
    }  # fmt: skip


def rebound(*queries, marginals=None, tables=None):
    given = {"customer": {"age": ages(0, 50)}} if marginals is None else marginals
    return rebind_workload(Workload.of(queries), SCHEMA, tables or shop(), given, np.random.default_rng(0))


def where(found):
    return [re.search(r" WHERE (.*)", statement.sql)[1] for statement in found.workload.statements]


@pytest.mark.parametrize(
    ("condition", "expected", "rows"),
    [
        ("age < 10", "age < 60", 20),
        ("age <= 9", "age <= 59", 20),
        ("age > 39", "age > 89", 20),
        ("age >= 40", "age >= 90", 20),
        ("10 > age", "60 > age", 20),
        ("age between 10 and 20 + 9", "age BETWEEN 60 AND 79", 40),
        ("not age < 10", "NOT age < 60", 80),
        ("age < 500", "age < 500", 100),
    ],
)
def test_ranges_keep_their_selectivity(condition, expected, rows):
    found = rebound(f"select count(*) from customer c where {condition}")
    assert where(found)[0].replace('"', "") == expected
    assert found.rows == (rows,)


def test_a_literal_that_is_good_enough_stays():
    same = rebound("select count(*) from customer where age < 70.5", marginals={"customer": {"age": ages(50, 100)}})
    assert where(same) == ['"age" < 70.5']


def test_equalities_keep_values_that_are_there_and_replace_others_by_share():
    marginals = {"customer": {"age": ages(50, 100), "kind": released(KIND, [50, 0, 30, 0, 20])}}
    found = rebound(
        "select count(*) from customer where kind = 'a'",
        "select count(*) from customer where kind in ('a', 'c')",
        "select count(*) from customer where age = 7",
        "select count(*) from customer where kind <> 'c' or kind is null",
        "select count(*) from customer where kind < 'c'",
        marginals=marginals,
    )
    assert where(found) == [
        "\"kind\" = 'a'",
        "\"kind\" IN ('a', 'b')",
        '"age" = 50',
        '"kind" <> \'c\' OR "kind" IS NULL',
        "\"kind\" < 'c'",
    ]


def test_keys_get_the_key_of_a_row_and_ranges_over_keys_have_no_counterpart():
    found = rebound(
        "select count(*) from customer where id = 7",
        "select count(*) from customer where id < 7",
        "select count(*) from sale s join customer c on c.id = s.customer where s.customer in (1, 2)",
        "select count(*) from sale where region = 2",
        "select count(*) from region where size > 10 and id = 2",
    )
    assert found.kept == (1, 3, 4, 5)
    assert found.left_out == ((2, "customer.id: compares a key, and keys are regenerated"),)
    assert found.rows[0] == 1
    assert all(1000 <= int(key) < 1100 for key in re.findall(r"\d+", where(found)[1]))
    assert where(found)[2:] == ['"region" = 2', '"size" > 10 AND "id" = 2']


@pytest.mark.parametrize(
    "condition", ["note = 'x'", "note like 'x%'", "'x' < note", "note in ('x')", "age = 1 or note ~ 'x'"]
)
def test_opaque_text_has_no_counterpart(condition):
    found = rebound(
        f"select count(*) from customer where {condition}", "select count(*) from customer where note is null"
    )
    assert [number for number, _ in found.left_out] == [1]
    assert "customer.note: compares opaque text" in found.left_out[0][1]


def test_released_counts_and_synthetic_rows_are_compared_row_by_row():
    """Half of the rows before January 6th: of 24 sales, the four of one customer count as four."""
    counts = np.zeros(codec_for(DAY).size)
    counts[0] = counts[50] = 100
    marginals = {"sale": {"Day": released(DAY, counts)}}
    days = sorted(shop()["sale"]["Day"].to_pylist())
    for text in ("DATE '2020-01-06'", "'2020-01-06'", "date '2020-01-01' + interval '5' day"):
        found = rebound(f"select count(*) from sale where day < {text}", marginals=marginals)
        literal = dt.date.fromisoformat(where(found)[0].split("'")[1])
        assert abs(sum(day < literal for day in days) - len(days) / 2) <= 1


def test_what_cannot_be_resolved_stays_as_it_was():
    texts = [
        "SELECT COUNT(*) FROM customer AS c WHERE c.age + 1 < 10",
        "SELECT COUNT(*) FROM (SELECT age AS x FROM customer) AS t WHERE t.x < 10",
        "SELECT COUNT(*) FROM customer AS c, sale AS s WHERE c.id = s.customer AND c.age < 'old'",
        "SELECT COUNT(*) FROM customer AS a, customer AS b WHERE a.age < b.age",
    ]
    found = rebound(*texts)
    assert found.left_out[0][0] == 3  # not a number: the engine's business
    assert [s.sql.replace('"', "") for s in found.workload.statements] == [texts[0], texts[1], texts[3]]


def test_private_workloads_are_refused_and_the_file_reads_back(tmp_path):
    private = Workload.of(["select count(*) from customer"], internal=True)
    with pytest.raises(PublishError, match="must not be published"):
        rebind_workload(private, SCHEMA, shop(), {}, np.random.default_rng(0))
    found = rebound("select nix from customer", "select count(*) from customer where age < 10")
    (tmp_path / "w.sql").write_text(found.to_sql(), encoding="utf-8")
    assert found.to_sql().startswith("-- query 2: cardinality 20\nSELECT COUNT(*)")
    assert read_workload(tmp_path / "w.sql") == found.workload


def test_nothing_but_released_counts_and_synthetic_rows_is_used():
    """Two owners whose sources differ release the same: they publish the same."""
    query = "select count(*) from customer where age < 10"
    assert rebound(query) == rebound(query)
    assert where(rebound(query, marginals={})) == ['"age" < 10']


def test_shares_of_a_distribution():
    column = Distribution.of(pa.array([1, 1, 2, 2, *[None] * 4], pa.int64()))
    assert [column.share(op, 1) for op in ("=", "<", "<=", ">", ">=")] == [0.25, 0, 0.25, 0.25, 0.5]
    assert column.share("=", 5) == 0
    empty = Distribution.of(pa.array([], pa.int64()))
    assert empty.share("<", 3) == 0
    assert empty.value_for("<", 0.5, 3) == 3


def test_the_certificate_replaces_the_literals_that_only_the_source_has():
    """A value becomes the one of the nearest share; whatever some synthetic row meets stays, however few do."""
    source = shop(0)
    source["customer"] = source["customer"].set_column(2, "kind", pa.array(["c"] * 45 + ["b"] * 55))
    queries = (
        "select count(*) from customer c where age < 10 and kind = 'c'",
        "select count(*) from customer where age < 60 and kind = 'b'",
        "select count(*) from customer where kind in ('x', 'b')",
        "select count(*) from sale where \"Day\" > date '2020-01-20'",
        "select count(*) from region where size = 30",
        "select count(*) from nowhere",
    )
    asked = Workload.of(queries, internal=True)
    found = bind_missing(asked, SCHEMA, source, shop())
    first = found.statements[0].sql.replace('"', "")
    assert first == "SELECT COUNT(*) FROM customer AS c WHERE age < 60 AND kind = 'a'"
    assert found.statements[1:] == asked.statements[1:]
    assert found.internal
    assert bind_missing(asked, SCHEMA, source, source) == asked
