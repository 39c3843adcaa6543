"""Runs whose rows a cluster counts: the same releases, one state of the source, and what is said when they fail."""

from __future__ import annotations

import datetime as dt
import os
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from privbench_assets.build import build_defs
from privbench_core.backends.folder import FolderSource
from privbench_core.backends.integrity import fingerprint_rows
from privbench_core.columns.categorical import categorical_codec
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.registry import codec_for
from privbench_core.engines.sql.engine import SqlEngine
from privbench_core.errors import SourceError
from privbench_core.pipeline.executor import run_spec
from privbench_core.privacy.features import Own
from privbench_core.privacy.view_building import build_view
from privbench_core.privacy.views import ViewSpec
from privbench_core.schema.columns import Column, ColumnType, Range
from privbench_core.schema.tables import Schema, Table
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Spec, engine_in_words, with_engine
from tests.helpers.databases import SECRET, database_from
from tests.helpers.engines import Cluster, engine_of, opened
from tests.helpers.ledgers import states
from tests.helpers.sail import Sail

EPSILON = 3.2


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Sail]:
    """A server that a test may kill."""
    folder = tmp_path / "copies"
    folder.mkdir()
    with Sail(folder) as server:
        yield server


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is asked again for long of a server that is gone."""
    pytest.importorskip("pyspark")
    monkeypatch.setattr("privbench_core.backends.spark._RETRIES", 1)


def _counted(town_spec: Path, url: str) -> Spec:
    return with_engine(replace(load_spec(town_spec), cluster=url), "spark").accepting_noise


def _of_values(column: Column, values: list[Any]) -> Any:
    table = Table("row", (Column("id", ColumnType.INTEGER), column), ("id",))
    return database_from(Schema("values", (table,), "row"), {"row": list(enumerate(values))})


def test_what_a_cluster_released_no_engine_pays_for_again(server: Sail, town_spec: Path, tmp_path: Path) -> None:
    counted = _counted(town_spec, server.url)
    assert "counts travel" in engine_in_words(counted)[0]
    first = run_spec(counted, EPSILON, out=tmp_path / "one")
    assert first.paid > 0
    assert server.copies() == [], "private rows are left behind"
    assert run_spec(with_engine(counted, "memory"), EPSILON, out=tmp_path / "other").paid == 0
    bundles = [{p.name: p.read_bytes() for p in (tmp_path / name / "data").iterdir()} for name in ("one", "other")]
    assert bundles[0] == bundles[1]


@pytest.mark.slow
def test_the_same_assets_run_with_a_cluster(cluster: str, town_spec: Path) -> None:
    """Which table is copied is among the events of the run, as `dagster.yaml` has it."""
    chosen = f"\nengine: spark\ncluster: {cluster}\nfidelity: {{accept_noise: true}}\n"
    town_spec.write_text(town_spec.read_text(encoding="utf-8") + chosen, encoding="utf-8")
    logs = yaml.safe_load((Path(__file__).parents[2] / "dagster.yaml").read_text(encoding="utf-8"))["python_logs"]
    with warnings.catch_warnings(), dg.instance_for_test(overrides={"python_logs": logs}) as instance:
        warnings.simplefilter("ignore", dg.BetaWarning)
        job = build_defs(town_spec).resolve_job_def("town_refresh")
        ran = job.execute_in_process(instance=instance, partition_key="0.8")
        events = "\n".join(str(event) for event in instance.all_logs(ran.run_id))
    assert ran.success
    assert "engine spark: person is copied to the cluster" in events
    spent = states(load_spec(town_spec))
    assert spent
    assert set(spent) == {"released"}


def test_a_run_sees_one_state_of_files_that_are_written_again(cluster: str, tmp_path: Path) -> None:
    column = Column("v", ColumnType.CATEGORY, nullable=True)
    database = _of_values(column, ["a", "b", "a"])
    place = Cluster(cluster, tmp_path / "files")
    view = ViewSpec("row", {"v": (Own("v"), Discretizer(categorical_codec(column, ("a", "b"))))})
    with closing(opened(database, place)) as engine:
        changed = pa.table({"id": pa.array([5], pa.int64()), "v": ["b"]})
        pq.write_table(changed, place.folder / "row.parquet")
        engine.keep({})
        (place.folder / "row.parquet").unlink()
        assert build_view(engine, view).counts(("v",)).tolist() == [2, 1, 0, 0]


def test_the_fingerprint_is_of_the_rows_that_were_copied(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from privbench_core.engines.spark import SparkDatabase

    column = Column("v", ColumnType.CATEGORY, nullable=True)
    database = _of_values(column, ["a", "b", "a"])
    table, folder = database.schema.table("row"), tmp_path / "files"
    refuse_unfit = SparkDatabase._refuse_unfit

    def after_the_copy(self: SparkDatabase, table: Table, held: str) -> None:
        refuse_unfit(self, table, held)
        pq.write_table(pa.table({"id": pa.array([5], pa.int64()), "v": ["b"]}), folder / "row.parquet")

    monkeypatch.setattr(SparkDatabase, "_refuse_unfit", after_the_copy)
    with closing(opened(database, Cluster(cluster, folder))) as engine:
        assert engine.fingerprint(table) == fingerprint_rows(table, database.tables["row"])


def test_no_row_is_read_here_where_something_else_stands_for_them(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from privbench_core.engines.spark import SparkDatabase

    def read(*_: object) -> Iterator[pa.Table]:
        raise AssertionError

    place = Cluster(cluster, tmp_path / "files")
    database = _of_values(Column("v", ColumnType.CATEGORY), ["a", "b", "a"])
    opened(database, place).close()
    for name in ("batches", "read", "stored"):
        monkeypatch.setattr(FolderSource, name, read)
    there = SparkDatabase(FolderSource(place.folder), cluster)
    with closing(SqlEngine(database.schema, there, SECRET, unhashed=["row"])) as engine:
        engine.load({})
        engine.keep({})
        assert build_view(engine, ViewSpec("row", {})).data.held().rows == 3


@pytest.mark.usefixtures("patient")
def test_a_cluster_that_is_not_there(town_spec: Path, tmp_path: Path) -> None:
    counted = _counted(town_spec, "sc://127.0.0.1:1/;token=hunter2")
    with pytest.raises(SourceError, match="it cannot be reached, or stopped answering") as refused:
        run_spec(counted, EPSILON, out=tmp_path / "bundle")
    assert "hunter2" not in str(refused.value)
    assert states(counted) == []


@pytest.mark.parametrize("url", ["sc://", "sc://host:port:hunter2", "sc://host/hunter2"])
@pytest.mark.usefixtures("patient")
def test_a_url_that_is_none_is_not_repeated(town_spec: Path, tmp_path: Path, url: str) -> None:
    with pytest.raises(SourceError, match="not a URL of Spark Connect; write sc://host:port") as refused:
        run_spec(_counted(town_spec, url), EPSILON, out=tmp_path / "bundle")
    assert "hunter2" not in str(refused.value)


@pytest.mark.usefixtures("patient")
def test_a_cluster_that_goes_away_in_the_middle_of_a_count(
    server: Sail, town_spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from privbench_core.engines.spark import SparkDatabase

    counted = _counted(town_spec, server.url)
    began: list[bool] = []
    coded, fetch = SqlEngine.coded, SparkDatabase.fetch
    monkeypatch.setattr(SqlEngine, "coded", lambda self, spec: began.append(True) or coded(self, spec))
    monkeypatch.setattr(SparkDatabase, "fetch", lambda self, query: (began and server.kill(), fetch(self, query))[1])
    with pytest.raises(SourceError, match="it cannot be reached, or stopped answering"):
        run_spec(counted, EPSILON, out=tmp_path / "bundle")
    assert states(counted) == ["reserved"]
    assert not (tmp_path / "bundle").exists()
    monkeypatch.undo()
    assert run_spec(with_engine(counted, "memory"), EPSILON, out=tmp_path / "bundle").paid > 0


@pytest.mark.parametrize("stuck", [False, True])
def test_ctrl_c_while_a_cluster_counts_is_ctrl_c(
    server: Sail, tmp_path: Path, stuck: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server of its own: Sail may go on counting when nobody waits any more, or not answer while it counts."""
    from privbench_core.backends import spark
    from privbench_core.engines.spark import SparkDatabase

    monkeypatch.setattr(spark, "_PATIENCE", 0.2)

    def stop() -> None:
        if stuck:
            server.freeze()
        os.kill(os.getpid(), signal.SIGINT)

    # A shell starts what it runs in the background with interrupts ignored, and so would this process be.
    ours = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with closing(SparkDatabase(FolderSource(tmp_path), server.url)) as database:
            threading.Timer(1.0, stop).start()
            with pytest.raises(KeyboardInterrupt), database._cluster.clear_errors():
                database._session.sql(
                    "SELECT SUM(a.id * b.id % 7) FROM range(10000000) AS a, range(10000000) AS b"
                ).toArrow()
    finally:
        signal.signal(signal.SIGINT, ours)


