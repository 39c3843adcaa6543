"""One column of a spec: its type, its declared domain and the fields of the type."""

from __future__ import annotations

from collections.abc import Mapping

from privbench_core.errors import did_you_mean
from privbench_core.schema.columns import Column, ColumnType, EnumType, IdentitySequence, Learn, Relative
from privbench_core.schema.types.sql import known_sql_types, parse_sql_type
from privbench_core.spec.domains import parse_domain
from privbench_core.spec.fields import MAX_COUNT, Node, Problems

_MAX_PRECISION = 38  # of decimal128, and enough for every database's default
_OPTIONS = ("precision", "scale", "max_length", "identity")  # of some types only


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
    node.only(
        *("type", "domain", "relative_to", "nullable"), *_OPTIONS, "sql_type", "default", "comment", "sequence", "unit"
    )
    types = [kind.value for kind in ColumnType]
    spelled = node.fields.get("type")
    if spelled not in types:
        hint = did_you_mean(spelled, types) if isinstance(spelled, str) else f"known: {', '.join(types)}"
        node.wrong("type", hint)
        return Column(name, ColumnType.TEXT, nullable=node.flag("nullable"))
    kind = ColumnType(spelled)
    precision = node.count("precision", 1, _MAX_PRECISION, f"write a number of digits from 1 to {_MAX_PRECISION}")
    scale = node.count("scale", 0, precision or _MAX_PRECISION, "write a number of decimals from 0 to the precision")
    if "precision" in kind.logical.options and not (node.has("precision") and node.has("scale")):
        problems.add(node.where, "a decimal without precision and scale", "declare both, as in NUMERIC(8, 2)")
    for option in _OPTIONS:
        if node.has(option) and option not in kind.logical.options:
            *most, last = (other for other in ColumnType if option in other.logical.options)
            owners = f"{', '.join(most)} and {last}" if most else last
            todo = f"it belongs to {owners} columns; remove it"
            problems.add(node.where, f"{option} on a column of type {kind}", todo)
    sql_type = _sql_type(node, enums or {})
    return Column(
        name,
        kind,
        None if node.has("relative_to") else parse_domain(node, kind),
        node.flag("nullable"),
        precision,
        scale,
        _max_length(node, kind, sql_type),
        sql_type,
        default=node.text("default", "write an SQL expression in quotes"),
        identity=node.flag("identity"),
        comment=node.text("comment", "write text"),
        sequence=_sequence(node),
        unit=node.text("unit", "write what the numbers count, like EUR or minutes"),
        relative=_relative(node, kind) if node.has("relative_to") else None,
    )


def _relative(node: Node, kind: ColumnType) -> Relative | None:
    """Read ``relative_to``: the domain is then that of the difference."""
    to = node.name("relative_to", "name the column that it is relative to, or table.column of its owner")
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
    domain = parse_domain(node, kind.difference)
    if isinstance(domain, Learn) and domain.listed:
        node.problems.add(node.where, "values: learn of differences", "write domain: learn, for a range of them")
        return None
    return Relative(to, domain) if to is not None and domain is not None else None


def _sequence(node: Node) -> IdentitySequence | None:
    if not node.has("sequence"):
        return None
    raw = node.fields["sequence"]
    if not isinstance(raw, dict) or not node.flag("identity"):
        node.wrong("sequence", "write {name:, increment:, always:} beside identity: true, or leave it out")
        return None
    inner = Node(node.where, raw, node.problems)
    inner.only("name", "increment", "always")
    name = inner.text("name", "write the sequence's name")
    increment = inner.count("increment", 1, MAX_COUNT, "write a positive number")
    found = IdentitySequence(name, increment or 1, inner.flag("always"))
    return None if found == IdentitySequence() else found


def _max_length(node: Node, kind: ColumnType, sql_type: str | None) -> int:
    """Return the declared bound; by default that of `Column`, or of the SQL type if it is shorter."""
    declared = node.count("max_length", 1, MAX_COUNT, "write a positive number of characters or bytes")
    stored = parse_sql_type(sql_type) if sql_type and kind.logical.length_unit else None
    room = stored.length if stored else None
    return declared or min(Column.max_length, room or Column.max_length)


def _sql_type(node: Node, enums: Mapping[str, EnumType]) -> str | None:
    spelled = node.text("sql_type", "name a type of PostgreSQL, or an enum of this file")
    if spelled is None or spelled in enums or parse_sql_type(spelled):
        return spelled
    node.wrong("sql_type", f"{did_you_mean(spelled, [*enums, *known_sql_types()])} (or declare it under enums)")
    return None
