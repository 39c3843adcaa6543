"""The ``domain`` of a column in a spec: a range, a list of values, ``learn``, or a public pattern of text."""

from __future__ import annotations

import re

from privbench_core.schema.columns import ColumnType, Domain, Learn, Pattern, Range, Scalar, Values
from privbench_core.schema.types.base import OrderedType
from privbench_core.spec.fields import MAX_COUNT, Node

_ORDERED_HINT = "declare domain: {min:, max:}, or domain: learn (paid for)"
_LIST_HINT = "declare domain: {values: [..]}, or domain: learn (paid for)"
_TEXT_HINT = "write {pattern: a regular expression} or {faker: email}, or leave it out; or make it a category"
_PROVIDER = re.compile(r"[a-z][a-z0-9_]*")


def parse_domain(node: Node, kind: ColumnType) -> Domain | None:
    """Return the domain of a column of a known type; None if there is none, or one that is reported as wrong."""
    logical = kind.logical
    raw = node.fields.get("domain")
    if raw is None:
        return None
    if logical.no_domain is not None:
        node.problems.add(node.where, f"a domain on a column of type {kind}", logical.no_domain)
        return None
    inner = Node(node.where, raw if isinstance(raw, dict) else {}, node.problems)
    if kind.opaque:
        if len(inner.fields) == 1 and not inner.fields.keys().isdisjoint({"pattern", "faker"}):
            return _pattern(inner)
        node.wrong("domain", _TEXT_HINT)
        return None
    if raw == "learn":
        return Learn()
    if "values" in inner.fields:
        return _values(inner, kind)
    if isinstance(raw, dict) and isinstance(logical, OrderedType):
        return _range(inner, logical)
    node.wrong("domain", _ORDERED_HINT if kind.ordered else _LIST_HINT)
    return None


def _pattern(node: Node) -> Pattern | None:
    if "faker" in node.fields:
        provider = node.fields["faker"]
        if isinstance(provider, str) and _PROVIDER.fullmatch(provider):
            return Pattern(provider=provider)
        node.wrong("faker", "name a provider of the Faker library, like email, name, phone_number or address")
        return None
    regex = node.fields["pattern"]
    try:
        compiled = re.compile(regex) if isinstance(regex, str) and regex else None
    except (re.error, RecursionError, OverflowError):
        compiled = None
    if compiled is None:
        node.wrong("pattern", "write a regular expression in quotes, like '[A-Z]{2}[0-9]{6}'")
        return None
    return Pattern(regex=compiled.pattern)


def _values(node: Node, kind: ColumnType) -> Values | Learn | None:
    node.only("values")
    raw, logical = node.fields["values"], kind.logical
    if raw == "learn" and kind is ColumnType.INTEGER:
        return Learn(listed=True)
    if raw == "learn":
        todo = "write domain: learn; only whole numbers learn either a range or a list"
        node.problems.add(node.where, f"values: learn on a column of type {logical}", todo)
    elif not logical.listable:
        node.problems.add(
            node.where, f"a list of values for the type {logical}", "declare domain: {min:, max:} instead"
        )
    elif not isinstance(raw, list) or not raw:
        node.wrong("values", "list at least one value")
    else:
        found = [logical.parse(value) for value in raw]
        values = [value for value in found if value is not None]
        if len(values) < len(found):
            todo = f"each must be {logical.expected}; NULL is not listed but declared by nullable: true"
            node.problems.add(node.where, f"values holds {raw[found.index(None)]!r}", todo)
        elif len(set(values)) < len(values):
            twice = next(value for value in values if values.count(value) > 1)
            node.problems.add(node.where, f"values holds {twice!r} twice", "list every value once")
        else:
            return Values(tuple(values))
    return None


def _range(node: Node, logical: OrderedType) -> Range | None:
    node.only("min", "max", "cells", "step")
    cells = node.count("cells", 1, MAX_COUNT, "write a positive number of cells, or leave it out")
    low, high, step = _end(node, "min", logical), _end(node, "max", logical), _step(node, logical)
    if low is None or high is None:
        return None
    if logical.sort_key(low) > logical.sort_key(high):
        node.problems.add(node.where, f"min {low!r} is above max {high!r}", "swap or correct them")
        return None
    return Range(low, high, cells, step)


def _step(node: Node, logical: OrderedType) -> Scalar | None:
    if not node.has("step"):
        return None
    value = logical.parse_step(node.fields["step"])
    if value is None:
        node.wrong("step", f"write {logical.step_expected}")
    return value


def _end(node: Node, key: str, logical: OrderedType) -> Scalar | None:
    value = logical.parse(node.fields.get(key))
    if value is None:
        node.wrong(key, f"write {logical.expected}")
    return value
