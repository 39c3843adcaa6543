"""The next days of a bundle's world: consistent at every point of the stream, repeatable, and never twice."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from privbench_core import append, publish, read_bundle
from privbench_core.cli import app
from privbench_core.continuation import UNDATED, arrival_column, end_of_time, microseconds, read_world
from privbench_core.continuation.matching import made_unique
from privbench_core.continuation.window import next_window
from privbench_core.errors import PublishError
from privbench_core.publishing import write_bundle
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.tables import Table
from privbench_core.schema.types.durations import DAY
from tests.helpers.club import SCHEMA, club_tables, write_club

T = ColumnType
GROWING = [table.name for table in SCHEMA.sampling_order if not table.public]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return write_club(tmp_path_factory.mktemp("club") / "bundle")


@pytest.fixture(scope="module")
def world(bundle):
    return read_world(read_bundle(bundle))


@pytest.fixture(scope="module")
def loaded(bundle):
    publish(bundle, bundle.parent / "club.duckdb")
    return bundle.parent / "club.duckdb"


@pytest.fixture
def database(loaded, tmp_path):
    return Path(shutil.copy(loaded, tmp_path))


def rows(database, query):
    with duckdb.connect(str(database), read_only=True) as connection:
        return connection.execute(query).fetchall()


def windows(world, number, days=7, seed=0):
    found = []
    for each in range(1, number + 1):
        window, world = next_window(world, each, days, seed)
        found.append((window, world))
    return found


def keys(table, content):
    return list(zip(*(content.column(name).to_pylist() for name in table.primary_key), strict=True))


@settings(max_examples=6)
@given(seed=st.integers(0, 1000), days=st.sampled_from([1, 5, 7, 30]))
def test_every_prefix_of_the_stream_is_a_consistent_database(world, seed, days):
    before = world
    for window, after in windows(world, 2, days, seed):
        place = {name: np.full(window.rows[name].num_rows, -1) for name in window.rows}
        for position, (table, row) in enumerate(window.order.tolist()):
            place[list(window.rows)[table]][row] = position
        for name in GROWING:
            table, new, old = SCHEMA.table(name), after.tables[name], len(before.tables[name])
            assert len(set(keys(table, new.rows))) == len(new)
            assert new.rows.slice(0, old).equals(before.tables[name].rows)
            for column in table.columns:
                assert column.nullable or not new.rows.column(column.name).null_count
            for key, parents in new.parents.items():
                inside = parents[old:]
                values = [new.rows.column(c).slice(old).to_pylist() for c in key.columns]
                above = after.tables[key.parent].rows
                for value, parent in zip(zip(*values, strict=True), inside.tolist(), strict=True):
                    found = tuple(above.column(c)[parent].as_py() for c in key.parent_columns) if parent >= 0 else None
                    assert value == found or (parent < 0 and None in value)
                if key.parent in place:
                    is_new = inside >= len(before.tables[key.parent])
                    there = place[key.parent][inside[is_new] - len(before.tables[key.parent])]
                    assert (there < place[name][is_new]).all()
            for parents in (new.parents[key] for key in table.foreign_keys if key.same_unit):
                assert (new.unit[old:] == after.tables["room"].unit[parents[old:]]).all()
        before = after


def test_rows_come_in_the_days_of_their_window_and_in_order(world):
    begin = world.end
    for window, after in windows(world, 4):
        days = np.zeros(window.total)
        for name in ("member", "booking", "visit", "refund"):
            times = after.tables[name].time[-window.rows[name].num_rows or len(after.tables[name]) :]
            assert (times >= begin).all()
            assert (times < begin + 7 * DAY).all()
            days[window.order[:, 0] == list(window.rows).index(name)] = times // DAY
        days = np.where(days == 0, np.maximum.accumulate(days), days)  # of rows that come with others
        assert (np.diff(days) >= 0).all()
        assert window.first == begin // DAY
        begin += 7 * DAY


def test_rows_keep_what_the_rows_of_the_bundle_have(world):
    _, after = windows(world, 4)[-1]
    bookings = after.tables["booking"].rows.slice(world.base["booking"]).to_pylist()
    assert all(row["year"] == row["at"].year for row in bookings)
    assert all(row["until"] is None or row["until"] >= row["at"] for row in bookings)
    kinds = dict(zip(*(after.tables["member"].rows.column(name).to_pylist() for name in ("id", "kind")), strict=True))
    assert all(row["kind"] == kinds[row["member_id"]] for row in bookings)
    numbers = [int(row["id"].removeprefix("B-")) for row in bookings]
    assert numbers == list(range(world.base["booking"] + 1, world.base["booking"] + 1 + len(numbers)))
    base = microseconds(world.tables["booking"].rows.column("at")) % (7 * DAY)
    assert set(after.tables["booking"].time[world.base["booking"] :] % (7 * DAY)) <= set(base.tolist())
    visits = after.tables["visit"].rows.to_pylist()
    for member in {row["member_id"] for row in visits}:
        counted = sorted(row["number"] for row in visits if row["member_id"] == member)
        assert counted == list(range(1, len(counted) + 1))
    emails = after.tables["member"].rows.column("email").to_pylist()
    assert len(set(emails)) == len(emails)
    assert all(email.endswith("@example.org") for email in emails)


def test_rates_are_those_of_the_last_weeks(world):
    made = windows(world, 13)
    for name in ("booking", "visit", "item"):
        times = world.tables[name].time
        weeks = ((times >= world.end - 13 * 7 * DAY) & (times < world.end)).sum() / 13
        assert np.mean([window.rows[name].num_rows for window, _ in made]) == pytest.approx(weeks, rel=0.02)


def test_windows_follow_from_bundle_number_and_seed(bundle, database, tmp_path):
    first, second = append(bundle, database), append(bundle, database)
    assert (first.window, second.window) == (1, 2)
    assert first.last < second.first
    before = {name: rows(database, f'SELECT * FROM "{name}" ORDER BY ALL') for name in GROWING}
    third = append(bundle, database, after=2)
    assert third.window == 3
    for name in GROWING:
        now = rows(database, f'SELECT * FROM "{name}" ORDER BY ALL')
        assert len(now) == len(before[name]) + third.rows[name]
        assert not {str(row) for row in before[name]} - {str(row) for row in now}
    assert append(bundle, tmp_path / "all.sql") == first
    assert append(bundle, tmp_path / "all.sql") == second
    assert append(bundle, str(tmp_path / "second.sql"), after=1) == second
    text = (tmp_path / "all.sql").read_text(encoding="utf-8")
    assert text.endswith((tmp_path / "second.sql").read_text(encoding="utf-8"))
    assert append(bundle, tmp_path / "second.sql") == third


def test_base_rows_stay_as_they_are(bundle, database):
    append(bundle, database)
    for name, content in club_tables().items():
        counted = rows(database, f'SELECT count(*) FROM "{name}"')[0][0]
        assert counted >= content.num_rows
        first = SCHEMA.table(name).primary_key[0]
        there = {row[0] for row in rows(database, f'SELECT "{first}"::text FROM "{name}"')}
        assert {str(value) for value in content.column(first).to_pylist()} <= there


def test_duckdb_reads_the_file(bundle, database, tmp_path):
    appended = append(bundle, tmp_path / "week.sql")
    text = (tmp_path / "week.sql").read_text(encoding="utf-8").replace("OVERRIDING SYSTEM VALUE ", "")
    with duckdb.connect(str(database)) as connection:
        connection.execute(text)
    assert (
        rows(database, "SELECT count(*) FROM booking")[0][0] == len(club_tables()["booking"]) + appended.rows["booking"]
    )
    assert append(bundle, database).window == 2  # what a file brought counts as well


def test_the_same_rows_are_never_appended_twice(bundle, database, tmp_path):
    append(bundle, database)
    before = rows(database, "SELECT count(*) FROM booking")
    for other in ({"seed": 1}, {"days": 14}):
        with pytest.raises(PublishError, match="days and the seed of the first time"):
            append(bundle, database, **other)
    with pytest.raises(PublishError, match="holds 1 windows of 7 days, not 3"):
        append(bundle, database, after=3)
    assert rows(database, "SELECT count(*) FROM booking") == before
    append(bundle, tmp_path / "a.sql")
    with pytest.raises(PublishError, match="holds windows of 7 days, seed 0"):
        append(bundle, tmp_path / "a.sql", seed=1)


def test_what_is_refused(bundle, database, tmp_path):
    with pytest.raises(PublishError, match="is not there; load the bundle into it first"):
        append(bundle, tmp_path / "none.duckdb")
    with pytest.raises(PublishError, match="too few to continue them by 900 days"):
        append(bundle, database, 900)
    with pytest.raises(PublishError, match="neither PostgreSQL, nor DuckDB, nor a file"):
        append(bundle, "mysql://somewhere")
    (tmp_path / "notes.sql").write_text("SELECT 1;")
    with pytest.raises(PublishError, match="something else than rows to append"):
        append(bundle, tmp_path / "notes.sql")
    duckdb.connect(str(tmp_path / "empty.duckdb")).close()
    with pytest.raises(PublishError, match="does not hold this bundle; load it first"):
        append(bundle, tmp_path / "empty.duckdb")
    other = write_club(tmp_path / "other", seed=1)
    with pytest.raises(PublishError, match=r"other rows than those of this bundle|does not hold this bundle"):
        append(other, database)


def test_a_bundle_without_dates_is_refused(tmp_path):
    bare = replace(SCHEMA, tables=(SCHEMA.table("plan"), replace(SCHEMA.table("room"), foreign_keys=())), unit="room")
    content = {"plan": club_tables()["plan"], "room": club_tables()["room"]}
    bundle = write_bundle(tmp_path / "bare", bare, content, {})
    with pytest.raises(PublishError, match="has a date or time that says when its rows were added"):
        append(bundle, tmp_path / "week.sql")


def test_on_the_command_line(bundle, database):
    command = ["publish", str(bundle), str(database), "--append", "7"]
    said = CliRunner().invoke(app, command)
    assert said.exit_code == 0
    assert "Window 1: 2025-12-31 to 2026-01-06" in said.output
    assert '"window": 2' in CliRunner().invoke(app, [*command, "--json"]).output
    wrong = CliRunner().invoke(app, [*command, "--after", "9"])
    assert (wrong.exit_code, wrong.stderr.count("\n")) == (1, 1)
    assert CliRunner().invoke(app, [*command[:-1], "0"]).exit_code == 2
    assert CliRunner().invoke(app, [*command, "--replace"]).exit_code == 2


def test_the_column_that_says_when_rows_came():
    times = {"seen": [3, 4], "made": [1, 2], "born": [0, 0], "gone": [0, None]}
    content = pa.table({name: pa.array(values, pa.timestamp("us")) for name, values in times.items()})
    columns = tuple(Column(name, T.TIMESTAMP, nullable=name == "gone") for name in times)
    table = Table("t", columns, ())
    assert arrival_column(table, content) == "made"
    assert arrival_column(replace(table, row_order="gone"), content) == "gone"
    stamped = tuple(replace(c, default="CURRENT_TIMESTAMP") if c.name == "seen" else c for c in columns)
    assert arrival_column(replace(table, columns=stamped), content) == "seen"
    assert arrival_column(replace(table, columns=columns[2:3]), content) is None


def test_the_end_of_time_is_that_of_most_rows():
    rng = np.random.default_rng(0)
    body = rng.integers(0, 1000, 5000) * DAY
    tail = rng.integers(1000, 40_000, 300) * DAY
    assert end_of_time([np.append(body, [*tail, UNDATED])]) == 1000 * DAY
    assert end_of_time([body[body < 600 * DAY], body, np.array([5000 * DAY])]) == 1000 * DAY
    short, ended = body[body > 800 * DAY], body[body < 900 * DAY]
    assert end_of_time([ended, short, short[1:] - DAY]) == 1000 * DAY


def test_unique_texts_keep_their_form():
    table = Table("t", (Column("code", T.TEXT, max_length=6), Column("n", T.INTEGER)), ("code",), unique=(("n",),))
    old = pa.table({"code": ["AB-12x", "CD-93y"], "n": [5, 9]})
    new = {"code": pa.array(["AB-12x", "CD-93y", "AB-12x"]), "n": pa.array([5, 9, None])}
    made, kept = made_unique(table, new, old, np.random.default_rng(0))
    assert kept.all()
    assert made["n"].to_pylist() == [10, 11, None]
    codes = made["code"].to_pylist()
    assert len({*codes, "AB-12x", "CD-93y"}) == 5
    assert all(code[:2].isupper() and code[2] == "-" and code[3:5].isdigit() and code[5].islower() for code in codes)


def test_digits_are_numbered_where_they_are_a_key_alone():
    columns = (Column("no", T.TEXT, max_length=9), Column("phone", T.TEXT, max_length=9))
    table = Table("t", columns, ("no",), unique=(("phone",),))
    old = pa.table({"no": ["100000001", "100000002"], "phone": ["307115982", "998120034"]})
    new = {"no": pa.array(["100000001", "100000002"]), "phone": pa.array(["307115982", "445566778"])}
    made, kept = made_unique(table, new, old, np.random.default_rng(0))
    assert kept.all()
    assert made["no"].to_pylist() == ["100000003", "100000004"]
    phones = made["phone"].to_pylist()
    assert phones[1] == "445566778"
    assert len(phones[0]) == 9
    assert not {"998120035", "307115982"} & {*phones}


def test_numbers_go_on_within_the_rows_that_share_their_owner():
    columns = (Column("team", T.INTEGER), Column("season", T.INTEGER))
    table = Table("t", columns, ("team", "season"))
    old = pa.table({"team": [1, 1, 2], "season": [2019, 2020, 2020]})
    new = {"team": pa.array([1, 1, 2, 3]), "season": pa.array([2020, 2019, 2018, 2020])}
    made, kept = made_unique(table, new, old, np.random.default_rng(0))
    assert kept.all()
    assert made["season"].to_pylist() == [2021, 2022, 2018, 2020]  # those alone that would be there twice
    counted = {"team": pa.array([1, 3, 3]), "season": pa.array([7, 7, 7])}
    made, _ = made_unique(table, counted, pa.table({"team": [1, 1, 2], "season": [1, 2, 1]}), np.random.default_rng(0))
    assert made["season"].to_pylist() == [3, 1, 2]
