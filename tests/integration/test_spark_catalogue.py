"""Tables of a cluster's catalogue as a source: the same rows and releases as from files, and what is refused."""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import dagster as dg
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from privbench_assets.build import build_defs
from privbench_core.backends.folder import FolderSource
from privbench_core.backends.integrity import fingerprint_rows
from privbench_core.backends.registry import open_stored
from privbench_core.cli import app
from privbench_core.columns.categorical import categorical_codec
from privbench_core.columns.discretizer import Discretizer
from privbench_core.draft.draft import reflect
from privbench_core.engines import engine_of
from privbench_core.engines.sql.engine import SqlEngine
from privbench_core.errors import SourceError
from privbench_core.pipeline.executor import run_spec
from privbench_core.privacy.features import Own
from privbench_core.privacy.view_building import build_view
from privbench_core.privacy.views import ViewSpec
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.tables import Schema, Table
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Spec, VersionQuery, Watermark, engine_in_words, with_engine
from tests.helpers.catalogues import in_catalogue
from tests.helpers.databases import SECRET
from tests.helpers.specs import changed, explained

pytest.importorskip("pyspark")

from privbench_core.backends.spark import CatalogueSource, Cluster
from privbench_core.engines.spark import SparkDatabase

EPSILON = 3.2
T = ColumnType
EVENT = Table(
    "event",
    (
        Column("id", T.INTEGER),
        Column("a `b`.c", T.CATEGORY, nullable=True),
        Column("price", T.DECIMAL, nullable=True, precision=12, scale=2),
        Column("weight", T.FLOAT, nullable=True),
        Column("done", T.BOOLEAN, nullable=True),
        Column("day", T.DATE, nullable=True),
        Column("at", T.TIMESTAMP, nullable=True),
        Column("then", T.TIMESTAMPTZ, nullable=True),
        Column("raw", T.BYTES, nullable=True),
    ),
    primary_key=("id",),
)
NOON = dt.datetime(2021, 3, 4, 12, 0, 0, 7)
ROWS = pa.table(
    {
        "id": [2, 1, 3],
        "a `b`.c": ["雪", "it's `x`", None],
        "price": pa.array([Decimal("1234567890.10"), None, Decimal("-0.05")], pa.decimal128(12, 2)),
        "weight": [0.1, -1e300, None],
        "done": [True, None, False],
        "day": [dt.date(2020, 2, 29), None, dt.date(1, 1, 1)],
        "at": pa.array([NOON, None, dt.datetime(1969, 12, 31)], pa.timestamp("us")),
        "then": pa.array([NOON, None, dt.datetime(1969, 12, 31)], pa.timestamp("us", "UTC")),
        "raw": [b"\x00\xff", None, b""],
    }
)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with the table of events."""
    folder = tmp_path / "files"
    folder.mkdir()
    pq.write_table(ROWS, folder / "event.parquet")
    return folder


@pytest.fixture
def catalogue(cluster: str, files: Path, monkeypatch: pytest.MonkeyPatch) -> CatalogueSource:
    """The same in a catalogue."""
    return CatalogueSource(in_catalogue(monkeypatch, cluster, files))


def _engine(source: CatalogueSource, table: Table = EVENT) -> SqlEngine:
    database = SparkDatabase(source, source.url)
    engine = SqlEngine(Schema("events", (table,), table.name), database, SECRET)
    try:
        engine.load({})
    except BaseException:
        engine.close()
        raise
    return engine


def _counted(town_spec: Path, url: str) -> Spec:
    return replace(load_spec(town_spec), source=url).accepting_noise


def test_what_files_released_no_engine_pays_for_again_in_a_catalogue(
    cluster: str, town_spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_spec(load_spec(town_spec).accepting_noise, EPSILON, out=tmp_path / "files").paid > 0
    counted = _counted(town_spec, in_catalogue(monkeypatch, cluster, town_spec.parent))
    assert engine_of(counted) == "spark"
    for engine in ("auto", "memory", "duckdb"):
        assert run_spec(with_engine(counted, engine), EPSILON, out=tmp_path / engine).paid == 0
        for path in (tmp_path / "files" / "data").iterdir():
            assert path.read_bytes() == (tmp_path / engine / "data" / path.name).read_bytes()


def test_rows_are_those_of_files(catalogue: CatalogueSource, files: Path) -> None:
    there = FolderSource(files).read(EVENT)
    assert [table.name for table in catalogue.catalogue().tables] == ["event"]
    assert catalogue.known_rows(EVENT) is None
    assert catalogue.stored([EVENT]) == {}
    assert pa.concat_tables(catalogue.batches(EVENT)).sort_by("id").equals(there.sort_by("id"))
    assert catalogue.fingerprint(EVENT) == fingerprint_rows(EVENT, there)


def test_a_table_without_rows_has_its_columns(catalogue: CatalogueSource, files: Path) -> None:
    pq.write_table(ROWS.slice(0, 0), files / "event.parquet")
    assert catalogue.read(EVENT).equals(FolderSource(files).read(EVENT))
    with closing(_engine(catalogue)) as engine:
        assert engine.fingerprint(EVENT) == fingerprint_rows(EVENT, FolderSource(files).read(EVENT))


def test_names_of_columns_may_differ_by_capital_letters(catalogue: CatalogueSource) -> None:
    table = Table("event", (Column("ID", T.INTEGER), Column("Done", T.BOOLEAN, nullable=True)), ("ID",))
    assert catalogue.read(table).sort_by("ID").column("Done").to_pylist() == [None, True, False]
    with closing(_engine(catalogue, table)) as engine:
        assert engine.fingerprint(table) == catalogue.fingerprint(table)


def test_a_run_sees_one_state_of_a_table_that_changes(catalogue: CatalogueSource, files: Path) -> None:
    before = fingerprint_rows(EVENT, FolderSource(files).read(EVENT))
    column = EVENT.column("a `b`.c")
    view = ViewSpec("event", {"v": (Own(column.name), Discretizer(categorical_codec(column, ("it's `x`", "雪"))))})
    with closing(_engine(catalogue)) as engine:
        pq.write_table(ROWS.slice(0, 1), files / "event.parquet")
        assert engine.fingerprint(EVENT) == before
        engine.keep({})
        (files / "event.parquet").unlink()
        np.testing.assert_array_equal(build_view(engine, view).counts(("v",)), [1, 1, 0, 1])


def test_no_row_travels_where_something_else_stands_for_a_change(
    cluster: str, town_spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def batches(*_: object) -> Iterator[pa.RecordBatch]:
        raise AssertionError

    url = in_catalogue(monkeypatch, cluster, town_spec.parent)
    asked = {"household": Watermark("id"), "person": VersionQuery("SELECT max(id), count(*) FROM person -- all\n;")}
    counted = replace(_counted(town_spec, url), changes=asked)
    assert "pass through" not in " ".join(engine_in_words(with_engine(counted, "spark")))
    monkeypatch.setattr(Cluster, "batches", batches)
    assert run_spec(counted, EPSILON, out=tmp_path / "one").paid > 0
    assert run_spec(counted, EPSILON, out=tmp_path / "two").paid == 0
    person = pq.read_table(town_spec.parent / "person.parquet")
    pq.write_table(person.slice(0, person.num_rows - 1), town_spec.parent / "person.parquet")
    assert run_spec(counted, EPSILON, out=tmp_path / "three").paid > 0


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (VersionQuery("SELECT count(*), max(id) FROM event"), ["3", "3"]),
        (Watermark("then"), ["3", "2", "2021-03-04 12:00:00.000007+00:00"]),
        (Watermark("A `B`.C"), ["3", "2", "雪"]),
    ],
)
def test_versions_are_what_the_cluster_says(
    catalogue: CatalogueSource, change: Watermark | VersionQuery, expected: list[str]
) -> None:
    assert json.loads(catalogue.version(EVENT, change)) == expected


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (VersionQuery("SELECT id FROM event"), "returns several rows; write one that always returns one row"),
        (VersionQuery("SELECT secret FROM event"), r"event: its query under change failed \(AnalysisException\)"),
        (VersionQuery("INSERT INTO event SELECT * FROM event"), "failed"),
        (VersionQuery("DROP TABLE event"), "failed"),
        (Watermark("ids"), "event: the watermark ids is not a column of the source; did you mean 'id'"),
        (Watermark("xmin"), "works only for tables of PostgreSQL"),
    ],
)
def test_what_is_no_version_is_refused(catalogue: CatalogueSource, change: Watermark | VersionQuery, said: str) -> None:
    with pytest.raises(SourceError, match=said) as refused:
        catalogue.version(EVENT, change)
    assert "secret" not in str(refused.value)
    assert catalogue.read(EVENT).num_rows == ROWS.num_rows


def test_a_draft_has_the_types_of_the_catalogue(cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = "id BIGINT, n INT, t TIMESTAMP, l TIMESTAMP_NTZ, p DECIMAL(8, 2), m ARRAY<INT>"
    made = (
        f"CREATE TABLE IF NOT EXISTS customer ({columns}) USING parquet LOCATION '{tmp_path / 'customer'}'",
        f"CREATE TABLE IF NOT EXISTS orders (id BIGINT, customer_id BIGINT) USING parquet LOCATION '{tmp_path / 'o'}'",
        "CREATE OR REPLACE VIEW recent AS SELECT 1 AS x",
    )
    monkeypatch.setenv("PLACE", in_catalogue(monkeypatch, cluster, tmp_path, *made))
    draft = reflect("${PLACE}", name="shop")
    for line in (
        "source: ${PLACE}",
        "unit: customer #",
        "primary_key: id # guessed from the names",
        "n: {type: integer, domain: learn, nullable: true, sql_type: integer}",
        "t: {type: timestamptz, domain: learn, nullable: true}",
        "l: {type: timestamp, domain: learn, nullable: true}",
        "p: {type: decimal, precision: 8, scale: 2, domain: learn, nullable: true}",
        "m: {type: json, domain: learn, nullable: true} #",
        "{columns: customer_id, references: {table: customer, columns: [id]}",
        "# left out: the view recent; a benchmark holds tables",
    ):
        assert line in draft.replace("'", ""), draft


def test_no_token_is_kept_or_shown(
    cluster: str, town_spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It goes to a cluster of this name alone without encryption; one that has a token of its own takes no other."""
    if "token" in cluster:
        pytest.skip("the cluster takes one token")
    url = in_catalogue(monkeypatch, cluster.replace("127.0.0.1", "localhost") + "/;token=hunter2", town_spec.parent)
    drafted = CliRunner().invoke(app, ["init", url, "-o", str(tmp_path / "drafted.yaml")])
    assert drafted.exit_code == 0, drafted.output
    assert "The token is not in the spec: set PRIVBENCH_PASSWORD" in drafted.output
    text = (tmp_path / "drafted.yaml").read_text(encoding="utf-8")
    assert f"source: {url.replace('hunter2', '${PRIVBENCH_PASSWORD}')}" in text.replace("'", "")
    spec = changed(town_spec.read_text(encoding="utf-8"), "source: .", f"source: {url}")
    town_spec.write_text(spec, encoding="utf-8")
    options = ["--epsilon", "3.2", "--accept-noise", "--out", str(tmp_path / "bundle")]
    done = CliRunner().invoke(app, ["run", str(town_spec), *options])
    assert done.exit_code == 0, done.output
    with dg.instance_for_test() as instance:
        seen = build_defs(town_spec).resolve_job_def("town_observe").execute_in_process(instance=instance)
        events = "\n".join(str(event) for event in instance.all_logs(seen.run_id))
    assert seen.success
    said = capfd.readouterr()
    assert "hunter2" not in drafted.output + done.output + events + said.out + said.err
    town_spec.unlink()
    left = [path for path in tmp_path.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]
    assert left == []


