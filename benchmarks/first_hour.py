"""How much of a spec is left to its owner: edits and lines marked "decide" in the draft of each shared database.

The databases are made as empty DuckDB files with the keys that ``keys.json`` lists, because a draft reads no row.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb

from benchmarks.data import data_folder, read_table
from benchmarks.report import markdown
from privbench_core.backends.postgres.ddl import quote_identifier
from privbench_core.draft.draft import reflect
from privbench_core.spec.fields import UNDECIDED

DATABASES = ("adult", "chinook", "sakila", "sandag", "stats")
# Values to fill in, and lines marked "decide", counted by this module's `count` on the draft before it was changed
# (commit b368823).
BEFORE = {"adult": (5, 38), "chinook": (13, 64), "sakila": (21, 78), "sandag": (3, 20), "stats": (10, 38)}


def run(data: Path | None) -> str:
    """Return the table, before and now.

    Raises:
        SourceError: There is no data folder.
    """
    folder = data_folder(data)
    rows = []
    with TemporaryDirectory() as place:
        for name in DATABASES:
            file = Path(place) / f"{name}.duckdb"
            tables = make_empty(folder / name, file)
            edits, decide = count(reflect(str(file)))
            before = dict(zip(("to fill in, before", "lines to decide, before"), BEFORE[name], strict=True))
            rows.append({"database": name, "tables": tables, **before, "to fill in": edits, "lines to decide": decide})
    return markdown(rows)


def count(draft: str) -> tuple[int, int]:
    """Return how many values a draft leaves open, and how many lines ask for a decision."""
    lines = [line for line in draft.splitlines() if not line.startswith("#")]
    return sum(line.partition(" # ")[0].count(UNDECIDED) for line in lines), sum("# decide" in line for line in lines)


def make_empty(folder: Path, file: Path) -> int:
    """Make the tables of a shared database, with keys and without rows; return how many there are."""
    listed = json.loads((folder / "keys.json").read_text(encoding="utf-8"))
    waiting = [name for name in listed["tables"] if (folder / f"{name}.parquet").is_file()]
    number = len(waiting)
    made: set[str] = set()
    with duckdb.connect(str(file)) as connection:
        while waiting:
            keys = {name: _keys(listed, name) for name in waiting}
            ready = (n for n in waiting if all(key["parent"] in {*made, n} for key in keys[n]))
            name = next(ready, waiting[0])  # a cycle is opened by leaving the key out that closes it
            waiting.remove(name)
            made.add(name)
            connection.execute(_create(folder, name, listed["tables"][name].get("pk"), keys[name], made))
    return number


def _keys(listed: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [key for key in listed["fks"] if key["child"] == name]


def _create(folder: Path, name: str, primary: list[str] | None, keys: list[dict[str, Any]], made: set[str]) -> str:
    rows = read_table(folder, name)
    fixed = {column for key in keys for column in key["cols"]}
    described = duckdb.from_arrow(rows.slice(0, 0))
    lines = []
    for column, kind in zip(described.columns, described.types, strict=True):
        stored = "BIGINT" if column in fixed and str(kind) == "DOUBLE" else str(kind)  # a nullable key may lie as float
        required = "" if rows[column].null_count else " NOT NULL"
        lines.append(f"{quote_identifier(column)} {stored}{required}")
    if primary:
        lines.append(f"PRIMARY KEY ({', '.join(map(quote_identifier, primary))})")
    for key in keys:
        if key["parent"] in made:
            child, parent = (", ".join(map(quote_identifier, key[side])) for side in ("cols", "ref"))
            lines.append(f"FOREIGN KEY ({child}) REFERENCES {quote_identifier(key['parent'])} ({parent})")
    return f"CREATE TABLE {quote_identifier(name)} ({', '.join(lines)})"
