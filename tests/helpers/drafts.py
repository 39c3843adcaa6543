"""Sources and command lines for tests of drafts."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from typer.testing import CliRunner, Result

from privbench_core.cli import app


def sqlite_file(folder: Path, sql: str) -> str:
    """Make a SQLite file of these tables; its URL."""
    with sqlite3.connect(folder / "site.db") as connection:
        connection.executescript(sql)
    connection.close()
    return f"sqlite:///{folder / 'site.db'}"


def call(*arguments: object, answers: str | None = None) -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=answers)
