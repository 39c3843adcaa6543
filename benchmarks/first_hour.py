"""The first hour with each shared database: what a draft leaves to its owner, and what its bundle takes and holds.

The databases are made as DuckDB files with the keys that ``keys.json`` lists; without rows for the drafts that are
counted, because a draft reads none. The hour is timed command by command, each in a process of its own.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import duckdb

from benchmarks.data import data_folder, read_table
from benchmarks.operational import with_choices
from benchmarks.report import Row, machine, markdown
from privbench_core.backends.postgres import quote_identifier
from privbench_core.draft.draft import reflect
from privbench_core.errors import PrivbenchError
from privbench_core.spec.fields import UNDECIDED

DATABASES = ("adult", "chinook", "sakila", "sandag", "stats")
UNITS = {"adult": "adult"}  # where nothing tells who is protected; all else is filled in as the draft proposes
# Values to fill in, and lines marked "decide", counted by this module's `count` on the draft before it was changed
# (commit b368823).
BEFORE = {"adult": (5, 38), "chinook": (13, 64), "sakila": (21, 78), "sandag": (3, 20), "stats": (10, 38)}


def run(data: Path | None) -> str:
    """Return the table, before and now.

    Raises:
        SourceError: There is no data folder.
    """
    folder = data_folder(data)
    rows: list[Row] = []
    hours: list[Row] = []
    with TemporaryDirectory() as place:
        for name in DATABASES:
            file = Path(place) / f"{name}.duckdb"
            tables = make_empty(folder / name, file)
            edits, decide = count(reflect(str(file)))
            before = dict(zip(("to fill in, before", "lines to decide, before"), BEFORE[name], strict=True))
            rows.append({"database": name, "tables": tables, **before, "to fill in": edits, "lines to decide": decide})
            hours.append({"database": name, **time_hour(folder / name, name, Path(place) / name)})
    return f"{markdown(rows)}\n\n{machine(1)}\n\n{markdown(hours)}"


def time_hour(data: Path, name: str, place: Path) -> dict[str, float]:
    """Return seconds of each command from a DuckDB file to a loaded bundle, and the bundle's size and rows.

    How far numbers of rows are off, summed over tables, is a share of all rows of the source. The owner takes the unit
    of `UNITS`, and else chooses as in `with_choices`.
    """
    place.mkdir()
    file = place / "source.duckdb"
    make_empty(data, file)
    fill(data, file)
    seconds: dict[str, float] = {}
    start = _cpu()

    def timed(what: str, *arguments: str) -> None:
        begun = perf_counter()
        done = subprocess.run([sys.executable, *arguments], cwd=place, capture_output=True, text=True, check=False)
        if done.returncode:
            raise PrivbenchError(f"{name}: {what} failed: {done.stderr[-2000:]}")
        seconds[f"{what} s"] = perf_counter() - begun

    cli = ("-m", "privbench_core")
    unit = ("--unit", UNITS[name]) if name in UNITS else ()
    timed("init", *cli, "init", file.name, "-o", "spec.yaml", *unit)
    spec = place / "spec.yaml"
    text = spec.read_text(encoding="utf-8")
    spec.write_text(with_choices(text), encoding="utf-8")
    timed("plan", *cli, "plan", spec.name)
    timed("run", *cli, "run", spec.name, "--epsilon", "3.2", "--out", "bundle", "--accept-noise")
    timed("publish", *cli, "publish", "bundle", "copy.duckdb")
    script = "import duckdb; duckdb.connect('../plain.duckdb').execute(open('load.duckdb.sql').read())"
    timed("load", "-c", f"import os; os.chdir('bundle'); {script}")
    files = [path for path in (place / "bundle").rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    copies = sum(path.stat().st_size for path in files if path.name.endswith(".csv.gz"))
    together = {"together s": sum(seconds.values()), "CPU s": _cpu() - start}
    held, made = (_numbers_of_rows(place / database) for database in (file.name, "copy.duckdb"))
    off = sum(abs(made[table] - held[table]) for table in held) / sum(held.values())
    return {**seconds, **together, "bundle MB": size / 1e6, "of it CSV MB": copies / 1e6, "rows off": off}


def _numbers_of_rows(file: Path) -> dict[str, int]:
    with duckdb.connect(str(file), read_only=True) as connection:
        tables = [name for (name,) in connection.execute("SHOW TABLES").fetchall()]
        return {name: len(connection.table(quote_identifier(name))) for name in tables}


def fill(folder: Path, file: Path) -> None:
    """Put the rows of a shared database into tables made by `make_empty`."""
    with duckdb.connect(str(file)) as connection:
        waiting = [name for (name,) in connection.execute("SHOW TABLES").fetchall()]
        while waiting:  # parents before children
            name = next(n for n in waiting if not {key[0] for key in _own_keys(connection, n)} & {*waiting} - {n})
            waiting.remove(name)
            connection.register("given", read_table(folder, name))
            table = quote_identifier(name)
            loops = [(quote_identifier(c), quote_identifier(r)) for p, c, r in _own_keys(connection, name) if p == name]
            ready = [f"({c} IS NULL OR {c} IN (SELECT {r} FROM {table}))" for c, r in loops]
            asked = "SELECT count(*) FROM duckdb_constraints() WHERE table_name = ? AND constraint_type = 'PRIMARY KEY'"
            keyed = connection.execute(asked, [name]).fetchone()
            again = "OR IGNORE " if keyed and keyed[0] else ""  # rows that are there already; DuckDB wants a key for it
            insert = f"INSERT {again}INTO {table} BY NAME SELECT * FROM given WHERE {' AND '.join(ready) or 'true'}"
            added = connection.execute(insert).fetchone()
            while loops and added and added[0]:  # rows come after those of the same table that they refer to
                added = connection.execute(insert).fetchone()
            connection.unregister("given")


def _own_keys(connection: duckdb.DuckDBPyConnection, table: str) -> list[tuple[str, str, str]]:
    """Return (parent, first column, the parent's first column) of each key of a table."""
    asked = (
        "SELECT referenced_table, constraint_column_names[1], referenced_column_names[1] FROM duckdb_constraints()"
        " WHERE table_name = ? AND constraint_type = 'FOREIGN KEY'"
    )
    return connection.execute(asked, [table]).fetchall()


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


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
