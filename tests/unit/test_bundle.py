"""The bundle: content, determinism, all or nothing; and loading it into DuckDB."""

from __future__ import annotations

import datetime as dt
import errno
import gzip
import json
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privbench_core.errors import InternalError, PublishError
from privbench_core.files import file_name
from privbench_core.publishing import load_bundle, read_bundle, table_files, write_bundle
from privbench_core.schema.columns import Column, ColumnType, EnumType
from privbench_core.schema.constraints import Check, ForeignKey
from privbench_core.schema.tables import Schema, Table

GUARANTEE = {
    "unit": "one row of home",
    "add_or_remove_one_unit": {"epsilon": 0.8, "delta": 1e-9},
    "replace_one_unit": {"epsilon": 1.6, "delta": 2e-9},
}
RECEIPT = {"created": "2026-11-21", "guarantee": GUARANTEE, "anything": [1, {"else": None}]}


@pytest.fixture
def schema():
    key = ForeignKey("pet", ("home id",), "home", ("id",), max_children=3, owner=True)
    place = ForeignKey("home", ("place",), "place", ("code",), optional=True)
    return Schema(
        "zoo",
        (
            Table(
                "pet",
                (
                    Column("nr", ColumnType.INTEGER),
                    Column("home id", ColumnType.INTEGER),
                    Column("name", ColumnType.TEXT, nullable=True),
                ),
                ("home id", "nr"),
                (key,),
            ),
            Table(
                "home",
                (Column("id", ColumnType.INTEGER), Column("place", ColumnType.TEXT, nullable=True)),
                ("id",),
                (place,),
            ),
            Table("place", (Column("code", ColumnType.TEXT),), ("code",), public=True),
        ),
        unit="home",
    )


@pytest.fixture
def tables():
    return {
        "place": pa.table({"code": ["it's", "b"]}),
        "home": pa.table({"place": ["b", None, "it's"], "id": [1, 2, 3]}),
        "pet": pa.table({"nr": [1, 2, 1, 2], "home id": [1, 1, 3, 3], "name": ["", None, 'a, "b"\n', "ü"]}),
    }


@pytest.fixture
def bundle(tmp_path, schema, tables):
    return write_bundle(tmp_path / "out", schema, tables, RECEIPT, {"q1": "SELECT 1;\n"})


