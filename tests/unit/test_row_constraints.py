"""Constraints between columns of a row: what a row makes of them, which are found, and that drawn rows keep them."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.registry import codec_for
from privbench_core.columns.row_constraints import (
    NOT_APPLICABLE,
    SATISFIED,
    VIOLATED,
    declared_constraints,
    expected_numbers,
    verdicts,
)
from privbench_core.privacy.budget import Budget, Measure, Price
from privbench_core.profiles.measure_profile import implied_joints
from privbench_core.profiles.profile import Profile
from privbench_core.sampling.constraints import made_to_satisfy
from privbench_core.schema.columns import Column, ColumnType, Learn, Range, Values
from privbench_core.schema.constraints import Check
from privbench_core.schema.row_constraints import (
    DatePart,
    Formula,
    InOrder,
    MissingTogether,
    MissingWhere,
    PartOfDate,
    RowConstraint,
    SameValue,
    in_sequence,
)
from privbench_core.schema.tables import Schema, Table
from tests.helpers.noise import SeededNoise
from tests.helpers.planted import PLENTY, door_of, draw_exactly, learn_counted, rows_of

INTEGER, DATE = ColumnType.INTEGER, ColumnType.DATE
TABLE = Table(
    "row",
    (
        Column("id", INTEGER),
        Column("day", DATE, Learn(), nullable=True),
        Column("year", INTEGER, Learn(), nullable=True),
        Column("month", INTEGER, Range(1, 12)),
        Column("paid", DATE, Learn(), nullable=True),
        Column("price", INTEGER, Learn(), nullable=True),
        Column("fee", INTEGER, Learn(), nullable=True),
    ),
    ("id",),
)
SCHEMA = Schema("rows", (TABLE,), "row")
HOLDS = {
    PartOfDate("year", "paid", DatePart.YEAR),
    SameValue("paid", "day"),
    MissingTogether(("price", "fee")),
}


def rows(broken: float = 0.0, n: int = 3000) -> pa.Table:
    """Rows that keep `HOLDS`, but for a share of them; months are of no day."""
    rng = np.random.default_rng(0)
    some, off = rng.random(n) < 0.8, rng.random(n) < broken
    days = np.datetime64("1950-01-01") + rng.binomial(20_000, rng.beta(2, 3, n), n)
    years = days.astype("datetime64[Y]").astype(int) + 1970
    first = pa.array(days.astype("datetime64[D]"), mask=rng.random(n) < 0.05)
    priced = rng.integers(0, 50, n)
    return rows_of(
        TABLE,
        id=np.arange(n),
        day=first,
        year=years + off * rng.integers(1, 9, n),
        month=rng.integers(1, 13, n),
        paid=pa.array(days.astype("datetime64[D]") + off * rng.integers(-900, 900, n)),
        price=pa.array(priced, mask=~some),
        fee=pa.array(priced * 2, mask=~(some ^ off)),
    )


def learned(source: pa.Table, price: Price = PLENTY, seed: int | None = None) -> Profile:
    noise = None if seed is None else SeededNoise(seed)
    return learn_counted(door_of(SCHEMA, {"row": source}, price, noise), TABLE, 1, price, 0.4)[1]


@pytest.mark.parametrize(
    ("day", "part", "number"),
    [
        ("2021-01-03", DatePart.WEEK, 53),
        ("2021-01-03", DatePart.WEEK_FROM_SUNDAY, 2),
        ("2021-01-04", DatePart.WEEK_FROM_MONDAY, 2),
        ("2021-01-07", DatePart.SEVEN_DAYS, 1),
        ("2020-12-31", DatePart.DAY_OF_YEAR, 366),
        ("1969-12-28", DatePart.WEEKDAY_FROM_SUNDAY, 0),
        ("1969-12-28", DatePart.WEEKDAY_ISO, 7),
        ("1969-12-27", DatePart.WEEKDAY_FROM_SUNDAY_1, 7),
        ("1969-12-29", DatePart.WEEKDAY_FROM_MONDAY, 0),
        ("2020-05-01", DatePart.QUARTER, 2),
        ("2020-05-01", DatePart.HOUR, 0),
        ("1970-01-03", DatePart.DATE, 2),
    ],
)
def test_parts_of_dates(day: str, part: DatePart, number: int) -> None:
    values = {"day": pa.array([dt.date.fromisoformat(day), None])}
    found, unknown = expected_numbers(TABLE, PartOfDate("year", "day", part), values)
    assert found[0] == number
    assert unknown.tolist() == [False, True]


def test_a_value_that_is_missing_neither_keeps_nor_breaks_a_constraint() -> None:
    values = {"price": pa.chunked_array([[1, 1, None]]), "fee": pa.chunked_array([[1, 2, 2]])}
    same = verdicts(TABLE, SameValue("fee", "price"), values)
    assert same.tolist() == [SATISFIED, VIOLATED, NOT_APPLICABLE]
    values = {"price": pa.chunked_array([[1, None, None]]), "fee": pa.chunked_array([[2, 2, None]])}
    together = verdicts(TABLE, MissingTogether(("price", "fee")), values)
    assert together.tolist() == [NOT_APPLICABLE, VIOLATED, SATISFIED]


def test_what_holds_is_found_and_stored() -> None:
    profile = learned(rows())
    assert set(profile.constraints) == HOLDS
    assert Profile.from_dict(profile.to_dict()).constraints == profile.constraints


def test_what_a_third_of_the_rows_break_is_not_found() -> None:
    assert learned(rows(broken=0.33)).constraints == ()


def test_columns_that_are_nearly_always_zero_are_not_taken_for_equal() -> None:
    """Homes without a car, and homes that are houses: 98% of all rows had two zeros."""
    table = Table("home", (Column("id", INTEGER), *(Column(n, INTEGER, Range(0, 9)) for n in "abc")), ("id",))
    rng, price = np.random.default_rng(0), Price(Measure.GDP, 0.1)
    values = {"a": rng.random(30_000) < 0.02, "b": rng.random(30_000) < 0.015, "c": rng.integers(0, 9, 30_000)}
    made = rows_of(table, id=np.arange(30_000), **{name: found.astype(int) for name, found in values.items()})
    door = door_of(Schema("homes", (table,), "home"), {"home": made}, price, SeededNoise(0))
    assert learn_counted(door, table, 1, price, 0.4)[1].constraints == ()


@pytest.mark.parametrize("amount", [1e-6, 1e-4])
def test_nothing_is_paid_for_what_noise_would_hide(amount: float) -> None:
    """What is found in spite of it would be an accident."""
    price = Price(Measure.GDP, amount)
    session = door_of(SCHEMA, {"row": rows(n=300)}, price, SeededNoise(0))
    assert learn_counted(session, TABLE, 1, price, 0.4)[1].constraints == ()


def test_joints_follow_from_constraints_without_being_measured() -> None:
    profile = learned(rows())
    joint = implied_joints(TABLE, profile)["year", "paid"]
    first, second = (profile.one_way.clean()[name] for name in ("year", "paid"))
    assert joint.sum(axis=0) == pytest.approx(second, rel=0.1, abs=5)
    independent = np.outer(first, second) / second.sum()
    assert np.abs(joint - independent).sum() / 2 > 0.5 * joint.sum()


def test_drawn_rows_keep_what_was_found() -> None:
    """Columns have their own distributions, and NULL as often."""
    source = rows()
    made = draw_exactly(SCHEMA, {"row": source})["row"].table
    for constraint in HOLDS:
        values = {name: made.column(name) for name in constraint.columns}
        assert (verdicts(TABLE, constraint, values) != VIOLATED).all(), constraint
    for name in ("year", "price", "fee"):
        one, other = (each.column(name).drop_null().to_numpy() for each in (source, made))
        assert len(other) == pytest.approx(len(one), rel=0.05)
        assert np.quantile(other, (0.1, 0.5, 0.9)) == pytest.approx(np.quantile(one, (0.1, 0.5, 0.9)), abs=4)


def test_a_value_outside_of_its_declared_domain_is_not_written() -> None:
    constraint: RowConstraint = PartOfDate("month", "day", DatePart.WEEK)
    profile = learned(rows())
    values = {"day": pa.array([dt.date(2020, 1, 5), dt.date(2020, 5, 31), None]), "month": pa.array([7, 7, 7])}
    made = made_to_satisfy(TABLE, [constraint], values, profile.discretizers, np.random.default_rng(0))
    assert made["month"].to_pylist() == [1, 7, 7]


def test_columns_that_are_missing_together_come_from_one_row() -> None:
    values = {"price": pa.array([1, None, 3, 4]), "fee": pa.array([None, 20, 30, 40]), "year": pa.array([1, 2, 3, 4])}
    together = MissingTogether(("price", "fee", "year"))
    made = made_to_satisfy(TABLE, [together], values, {}, np.random.default_rng(0))
    assert [each is None for each in made["fee"].to_pylist()] == [False, True, False, False]
    assert made["fee"][0].as_py() in {30, 40}
    assert made["year"].to_pylist() == [1, None, 3, 4]


PARCEL = Table(
    "parcel",
    (
        Column("id", INTEGER),
        Column("status", ColumnType.CATEGORY, Values(("new", "packed", "shipped", "lost"))),
        Column("insured", ColumnType.BOOLEAN),
        Column("carrier", ColumnType.CATEGORY, Values(("post", "bike")), nullable=True),
        Column("shipped", DATE, Learn(), nullable=True),
        Column("premium", INTEGER, Range(1, 8), nullable=True),
    ),
    ("id",),
)
PARCELS = Schema("parcels", (PARCEL,), "parcel")
SHIPPED = MissingWhere("carrier", "status", ("new", "packed"), True)
INSURED = MissingWhere("premium", "insured", ("false",), True)


def parcels(broken: float = 0.0, n: int = 3000) -> pa.Table:
    """Parcels that have a carrier and a date once they are shipped, but for a share of them."""
    rng = np.random.default_rng(2)
    status = rng.choice(["new", "packed", "shipped", "lost"], n, p=[0.3, 0.13, 0.5, 0.07])
    insured, off = rng.random(n) < 0.2, rng.random(n) < broken
    away = np.isin(status, ["new", "packed"]) ^ off
    return rows_of(
        PARCEL,
        id=np.arange(n),
        status=status,
        insured=insured,
        carrier=pa.array(rng.choice(["post", "bike"], n), mask=away),
        shipped=pa.array(np.datetime64("2020-01-01") + rng.integers(0, 900, n), mask=away),
        premium=pa.array(rng.integers(1, 9, n), mask=~insured ^ off),
    )


def test_a_value_of_a_list_says_where_others_are_missing() -> None:
    """Rows are drawn so, and the joint of both columns follows without being measured."""
    source = parcels()
    profile = learn_counted(door_of(PARCELS, {"parcel": source}, PLENTY), PARCEL, 1, PLENTY, 0.4)[1]
    together = MissingTogether(("carrier", "shipped"))
    assert set(profile.constraints) == {SHIPPED, INSURED, together}
    assert Profile.from_dict(profile.to_dict()).constraints == profile.constraints
    joint, labels = implied_joints(PARCEL, profile)["insured", "premium"], profile.discretizers["premium"].size
    assert joint.shape == (2, labels)
    assert joint[1, -1] < 0.01 * joint[1].sum()
    assert joint[0, -1] > 0.99 * joint[0].sum()
    made = draw_exactly(PARCELS, {"parcel": source})["parcel"].table
    kept: tuple[RowConstraint, ...] = (SHIPPED, INSURED, together)
    for constraint in kept:
        found = verdicts(PARCEL, constraint, {name: made.column(name) for name in constraint.columns})
        assert (found != VIOLATED).all(), constraint
    assert made.column("carrier").null_count == pytest.approx(source.column("carrier").null_count, rel=0.05)


def test_where_a_tenth_of_the_rows_have_a_value_in_spite_of_it_is_not_found() -> None:
    source = parcels(broken=0.1)
    profile = learn_counted(door_of(PARCELS, {"parcel": source}, PLENTY), PARCEL, 1, PLENTY, 0.4)[1]
    assert profile.constraints == (MissingTogether(("carrier", "shipped")),)


def test_where_a_list_says_nothing_a_value_may_be_missing_or_not() -> None:
    status = ["new", "new", "shipped", "shipped", None, None]
    values = {"status": pa.array(status), "carrier": pa.array(["post", None] * 3)}
    found = verdicts(PARCEL, SHIPPED, {name: pa.chunked_array([each]) for name, each in values.items()})
    assert found.tolist() == [VIOLATED, SATISFIED, SATISFIED, VIOLATED, NOT_APPLICABLE, NOT_APPLICABLE]
    made = made_to_satisfy(PARCEL, [SHIPPED], values, {}, np.random.default_rng(0))
    assert made["carrier"].to_pylist() == [None, None, "post", "post", "post", None]


def test_what_is_missing_together_is_where_a_list_says_so() -> None:
    """Groups that share a column are one, after the column of which it is known where it is missing."""
    found: list[RowConstraint] = [
        MissingTogether(("a", "b")),
        MissingTogether(("c", "d")),
        MissingTogether(("d", "b")),
        MissingWhere("c", "x", ("1",), True),
        MissingWhere("a", "x", ("2",), True),
        MissingWhere("e", "d", ("3",), True),
    ]
    assert in_sequence(found) == (found[3], MissingTogether(("c", "a", "b", "d")))


ORDER = Table(
    "item",
    (
        Column("id", INTEGER),
        Column("quantity", INTEGER, Range(1, 8)),
        Column("price", ColumnType.DECIMAL, Range(0, 20, cells=20), precision=8, scale=2),
        Column("amount", ColumnType.DECIMAL, Range(0, 160, cells=20), precision=8, scale=2),
        Column("net", ColumnType.FLOAT, Range(0, 400, cells=20)),
        Column("tax", ColumnType.FLOAT, Range(0, 80, cells=20), nullable=True),
        Column("gross", ColumnType.FLOAT, Range(0, 480, cells=20)),
        Column("low_tide", INTEGER, Range(0, 119, cells=20)),
        Column("high_tide", INTEGER, Range(0, 119, cells=20)),
    ),
    ("id",),
)
ORDERS = Schema("items", (ORDER,), "item")
KEPT = {
    Formula("amount", ("quantity", "price"), True, 0.005),
    Formula("gross", ("net", "tax"), False, 0.005),
    InOrder("low_tide", "high_tide"),
}


def orders(n: int = 1000) -> pa.Table:
    """Rows that keep `KEPT`; there is no tax on one in ten, whose gross is as it may be."""
    rng = np.random.default_rng(1)
    quantity, cents = rng.integers(1, 9, n), rng.binomial(2000, rng.beta(2, 3, n), n)
    net, low = np.round(rng.gamma(3, 20, n), 2), rng.binomial(200, 0.3, n)
    tax = np.round(net * rng.choice([0.07, 0.19], n), 2)
    decimals = [pa.array(each).cast(pa.decimal128(20, 0)) for each in (cents, quantity * cents)]
    price, amount = (pc.multiply(each, pa.scalar(Decimal("0.01"))).cast(pa.decimal128(8, 2)) for each in decimals)
    return rows_of(
        ORDER,
        id=np.arange(n),
        quantity=quantity,
        price=price,
        amount=amount,
        net=net,
        tax=pa.array(tax, mask=rng.random(n) < 0.1),
        gross=np.round(net + tax, 2),
        low_tide=low,
        high_tide=low + rng.binomial(100, 0.1, n),
    )


def test_sums_products_and_orders_are_found_and_kept() -> None:
    source = orders()
    session = door_of(ORDERS, {"item": source})
    assert set(learn_counted(session, ORDER, 1, PLENTY, 0.4)[1].constraints) == KEPT
    made = draw_exactly(ORDERS, {"item": source}, budget=Budget(500, 1e-6), noise=SeededNoise(1))["item"].table
    for constraint in KEPT:
        judged = verdicts(ORDER, constraint, {name: made.column(name) for name in constraint.columns})
        assert (judged != VIOLATED).all(), constraint
    assert made.column("tax").null_count == pytest.approx(100, abs=20)
    for name in ("amount", "gross", "high_tide", "low_tide"):
        one, other = (each.column(name).cast(pa.float64()).to_numpy() for each in (source, made))
        assert np.mean(other) == pytest.approx(np.mean(one), rel=0.05)


@pytest.mark.parametrize(
    ("expression", "constraint"),
    [
        ("amount = quantity * price", Formula("amount", ("quantity", "price"), True, 0.005)),
        (
            "(amount)::numeric = round(((quantity)::numeric * price), 2)",
            Formula("amount", ("quantity", "price"), True, 0.005),
        ),
        ("net + tax = gross", Formula("gross", ("net", "tax"), False, 5e-16)),
        ("high_tide >= low_tide AND quantity > 0", InOrder("low_tide", "high_tide")),
        ("(net IS NULL) = (tax IS NULL)", MissingTogether(("net", "tax"))),
        ("(tax IS NULL) = (kind = 'gift')", MissingWhere("tax", "kind", ("gift",), True)),
        ("(kind IN ('sale', 'rent')) = (tax IS NOT NULL)", MissingWhere("tax", "kind", ("sale", "rent"), False)),
        ("(net IS NULL) = (kind = 'gift')", None),
        ("(net IS NULL) = (tax IS NOT NULL)", None),
        ("low_tide = high_tide", SameValue("low_tide", "high_tide")),
        ("low_tide = high_tide + 1", None),
        ("low_tide < high_tide OR quantity = 1", None),
        ("id = quantity", None),
        ("net <= 400", None),
        ("amount = amount * quantity", None),
    ],
)
def test_checks_are_read_as_constraints(expression: str, constraint: RowConstraint | None) -> None:
    kind = Column("kind", ColumnType.CATEGORY, Values(("gift", "sale", "rent")))
    table = replace(ORDER, columns=(*ORDER.columns, kind), checks=(Check("c", expression),))
    assert declared_constraints(table) == (() if constraint is None else (constraint,))


def test_part_of_a_date_is_read_from_a_check() -> None:
    table = replace(TABLE, checks=(Check("c", '"year" = EXTRACT(year FROM day)'), Check("d", "paid = day")))
    assert declared_constraints(table) == (PartOfDate("year", "day", DatePart.YEAR), SameValue("paid", "day"))


def test_declared_formulas_are_computed_and_not_paid_for() -> None:
    """They would break them in nearly all rows else, and be left out."""
    source = orders(500)
    checks = (Check("product", "amount = quantity * price"), Check("order", "low_tide <= high_tide"))
    table = replace(ORDER, checks=checks)
    schema = Schema("items", (table,), "item")
    made = draw_exactly(schema, {"item": source}, budget=Budget(0.5, 1e-6), noise=SeededNoise(0))["item"]
    for constraint in declared_constraints(table):
        columns = {name: made.table.column(name) for name in constraint.columns}
        assert (verdicts(table, constraint, columns) == SATISFIED).all()
    assert not made.dropped
    found = learn_counted(door_of(schema, {"item": source}), table, 1, PLENTY, 0.4)[1].constraints
    assert set(found) == {Formula("gross", ("net", "tax"), False, 0.005)}


@pytest.mark.parametrize("total", ["premium_tot", "premium"])
def test_a_sum_of_many_parts_is_found_beside_a_column_that_is_called_a_total(total: str) -> None:
    rng = np.random.default_rng(0)
    parts = {f"cover_{place}": rng.integers(0, 50, 2000) for place in range(8)}
    columns = tuple(Column(name, INTEGER, Learn()) for name in ("door", *parts, total))
    table = Table("policy", (Column("id", INTEGER), *columns), ("id",))
    source = {"id": np.arange(2000), "door": rng.integers(1, 9, 2000), **parts, total: sum(parts.values())}
    schema = Schema("policies", (table,), "policy")
    found = learn_counted(door_of(schema, {"policy": rows_of(table, **source)}), table, 1, PLENTY, 0.4)[1].constraints
    holds = [Formula(total, tuple(parts), False, 0.5)] if total == "premium_tot" else []
    assert [each for each in found if isinstance(each, Formula)] == holds


def test_a_date_is_found_to_be_that_of_a_time() -> None:
    rng = np.random.default_rng(0)
    at = Column("created_at", ColumnType.TIMESTAMP, Learn())
    table = Table("order", (Column("id", INTEGER), Column("ordered", DATE, Learn()), at), ("id",))
    times = pa.array(rng.integers(1_500_000_000, 1_600_000_000, 2000) * 1_000_000).cast(at.arrow_type)
    rows = {"id": np.arange(2000), "ordered": times.cast(pa.date32()), "created_at": times}
    schema, constraint = Schema("orders", (table,), "order"), PartOfDate("ordered", "created_at", DatePart.DATE)
    source = {"order": rows_of(table, **rows)}
    assert constraint in learn_counted(door_of(schema, source), table, 1, PLENTY, 0.4)[1].constraints
    made = draw_exactly(schema, source, noise=SeededNoise(0))["order"].table
    values = {name: made.column(name) for name in constraint.columns}
    assert (verdicts(table, constraint, values) == SATISFIED).all()
    assert declared_constraints(replace(table, checks=(Check("c", "ordered = created_at::date"),))) == (constraint,)


def test_rows_in_a_wrong_order_exchange_values_so_that_columns_keep_theirs() -> None:
    rng = np.random.default_rng(0)
    low, high = rng.integers(0, 60, 1000), rng.integers(40, 100, 1000)
    values = {"low_tide": pa.array(low), "high_tide": pa.array(high)}
    tides = [replace(ORDER.column(name), domain=Learn()) for name in values]
    table, constraint = replace(ORDER, columns=tuple(tides)), InOrder("low_tide", "high_tide")
    made = made_to_satisfy(table, [constraint], values, {}, rng)
    found = {name: each.to_numpy() for name, each in made.items()}
    assert (found["low_tide"] <= found["high_tide"]).all()
    assert sorted(found["high_tide"]) == sorted(high)
    values = {"low_tide": pa.array([5, None, 2]), "high_tide": pa.array([3, 1, 1])}
    made = made_to_satisfy(table, [constraint], values, {}, rng)
    assert made["low_tide"].to_pylist() == [3, None, 1]
    assert made["high_tide"].to_pylist() == [5, 1, 2]
    declared = replace(table, columns=(replace(tides[0], domain=Range(2, 9)), tides[1]))
    discretizers = {"low_tide": Discretizer(codec_for(declared.columns[0]))}
    made = made_to_satisfy(declared, [constraint], values, discretizers, rng)
    assert made["low_tide"].to_pylist() == [3, None, 2], "no value enters a domain that it is not of"
    assert made["high_tide"].to_pylist() == [5, 1, 2]


def test_sums_neither_overflow_nor_leave_the_type() -> None:
    values = {
        "net": pa.array([1e300, -math.inf, math.nan]),
        "tax": pa.array([1e300, 0.0, 1.0]),
        "gross": pa.array([0.0] * 3),
    }
    found, unknown = expected_numbers(ORDER, Formula("gross", ("net", "tax"), True, 0.5), values)
    assert np.isfinite(found).all()
    assert unknown.tolist() == [False, False, True]
    numbers, _ = expected_numbers(ORDER, Formula("amount", ("net", "tax"), False, 0.005), values)
    assert numbers.max() < 10**8


@pytest.mark.parametrize(
    ("part", "number", "moved"),
    [
        (DatePart.HOUR, 17, "2020-02-05T17:30:00"),
        (DatePart.DAY, 29, "2020-02-29T09:30:00"),
        (DatePart.WEEKDAY_ISO, 1, "2020-02-03T09:30:00"),
        (DatePart.WEEKDAY_ISO, 400, "2020-02-05T09:30:00"),
    ],
)
def test_dates_are_moved_to_hours_and_days_that_are_columns(part: DatePart, number: int, moved: str) -> None:
    """Hours of a date are known from their own column much better than from that of the date."""
    at = Column("at", ColumnType.TIMESTAMP, Learn())
    table = Table("t", (Column("id", INTEGER), at, Column("n", INTEGER, Learn(), nullable=True)), ("id",))
    values = {"at": pa.array([dt.datetime(2020, 2, 5, 9, 30)] * 2), "n": pa.array([number, None])}
    values["at"] = values["at"].cast(at.arrow_type)
    constraint = PartOfDate("n", "at", part)
    made = made_to_satisfy(table, [constraint], values, {}, np.random.default_rng(0))
    assert made["at"].to_pylist() == [dt.datetime.fromisoformat(moved), dt.datetime(2020, 2, 5, 9, 30)]
    chunked = {name: pa.chunked_array([array]) for name, array in made.items()}
    assert verdicts(table, constraint, chunked).tolist() == [SATISFIED, NOT_APPLICABLE]
