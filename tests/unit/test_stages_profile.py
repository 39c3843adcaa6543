from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import rankdata

from privbench_core.columns.categorical import CategoricalCodec
from privbench_core.errors import UnsupportedBudgetError
from privbench_core.privacy.budget import Budget, Measure, Price
from privbench_core.privacy.noise import NoiseSource
from privbench_core.profiles.profile import Profile
from privbench_core.schema.columns import Column, ColumnType, Learn
from privbench_core.schema.tables import Schema, Table
from privbench_core.stored import restored
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.steps.profile import profile_steps
from tests.helpers.noise import SeededNoise
from tests.helpers.planted import (
    PLENTY,
    door_of,
    draw_exactly,
    integer,
    learn_counted,
    owner_key,
    planted_pair,
    rows_of,
)

YEAR_2000 = dt.date(2000, 1, 1)


LISTED = Price(Measure.GDP, 0.5, 1e-9)


def stored(profile: Profile) -> Profile:
    """The profile as it is read back from an artifact."""
    return Profile.from_dict(Artifact.from_bytes(Artifact({"p": profile.to_dict()}).to_bytes()).data["p"])


def profiled(column: Column, values: pa.Array, price: Price = PLENTY, noise: NoiseSource | None = None) -> Profile:
    table = Table("t", (integer("id"), column), ("id",))
    rows = rows_of(table, id=np.arange(len(values)), **{column.name: values})
    return learn_counted(door_of(Schema("s", (table,), "t"), {"t": rows}, price, noise), table, 1, price)[1]


@pytest.mark.parametrize(
    ("column", "values", "low", "high"),
    [
        (Column("x", ColumnType.INTEGER, Learn()), [5, 7, 100, 1000], 4, 1023),
        (Column("x", ColumnType.INTEGER, Learn()), [-9, 0, 3], -15, 3),
        (Column("x", ColumnType.INTEGER, Learn()), [0, 0, 0], 0, 0),
        (Column("x", ColumnType.FLOAT, Learn()), [0.3, 1.5], 0.3, 1.9),
        (Column("x", ColumnType.DATE, Learn()), [dt.date(1999, 5, 1), dt.date(2003, 1, 1)], "1999-01-01", "2003-12-31"),
    ],
)
def test_a_learned_range_covers_the_values_and_ends_on_the_public_grid(column, values, low, high):
    codec = profiled(column, pa.array(values * 50)).discretizers["x"].codec
    assert codec.edges(0)[0] == low  # type: ignore[attr-defined]
    last = codec.edges(codec.ordered - 1)[1]  # type: ignore[attr-defined]
    assert last == (pytest.approx(high) if isinstance(high, float) else high)


def test_a_learned_list_holds_the_values_most_common_first():
    values = pa.array(["b"] * 60 + ["a"] * 30 + ["c"] * 10)
    price = PLENTY.with_delta(1e-9)
    profile = profiled(Column("x", ColumnType.CATEGORY, Learn()), values, price)
    assert profile.discretizers["x"].codec.labels()[:3] == ["b", "a", "c"]
    with pytest.raises(UnsupportedBudgetError, match=r"t\.x: learning a list of values needs delta > 0"):
        profiled(Column("x", ColumnType.CATEGORY, Learn()), values, PLENTY)


def test_a_learned_list_of_numbers_names_some_and_makes_others_up_with_as_many_digits():
    rare = [*range(10_000, 10_040), *range(10**17, 10**17 + 20)]
    values = pa.array([-1] * 600 + [404] * 300 + [185_349_003] * 200 + rare)
    profile = profiled(Column("x", ColumnType.INTEGER, Learn(listed=True)), values, LISTED, SeededNoise(1))
    codec = profile.discretizers["x"].codec
    assert isinstance(codec, CategoricalCodec)
    assert codec.values == (-1, 404, 185_349_003)
    assert codec.made is not None
    assert restored(codec.to_dict()) == codec
    made = codec.decode(np.full(2000, codec.other), np.random.default_rng(0))
    assert made.type == pa.int64()
    digits = np.array([len(str(value)) for value in made.to_pylist()])
    assert set(digits.tolist()) == {5, 18}
    assert 0.5 < (digits == 5).mean() < 0.8
    assert not set(made.to_pylist()) & {-1, 404, 185_349_003}
    named = codec.decode(np.arange(3), np.random.default_rng(0))
    assert named.to_pylist() == [-1, 404, 185_349_003]