def test_dagster_sees_that_a_table_has_changed(cluster: str, town_spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = in_catalogue(monkeypatch, cluster, town_spec.parent)
    monkeypatch.setenv("PLACE", url)
    spec = changed(town_spec.read_text(encoding="utf-8"), "source: .", "source: ${PLACE}")
    town_spec.write_text(spec, encoding="utf-8")
    seen = []
    with dg.instance_for_test() as instance:
        for _ in range(3):
            build_defs(town_spec).resolve_job_def("town_observe").execute_in_process(instance=instance)
            keys = [dg.AssetKey(["town", "source", name]) for name in ("household", "person")]
            last = [instance.fetch_observations(key, limit=1).records[0] for key in keys]
            seen.append([record.asset_observation.metadata["fingerprint"].value for record in last])
            if len(seen) == 2:
                person = pq.read_table(town_spec.parent / "person.parquet")
                pq.write_table(person.slice(1), town_spec.parent / "person.parquet")
    assert seen[0] == seen[1]
    assert [before == after for before, after in zip(seen[1], seen[2], strict=True)] == [True, False]


@pytest.mark.slow
def test_the_same_assets_run_with_a_catalogue(cluster: str, town_spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", in_catalogue(monkeypatch, cluster, town_spec.parent))
    spec = changed(town_spec.read_text(encoding="utf-8"), "source: .", "source: ${PLACE}")
    town_spec.write_text(spec + "\nfidelity: {accept_noise: true}\n", encoding="utf-8")
    with dg.instance_for_test() as instance:
        job = build_defs(town_spec).resolve_job_def("town_refresh")
        for _ in range(2):
            assert job.execute_in_process(instance=instance, partition_key="0.8").success
    assert run_spec(load_spec(town_spec), 0.8, out=town_spec.parent / "bundle").paid == 0


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (replace(EVENT, name="events"), "events: the source has no such table; did you mean 'event'?"),
        (Table("event", (Column("ids", T.INTEGER),), ("ids",)), "event.ids: the source has no such column; did you"),
    ],
)
def test_what_is_not_there_is_refused(catalogue: CatalogueSource, table: Table, said: str) -> None:
    for read in (catalogue.read, lambda asked: _engine(catalogue, asked)):
        with pytest.raises(SourceError) as refused:
            read(table)
        assert str(refused.value).startswith(said)


