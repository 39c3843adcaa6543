"""Runs whose rows are counted elsewhere: the same releases, nothing left behind, and what is said when they fail."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sqlglot import exp
from typer.testing import CliRunner

from privbench_core import engines
from privbench_core.backends.folder import FolderSource
from privbench_core.backends.sqlalchemy import DatabaseSource
from privbench_core.cli import app
from privbench_core.engines import duckdb as duckdb_engine
from privbench_core.engines import engine_of
from privbench_core.engines.duckdb import DuckDBDatabase
from privbench_core.engines.postgres import PostgresDatabase
from privbench_core.engines.sql.engine import SqlEngine
from privbench_core.engines.stored import LoadedRows
from privbench_core.errors import SourceError
from privbench_core.pipeline.executor import run_spec
from privbench_core.pipeline.workspace import Workspace
from privbench_core.privacy.view_building import build_view
from privbench_core.privacy.views import ViewSpec
from privbench_core.schema.tables import Table
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Spec, engine_in_words, with_engine
from tests.conftest import Town
from tests.helpers.databases import Database
from tests.helpers.engines import in_postgres
from tests.helpers.ledgers import states
from tests.helpers.postgres import as_role, execute, new_database, rows
from tests.helpers.servers import wait_for

EPSILON = 3.2
_KILLED = """
import os, signal, sys
from pathlib import Path
from privbench_core.engines.sql.engine import SqlEngine
from privbench_core.pipeline.executor import run_spec
from privbench_core.spec.load import load_spec
SqlEngine.coded = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
run_spec(load_spec(Path(sys.argv[1])), 3.2, out=Path(sys.argv[2]))
"""
_WAITS = """
import sys
from sqlglot import parse_one
from privbench_core.cli import main
from privbench_core.engines.sql.engine import SqlRows

def counted(self, marginals):
    print("counting", flush=True)
    database = self._engine._database
    query = parse_one(statement, dialect=database.dialect)
    list(database.batches(query, 1)) if database.near else database.fetch(query)

