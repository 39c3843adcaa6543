"""One column of a spec: its type, its declared domain and the keys that belong to some types only."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from privbench_core.errors import did_you_mean
from privbench_core.schema.columns import (
    Column,
    ColumnType,
    Domain,
    EnumType,
    IdentitySequence,
    Learn,
    Pattern,
    Range,
    Relative,
    Values,
)
from privbench_core.schema.types.base import OrderedType
from privbench_core.schema.types.registry import known_sql_types, parse_sql_type
from privbench_core.spec import forms
from privbench_core.spec.fields import Kind, Node, Problems

_OPTIONS = ("precision", "scale", "max_length", "identity")  # of some types only
_TEXT_HINT = "write {pattern: a regular expression} or {faker: email}, or leave it out; or make it a category"


def parse_column(table: str, name: str, raw: object, problems: Problems, enums: Mapping[str, EnumType]) -> Column:
    """Read one column: a mapping, or just the name of its type.

    A column of unknown type is reported and read as text, so that keys can still refer to it. Its ``sql_type`` may be
    one of the ``enums``.
    """
    node = Node(f"{table}.{name}", raw if isinstance(raw, dict) else {"type": raw}, problems)
    found, todo = node.read(forms.COLUMN), {name: key.todo for name, key in forms.COLUMN.keys.items()}
    types = [kind.value for kind in ColumnType]
    if found["type"] not in types:
        if node.has("type"):
            misspelt = isinstance(found["type"], str)
            node.wrong("type", did_you_mean(found["type"], types) if misspelt else todo["type"])
        return Column(name, ColumnType.TEXT, nullable=found["nullable"])
    kind, sql_type = ColumnType(found["type"]), found["sql_type"]
    if found["precision"] and found["scale"] and found["scale"] > found["precision"]:
        node.wrong("scale", todo["scale"])
    if "precision" in kind.logical.options and not (node.has("precision") and node.has("scale")):
        node.add("a decimal without precision and scale", "declare both, as in NUMERIC(8, 2)")
    for option in _OPTIONS:
        if node.has(option) and option not in kind.logical.options:
            *most, last = (other for other in ColumnType if option in other.logical.options)
            owners = f"{', '.join(most)} and {last}" if most else last
            node.add(f"{option} on a column of type {kind}", f"it belongs to {owners} columns; remove it")
    stored = None if sql_type is None else parse_sql_type(sql_type)
    if sql_type is not None and stored is None and sql_type not in enums:
        hint = did_you_mean(sql_type, [*enums, *known_sql_types()])
        node.wrong("sql_type", f"{hint} (or declare it under enums)")
    if found["sequence"] is not None and not found["identity"]:
        node.wrong("sequence", todo["sequence"])
    sequence = node.inside("sequence").build(forms.SEQUENCE, IdentitySequence)
    room = stored.length if stored and kind.logical.length_unit else None
    base, is_relative = found.pop("relative_to"), node.has("relative_to")
    meant = {
        "type": kind,
        "domain": None if is_relative else _domain(node, kind),
        "max_length": found["max_length"] or min(Column.max_length, room or Column.max_length),
        "sequence": None if sequence == IdentitySequence() else sequence,
        "relative": _relative(node, kind, base) if is_relative else None,
    }
    return Column(name, **found | meant)


def _relative(node: Node, kind: ColumnType, to: str | None) -> Relative | None:
    """Return what a column is relative to: the domain is then that of the difference."""
    if kind.difference is None:
        todo = "only whole numbers, decimals, dates, times and spans have exact differences"
        money = " (money in floats: type: decimal with sql_type: real)" if kind is ColumnType.FLOAT else ""
        node.add(f"relative_to on a column of type {kind}", f"{todo}{money}; remove it")
        return None
    if not node.has("domain"):
        what = "days" if kind is ColumnType.DATE else f"values of type {kind.difference}"
        todo = f"declare that of the difference, in {what}: {{min:, max:}}, or domain: learn (paid for)"
        node.add("relative_to without a domain", todo)
        return None
    domain = _domain(node, kind.difference)
    if isinstance(domain, Learn) and domain.listed:
        node.add("values: learn of differences", "write domain: learn, for a range of them")
        return None
    return Relative(to, domain) if to is not None and domain is not None else None


def _domain(node: Node, kind: ColumnType) -> Domain | None:
    """Return the domain of a column of a known type; None if there is none, or one that is reported as wrong."""
    logical, raw, inner = kind.logical, node.fields.get("domain"), node.inside("domain")
    if raw is None:
        return None
    if logical.no_domain is not None:
        node.add(f"a domain on a column of type {kind}", logical.no_domain)
    elif kind.opaque and list(inner.fields) == ["pattern"]:
        return inner.build(forms.PATTERN, Pattern)
    elif kind.opaque and list(inner.fields) == ["faker"]:
        return inner.build(forms.FAKER, partial(Pattern, None))
    elif kind.opaque:
        node.wrong("domain", _TEXT_HINT)
    elif raw == "learn":
        return Learn()
    elif "values" in inner.fields:
        return _values(inner, kind)
    elif isinstance(raw, dict) and isinstance(logical, OrderedType):
        return _range(inner, logical)
    else:
        shape = "{min:, max:}" if kind.ordered else "{values: [..]}"
        node.wrong("domain", f"declare domain: {shape}, or domain: learn (paid for)")
    return None


def _values(node: Node, kind: ColumnType) -> Values | Learn | None:
    raw, logical = node.read(forms.VALUES)["values"], kind.logical
    if raw == "learn" and kind is ColumnType.INTEGER:
        return Learn(listed=True)
    if raw == "learn":
        todo = "write domain: learn; only whole numbers learn either a range or a list"
        node.add(f"values: learn on a column of type {logical}", todo)
    elif not logical.listable:
        node.add(f"a list of values for the type {logical}", "declare domain: {min:, max:} instead")
    elif raw is not None:
        values = tuple(map(logical.parse, raw))
        if None in values:
            todo = f"each must be {logical.expected}; NULL is not listed but declared by nullable: true"
            node.add(f"values holds {raw[values.index(None)]!r}", todo)
        elif len(set(values)) < len(values):
            twice = next(value for value in values if values.count(value) > 1)
            node.add(f"values holds {twice!r} twice", "list every value once")
        else:
            return Values(tuple(value for value in values if value is not None))
    return None


def _range(node: Node, logical: OrderedType) -> Range | None:
    ends, steps = Kind(logical.parse, {}), Kind(logical.parse_step, {})
    found = node.build(forms.range_form(ends, steps, logical.expected, logical.step_expected), Range)
    if found is not None and logical.sort_key(found.low) > logical.sort_key(found.high):
        node.add(f"min {found.low!r} is above max {found.high!r}", "swap or correct them")
        return None
    return found