def test_all_types_that_are_not_read_are_in_one_message(catalogue: CatalogueSource) -> None:
    columns = (Column("id", T.INTEGER), Column("done", T.INTERVAL, nullable=True), Column("day", T.INTEGER))
    with pytest.raises(SourceError) as refused:
        _engine(catalogue, Table("event", columns, ("id",)))
    assert str(refused.value).splitlines() == [
        "event.done: engine spark cannot read interval from boolean; run with --engine duckdb",
        "event.day: engine spark cannot read integer from date; run with --engine duckdb",
    ]


def test_a_schema_that_is_not_there_is_named_and_the_rest_of_the_url_is_not(cluster: str) -> None:
    place, mark, parameters = cluster.partition(";")
    with pytest.raises(SourceError, match=r"^source: the cluster has no schema nothing, or the login may") as refused:
        CatalogueSource(f"{place.removesuffix('/')}/nothing{mark}{parameters}").read(EVENT)
    assert "sc://host:port/catalogue.schema" in str(refused.value)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sc://127.0.0.1:1/town;user_id=hunter2", "source: reading the cluster's tables failed: it cannot be reached"),
        ("sc://host:port:hunter2/town", "source: not a URL of Spark Connect; write sc://host:port/schema"),
    ],
)
def test_a_cluster_that_is_not_there(monkeypatch: pytest.MonkeyPatch, url: str, said: str) -> None:
    monkeypatch.setattr("privbench_core.backends.spark._RETRIES", 1)
    with pytest.raises(SourceError) as refused:
        CatalogueSource(url).read(EVENT)
    assert str(refused.value).startswith(said)
    assert "hunter2" not in str(refused.value)