SqlRows._count = SqlRows._count_here = counted
statement = sys.argv.pop(1)
main()
"""
_LONG = {
    "duckdb": "SELECT COUNT(*) AS n FROM RANGE(10000000) AS a, RANGE(1000000) AS b WHERE a.range * b.range = -1",
    "source": "SELECT CAST(PG_SLEEP(600) AS TEXT) AS n",
}


def _left(spec: Spec) -> list[str]:
    return [path.name for path in spec.state.rglob("*") if path.parent.name == "rows"]


@pytest.fixture
def counted(town_spec: Path) -> Spec:
    """The spec of a small town, counted in DuckDB."""
    return with_engine(load_spec(town_spec), "duckdb").accepting_noise


def test_what_one_engine_released_another_does_not_pay_for(counted: Spec, tmp_path: Path) -> None:
    first = run_spec(counted, EPSILON, out=tmp_path / "one")
    assert first.paid > 0
    assert _left(counted) == [], "private rows are left behind"
    again = run_spec(with_engine(counted, "memory"), EPSILON, out=tmp_path / "other")
    assert again.paid == 0
    bundles = [{p.name: p.read_bytes() for p in (tmp_path / name / "data").iterdir()} for name in ("one", "other")]
    assert bundles[0] == bundles[1]


def test_many_rows_in_parquet_files_are_counted_by_duckdb(
    town: Town, town_spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = load_spec(town_spec).accepting_noise
    held = sum(town.tables[table.name].num_rows for table in town.schema.private_tables)
    for many, chosen in ((held + 1, "memory"), (held, "duckdb")):
        monkeypatch.setattr(engines, "_MANY", many)
        assert engine_of(spec) == chosen
        assert engine_of(with_engine(spec, "memory")) == "memory"
        planned = CliRunner().invoke(app, ["plan", str(town_spec)])
        assert f"Engine: {chosen};" in planned.output, planned.output
    loaded = []
    load = DuckDBDatabase.load
    monkeypatch.setattr(
        DuckDBDatabase, "load", lambda self, *what, **how: (loaded.append(what), load(self, *what, **how))[1]
    )
    assert run_spec(spec, EPSILON, out=tmp_path / "bundle").paid > 0
    assert len(loaded) == len(town.schema.private_tables)
    (town_spec.parent / "person.parquet").write_bytes(b"no rows")
    assert engine_of(spec) == "memory"  # which reports it
    assert engine_of(replace(spec, source="sqlite:///rows.db")) == "memory"
    assert engine_of(replace(spec, source="elsewhere")) == "memory"


def _there(town_spec: Path, town: Town, url: str, login: str | None = None) -> Spec:
    """The spec of the same town in PostgreSQL, to be counted there."""
    in_postgres(Database(town.schema, town.tables), url)
    text = town_spec.read_text(encoding="utf-8")
    read_by = as_role(url, login) if login else url
    town_spec.write_text(text.replace("source: .", f"source: {read_by}\nengine: source"), encoding="utf-8")
    return load_spec(town_spec).accepting_noise


def test_rows_in_postgres_are_counted_there(postgres: str, town: Town, town_spec: Path, tmp_path: Path) -> None:
    url = new_database(postgres, "counted_there")
    there = _there(town_spec, town, url)
    assert "counts travel" in engine_in_words(there)[0]
    assert "Rows of" in engine_in_words(there)[1]
    assert run_spec(there, EPSILON, out=tmp_path / "bundle").paid > 0
    assert run_spec(with_engine(there, "memory"), EPSILON, out=tmp_path / "again").paid == 0
    assert rows(url, "SELECT relname FROM pg_class WHERE relname LIKE 'privbench%'") == []


def test_a_login_that_may_not_make_temporary_tables_is_told_so(
    postgres: str, town: Town, town_spec: Path, tmp_path: Path
) -> None:
    url = new_database(postgres, "no_temporary", "CREATE ROLE reader_only LOGIN")
    execute(url, 'REVOKE TEMPORARY ON DATABASE "no_temporary" FROM PUBLIC')
    forbidden = _there(town_spec, town, url, "reader_only")
    execute(url, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader_only")
    with pytest.raises(SourceError, match="may not make temporary tables there; grant TEMPORARY"):
        run_spec(forbidden, EPSILON, out=tmp_path / "bundle")
    assert states(forbidden) == []


def test_no_room_for_temporary_rows(counted: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of a step: its price stays spent, and no rows are left."""
    monkeypatch.setattr(DuckDBDatabase, "batches", _full(DuckDBDatabase.batches))
    with pytest.raises(SourceError, match=r"there is no room for temporary files in .*; make room there"):
        run_spec(counted, EPSILON, out=tmp_path / "bundle")
    assert states(counted).count("reserved") == 1
    assert _left(counted) == []
    assert not (tmp_path / "bundle").exists()
    monkeypatch.undo()
    assert run_spec(counted, EPSILON, out=tmp_path / "bundle").paid > 0


def _full(batches: Any) -> Any:
    """Keeps rows, and finds no room to count those of views with several columns."""

    def found(self: DuckDBDatabase, query: Any, rows: int) -> Iterator[pa.RecordBatch]:
        if " AS f1" in query.sql():
            with self._clear_errors():
                raise OSError(28, "No space left on device")
        yield from batches(self, query, rows)

    return found


def test_rows_that_do_not_fit_where_temporary_files_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB's own limits stand for a full disk: what it was about to count, it says nothing of."""
    monkeypatch.setattr(duckdb_engine, "_MEMORY", "40MB")
    with closing(DuckDBDatabase(FolderSource(tmp_path), tmp_path / "rows")) as database:
        database._execute("SET max_temp_directory_size = '1MB'")
        database.insert("many", pa.table({"v": np.random.default_rng(0).permutation(3_000_000)}))
        numbers = exp.select("v", "COUNT(*) AS n").from_("many").group_by("v").subquery("numbers")
        with pytest.raises(SourceError, match=r"there is no room for temporary files in .*; make room there"):
            database.fetch(exp.select("SUM(n)").from_(numbers))
    assert not any(path.is_dir() for path in (tmp_path / "rows").iterdir())


