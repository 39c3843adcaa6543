"""Dates that are coded as differences from another one are points in time, too: their lags are kept like all others."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.compare_maker import sample_tables
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.intervals import equal_width_codec
from privbench_core.columns.lags import lag_classes, lag_sides
from privbench_core.estimators.coarsening import merge_codes
from privbench_core.marginals.one_way import OneWay
from privbench_core.privacy.features import OwnDifference
from privbench_core.profiles.measure_lags import MeasuredLag, lag_features, own_lag_pairs, points_in_time
from privbench_core.profiles.profile import Profile
from privbench_core.schema.columns import Column, ColumnType, Learn, Relative
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.units.row_count import RowCount
from tests.helpers.planted import place_of

DAY = ColumnType.DATE


def day(name: str, to: str | None = None, *, nullable: bool = False) -> Column:
    domain, relative = (Learn(), None) if to is None else (None, Relative(to, Learn()))
    return Column(name, DAY, domain, nullable=nullable, relative=relative)


def days(numbers: np.ndarray, there: np.ndarray | None = None) -> pa.Array:
    return pa.array(numbers.astype(np.int32), mask=None if there is None else ~there).view(pa.date32())


def test_a_date_that_is_added_to_another_one_lies_where_their_sums_do() -> None:
    born = Discretizer(equal_width_codec(Column("born", DAY), "1970-01-01", "1970-01-04", 4))
    aged = Column("died", ColumnType.INTEGER, nullable=True)
    died = Discretizer(equal_width_codec(aged, 1, 2, 2))
    counts = {"born": np.array([4.0, 4, 0, 0, 0, 0]), "died": np.array([6.0, 0, 0, 0, 2])}
    profile = Profile({"died": died, "born": born}, OneWay(counts, {}), RowCount(8, 0), relatives={"died": "born"})
    coder, rows = points_in_time(profile, counts)["died"]
    first = coder.decode(np.flatnonzero(rows[: coder.ordered]).astype(np.int32), np.random.default_rng(0))
    assert first.to_pylist() == [dt.date(1970, 1, 2), dt.date(1970, 1, 3)]
    assert rows[rows > 0].tolist() == [3, 3, 2], "and two of eight have none"


def test_lags_are_of_all_pairs_of_dates_but_those_that_are_coded_as_lags() -> None:
    columns = (day("died", "born", nullable=True), day("born"), day("seen"))
    table = Table("patient", (Column("id", ColumnType.INTEGER), *columns), ("id",))
    assert own_lag_pairs(table) == [("born", "seen"), ("seen", "died")]


def test_differences_far_from_zero_are_no_years() -> None:
    whole = Column("n", ColumnType.INTEGER, nullable=True)
    coder, counts = Discretizer(equal_width_codec(whole, 100, 120, 4)), np.array([4.0, 4, 4, 4, 0, 0, 0])
    number, owner = Column("id", ColumnType.INTEGER), ForeignKey("visit", ("of",), "patient", ("id",), owner=True)
    patient = Table("patient", (number, day("born"), replace(whole, name="height")), ("id",))
    visit = Table("visit", (Column("of", ColumnType.INTEGER), number, day("on"), day("due", "on")), ("id",), (owner,))
    schema = Schema("ward", (patient, visit), "patient")
    parent = Profile({"height": coder}, OneWay.with_sigma({"height": counts}, 1.0), RowCount(16, 0))
    child = Profile({"due": coder}, OneWay.with_sigma({"due": counts}, 1.0), RowCount(16, 0))
    assert lag_features(schema, owner, parent, replace(child, relatives={"due": "on"})) == {}
    assert lag_features(schema, owner, parent, child) == {}


@pytest.mark.parametrize(("early", "expected"), [(20.0, 0.0), (200.0, 0.02)])
def test_what_begins_comes_before_what_ends_unless_more_rows_than_noise_explains_say_otherwise(
    early: float, expected: float
) -> None:
    coder = Discretizer(equal_width_codec(Column("day", DAY), "2020-01-01", "2021-12-31", 24))
    classes = lag_classes(coder, coder)
    assert classes is not None
    rows, side_of = 10_000.0, lag_sides(classes)
    counts = np.where(side_of == 2, rows / (side_of == 2).sum(), 0.0)
    counts[np.flatnonzero(side_of == 0)[-3]] = early
    sides = np.bincount(side_of, counts)
    noisy = OneWay.with_sigma({"x": counts, "x sides": sides}, 10.0)
    even = np.append(np.full(24, rows / 24), [0, 0])
    found = MeasuredLag.of(OwnDifference("b", "a"), (coder, coder, classes), (even, even), (noisy, "x"))
    shares = merge_codes(merge_codes(found.lag.shares, [classes.shares[0]]), [side_of])
    assert shares == pytest.approx([expected, 0, 1 - expected, 0], abs=0.005)
    assert found.ordered == (expected == 0)


def test_rows_come_between_the_beginning_and_the_end_of_their_owners(tmp_path: Path) -> None:
    """Who dies was seen before, and no visit comes after a death, with ``died`` coded as an age."""
    rng = np.random.default_rng(1)
    n = 1500
    born = rng.integers(-9000, 0, n)
    seen = born + rng.integers(3000, 20_000, n)
    died, dead = seen + rng.integers(0, 3000, n), rng.random(n) < 0.4
    owner = np.repeat(np.arange(n), 4)
    length = np.where(dead, died - seen, 3000)[owner]
    visit = seen[owner] + (rng.random(len(owner)) * (length + 1)).astype(int)
    key = ForeignKey("visit", ("patient_id",), "patient", ("id",), max_children=4, owner=True)
    number = Column("id", ColumnType.INTEGER)
    patient = Table("patient", (number, day("born"), day("seen"), day("died", "born", nullable=True)), ("id",))
    visits = Table("visit", (number, Column("patient_id", ColumnType.INTEGER), day("on")), ("id",), (key,))
    tables = {
        "patient": pa.table({"id": np.arange(n), "born": days(born), "seen": days(seen), "died": days(died, dead)}),
        "visit": pa.table({"id": np.arange(len(owner)), "patient_id": owner, "on": days(visit)}),
    }
    schema = Schema("ward", (patient, visits), "patient")
    spec = place_of(tmp_path, schema, tables).spec
    made = sample_tables(spec, tables, 10.0, 1e-9, 0, "privbench")
    people, rows = made["patient"].to_pandas(date_as_object=False), made["visit"].to_pandas(date_as_object=False)
    end = people.died.notna()
    assert (people.died < people.seen)[end].mean() < 0.03
    theirs = people.set_index("id").loc[rows.patient_id]
    ended = theirs.died.notna().to_numpy()
    assert (rows.on.to_numpy() > theirs.died.to_numpy())[ended].mean() < 0.03
    assert (rows.on.to_numpy() < theirs.seen.to_numpy()).mean() < 0.03
