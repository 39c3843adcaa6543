"""Moments with a zone, intervals, UUIDs, bytes and JSON, from every kind of source; and what is refused."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privbench_core.backends import canonical_table
from privbench_core.backends.duckdb import DuckDBSource
from privbench_core.backends.folder import FolderSource
from privbench_core.backends.integrity import fingerprint_rows
from privbench_core.errors import SourceError
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.tables import Table
from privbench_core.schema.types.durations import duration_text

T = ColumnType
DAY = 86_400_000_000
UUIDS = ["0b9cb3e9-4c97-4f5b-99e6-6e3c93735d06", "ffffffff-ffff-4fff-bfff-ffffffffffff", None]
TABLE = Table(
    "visit",
    (
        Column("id", T.UUID),
        Column("at", T.TIMESTAMPTZ, nullable=True),
        Column("stay", T.INTERVAL, nullable=True),
        Column("scan", T.BYTES, nullable=True),
        Column("form", T.JSON, nullable=True),
    ),
    ("id",),
)
ROWS = pa.table(
    {
        "id": [UUIDS[0], UUIDS[1], "00000000-0000-4000-8000-000000000000"],
        "at": [dt.datetime(2020, 7, 1, 10, 0, 0, 1, dt.UTC), None, dt.datetime(1969, 1, 1, tzinfo=dt.UTC)],
        "stay": [dt.timedelta(days=31, hours=2, microseconds=1), None, -dt.timedelta(hours=1)],
        "scan": [b"\xff\x00", None, b""],
        "form": ['{"a": [1, 2]}', None, '"é"'],
    },
    pa.schema([pa.field(c.name, c.arrow_type) for c in TABLE.columns]),
)


def moved(values: pa.Array, kind: ColumnType) -> pa.ChunkedArray:
    column = Column("c", kind, nullable=True)
    return canonical_table(Table("t", (column,), ("c",)), pa.table({"c": values}).column)["c"]


def parquet(folder: Path) -> FolderSource:
    pq.write_table(ROWS, folder / "visit.parquet")
    return FolderSource(folder)


def csv(folder: Path) -> FolderSource:
    texts = {name: ROWS[name].to_pylist() for name in ROWS.column_names}
    texts["at"] = ["2020-07-01T12:00:00.000001+02:00", None, "1969-01-01 00:00:00"]
    texts["stay"] = ["1 mon 1 day 02:00:00.000001", None, "-PT1H"]
    texts["scan"] = ["\\xff00", None, "\\x"]
    pyarrow.csv.write_csv(pa.table(texts), folder / "visit.csv")
    return FolderSource(folder)


def duck(folder: Path) -> DuckDBSource:
    with duckdb.connect(str(folder / "v.duckdb")) as connection:
        connection.register("rows", ROWS.drop_columns("stay"))
        connection.execute(
            'CREATE TABLE visit AS SELECT id::UUID AS id, "at", scan, form::JSON AS form,'
            """ CASE WHEN "at" IS NULL THEN NULL WHEN "at" > TIMESTAMPTZ '2000-01-01 00:00:00+00'"""
            " THEN INTERVAL '1 month 1 day 2 hours 1 microsecond' ELSE INTERVAL '-1 hour' END AS stay FROM rows"
        )
    return DuckDBSource(folder / "v.duckdb")


@pytest.mark.parametrize("kind", [parquet, csv, duck])
def test_the_same_rows_come_from_every_kind_of_source(tmp_path: Path, kind) -> None:
    source = kind(tmp_path)
    rows = source.read(TABLE)
    assert rows.schema.types == TABLE.arrow_schema.types
    assert rows.sort_by("id").to_pylist() == ROWS.sort_by("id").to_pylist()
    assert source.fingerprint(TABLE) == fingerprint_rows(TABLE, ROWS)


def test_the_fingerprint_changes_with_every_cell() -> None:
    changed = {
        "id": UUIDS[1].replace("f", "e"),
        "at": dt.datetime(2020, 7, 1, tzinfo=dt.UTC),
        "stay": dt.timedelta(0),
        "scan": b"\xff",
        "form": "{}",
    }
    seen = {fingerprint_rows(TABLE, ROWS), fingerprint_rows(TABLE, ROWS.slice(1))}
    for index, field in enumerate(ROWS.schema):
        values = pa.array([changed[field.name], *ROWS[field.name].to_pylist()[1:]], field.type)
        seen.add(fingerprint_rows(TABLE, ROWS.set_column(index, field, values)))
    assert len(seen) == 2 + len(changed)


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (T.TIMESTAMPTZ, pa.array([dt.datetime(2020, 1, 1)]), [dt.datetime(2020, 1, 1, tzinfo=dt.UTC)]),
        (T.TIMESTAMPTZ, pa.array([86_400], pa.timestamp("s", "Asia/Tokyo")), [dt.datetime(1970, 1, 2, tzinfo=dt.UTC)]),
        (T.TIMESTAMPTZ, pa.array([1_001], pa.timestamp("ns", "UTC")), [dt.datetime(1970, 1, 1, 0, 0, 0, 1, dt.UTC)]),
        (T.TIMESTAMPTZ, pa.array([dt.date(2020, 1, 1)]), [dt.datetime(2020, 1, 1, tzinfo=dt.UTC)]),
        (
            T.TIMESTAMPTZ,
            pa.array(
                ["2020-01-01 02:00+02", "2020-01-01", "2020-01-01 00:00:00.0000009 UTC", "2019-12-31 19:00 -0500", ""]
            ),
            [*[dt.datetime(2020, 1, 1, tzinfo=dt.UTC)] * 4, None],
        ),
        (T.TIMESTAMP, pa.array(["2020-01-01 02:00+02", "2020-01-01T00:00"]), [dt.datetime(2020, 1, 1)] * 2),
        (T.INTERVAL, pa.array([1_999], pa.duration("ns")), [dt.timedelta(microseconds=1)]),
        (T.INTERVAL, pa.array([dt.time(1, 2), None]), [dt.timedelta(hours=1, minutes=2), None]),
        (
            T.INTERVAL,
            pa.array([pa.MonthDayNano([9, 9, 9]), pa.MonthDayNano([14, -1, 1_000]), None]).slice(1),
            [dt.timedelta(days=419, microseconds=1), None],
        ),
        (T.INTERVAL, pa.array(["1 day, 2:00:00", "", None]), [dt.timedelta(hours=26), None, None]),
        (T.UUID, pa.array([UUIDS[0].upper(), UUIDS[0].replace("-", ""), ""]), [UUIDS[0], UUIDS[0], None]),
        (T.UUID, pa.array([f"{{{UUIDS[0]}}}", None]), [UUIDS[0], None]),
        (T.UUID, pa.array([bytes.fromhex(UUIDS[0].replace("-", "")), None]), [UUIDS[0], None]),
        (
            T.UUID,
            pa.ExtensionArray.from_storage(pa.uuid(), pa.array([None, b"\xff" * 16], pa.binary(16))).slice(1),
            ["-".join("f" * n for n in (8, 4, 4, 4, 12))],
        ),
        (T.BYTES, pa.array([b"a", None], pa.large_binary()), [b"a", None]),
        (T.BYTES, pa.array([b"a"], pa.binary(1)), [b"a"]),
        (T.BYTES, pa.array(["é", "\\x61"]), ["é".encode(), b"\\x61"]),
        (T.BYTES, pa.array(["\\x61", None]), [b"a", None]),
        (T.JSON, pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}", None])), ["{}", None]),
        (T.TEXT, pa.array(["a"], pa.string_view()), ["a"]),
        (T.TEXT, pa.array([dt.time(1, 2)]), ["01:02:00.000000"]),
        *[(kind, pa.nulls(2), [None, None]) for kind in (T.TIMESTAMPTZ, T.INTERVAL, T.UUID, T.BYTES, T.JSON)],
    ],
)
def test_what_means_the_same_is_cast(kind: ColumnType, values: pa.Array, expected: list[object]) -> None:
    cast = moved(values, kind)
    cast.validate(full=True)
    assert cast.to_pylist() == expected
    assert cast.type == Column("c", kind).arrow_type


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (T.TIMESTAMPTZ, pa.array(["2020-13-01T00:00:00Z"])),
        (T.TIMESTAMPTZ, pa.array([1])),
        (T.INTERVAL, pa.array(["secret"])),
        (T.INTERVAL, pa.array([5])),
        (T.INTERVAL, pa.array([pa.MonthDayNano([2**31 - 1, 0, 0])])),
        (T.UUID, pa.array([UUIDS[0] + "0"])),
        (T.UUID, pa.array([b"secret"])),
        (T.UUID, pa.array([7])),
        (T.BYTES, pa.array([7])),
        (T.JSON, pa.array([b"\xff"])),
    ],
)
def test_what_does_not_fit_is_refused_without_its_value(kind: ColumnType, values: pa.Array) -> None:
    with pytest.raises(SourceError, match=r"^t\.c: some values of the source's type .* declare another") as caught:
        moved(values, kind)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("values", [pa.array([["a"]]), pa.array([{"a": 1}])])
@pytest.mark.parametrize("kind", [T.TEXT, T.CATEGORY])
def test_arrays_and_nested_types_are_refused_and_it_says_what_to_do(values: pa.Array, kind: ColumnType) -> None:
    with pytest.raises(SourceError, match=r"^t\.c: an array or a nested type; leave the column out .* a view"):
        moved(values, kind)


def test_arrays_and_structs_are_read_as_json() -> None:
    nested = [{"a": [dt.date(2020, 1, 2), None], "b": {"c": 1.5, "d": True}}, None]
    assert moved(pa.array(nested), T.JSON).to_pylist() == [
        '{"a": ["2020-01-02", null], "b": {"c": 1.5, "d": true}}',
        None,
    ]
    assert moved(pa.array([['ä"', "b"]]), T.JSON).to_pylist() == ['["ä\\"", "b"]']


def test_a_time_of_day_is_an_interval_or_text() -> None:
    for kind in (T.TIMESTAMP, T.INTEGER, T.UUID):
        with pytest.raises(SourceError, match=r"^t\.c: a time of day, which cannot be read as \w+; declare it as"):
            moved(pa.array([dt.time(1)]), kind)


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("P1DT2H", 26 * DAY // 24),
        ("1 day 02:00:00", 26 * DAY // 24),
        ("PT0S", 0),
        ("P1Y2M3W", (360 + 60 + 21) * DAY),
        ("1 year 2 mons -3 days +04:05:06.789", 417 * DAY + 14_706_789_000),
        ("P-1DT-2H", -26 * DAY // 24),
        ("-1 days +23:59:59", -1_000_000),
        ("-1 day, 23:59:59", -1_000_000),
        ("-00:00:00.000001", -1),
        ("1.5 hours", DAY // 16),
        ("100:00", 100 * DAY // 24),
    ],
)
def test_intervals_are_read_in_iso_8601_and_in_the_words_of_databases(text: str, microseconds: int) -> None:
    assert moved(pa.array([text]), T.INTERVAL).cast(pa.int64()).to_pylist() == [microseconds]


@pytest.mark.parametrize("text", ["P", "PT", "P1DT", "1", "day", "1 fortnight", "P300000Y", "1 day P1D", "-", "+"])
def test_other_text_is_no_interval(text: str) -> None:
    with pytest.raises(SourceError, match="do not fit type interval"):
        moved(pa.array([text]), T.INTERVAL)


@given(st.integers(-(2**63) + 1, 2**63 - 1))
def test_an_interval_as_text_is_read_back(microseconds: int) -> None:
    assert moved(pa.array([duration_text(microseconds)]), T.INTERVAL).cast(pa.int64()).to_pylist() == [microseconds]
