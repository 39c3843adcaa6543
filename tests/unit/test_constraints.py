"""CHECK, UNIQUE and functional dependencies: kept while sampling, judged afterwards, dropped rows counted."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.errors import SpecError, ValidationError
from privbench_core.links.parent_choice import Distinct, ParentChoice, pick_parents
from privbench_core.privacy.budget import Budget
from privbench_core.sampling.constraints import ignored_checks, made_dependent, row_rules
from privbench_core.sampling.references import without_cycles
from privbench_core.schema.columns import Column, ColumnType, Range, Values
from privbench_core.schema.constraints import Check, Dependency, ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.privbench import PrivBench
from privbench_core.validate.ranges import check_constraints
from tests.helpers.databases import keyed
from tests.helpers.noise import SeededNoise
from tests.helpers.planted import category, draw_exactly, integer, owner_key, rows_of, texts

EVERY_TYPE = (
    integer("id"),
    integer("a", 0, 99, nullable=True),
    integer("b", 0, 99, nullable=True),
    Column("price", ColumnType.DECIMAL, Range(0, 100), precision=8, scale=2),
    Column("starts", ColumnType.DATE, Range("2020-01-01", "2020-12-31")),
    Column("rating", ColumnType.CATEGORY, Values(("G", "PG", "R"))),
    Column("Mixed", ColumnType.BOOLEAN),
    Column("name", ColumnType.TEXT),
)


def checked(*expressions: str, columns: tuple[Column, ...] = EVERY_TYPE, **more: Any) -> Table:
    checks = tuple(Check(f"c{number}", expression) for number, expression in enumerate(expressions))
    return Table("t", columns, ("id",), checks=checks, **more)


@pytest.mark.parametrize(
    "expression",
    [
        "a <= b",
        "(a BETWEEN 1 AND 5) OR b IS NULL",
        "NOT (a > b AND a <> 3)",
        "rating IN ('G', 'PG')",
        "((rating)::text = ANY ((ARRAY['G'::character varying, 'R'::character varying])::text[]))",
        "rating = 'G'::rating_type",
        "price * 2 - a / 3 + 1 >= (0)::numeric",
        "starts >= '2020-02-01'::date",
        '"Mixed" OR length(name) > 3',
        "char_length((name)::text) = 3",
        "coalesce(a, 0) >= 0 AND NOT a IS DISTINCT FROM b",
        "name ~ '^[a-z]+$'",
        "(starts >= '1930-01-01'::date) AND (starts <= (now() - '18 years'::interval))",
        "starts <= CURRENT_DATE + 1",
        "date_part('year', starts) > 1900",
        "position('a' in name) > 0 OR left(name, 1) = 'b'",
    ],
)
def test_simple_conditions_are_understood(expression: str) -> None:
    table = checked(expression)
    assert len(row_rules(table)) == 1
    assert ignored_checks(table) == ()


@pytest.mark.parametrize(
    "expression",
    ["a IN (SELECT 1)", "my_own(a) > 1", "random() > a", "a > ", "zzz > 1", "1 = 1", "read_text('secret') = name"],
)
def test_anything_else_is_kept_in_the_ddl_only(expression: str) -> None:
    table = checked(expression)
    assert row_rules(table) == ()
    assert ignored_checks(table) == ("c0",)


def broken(expression: str, **columns: Any) -> list[bool]:
    (rule,) = row_rules(checked(expression))
    return rule.broken({name: pa.array(values) for name, values in columns.items()}).tolist()


def test_null_is_no_breach_as_in_sql() -> None:
    assert broken("a <= b", a=[1, 3, None, 2], b=[2, 2, 1, None]) == [False, True, False, False]
    assert broken("a IS NOT NULL OR b = 1", a=[None, None, None], b=[None, 2, 1]) == [False, True, False]
    assert broken("rating IN ('G')", rating=["G", "R", None]) == [False, True, False]


def columns_of_rows(n: int = 4000, seed: int = 0) -> tuple[Table, pa.Table]:
    """Orders whose first date is never after the second, whose price is over 10 if they are urgent."""
    columns = (
        integer("id"),
        integer("a", 0, 99),
        integer("b", 0, 99, nullable=True),
        integer("price", 0, 99),
        category("kind", 2),
    )
    checks = (Check("order", "a <= b"), Check("urgent", "kind = 'v0' OR price > 10"), Check("sum", "a + price <= 150"))
    table = Table("t", columns, ("id",), checks=checks)
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 90, n)
    b = np.minimum(99, a + rng.geometric(0.15, n) - 1)
    kind = rng.integers(0, 2, n)
    price = np.minimum(np.where(kind == 1, rng.integers(11, 60, n), rng.integers(0, 60, n)), 150 - a)
    return table, rows_of(
        table, id=np.arange(n), a=a, b=pa.array(b, mask=rng.random(n) < 0.1), price=price, kind=texts(kind)
    )


def test_checks_hold_and_hardly_change_what_is_drawn() -> None:
    table, rows = columns_of_rows()
    sample = draw_exactly(Schema("s", (table,), "t"), {"t": rows})["t"]
    made = sample.table
    assert all(result.success for result in check_constraints(table, made))
    assert sample.dropped == {}
    assert made.num_rows == rows.num_rows
    assert made.column("b").null_count / made.num_rows == pytest.approx(0.1, abs=0.02)
    for name in ("a", "price"):
        assert np.mean(made.column(name).to_numpy()) == pytest.approx(np.mean(rows.column(name).to_numpy()), rel=0.08)


def test_checks_hold_where_noise_is_all_there_is() -> None:
    table, rows = columns_of_rows(50)
    schema = Schema("s", (table,), "t")
    for seed in range(3):
        sample = draw_exactly(
            schema, {"t": rows}, noise=SeededNoise(seed), budget=Budget(0.05, 1e-9), seed=seed, scale=5.0
        )["t"]
        assert all(result.success for result in check_constraints(table, sample.table))
        assert sample.table.num_rows > 0


def test_the_time_is_a_bound_like_any_other() -> None:
    """The rows of AdventureWorks' employees broke the DDL of their own bundle after all had been paid."""
    (rule,) = row_rules(checked("starts <= (now() - '18 years'::interval)"))
    columns = {"starts": pa.array([date(1990, 5, 1), date(2190, 5, 1), None])}
    assert rule.broken(columns).tolist() == [False, True, False]


