"""Dates that are coded as differences from another one are points in time, too: their lags are kept like all others."""

from __future__ import annotations

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
from privbench_core.profiles.measure_lags import MeasuredLag
from privbench_core.schema.columns import Column, ColumnType, Learn, Relative
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from tests.helpers.planted import place_of

DAY = ColumnType.DATE


def day(name: str, to: str | None = None, *, nullable: bool = False) -> Column:
    domain, relative = (Learn(), None) if to is None else (None, Relative(to, Learn()))
    return Column(name, DAY, domain, nullable=nullable, relative=relative)


def days(numbers: np.ndarray, there: np.ndarray | None = None) -> pa.Array:
    return pa.array(numbers.astype(np.int32), mask=None if there is None else ~there).view(pa.date32())


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


def test_seasons_lie_within_careers_and_times_after_days(tmp_path: Path) -> None:
    """A player has days, a season a year, a match a time: each lies where the row above says, in both kinds of rows."""
    rng = np.random.default_rng(3)
    n = 1500
    born = rng.integers(-14_000, 7_000, n)
    first = born + rng.integers(6500, 9000, n)
    owner = np.repeat(np.arange(n), 4)
    on = first[owner] + rng.integers(0, 2500, len(owner))
    year = 1970 + on.astype("datetime64[D]").astype("datetime64[Y]").astype(np.int64)
    debut = 1970 + first.astype("datetime64[D]").astype("datetime64[Y]").astype(np.int64)
    at = on * 86_400_000_000 + rng.integers(0, 86_400_000_000, len(on))
    key = ForeignKey("match", ("player_id",), "player", ("id",), max_children=4, owner=True)
    number, at_column = Column("id", ColumnType.INTEGER), Column("at", ColumnType.TIMESTAMP, Learn())
    years = [Column(name, ColumnType.INTEGER, Learn()) for name in ("debut_year", "year")]
    player = Table("player", (number, day("born"), years[0]), ("id",))
    match = Table("match", (number, Column("player_id", ColumnType.INTEGER), years[1], at_column), ("id",), (key,))
    tables = {
        "player": pa.table({"id": np.arange(n), "born": days(born), "debut_year": debut}),
        "match": pa.table(
            {"id": np.arange(len(on)), "player_id": owner, "year": year, "at": pa.array(at).view(pa.timestamp("us"))}
        ),
    }
    spec = place_of(tmp_path, Schema("league", (player, match), "player"), tables).spec
    made = sample_tables(spec, tables, 10.0, 1e-9, 0, "privbench")
    people, rows = made["player"].to_pandas(date_as_object=False), made["match"].to_pandas()
    theirs = people.set_index("id").loc[rows.player_id]
    of_year = rows.year.to_numpy() - theirs.born.dt.year.to_numpy()
    assert ((people.debut_year - people.born.dt.year).between(15, 27)).mean() > 0.9
    assert ((of_year > 14) & (of_year < 35)).mean() > 0.9
    assert (rows.year.to_numpy() < theirs.debut_year.to_numpy()).mean() < 0.1
    assert (rows["at"].to_numpy() < theirs.born.to_numpy()).mean() < 0.03


def test_sums_of_days_and_differences_end_when_those_of_the_source_do(tmp_path: Path) -> None:
    """Everyone is observed until 2019 at most: the younger, the shorter, in years that only the sum tells."""
    rng = np.random.default_rng(5)
    n, last = 3000, int(np.datetime64("2019-12-31").astype(np.int64))
    born = rng.integers(-14_000, 14_000, n)
    until = np.where(rng.random(n) < 0.7, last - rng.integers(0, 30, n), born + (rng.random(n) * (last - born)))
    person = Table("person", (Column("id", ColumnType.INTEGER), day("born"), day("until", "born")), ("id",))
    tables = {"person": pa.table({"id": np.arange(n), "born": days(born), "until": days(until.astype(np.int64))})}
    spec = place_of(tmp_path, Schema("cohort", (person,), "person"), tables).spec
    made = sample_tables(spec, tables, 3.2, 1e-9, 0, "privbench")["person"].to_pandas(date_as_object=False)
    assert (made.until > "2021-12-31").mean() < 0.1, "a quarter, if only differences are known"
    assert (made.until < made.born).mean() < 0.02
    assert 0.55 < (made.until > "2018-12-31").mean() < 0.85


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