def test_errors_of_a_cluster_quote_no_value(cluster: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from pyspark.logger import PySparkLogger

    from privbench_core.engines.spark import SparkDatabase

    with closing(SparkDatabase(FolderSource(tmp_path), cluster)) as database:
        for statement in ("SELECT CAST('a secret' AS INT) AS n", "SELECT secret FROM nothing", "secret"):
            with (
                pytest.raises(SourceError, match="counting in the cluster failed: it refused") as caught,
                database._cluster.clear_errors(),
            ):
                database._session.sql(statement).toArrow()
            assert "secret" not in str(caught.value)
            assert caught.value.__suppress_context__
        PySparkLogger.getLogger("SQLQueryContextLogger").error("secret")  # as PySpark does where Apache Spark answers
    said = capfd.readouterr()
    assert "secret" not in said.out + said.err


_TOO_LONG = pa.table({"id": [1], "v": pa.array([Decimal("123.45")], pa.decimal128(12, 2))})
_TOO_FINE = pa.table({"id": [1], "v": pa.array([Decimal("1.234")], pa.decimal128(12, 3))})
_DECIMAL = Column("v", ColumnType.DECIMAL, precision=4, scale=2)


@pytest.mark.parametrize(
    ("column", "rows", "said"),
    [
        (_DECIMAL, _TOO_LONG, r"row.v: some values do not fit type decimal\(4, ?2\)"),
        (_DECIMAL, _TOO_FINE, r"row.v: some values do not fit type decimal\(4, ?2\)"),
        (
            Column("v", ColumnType.TEXT),
            pa.table({"id": [1], "v": pa.array([b"\xff"]).view(pa.string())}),
            "row.v: some values do not fit type text|it refused",  # Sail does not read such files at all
        ),
        (
            Column("v", ColumnType.UUID),
            pa.table({"id": [1], "v": ["{0B8B7C2E-5E0F-4D8E-9B1A-000000000001}"]}),
            "row.v: some values do not fit type uuid",
        ),
        (
            Column("v", ColumnType.INTERVAL),
            pa.table({"id": [1], "v": pa.array([dt.timedelta(1)])}),
            "row.v: engine spark cannot read interval from .*; run with --engine duckdb",
        ),
        (
            Column("v", ColumnType.INTEGER),
            pa.table({"id": [1], "v": ["7"]}),
            "row.v: engine spark cannot read integer from string; run with --engine duckdb",
        ),
        (Column("v", ColumnType.INTEGER), pa.table({"id": [1]}), "row.v: the source has no such column"),
    ],
)
def test_what_a_cluster_would_read_in_another_way_is_refused(
    cluster: str, tmp_path: Path, column: Column, rows: pa.Table, said: str
) -> None:
    from privbench_core.engines.spark import SparkDatabase

    table = Table("row", (Column("id", ColumnType.INTEGER), column), ("id",))
    pq.write_table(rows, tmp_path / "row.parquet")
    engine = SqlEngine(Schema("values", (table,), "row"), SparkDatabase(FolderSource(tmp_path), cluster), SECRET)
    with closing(engine), pytest.raises(SourceError, match=said):
        engine.load({})


def test_decimals_that_fit_are_read_from_longer_and_finer_ones(cluster: str, tmp_path: Path) -> None:
    values = [Decimal("99.99"), Decimal("-0.05"), Decimal(0), None]
    database = _of_values(replace(_DECIMAL, nullable=True), values)
    wider = database.tables["row"].set_column(1, "v", pa.array(values, pa.decimal128(38, 10)))
    codes = Discretizer(categorical_codec(replace(_DECIMAL, nullable=True), ("99.99", "-0.05", "0.00")))
    place = Cluster(cluster, tmp_path / "files")
    with closing(engine_of(replace(database, tables={"row": wider}), place)) as engine:
        found = build_view(engine, ViewSpec("row", {"v": (Own("v"), codes)})).counts(("v",))
    assert found.tolist() == [1, 1, 1, 0, 1]


def test_no_text_is_read_as_sql_or_as_a_variable(cluster: str, tmp_path: Path) -> None:
    column = Column("v", ColumnType.CATEGORY, nullable=True)
    texts = [
        "\\",
        "'",
        "\\'",
        "${spark.app.name}",
        "${env:HOME}",
        "\\u0041",
        "A",
        "`",
        "a\nb",
        "' OR 1 = 1 --",
        "''",
        None,
    ]
    database = _of_values(column, texts)
    listed = tuple(text for text in texts if text)
    view = ViewSpec("row", {"v": (Own("v"), Discretizer(categorical_codec(column, listed)))})
    with closing(engine_of(database, Cluster(cluster, tmp_path / "files"))) as engine:
        np.testing.assert_array_equal(
            build_view(engine, view).counts(("v",)), build_view(database.private(), view).counts(("v",))
        )
        assert engine.texts("row", "v", listed[1:]) == {"\\": {1: 1}}


def test_a_table_of_several_files_is_one_table(cluster: str, tmp_path: Path) -> None:
    from privbench_core.engines.spark import SparkDatabase

    column = Column("v", ColumnType.INTEGER, Range(0, 3))
    table = Table("row", (Column("id", ColumnType.INTEGER), column), ("id",))
    rows = pa.table({"id": np.arange(40), "v": np.arange(40) % 3})
    (tmp_path / "row").mkdir()
    for part in range(3):
        pq.write_table(rows.slice(15 * part, 15), tmp_path / "row" / f"part-{part}.parquet")
    source = FolderSource(tmp_path)
    with closing(SqlEngine(Schema("values", (table,), "row"), SparkDatabase(source, cluster), SECRET)) as engine:
        engine.load({})
        assert engine.fingerprint(table) == source.fingerprint(table)
        engine.keep({})
        codes = Discretizer(codec_for(column, table="row"))
        found = build_view(engine, ViewSpec("row", {"v": (Own("v"), codes)})).counts(("v",))
    assert found[:4].tolist() == [14, 13, 13, 0]
