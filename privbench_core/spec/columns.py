"""One column of a spec: its type, its declared domain and the keys that belong to some types only."""

from __future__ import annotations

import re
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
from privbench_core.schema.types.sql import known_sql_types, parse_sql_type
from privbench_core.spec.fields import (
    COMMENT,
    NAME,
    TEXT,
    YES_OR_NO,
    Form,
    Key,
    Kind,
    Node,
    Problems,
    anything,
    choice,
    count,
    either,
    list_of,
)

_MAX_PRECISION = 38  # of decimal128, and enough for every database's default
_OPTIONS = ("precision", "scale", "max_length", "identity")  # of some types only
_PROVIDER = re.compile(r"[a-z][a-z0-9_]*")
_PROVIDERS = "email, name, phone_number or address"
_TEXT_HINT = "write {pattern: a regular expression} or {faker: email}, or leave it out; or make it a category"


def _regex(text: object) -> str | None:
    try:
        return re.compile(text).pattern if isinstance(text, str) and text else None
    except (re.error, RecursionError, OverflowError):
        return None


def _provider(text: object) -> str | None:
    return text if isinstance(text, str) and _PROVIDER.fullmatch(text) else None


_SCALAR = anything({"type": ["number", "string", "boolean"]})
_LEARN = choice("learn")
_PATTERN = Form(pattern=Key(Kind(_regex, TEXT.schema), "write a regular expression in quotes, like '[A-Z]{2}[0-9]{6}'"))
_FAKER = Form(faker=Key(Kind(_provider, TEXT.schema), f"name a provider of the Faker library, like {_PROVIDERS}"))
_LIST = Kind(
    lambda value: value if value == "learn" or (isinstance(value, list) and value) else None,
    either(_LEARN, list_of(_SCALAR, 1)).schema,
)
_VALUES = Form(values=Key(_LIST, "list at least one value"))


def _range_form(end: Kind, step: Kind, expected: str, step_expected: str) -> Form:
    return Form(
        min=Key(end, f"write {expected}"),
        max=Key(end, f"write {expected}"),
        cells=Key(count(), "write a positive number of cells, or leave it out", None),
        step=Key(step, f"write {step_expected}", None),
    )


_RANGE = _range_form(_SCALAR, _SCALAR, "a value of the column's type", "a distance between values")
_DOMAIN = either(_LEARN, *(form.kind for form in (_RANGE, _VALUES, _PATTERN, _FAKER))).schema
SEQUENCE = Form(
    name=Key(TEXT, "write the sequence's name", None),
    increment=Key(count(), "write a positive number", 1),
    always=YES_OR_NO,
)
_TYPES = tuple(kind.value for kind in ColumnType)
COLUMN = Form(
    type=Key(anything(choice(*_TYPES).schema), f"known: {', '.join(_TYPES)}"),
    precision=Key(count(1, _MAX_PRECISION), f"write a number of digits from 1 to {_MAX_PRECISION}", None),
    scale=Key(count(0, _MAX_PRECISION), "write a number of decimals from 0 to the precision", None),
    max_length=Key(count(), "write a positive number of characters or bytes", None),
    relative_to=Key(NAME, "name the column that it is relative to, or table.column of its owner", None),
    domain=Key(anything(_DOMAIN), "declare what values there may be", None),
    nullable=YES_OR_NO,
    identity=YES_OR_NO,
    sql_type=Key(TEXT, "name a type of PostgreSQL, or an enum of this file", None),
    default=Key(TEXT, "write an SQL expression in quotes", None),
    comment=COMMENT,
    unit=Key(TEXT, "write what the numbers count, like EUR or minutes", None),
    sequence=Key(SEQUENCE.kind, "write {name:, increment:, always:} beside identity: true, or leave it out", None),
)