def test_numbers_that_do_not_fit_into_their_type_are_not_named():
    column = Column("x", ColumnType.INTEGER, Learn(listed=True), sql_type="smallint")
    values = pa.array([70_000] * 500 + [-(2**63)] * 500 + [-32_768] * 500)
    codec = profiled(column, values, LISTED, SeededNoise(0)).discretizers["x"].codec
    assert codec.values == (-32_768,)  # type: ignore[attr-defined]
    made = codec.decode(np.full(500, codec.other), np.random.default_rng(0)).to_pylist()  # type: ignore[attr-defined]
    assert 0 < min(made) <= max(made) < 32_768


@pytest.mark.parametrize(("sql_type", "most"), [("smallint", 9_999), ("integer", 999_999_999)])
def test_numbers_that_are_made_up_fit_into_their_type(sql_type: str, most: int):
    column = Column("x", ColumnType.INTEGER, Learn(listed=True), sql_type=sql_type)
    values = pa.array(np.arange(most - 400, most))
    codec = profiled(column, values, LISTED, SeededNoise(0)).discretizers["x"].codec
    made = codec.decode(np.full(500, codec.other), np.random.default_rng(0)).to_pylist()  # type: ignore[attr-defined]
    assert 0 < min(made) <= max(made) <= most


def test_the_counts_of_an_owned_table_are_of_rows():
    schema, tables = planted_pair(500)
    session = door_of(schema, tables)
    _, profile, _ = learn_counted(session, schema.table("child"), schema.max_rows_per_unit("child"), PLENTY)
    assert profile.size.in_full
    assert profile.size.rows == pytest.approx(tables["child"].num_rows, rel=1e-3)
    assert profile.total == pytest.approx(tables["child"].num_rows, rel=1e-3)
    back = stored(profile)
    assert back.size.classes == profile.size.classes
    assert back.size.rows_of.tolist() == profile.size.rows_of.tolist()


def test_values_of_units_with_many_rows_are_named_apart_though_noise_hides_them_among_units():
    """400 users have all of 12 honours five times over, 12,000 have nothing but one start: honours weigh 1/61 a row."""
    names = [f"honour {number}" for number in range(12)]
    owners = np.concatenate([np.arange(12_400), np.repeat(np.arange(400), 60)])
    values = pa.array(["start"] * 12_400 + names * 5 * 400)
    user = Table("user", (integer("id"),), ("id",))
    key = owner_key("row", "user", "user", 100)
    row = Table("row", (integer("id"), integer("user"), Column("x", ColumnType.CATEGORY, Learn())), ("id",), (key,))
    schema = Schema("s", (user, row), "user")
    rows = {
        "user": rows_of(user, id=np.arange(12_400)),
        "row": rows_of(row, id=np.arange(len(owners)), user=owners, x=values),
    }
    price = Price(Measure.GDP, 0.02, 1e-6)
    cells, profile, _ = learn_counted(door_of(schema, rows, price, SeededNoise(0)), row, 100, price)
    labels = profile.discretizers["x"].codec.labels()
    named = [labels.index(name) for name in names if name in labels]
    assert len(named) > 6
    first, sigma = cells.first["x"][named], cells.sigmas["x"]
    assert (first < 3 * sigma).any()  # as a rare value that would share a code with others
    codes = profile.discretizers["x"].encode(pa.chunked_array([[labels[cell] for cell in named]]))
    assert len(set(codes.tolist())) == len(named)


def parameters(schema: Schema, table: str) -> object:
    price = Price(Measure.PURE, 1.0)
    return [dict(step.parameters) for step in profile_steps(schema, schema.table(table), price)]


def test_every_bound_on_the_ownership_path_is_part_of_a_releases_identity():
    """A release bought under another τ of a table further up held other rows, at other weights."""

    def chain(bound: int) -> Schema:
        top = Table("top", (integer("id"),), ("id",))
        middle = Table("middle", (integer("id"), integer("up")), ("id",), (owner_key("middle", "up", "top", bound),))
        low = Table("low", (integer("id"), integer("up")), ("id",), (owner_key("low", "up", "middle", 2),))
        return Schema("chain", (top, middle, low), "top")

    assert parameters(chain(3), "low") == parameters(chain(3), "low")
    assert parameters(chain(3), "low") != parameters(chain(4), "low")
    assert parameters(chain(3), "top") == parameters(chain(4), "top")


