"""What loading a bundle has in common, whatever the target."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from privbench_core.errors import PublishError
from privbench_core.publish.bundle import Bundle

_SHOWN = 5  # names in a message
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
