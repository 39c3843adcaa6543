"""Statements of DuckDB that Ctrl-C stops: one that writes looks at no signal until it ends, however long that takes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import duckdb


def execute(connection: duckdb.DuckDBPyConnection, statement: str) -> None:
    """Run a statement in a thread, so that this one can be interrupted; then stop the statement, and wait for its end.

    Raises:
        KeyboardInterrupt: Ctrl-C; what the statement began is rolled back with its transaction.
        duckdb.Error: The statement failed.
    """
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(connection.execute, statement)
        try:
            running.result()
        except KeyboardInterrupt:
            connection.interrupt()
            raise
