"""Integrity and fidelity suites: a sound database passes; planted faults are found, counted and never quoted."""

from __future__ import annotations

import datetime as dt
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.schema.columns import Column, ColumnType, Learn, Pattern, Range, Values
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.validate import integrity_suite, run_suite
from privbench_core.validate.derived import integrity_frame, repeated_rows
from privbench_core.validate.ranges import check_whole
from tests.helpers.integrity import check_integrity, failures

_HOME = Table(
    "home",
    (
        Column("region", ColumnType.CATEGORY, nullable=False),
        Column("number", ColumnType.INTEGER),
        Column("kind", ColumnType.CATEGORY, Values(("flat", "house"))),
        Column("built", ColumnType.DATE, Range("1900-01-01", "2020-12-31"), nullable=True),
        Column("sold", ColumnType.TIMESTAMP, Range("2000-01-01T00:00:00", "2020-01-01T00:00:00"), nullable=True),
        Column("price", ColumnType.DECIMAL, Range("0.10", "99.90"), nullable=True, precision=8, scale=2),
        Column("area", ColumnType.FLOAT, Range(1.0, 500.0)),
        Column("note", ColumnType.TEXT, nullable=True, max_length=5),
    ),
    primary_key=("region", "number"),
)
_PERSON = Table(
    "person",
    (
        Column("id", ColumnType.INTEGER),
        Column("home_region", ColumnType.CATEGORY),
        Column("home_number", ColumnType.INTEGER),
        Column("friend", ColumnType.INTEGER, nullable=True),
        Column("age", ColumnType.INTEGER, Range(0, 110), nullable=True),
        Column("sex", ColumnType.INTEGER, Values((1, 2))),
        Column("works", ColumnType.BOOLEAN, nullable=True),
        Column("badge", ColumnType.INTEGER, Range(0, 9), nullable=True),
    ),
    primary_key=("id",),
    foreign_keys=(
        ForeignKey("person", ("home_region", "home_number"), "home", ("region", "number"), max_children=2, owner=True),
        ForeignKey("person", ("friend",), "person", ("id",), max_children=2, optional=True),
    ),
    unique=(("badge", "sex"),),
)
SCHEMA = Schema("town", (_HOME, _PERSON), "home")


def _tables() -> dict[str, pa.Table]:
    home: dict[str, Any] = {
        "region": ["n", "n", "s"],
        "number": [1, 2, 1],
        "kind": ["flat", "house", "flat"],
        "built": [dt.date(1900, 1, 1), None, dt.date(2020, 12, 31)],
        "sold": pa.array([dt.datetime(2000, 1, 1), None, dt.datetime(2020, 1, 1)], pa.timestamp("us")),
        "price": pa.array([Decimal("0.10"), None, Decimal("99.90")], pa.decimal128(8, 2)),
        "area": [1.0, 20.5, 500.0],
        "note": ["", None, "abcde"],
    }
    person: dict[str, Any] = {
        "id": [1, 2, 3],
        "home_region": ["n", "n", "s"],
        "home_number": [1, 1, 1],
        "friend": [2, None, 1],
        "age": [0, None, 110],
        "sex": [1, 2, 1],
        "works": [True, None, False],
        "badge": [None, None, 4],
    }
    return {"home": pa.table(home), "person": pa.table(person)}


def _with(table: str, column: str, values: Any) -> dict[str, pa.Table]:
    """The sound database with one column replaced."""
    tables = _tables()
    position = tables[table].column_names.index(column)
    array = values if isinstance(values, pa.Array) else pa.array(values, tables[table].schema.field(column).type)
    tables[table] = tables[table].set_column(position, column, array)
    return tables


def _failed(table: str, tables: dict[str, pa.Table]) -> set[tuple[str, str | None, int | None]]:
    """What fails of one table (the other one is only referred to)."""
    only = replace(SCHEMA, tables=(SCHEMA.table(table),))
    return {
        (result.name.removeprefix("expect_"), result.column, result.unexpected_count)
        for result in check_integrity(only, tables)[table]
        if not result.success
    }


