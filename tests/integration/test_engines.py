"""Runs whose rows are counted elsewhere: the same releases, nothing left behind, and what is said when they fail."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from privbench_core.backends.folder.read import FolderSource
from privbench_core.backends.sqlalchemy.read import DatabaseSource
from privbench_core.engines import duckdb as duckdb_engine
from privbench_core.engines.duckdb import DuckDBDatabase
from privbench_core.engines.postgres import PostgresDatabase
from privbench_core.errors import SourceError
from privbench_core.pipeline.run import run_spec
from privbench_core.pipeline.workspace import Workspace, open_ledger
from privbench_core.spec.engine import engine_in_words, with_engine
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Spec
from tests.conftest import Town
from tests.helpers.databases import Database
from tests.helpers.engines import in_postgres
from tests.helpers.postgres import as_role, execute, new_database, rows

EPSILON = 3.0
_KILLED = """
import os, signal, sys
from pathlib import Path
from privbench_core.engines.sql.engine import SqlEngine
from privbench_core.pipeline.run import run_spec
from privbench_core.spec.load import load_spec
SqlEngine.coded = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
run_spec(load_spec(Path(sys.argv[1])), 3.0, out=Path(sys.argv[2]))
"""


def _spent(spec: Spec) -> list[str]:
    ledger = open_ledger(spec)
    try:
        return [entry.state for entry in ledger.entries()]
    finally:
        ledger.close()


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
    assert _spent(forbidden) == []


def test_no_room_for_temporary_rows(counted: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of the first step: its price stays spent, nothing is released, and no rows are left."""
    monkeypatch.setattr(duckdb_engine.DuckDBDatabase, "create", _full(duckdb_engine.DuckDBDatabase.create))
    with pytest.raises(SourceError, match=r"there is no room for temporary files in .*; make room there"):
        run_spec(counted, EPSILON, out=tmp_path / "bundle")
    assert _spent(counted) == ["reserved"]
    assert _left(counted) == []
    assert not (tmp_path / "bundle").exists()
    monkeypatch.undo()
    assert run_spec(counted, EPSILON, out=tmp_path / "bundle").paid > 0


def _full(create: Any) -> Any:
    """Makes the tables of rows, and finds no room for those of views."""

    def made(self: DuckDBDatabase, name: str, query: Any, kind: str = "TABLE") -> None:
        if "view" in name:
            with self._told():
                raise OSError(28, "No space left on device")
        create(self, name, query, kind)

    return made


def test_a_server_that_goes_away_in_the_middle_of_a_count(
    postgres: str, town: Town, town_spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = new_database(postgres, "goes_away")
    there = _there(town_spec, town, url)
    create = PostgresDatabase.create

    def ended(self: PostgresDatabase, name: str, query: Any, kind: str = "TABLE") -> None:
        if "view" in name:
            process = self._table("SELECT pg_backend_pid() AS process").column(0)[0].as_py()
            execute(postgres, f"SELECT pg_terminate_backend({process})")
        create(self, name, query, kind)

    monkeypatch.setattr(PostgresDatabase, "create", ended)
    with pytest.raises(SourceError, match="the server stopped answering, or refused"):
        run_spec(there, EPSILON, out=tmp_path / "bundle")
    assert _spent(there) == ["reserved"]
    assert not (tmp_path / "bundle").exists()
    monkeypatch.undo()
    assert run_spec(there, EPSILON, out=tmp_path / "bundle").paid > 0


def test_a_killed_run_leaves_rows_to_nobody(counted: Spec, town_spec: Path, tmp_path: Path) -> None:
    town_spec.write_text(town_spec.read_text(encoding="utf-8") + "\nengine: duckdb\n", encoding="utf-8")
    arguments = [sys.executable, "-c", _KILLED, str(town_spec), str(tmp_path / "bundle")]
    killed = subprocess.run(arguments, capture_output=True, check=False, env={**os.environ, "PYTHONWARNINGS": "ignore"})
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-2000:]
    assert _spent(counted) == ["reserved"], "what may have been looked at is spent"
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
    with pytest.raises(SourceError) as caught, database._told():
        database._connection.execute("SELECT CAST('a secret' AS INTEGER)")
    assert "secret" not in str(caught.value)
    database.close()


def test_ctrl_c_while_duckdb_counts_is_ctrl_c(counted: Spec, tmp_path: Path) -> None:
    database = DuckDBDatabase(FolderSource(Path(counted.source)), tmp_path / "rows")
    with pytest.raises(KeyboardInterrupt), database._told():
        raise RuntimeError("Query interrupted")  # DuckDB's own words
    database.close()


@pytest.mark.parametrize(("stop", "raised"), [("cancel", KeyboardInterrupt), ("timeout", SourceError)])
def test_ctrl_c_while_postgres_counts_is_ctrl_c(postgres: str, stop: str, raised: type[BaseException]) -> None:
    database = PostgresDatabase(DatabaseSource(postgres))
    process = database._table("SELECT pg_backend_pid() AS process").column(0)[0].as_py()
    if stop == "timeout":
        database._statement("SET LOCAL statement_timeout = '50ms'")
    else:
        threading.Timer(0.5, execute, (postgres, f"SELECT pg_cancel_backend({process})")).start()
    with pytest.raises(raised):
        database._table("SELECT CAST(pg_sleep(5) AS TEXT) AS slept")
    database.close()
