"""A cluster of Apache Spark on this machine, as `deploy/spark` sets it up: it needs Java, and Spark in SPARK_HOME."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privbench_core.backends.folder import FolderSource
from privbench_core.draft.draft import reflect
from privbench_core.engines.sql.engine import SqlEngine
from privbench_core.errors import SourceError
from privbench_core.pipeline.executor import run_spec
from privbench_core.pipeline.workspace import open_ledger
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.tables import Schema, Table
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Spec, with_engine
from tests.helpers.databases import SECRET
from tests.helpers.servers import wait_for

DEPLOY = Path(__file__).parents[2] / "deploy" / "spark"
EPSILON = 3.2
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("SPARK_HOME" not in os.environ, reason="SPARK_HOME names no Apache Spark, see deploy/spark"),
]
_KILLED = """
import os, signal, sys
from dataclasses import replace
from pathlib import Path
from privbench_core.engines.spark import SparkDatabase
from privbench_core.engines.sql.engine import SqlEngine
from privbench_core.pipeline.executor import run_spec
from privbench_core.spec.load import load_spec
SqlEngine.coded = lambda *_: os.kill(os.getpid(), int(sys.argv[4]))
spec = replace(load_spec(Path(sys.argv[1])), cluster=sys.argv[3], engine="spark")
run_spec(spec.accepting_noise, 3.2, out=Path(sys.argv[2]))
"""


@dataclass(frozen=True)
class Deployed:
    """A cluster that is running.

    Attributes:
        folder: What it keeps.
        url: Of its Spark Connect, with the token.
    """

    folder: Path
    url: str

    def blocks(self) -> list[Path]:
        """Files of blocks of rows that were copied (``rdd_``), on the executor and the driver."""
        return list((self.folder / "blocks").rglob("rdd_*"))


def _free() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    folder = tmp_path_factory.mktemp("spark") / "cluster"
    ports = {"SPARK_MASTER_PORT": _free(), "SPARK_CONNECT_PORT": _free()}
    try:
        started = subprocess.run(
            [DEPLOY / "start.sh", folder], env=os.environ | ports, capture_output=True, text=True, check=True
        )
        assert started.stdout.startswith(f"sc://localhost:{ports['SPARK_CONNECT_PORT']}/;token=${{SPARK_TOKEN}}")
        token = (folder / "token").read_text(encoding="utf-8")
        yield Deployed(folder, f"sc://localhost:{ports['SPARK_CONNECT_PORT']}/;token={token}")
    finally:
        subprocess.run([DEPLOY / "stop.sh", folder], check=True)
    left = sorted(path.name for path in folder.iterdir())
    assert left == ["connect.log", "master.log", "secret", "spark-defaults.conf", "token", "worker.log"]


def _counted(town_spec: Path, deployed: Deployed) -> Spec:
    return with_engine(replace(load_spec(town_spec), cluster=deployed.url), "spark").accepting_noise


def test_the_same_releases_and_nothing_left_on_the_cluster(deployed: Deployed, town_spec: Path, tmp_path: Path) -> None:
    counted = _counted(town_spec, deployed)
    assert run_spec(counted, EPSILON, out=tmp_path / "one").paid > 0
    assert run_spec(with_engine(counted, "memory"), EPSILON, out=tmp_path / "other").paid == 0
    bundles = [{p.name: p.read_bytes() for p in (tmp_path / name / "data").iterdir()} for name in ("one", "other")]
    assert bundles[0] == bundles[1]
    wait_for("the blocks are gone", lambda: not deployed.blocks(), 180)
    for folder in ("blocks", "work"):
        assert (deployed.folder / folder).stat().st_mode & 0o077 == 0
    logs = "".join(path.read_text(encoding="utf-8") for path in deployed.folder.rglob("*.log"))
    assert "privbench_kept" not in logs


def test_only_who_has_the_token_may_connect(deployed: Deployed, town_spec: Path, tmp_path: Path) -> None:
    counted = replace(_counted(town_spec, deployed), cluster=deployed.url[:-1] + "!")
    with pytest.raises(SourceError, match="counting in the cluster failed: it does not accept the token") as refused:
        run_spec(counted, EPSILON, out=tmp_path / "bundle")
    assert deployed.url[-20:-1] not in str(refused.value)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_is_ended_stays_spent(
    deployed: Deployed, town_spec: Path, tmp_path: Path, number: signal.Signals
) -> None:
    arguments = [sys.executable, "-W", "ignore", "-c", _KILLED, town_spec, tmp_path / "bundle", deployed.url, number]
    ended = subprocess.run([*map(str, arguments[:-1]), str(int(number))], capture_output=True, check=False)
    assert ended.returncode != 0
    counted = _counted(town_spec, deployed)
    ledger = open_ledger(counted)
    assert [entry.state for entry in ledger.entries()] == ["reserved"]
    ledger.close()
    assert run_spec(counted, EPSILON, out=tmp_path / "bundle").paid > 0


def test_managed_tables_of_a_catalogue(deployed: Deployed, town_spec: Path, tmp_path: Path) -> None:
    """The same releases as from files; texts without the blanks of char(n), and names in any letters."""
    from privbench_core.backends.spark import CatalogueSource
    from privbench_core.backends.spark import Cluster as Session
    from privbench_core.engines.spark import SparkDatabase

    columns = "ID BIGINT COMMENT 'of a shop', c CHAR(5), v VARCHAR(7), `a``b.c` STRING, at TIMESTAMP_NTZ"
    with closing(Session(deployed.url, "engine spark", "making tables")) as made:
        made.session.conf.unset("spark.sql.caseSensitive")
        for statement in (
            f"CREATE SCHEMA Town LOCATION '{(tmp_path / 'tables').as_uri()}'",
            *(
                f"CREATE TABLE Town.{name} USING parquet AS SELECT * FROM parquet.`{town_spec.parent}/{name}.parquet`"
                for name in ("household", "person")
            ),
            f"CREATE TABLE Town.Odd ({columns}) USING parquet COMMENT 'odd things'",
            "INSERT INTO Town.Odd VALUES (2, 'ab', 'cd ', ' x', TIMESTAMP_NTZ'2020-01-01 12:00:00')",
            "INSERT INTO Town.Odd VALUES (1, NULL, NULL, NULL, NULL)",
            "CREATE VIEW Town.seen AS SELECT ID FROM Town.Odd",
        ):
            made.session.sql(statement)
    place, _, parameters = deployed.url.partition("/;")
    source = f"{place}/spark_catalog.TOWN;{parameters}"
    assert run_spec(load_spec(town_spec).accepting_noise, EPSILON, out=tmp_path / "files").paid > 0
    counted = replace(load_spec(town_spec), source=source).accepting_noise
    for engine in ("auto", "memory"):
        assert run_spec(with_engine(counted, engine), EPSILON, out=tmp_path / engine).paid == 0
    draft = reflect(source)
    token = parameters.removeprefix("token=")
    assert token not in draft
    for line in (
        "unit: household #",
        "c: {type: text, nullable: true, sql_type: character(5)}",
        "v: {type: text, nullable: true, sql_type: character varying(7)}",
        "of a shop",
        "odd things",
        "# left out: the view seen; a benchmark holds tables",
    ):
        assert line in draft, draft
    kinds = [
        ("c", ColumnType.CATEGORY),
        ("v", ColumnType.TEXT),
        ("a`b.c", ColumnType.TEXT),
        ("at", ColumnType.TIMESTAMP),
    ]
    table = Table("odd", (Column("id", ColumnType.INTEGER), *(Column(*each, nullable=True) for each in kinds)), ("id",))
    there = CatalogueSource(source)
    assert [each.name for each in there.catalogue().tables] == ["household", "odd", "person"]
    rows = there.read(table).sort_by("id").slice(1)
    assert [rows.column(name)[0].as_py() for name in ("c", "v", "a`b.c")] == ["ab", "cd ", " x"]
    engine = SqlEngine(Schema("odd", (table,), "odd"), SparkDatabase(there, source), SECRET)
    with closing(engine):
        engine.load({})
        assert engine.fingerprint(table) == there.fingerprint(table)
    nowhere = CatalogueSource(f"{place}/nothing.town;{parameters}")
    with pytest.raises(SourceError, match=r"^source: the cluster has no schema nothing\.town, or the login may not"):
        nowhere.read(table)


def test_text_that_is_not_utf8_is_refused(deployed: Deployed, tmp_path: Path) -> None:
    from privbench_core.engines.spark import SparkDatabase

    table = Table("row", (Column("id", ColumnType.INTEGER), Column("v", ColumnType.TEXT)), ("id",))
    pq.write_table(pa.table({"id": [1], "v": pa.array([b"\xff"]).view(pa.string())}), tmp_path / "row.parquet")
    database = SparkDatabase(FolderSource(tmp_path), deployed.url)
    engine = SqlEngine(Schema("values", (table,), "row"), database, SECRET)
    with closing(engine), pytest.raises(SourceError, match=r"row.v: some values do not fit type text"):
        engine.load({})
