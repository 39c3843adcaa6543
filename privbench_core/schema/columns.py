"""One column of a spec: its type, its declared domain and what belongs to the type."""

from __future__ import annotations

from dataclasses import replace

from privbench_core.errors import did_you_mean
from privbench_core.schema.fields import MAX_COUNT, Node, Problems
from privbench_core.schema.model import Column, ColumnType, Domain, Learn, Range, Scalar, Values
from privbench_core.schema.scalars import EXPECTED, canonical_scalar, sort_key

_MAX_PRECISION = 38  # of decimal128, and enough for every database's default
_DOMAIN_HINT = {
    True: "declare domain: {min:, max:}, or domain: learn (paid for)",
    False: "declare domain: {values: [..]}, or domain: learn (paid for)",
}
_NO_DOMAIN = {
    ColumnType.BOOLEAN: "remove it: a boolean has two values",
    ColumnType.TEXT: "remove it: only the length of text is modelled; or make it a category",
}


def parse_column(table: str, name: str, raw: object, problems: Problems) -> Column:
    """Read one column: a mapping, or just the name of its type.

    A column whose type is wrong is reported and stands as text, so that keys may still refer to it.
    """
    node = Node(f"{table}.{name}", raw if isinstance(raw, dict) else {"type": raw}, problems)
    node.only("type", "domain", "nullable", "precision", "scale", "max_length")
    types = [kind.value for kind in ColumnType]
    spelled = node.fields.get("type")
    if spelled not in types:
        hint = did_you_mean(spelled, types) if isinstance(spelled, str) else f"known: {', '.join(types)}"
        node.wrong("type", hint)
        return Column(name, ColumnType.TEXT, nullable=node.flag("nullable"))
    kind = ColumnType(spelled)
    precision = node.count("precision", 1, _MAX_PRECISION, f"write a number of digits from 1 to {_MAX_PRECISION}")
    scale = node.count("scale", 0, precision or _MAX_PRECISION, "write a number of decimals from 0 to the precision")
    if kind is ColumnType.DECIMAL and not (node.has("precision") and node.has("scale")):
        problems.add(node.where, "a decimal without precision and scale", "declare both, as in NUMERIC(8, 2)")
    for key, owner in (("precision", "decimal"), ("scale", "decimal"), ("max_length", "text")):
        if node.has(key) and kind != owner:
            problems.add(node.where, f"{key} on a column of type {kind}", f"it belongs to {owner} columns; remove it")
    length = node.count("max_length", 1, MAX_COUNT, "write a positive number of characters")
    column = Column(name, kind, _domain(node, kind), node.flag("nullable"), precision, scale)
    return column if length is None else replace(column, max_length=length)


def _domain(node: Node, kind: ColumnType) -> Domain | None:
    raw = node.fields.get("domain")
    if raw is None:
        return None
    if kind not in EXPECTED:
        node.problems.add(node.where, f"a domain on a column of type {kind}", _NO_DOMAIN[kind])
        return None
    if raw == "learn":
        return Learn()
    if isinstance(raw, dict) and "values" in raw:
        return _values(Node(node.where, raw, node.problems), kind)
    if isinstance(raw, dict) and kind.ordered:
        return _range(Node(node.where, raw, node.problems), kind)
    node.wrong("domain", _DOMAIN_HINT[kind.ordered])
    return None


def _values(node: Node, kind: ColumnType) -> Values | None:
    node.only("values")
    raw = node.fields["values"]
    if kind not in {ColumnType.INTEGER, ColumnType.CATEGORY}:
        node.problems.add(node.where, f"a list of values for the type {kind}", "declare domain: {min:, max:} instead")
    elif not isinstance(raw, list) or not raw:
        node.wrong("values", "list at least one value")
    else:
        found = [canonical_scalar(kind, value) for value in raw]
        values = [value for value in found if value is not None]
        if len(values) < len(found):
            todo = f"each must be {EXPECTED[kind]}; NULL is not listed but declared by nullable: true"
            node.problems.add(node.where, f"values holds {raw[found.index(None)]!r}", todo)
        elif len(set(values)) < len(values):
            twice = next(value for value in values if values.count(value) > 1)
            node.problems.add(node.where, f"values holds {twice!r} twice", "list every value once")
        else:
            return Values(tuple(values))
    return None


def _range(node: Node, kind: ColumnType) -> Range | None:
    node.only("min", "max", "cells")
    cells = node.count("cells", 1, MAX_COUNT, "write a positive number of cells, or leave it out")
    low, high = _end(node, "min", kind), _end(node, "max", kind)
    if low is None or high is None:
        return None
    if sort_key(kind, low) > sort_key(kind, high):
        node.problems.add(node.where, f"min {low!r} is above max {high!r}", "swap or correct them")
        return None
    return Range(low, high, cells)


def _end(node: Node, key: str, kind: ColumnType) -> Scalar | None:
    value = canonical_scalar(kind, node.fields.get(key))
    if value is None:
        node.wrong(key, f"write {EXPECTED[kind]}")
    return value
