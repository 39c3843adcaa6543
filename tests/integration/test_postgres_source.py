"""PostgreSQL as a source and as a target of the DDL, on a real server."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
import sqlalchemy as sa

from privbench_core.backends import sqlalchemy as postgres
from privbench_core.backends.integrity import fingerprint_rows
from privbench_core.backends.postgres import create_schema_sql
from privbench_core.backends.registry import open_stored
from privbench_core.draft.draft import reflect
from privbench_core.errors import SourceError
from privbench_core.schema.columns import Column, ColumnType, Learn
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.spec.model import Spec, VersionQuery, Watermark
from tests.helpers.postgres import execute, new_database
from tests.helpers.specs import changed, load

T = ColumnType
PERSON = Table(
    "Person",
    (
        Column("id", T.INTEGER),
        Column("mail", T.TEXT),
        Column("kind", T.CATEGORY, Learn()),
        Column("pay", T.DECIMAL, Learn(), nullable=True, precision=10, scale=2),
        Column("height", T.FLOAT, Learn(), nullable=True),
        Column("here", T.BOOLEAN, nullable=True),
        Column("born", T.DATE, Learn(), nullable=True),
        Column("seen", T.TIMESTAMP, Learn(), nullable=True),
    ),
    ("id",),
    unique=(("mail", "kind"),),
)
VISIT = Table(
    "visit",
    (Column("person", T.INTEGER), Column("no", T.INTEGER), Column("zone", T.TEXT, nullable=True)),
    ("person", "no"),
    (
        ForeignKey("visit", ("person",), "Person", ("id",), 9, owner=True),
        ForeignKey("visit", ("zone",), "zone", ("code",), optional=True),
    ),
)
ZONE = Table("zone", (Column("code", T.TEXT),), ("code",), public=True)
SCHEMA = Schema("clinic", (VISIT, PERSON, ZONE), "Person")
ROWS = [
    (1, "é@x", "a", Decimal("12345678.90"), 0.1, True, dt.date(2020, 2, 29), dt.datetime(2020, 1, 2, 3, 4, 5, 678901)),
    (2, "雪", "b", None, None, None, None, None),
    (3, "", "b", Decimal("-0.01"), -1e300, False, dt.date(1, 1, 1), dt.datetime(1969, 12, 31, 23, 59, 59)),
]


@pytest.fixture(scope="session")
def url(postgres: str) -> str:
    """A database with the schema and its rows in it."""
    where = new_database(postgres, "clinic")
    execute(where, create_schema_sql(SCHEMA))
    for row in ROWS:
        execute(where, 'INSERT INTO "Person" VALUES (%s, %s, %s, %s, %s, %s, %s, %s)', *row)
    execute(
        where,
        "INSERT INTO zone VALUES ('north');"
        "INSERT INTO visit VALUES (1, 1, 'north'), (1, 2, NULL), (3, 1, 'north');"
        "CREATE TYPE mood AS ENUM ('calm', 'cross');"
        "CREATE TABLE odd AS SELECT 7::numeric(9, 0) AS id, 'cross'::mood AS mood, 5 AS code,"
        " '00000000-0000-0000-0000-000000000001'::uuid AS token, 'ab'::char(5) AS padded,"
        " '2020-07-01 12:00+02'::timestamptz AS at, 'secret' AS word;"
        "CREATE VIEW failing AS SELECT word::integer AS id FROM odd",
    )
    return where


def spec(source: str) -> Spec:
    return Spec(SCHEMA, source, Path("spec.yaml").absolute(), (1.0,), 0.0, 1.0, 0.0)


def test_rows_come_back_as_they_went_in(url: str) -> None:
    source = open_stored(spec(url))
    whole = source.read(PERSON)
    assert whole.schema.types == PERSON.arrow_schema.types
    assert [tuple(row.values()) for row in whole.to_pylist()] == ROWS
    assert source.fingerprint(PERSON) == fingerprint_rows(PERSON, whole)


def test_the_fingerprint_follows_the_content_and_nothing_else(url: str) -> None:
    source = open_stored(spec(url))
    before = source.fingerprint(PERSON)
    update = 'UPDATE "Person" SET kind = %s WHERE id = 1'
    execute(url, update, "a")  # an update moves the row to the end of the heap
    assert source.read(PERSON)["id"].to_pylist() == [2, 3, 1]
    assert source.fingerprint(PERSON) == before
    execute(url, update, "c")
    assert source.fingerprint(PERSON) != before
    execute(url, update, "a")


@pytest.fixture
def marked(url: str) -> Iterator[sa.Connection]:
    """A table with a moment of change, for as long as the test runs."""
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"), poolclass=sa.pool.NullPool)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(
            "CREATE TABLE marked AS SELECT i AS id, i AS v, '2020-07-01 12:00+02'::timestamptz AS touched"
            " FROM generate_series(1, 5) AS i"
        )
        yield connection
        connection.exec_driver_sql("DROP TABLE marked")
    engine.dispose()


EDIT = "UPDATE marked SET v = v + 1 WHERE id = 2"
TOUCH = "UPDATE marked SET v = v + 1, touched = touched + interval '1 second' WHERE id = 3"
DELETE = "DELETE FROM marked WHERE id = 1"
INSERT = "INSERT INTO marked SELECT 1, 1, touched FROM marked WHERE id = 2"
VACUUM = "VACUUM (FULL, FREEZE) marked"


@pytest.mark.parametrize(
    ("change", "sees"),
    [
        (Watermark("touched"), {TOUCH, DELETE, INSERT}),
        (Watermark("xmin"), {EDIT, TOUCH, DELETE, INSERT}),
        (VersionQuery("SELECT sum(v), 'a' LIKE 'a%' FROM marked"), {EDIT, TOUCH, DELETE, INSERT}),
    ],
)
def test_each_version_sees_what_it_says(url: str, marked: sa.Connection, change, sees: set[str]) -> None:
    source = open_stored(spec(url))
    table = Table("marked", (Column("id", T.INTEGER),), ("id",))
    for statement in (EDIT, TOUCH, DELETE, INSERT, VACUUM):
        before = source.version(table, change)
        assert source.version(table, change) == before
        marked.exec_driver_sql(statement)
        assert (source.version(table, change) != before) == (statement in sees), statement


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (Watermark("tuched"), "^marked: the watermark tuched is not a column of the source; did you mean 'touched'"),
        (VersionQuery("SELECT id FROM marked"), "^marked: its query under change returns several rows"),
        (VersionQuery("SELECT 'secret'::integer"), r"^marked: its query under change failed \(InvalidText"),
        (VersionQuery("DELETE FROM marked RETURNING 1"), r"^marked: its query under change failed \(ReadOnlySql"),
    ],
)
def test_versions_that_cannot_be_had_are_refused(url: str, marked: sa.Connection, change, said: str) -> None:
    table = Table("marked", (Column("id", T.INTEGER),), ("id",))
    with pytest.raises(SourceError, match=said) as error:
        open_stored(spec(url)).version(table, change)
    assert "secret" not in str(error.value)
    assert marked.exec_driver_sql("SELECT count(*) FROM marked").scalar() == 5


def test_a_view_has_no_xmin(url: str) -> None:
    view = Table("failing", (Column("id", T.INTEGER),), ("id",))
    with pytest.raises(SourceError, match=r"^source: reading .* failed \(UndefinedColumn\)"):
        open_stored(spec(url)).version(view, Watermark("xmin"))


def test_types_of_postgres_that_stand_for_ours(url: str) -> None:
    columns = (Column("id", T.INTEGER), Column("at", T.TIMESTAMP))
    texts = tuple(Column(name, T.CATEGORY) for name in ("mood", "code", "token", "padded"))
    row = open_stored(spec(url)).read(Table("odd", columns + texts, ("id",))).to_pylist()[0]
    assert row == {
        "id": 7,
        "at": dt.datetime(2020, 7, 1, 10),
        "mood": "cross",
        "code": "5",
        "token": "00000000-0000-0000-0000-000000000001",
        "padded": "ab",
    }


VALUES = Table(
    '50% "odd" Values',
    (
        Column("id", T.UUID),
        Column("At, in UTC", T.TIMESTAMPTZ, Learn(), nullable=True),
        Column("stay", T.INTERVAL, Learn(), nullable=True),
        Column("scan", T.BYTES, nullable=True),
        Column("form", T.JSON, nullable=True),
        Column("plain", T.JSON, nullable=True),
        Column("opens", T.INTERVAL, Learn(), nullable=True),
        Column("shuts", T.CATEGORY, Learn(), nullable=True),
        Column("year", T.INTEGER, Learn(), nullable=True),
        Column("fee", T.DECIMAL, Learn(), nullable=True, precision=9, scale=2),
        Column("until", T.TIMESTAMP, Learn(), nullable=True),
        Column("since", T.DATE, Learn(), nullable=True),
        Column("ratio", T.FLOAT, Learn(), nullable=True),
        Column("big", T.DECIMAL, Learn(), nullable=True, precision=30, scale=2),
        Column("tiny", T.INTEGER, Learn(), nullable=True),
        Column("address", T.TEXT, nullable=True),
    ),
    ("id",),
)
VALUES_SQL = """
CREATE DOMAIN year_number AS integer CHECK (VALUE > 1900);
CREATE TABLE "50% ""odd"" Values" (id uuid PRIMARY KEY, "At, in UTC" timestamptz, stay interval, scan bytea, form jsonb,
  plain json, opens time, shuts time, year year_number, fee money, until timestamp, since date, ratio real,
  big numeric, tiny smallint, address inet, tags text[]);
