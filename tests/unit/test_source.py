"""Sources: the same rows whatever holds them, fingerprints of content, and rows checked against the spec."""

from __future__ import annotations

import datetime as dt
import gzip
import sqlite3
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from privbench_core.backends import canonical_table, integrity
from privbench_core.backends.folder import FolderSource
from privbench_core.backends.integrity import check_rows, fingerprint_rows
from privbench_core.backends.postgres import create_tables_sql
from privbench_core.backends.registry import open_stored
from privbench_core.backends.sqlalchemy import DatabaseSource
from privbench_core.errors import SourceError
from privbench_core.schema.columns import Column, ColumnType, Learn
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.spec.model import Spec

T = ColumnType
EVENT = Table(
    "event",
    (
        Column("id", T.INTEGER),
        Column("big", T.INTEGER, Learn(), nullable=True),
        Column("price", T.DECIMAL, Learn(), nullable=True, precision=12, scale=2),
        Column("weight", T.FLOAT, Learn(), nullable=True),
        Column("done", T.BOOLEAN, nullable=True),
        Column("day", T.DATE, Learn(), nullable=True),
        Column("at", T.TIMESTAMP, Learn(), nullable=True),
        Column("kind", T.CATEGORY, Learn(), nullable=True),
        Column("note", T.TEXT, nullable=True),
    ),
    primary_key=("id",),
)
SCHEMA = Schema("events", (EVENT,), "event")
ROWS = pa.table(
    {
        "id": [1, 2, 3],
        "big": [2**62 + 1, None, -5],
        "price": [Decimal("1234567890.10"), Decimal("-0.05"), None],
        "weight": [0.1, None, -1e300],
        "done": [True, False, None],
        "day": [dt.date(2020, 2, 29), None, dt.date(1, 1, 1)],
        "at": [dt.datetime(2021, 3, 4, 5, 6, 7, 89), dt.datetime(1969, 12, 31), None],
        "kind": ['é, "quoted"\nñ', "", None],
        "note": [None, "雪 ☃", "plain"],
    },
    schema=pa.schema([pa.field(c.name, c.arrow_type) for c in EVENT.columns]),
)


def spec(source: Path | str, schema: Schema = SCHEMA) -> Spec:
    return Spec(schema, str(source), Path("spec.yaml").absolute(), (1.0,), 0.0, 1.0, 0.0)


def one_column(column: Column, values: pa.Array) -> pa.Table:
    return canonical_table(Table("t", (column,), (column.name,)), pa.table({column.name: values}).column)


def parquet_folder(folder: Path) -> Path:
    pq.write_table(ROWS.append_column("ignored", pa.array([1, 2, 3])), folder / "event.parquet")
    return folder


def parts_folder(folder: Path) -> Path:
    (folder / "event").mkdir()
    pq.write_table(ROWS.slice(0, 2), folder / "event" / "part-00000.parquet")
    pq.write_table(ROWS.slice(2).append_column("ignored", pa.array([1])), folder / "event" / "part-00001.parquet")
    (folder / "event" / "_SUCCESS").touch()
    for name in (".event-1", "_event-2"):  # what engines leave of a write that was killed
        pq.write_table(ROWS, folder / "event" / f"{name}.parquet")
    (folder / "state").mkdir()  # no table: it holds no Parquet files
    return folder


def spark_folder(folder: Path) -> Path:
    (parts_folder(folder) / "event").rename(folder / "event.parquet")  # as Spark calls it
    return folder


def csv_folder(folder: Path) -> Path:
    pyarrow.csv.write_csv(ROWS.select(ROWS.column_names[::-1]), folder / "event.csv")
    return folder


def duckdb_file(folder: Path) -> Path:
    with duckdb.connect(str(folder / "events.duckdb")) as connection:
        connection.execute(create_tables_sql(SCHEMA))
        connection.register("rows", ROWS)
        connection.execute("INSERT INTO event SELECT * FROM rows")
    return folder / "events.duckdb"


def sqlite_url(folder: Path) -> str:
    connection = sqlite3.connect(folder / "events.sqlite")
    connection.execute(create_tables_sql(SCHEMA))
    native = int | float | None  # SQLite has no type for the others
    plain = [[v if isinstance(v, native) else str(v) for v in row.values()] for row in ROWS.to_pylist()]
    connection.executemany(f"INSERT INTO event VALUES ({', '.join('?' * 9)})", plain)
    connection.commit()
    connection.close()
    return f"sqlite:///{folder / 'events.sqlite'}"


