"""Connections to DuckDB that Ctrl-C interrupts, and scratch databases of which nothing is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

T = TypeVar("T")
_MEMORY = "512MB"  # where that will do
_NUMBERS = count()


@contextmanager
def scratch() -> Iterator[DuckDBPyConnection]:
    """A connection to an empty database that is gone afterwards. Its statements reach no file, and others only by name.

    Threads may each have one at the same time. Making one takes longer than most statements, so all share an instance.
    """
    import duckdb

    name = f"scratch_{next(_NUMBERS)}"
    try:
        with _instance().cursor() as connection:
            connection.execute(f"ATTACH ':memory:' AS {name}")
            connection.execute(f"USE {name}")
            try:
                yield connection
            finally:
                with suppress(duckdb.TransactionException):
                    connection.execute("ROLLBACK")
                connection.execute("USE memory")
                connection.execute(f"DETACH {name}")
    except (duckdb.FatalException, duckdb.InternalException):
        _instance.cache_clear()  # after such an error DuckDB refuses all that is asked of an instance
        raise


@cache
def _instance() -> DuckDBPyConnection:
    import duckdb

    return duckdb.connect(config={"enable_external_access": "false"})


@contextmanager
def bounded() -> Iterator[DuckDBPyConnection]:
    """A connection to an empty database that keeps in a temporary folder what is beyond a bound on its memory."""
    import duckdb

    with TemporaryDirectory(prefix="privbench-duckdb-") as folder, duckdb.connect() as connection:
        connection.execute("SET temp_directory = ?", [folder])  # a database in a file takes longer
        connection.execute(f"SET memory_limit = '{_MEMORY}'")
        yield connection


def waited(connection: DuckDBPyConnection, work: Callable[[], T]) -> T:
    """Return what ``work`` on a connection finds in a thread, so that this one can be interrupted and stop it.

    Raises:
        KeyboardInterrupt: Ctrl-C; the work has ended, and what it began is rolled back with its transaction.
        duckdb.Error: The work failed.
    """
    with ThreadPoolExecutor(1) as pool:  # leaving waits for the thread
        return _result(connection, pool.submit(work))


def waited_ahead(connection: DuckDBPyConnection, parts: Iterator[T]) -> Iterator[T]:
    """Yield the parts that a statement on a connection finds; the next one is found while one is worked on.

    Raises:
        KeyboardInterrupt: Ctrl-C; the statement has ended.
        duckdb.Error: The statement failed.
    """
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(next, parts, None)
        while (part := _result(connection, waiting)) is not None:
            waiting = pool.submit(next, parts, None)
            try:
                yield part
            except BaseException:  # nobody wants the rest, and leaving waits for the thread
                connection.interrupt()
                raise


def _result(connection: DuckDBPyConnection, running: Future[T]) -> T:
    """Return what a statement finds; one of DuckDB handles no signal until it ends, however long that takes."""
    try:
        return running.result()
    except KeyboardInterrupt:
        connection.interrupt()
        raise