@pytest.fixture
def heard() -> Iterator[list[logging.LogRecord]]:
    """What reaches the root logger. (pytest's own capture also listens behind loggers that pass nothing on.)"""
    listener = logging.Handler(logging.DEBUG)
    records: list[logging.LogRecord] = []
    listener.emit = records.append  # type: ignore[method-assign, assignment]
    logging.getLogger().addHandler(listener)
    yield records
    logging.getLogger().removeHandler(listener)


def test_a_sound_database_passes_every_expectation(
    capfd: pytest.CaptureFixture[str], heard: list[logging.LogRecord]
) -> None:
    results = check_integrity(SCHEMA, _tables())
    assert failures(results) == []
    # types, unique keys, NOT NULL, domains, references and siblings
    assert len(results["home"]) == 8 + 1 + 4 + 6 + 0
    assert len(results["person"]) == 8 + 2 + 4 + 3 + 4
    assert capfd.readouterr() == ("", "")  # no progress bar
    assert heard == []


@pytest.mark.parametrize(
    ("table", "column", "values", "expected"),
    [
        ("person", "id", [1, 1, 3], ("column_values_to_be_unique", "id", 2)),
        ("home", "number", [1, 1, 1], ("compound_columns_to_be_unique", "region,number", 2)),
        ("person", "sex", [1, None, 1], ("column_values_to_not_be_null", "sex", 1)),
        ("person", "id", [1, None, 3], ("column_values_to_not_be_null", "id", 1)),
        ("home", "kind", ["flat", "castle", "hut"], ("column_values_to_be_in_set", "kind", 2)),
        ("person", "sex", [1, 3, 1], ("column_values_to_be_in_set", "sex", 1)),
        ("person", "age", [-1, None, 111], ("column_values_to_be_between", "age", 2)),
        ("home", "built", [dt.date(1899, 12, 31), None, None], ("column_values_to_be_between", "built", 1)),
        ("home", "sold", [dt.datetime(2020, 1, 1, 0, 0, 0, 1), None, None], ("column_values_to_be_between", "sold", 1)),
        ("home", "price", [Decimal("99.91"), None, Decimal("0.09")], ("column_values_to_be_between", "price", 2)),
        ("home", "area", [0.5, float("inf"), 2.0], ("column_values_to_be_between", "area", 2)),
        ("home", "area", [float("nan"), 1.0, 2.0], ("column_values_to_not_be_null", "area", 1)),
        ("home", "note", ["abcdef", None, ""], ("column_value_lengths_to_be_between", "note", 1)),
        (
            "person",
            "home_number",
            [1, 9, 1],
            ("column_values_to_be_in_set", "home_region,home_number refers to home", 1),
        ),
        ("person", "friend", [8, None, 1], ("column_values_to_be_in_set", "friend refers to person", 1)),
        ("person", "friend", [1, 1, 1], ("column_values_to_be_between", "friend rows of the same person", 3)),
        (
            "person",
            "home_region",
            ["n", "n", "n"],
            ("column_values_to_be_between", "home_region,home_number rows of the same home", 3),
        ),
        ("person", "badge", [4, None, 4], ("compound_columns_to_be_unique", "badge,sex", 2)),
        (
            "person",
            "age",
            pa.array([1.0, None, 2.0]),
            ("column_values_to_be_in_set", "age has its type", 3),
        ),
    ],
)
def test_a_planted_fault_is_found_and_counted(
    table: str, column: str, values: Any, expected: tuple[str, str, int]
) -> None:
    assert expected in _failed(table, _with(table, column, values))