@pytest.mark.parametrize("kind", [parquet_folder, parts_folder, spark_folder, csv_folder, duckdb_file, sqlite_url])
def test_every_kind_of_source_gives_the_same_rows_and_fingerprint(tmp_path: Path, kind) -> None:
    source = open_stored(spec(kind(tmp_path)))
    assert [table.name for table in source.catalogue().tables] == ["event"]
    rows = source.read(EVENT)
    assert rows.schema.types == EVENT.arrow_schema.types
    assert rows.to_pylist() == ROWS.to_pylist()
    assert pa.concat_tables(source.batches(EVENT)).to_pylist() == ROWS.to_pylist()
    assert source.fingerprint(EVENT) == fingerprint_rows(EVENT, ROWS)


@pytest.mark.parametrize("kind", [parquet_folder, parts_folder, csv_folder, duckdb_file, sqlite_url])
def test_missing_tables_and_columns_are_named(tmp_path: Path, kind) -> None:
    source = open_stored(spec(kind(tmp_path)))
    with pytest.raises(SourceError, match=r"^evnt: the source has no such table; did you mean 'event'\?$"):
        source.read(Table("evnt", EVENT.columns, ("id",)))
    with pytest.raises(SourceError) as caught:
        source.read(Table("event", (Column("prise", T.FLOAT), Column("dai", T.DATE)), ("prise",)))
    assert str(caught.value).splitlines() == [
        "event.prise: the source has no such column; did you mean 'price'?",
        "event.dai: the source has no such column; did you mean 'day'?",
    ]


def test_a_csv_file_without_a_header_is_an_error_without_its_first_row(tmp_path: Path) -> None:
    place = Path(csv_folder(tmp_path))
    file = next(place.glob("*.csv"))
    file.write_text(file.read_text(encoding="utf-8").partition("\n")[2], encoding="utf-8")
    with pytest.raises(SourceError) as caught:
        open_stored(spec(str(place))).read(EVENT)
    assert str(caught.value).splitlines() == [
        f"event.{column.name}: the source has no such column; the first line of the file must name the columns, with"
        " commas between them"
        for column in EVENT.columns
    ]


@pytest.mark.parametrize(("separator", "end"), [(";", "csv"), ("\t", "tsv"), ("|", "csv")])
def test_files_with_other_separators_and_with_the_null_of_databases_are_read_alike(
    tmp_path: Path, separator: str, end: str
) -> None:
    place = Path(csv_folder(tmp_path))
    stored = pyarrow.csv.ParseOptions(newlines_in_values=True)
    texts = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(ROWS.column_names, pa.string()), strings_can_be_null=True
    )
    texts.quoted_strings_can_be_null = False
    rows = pyarrow.csv.read_csv(place / "event.csv", parse_options=stored, convert_options=texts)
    lines = [separator.join(f'"{name}"' for name in rows.column_names)]
    for row in rows.to_pylist():
        quoted = (r"\N" if text is None else '"' + text.replace('"', '""') + '"' for text in row.values())
        lines.append(separator.join(quoted))
    (place / "event.csv").unlink()
    (place / f"event.{end}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    source = open_stored(spec(place))
    assert source.read(EVENT).to_pylist() == ROWS.to_pylist()
    assert source.fingerprint(EVENT) == fingerprint_rows(EVENT, ROWS)
    assert {column.name for column in FolderSource(place).catalogue().table("event").columns} == set(ROWS.column_names)


def test_a_first_line_with_a_number_in_it_is_not_quoted(tmp_path: Path) -> None:
    (tmp_path / "event.csv").write_text("17,bigs,prices,weights,dones,days,ats,kinds,notes\n", encoding="utf-8")
    with pytest.raises(SourceError) as caught:
        open_stored(spec(tmp_path)).read(EVENT)
    assert "bigs" not in str(caught.value)


@pytest.mark.parametrize("first", ["x" * 200_000, '"' + "id\n" * 100_000])
def test_a_first_line_beyond_all_names_is_one_clear_error(tmp_path: Path, first: str) -> None:
    (tmp_path / "event.csv").write_text(first, encoding="utf-8")
    with pytest.raises(SourceError, match=r"^event: event.csv: the first line does not name the columns") as caught:
        open_stored(spec(tmp_path)).read(EVENT)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("name", ["kind", "note"])
def test_text_that_is_not_utf8_is_refused_before_anybody_pays(tmp_path: Path, name: str) -> None:
    """Parquet files may hold any bytes as text, and reading them later would fail because some row has them."""
    bad = pa.Array.from_buffers(
        pa.string(), 3, [None, pa.py_buffer(np.array([0, 1, 2, 3], np.int32)), pa.py_buffer(b"a\xffb")]
    )
    pq.write_table(ROWS.set_column(ROWS.column_names.index(name), name, bad), tmp_path / "event.parquet")
    with pytest.raises(SourceError, match=rf"^event.{name}: some values of the source's type string do not fit type"):
        open_stored(spec(tmp_path)).read(EVENT)


def test_a_type_that_was_guessed_wrongly_is_refused_with_what_to_write(tmp_path: Path) -> None:
    (tmp_path / "event.csv").write_text("id,income,cost\n1,$30K - $50K,0.6318\n", encoding="utf-8")
    amounts = (Column(name, T.DECIMAL, Learn(), precision=12, scale=2) for name in ("income", "cost"))
    table = Table("event", (Column("id", T.INTEGER), *amounts), ("id",))
    with pytest.raises(SourceError) as caught:
        open_stored(spec(tmp_path)).read(table)
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == ["event.income", "event.cost"]
    assert (
        str(caught.value).count("if they have more digits, correct precision and scale; else declare another type") == 2
    )
    assert "(category keeps them as they are written)" in str(caught.value)
    assert "30K" not in str(caught.value)


def test_intervals_that_are_not_even_text_are_a_misfit() -> None:
    bad = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\xff")])
    with pytest.raises(SourceError, match=r"^t.x: some values"):
        one_column(Column("x", T.INTERVAL, Learn()), bad)


def test_a_column_of_several_types_is_refused_in_one_line(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "events.duckdb")) as connection:
        connection.execute("CREATE TABLE event AS SELECT 1 AS id, union_value(k := 'QX81') AS note")
    table = Table("event", (Column("id", T.INTEGER), Column("note", T.TEXT)), ("id",))
    with pytest.raises(SourceError, match=r"^event.note: an array or a nested type; leave the column out") as caught:
        open_stored(spec(tmp_path / "events.duckdb")).read(table)
    assert "QX81" not in str(caught.value)


