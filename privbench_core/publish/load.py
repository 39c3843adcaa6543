"""Loading a bundle into a database, all of it or nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from privbench_core.errors import PublishError
from privbench_core.publish.bundle import Bundle, read_bundle

_SHOWN = 5  # names in a message
_DUCKDB_SCHEME = "duckdb:///"
_TOKEN = re.compile(r"""\b[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|;""", re.DOTALL)


@dataclass(frozen=True)
class Loaded:
    """What a load did.

    Attributes:
        rows: Rows loaded by table.
        left_out: What of the schema the target cannot hold, in words.
    """

    rows: dict[str, int]
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Statements:
    """The statements of a schema.sql.

    Attributes:
        tables: CREATE TYPE and CREATE TABLE, to be run before rows are loaded.
        keys: Keys, constraints and indexes, faster afterwards.
    """

    tables: tuple[str, ...]
    keys: tuple[str, ...]


def load_bundle(bundle: Path, target_url: str, *, replace: bool = False) -> Loaded:
    """Create the tables in a database and load the rows, then keys and indexes, then gather statistics.

    Args:
        bundle: Folder of a bundle; its checksums are verified first.
        target_url: ``postgresql://...`` (a SQLAlchemy driver such as ``+psycopg`` may stand in it, and
            ``?schema=name``), ``duckdb:///path`` or a path that ends in ``.duckdb``.
        replace: Whether the target may hold tables: those of the same names are dropped first, with the enums of the
            same names. Nothing that depends on them is, and no other table is touched.

    Returns:
        Rows loaded by table, and what was left out.

    Raises:
        PublishError: The bundle is damaged, the target is unknown or refuses, or is not empty. The target is then as it
            was. No message holds a password.
    """
    opened = read_bundle(bundle)
    if target_url.startswith(_DUCKDB_SCHEME) or ("://" not in target_url and target_url.endswith(".duckdb")):
        from privbench_core.publish.load_duckdb import load_duckdb

        return load_duckdb(opened, Path(target_url.removeprefix(_DUCKDB_SCHEME)), replace=replace)
    if re.match(r"postgres(ql)?(\+\w+)?://", target_url):
        from privbench_core.publish.load_postgres import load_postgres

        return load_postgres(opened, target_url, replace=replace)
    raise PublishError(
        "target: neither PostgreSQL nor DuckDB; give postgresql://user@host/database, or a path that ends in .duckdb"
    )


def statements_of(bundle: Bundle) -> Statements:
    """The statements of a bundle's schema.sql, in two groups."""
    found = split_sql(bundle.schema_sql)
    tables = tuple(sql for sql in found if re.match(r"create\s+(table|type)\b", sql, re.IGNORECASE))
    return Statements(tables, tuple(sql for sql in found if sql not in tables))


def split_sql(script: str) -> list[str]:
    r"""The statements of a script, without semicolons and comments; those inside of quotes are kept.

    >>> split_sql("-- first; table\nCREATE TABLE a (\"x;y\" text); -- and so on")
    ['CREATE TABLE a ("x;y" text)']
    """
    bare = _TOKEN.sub(lambda token: "" if token[0].startswith("--") else token[0], script)
    statements, begin = [], 0
    for token in _TOKEN.finditer(bare):
        if token[0] == ";":
            statements.append(bare[begin : token.start()].strip())
            begin = token.end()
    return [sql for sql in [*statements, bare[begin:].strip()] if sql]


def refuse_tables(found: Sequence[str], of_bundle: Sequence[str], where: str) -> None:
    """PublishError if a target holds any table."""
    same = sorted(set(found) & set(of_bundle))
    if same:
        raise PublishError(
            f"{where}: has {_some(same)} already; pass --replace to drop and load anew, or choose another target"
        )
    if found:
        raise PublishError(
            f"{where}: is not empty (it has {_some(sorted(found))}); pass --replace to load beside what is there, or"
            " choose another target"
        )


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown
