"""What a published bundle keeps of its source's schema, by pg_dump, and whether plans of queries keep their shape."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
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


def similar_plans(source: str, copy: str, queries: Sequence[str]) -> list[bool]:
    """Return of each query whether both databases plan it with the same nodes and methods of joining."""
    shapes = [[_shape(url, query) for query in queries] for url in (source, copy)]
    return [one is not None and one == other for one, other in zip(*shapes, strict=True)]


def _shape(url: str, query: str) -> Any:
    """Return the kinds of the nodes of a plan, nested; None if the query fails."""
    with psycopg.connect(url) as connection:
        try:
            found = connection.execute(f"EXPLAIN (COSTS OFF, FORMAT JSON) {query}".encode()).fetchone()
        except psycopg.Error:
            return None
    assert found is not None
    plans = json.loads(found[0]) if isinstance(found[0], str) else found[0]
    return _nodes(plans[0]["Plan"])


def _nodes(node: dict[str, Any]) -> Any:
    return node["Node Type"], node.get("Join Type"), [_nodes(below) for below in node.get("Plans", [])]