@pytest.mark.parametrize("kind", [parquet_folder, csv_folder, duckdb_file, sqlite_url])
def test_a_misfit_is_an_error_without_the_value(tmp_path: Path, kind) -> None:
    source = open_stored(spec(kind(tmp_path)))
    wrong = Table("event", (Column("note", T.INTEGER), Column("price", T.DECIMAL, precision=4, scale=2)), ("note",))
    with pytest.raises(SourceError) as caught:
        source.read(wrong)
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == ["event.note", "event.price"]
    assert "1234567890" not in str(caught.value)
    assert "plain" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize("kind", [parquet_folder, duckdb_file, sqlite_url])
def test_a_table_without_rows_has_its_columns(tmp_path: Path, kind) -> None:
    place = kind(tmp_path)
    if kind is parquet_folder:
        pq.write_table(ROWS.slice(0, 0), tmp_path / "event.parquet")
    elif kind is duckdb_file:
        with duckdb.connect(str(place)) as connection:
            connection.execute("DELETE FROM event")
    else:
        connection = sqlite3.connect(tmp_path / "events.sqlite")
        connection.execute("DELETE FROM event")
        connection.commit()
        connection.close()
    rows = open_stored(spec(place)).read(EVENT)
    assert (rows.num_rows, rows.schema.types) == (0, ROWS.schema.types)
    assert len(fingerprint_rows(EVENT, rows)) == 32


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("event.csv", b"", "event: event.csv is empty"),
        ("event.csv", b"id,caf\xe9\n1,2\n", "event: event.csv is not UTF-8"),
        ("event.csv", b"id,note\n1,caf\xe9\n", "event: event.csv is not UTF-8"),
        ("event.csv", b"id,note\n1,secret,secret\n", "event: event.csv is not regular CSV"),
        ("event.csv", b"id,note,note\n1,2,3\n", "event.note: the source has several columns of this name"),
        ("event.parquet", b"", "event: event.parquet is an empty file"),
        ("event.parquet", b"PAR1 secret", "event: event.parquet is not a readable Parquet file"),
        ("other.csv", b"id\n", "event: the source has no such table; known: other"),
    ],
)
def test_bad_files_give_one_clear_error(tmp_path: Path, name: str, content: bytes, expected: str) -> None:
    (tmp_path / name).write_bytes(content)
    two = Table("event", (Column("id", T.INTEGER), Column("note", T.TEXT)), ("id",))
    with pytest.raises(SourceError) as caught:
        open_stored(spec(tmp_path)).read(two)
    assert str(caught.value).startswith(expected)
    assert "secret" not in str(caught.value)


PERSON = Table("person", tuple(Column(name, T.TEXT, nullable=True) for name in ("id", "mail", "note")), ("id",))


def persons(folder: Path, text: str) -> list[dict[str, str | None]]:
    (folder / "person.csv").write_text("id,mail,note\n" + text, encoding="utf-8")
    return FolderSource(folder).read(PERSON).to_pylist()


