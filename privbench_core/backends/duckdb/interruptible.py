"""Work of DuckDB that Ctrl-C stops: a statement may look at no signal until it ends, however long that takes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
        running = pool.submit(work)
        try:
            return running.result()
        except KeyboardInterrupt:
            connection.interrupt()
            raise
