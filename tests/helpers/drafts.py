"""Sources and command lines for tests of drafts."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import duckdb
from typer.testing import CliRunner, Result

from privbench_core.backends.catalogue import Catalogue, FoundColumn, FoundKey, FoundTable
from privbench_core.cli import app
from privbench_core.schema.columns import ColumnType


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


def catalogue_of(text: str) -> Catalogue:
    """Make a catalogue of a line per table: ``likes: *id user_id?>users`` has a primary key and a nullable key."""
    tables = []
    for line in text.strip().splitlines():
        name, _, columns = line.strip().partition(": ")
        found, primary, keys = [], [], []
        for part in columns.split():
            column, _, parent = part.partition(">")
            plain = column.strip("*?")
            primary += [plain] if column.startswith("*") else []
            keys += [FoundKey((plain,), parent, ("id",))] if parent else []
            found.append(FoundColumn(plain, ColumnType.INTEGER, "integer", nullable=column.endswith("?")))
        tables.append(FoundTable(name, tuple(found), tuple(primary), tuple(keys)))
    return Catalogue("d", tuple(tables))


def call(*arguments: object, answers: str | None = None) -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=answers)
