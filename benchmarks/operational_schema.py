"""What a published bundle keeps of its source's schema, by pg_dump, and whether plans of queries keep their shape."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import psycopg

_OBJECT = re.compile(r"^-- Name: (.+); Type: (.+); Schema: (.+?); Owner:.*$", re.MULTILINE)
_NO_DDL = ("--", "SET ", "SELECT pg_catalog", "\\")


class Loss(NamedTuple):
    """Lines of DDL of one kind of object: how many the source has, how many the copy lacks, of which objects."""

    kind: str
    lines: int
    lost: int
    names: list[str]


def lost_lines(source: str, copy: str) -> list[Loss]:
    """Return what a dump of a schema lacks of another one, by kind of object.

    A line is kept if the same kind of object has it in both, whatever the order of the columns of a table.
    """
    kept: dict[str, Counter[str]] = {}
    for kind, _, line in _lines(copy):
        kept.setdefault(kind, Counter())[line] += 1
    lines: Counter[str] = Counter()
    lost: dict[str, list[str]] = {}
    for kind, name, line in _lines(source):
        lines[kind] += 1
        there = kept.get(kind, Counter[str]())
        if there[line]:
            there[line] -= 1
        else:
            lost.setdefault(kind, []).append(name)
    return [Loss(k, n, len(lost.get(k, [])), [*dict.fromkeys(lost.get(k, []))]) for k, n in sorted(lines.items())]


def _lines(dump: str) -> list[tuple[str, str, str]]:
    """Return the lines of DDL of a dump, with kind and name of the object each is of."""
    parts = _OBJECT.split(dump)[1:]
    found = []
    for name, kind, schema, body in zip(*(parts[start::4] for start in range(4)), strict=True):
        for line in body.splitlines():
            plain = line.strip().rstrip(",")
            if plain and plain not in {"(", ")", ");"} and not line.startswith(_NO_DDL):
                found.append((kind, f"{schema}.{name}" if schema not in {"public", "-"} else name, plain))
    return found


@dataclass(frozen=True)
class Plan:
    """A plan of a query.

    Attributes:
        nodes: Their kinds and methods of joining, nested; None if the query fails.
        rows, cost: Of the query, as the planner expects them.
    """

    nodes: Any
    rows: float = 0
    cost: float = 0

    def is_like(self, other: Plan) -> bool:
        """Return whether both have the same nodes and methods of joining."""
        return self.nodes is not None and self.nodes == other.nodes

    def __str__(self) -> str:
        """Return the nodes, each with those below it in brackets, and what the planner expects."""
        return f"{_words(*self.nodes)} [{self.rows:,.0f} rows, cost {self.cost:,.2f}]" if self.nodes else "no plan"


def planned(url: str, queries: Sequence[str]) -> list[Plan]:
    """Return how a database plans queries."""
    with psycopg.connect(url, autocommit=True) as connection:
        return [_planned(connection, query) for query in queries]


def _planned(connection: psycopg.Connection[Any], query: str) -> Plan:
    try:
        found = connection.execute(f"EXPLAIN (FORMAT JSON) {query}".encode()).fetchone()
    except psycopg.Error:
        return Plan(None)
    assert found is not None
    top = (json.loads(found[0]) if isinstance(found[0], str) else found[0])[0]["Plan"]
    return Plan(_nodes(top), top["Plan Rows"], top["Total Cost"])


def _nodes(node: dict[str, Any]) -> Any:
    return node["Node Type"], node.get("Join Type"), [_nodes(below) for below in node.get("Plans", [])]


def _words(kind: str, join: str | None, below: Sequence[Any]) -> str:
    inside = f" ({', '.join(_words(*each) for each in below)})" if below else ""
    return f"{kind}{f' {join}' if join else ''}{inside}"
