"""The record of a database: what each step was made from, and what the source was when it was last looked at.

One SQLite file in the database's folder, so that hundreds of steps are read at once and several processes may write.
Losing it costs no budget: whatever is made again is found in the release store.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from privbench_core.errors import ReleaseError
from privbench_core.pipeline.places import record_file
from privbench_core.spec.model import Spec

_LONGEST_WAIT = 60.0  # seconds for another process that is writing
_TABLES = (
    (
        "create table if not exists made (cohort text, epsilon text, step text, manifest text,"
        " primary key (cohort, epsilon, step))"
    ),
    "create table if not exists observed (source text primary key, fingerprint text, at text)",
)


def read(spec: Spec, query: str, parameters: Sequence[str] = ()) -> list[tuple[str, ...]]:
    """Rows of a query; none if nothing was ever recorded.

    Raises:
        ReleaseError: The record is damaged.
    """
    path = record_file(spec)
    if not path.exists():
        return []
    with _refusing(path), closing(sqlite3.connect(path, timeout=_LONGEST_WAIT)) as connection:
        if not connection.execute("select 1 from sqlite_master where name = 'observed'").fetchall():
            return []  # the process that began the file was stopped before its last table
        return connection.execute(query, parameters).fetchall()


def write(spec: Spec, statement: str, rows: Iterable[Sequence[str]]) -> None:
    """Run a statement for each of ``rows``, all or none.

    Raises:
        ReleaseError: The record is damaged, or cannot be written.
    """
    path = record_file(spec)
    with _refusing(path), closing(sqlite3.connect(path, timeout=_LONGEST_WAIT)) as connection, connection:
        for table in _TABLES:
            connection.execute(table)
        connection.executemany(statement, rows)


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise ReleaseError(f"{path.name} of the state folder cannot be used: {error}") from error
    except sqlite3.DatabaseError as error:
        raise ReleaseError(
            f"{path.name} of the state folder is damaged. Remove it and make everything again, which costs nothing:"
            " what was released is kept"
        ) from error
