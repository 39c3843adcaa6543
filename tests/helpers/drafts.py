"""Sources and command lines for tests of drafts."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import duckdb
from typer.testing import CliRunner, Result

from privbench_core.cli import app


def sqlite_file(folder: Path, sql: str) -> str:
    """Make a SQLite file of these tables; its URL."""
    with sqlite3.connect(folder / "site.db") as connection:
        connection.executescript(sql)
    connection.close()
    return f"sqlite:///{folder / 'site.db'}"


def duckdb_file(folder: Path, sql: str) -> str:
    """Make a DuckDB file of these tables; its path."""
    with duckdb.connect(str(folder / "site.duckdb")) as connection:
        connection.execute(sql)
    return str(folder / "site.duckdb")


def csv_folder(folder: Path, files: dict[str, str]) -> str:
    """Make a folder of CSV files of these texts; its path."""
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.csv").write_text(text + "\n", encoding="utf-8")
    return str(folder)


def call(*arguments: object, answers: str | None = None) -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=answers)