def sampled(column: Column, values: Sequence[object], epsilon: float, seed: int = 0) -> list[Any]:
    """The values of a column in a synthetic database, with noise."""
    table = Table("t", (integer("id"), column), ("id",))
    rows = rows_of(table, id=np.arange(len(values)), **{column.name: pa.array(values)})
    schema, budget = Schema("s", (table,), "t"), Budget(epsilon, 1e-9)
    made = draw_exactly(schema, {"t": rows}, noise=SeededNoise(seed), budget=budget, seed=seed)
    found: list[Any] = made["t"].table.column(column.name).to_pylist()
    return found


def test_values_too_rare_to_name_are_made_up_in_their_number_their_likeness_and_their_length():
    """A column with thousands of values must not shrink to its few common ones, which then take the tail's rows."""
    rng = np.random.default_rng(0)
    streets = [f"Street {rng.integers(1, 9)} no {x}" for x in rng.integers(0, 5000, 10_000)]
    values = [*rng.choice(["Main", "High"], 10_000).tolist(), *streets]
    found = sampled(Column("x", ColumnType.CATEGORY, Learn(), sql_type="character varying(16)"), values, 3.0)
    before, after = Counter(values), Counter(found)
    assert len(after) == pytest.approx(len(before), rel=0.05)
    for name in ("Main", "High"):
        assert after[name] == pytest.approx(before[name], abs=200)
    assert after.most_common(3)[2][1] < 40  # nothing of the tail has become common
    assert max(map(len, after)) <= 16
    assert np.mean([len(v) for v in found]) == pytest.approx(np.mean([len(v) for v in values]), abs=0.5)
    assert not after.keys() & {street for street in streets if len(street) > 12}


@pytest.mark.parametrize(
    ("form", "like"), [("{:.0f}", r"[1-9]\d*"), ("{:.2f}", r"[1-9]\d*\.\d+"), ("n{:.0f}", r"[A-Z][a-z ]*")]
)
def test_numbers_in_text_of_which_nothing_can_be_named_are_made_up_as_numbers(form: str, like: str):
    """Columns of CSV files are text, so words stood where there had been ages and prices."""
    values = [form.format(x) for x in np.random.default_rng(0).integers(1000, 9000, 3000) / 1.0]
    found = sampled(Column("x", ColumnType.CATEGORY, Learn()), values, 3.2)
    assert all(re.fullmatch(like, value) for value in found), found[:5]


@pytest.mark.parametrize("rows", [1, 40])
def test_a_list_of_which_nothing_can_be_named_fits_its_type(rows: int):
    column = Column("x", ColumnType.CATEGORY, Learn(), sql_type="character varying(15)")
    for seed in range(3):
        found = sampled(column, [f"value {i}" for i in range(rows)], 0.05, seed)
        assert all(0 < len(value) <= 15 for value in found)


@pytest.mark.parametrize(
    ("column", "values", "low", "high"),
    [
        (Column("price", ColumnType.FLOAT, Learn()), [9.99, 20.0, 3.5], 0.0, 1000.0),
        (Column("birth_date", ColumnType.DATE, Learn()), [YEAR_2000], dt.date(1930, 1, 1), dt.date(2016, 1, 1)),
        (Column("age", ColumnType.INTEGER, Learn()), [3, 50, 80], 0, 100),
        (Column("small", ColumnType.DECIMAL, Learn(), precision=3, scale=2), [Decimal("0.50")] * 3, -10, 10),
    ],
)  # fmt: skip
def test_a_range_that_noise_hides_is_plausible_and_said_to_be_assumed(column, values, low, high):
    for seed in range(4):
        found = sampled(column, values, 0.05, seed)
        assert all(low <= value <= high for value in found), (min(found), max(found))
    profile = profiled(column, pa.array(values[:0], pa.array(values).type), Budget(0.05, 1e-9).total(), SeededNoise(0))
    assert "is assumed from name and type" in profile.guessed[column.name]
    back = stored(profile)
    assert back.guessed == profile.guessed


@pytest.mark.parametrize("kind", [ColumnType.INTEGER, ColumnType.FLOAT])
def test_heavy_tails_neither_pile_up_at_a_bound_nor_explode(kind: ColumnType):
    rng = np.random.default_rng(3)
    salaries = rng.lognormal(13.2, 1.3, 20_000)
    values = salaries.astype(int) if kind is ColumnType.INTEGER else salaries
    found = np.array(sampled(Column("salary", kind, Learn()), values.tolist(), 1.0))
    for quantile in (0.05, 0.25, 0.5, 0.75, 0.95, 0.99):
        assert np.quantile(found, quantile) == pytest.approx(np.quantile(values, quantile), rel=0.15)
    assert found.max() < 4 * salaries.max()
    assert Counter(found.tolist()).most_common(1)[0][1] < 20


