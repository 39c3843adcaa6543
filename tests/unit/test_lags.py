"""Joints that follow from lags, and dates that are drawn to have them."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from itertools import product

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.columns.discretizer import Binning, Discretizer
from privbench_core.columns.grid import Grid
from privbench_core.columns.intervals import OrderedCodec, equal_width_codec
from privbench_core.columns.lags import Intervals, coarsened, compared_type, first_points, lag_classes
from privbench_core.profiles.lags import Lag, Lags, expected_lags, joint_with_lags, lag_chances
from privbench_core.sampling.lags import DatedRows, dated_columns
from privbench_core.schema.columns import Column, ColumnType, Learn, Relative

DAY = Column("day", ColumnType.DATE)
NULLABLE = Column("day", ColumnType.DATE, nullable=True)
MOMENT = Column("moment", ColumnType.TIMESTAMP)


def dates(column: Column, codes: int, *, cells: int = 60, step: str | None = None) -> Discretizer:
    """A coder of two years in so many intervals, with NULL in a code of its own where there may be any."""
    codec = equal_width_codec(column, "2020-01-01", "2021-12-31", cells, step=step)
    of_cell = np.arange(codec.ordered) * codes // codec.ordered
    code_of = np.append(of_cell, [0] * len(codec.outside) + [codes] * column.nullable)
    weights = np.append(1 / np.bincount(of_cell)[of_cell], [0] * len(codec.outside) + [1] * column.nullable)
    return Discretizer(codec, Binning(tuple(code_of.tolist()), tuple(weights.tolist()), codes))


def classes_of(base: Discretizer, own: Discretizer) -> tuple[Discretizer, OrderedCodec]:
    """The coder of lags, and its codec."""
    classes = lag_classes(base, own)
    assert classes is not None
    assert isinstance(classes.codec, OrderedCodec)
    return classes, classes.codec


def grid_of(coder: Discretizer) -> Grid:
    assert isinstance(coder.codec, OrderedCodec)
    return coder.codec.grid


def shares_of(lags: np.ndarray, codec: OrderedCodec) -> np.ndarray:
    """Shares of the classes of lags, without NULL."""
    return np.bincount(np.searchsorted(codec.starts, lags, side="right") - 1, minlength=codec.size) / len(lags)


YEARS = Discretizer(equal_width_codec(Column("year", ColumnType.INTEGER), 2019, 2022))


def test_lags_are_between_points_in_time_as_the_coarser_of_them_counts() -> None:
    whole, real = (
        Discretizer(equal_width_codec(Column("n", kind), 0, 9)) for kind in (ColumnType.INTEGER, ColumnType.FLOAT)
    )
    day, moment = dates(DAY, 5), dates(MOMENT, 5)
    kinds = {(day, moment): ColumnType.INTEGER, (moment, moment): ColumnType.INTERVAL, (day, YEARS): ColumnType.INTEGER}
    for (base, own), kind in kinds.items():
        for pair in ((base, own), (own, base)):
            _, codec = classes_of(*pair)
            assert codec.grid.type is kind
            assert codec.last >= 2 * 365 * (86_400_000_000 if kind is ColumnType.INTERVAL else own is not YEARS)
    for other in (whole, real):
        assert [lag_classes(*pair) for pair in ((other, other), (day, other), (other, moment))] == [None] * 3


@pytest.mark.parametrize(
    ("base", "own"),
    [
        (dates(DAY, 12, cells=24), dates(MOMENT, 6)),
        (dates(MOMENT, 6), dates(DAY, 12, cells=24)),
        (dates(DAY, 24, cells=24), YEARS),
        (YEARS, dates(DAY, 24, cells=24)),
    ],
    ids=["times after days", "days after times", "years after days", "days after years"],
)
def test_points_in_time_of_two_types_lie_as_far_apart_as_was_measured(base: Discretizer, own: Discretizer) -> None:
    """Of pairs of which most are of one day, or year, and the others one later: chances, joints, and what is drawn."""
    classes, codec = classes_of(base, own)
    to, rng = compared_type(base, own), np.random.default_rng(8)
    assert to is not None
    of_base, of_own = grid_of(base), grid_of(own)
    x = rng.integers(*np.array(["2020-01-01", "2020-12-30"], "datetime64[us]").astype(np.int64), 20_000)
    v = x + (rng.random(len(x)) < 0.2) * (86_400_000_000 if to is ColumnType.DATE else 365 * 86_400_000_000)
    numbers = [coarsened(n, ColumnType.TIMESTAMP, grid.type) for n, grid in ((x, of_base), (v, of_own))]
    (bases, values), lags = (
        numbers,
        np.subtract(*(coarsened(n, g.type, to) for n, g in zip(numbers, (of_base, of_own), strict=True))),
    )
    lags = -lags
    a, b = (coder.encode(pa.chunked_array([grid_of(coder).array(n)])) for coder, n in ((base, bases), (own, values)))
    true = np.zeros((base.size, own.size))
    np.add.at(true, (a, b), 1)
    margins, wanted = (true.sum(axis=1), true.sum(axis=0)), shares_of(lags, codec)
    joint = joint_with_lags(*margins, lag_chances(base, own, classes, true.shape), wanted)
    assert np.abs(joint - true).sum() / 2 < 0.1 * len(x)
    owners = pa.table({"since": of_base.array(bases)}), np.arange(len(x))
    rows = dated_columns(Lags([Lag("since", "day", classes, wanted)]), {"day": own}, owners)["day"]
    moved, after = rows.drawn(b, own.decode(b, rng), owners[1], {}, rng)
    drawn = of_own.numbers(pa.chunked_array([after]))[0]
    found = coarsened(drawn, of_own.type, to) - coarsened(bases, of_base.type, to)
    assert np.abs(shares_of(found, codec) - wanted).sum() / 2 < 0.05
    assert np.array_equal(own.encode(pa.chunked_array([after])), moved)
    assert np.mean(moved != b) < 0.05


def test_differences_of_a_day_lie_as_far_from_times_of_the_owner() -> None:
    """A column coded as days after another one of the row is compared as the day that it is."""
    rng = np.random.default_rng(9)
    begun, after = dates(DAY, 5), Discretizer(equal_width_codec(Column("after", ColumnType.INTEGER), 0, 400, 40))
    classes, codec = classes_of(dates(MOMENT, 24), begun)
    x, v = days_after(begun, 20_000)
    first = v - rng.integers(0, 300, len(v))
    owners = pa.table(
        {"since": pa.array(x * 86_400_000_000 + rng.integers(0, 86_400_000_000, len(x))).view(MOMENT.arrow_type)}
    )
    lags = Lags([Lag("since", "day", classes, shares_of(v - x, codec))])
    rows = dated_columns(lags, {"begun": begun, "day": after}, (owners, np.arange(len(x))), {"day": "begun"})["day"]
    codes = after.encode(pa.chunked_array([pa.array(v - first)]))
    _, found = rows.drawn(
        codes, after.decode(codes, rng), np.arange(len(x)), {"begun": grid_of(begun).array(first)}, rng
    )
    assert np.abs(shares_of(found.to_numpy() + first - x, codec) - shares_of(v - x, codec)).sum() / 2 < 0.05


def test_days_follow_their_owners_beyond_a_learned_range() -> None:
    """A tenth of the rows lies before it, some years away on average."""
    rng = np.random.default_rng(11)
    codec = replace(equal_width_codec(DAY, "2000-01-01", "2019-12-31", 20), open_ended=True, beyond=(900.0, 0.0))
    code_of = np.append(np.arange(codec.ordered), [0, codec.ordered - 1])
    own = Discretizer(codec, Binning(tuple(code_of.tolist()), (0.5, *[1.0] * 19, 0.5, 0.0), codec.ordered))
    v = codec.grid.numbers(pa.chunked_array([own.decode(rng.integers(0, 2, 20_000), rng)]))[0].astype(np.int64)
    assert 0.1 < np.mean(v < codec.starts[0]) < 0.4
    x = v - rng.integers(0, 20, len(v))
    base = dates(DAY, 24)
    classes, lags = classes_of(base, own)
    lag = Lag("since", "day", classes, shares_of(v - x, lags))
    rows = dated_columns(Lags([lag]), {"day": own}, (pa.table({"since": codec.grid.array(x)}), np.arange(len(x))))[
        "day"
    ]
    codes = own.encode(pa.chunked_array([codec.grid.array(v)]))
    _, after = rows.drawn(codes, own.decode(codes, rng), np.arange(len(x)), {}, rng)
    late = codec.grid.numbers(pa.chunked_array([after]))[0] - x
    assert np.mean((late >= 0) & (late < 32)) > 0.97


def test_numbers_of_a_coarser_type_begin_with_their_first_day_or_moment() -> None:
    rng = np.random.default_rng(10)
    ends = np.array(["0001-01-01", "9999-12-31T23:59:59.999999"], "datetime64[us]").astype(np.int64)
    moments = np.concatenate([ends, rng.integers(*ends, 500)])
    for kind, to in product((ColumnType.TIMESTAMP, ColumnType.DATE), (ColumnType.DATE, ColumnType.INTEGER)):
        fine = moments if kind is ColumnType.TIMESTAMP else moments // 86_400_000_000
        coarse = coarsened(fine, kind, to)
        days = (moments // 86_400_000_000).astype("datetime64[D]").astype(object)
        assert to is ColumnType.DATE or coarse.tolist() == [day.year for day in days]
        first, after = (first_points(coarse + more, to, kind) for more in (0, 1))
        assert (first <= fine).all()
        assert (fine < after).all() or kind is to
        assert np.array_equal(coarsened(first, kind, to), coarse)
    assert coarsened(np.array([-(2**62), 2**62]), ColumnType.DATE, ColumnType.INTEGER).tolist() == [1, 9999]
    assert np.diff(first_points(np.array([-(2**62), 0, 2**62]), ColumnType.INTEGER, ColumnType.TIMESTAMP)).min() >= 0


def test_chances_are_those_of_all_pairs_of_days() -> None:
    base, own = dates(DAY, 4), dates(NULLABLE, 3)
    classes, codec = classes_of(base, own)
    chances = lag_chances(base, own, classes, (5, 4))  # rows without an owner have one more code
    above, here = Intervals.of(base), Intervals.of(own)
    for a in range(4):
        for b in range(3):
            x, v = (np.arange(i.first[c], i.last[c] + 1) for i, c in ((above, a), (here, b)))
            found = shares_of((v[None, :] - x[:, None]).ravel(), codec)
            np.testing.assert_allclose(chances[a, b], found, atol=1e-9)
    assert (chances[4, :, codec.null] == 1).all(), "no owner"
    assert (chances[:, 3, codec.null] == 1).all(), "NULL"
    np.testing.assert_allclose(chances.sum(axis=2), 1)


def test_a_joint_follows_from_lags_without_being_measured() -> None:
    rng = np.random.default_rng(0)
    base, own = dates(MOMENT, 12), dates(MOMENT, 9)
    classes, codec = classes_of(base, own)
    low, high = int(codec.starts[0]), int(Intervals.of(own).last[-1])
    x = rng.integers(Intervals.of(base).first[0], high, 50_000)
    v = x + np.exp(rng.normal(24, 3, len(x))).astype(np.int64)  # around a quarter of an hour to a year
    x, v = x[v <= high], v[v <= high]
    a, b = (
        coder.encode(pa.chunked_array([pa.array(n).view(pa.timestamp("us"))])) for coder, n in ((base, x), (own, v))
    )
    true = np.zeros((12, 9))
    np.add.at(true, (a, b), 1)
    chances = lag_chances(base, own, classes, (12, 9))
    margins = true.sum(axis=1), true.sum(axis=0)
    joint = joint_with_lags(*margins, chances, shares_of(v - x, codec))
    independent = np.outer(*margins) / len(x)
    assert low < 0
    assert np.abs(independent - true).sum() / 2 > 0.6 * len(x)
    assert np.abs(joint - true).sum() / 2 < 0.06 * len(x)
    np.testing.assert_allclose(joint.sum(axis=0), margins[1], rtol=1e-6)
    np.testing.assert_allclose(expected_lags(*margins, chances).sum(), len(x))


def drawn(
    own: Discretizer, base: Discretizer, x: np.ndarray, v: np.ndarray, most_moved: float = 0.05
) -> tuple[np.ndarray, np.ndarray, DatedRows]:
    """Days that are drawn given the codes of ``v`` and owners' days ``x``: before lags are heeded, and after that."""
    classes, codec = classes_of(base, own)
    rng = np.random.default_rng(1)
    codes = own.encode(pa.chunked_array([grid_of(own).array(v)]))
    before = own.decode(codes, rng)
    owners = pa.table({"since": grid_of(base).array(x)})
    lag = Lag("since", "day", classes, shares_of(v * grid_of(own).step + grid_of(own).origin - x, codec))
    rows = dated_columns(Lags([lag]), {"day": own}, (owners, np.arange(len(x))))["day"]
    moved, after = rows.drawn(codes, before, np.arange(len(x)), {}, rng)
    assert (own.encode(pa.chunked_array([after])) == moved).all(), "each day has its code"
    assert (np.abs(moved.astype(int) - codes) <= 1).all()
    assert np.mean(moved != codes) < most_moved
    found = [grid_of(own).numbers(pa.chunked_array([each]))[0] for each in (before, after)]
    return found[0], found[1], rows


