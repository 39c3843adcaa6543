"""Append the next days to what holds a bundle: to a database, or to a file of INSERT statements.

Nothing is stored of what was appended. A window follows from the bundle, its number, its length and the seed. So its
rows are looked for in a database, and the first window that is not there is the next one. A file says what it holds.
New rows are INSERT statements that both psql and DuckDB read.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from privbench_core.backends.postgres import (
    counter_statements,
    move_to_heirs,
    name_list,
    qualified,
    quote_identifier,
    quote_text,
    sql_type,
)
from privbench_core.continuation import QUARTER, World, read_world
from privbench_core.continuation.window import Window, next_window
from privbench_core.errors import PublishError
from privbench_core.files import write_durably
from privbench_core.publishing import Bundle, parts_of, read_bundle
from privbench_core.schema.columns import Column
from privbench_core.schema.tables import Schema, Table

_AT_ONCE = 1000  # statements sent at a time, or rows in one
_MARK = "-- privbench: window {number} of {days} days, seed {seed}, after the bundle {bundle}: {first} to {last}"
_MARKED = re.compile(
    r"^-- privbench: window (\d+) of (\d+) days, seed (\d+), after the bundle (.+): [\d-]+ to [\d-]+$", re.MULTILINE
)


@dataclass(frozen=True)
class Appended:
    """What was appended.

    Attributes:
        window: Its number; 1 is that of the first days after the bundle.
        first, last: Its days, ISO 8601.
        rows: New rows by table.
        left_out: Rows by table that would have broken a reference, a check or a unique set.
    """

    window: int
    first: str
    last: str
    rows: dict[str, int]
    left_out: dict[str, int]

    def __repr__(self) -> str:
        """Return the days and the size in one line."""
        return f"<Appended window {self.window}, {self.first} to {self.last}: {sum(self.rows.values()):,} rows>"


def append_bundle(bundle: Path, target: str, *, days: int, after: int | None = None, seed: int = 0) -> Appended:
    """Append the next ``days`` to a database that holds a bundle, or to a file of INSERT statements.

    Arguments and errors are those of `privbench_core.append`.
    """
    if days < 1 or seed < 0 or (after or 0) < 0:
        raise PublishError("append: expected at least one day, and no negative seed or number of windows")
    opened = read_bundle(bundle)
    if "://" not in target and target.endswith(".sql"):
        return _append_to_file(opened, Path(target), days, after, seed)
    with _database(target) as database:
        window = _missing(read_world(opened), database, days, after, seed)
        database.insert(opened, window)
    return _described(window)


def _described(window: Window) -> Appended:
    first, last = (str(dt.date(1970, 1, 1) + dt.timedelta(days=day)) for day in (window.first, window.last))
    rows = {name: found.num_rows for name, found in window.rows.items()}
    return Appended(window.number, first, last, rows, {name: n for name, n in window.left_out.items() if n})


def _append_to_file(bundle: Bundle, file: Path, days: int, after: int | None, seed: int) -> Appended:
    try:
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        marks = _MARKED.findall(text)
        name = _name(bundle)
        if text and not marks:
            raise PublishError(f"{file}: holds something else than rows to append; name another file")
        if marks and marks[-1][1:] != (str(days), str(seed), name):
            of = "{} days, seed {}, after the bundle {}".format(*marks[-1][1:])
            raise PublishError(f"{file}: holds windows of {of}; give the same, or name another file")
        before = int(marks[-1][0]) if marks else after or 0
        _refuse_other_number(str(file), before, after, days)
        window, world = _window(read_world(bundle), before + 1, days, seed)
        appended = _described(window)
        counters = [f"-- {line}" for line in counter_statements(bundle.schema)]
        then = ["-- In PostgreSQL, let the numbering of new rows go on:", *counters] if counters else []
        moves = [f"-- {line}" for line in move_to_heirs(bundle.schema)]
        then += ["-- In PostgreSQL, move new rows to the tables that inherit:", *moves] if moves else []
        mark = _MARK.format(
            number=window.number, days=days, seed=seed, bundle=name, first=appended.first, last=appended.last
        )
        lines = [mark, "BEGIN;", *insert_statements(world.schema, window), "COMMIT;", *then]
        write_durably(file.resolve(), (text + "\n".join(lines) + "\n").encode())
    except OSError as error:
        raise PublishError(f"{file}: cannot be written ({error.strerror}); nothing was changed") from error
    return appended


def _name(bundle: Bundle) -> str:
    """Return the name of the database, and a digest of the rows."""
    digests = [str(part["sha256"]) for entry in bundle.manifest["tables"].values() for part in parts_of(entry)]
    return f"{bundle.schema.name} {hashlib.sha256(' '.join(digests).encode()).hexdigest()[:16]}"


def _window(world: World, number: int, days: int, seed: int) -> tuple[Window, World]:
    """Return a window; the ones before are made first, because its keys and its references go on from theirs."""
    for each in range(1, number):
        world = next_window(world, each, days, seed)[1]
    return next_window(world, number, days, seed)


def _refuse_other_number(where: str, before: int, after: int | None, days: int) -> None:
    if after not in {None, before}:
        raise PublishError(f"{where}: holds {before} windows of {days} days, not {after}; nothing was appended")


def _missing(world: World, database: _Database, days: int, after: int | None, seed: int) -> Window:
    """Return the first window that a database does not hold."""
    where = database.where
    dated = sorted((name for name, rows in world.tables.items() if rows.dated), key=lambda name: -world.base[name])
    last = {name: [world.base[name] - 1] for name in dated[:3] if world.base[name]}  # of the largest tables
    base = _found(world, database, {name: (world.tables[name].rows, rows) for name, rows in last.items()})
    if None in base:
        raise PublishError(f"{where}: does not hold this bundle; load it first, without --append")
    if False in base:
        raise PublishError(f"{where}: holds other rows than those of this bundle; nothing was appended")
    empty = 0
    for number in count(1):
        window, world = next_window(world, number, days, seed)
        sought = {name: (window.rows[name], [0, window.rows[name].num_rows - 1]) for name in dated}
        found = _found(world, database, {name: each for name, each in sought.items() if each[0].num_rows})
        if False in found:
            raise PublishError(
                f"{where}: holds other rows under the keys of window {number} (of {days} days, seed {seed});"
                " append with the days and the seed of the first time"
            )
        if True not in found and window.total:
            _refuse_other_number(where, number - 1, after, days)
            return window
        empty = 0 if window.total else empty + 1
        if empty == QUARTER:  # as many windows as there are templates
            break
    raise PublishError(f"{where}: the last weeks of the bundle have no rows to continue; append more days at a time")


def _found(world: World, database: _Database, sought: dict[str, tuple[Any, Sequence[int]]]) -> set[bool | None]:
    """Return what is known of rows, see `_Database.find`."""
    return {
        database.find(finding_query(world.schema, world.schema.table(name), world.tables[name].dated or "", rows, row))
        for name, (rows, places) in sought.items()
        for row in places
    }


@dataclass(frozen=True)
class _Database:
    """A database that holds a bundle, in a transaction.

    Attributes:
        where: What messages call it.
        ask: Returns the first row that a query finds.
        absent: What it raises where there is no such table or column.
        insert: Inserts the rows of a window.
    """

    where: str
    ask: Callable[[str], Sequence[Any] | None]
    absent: tuple[type[Exception], ...]
    insert: Callable[[Bundle, Window], None]

    def find(self, query: str) -> bool | None:
        """Return what a query finds: None if there is no row, or no table; else whether it is as it should be."""
        try:
            row = self.ask(query)
        except self.absent:
            return None
        return None if row is None else bool(row[0])


@contextmanager
def _database(target: str) -> Iterator[_Database]:
    """Open a database for one transaction: committed at the end, rolled back on any error."""
    if re.match(r"postgres(ql)?(\+\w+)?://", target):
        with _postgres(target) as found:
            yield found
        return
    file = Path(target.removeprefix("duckdb:///")).expanduser().resolve()
    if file.suffix != ".duckdb":
        raise PublishError(
            "target: neither PostgreSQL, nor DuckDB, nor a file of statements; give postgresql://user@host/database,"
            " or a path that ends in .duckdb or .sql"
        )
    import duckdb

    if not file.exists():
        raise PublishError(f"{file}: is not there; load the bundle into it first, without --append")
    try:
        with duckdb.connect(str(file)) as connection:

            def insert(bundle: Bundle, window: Window) -> None:
                for statement in duckdb_statements(bundle.schema, window):
                    connection.execute(statement)

            connection.begin()
            absent = (duckdb.CatalogException,)
            yield _Database(str(file), lambda query: connection.execute(query).fetchone(), absent, insert)
            connection.commit()
    except duckdb.Error as error:
        raise PublishError(
            f"{file}: refused the rows, and nothing was changed: {str(error).splitlines()[0]}"
        ) from error


@contextmanager
def _postgres(target: str) -> Iterator[_Database]:
    import psycopg

    from privbench_core.backends.postgres.load import changing

    with changing(target, "rows") as there:

        def ask(query: str) -> Sequence[Any] | None:
            with there.connection.transaction():
                return there.connection.execute(query.encode()).fetchone()

        def insert(bundle: Bundle, window: Window) -> None:
            rows = insert_statements(bundle.schema, window)
            statements = [*rows, *move_to_heirs(bundle.schema), *counter_statements(bundle.schema)]
            for first in range(0, len(statements), _AT_ONCE):
                there.connection.execute("\n".join(statements[first : first + _AT_ONCE]).encode())

        absent = psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn
        yield _Database(there.where, ask, absent, insert)


def insert_statements(schema: Schema, window: Window) -> Iterator[str]:
    """Yield a statement per row, in the order of the stream: after each of them the database is consistent.

    Both databases read them, but for bytes and for columns that PostgreSQL alone always numbers.
    """
    tables = [schema.table(name) for name in window.rows]
    always = [any(column.sequence and column.sequence.always for column in table.columns) for table in tables]
    heads = [
        f"{_head(table, schema)}{' OVERRIDING SYSTEM VALUE' if numbered else ''} VALUES"
        for table, numbered in zip(tables, always, strict=True)
    ]
    values = [_row_values(table, window.rows[table.name], schema, for_duckdb=False) for table in tables]
    for table, row in window.order.tolist():
        yield f"{heads[table]} ({values[table][row]});"


def duckdb_statements(schema: Schema, window: Window) -> Iterator[str]:
    """Yield statements of many rows, table by table: DuckDB is slow with single rows, and holds no circle of keys."""
    for name, rows in window.rows.items():
        table = schema.table(name)
        values = _row_values(table, rows, schema, for_duckdb=True)
        for first in range(0, len(values), _AT_ONCE):
            yield f"{_head(table, schema)} VALUES ({'), ('.join(values[first : first + _AT_ONCE])});"


def _head(table: Table, schema: Schema) -> str:
    return f"INSERT INTO {qualified(table.name, schema.schemas)} ({name_list(c.name for c in table.columns)})"


def _row_values(table: Table, rows: pa.Table, schema: Schema, *, for_duckdb: bool) -> list[str]:
    """Return the values of each row as SQL, with commas."""
    columns = [_literals(column, rows.column(column.name), schema, for_duckdb=for_duckdb) for column in table.columns]
    return [", ".join(row) for row in zip(*columns, strict=True)]


def _literals(column: Column, values: pa.ChunkedArray, schema: Schema, *, for_duckdb: bool = False) -> list[str]:
    """Return values as SQL literals."""
    kind = values.type
    if column.is_array:
        stored = sql_type(column, schema.schemas)
        texts = values.to_pylist()
        return ["NULL" if text is None else f"{_array(json.loads(text))}::{stored}" for text in texts]
    if pa.types.is_binary(kind):
        return [
            "NULL" if value is None else f"'{_bytes(value, for_duckdb=for_duckdb)}'" for value in values.to_pylist()
        ]
    if pa.types.is_duration(kind):
        spelled = pc.binary_join_element_wise(values.cast(pa.int64()).cast(pa.string()), "microseconds", " ")
    else:
        spelled = values.cast(pa.string())
    bare = pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_boolean(kind)
    return ["NULL" if text is None else text if bare else quote_text(text) for text in spelled.to_pylist()]


def _bytes(value: bytes, *, for_duckdb: bool) -> str:
    return "".join(f"\\x{byte:02X}" for byte in value) if for_duckdb else f"\\x{value.hex()}"


def _array(value: Any) -> str:
    if isinstance(value, list):
        return f"ARRAY[{', '.join(map(_array, value))}]"
    if isinstance(value, str):
        return quote_text(value)
    return "NULL" if value is None else json.dumps(value)


def finding_query(schema: Schema, table: Table, dated: str, rows: pa.Table, row: int) -> str:
    """Return a query that finds a row by its key: whether it has the date or time that it should have."""
    one = rows.slice(row, 1)
    known = {name: _literals(table.column(name), one.column(name), schema)[0] for name in (*table.primary_key, dated)}
    keys = " AND ".join(f"{quote_identifier(name)} = {known[name]}" for name in table.primary_key)
    return (
        f"SELECT {quote_identifier(dated)} = {known[dated]} FROM {qualified(table.name, schema.schemas)} WHERE {keys}"
    )