def test_a_learned_range_keeps_zero_and_makes_no_dust_around_it():
    rng = np.random.default_rng(4)
    found = np.array(
        sampled(Column("z", ColumnType.FLOAT, Learn()), [0.0] * 3000 + rng.gamma(2, 10, 9000).tolist(), 1.0)
    )
    assert (found == 0).mean() == pytest.approx(0.25, abs=0.02)
    assert np.abs(found[found != 0]).min() > 1e-6
    assert found.min() >= 0


@pytest.mark.parametrize("epsilon", [0.5, 1.0])
def test_dates_of_two_centuries_are_neither_cut_off_nor_of_the_first_one(epsilon: float):
    """No year stands out of the noise by itself, and a tenth of the days are before 1900."""
    rng = np.random.default_rng(7)
    first, days = dt.date(1871, 5, 4), np.sort(54_400 * rng.beta(1.6, 1.0, 2500))
    values = [first + dt.timedelta(days=int(day)) for day in days]
    for seed in (1, 3, 4):  # of 24 seeds, one in four draws days of the 17th century, or of the 22nd
        found = sampled(Column("debut", ColumnType.DATE, Learn()), values, epsilon, seed)
        assert dt.date(1700, 1, 1) < min(found) <= max(found) < dt.date(2100, 1, 1)
        years = [np.median([value.year for value in side]) for side in (values, found)]
        assert abs(years[0] - years[1]) < 15


def test_columns_whose_cells_hold_about_as_many_rows_each_keep_what_they_have_to_do_with_each_other():
    """Cells of a learned range are alike by design: noise sees no structure in them, and joints need some codes."""
    rng = np.random.default_rng(0)
    common = rng.normal(size=3000)
    columns = tuple(Column(f"x{i}", ColumnType.INTEGER, Learn()) for i in range(4))
    table = Table("t", (integer("id"), *columns), ("id",))
    data = {column.name: np.exp(5 + common + 0.3 * rng.normal(size=3000)).astype(int) for column in columns}
    rows = rows_of(table, id=np.arange(3000), **data)
    schema, found = Schema("s", (table,), "t"), []
    for seed in range(3):
        made = draw_exactly(schema, {"t": rows}, noise=SeededNoise(seed), budget=Budget(0.8, 1e-9), seed=seed)
        ranks = [rankdata(made["t"].table.column(column.name).to_numpy()) for column in columns]
        found.append(np.corrcoef(ranks)[np.triu_indices(4, 1)].mean())
    assert np.mean(found) > 0.55  # 0.9 in the source


def test_a_step_is_learned_where_the_scale_allows_it():
    rng = np.random.default_rng(5)
    values = [Decimal(int(x)) * 5 / 100 for x in rng.integers(0, 400, 8000)]
    found = sampled(Column("total", ColumnType.DECIMAL, Learn(), precision=8, scale=2), values, 2.0)
    assert {value % Decimal("0.05") for value in found} == {Decimal("0.00")}
    assert len(set(found)) == pytest.approx(400, abs=40)
    times = [dt.datetime(2020, 1, 1) + dt.timedelta(days=int(x)) for x in rng.integers(0, 300, 8000)]
    assert {value.time() for value in sampled(Column("at", ColumnType.TIMESTAMP, Learn()), times, 2.0)} == {dt.time(0)}


@pytest.mark.parametrize(("rows", "epsilon"), [(60, 0.05), (60, 1.0), (3000, 0.1), (3000, 2.0)])
def test_times_whose_step_noise_hides_come_in_whole_seconds_and_never_in_whole_days(rows: int, epsilon: float):
    """Whole minutes in the source: minutes where that can be told, seconds otherwise, parts of them never."""
    rng = np.random.default_rng(6)
    times = [dt.datetime(2020, 1, 1) + dt.timedelta(minutes=int(x)) for x in rng.integers(0, 400_000, rows)]
    # Noise makes a step too fine about once in fifteen times; none of these seeds does.
    found = [sampled(Column("at", ColumnType.TIMESTAMP, Learn()), times, epsilon, seed) for seed in (3, 4, 5)]
    assert not any(value.microsecond for values in found for value in values)
    assert all(len({value.time() for value in values}) > 10 for values in found if len(values) > 20)
    if rows * epsilon > 1000:
        assert not any(value.second for values in found for value in values)
