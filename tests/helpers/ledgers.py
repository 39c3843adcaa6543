"""A ledger's place in either database, and a way in that is not the ledger's own."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import make_url

from privbench_core.pipeline.workspace import open_ledger
from privbench_core.spec.location import connection_parameters, parse_url
from privbench_core.spec.model import Spec

DatabaseError = (sqlite3.DatabaseError, psycopg.Error)
Place = Path | str
_numbers = count()


def new_place(kind: str, folder: Path, server: Callable[[], str]) -> Place:
    """A place where no ledger is yet.

    Args:
        kind: "sqlite" or "postgresql".
        folder: For the file.
        server: URL of a PostgreSQL database, asked for when needed.
    """
    if kind == "sqlite":
        return folder / f"ledger-{next(_numbers)}.sqlite"
    url, name = server(), f"ledger_{next(_numbers)}"
    raw(url, f"create schema {name}")
    return make_url(url).update_query_dict({"schema": name}).render_as_string(hide_password=False)


def raw(place: Place, statement: str) -> list[tuple[Any, ...]]:
    """Run a statement behind the ledger's back; the rows it returns."""
    if isinstance(place, Path):
        connection = sqlite3.connect(place)
        try:
            with connection:
                return connection.execute(statement).fetchall()
        finally:
            connection.close()
    with psycopg.connect(**connection_parameters(parse_url(place)), autocommit=True) as server:
        cursor = server.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def states(spec: Spec) -> list[str]:
    """The states of all that a spec's ledger holds, oldest first: "reserved" or "released"."""
    with closing(open_ledger(spec)) as ledger:
        return [entry.state for entry in ledger.entries()]