def test_rows_that_drawing_again_cannot_mend_are_like_those_that_keep_the_check() -> None:
    """Six numbers in a row: of 50 rows almost none keeps that, whatever is drawn; none is lost."""
    names = [f"n{number}" for number in range(6)]
    order = " AND ".join(f"{a} < {b}" for a, b in pairwise(names))
    table = Table("t", (integer("id"), *(integer(name, 0, 9) for name in names)), ("id",), checks=(Check("c", order),))
    rows = rows_of(table, id=np.arange(50), **{name: np.full(50, number) for number, name in enumerate(names)})
    made = draw_exactly(
        Schema("s", (table,), "t"), {"t": rows}, noise=SeededNoise(0), budget=Budget(0.1, 1e-9), scale=50.0
    )["t"]
    assert made.table.num_rows > 1000
    assert not made.dropped
    assert all(result.success for result in check_constraints(table, made.table))


def test_a_check_that_no_row_can_meet_is_one_clear_error() -> None:
    table = Table("t", (integer("id"), category("kind", 2)), ("id",), checks=(Check("never", "lower(kind) = 'other'"),))
    rows = rows_of(table, id=np.arange(20), kind=texts(np.zeros(20, int)))
    with pytest.raises(ValidationError, match=r"t: no synthetic row meets the check never; declare domains"):
        draw_exactly(Schema("s", (table,), "t"), {"t": rows})