@pytest.mark.parametrize(
    ("text", "found", "where"),
    [
        # Before, the three lines after the quote were one value, without a word.
        ('1,a,x\n2,"ann,y\n3,c,z\n4,d,w\n', "a quote is not closed", "line 3, row 2: the quoted value of column mail"),
        ('1,a,x\n2,"ann,y\n3,"c",z\n', "a quote is not closed", "line 3, row 2: the quoted value of column mail"),
        (
            "1,a,x\n2,b\n",
            "more or fewer fields",
            "line 3, row 2: 2 fields where the header has 3; the last that fits is",
        ),
        ("1,a,x,9\n", "more or fewer fields", "line 2, row 1: 4 fields where the header has 3"),
        ('1,"a\nb",x\n2,b\n', "more or fewer fields", "line 4, row 2: 2 fields"),
    ],
)
def test_broken_lines_are_refused_and_only_the_owner_hears_where(tmp_path, text, found, where) -> None:
    with pytest.raises(SourceError, match=found) as caught:
        persons(tmp_path, text)
    assert where in caught.value.private_detail
    assert "ann" not in f"{caught.value} {caught.value.private_detail}"
    assert "line" not in str(caught.value).replace("some line", "")


def test_regular_quotes_are_read(tmp_path: Path) -> None:
    rows = persons(tmp_path, '1,"a ""q"", b","two\nlines"\n2,5" pipe,""\n')
    assert [row["mail"] for row in rows] == ['a "q", b', '5" pipe']
    assert [row["note"] for row in rows] == ["two\nlines", ""]
    assert len(persons(tmp_path, f'1,"{"x" * 200_000}",y\n')[0]["mail"]) == 200_000


@pytest.mark.parametrize(("other", "name"), [(csv_folder, r"event\.csv"), (parts_folder, "event")])
def test_a_table_in_two_files_is_refused(tmp_path: Path, other, name: str) -> None:
    parquet_folder(other(tmp_path))
    with pytest.raises(SourceError, match=rf"two files hold this table, {name} and event\.parquet"):
        open_stored(spec(tmp_path)).read(EVENT)


def test_a_changed_part_changes_what_is_stored_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    source = open_stored(spec(parts_folder(tmp_path)))
    before = source.stored([EVENT])
    assert set(before) == {"event"}
    (tmp_path / "event" / "part-00001.parquet").write_bytes(b"PAR1 secret")
    assert source.stored([EVENT]) != before
    with pytest.raises(SourceError, match=r"^event: part-00001\.parquet is not a readable Parquet file"):
        source.read(EVENT)


def test_a_spec_is_drafted_from_part_files(tmp_path: Path) -> None:
    one, parts = tmp_path / "one", tmp_path / "parts"
    one.mkdir()
    parts.mkdir()
    pq.write_table(ROWS, one / "event.parquet")
    assert FolderSource(parts_folder(parts)).catalogue().tables == FolderSource(one).catalogue().tables


def test_files_of_a_folder_that_are_several_tables_are_not_taken_for_one(tmp_path: Path) -> None:
    """The folder above the tables: a draft had the columns of the first file."""
    (tmp_path / "data").mkdir()
    for name in ("order", "person"):
        pq.write_table(pa.table({"id": [1], name: ["a"]}), tmp_path / "data" / f"{name}.parquet")
    with pytest.raises(SourceError, match=r"^data: person\.parquet has no order, unlike order\.parquet, but a folder"):
        FolderSource(tmp_path).catalogue()
    assert [table.name for table in FolderSource(tmp_path / "data").catalogue().tables] == ["order", "person"]


def test_sources_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SourceError, match="neither a folder nor a file"):
        open_stored(spec(tmp_path / "none"))
    (tmp_path / "text.duckdb").write_text("not a database")
    with pytest.raises(SourceError, match=r"text\.duckdb cannot be opened as a DuckDB file"):
        open_stored(spec(tmp_path / "text.duckdb")).read(EVENT)
    monkeypatch.delenv("PRIVBENCH_TEST_PASSWORD", raising=False)
    url = "postgresql://u:${PRIVBENCH_TEST_PASSWORD}@localhost:1/d"
    with pytest.raises(SourceError, match="the environment has no PRIVBENCH_TEST_PASSWORD"):
        open_stored(spec(url))
    monkeypatch.setenv("PRIVBENCH_TEST_PASSWORD", "hunter2@/")
    source = open_stored(spec(url))
    with pytest.raises(SourceError, match="cannot connect to postgresql database d at localhost:1") as caught:
        source.read(EVENT)
    assert "hunter2" not in str(caught.value) + repr(source)
    with pytest.raises(SourceError, match="no driver for nosuch"):
        DatabaseSource("nosuch://u@h/d").read(EVENT)
    with pytest.raises(SourceError, match="not a database URL"):
        DatabaseSource("postgresql://u:hunter2@h:port/d").read(EVENT)