def parse_column(
    table: str, name: str, raw: object, problems: Problems, enums: Mapping[str, EnumType] | None = None
) -> Column:
    """Read one column: a mapping, or just the name of its type.

    A column of unknown type is reported and read as text, so that keys can still refer to it.

    Args:
        table: Name of its table.
        name: Name of the column.
        raw: Its value in the spec.
        problems: Collects mistakes.
        enums: The enums of the spec by name, for ``sql_type``.
    """
    node = Node(f"{table}.{name}", raw if isinstance(raw, dict) else {"type": raw}, problems)
    found = node.read(COLUMN)
    if found["type"] not in _TYPES:
        if node.has("type"):
            misspelt = isinstance(found["type"], str)
            node.wrong("type", did_you_mean(found["type"], _TYPES) if misspelt else COLUMN.keys["type"].todo)
        return Column(name, ColumnType.TEXT, nullable=found["nullable"])
    kind = ColumnType(found["type"])
    precision, scale = found["precision"], found["scale"]
    if precision and scale and scale > precision:
        node.wrong("scale", COLUMN.keys["scale"].todo)
    if "precision" in kind.logical.options and not (node.has("precision") and node.has("scale")):
        problems.add(node.where, "a decimal without precision and scale", "declare both, as in NUMERIC(8, 2)")
    for option in _OPTIONS:
        if node.has(option) and option not in kind.logical.options:
            *most, last = (other for other in ColumnType if option in other.logical.options)
            owners = f"{', '.join(most)} and {last}" if most else last
            todo = f"it belongs to {owners} columns; remove it"
            problems.add(node.where, f"{option} on a column of type {kind}", todo)
    sql_type = found["sql_type"]
    stored = None if sql_type is None else parse_sql_type(sql_type)
    if sql_type is not None and stored is None and sql_type not in (enums or {}):
        hint = did_you_mean(sql_type, [*(enums or {}), *known_sql_types()])
        node.wrong("sql_type", f"{hint} (or declare it under enums)")
    if found["sequence"] is not None and not found["identity"]:
        node.wrong("sequence", COLUMN.keys["sequence"].todo)
    sequence = node.inside("sequence").build(SEQUENCE, IdentitySequence)
    room = stored.length if stored and kind.logical.length_unit else None
    return Column(
        name,
        kind,
        None if node.has("relative_to") else _domain(node, kind),
        found["nullable"],
        precision,
        scale,
        found["max_length"] or min(Column.max_length, room or Column.max_length),
        sql_type,
        default=found["default"],
        identity=found["identity"],
        comment=found["comment"],
        sequence=None if sequence == IdentitySequence() else sequence,
        unit=found["unit"],
        relative=_relative(node, kind, found["relative_to"]) if node.has("relative_to") else None,
    )


def _relative(node: Node, kind: ColumnType, to: str | None) -> Relative | None:
    """Return what a column is relative to: the domain is then that of the difference."""
    if kind.difference is None:
        todo = "only whole numbers, decimals, dates, times and spans have exact differences"
        money = " (money in floats: type: decimal with sql_type: real)" if kind is ColumnType.FLOAT else ""
        node.problems.add(node.where, f"relative_to on a column of type {kind}", f"{todo}{money}; remove it")
        return None
    if not node.has("domain"):
        what = "days" if kind is ColumnType.DATE else f"values of type {kind.difference}"
        todo = f"declare that of the difference, in {what}: {{min:, max:}}, or domain: learn (paid for)"
        node.problems.add(node.where, "relative_to without a domain", todo)
        return None
    domain = _domain(node, kind.difference)
    if isinstance(domain, Learn) and domain.listed:
        node.problems.add(node.where, "values: learn of differences", "write domain: learn, for a range of them")
        return None
    return Relative(to, domain) if to is not None and domain is not None else None


def _domain(node: Node, kind: ColumnType) -> Domain | None:
    """Return the domain of a column of a known type; None if there is none, or one that is reported as wrong."""
    logical, raw = kind.logical, node.fields.get("domain")
    if raw is None:
        return None
    if logical.no_domain is not None:
        node.problems.add(node.where, f"a domain on a column of type {kind}", logical.no_domain)
        return None
    inner = node.inside("domain")
    if kind.opaque:
        if len(inner.fields) != 1 or inner.fields.keys().isdisjoint({"pattern", "faker"}):
            node.wrong("domain", _TEXT_HINT)
            return None
        regex = "pattern" in inner.fields
        return inner.build(_PATTERN, Pattern) if regex else inner.build(_FAKER, partial(Pattern, None))
    if raw == "learn":
        return Learn()
    if "values" in inner.fields:
        return _values(inner, kind)
    if isinstance(raw, dict) and isinstance(logical, OrderedType):
        return _range(inner, logical)
    shape = "{min:, max:}" if kind.ordered else "{values: [..]}"
    node.wrong("domain", f"declare domain: {shape}, or domain: learn (paid for)")
    return None


def _values(node: Node, kind: ColumnType) -> Values | Learn | None:
    raw, logical = node.read(_VALUES)["values"], kind.logical
    if raw == "learn" and kind is ColumnType.INTEGER:
        return Learn(listed=True)
    if raw == "learn":
        todo = "write domain: learn; only whole numbers learn either a range or a list"
        node.problems.add(node.where, f"values: learn on a column of type {logical}", todo)
    elif not logical.listable:
        found = f"a list of values for the type {logical}"
        node.problems.add(node.where, found, "declare domain: {min:, max:} instead")
    elif raw is not None:
        values = tuple(map(logical.parse, raw))
        if None in values:
            todo = f"each must be {logical.expected}; NULL is not listed but declared by nullable: true"
            node.problems.add(node.where, f"values holds {raw[values.index(None)]!r}", todo)
        elif len(set(values)) < len(values):
            twice = next(value for value in values if values.count(value) > 1)
            node.problems.add(node.where, f"values holds {twice!r} twice", "list every value once")
        else:
            return Values(tuple(value for value in values if value is not None))
    return None


def _range(node: Node, logical: OrderedType) -> Range | None:
    ends, steps = Kind(logical.parse, {}), Kind(logical.parse_step, {})
    found = node.build(
        _range_form(ends, steps, logical.expected, logical.step_expected),
        Range,
    )
    if found is not None and logical.sort_key(found.low) > logical.sort_key(found.high):
        node.problems.add(node.where, f"min {found.low!r} is above max {found.high!r}", "swap or correct them")
        return None
    return found