def content(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def test_a_folder_may_be_called_like_a_partition(tmp_path, schema, tables):
    out = write_bundle(tmp_path / "epsilon=3.2" / "out", schema, tables, RECEIPT)
    assert load_bundle(out, str(tmp_path / "a.duckdb")).rows["home"] == 3


def test_what_is_in_a_bundle(bundle, tables):
    assert sorted(content(bundle)) == [
        *("MANIFEST.json", "README.md"),
        *(f"data/{name}.{kind}" for name in ("home", "pet", "place") for kind in ("csv.gz", "parquet")),
        *("load.duckdb.sql", "load.sql", "schema.sql", "statistics.sql"),
        "workload/q1.sql",
    ]
    manifest = json.loads((bundle / "MANIFEST.json").read_text(encoding="utf-8"))
    assert (manifest["format"], manifest["format_version"]) == ("privbench-bundle", 1)
    assert (manifest["database"], manifest["created"], manifest["privacy"]) == ("zoo", "2026-11-21", RECEIPT)
    assert {name: entry["rows"] for name, entry in manifest["tables"].items()} == {"place": 2, "home": 3, "pet": 4}
    assert manifest["tables"]["home"]["columns"][1] == {"name": "place", "type": "text", "nullable": True}
    opened = read_bundle(bundle)
    assert opened.tables == ("place", "home", "pet")
    assert opened.table("home").to_pydict() == {"id": [1, 2, 3], "place": ["b", None, "it's"]}
    assert opened.table("pet")["name"].to_pylist() == tables["pet"]["name"].to_pylist()
    assert opened.workload == {"q1": "SELECT 1;\n"}
    assert "CREATE TABLE" in opened.schema_sql
    columns = pq.read_schema(bundle / "data/home.parquet")
    assert [columns.field(name).nullable for name in ("id", "place")] == [False, True]
    with pytest.raises(PublishError, match="no table hom; did you mean 'home'"):
        opened.table("hom")


def test_the_readme_speaks_to_its_consumers_and_does_without_a_guarantee(tmp_path, bundle, schema, tables):
    text = (bundle / "README.md").read_text(encoding="utf-8")
    assert "| a unit is replaced by another | 1.6 | 2e-09 |" in text
    assert "The privacy unit is one row of home." in text
    assert "| table | rows | why |\n| --- | ---: | --- |" in text
    assert "| place | 2 | rows of the original |" in text
    assert "| home id | bigint |  | primary; refers to home.id |" in text
    assert "declared them public: place." in text
    assert 'psql "$URL" -f load.sql' in text
    assert "duckdb benchmark.duckdb < load.duckdb.sql" in text
    text = (write_bundle(tmp_path / "none", schema, tables, {}) / "README.md").read_text(encoding="utf-8")
    assert "one row of home and all rows that depend on it" in text
    assert "None" not in text


def test_the_same_inputs_give_the_same_bytes(tmp_path, bundle, schema, tables):
    pieces = {name: pa.concat_tables([table.slice(0, 1), table.slice(1)]) for name, table in tables.items()}
    again = write_bundle(tmp_path / "again", schema, pieces, RECEIPT, {"q1": "SELECT 1;\n"})
    assert content(again) == content(bundle)


def test_a_bundle_is_replaced_and_anything_else_is_not(tmp_path, bundle, schema, tables):
    write_bundle(bundle, schema, tables, {"created": "later"})
    assert read_bundle(bundle).manifest["created"] == "later"
    assert not (bundle / "workload").exists()
    (tmp_path / "empty").mkdir()
    write_bundle(tmp_path / "empty", schema, tables, RECEIPT)
    thesis = tmp_path / "thesis"
    thesis.mkdir()
    (thesis / "MANIFEST.json").write_text('{"format": "mine"}', encoding="utf-8")
    for taken in (thesis, thesis / "MANIFEST.json"):
        with pytest.raises(PublishError, match="exists already and is not a bundle"):
            write_bundle(taken, schema, tables, RECEIPT)
    assert content(thesis) == {"MANIFEST.json": b'{"format": "mine"}'}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "out", "thesis"]


def test_a_full_disk_leaves_the_old_bundle_and_nothing_else(tmp_path, bundle, schema, tables, monkeypatch):
    before = content(bundle)

    def full(self, *_, **__):
        raise OSError(errno.ENOSPC, "No space left on device", str(self))

    monkeypatch.setattr(Path, "write_text", full)
    for target in (bundle, tmp_path / "new"):
        with pytest.raises(PublishError, match="could not be written: No space left on device; nothing was changed"):
            write_bundle(target, schema, tables, RECEIPT)
    assert content(bundle) == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_rename_that_fails_brings_the_old_bundle_back(tmp_path, bundle, schema, tables, monkeypatch):
    before = content(bundle)
    rename = Path.rename

    def refuse(self, target):
        if self.name == "new":
            raise OSError(errno.EIO, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(PublishError, match="Input/output error"):
        write_bundle(bundle, schema, tables, RECEIPT)
    assert content(bundle) == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_bugs_of_the_caller_leave_nothing_behind(tmp_path, schema, tables):
    wrong = [
        ({**tables, "home": tables["home"].drop_columns(["id"])}, RECEIPT, "home: columns"),
        *(
            ({**tables, "home": tables["home"].set_column(1, "id", pa.array(ids))}, RECEIPT, "home: .* do not fit")
            for ids in (["x", "y", "z"], [1, 2, None])
        ),
        ({"home": tables["home"]}, RECEIPT, "place, pet: no rows"),
        (tables, {"x": float("nan")}, "receipt of zoo"),
    ]
    for given, receipt, message in wrong:
        with pytest.raises(InternalError, match=message):
            write_bundle(tmp_path / "out", schema, given, receipt)
    with pytest.raises(PublishError, match="cannot be a file name"):
        write_bundle(tmp_path / "out", schema, tables, RECEIPT, {"../q": "SELECT 1"})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("file", ["data/home.parquet", "schema.sql", "README.md", "workload/q1.sql"])
def test_damage_is_found_and_named(bundle, file):
    with (bundle / file).open("ab") as opened:
        opened.write(b" ")
    with pytest.raises(PublishError, match=rf"{file}: does not match its checksum"):
        read_bundle(bundle)
    (bundle / file).unlink()
    with pytest.raises(PublishError, match=rf"{file}: missing"):
        read_bundle(bundle)


def test_manifests_that_cannot_be_trusted(tmp_path, bundle):
    with pytest.raises(PublishError, match="not a bundle"):
        read_bundle(tmp_path)
    path = bundle / "MANIFEST.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    changes = [
        ({"format_version": 3}, "bundle format 3"),
        ({"tables": None}, "lacks the list"),
        ({"files": {}}, "lacks the list"),
        ({"files": {**manifest["files"], "../secret": {"sha256": "0"}}}, r"lists \.\./secret, which is outside"),
    ]
    for change, message in changes:
        path.write_text(json.dumps(manifest | change), encoding="utf-8")
        with pytest.raises(PublishError, match=message):
            read_bundle(bundle)


