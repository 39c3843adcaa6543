"""Closer looks: shared values are found exactly, even columns are left alone, and no budget is lost."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.privacy.budget import Budget, Measure, Price
from privbench_core.profiles.profile import Profile
from privbench_core.schema.columns import Column, ColumnType, Learn, Range
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.artifact import Artifact
from tests.helpers.noise import SeededNoise
from tests.helpers.planted import door_of, integer, learn_counted, rows_of

T = ColumnType
PRICES = {"pure": Price(Measure.PURE, 1.0), "Gaussian": Budget(1.0, 1e-9).total()}


def profiled(
    columns: list[Column], price: Price, seed: int = 0, **values: object
) -> tuple[Profile, list[tuple[str, float]]]:
    """The profile of a table with these columns under real noise, and what was charged for which look."""
    table = Table("t", (integer("id"), *columns), ("id",))
    n = len(next(iter(values.values())))  # type: ignore[arg-type]
    rows = rows_of(table, id=np.arange(n), **values)
    charged: list[tuple[str, float]] = []

    def record(label: str, cost: Price) -> None:
        charged.append((label.rsplit("/", maxsplit=1)[-1], cost.amount))

    session = door_of(Schema("s", (table,), "t"), {"t": rows}, price, SeededNoise(seed), record)
    return learn_counted(session, table, 1, price)[1], charged


def drawn(profile: Profile, name: str, n: int = 20_000) -> list[object]:
    """Values of a column as its profile alone would have them."""
    rng = np.random.default_rng(0)
    clean = profile.one_way.clean()[name]
    codes = rng.choice(len(clean), n, p=clean / clean.sum()).astype(np.int32)
    return profile.discretizers[name].decode(codes, rng).to_pylist()


@pytest.mark.parametrize("price", PRICES.values(), ids=PRICES)
@pytest.mark.parametrize(
    ("column", "common", "others"),
    [
        (Column("x", T.INTEGER, Range(0, 10**9)), 123_456_789, lambda r: int(r.integers(10**9))),
        (
            Column("x", T.DECIMAL, Range(0, 10**10 - 1), precision=12, scale=2),
            Decimal("9.99"),
            lambda r: int(r.integers(10**9)),
        ),
        (Column("x", T.DECIMAL, Learn(), precision=12, scale=2), Decimal("9.99"), lambda r: int(r.lognormal(9, 2))),
        (Column("x", T.FLOAT, Range(0, 1000)), 19.95, lambda r: float(r.uniform(0, 1000))),
    ],
    ids=["integer", "decimal", "learned", "float"],
)
def test_a_value_that_many_rows_share_keeps_its_share(column, common, others, price):
    rng = np.random.default_rng(1)
    values = [common if rng.random() < 0.3 else others(rng) for _ in range(20_000)]
    profile, charged = profiled([column], price, x=pa.array(values, column.arrow_type))
    share = np.mean([value == common for value in drawn(profile, "x")])
    assert share == pytest.approx(np.mean([value == common for value in values]), abs=0.02)
    assert sum(amount for _, amount in charged) == pytest.approx(price.amount)
    stored = Artifact.from_bytes(Artifact({"p": profile.to_dict()}).to_bytes()).data["p"]
    assert Profile.from_dict(stored).discretizers == profile.discretizers


@pytest.mark.parametrize(
    ("digits", "draw"),
    [
        (-3, lambda r, n: np.exp(r.normal(10.8, 0.3, n))),
        (0, lambda r, n: np.clip(r.normal(76, 18, n), 0, 100)),
        (1, lambda r, n: r.normal(37, 0.6, n)),
        (2, lambda r, n: np.exp(r.normal(1, 1, n))),
        (0, lambda r, n: np.where(r.random(n) < 0.6, -r.exponential(5, n), r.exponential(40, n))),
    ],
    ids=["salaries", "scores", "temperatures", "prices", "delays"],
)
@pytest.mark.parametrize("single", [False, True], ids=["64 bits", "32 bits"])
def test_floats_that_are_decimals_are_drawn_as_decimals(digits, draw, single):
    """Whole scores in a column of floats: 101 of them became 113,146."""
    values = np.round(draw(np.random.default_rng(2), 20_000), digits)
    stored = values.astype(np.float32).astype(np.float64) if single else values
    profile, _ = profiled([Column("x", T.FLOAT, Learn())], PRICES["Gaussian"], x=pa.array(stored))
    found = np.array(drawn(profile, "x"))
    assert (found == np.round(found, digits)).all()
    assert len(set(found.tolist())) == pytest.approx(len(set(values.tolist())), rel=0.2)
    assert np.mean(found < 0) == pytest.approx(np.mean(values < 0), abs=0.02)


@pytest.mark.parametrize("price", PRICES.values(), ids=PRICES)
def test_floats_that_no_unit_divides_are_drawn_with_all_digits(price):
    profile, _ = profiled([Column("x", T.FLOAT, Learn())], price, x=np.random.default_rng(3).normal(0, 1, 5_000))
    assert len(set(drawn(profile, "x", 3000))) == 3000


def test_floats_whose_step_noise_hides_have_few_decimals():
    values = np.random.default_rng(3).normal(50, 9, 100)
    profile, _ = profiled([Column("x", T.FLOAT, Learn())], Price(Measure.GDP, 2e-4), x=values)
    assert max(len(f"{value:.9g}") for value in drawn(profile, "x")) <= len("-100.123")


@pytest.mark.parametrize("amount", [3e-4, 5e-4])
def test_whole_floats_are_whole_where_noise_is_a_fifth_of_their_rows(amount):
    """Half of the columns of tennis matches, such as aces, came out as 53.59891: counts of finer digits were summed."""
    whole = fine = 0
    for seed in range(12):
        values = np.random.default_rng(seed).normal(76, 18, 1000)
        for given in (np.round(values), values):
            profile, _ = profiled([Column("x", T.FLOAT, Learn())], Price(Measure.GDP, amount), seed, x=given)
            found = np.array(drawn(profile, "x", 1000))
            same = bool((found == np.round(found)).all())
            whole, fine = (whole + same, fine) if given is not values else (whole, fine + same)
    assert (whole >= 9, fine) == (True, 0)


@pytest.mark.parametrize("few", [0.003, 0.03])
def test_values_that_only_few_rows_have_decide_what_a_column_counts_in(few):
    """Where hardly any noise is: of salaries in thousands, few are not."""
    rng = np.random.default_rng(7)
    thousands = rng.integers(20, 90, 100_000) * 1000
    values = np.where(rng.random(len(thousands)) < few, rng.integers(20_000, 90_000, len(thousands)), thousands)
    profile, _ = profiled([Column("x", T.INTEGER, Learn())], PRICES["Gaussian"], x=values)
    assert profile.discretizers["x"].codec.grid.step == 1


@pytest.mark.parametrize("price", PRICES.values(), ids=PRICES)
def test_even_columns_are_left_alone(price):
    column = Column("x", T.INTEGER, Range(1, 100_000))
    for seed in range(5):
        values = np.random.default_rng(seed).integers(1, 100_001, 30_000)
        profile, charged = profiled([column], price, seed, x=values)
        assert profile.discretizers["x"].codec.ordered == 256
        assert sum(amount for _, amount in charged) == pytest.approx(price.amount)
        assert len(set(drawn(profile, "x", 3000))) > 2900