def test_all_faults_are_collected_and_values_are_never_quoted() -> None:
    tables = _with("home", "kind", ["flat", "canary-castle", None])
    tables["person"] = _with("person", "age", [777777, None, 5])["person"].drop_columns(["works", "friend"])
    lines = failures(check_integrity(SCHEMA, tables))
    assert "home.kind: expect_column_values_to_be_in_set fails for 1 rows" in lines
    assert "home.kind: expect_column_values_to_not_be_null fails for 1 rows" in lines
    assert "person.age: expect_column_values_to_be_between fails for 1 rows" in lines
    assert "person.works has its type: expect_column_values_to_be_in_set fails for 3 rows" in lines
    assert "person.friend refers to person: expect_column_values_to_be_in_set fails" in lines
    assert "person.friend rows of the same person: expect_column_values_to_be_between fails" in lines
    assert len(lines) == 7
    assert not any(value in "".join(lines) for value in ("castle", "777777"))


def test_a_nullable_integer_beyond_float_precision_is_still_compared_exactly() -> None:
    exact = 2**60
    column = Column("big", ColumnType.INTEGER, Range(0, exact), nullable=True)
    schema = Schema("s", (Table("t", (Column("id", ColumnType.INTEGER), column), ("id",)),), "t")
    tables = {"t": pa.table({"id": [1, 2, 3], "big": pa.array([exact, exact + 1, None])})}
    results = check_integrity(schema, tables)["t"]
    assert [(r.column, r.unexpected_count) for r in results if not r.success] == [("big", 1)]


_NIGHT = Table(
    "night",
    (
        Column("id", ColumnType.UUID),
        Column("at", ColumnType.TIMESTAMPTZ, Range("2020-01-01T01:00:00+01:00", "2020-01-02T00:00:00Z"), nullable=True),
        Column("slept", ColumnType.INTERVAL, Range("PT0S", "P1D"), nullable=True),
        Column("sound", ColumnType.BYTES, nullable=True, max_length=3),
        Column("log", ColumnType.JSON, nullable=True, max_length=9),
        Column("room", ColumnType.TEXT, Pattern(r"[A-Z]\d"), nullable=True),
        Column("code", ColumnType.TEXT, sql_type="varchar(4)"),
    ),
    ("id",),
)
_UUID = "00000000-0000-4000-8000-00000000000"


def _nights(**changed: list[Any]) -> dict[str, pa.Table]:
    rows: dict[str, list[Any]] = {
        "id": [f"{_UUID}1", f"{_UUID}2"],
        "at": [dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.datetime(2020, 1, 2, tzinfo=dt.UTC)],
        "slept": [dt.timedelta(0), dt.timedelta(1)],
        "sound": [b"\xff\x00a", None],
        "log": ['{"a": 1}', None],
        "room": ["A1", None],
        "code": ["", "abcd"],
    }
    schema = pa.schema([pa.field(c.name, c.arrow_type) for c in _NIGHT.columns])
    return {"night": pa.table(rows | changed, schema)}


def test_zoned_times_intervals_and_opaque_values_are_checked() -> None:
    schema = Schema("nights", (_NIGHT,), "night")
    assert failures(check_integrity(schema, _nights())) == []
    wrong = _nights(
        id=[f"{_UUID}1", "secret"],
        at=[dt.datetime(2019, 12, 31, 23, 59, 59, tzinfo=dt.UTC), dt.datetime(2020, 1, 2, 0, 0, 1, tzinfo=dt.UTC)],
        slept=[-dt.timedelta(microseconds=1), dt.timedelta(days=1, microseconds=1)],
        sound=[b"abcd", None],
        log=['{"a": 1', '{"a": 100}'],
        room=["A12", "a1"],
        code=["abcde", "a"],
    )
    found = {(r.column, r.unexpected_count) for r in check_integrity(schema, wrong)["night"] if not r.success}
    assert found == {
        *(("id has its form", 1), ("at", 2), ("slept", 2), ("sound has its form", 1)),
        *(("log has its form", 1), ("log", 1), ("room has its form", 2), ("code", 1)),
    }


