"""Constraints between columns of a row: what a row makes of them, which are found, and that drawn rows keep them."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.columns.row_constraints import NOT_APPLICABLE, SATISFIED, VIOLATED, expected_numbers, verdicts
from privbench_core.privacy.budget import Measure, Price
from privbench_core.profiles.measure_profile import implied_joints, learn_table
from privbench_core.profiles.profile import Profile
from privbench_core.sampling.constraints import made_to_satisfy
from privbench_core.schema.columns import Column, ColumnType, Learn, Range
from privbench_core.schema.row_constraints import DatePart, MissingTogether, PartOfDate, RowConstraint, SameValue
from privbench_core.schema.tables import Schema, Table
from tests.helpers.noise import SeededNoise
from tests.helpers.planted import PLENTY, door_of, draw_exactly, rows_of

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
        paid=pa.array(days.astype("datetime64[D]") + off * rng.integers(1, 900, n)),
        price=pa.array(priced, mask=~some),
        fee=pa.array(priced * 2, mask=~(some ^ off)),
    )


def learned(source: pa.Table, price: Price = PLENTY, seed: int | None = None) -> Profile:
    noise = None if seed is None else SeededNoise(seed)
    return learn_table(door_of(SCHEMA, {"row": source}, price, noise), TABLE, 1, price, 0.4)[1]


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


@pytest.mark.parametrize("amount", [1e-6, 1e-4])
def test_nothing_is_paid_for_what_noise_would_hide(amount: float) -> None:
    """What is found in spite of it would be an accident."""
    price = Price(Measure.ZCDP, amount)
    session = door_of(SCHEMA, {"row": rows(n=300)}, price, SeededNoise(0))
    assert learn_table(session, TABLE, 1, price, 0.4)[1].constraints == ()


def test_joints_follow_from_constraints_without_being_measured() -> None:
    profile = learned(rows())
    joint = implied_joints(TABLE, profile)["paid", "year"]
    first, second = (profile.one_way.clean()[name] for name in ("paid", "year"))
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
    constraint: RowConstraint = PartOfDate("month", "day", DatePart.DAY)
    profile = learned(rows())
    values = {"day": pa.array([dt.date(2020, 1, 5), dt.date(2020, 1, 31), None]), "month": pa.array([7, 7, 7])}
    made = made_to_satisfy(TABLE, [constraint], values, profile.discretizers, np.random.default_rng(0))
    assert made["month"].to_pylist() == [5, 7, 7]


def test_columns_that_are_missing_together_come_from_one_row() -> None:
    values = {"price": pa.array([1, None, 3, 4]), "fee": pa.array([None, 20, 30, 40]), "year": pa.array([1, 2, 3, 4])}
    together = MissingTogether(("price", "fee", "year"))
    made = made_to_satisfy(TABLE, [together], values, {}, np.random.default_rng(0))
    assert [each is None for each in made["fee"].to_pylist()] == [False, True, False, False]
    assert made["fee"][0].as_py() in {30, 40}
    assert made["year"].to_pylist() == [1, None, 3, 4]