@pytest.mark.parametrize("form", ["{}", "duckdb:///{}"])
def test_loading_into_duckdb(tmp_path, bundle, tables, form):
    file = tmp_path / "zoo.duckdb"
    assert load_bundle(bundle, form.format(file)).rows == {"place": 2, "home": 3, "pet": 4}
    with duckdb.connect(str(file)) as connection:
        assert connection.execute("SELECT name FROM pet ORDER BY rowid").fetchall() == [
            (name,) for name in tables["pet"]["name"].to_pylist()
        ]
        with pytest.raises(duckdb.ConstraintException):
            connection.execute("INSERT INTO home VALUES (1, NULL)")
    with pytest.raises(PublishError, match="already has home, pet, place; pass --replace"):
        load_bundle(bundle, str(file))
    with duckdb.connect(str(tmp_path / "x.duckdb")) as connection:
        connection.execute("CREATE TABLE mine AS SELECT 1 AS x")
    with pytest.raises(PublishError, match=r"is not empty \(it holds mine\); pass --replace to load beside"):
        load_bundle(bundle, str(tmp_path / "x.duckdb"))
    assert load_bundle(bundle, str(tmp_path / "x.duckdb"), replace=True).rows["pet"] == 4
    assert load_bundle(bundle, str(file), replace=True).rows == {"place": 2, "home": 3, "pet": 4}


def test_a_failing_load_leaves_duckdb_as_it_was(tmp_path, schema, tables):
    twice = tables | {"home": pa.table({"id": [1, 1], "place": ["b", "b"]})}
    bad = write_bundle(tmp_path / "bad", schema, twice, RECEIPT)
    new, old = tmp_path / "new.duckdb", tmp_path / "old.duckdb"
    with duckdb.connect(str(old)) as connection:
        connection.execute("CREATE TABLE home AS SELECT 42 AS id")
    for file in (new, old):
        with pytest.raises(PublishError, match="nothing was changed"):
            load_bundle(bad, str(file), replace=True)
    assert not new.exists()
    with duckdb.connect(str(old)) as connection:
        assert connection.execute("SELECT id FROM home").fetchall() == [(42,)]
        assert connection.execute("SELECT count(*) FROM duckdb_tables()").fetchall() == [(1,)]


def test_unknown_targets_are_refused_without_repeating_them(bundle):
    for target in ("mysql://u:hunter2@h/d", "somewhere", "sqlite:///x.duckdb"):
        with pytest.raises(PublishError, match="neither PostgreSQL nor DuckDB") as caught:
            load_bundle(bundle, target)
        assert "hunter2" not in str(caught.value)