def test_what_has_another_arrow_type_has_no_form_either() -> None:
    tables = {"night": _nights()["night"].set_column(0, "id", pa.array([1, 2]))}
    lines = failures(check_integrity(Schema("nights", (_NIGHT,), "night"), tables))
    assert [line.split(":")[0] for line in lines] == ["night.id has its type", "night.id has its form"]


def test_public_rows_are_published_as_they_are_whatever_their_domain() -> None:
    public = Schema("nights", (replace(_NIGHT, public=True),), "night")
    wrong = _nights(slept=[None, dt.timedelta(days=99)], code=["much too long", ""], room=["?", None])
    assert failures(check_integrity(public, wrong)) == []


def _faults(rng: np.random.Generator) -> dict[str, pa.Table]:
    """The sound database with more rows, some values of which are wrong, or NULL."""
    tables = _tables()
    taken = {name: rng.integers(0, 3, 40) for name in tables}
    found = {}
    for name, rows in tables.items():
        columns = {}
        for column in rows.column_names:
            values = rows[column].take(pa.array(taken[name])).to_pylist()
            worse = {"age": -1, "sex": 3, "kind": "hut", "area": float("nan"), "note": "abcdef", "price": Decimal(100)}
            wrong, null = rng.random(40) < 0.5 * rng.integers(0, 2), rng.random(40) < 0.1 * rng.integers(0, 2)
            values = [worse.get(column, value) if bad else value for value, bad in zip(values, wrong, strict=True)]
            values = [None if gone else value for value, gone in zip(values, null, strict=True)]
            columns[column] = pa.array(values, rows.schema.field(column).type)
        found[name] = pa.table(columns)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_a_few_witnesses_say_what_all_rows_say(seed: int) -> None:
    tables = _faults(np.random.default_rng(seed))
    for table in SCHEMA.tables:
        frame, suite = integrity_frame(SCHEMA, table, tables), integrity_suite(table)
        whole = run_suite(frame, suite)
        assert any(result.name.endswith("unique") and not result.success for result in whole)
        assert check_whole(SCHEMA, table, tables) == whole


def test_texts_must_fit_the_sql_type_that_duckdb_does_not_enforce() -> None:
    code = Column("code", ColumnType.CATEGORY, Learn(), sql_type="character varying(15)")
    table = Table("t", (Column("id", ColumnType.INTEGER), code), ("id",))
    rows = pa.table({"id": [1, 2], "code": ["short", "(none common enough to name)"]})
    results = check_whole(Schema("s", (table,), "t"), table, {"t": rows})
    assert [(r.column, r.unexpected_count) for r in results if not r.success] == [("code", 1)]


def test_suites_are_built_while_what_they_need_is_prepared_without_a_pyspark_that_ends_processes(
    tmp_path: Path,
) -> None:
    package = tmp_path / "pyspark"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')", encoding="utf-8")
    code = (
        "import sys; import privbench_core.validate as e; e.prepare_ahead(); e._great_expectations();"
        "print(e._great_expectations().__name__, 'pyspark' in sys.modules, e._frames() is e._frames())"
    )
    paths = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    environment = os.environ | {"PYTHONPATH": paths}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["great_expectations", "False", "True"]
    assert not done.stderr


@pytest.mark.parametrize(
    ("values", "repeats"),
    [
        ([3, 1, 2], 0),
        ([3, 1, None, None], 0),
        ([1, 2, 2], 2),
        ([0.5, float("nan"), float("nan")], 0),
        ([0.0, 1.0, -0.0], 2),
        (["a", "b", "a", "a"], 2),
        ([], 0),
    ],
)
def test_two_rows_with_equal_keys_stand_for_all(values: list[Any], repeats: int) -> None:
    found = repeated_rows(pa.table({"k": values, "other": [1] * len(values)}), ["k"])
    assert len(found) == (repeats or min(1, len(values)))
    assert found["k"].duplicated().any() == bool(repeats)