def test_rows_that_are_dropped_are_counted_in_the_summary() -> None:
    columns = (integer("id"), integer("n", 0, 1), integer("m", 0, 1))
    table = Table("t", columns, ("id",), unique=(("n", "m"),))
    rows = rows_of(table, id=np.arange(4), n=[0, 0, 1, 1], m=[0, 1, 0, 1])
    sample = draw_exactly(Schema("s", (table,), "t"), {"t": rows}, scale=3.0)["t"]
    assert sample.table.num_rows == 4  # there are no more pairs
    assert sample.dropped == {"n, m not unique": 8}
    assert sample.to_artifact().data["summary"]["rows dropped to keep constraints"] == {"n, m not unique": 8}


def test_unique_values_are_drawn_again_before_rows_are_dropped() -> None:
    columns = (integer("id"), integer("code", 1, 5000), category("series", 4), integer("number", 0, 400))
    table = Table("t", columns, ("id",), unique=(("code",), ("series", "number")))
    rng = np.random.default_rng(0)
    pairs = rng.permutation([(s, k) for s in range(4) for k in range(401)])[:1200]
    rows = rows_of(
        table, id=np.arange(1200), code=rng.permutation(5000)[:1200] + 1, series=texts(pairs[:, 0]), number=pairs[:, 1]
    )
    samples = [draw_exactly(Schema("s", (table,), "t"), {"t": rows}, seed=seed)["t"] for seed in range(4)]
    assert np.mean([sum(sample.dropped.values()) for sample in samples]) <= 12
    for rows in (sample.table for sample in samples):
        for unique in table.unique:
            assert rows.select(list(unique)).group_by(list(unique)).aggregate([]).num_rows == rows.num_rows


def test_a_unique_value_per_owner_is_drawn_again_too() -> None:
    unit = Table("unit", (integer("id"),), ("id",))
    badge = keyed(
        "badge",
        integer("unit_id"),
        category("name", 5),
        keys=(owner_key("badge", "unit_id", "unit", 4),),
        unique=(("unit_id", "name"),),
    )
    rng = np.random.default_rng(0)
    home = np.repeat(np.arange(500), 3)
    name = np.concatenate([rng.choice(5, 3, replace=False) for _ in range(500)])
    tables = {
        "unit": rows_of(unit, id=np.arange(500)),
        "badge": rows_of(badge, id=np.arange(1500), unit_id=home, name=texts(name)),
    }
    sample = draw_exactly(Schema("s", (unit, badge), "unit"), tables)["badge"]
    assert (
        sample.table.select(["unit_id", "name"]).group_by(["unit_id", "name"]).aggregate([]).num_rows
        == sample.table.num_rows
    )
    assert sample.table.num_rows == 1500


