"""The ``change`` part of a table in a spec: how its content is compared with what it was."""

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
        public: Whether it is a public table. Those are published row by row, so nothing may be missed in them.
    """
    raw = node.fields.get("change")
    if raw in (None, "content"):  # no set: what stands there may have no hash
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
    """Return what a table's mapping holds about it; nothing for `Content`."""
    match change:
        case Content():
            return {}
        case Watermark(column):
            return {"change": {"watermark": column}}
        case VersionQuery(sql):
            return {"change": {"sql": sql}}
