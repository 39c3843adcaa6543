"""Append the next days to what holds a bundle: to a database, or to a file of INSERT statements.

Nothing is stored of what was appended. A window follows from the bundle, its number, its length and the seed. So its
rows are looked for in a database, and the first window that is not there is the next one. A file says what it holds.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privbench_core.backends.postgres.ddl import counter_statements
from privbench_core.continuation.stream import duckdb_statements, finding_query, insert_statements
from privbench_core.continuation.window import Window, next_window
from privbench_core.continuation.world import World, read_world
from privbench_core.errors import PublishError
from privbench_core.files import write_durably
from privbench_core.publishing.bundle import Bundle, parts_of, read_bundle

if TYPE_CHECKING:
    import duckdb
    import psycopg

_BATCH = 1000  # statements sent at a time
_SOUGHT = 3  # tables whose rows are looked for, the largest
_DIGITS = 16  # of a digest, in hexadecimal
_EMPTY = 13  # windows without a row, after which there is none to come
_MARK = "-- privbench: window {number} of {days} days, seed {seed}, after the bundle {bundle}: {first} to {last}"
_MARKED = re.compile(
    r"^-- privbench: window (\d+) of (\d+) days, seed (\d+), after the bundle (.+): [\d-]+ to [\d-]+$", re.MULTILINE
)
_DAY_ZERO = dt.date(1970, 1, 1)


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

    Args:
        bundle: Folder of a bundle; its checksums are verified first.
        target: See `load_bundle`; or a path that ends in ``.sql``, made if it is not there.
        days: Length of a window; the same each time.
        after: How many windows the target has before; None for as many as it has.
        seed: The same each time.

    Returns:
        The days, and the rows by table.

    Raises:
        PublishError: The bundle is damaged or has no dates, the target does not hold it or refuses, or holds windows of
            another length, seed or number. The target is then unchanged. No message contains a password.
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
    first, last = (str(_DAY_ZERO + dt.timedelta(days=day)) for day in (window.first, window.last))
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
    return f"{bundle.schema.name} {hashlib.sha256(' '.join(digests).encode()).hexdigest()[:_DIGITS]}"


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
    last = {name: [world.base[name] - 1] for name in dated[:_SOUGHT] if world.base[name]}
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
        if empty == _EMPTY:
            break
    raise PublishError(f"{where}: the last weeks of the bundle have no rows to continue; append more days at a time")


def _found(world: World, database: _Database, sought: dict[str, tuple[Any, Sequence[int]]]) -> set[bool | None]:
    """Return what is known of rows, see `_Database.find`."""
    return {
        database.find(finding_query(world.schema, world.schema.table(name), world.tables[name].dated or "", rows, row))
        for name, (rows, places) in sought.items()
        for row in places
    }


class _Database(ABC):
    """A database that holds a bundle, in a transaction.

    Attributes:
        where: What messages call it.
    """

    where: str

    @abstractmethod
    def find(self, query: str) -> bool | None:
        """Return what a query finds: None if there is no row, or no table; else whether it is as it should be."""

    @abstractmethod
    def insert(self, bundle: Bundle, window: Window) -> None:
        """Insert the rows of a window."""


class _DuckDB(_Database):
    def __init__(self, connection: duckdb.DuckDBPyConnection, where: str) -> None:
        self.connection, self.where = connection, where

    def find(self, query: str) -> bool | None:
        import duckdb

        try:
            row = self.connection.execute(query).fetchone()
        except duckdb.CatalogException:
            return None
        return None if row is None else bool(row[0])

    def insert(self, bundle: Bundle, window: Window) -> None:
        for statement in duckdb_statements(bundle.schema, window):
            self.connection.execute(statement)


class _Postgres(_Database):
    def __init__(self, connection: psycopg.Connection[Any], where: str) -> None:
        self.connection, self.where = connection, where

    def find(self, query: str) -> bool | None:
        import psycopg

        try:
            with self.connection.transaction():
                row = self.connection.execute(query.encode()).fetchone()
        except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn):
            return None
        return None if row is None else bool(row[0])

    def insert(self, bundle: Bundle, window: Window) -> None:
        statements = [*insert_statements(bundle.schema, window), *counter_statements(bundle.schema)]
        for first in range(0, len(statements), _BATCH):
            self.connection.execute("\n".join(statements[first : first + _BATCH]).encode())


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
            connection.begin()
            yield _DuckDB(connection, str(file))
            connection.commit()
    except duckdb.Error as error:
        raise PublishError(
            f"{file}: refused the rows, and nothing was changed: {str(error).splitlines()[0]}"
        ) from error


@contextmanager
def _postgres(target: str) -> Iterator[_Database]:
    from privbench_core.backends.postgres.load import changing

    with changing(target, "rows") as there:
        yield _Postgres(there.connection, there.where)
