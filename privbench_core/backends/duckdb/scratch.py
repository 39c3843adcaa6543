"""A scratch database in memory, for statements of which nothing is kept: making one takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_NUMBERS = count()


@contextmanager
def scratch() -> Iterator[DuckDBPyConnection]:
    """A connection to an empty database that is gone afterwards. Its statements reach no file, and others only by name.

    Threads may each have one at the same time.
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
    """What all scratch databases share: its threads and memory."""
    import duckdb

    return duckdb.connect(config={"enable_external_access": "false"})