def test_a_failing_view_does_not_tell_values(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "v.duckdb")) as connection:
        connection.execute("CREATE TABLE t AS SELECT 'secret' AS s")
        connection.execute("CREATE VIEW v AS SELECT CAST(s AS INTEGER) AS id FROM t")
    with pytest.raises(SourceError, match="ConversionException") as caught:
        open_stored(spec(tmp_path / "v.duckdb")).read(Table("v", (Column("id", T.INTEGER),), ("id",)))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (T.INTEGER, pa.array([1.0, float("nan"), None]), [1, None, None]),
        (T.INTEGER, pa.array([" 7", "+3", "4.0", "", None]), [7, 3, 4, None, None]),
        (T.INTEGER, pa.array([Decimal("5.00")]), [5]),
        (T.INTEGER, pa.array([None, None]), [None, None]),
        (T.DECIMAL, pa.array([3, -4]), [Decimal("3.00"), Decimal("-4.00")]),
        (T.DECIMAL, pa.array([1.005e2]), [Decimal("100.50")]),
        (T.FLOAT, pa.array([1, 2]), [1.0, 2.0]),
        (T.FLOAT, pa.array(["1e3", "-inf"]), [1000.0, float("-inf")]),
        (T.BOOLEAN, pa.array([0, 1, None]), [False, True, None]),
        (T.BOOLEAN, pa.array(["True", "false", "1"]), [True, False, True]),
        (T.DATE, pa.array([dt.datetime(2020, 1, 2)]), [dt.date(2020, 1, 2)]),
        (T.DATE, pa.array(["2020-01-02", "2020-01-02 00:00:00"]), [dt.date(2020, 1, 2)] * 2),
        (T.TIMESTAMP, pa.array([dt.date(2020, 1, 2)]), [dt.datetime(2020, 1, 2)]),
        (T.TIMESTAMP, pa.array([1_001], pa.timestamp("ns")), [dt.datetime(1970, 1, 1, 0, 0, 0, 1)]),
        (T.TIMESTAMP, pa.array([0], pa.timestamp("s", "Europe/Paris")), [dt.datetime(1970, 1, 1)]),
        (T.TIMESTAMP, pa.array(["2020-01-02T03:04:05+01:00"]), [dt.datetime(2020, 1, 2, 2, 4, 5)]),
        (T.TIMESTAMP, pa.array(["2020-01-02 03:04:05.123456789"]), [dt.datetime(2020, 1, 2, 3, 4, 5, 123456)]),
        (T.CATEGORY, pa.array([1, 2]), ["1", "2"]),
        (T.CATEGORY, pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
        (T.TEXT, pa.array([" kept "], pa.large_string()), [" kept "]),
    ],
)
def test_what_means_the_same_is_cast(kind: ColumnType, values: pa.Array, expected: list[object]) -> None:
    digits = (8, 2) if kind is T.DECIMAL else (None, None)
    column = Column("c", kind, None, True, *digits)
    cast = one_column(column, values)
    assert cast["c"].to_pylist() == expected
    assert cast["c"].type == column.arrow_type


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (T.INTEGER, pa.array([1.5])),
        (T.INTEGER, pa.array([float("inf")])),
        (T.INTEGER, pa.array([2**63], pa.uint64())),
        (T.INTEGER, pa.array(["12a"])),
        (T.DECIMAL, pa.array([Decimal("0.001")])),
        (T.DECIMAL, pa.array([10**7])),
        (T.BOOLEAN, pa.array([2])),
        (T.BOOLEAN, pa.array(["maybe"])),
        (T.DATE, pa.array([dt.datetime(2020, 1, 2, 12)])),
        (T.DATE, pa.array(["2020-13-01"])),
        (T.TEXT, pa.array([b"\xff"])),
        (T.DATE, pa.array([1975], pa.int32())),
        (T.TIMESTAMP, pa.array([1975])),
    ],
)
def test_what_would_lose_something_is_refused(kind: ColumnType, values: pa.Array) -> None:
    digits = (8, 2) if kind is T.DECIMAL else (None, None)
    with pytest.raises(SourceError, match=r"^t\.c: some values of the source's type .* declare another type"):
        one_column(Column("c", kind, None, True, *digits), values)