def test_a_right_that_a_login_lacks_is_named(catalogue: CatalogueSource, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the catalogues that know rights answer; neither server of the tests has any."""
    from pyspark.errors.exceptions.connect import AnalysisException

    def table(*_: object) -> None:
        raise AnalysisException("[INSUFFICIENT_PERMISSIONS] secret", sql_state="42501")

    monkeypatch.setattr("pyspark.sql.connect.session.SparkSession.table", table)
    with pytest.raises(SourceError, match="the login may not read a table; grant it SELECT") as refused:
        catalogue.read(EVENT)
    assert "secret" not in str(refused.value)
    with pytest.raises(SourceError, match="the login may read none of them; grant it SELECT on event"):
        reflect(catalogue.url)


def test_pyspark_is_asked_for(town_spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "privbench_core.backends.spark", None)
    said = r"source: PySpark is not installed; run: pip install 'privbench\[spark\]'"
    with pytest.raises(SourceError, match=said):
        open_stored(_counted(town_spec, "sc://host/town"))
    with pytest.raises(SourceError, match=said):
        reflect("sc://host/town")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("source: sc://host:15002;token=hunter2", "source: the URL names no schema of the cluster's catalogue; write"),
        ("source: sc://host/;token=hunter2", "source: the URL names no schema of the cluster's catalogue; write"),
        ("source: sc://host/main.;token=hunter2", "source: the URL names no schema of the cluster's catalogue; write"),
        ("source: sc://host/town\ncluster: sc://hunter2", "spec: cluster is not the cluster of source"),
        (
            "source: sc://host/town\nengine: source",
            "spec: engine source needs a PostgreSQL source, and this one is not",
        ),
    ],
)
def test_what_a_spec_may_not_say_of_a_catalogue(town_spec: Path, lines: str, expected: str) -> None:
    text = changed(town_spec.read_text(encoding="utf-8"), "source: .", lines)
    explained(town_spec.parent, text, expected)


def test_a_spec_of_a_catalogue_needs_no_cluster(town_spec: Path) -> None:
    text = town_spec.read_text(encoding="utf-8")
    same = "source: sc://host:15002/main.town;token=${T}\ncluster: sc://host:15002/;token=${T}\nengine: spark"
    for lines in ("source: sc://host:15002/town\nengine: spark", same):
        town_spec.write_text(changed(text, "source: .", lines), encoding="utf-8")
        assert engine_of(load_spec(town_spec)) == "spark"
    numbered = changed(text, "  person:\n    primary_key: id\n", "  person:\n    row_id: generated\n")
    numbered = numbered.replace("id: integer\n      household_id", "household_id")
    town_spec.write_text(changed(numbered, "source: .", "source: sc://host/town"), encoding="utf-8")
    assert engine_of(load_spec(town_spec)) == "duckdb"