def test_the_schema_comes_back_without_its_domains(bundle, schema):
    assert read_bundle(bundle).schema == schema
    path = bundle / "MANIFEST.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    for broken in (None, {}, {"unit": "home"}, {"unit": "home", "tables": {"home": {"primary_key": "id"}}}):
        path.write_text(json.dumps(manifest | {"schema": broken}), encoding="utf-8")
        with pytest.raises(PublishError, match=r"MANIFEST\.json: .*; run privbench again"):
            read_bundle(bundle).schema  # noqa: B018 - a property that reads


@pytest.mark.parametrize("name", ["select", "a/b", "..", "Größe", "a b*?[x]", "\"quoted\" 'twice'", "%2F", "n" * 63])
def test_tables_of_any_name_have_files_and_load(tmp_path, name):
    table = Table(name, (Column(name, ColumnType.INTEGER), Column("a\nb", ColumnType.INTEGER)), (name,))
    schema = Schema(name, (table,), unit=name)
    out = write_bundle(tmp_path / "out", schema, {name: pa.table({name: [1, 2], "a\nb": [3, 4]})}, {})
    opened = read_bundle(out)
    assert opened.files(name)[0].parent == out / "data"
    assert opened.table(name).num_rows == 2
    assert load_bundle(out, str(tmp_path / "x.duckdb")).rows == {name: 2}


def test_file_names_stay_apart():
    names = ["a/b", "a%2Fb", "..", ".", "%2E", "A b", "A%20b", "\\", ":"]
    assert len({file_name(name) for name in names}) == len(names)
    assert all(set(file_name(name)).isdisjoint('/\\:*?"<>| ') and file_name(name)[0] != "." for name in names)


def test_types_that_parquet_or_csv_have_no_form_for(tmp_path):
    kinds = {
        "span": ColumnType.INTERVAL,
        "raw": ColumnType.BYTES,
        "seen": ColumnType.TIMESTAMPTZ,
        "id": ColumnType.UUID,
    }
    table = Table("t", tuple(Column(name, kind, nullable=name != "id") for name, kind in kinds.items()), ("id",))
    day = dt.timedelta(days=-1, microseconds=1)
    values = {
        "span": pa.array([day, None], pa.duration("us")),
        "raw": pa.array([b"\x00'\\", None], pa.binary()),
        "seen": pa.array([dt.datetime(2020, 1, 1, tzinfo=dt.UTC), None], pa.timestamp("us", "UTC")),
        "id": ["00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"],
    }
    out = write_bundle(tmp_path / "out", Schema("d", (table,), unit="t"), {"t": pa.table(values)}, {})
    assert read_bundle(out).table("t")["span"].to_pylist() == [day, None]
    load_bundle(out, str(tmp_path / "x.duckdb"))
    with duckdb.connect(str(tmp_path / "x.duckdb")) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.execute("SELECT span, raw, CAST(seen AS VARCHAR) FROM t ORDER BY id").fetchall()
    assert found == [(day, b"\x00'\\", "2020-01-01 00:00:00+00"), (None, None, None)]
    assert 'to_microseconds("span") AS "span"' in (out / "load.duckdb.sql").read_text(encoding="utf-8")
    with gzip.open(out / "data" / "t.csv.gz", "rt", encoding="utf-8") as rows:
        assert next(rows).startswith('"-86399999999 microseconds","\\x00275c",')


