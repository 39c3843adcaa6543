"""Work of DuckDB that Ctrl-C stops: a statement may look at no signal until it ends, however long that takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import duckdb

T = TypeVar("T")


def waited(connection: duckdb.DuckDBPyConnection, work: Callable[[], T]) -> T:
    """Return what ``work`` on a connection finds in a thread, so that this one can be interrupted and stop it.

    Raises:
        KeyboardInterrupt: Ctrl-C; the work has ended, and what it began is rolled back with its transaction.
        duckdb.Error: The work failed.
    """
    with ThreadPoolExecutor(1) as pool:  # leaving waits for the thread
        return _result(connection, pool.submit(work))


def waited_ahead(connection: duckdb.DuckDBPyConnection, parts: Iterator[T]) -> Iterator[T]:
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


def _result(connection: duckdb.DuckDBPyConnection, running: Future[T]) -> T:
    try:
        return running.result()
    except KeyboardInterrupt:
        connection.interrupt()
        raise