def test_sqlite_may_mix_types_in_a_column(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "mixed.sqlite")
    connection.execute("CREATE TABLE t (id, word)")
    connection.executemany("INSERT INTO t VALUES (?, ?)", [(1, 1), ("2", "two"), (3.0, None)])
    connection.commit()
    connection.close()
    source = open_stored(spec(f"sqlite:///{tmp_path / 'mixed.sqlite'}"))
    table = Table("t", (Column("id", T.INTEGER), Column("word", T.TEXT, nullable=True)), ("id",))
    assert source.read(table).to_pydict() == {"id": [1, 2, 3], "word": ["1", "two", None]}
    with pytest.raises(SourceError, match=r"^t\.word: some values"):
        source.read(Table("t", (Column("word", T.INTEGER),), ("word",)))


def test_the_fingerprint_changes_with_every_cell() -> None:
    base = fingerprint_rows(EVENT, ROWS)
    seen = {base}
    other = {"id": 9, "big": 7, "price": Decimal("7.00"), "weight": 7.5, "done": None, "day": dt.date(2020, 2, 28)}
    other |= {"at": dt.datetime(2000, 1, 1), "kind": "x", "note": ""}
    for index, name in enumerate(ROWS.column_names):
        values = ROWS[name].to_pylist()
        values[0] = other[name]
        changed = ROWS.set_column(index, ROWS.schema.field(name), pa.array(values, ROWS.schema.field(name).type))
        seen.add(fingerprint_rows(EVENT, changed))
    seen.add(fingerprint_rows(EVENT, ROWS.slice(0, 2)))
    seen.add(fingerprint_rows(EVENT, ROWS.rename_columns([*ROWS.column_names[:-1], "remark"])))
    assert len(seen) == len(ROWS.column_names) + 3


def test_the_fingerprint_sees_where_text_ends_and_what_is_null() -> None:
    table = Table("t", (Column("id", T.INTEGER), Column("s", T.TEXT, nullable=True)), ("id",))
    variants = [["ab", "c"], ["a", "bc"], ["abc", ""], ["abc", None], [None, "abc"], ["", "abc"]]
    digests = {fingerprint_rows(table, pa.table({"id": [1, 2], "s": pa.array(v, pa.string())})) for v in variants}
    assert len(digests) == len(variants)


def test_the_fingerprint_ignores_chunks_order_and_what_hides_under_null() -> None:
    rows = pa.concat_tables([ROWS] * 25_000).set_column(0, "id", pa.array(range(75_000)))  # more than a block
    base = fingerprint_rows(EVENT, rows)
    assert fingerprint_rows(EVENT, rows.combine_chunks()) == base
    assert fingerprint_rows(EVENT, rows.take(pa.array(range(rows.num_rows - 1, -1, -1)))) == base
    table = Table("t", (Column("id", T.INTEGER), Column("x", T.FLOAT, nullable=True)), ("id",))
    hidden = pc.if_else(pa.array([True, False]), pa.scalar(None, pa.float64()), pa.array([7.0, -0.0]))
    plain = pa.array([None, 0.0], pa.float64())
    tables = [pa.table({"id": [1, 2], "x": values}) for values in (hidden, plain)]
    assert fingerprint_rows(table, tables[0]) == fingerprint_rows(table, tables[1])


def family(*, optional: bool = False) -> Schema:
    """a <- b (a pair of keys) <- c."""
    a = Table("a", (Column("x", T.INTEGER), Column("y", T.TEXT)), ("x", "y"))
    up = ForeignKey("b", ("ax", "ay"), "a", ("x", "y"), 9, owner=True, optional=optional)
    keys = (Column("id", T.INTEGER), Column("ax", T.INTEGER, nullable=optional), Column("ay", T.TEXT))
    b = Table("b", (*keys, Column("f", T.FLOAT)), ("id",), (up,), unique=(("ax", "f"),))
    up = ForeignKey("c", ("b",), "b", ("id",), 9, owner=True)
    c = Table("c", (Column("id", T.INTEGER), Column("b", T.INTEGER)), ("id",), (up,))
    return Schema("family", (c, b, a), "a")


def rows_of(a: list[tuple], b: list[tuple], c: list[tuple]) -> dict[str, pa.Table]:
    def table(names: str, kinds: list[pa.DataType], rows: list[tuple]) -> pa.Table:
        columns = list(zip(*rows, strict=True)) or [()] * len(kinds)
        arrays = [pa.array(values, kind) for values, kind in zip(columns, kinds, strict=True)]
        return pa.table(arrays, names.split())

    whole, text, real = pa.int64(), pa.string(), pa.float64()
    return {
        "a": table("x y", [whole, text], a),
        "b": table("id ax ay f", [whole, whole, text, real], b),
        "c": table("id b", [whole, whole], c),
    }


GOOD_A = [(1, "p"), (1, "q")]
GOOD_B = [(10, 1, "p", 0.5), (11, 1, "q", 1.5)]
GOOD_C = [(100, 10), (101, 11), (102, 10)]