def test_a_table_is_asked_for_once_and_written_one_row_group_at_a_time(
    tmp_path: Path, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = [f"{number:02}" for number in range(25)]
    rows = {
        "place": pa.table({"code": pa.chunked_array([codes[:9], codes[9:]])}),
        "home": pa.table({"id": range(25), "place": pa.array([None, *codes[1:]])}),
        "pet": pa.table({"nr": range(25), "home id": range(25), "name": pa.nulls(25, pa.string())}),
    }
    monkeypatch.setattr(table_files, "RANGE_ROWS", 10)
    asked = []

    class Rows(dict[str, pa.Table]):
        def __getitem__(self, name: str) -> pa.Table:
            asked.append(name)
            return rows[name]

    out = write_bundle(tmp_path / "out", schema, Rows(rows), RECEIPT)
    assert sorted(asked) == sorted(rows)
    for table in schema.tables:
        file, whole = out / "data" / f"{table.name}.parquet", tmp_path / f"{table.name}.parquet"
        assert pq.read_metadata(file).num_row_groups == 3
        canonical = rows[table.name].cast(table.arrow_schema).combine_chunks()
        rising = {"place": [], "home": ["id"], "pet": ["nr", "home id"]}[table.name]
        others = [name for name in canonical.column_names if name not in rising]
        encoding = dict.fromkeys(rising, "DELTA_BINARY_PACKED")
        options = {"compression": "zstd", "use_dictionary": others, "column_encoding": encoding}
        pq.write_table(canonical, whole, row_group_size=10, **options)
        assert file.read_bytes() == whole.read_bytes()


def one_table(*columns: Column, **more) -> Schema:
    return Schema("s", (Table("t", (Column("id", ColumnType.INTEGER), *columns), ("id",), **more),), "t")


@pytest.mark.parametrize(
    ("column", "more", "value"),
    [
        (Column("x", ColumnType.INTEGER, sql_type="smallint"), {}, 40_000),
        (Column("x", ColumnType.INTEGER), {"checks": (Check("small", "x < 10"),)}, 11),
        (Column("x", ColumnType.CATEGORY, sql_type="mood"), {}, "(none common enough to name)"),
    ],
)
def test_a_bundle_that_breaks_its_own_ddl_is_never_written(tmp_path, column, more, value):
    schema = one_table(column, **more)
    schema = replace(schema, enums=(EnumType("mood", ("calm", "cross")),))
    with pytest.raises(PublishError, match=r"t: its rows break the bundle's own schema\.sql"):
        write_bundle(tmp_path / "out", schema, {"t": pa.table({"id": [1], "x": [value]})}, RECEIPT)
    assert not list(tmp_path.iterdir())


def test_descriptions_and_units_reach_the_manifest_and_the_dictionary(tmp_path):
    price = Column("price", ColumnType.INTEGER, comment="What it | costs", unit="EUR")
    schema = one_table(price, comment="All that is sold")
    written = write_bundle(tmp_path / "out", schema, {"t": pa.table({"id": [1], "price": [2]})}, RECEIPT)
    entry = read_bundle(written).manifest["tables"]["t"]
    assert entry["description"] == "All that is sold"
    told = {"description": "What it | costs", "unit": "EUR"}
    assert entry["columns"][1] == {"name": "price", "type": "integer", "nullable": False, **told}
    readme = (written / "README.md").read_text(encoding="utf-8")
    assert "### t\n\nAll that is sold\n" in readme
    assert "| price | bigint |  | EUR | What it \\| costs |" in readme


def test_the_duckdb_script_loads_the_bundle_without_privbench(bundle, tables, monkeypatch):
    monkeypatch.chdir(bundle)
    with duckdb.connect() as connection:
        connection.execute((bundle / "load.duckdb.sql").read_text(encoding="utf-8"))
        for name, rows in tables.items():
            assert connection.execute(f"SELECT count(*) FROM {name}").fetchall() == [(rows.num_rows,)]
        assert connection.execute("SELECT name FROM pet ORDER BY name").fetchall()[0] == ("",)
        with pytest.raises(duckdb.ConstraintException):
            connection.execute("INSERT INTO pet VALUES (1, 99, 'x')")


def test_a_bundle_without_csv_says_nothing_of_psql_and_loads(tmp_path, schema, tables):
    folder = write_bundle(tmp_path / "zoo", schema, tables, RECEIPT, csv=False)
    assert not list(folder.rglob("*.csv.gz"))
    assert not (folder / "load.sql").exists()
    assert "psql alone" not in (folder / "README.md").read_text(encoding="utf-8")
    found = read_bundle(folder)
    assert all("csv" not in entry for entry in found.manifest["tables"].values())
    assert load_bundle(folder, str(tmp_path / "zoo.duckdb")).rows == {
        name: table.num_rows for name, table in tables.items()
    }