def cities() -> tuple[Schema, dict[str, pa.Table]]:
    columns = (integer("id"), category("city", 12), category("state", 4), category("zone", 2), integer("place", 0, 99))
    rules = (Dependency(("city",), ("state",)), Dependency(("state",), ("zone",)))
    table = Table("t", columns, ("id",), dependencies=rules)
    rng = np.random.default_rng(0)
    city = rng.integers(0, 12, 3000)
    rows = rows_of(
        table,
        id=np.arange(3000),
        city=texts(city),
        state=texts(city // 3),
        zone=texts(city // 6),
        place=rng.integers(0, 100, 3000),
    )
    return Schema("s", (table,), "t"), {"t": rows}


@pytest.mark.parametrize("epsilon", [0.05, 1e8])
def test_functional_dependencies_hold_in_chains_at_every_epsilon(epsilon: float) -> None:
    schema, tables = cities()
    made = draw_exactly(schema, tables, noise=SeededNoise(1) if epsilon < 1 else None, budget=Budget(epsilon, 1e-6))[
        "t"
    ].table
    assert all(result.success for result in check_constraints(schema.table("t"), made))
    if epsilon > 1:
        found = dict(zip(made.column("city").to_pylist(), made.column("state").to_pylist(), strict=True))
        assert all(int(state[1:]) == int(city[1:]) // 3 for city, state in found.items())


def test_the_most_frequent_dependant_wins_and_null_determines_nothing() -> None:
    rule = Dependency(("city",), ("state", "zip"))
    columns = {
        "city": pa.array(["a", "a", "a", "b", "b", None, None]),
        "state": pa.array(["x", "y", "y", None, None, "p", "q"]),
        "zip": pa.array([1, 2, 2, 3, 3, 4, 5]),
    }
    fixed = made_dependent([rule], columns, frozenset({"state", "zip"}))
    assert fixed["state"].to_pylist() == ["y", "y", "y", None, None, "p", "q"]
    assert fixed["zip"].to_pylist() == [2, 2, 2, 3, 3, 4, 5]


def test_broken_constraints_are_reported_with_names_and_numbers_only() -> None:
    schema, tables = cities()
    table = schema.table("t")
    rows = tables["t"].slice(0, 24)
    wrong = rows.set_column(2, "state", pa.array(["v0"] * 12 + ["v1"] * 12))
    results = check_constraints(table, wrong)
    assert [result.success for result in results] == [False, False]
    assert results[0].name == "expect_functional_dependency: city -> state"
    assert results[0].column == "city,state"
    assert 0 < (results[0].unexpected_count or 0) < 24
    checked_table, good = columns_of_rows(10)
    bad = good.set_column(1, "a", pa.array([100] * 10))
    failed = [result for result in check_constraints(checked_table, bad) if not result.success]
    assert failed[0].name == "expect_check_to_hold: order"
    assert failed[0].column == "a,b"


def test_checks_on_references_are_met_by_drawing_them_again() -> None:
    """A friendship refers to two persons, who must not be the same."""
    person = Table("person", (integer("id"),), ("id",))
    keys = (
        owner_key("friend", "one", "person", 5),
        ForeignKey("friend", ("other",), "person", ("id",), max_children=5),
    )
    friend = keyed("friend", integer("one"), integer("other"), keys=keys, checks=(Check("two", "one <> other"),))
    one = np.repeat(np.arange(8), 4)
    tables = {
        "person": rows_of(person, id=np.arange(8)),
        "friend": rows_of(friend, id=np.arange(32), one=one, other=(one + 1 + np.tile(np.arange(4), 8)) % 8),
    }
    sample = draw_exactly(Schema("s", (person, friend), "person"), tables)["friend"]
    assert sample.table.num_rows == 32
    assert all(result.success for result in check_constraints(friend, sample.table))
    rows = sample.table.to_pydict()
    at = sample.parents["friend.other"]
    assert [int(p) + 1 for p in at] == rows["other"]


def test_checks_on_deferred_references_leave_them_empty_where_nothing_else_helps() -> None:
    """Only who is no chief may have a boss."""
    key = ForeignKey("t", ("boss",), "t", ("id",), max_children=50, optional=True)
    table = keyed(
        "t",
        integer("boss", nullable=True),
        category("rank", 2),
        keys=(key,),
        checks=(Check("chief", "rank <> 'v1' OR boss IS NULL"),),
    )
    rng = np.random.default_rng(0)
    rank = (rng.random(300) < 0.2).astype(int)
    boss = rng.choice(np.flatnonzero(rank == 1), 300)
    rows = rows_of(table, id=np.arange(300), boss=pa.array(boss, mask=rank == 1), rank=texts(rank))
    made = draw_exactly(Schema("s", (table,), "t"), {"t": rows})["t"].table
    assert all(result.success for result in check_constraints(table, made))
    assert made.column("boss").null_count == pytest.approx((rank == 1).sum(), abs=6)


def test_dependencies_on_keys_that_are_made_anew_are_refused() -> None:
    schema = Schema(
        "s", (Table("t", (integer("id"), category("c", 2)), ("id",), dependencies=(Dependency(("c",), ("id",)),)),), "t"
    )
    with pytest.raises(SpecError, match=r"t\.\(c\): determines the key column id"):
        PrivBench().plan(schema, Budget(1.0), {})


def test_rows_choose_inside_their_group_and_differently_inside_a_scope() -> None:
    rng = np.random.default_rng(0)
    group = np.array([0, 0, 1, 1, 1, -1])
    of_parent = np.array([0, 0, 1, -1])
    rules = (Distinct(np.zeros(6, np.int64), np.arange(4)),)
    for _ in range(20):
        places = pick_parents([], np.ones(6, dtype=bool), ParentChoice(group, of_parent, rules), rng)
        assert sorted(places[:2].tolist()) == [0, 1]
        assert sorted(places[2:5].tolist()) == [-1, -1, 2]
        assert places[5] == -1
    free = pick_parents([], np.array([True, False]), ParentChoice.free(2, 3), rng)
    assert free[0] >= 0
    assert free[1] == -1


@pytest.mark.parametrize("n", [1, 2, 3, 50, 1000])
def test_circles_are_opened_with_few_changes(n: int) -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        places = np.where(rng.random(n) < 0.1, -1, rng.integers(0, n, n))
        forest = without_cycles(places, ParentChoice.free(n, n), rng)
        here = np.arange(n)
        for _ in range(n):
            here = np.where(here >= 0, forest[here], -1)
        assert (here == -1).all()
        assert (forest != places).sum() <= 3 * np.log(n + 2)
        if n == 1000:
            assert ((forest >= 0) == (places >= 0)).all()


@pytest.mark.parametrize("seed", range(12))
def test_no_parent_gets_more_rows_than_there_is_room_for_and_none_is_without_one_in_vain(seed: int) -> None:
    rng = np.random.default_rng(seed)
    parents, groups = int(rng.integers(1, 40)), int(rng.integers(1, 4))
    of_parent = np.sort(rng.integers(0, groups, parents))
    room = rng.integers(0, 6, parents)
    free = np.bincount(of_parent, room, groups).astype(int)
    n = int(free.sum()) + (5 if seed % 2 else 0)
    of_row = np.append(np.repeat(np.arange(groups), free), np.zeros(n - free.sum(), int))
    skewed = (rng.random(parents) ** 8).astype(float)
    levels = [(rng.integers(0, 3, parents), rng.integers(0, 3, n))]
    choice = ParentChoice(of_row, of_parent, weights=skewed, room=room)
    places = pick_parents(levels, np.ones(n, dtype=bool), choice, rng)
    taken = np.bincount(places[places >= 0], minlength=parents)
    assert (taken <= room).all()
    assert taken.sum() == free.sum()  # as many as there is room for: the greatest possible number
    assert (of_parent[places[places >= 0]] == of_row[places >= 0]).all()


def test_a_popular_parent_is_full_before_another_takes_its_rows_and_pairs_still_differ() -> None:
    rng = np.random.default_rng(1)
    popular = np.array([1000.0, 1.0, 1.0, 1.0])
    choice = ParentChoice(*(np.zeros(k, int) for k in (90, 4)), weights=popular, room=np.full(4, 30))
    taken = np.bincount(pick_parents([], np.ones(90, dtype=bool), choice, rng), minlength=4)
    assert taken[0] == 30
    assert taken.sum() == 90
    pairs = Distinct(np.repeat(np.arange(30), 3), np.arange(4))
    differing = ParentChoice(*(np.zeros(k, int) for k in (90, 4)), (pairs,), popular, np.full(4, 30))
    places = pick_parents([], np.ones(90, dtype=bool), differing, rng)
    given = places >= 0
    assert given.sum() >= 88
    assert (np.bincount(places[given], minlength=4) <= 30).all()
    assert (
        len(set(zip(np.repeat(np.arange(30), 3)[given].tolist(), places[given].tolist(), strict=True))) == given.sum()
    )


def test_opening_a_cycle_overfills_no_parent() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        places = np.append(rng.permutation(6), [6, 7])  # every row has one child, itself or another
        choice = replace(ParentChoice.free(8, 8), room=np.full(8, 1))
        forest = without_cycles(places, choice, rng)
        assert (np.bincount(forest[forest >= 0], minlength=8) <= 1).all()