def test_good_rows_pass_unchanged() -> None:
    rows = rows_of(GOOD_A, GOOD_B, GOOD_C)
    checked = check_rows(family(), rows, {})
    assert list(checked) == ["c", "b", "a"]
    assert all(checked[name].equals(rows[name]) for name in rows)
    assert all(table.num_rows == 0 for table in check_rows(family(), rows_of([], [], []), {}).values())


def test_orphans_are_refused_by_default_and_counted_only_in_private() -> None:
    rows = rows_of(GOOD_A, [*GOOD_B, (12, 2, "p", 1.0), (13, 1, "r", 2.0)], GOOD_C)
    with pytest.raises(SourceError) as caught:
        check_rows(family(), rows, {})
    assert str(caught.value) == (
        "b.(ax,ay): rows without a match in a(x, y); declare on_orphan: drop for this key, or fix the source"
    )
    assert caught.value.private_detail == "b.(ax,ay): 2 of 4 rows"


def test_dropped_orphans_take_their_children_along() -> None:
    rows = rows_of(GOOD_A, [(12, 2, "p", 1.0), *GOOD_B], [(103, 12), *GOOD_C])
    checked = check_rows(family(), rows, {"b.(ax,ay)": "drop"})
    assert checked["b"]["id"].to_pylist() == [10, 11]
    assert checked["c"]["id"].to_pylist() == [100, 101, 102]
    with pytest.raises(SourceError, match=r"^c\.b: rows without a match"):  # an orphan of its own is another matter
        check_rows(family(), rows_of(GOOD_A, GOOD_B, [*GOOD_C, (104, 99)]), {"b.(ax,ay)": "drop"})


def test_a_null_in_an_optional_key_is_no_orphan() -> None:
    rows = rows_of(GOOD_A, [*GOOD_B, (12, None, "z", 1.0)], GOOD_C)
    assert check_rows(family(optional=True), rows, {})["b"].num_rows == 3


def test_all_broken_rules_come_in_one_error() -> None:
    nan = float("nan")
    b = [(10, 1, "p", nan), (10, 1, "q", 1.5), (None, 1, "q", 1.5), (12, None, "p", 0.0)]
    with pytest.raises(SourceError) as caught:
        check_rows(family(), rows_of(GOOD_A, b, []), {})
    places = [line.split(": ")[0] for line in str(caught.value).splitlines()]
    assert places == ["b.id", "b.ax", "b.f", "b.(ax,f)", "b.id"]
    assert "b.id: NULL in a primary key; fix the source" in str(caught.value)
    assert "b.f: NULL (or NaN) in a column that is not nullable" in str(caught.value)
    assert "b.id: duplicate values (primary key); choose another key, or fix the source" in str(caught.value)
    assert not any(digit in str(caught.value) for digit in "0123456789")
    assert caught.value.private_detail is not None
    assert "b.f: 1 of 4 rows" in caught.value.private_detail


def test_nan_becomes_null_where_null_may_be() -> None:
    table = Table("t", (Column("id", T.INTEGER), Column("x", T.FLOAT, Learn(), nullable=True)), ("id",))
    rows = {"t": pa.table({"id": [1, 2, 3], "x": [float("nan"), float("inf"), None]})}
    assert check_rows(Schema("s", (table,), "t"), rows, {})["t"]["x"].to_pylist() == [None, float("inf"), None]


_FIRST, _LAST = -(1 << 63), (1 << 63) - 1


@pytest.mark.parametrize(
    "values", [[_FIRST, _LAST], [_FIRST, -1, 0, _LAST], [5], [], [7, 3, 5], [7, 3, 7], [3, 3, 7], [_LAST, _LAST]]
)
def test_keys_of_any_integers_are_unique_or_not(values: list[int]) -> None:
    schema = Schema("s", (Table("t", (Column("id", T.INTEGER),), ("id",)),), "t")
    rows = {"t": pa.table({"id": pa.array(values, pa.int64())})}
    assert _repeated(schema, rows) == len(values) - len(set(values))


@pytest.mark.parametrize("largest", [3, 1 << 20, 1 << 31, _LAST])
def test_keys_of_several_columns_are_counted_as_python_counts_them(largest: int) -> None:
    rng = np.random.default_rng(largest)
    columns = tuple(Column(name, T.INTEGER, nullable=True) for name in "ab")
    schema = Schema("s", (Table("t", (Column("id", T.INTEGER), *columns), ("id",), unique=(("a", "b"),)),), "t")
    choice = np.unique(rng.integers(-largest, largest, 9))
    pairs = [(int(a), int(b) if b > choice[0] else None) for a, b in rng.choice(choice, (200, 2))]
    rows = {
        "t": pa.table({"id": range(200), "a": [a for a, _ in pairs], "b": pa.array([b for _, b in pairs], pa.int64())})
    }
    complete = [pair for pair in pairs if pair[1] is not None]
    assert _repeated(schema, rows) == len(complete) - len(set(complete)) > 0