def test_a_server_that_goes_away_in_the_middle_of_a_count(
    postgres: str, town: Town, town_spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = new_database(postgres, "goes_away")
    there = _there(town_spec, town, url)
    fetch = PostgresDatabase.fetch

    def ended(self: PostgresDatabase, query: Any) -> pa.Table:
        if "GROUPING SETS" in query.sql():
            process = self._table("SELECT pg_backend_pid() AS process").column(0)[0].as_py()
            execute(postgres, f"SELECT pg_terminate_backend({process})")
        return fetch(self, query)

    monkeypatch.setattr(PostgresDatabase, "fetch", ended)
    with pytest.raises(SourceError, match="the server stopped answering, or refused"):
        run_spec(there, EPSILON, out=tmp_path / "bundle")
    assert states(there).count("reserved") == 1
    assert not (tmp_path / "bundle").exists()
    monkeypatch.undo()
    assert run_spec(there, EPSILON, out=tmp_path / "bundle").paid > 0


def test_what_changes_between_two_scans_is_not_seen(
    postgres: str, town: Town, town_spec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables of the source are views that empty while the run reads them: it sees all of them as they were at first."""
    url = new_database(postgres, "between_scans")
    there = _there(town_spec, town, url)
    execute(url, "CREATE TABLE shown AS SELECT true AS yes")
    for name in ("household", "person"):
        execute(url, f"ALTER TABLE {name} RENAME TO {name}_rows")
        execute(url, f"CREATE VIEW {name} AS SELECT r.* FROM {name}_rows r, shown WHERE yes")
    load = PostgresDatabase.load

    def loaded(self: PostgresDatabase, table: Table, name: str, *, hashed: bool) -> LoadedRows:
        found = load(self, table, name, hashed=hashed)
        execute(url, "UPDATE shown SET yes = false")
        return found

    monkeypatch.setattr(PostgresDatabase, "load", loaded)
    engine = SqlEngine(there.schema, PostgresDatabase(DatabaseSource(url)), b"secret")
    with closing(engine):
        engine.load({})
        engine.keep({})
        for name, expected in town.tables.items():
            assert build_view(engine, ViewSpec(name, {})).data.held().rows == expected.num_rows
    assert rows(url, "SELECT count(*) FROM person") == [(0,)]


def test_a_killed_run_leaves_rows_to_nobody(counted: Spec, town_spec: Path, tmp_path: Path) -> None:
    town_spec.write_text(town_spec.read_text(encoding="utf-8") + "\nengine: duckdb\n", encoding="utf-8")
    arguments = [sys.executable, "-c", _KILLED, str(town_spec), str(tmp_path / "bundle")]
    killed = subprocess.run(arguments, capture_output=True, check=False, env={**os.environ, "PYTHONWARNINGS": "ignore"})
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-2000:]
    assert states(counted) == ["reserved"], "what may have been looked at is spent"
    folder = next(path for path in counted.state.rglob("rows") if path.is_dir())
    left = [path for path in folder.iterdir() if path.is_dir()]
    assert [path.stat().st_mode & 0o777 for path in left] == [0o700]
    in_memory = replace(counted, engine="memory")
    assert run_spec(in_memory, EPSILON, out=tmp_path / "bundle").paid > 0
    assert _left(counted) == [], "the next run deletes them, whatever its engine"


def test_two_runs_do_not_delete_each_others_rows(counted: Spec) -> None:
    workspace = Workspace(counted)
    try:
        source = FolderSource(Path(counted.source))
        first, second = (DuckDBDatabase(source, workspace.folder / "rows") for _ in range(2))
        assert len([path for path in (workspace.folder / "rows").iterdir() if path.is_dir()]) == 2
        first.close()
        second.close()
        assert _left(counted) == []
    finally:
        workspace.close()


def test_errors_of_engines_quote_no_value(counted: Spec, tmp_path: Path) -> None:
    database = DuckDBDatabase(FolderSource(Path(counted.source)), tmp_path / "rows")
    with pytest.raises(SourceError) as caught, database._clear_errors():
        database._connection.execute("SELECT CAST('a secret' AS INTEGER)")
    assert "secret" not in str(caught.value)
    database.close()


@pytest.mark.parametrize("engine", ["duckdb", pytest.param("source", marks=pytest.mark.slow)])
def test_ctrl_c_in_the_middle_of_a_statement_ends_the_run(
    engine: str, request: pytest.FixtureRequest, town: Town, town_spec: Path, tmp_path: Path
) -> None:
    """A real signal while one statement takes minutes: one line, what had begun is spent, nothing else is left."""
    if engine == "source":
        url = new_database(request.getfixturevalue("postgres"), "interrupted")
        spec = _there(town_spec, town, url)
    else:
        spec = load_spec(town_spec)
    command = ["run", str(town_spec), "--epsilon", "3.2", "--engine", engine, "--accept-noise"]
    arguments = [sys.executable, "-c", _WAITS, _LONG[engine], *command, "--out", str(tmp_path / "bundle")]
    # A shell starts what it runs in the background with interrupts ignored, and so would this process be.
    ours = signal.signal(signal.SIGINT, signal.default_int_handler)
    child = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    signal.signal(signal.SIGINT, ours)
    assert child.stdout is not None
    try:
        assert any("counting" in line for line in child.stdout), child.stderr.read() if child.stderr else ""
        time.sleep(1)  # until the statement runs
        child.send_signal(signal.SIGINT)
        _, complaint = child.communicate(timeout=300)
    finally:
        child.kill()
    assert child.returncode == 130
    assert complaint.splitlines()[-1].startswith("privbench: stopped; releases so far are kept")
    assert "had begun: its price counts as spent" in complaint
    assert states(spec).count("reserved") == 1
    assert _left(spec) == []
    assert not (tmp_path / "bundle").exists()
    if engine == "source":
        sleeping = "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'SELECT CAST(PG_SLEEP%' AND state = 'active'"
        assert rows(url, sleeping) == []


def test_what_is_dropped_takes_no_room_on_the_server(postgres: str) -> None:
    """A transaction keeps the files of tables that are dropped in it, and one transaction serves a whole run."""
    with closing(PostgresDatabase(DatabaseSource(postgres))) as database:
        before = _temporary_bytes(database)
        many = exp.select("*").from_("GENERATE_SERIES(1, 200000) AS n(n)")
        database.create("numbers", many)
        full = _temporary_bytes(database)
        database.drop("numbers")
        database.insert("sent", pa.table({"n": np.arange(200_000)}))
        assert full - before > 5_000_000
        assert _temporary_bytes(database) < before + 1.5 * (full - before), "what was sent is there once"


def _temporary_bytes(database: PostgresDatabase) -> int:
    """Bytes of all files of temporary tables, those of tables that were dropped included."""
    place = "(SELECT 'base/' || oid FROM pg_database WHERE datname = current_database())"
    files = f"pg_ls_dir({place}) AS file"
    asked = f"SELECT COALESCE(SUM((pg_stat_file({place} || '/' || file)).size), 0)::int8 FROM {files} WHERE file ~ '^t'"
    return int(database._table(asked).column(0)[0].as_py())


@pytest.mark.parametrize(("stop", "raised"), [("cancel", KeyboardInterrupt), ("timeout", SourceError)])
def test_ctrl_c_while_postgres_counts_is_ctrl_c(postgres: str, stop: str, raised: type[BaseException]) -> None:
    database = PostgresDatabase(DatabaseSource(postgres))
    process = database._table("SELECT pg_backend_pid() AS process").column(0)[0].as_py()
    if stop == "timeout":
        database._statement("SET LOCAL statement_timeout = '50ms'")
    else:
        threading.Thread(target=_cancel, args=(postgres, process)).start()
    with pytest.raises(raised):
        database._table("SELECT CAST(pg_sleep(60) AS TEXT) AS slept")
    database.close()


def _cancel(postgres: str, process: int) -> None:
    """Cancel the statement of a process of the server, once it sleeps."""
    sleeps = f"SELECT 1 FROM pg_stat_activity WHERE pid = {process} AND wait_event = 'PgSleep'"
    wait_for("the statement to sleep", lambda: rows(postgres, sleeps))
    execute(postgres, f"SELECT pg_cancel_backend({process})")