def days_after(own: Discretizer, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Days of owners anywhere in the range of a column, and a day or a few later."""
    rng = np.random.default_rng(2)
    low, high = Intervals.of(own).first[0], Intervals.of(own).last[-1]
    x = rng.integers(low, high - 9, n)
    return x, np.minimum(x + rng.geometric(0.4, n) - 1, high)


def test_days_come_as_long_after_their_owners_as_was_measured() -> None:
    base, own = dates(DAY, 24), dates(DAY, 5)
    x, v = days_after(own, 20_000)
    before, after, _ = drawn(own, base, x, v)
    _, codec = classes_of(base, own)
    wanted = shares_of(v - x, codec)
    assert np.abs(shares_of(before - x, codec) - wanted).sum() / 2 > 0.8
    assert np.abs(shares_of(after - x, codec) - wanted).sum() / 2 < 0.02
    days = np.arange(Intervals.of(own).first[0], Intervals.of(own).last[-1] + 1, 20)
    np.testing.assert_allclose(*(np.histogram(n, days)[0] / len(x) for n in (after, before)), atol=0.01)


def test_years_lie_as_far_from_those_of_their_owners_and_each_stays_as_frequent() -> None:
    born, season = (
        Discretizer(equal_width_codec(Column("year", ColumnType.INTEGER), low, high, None))
        for low, high in ((1850, 2000), (1871, 2020))
    )
    classes, codec = classes_of(born, season)
    rng = np.random.default_rng(0)
    x = rng.integers(1860, 1990, 20_000)
    v = np.clip(x + rng.integers(18, 40, len(x)), 1871, 2020)
    years = rng.permutation(v)  # codes that follow nothing
    wanted = shares_of(v - x, codec)
    lag = Lag("since", "day", classes, wanted)
    owners = pa.table({"since": x}), np.arange(len(x))
    rows = dated_columns(Lags([lag]), {"day": season}, owners)["day"]
    moved, after = rows.drawn(season.encode(pa.chunked_array([years])), pa.array(years), owners[1], {}, rng)
    assert np.abs(shares_of(after.to_numpy() - x, codec) - wanted).sum() / 2 < 0.05
    assert np.array_equal(np.sort(after.to_numpy()), np.sort(years))
    assert np.array_equal(season.encode(pa.chunked_array([after])), moved)


def test_small_numbers_are_no_points_in_time() -> None:
    few, many = (
        Discretizer(equal_width_codec(Column("n", ColumnType.INTEGER), 100, high, None)) for high in (199, 250)
    )
    assert lag_classes(few, few) is not None
    assert lag_classes(few, many) is None


def test_days_of_weeks_come_after_moments() -> None:
    rng = np.random.default_rng(3)
    base, own = dates(MOMENT, 24), dates(MOMENT, 5, step="P7D")
    grid = grid_of(own)
    last = int(Intervals.of(own).last[-1])
    x = rng.integers(Intervals.of(base).first[0], last * grid.step + grid.origin - 3 * grid.step, 5_000)
    v = np.minimum(-((grid.origin - x) // grid.step) + rng.integers(0, 2, len(x)), last)  # this week's end, or the next
    before, after, _ = drawn(own, base, x, v, most_moved=0.06)
    late = [(n * grid.step + grid.origin - x) / grid.step for n in (before, after)]
    assert np.mean((late[0] >= 0) & (late[0] < 4)) < 0.25
    assert np.mean((late[1] >= 0) & (late[1] < 4)) > 0.9, "the last class of them is of one to four weeks"


def test_rows_whose_owner_has_no_day_stay_as_they_were_drawn() -> None:
    rng = np.random.default_rng(4)
    base, own = dates(NULLABLE, 24), dates(DAY, 5)
    classes, codec = classes_of(base, own)
    x = rng.integers(Intervals.of(own).first[0], Intervals.of(own).last[-1], 2_000)
    none = rng.random(len(x)) < 0.3
    owners = pa.table({"since": pa.array(x.astype(np.int32), mask=none).view(pa.date32())})
    codes = own.encode(pa.chunked_array([pa.array(x.astype(np.int32)).view(pa.date32())]))
    before = own.decode(codes, rng)
    lag = Lag("since", "day", classes, np.arange(codec.size) == codec.starts.tolist().index(1))
    rows = dated_columns(Lags([lag]), {"day": own}, (owners, np.arange(len(x))))["day"]
    _, after = rows.drawn(codes, before, np.arange(len(x)), {}, rng)
    unlike = np.array(before.to_pylist()) != np.array(after.to_pylist())
    assert unlike[~none].mean() > 0.9
    assert not unlike[none].any()


def test_days_come_after_others_of_their_row_and_may_move_to_the_code_beside() -> None:
    """Where a code lies before what its row comes after, and the one beside it does not."""
    own = dates(DAY, 5)
    x, v = days_after(own, 20_000)
    classes, codec = classes_of(own, own)
    rng = np.random.default_rng(6)
    codes = own.encode(pa.chunked_array([grid_of(own).array(v)]))
    early = rng.random(len(x)) < 0.1  # as joints of codes have it
    codes = np.where(early, np.maximum(own.encode(pa.chunked_array([grid_of(own).array(x)])) - 1, 0), codes)
    codes = codes.astype(np.int32)
    lag = Lag("begun", "day", classes, shares_of(v - x, codec))
    rows = dated_columns(Lags(within=[lag]), {"begun": own, "day": own}, None)
    assert list(rows) == ["day"]
    others = {"begun": grid_of(own).array(x)}
    moved, after = rows["day"].drawn(codes, own.decode(codes, rng), np.arange(len(x)), others, rng)
    found = grid_of(own).numbers(pa.chunked_array([after]))[0] - x
    assert np.mean(found < 0) < 0.01
    assert np.abs(shares_of(found, codec) - shares_of(v - x, codec)).sum() / 2 < 0.05
    assert 0.04 < np.mean(moved != codes) < 0.16


@pytest.mark.parametrize("assumed", [False, True])
def test_days_of_an_assumed_range_may_be_where_those_of_their_owners_are(assumed: bool) -> None:
    """Owners are of 2020 and 2021; a range that noise hid is said to begin in 2030."""
    base = dates(DAY, 24)
    own = Discretizer(equal_width_codec(DAY, "2030-01-01", "2039-12-31", 10))
    classes, codec = classes_of(base, own)
    rng = np.random.default_rng(7)
    x, v = days_after(base, 5_000)
    owners = pa.table({"since": grid_of(base).array(x)})
    lags = Lags([Lag("since", "day", classes, shares_of(v - x, codec))], (), frozenset({"day"} if assumed else ()))
    rows = dated_columns(lags, {"day": own}, (owners, np.arange(len(x))))["day"]
    codes = np.zeros(len(x), dtype=np.int32)
    _, after = rows.drawn(codes, own.decode(codes, rng), np.arange(len(x)), {}, rng)
    late = np.array(after.cast(pa.int32()).to_pylist()) - x
    assert np.mean((late >= 0) & (late < 10)) == pytest.approx(float(assumed), abs=0.05)


def test_ends_of_an_assumed_difference_come_after_their_begins_wherever_those_are() -> None:
    """A third of the ends came years before, as sums were measured to begin then."""
    begun = Discretizer(equal_width_codec(DAY, "2000-01-01", "2019-12-31", 20))
    column = Column("ended", ColumnType.DATE, relative=Relative("begun", Learn()))
    apart = Discretizer(equal_width_codec(column.modelled, 0, 1000, 10))
    shares = np.zeros(begun.codec.size)
    shares[:20] = 1 / 20
    lags = Lags((), [Lag("", "ended", begun, shares)], frozenset({"ended"}))
    rng = np.random.default_rng(11)
    begins = grid_of(begun).array(rng.integers(10_957, 18_000, 5_000))
    rows = dated_columns(lags, {"begun": begun, "ended": apart}, None, {"ended": "begun"})["ended"]
    codes = rng.integers(0, 10, 5_000).astype(np.int32)
    _, after = rows.drawn(codes, apart.decode(codes, rng), np.arange(5_000), {"begun": begins}, rng)
    assert min(after.cast(pa.int64()).to_pylist()) >= 0


def test_days_of_an_assumed_range_are_days_that_there_are() -> None:
    """Half of the rows are said to come as long before their owners as a range of millennia allows."""
    base = Discretizer(equal_width_codec(DAY, "2020-01-01", "9000-12-31", 60))
    own = Discretizer(equal_width_codec(DAY, "2030-01-01", "2039-12-31", 10))
    classes, codec = classes_of(base, own)
    shares = np.zeros(codec.size)
    shares[[0, codec.ordered // 2]] = 0.5
    owners = pa.table({"since": pa.array([dt.date(2020, 1, 1)] * 1_000)})
    lags = Lags([Lag("since", "day", classes, shares)], (), frozenset({"day"}))
    rows = dated_columns(lags, {"day": own}, (owners, np.arange(1_000)))["day"]
    codes, rng = np.zeros(1_000, dtype=np.int32), np.random.default_rng(3)
    _, after = rows.drawn(codes, own.decode(codes, rng), np.arange(1_000), {}, rng)
    numbers, (low, high) = np.array(after.cast(pa.int32()).to_pylist()), grid_of(own).extent
    assert low <= numbers.min() <= numbers.max() <= high


def test_what_is_drawn_again_has_the_same_odds() -> None:
    rng = np.random.default_rng(5)
    base, own = dates(DAY, 24), dates(DAY, 5)
    x, v = days_after(own, 5_000)
    _, _, rows = drawn(own, base, x, v)
    odds = [each.copy() for each in rows.odds]
    some = np.arange(100, 140)
    codes = own.encode(pa.chunked_array([pa.array(v[some].astype(np.int32)).view(pa.date32())]))
    _, again = rows.drawn(codes, own.decode(codes, rng), some, {}, rng)
    late = np.array(again.cast(pa.int32()).to_pylist()) - x[some]
    assert np.mean((late >= 0) & (late < 10)) > 0.9
    for before, after in zip(odds, rows.odds, strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("case", ["no rows", "no owner", "no code of a day"])
def test_where_no_row_is_dated_nothing_is_drawn(case: str) -> None:
    base, own = dates(NULLABLE, 4), dates(NULLABLE, 3)
    classes, codec = classes_of(base, own)
    n = 0 if case == "no rows" else 40
    owners = pa.table({"since": pa.array([dt.date(2020, 5, 5)] * 3, pa.date32())})
    places = np.full(n, -1 if case == "no owner" else 1)
    codes = np.full(n, 3 if case == "no code of a day" else 1, dtype=np.int32)
    before = own.decode(codes, np.random.default_rng(0))
    lag = Lag("since", "day", classes, np.full(codec.size, 1 / codec.size))
    rows = dated_columns(Lags([lag]), {"day": own}, (owners, places))["day"]
    moved, after = rows.drawn(codes, before, np.arange(n), {}, np.random.default_rng(1))
    assert after.equals(before)
    assert (moved == codes).all()


def test_lags_of_ten_thousand_years_are_whole_numbers() -> None:
    codec = equal_width_codec(MOMENT, "0001-01-01", "9999-12-31", 64)
    coder = Discretizer(codec)
    classes, lags = classes_of(coder, coder)
    x = np.array([codec.starts[0], codec.last, codec.starts[32]])
    values = pa.table({"since": codec.grid.array(x)})
    shares = np.where(np.arange(lags.size) < lags.ordered, 1 / lags.ordered, 0.0)
    lags = Lags([Lag("since", "day", classes, shares)])
    rows = dated_columns(lags, {"day": coder}, (values, np.array([0, 1, 2, 0])))
    codes = np.array([63, 0, 5, 0], dtype=np.int32)
    before = coder.decode(codes, np.random.default_rng(0))
    moved, after = rows["day"].drawn(codes, before, np.arange(4), {}, np.random.default_rng(1))
    assert (coder.encode(pa.chunked_array([after])) == moved).all()