INSERT INTO "50% ""odd"" Values" VALUES
  ('0B9CB3E9-4C97-4F5B-99E6-6E3C93735D06', '2020-07-01 12:00:00.000001+02', '1 year 2 mons -3 days 04:05:06.5',
   '\\xff00',
   '{"b":1,  "a": [2]}', '[1,  2]', '08:30', '17:00', 2006, 2.5, 'infinity', '-infinity', 0.5,
   12345678901234567890.12, -7, '10.0.0.1', '{a,b}'),
  ('ffffffff-ffff-4fff-bfff-ffffffffffff', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
   NULL, NULL, NULL),
  ('00000000-0000-4000-8000-000000000000', '0001-01-01 00:00:00+00', '-1 day', '', '"x"', '{}', '00:00', '24:00', 1901,
   -0.01, '0044-03-15 BC', '2020-02-29', 'NaN', 0, 0, '::1', '{}')
"""


@pytest.fixture(scope="session")
def odd_url(url: str) -> str:
    """A database of the same server with values of all kinds, and a user who may not read all of it."""
    where = new_database(url, "odd", "ALTER DATABASE odd SET TimeZone = 'Asia/Tokyo'; CREATE ROLE reader LOGIN")
    execute(where, VALUES_SQL)
    execute(
        where,
        "CREATE TABLE closed (id bigint); CREATE TABLE ajar (id bigint, name text, pay text);"
        "INSERT INTO ajar VALUES (1, 'a', 'secret'); GRANT SELECT (id, name) ON ajar TO reader",
    )
    return where


def test_values_of_every_kind_come_natively(odd_url: str) -> None:
    rows = open_stored(spec(odd_url)).read(VALUES)
    rows.validate(full=True)
    assert rows.schema.types == VALUES.arrow_schema.types
    first, empty, last = (list(row.values()) for row in rows.to_pylist())
    assert first == [
        "0b9cb3e9-4c97-4f5b-99e6-6e3c93735d06",
        dt.datetime(2020, 7, 1, 10, 0, 0, 1, dt.UTC),
        dt.timedelta(days=417, hours=4, minutes=5, seconds=6.5),
        b"\xff\x00",
        '{"a": [2], "b": 1}',
        "[1,  2]",
        dt.timedelta(hours=8.5),
        "17:00:00",
        2006,
        Decimal("2.50"),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
        dt.date(1, 1, 1),
        0.5,
        Decimal("12345678901234567890.12"),
        -7,
        "10.0.0.1/32",
    ]
    assert empty == ["ffffffff-ffff-4fff-bfff-ffffffffffff", *[None] * 15]
    assert last[1] == dt.datetime(1, 1, 1, tzinfo=dt.UTC)
    assert last[2:9] == [-dt.timedelta(1), b"", '"x"', "{}", dt.timedelta(0), "24:00:00", 1901]
    assert last[9:12] == [Decimal("-0.01"), dt.datetime(1, 1, 1), dt.date(2020, 2, 29)]


def test_arrays_are_read_as_json(odd_url: str) -> None:
    columns = (Column("tags", T.JSON, Learn(), nullable=True, sql_type="text[]"), Column("id", T.UUID))
    found = open_stored(spec(odd_url)).read(Table(VALUES.name, columns, ("id",)))["tags"].to_pylist()
    assert sorted(found, key=str) == [None, '["a", "b"]', "[]"]


def test_what_postgres_stores_and_we_do_not_is_refused(odd_url: str) -> None:
    odd = (Column("tags", T.TEXT), Column("shuts", T.INTEGER), Column("id", T.UUID))
    with pytest.raises(SourceError) as caught:
        open_stored(spec(odd_url)).read(Table(VALUES.name, odd, ("id",)))
    assert [line.split(";")[0] for line in str(caught.value).splitlines()] == [
        f"{VALUES.name}.tags: an array or a nested type",
        f"{VALUES.name}.shuts: a time of day, which cannot be read as integer",
    ]


def test_a_database_that_may_be_read_in_part(odd_url: str) -> None:
    source = open_stored(spec(sa.make_url(odd_url).set(username="reader").render_as_string(hide_password=False)))
    columns = (Column("id", T.INTEGER), Column("name", T.TEXT), Column("pay", T.TEXT))
    assert source.read(Table("ajar", columns[:2], ("id",))).to_pylist() == [{"id": 1, "name": "a"}]
    with pytest.raises(SourceError, match=r"^ajar: the source's user may not read pay; grant SELECT on them, or leave"):
        source.read(Table("ajar", columns, ("id",)))
    with pytest.raises(
        SourceError, match=r"^closed: the source's user may not read this table; grant SELECT on it, or"
    ):
        source.read(Table("closed", columns[:1], ("id",)))


def test_many_batches_are_one_table(odd_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    batches, sizes = postgres._batches, []

    def counted(*arguments: object) -> Iterator[pa.Table]:
        for batch in batches(*arguments):
            sizes.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(postgres, "_batches", counted)
    execute(
        odd_url, "CREATE TABLE many AS SELECT i AS id, repeat('x', 200) AS word FROM generate_series(1, 200000) AS i"
    )
    rows = open_stored(spec(odd_url)).read(Table("many", (Column("id", T.INTEGER), Column("word", T.TEXT)), ("id",)))
    assert len(sizes) > 2
    assert sum(sizes) == 200_000
    assert rows["id"].num_chunks == rows["word"].num_chunks == 1  # rows of many chunks are slow to take
    assert rows["id"].to_pylist() == list(range(1, 200_001))


def test_another_driver_of_sqlalchemy_reads_the_same(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    native = open_stored(spec(url)).read(PERSON)
    monkeypatch.setattr(postgres, "is_readable", lambda _: False)
    monkeypatch.setattr(postgres, "BLOCK_ROWS", 1)  # NULL alone in a chunk has no type of its own
    parts = list(open_stored(spec(url)).batches(PERSON))
    chunked = pa.concat_tables(parts)
    assert len(parts) == 1 + 3, "an empty one, and one per row"
    assert chunked.equals(native)


def test_errors_tell_neither_values_nor_passwords(url: str) -> None:
    source = open_stored(spec(url))
    with pytest.raises(SourceError, match=r"^odd\.word: some values") as misfit:
        source.read(Table("odd", (Column("word", T.INTEGER),), ("word",)))
    with pytest.raises(SourceError, match=r"^failing: reading postgresql .* failed; check what the view") as failing:
        source.read(Table("failing", (Column("id", T.INTEGER),), ("id",)))
    assert "secret" not in str(misfit.value) + str(failing.value)
    elsewhere = sa.make_url(url).set(password="hunter2", database="nowhere").render_as_string(hide_password=False)
    with pytest.raises(SourceError, match="cannot connect to postgresql database nowhere") as missing:
        open_stored(spec(elsewhere)).read(PERSON)
    assert "does not exist" in str(missing.value)
    assert "hunter2" not in str(missing.value)
    with pytest.raises(SourceError, match="visits: the source has no such table; did you mean 'visit'"):
        source.read(Table("visits", VISIT.columns, VISIT.primary_key))


def test_a_table_without_rows(url: str) -> None:
    execute(url, "CREATE TABLE nothing (id bigint PRIMARY KEY, kind text)")
    rows = open_stored(spec(url)).read(Table("nothing", (Column("id", T.INTEGER), Column("kind", T.TEXT)), ("id",)))
    assert (rows.num_rows, rows.schema.types) == (0, [pa.int64(), pa.string()])
    execute(url, "DROP TABLE nothing")


def test_the_ddl_is_kept_by_the_server(url: str) -> None:
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"), poolclass=sa.pool.NullPool)
    inspector = sa.inspect(engine)
    assert inspector.get_pk_constraint("visit")["constrained_columns"] == ["person", "no"]
    assert {key["referred_table"] for key in inspector.get_foreign_keys("visit")} == {"Person", "zone"}
    assert [index["column_names"] for index in inspector.get_indexes("visit")] == [["zone"]]
    assert inspector.get_unique_constraints("Person")[0]["column_names"] == ["mail", "kind"]
    with pytest.raises(sa.exc.IntegrityError), engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO visit VALUES (99, 1, NULL)")
    engine.dispose()


def test_a_draft_of_the_database_loads_once_decided(url: str, tmp_path: Path) -> None:
    draft = reflect(url, "clinic")
    assert "unit: Person # each row" in draft
    assert "mood: {type: category, nullable: true, sql_type: mood}" in draft  # its values are those of the enum
    cut = draft[: draft.index("  odd:")] + draft[draft.index("  visit:") :]
    loaded = load(tmp_path, changed(cut, "public:\n    - CHOOSE", "public: [zone]"))
    assert loaded.schema.table("visit").primary_key == ("person", "no")
    assert loaded.schema.table("Person").column("pay").precision == 10
    assert loaded.schema.ownership_path("visit")[0].parent == "Person"
    assert open_stored(loaded).read(loaded.schema.table("Person")).num_rows == 3
