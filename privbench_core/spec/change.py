"""The ``change`` part of a table in a spec: how a change of its content is detected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from privbench_core.schema.change import Change, Content, VersionQuery, Watermark
from privbench_core.spec.fields import Node

_CHOICES = "write content, {watermark: updated_at} or {sql: 'select ..'}"


def parse_change(node: Node, *, public: bool) -> Change:
    """Return the ``change`` of a table, `Content` if it has none.

    Args:
        node: The table.
        public: Whether it is a public table. These are published row by row, so no change may be missed.
    """
    raw = node.fields.get("change")
    if raw in (None, "content"):  # not a set: the value may be unhashable
        return Content()
    if not isinstance(raw, dict) or len(raw) != 1:
        node.wrong("change", _CHOICES)
        return Content()
    if public:
        node.wrong("change", "a public table is published as it is, so its content is compared; remove the line")
        return Content()
    inner = Node(f"{node.where}.change", raw, node.problems)
    inner.only("watermark", "sql")
    column = inner.name("watermark", "name a column that grows with every change") if "watermark" in raw else None
    sql = inner.text("sql", "write a query that returns one row") if "sql" in raw else None
    if "sql" in raw and not inner.has("sql"):
        inner.wrong("sql", "write a query that returns one row")
    return Watermark(column) if column else VersionQuery(sql) if sql else Content()


def dump_change(change: Change) -> Mapping[str, Any]:
    """Return the part of a table's mapping; empty for `Content`."""
    match change:
        case Content():
            return {}
        case Watermark(column):
            return {"change": {"watermark": column}}
        case VersionQuery(sql):
            return {"change": {"sql": sql}}