def _repeated(schema: Schema, rows: dict[str, pa.Table]) -> int:
    """How many rows `check_rows` finds to be one too many."""
    try:
        check_rows(schema, rows, {})
    except SourceError as error:
        return int(str(error.private_detail).split(": ")[1].split(" of ")[0])
    return 0


@pytest.mark.parametrize("block", [1, 7, 1000])
def test_orphans_are_found_whatever_the_blocks(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(integrity, "_KEYS_AT_ONCE", block)
    rng = np.random.default_rng(block)
    a = [(x, y) for x in range(4) for y in "pq"]
    b = [
        (i, int(x), y, float(i))
        for i, (x, y) in enumerate(zip(rng.integers(0, 5, 50), rng.choice([*"pqr"], 50), strict=True))
    ]
    c = [(i, int(up)) for i, up in enumerate(rng.integers(0, 60, 100))]
    checked = check_rows(family(), rows_of(a, b, c), {"b.(ax,ay)": "drop", "c.b": "drop"})
    known = {row[0] for row in b if row[1:3] in a}
    assert 0 < len(known) < 50
    assert checked["b"]["id"].to_pylist() == sorted(known)
    assert checked["c"]["id"].to_pylist() == [i for i, up in c if up in known]


def test_compressed_files_are_tables_and_a_name_may_have_no_letter(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "score.csv.gz", "wt", encoding="utf-8") as file:
        file.write("id,+/-\n1,-3\n2,\n")
    source = FolderSource(tmp_path)
    (table,) = source.catalogue().tables
    assert (table.name, [column.name for column in table.columns]) == ("score", ["id", "+/-"])
    columns = Column("id", T.INTEGER), Column("+/-", T.INTEGER, Learn(), nullable=True)
    assert source.read(Table("score", columns, ("id",)))["+/-"].to_pylist() == [-3, None]


@pytest.mark.parametrize("damage", [b"", b"id,name\n1,Ann", gzip.compress(b"id,name\n1,Ann\n", mtime=0)[:-9]])
def test_a_compressed_file_that_is_damaged_is_named(damage: bytes, tmp_path: Path) -> None:
    (tmp_path / "person.csv.gz").write_bytes(damage)
    table = Table("person", (Column("id", T.INTEGER), Column("name", T.CATEGORY, Learn())), ("id",))
    with pytest.raises(SourceError, match=r"^person: person\.csv\.gz ") as caught:
        FolderSource(tmp_path).read(table)
    assert "Ann" not in str(caught.value)


def test_dates_are_read_in_the_form_that_a_source_writes_them_in(tmp_path: Path) -> None:
    (tmp_path / "visit.csv").write_text("id,day\n1,26-08-1961\n2,\n", encoding="utf-8")
    day = Column("day", T.DATE, Learn(), nullable=True)
    table = Table("visit", (Column("id", T.INTEGER), day), ("id",))
    todo = r"^visit.day: .* they have times, declare type: timestamp; .* they are written, as format: '%d/%m/%Y'; else"
    with pytest.raises(SourceError, match=todo):
        FolderSource(tmp_path).read(table)
    written = replace(table, columns=(table.columns[0], replace(day, format="%d-%m-%Y")))
    assert FolderSource(tmp_path).read(written)["day"].to_pylist() == [dt.date(1961, 8, 26), None]
    other = replace(table, columns=(table.columns[0], replace(day, format="%m-%d-%Y")))
    with pytest.raises(SourceError, match=r"^visit.day: some values") as caught:
        FolderSource(tmp_path).read(other)
    assert "1961" not in str(caught.value)


def test_money_and_percentages_are_numbers_where_their_form_is_plain(tmp_path: Path) -> None:
    (tmp_path / "room.csv").write_text('id,price,rate\n1,"$1,234.50",98%\n2,-$3,\n', encoding="utf-8")
    price = Column("price", T.DECIMAL, Learn(), precision=12, scale=2)
    table = Table("room", (Column("id", T.INTEGER), price, Column("rate", T.FLOAT, Learn(), nullable=True)), ("id",))
    rows = FolderSource(tmp_path).read(table)
    assert (rows["price"].to_pylist(), rows["rate"].to_pylist()) == (
        [Decimal("1234.50"), Decimal("-3.00")],
        [98.0, None],
    )
    (tmp_path / "room.csv").write_text('id,price,rate\n1,"1,234",1\n', encoding="utf-8")  # or a decimal comma
    with pytest.raises(SourceError, match=r"^room.price: some values"):
        FolderSource(tmp_path).read(table)
