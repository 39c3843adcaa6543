"""What a spec says beside columns and foreign keys: unique sets, checks, indexes, dependencies, enums."""

from __future__ import annotations

import re
from collections.abc import Mapping

from privbench_core.errors import did_you_mean
from privbench_core.schema.columns import ColumnType, EnumType, Generated
from privbench_core.schema.constraints import Check, Dependency, Index
from privbench_core.schema.tables import Table
from privbench_core.spec.fields import Node, Problems

_UNIQUE = "write a list of lists of column names, like [[a, b], [c]]"
_CHECKS = "write a list like [{name: .., expression: 'low <= high'}]"
_INDEXES = "write a list like [{name: .., columns: [a, b]}]; [] for none"
_KEY_NAMES = "write a mapping like {orders_pk: id, one_each: [a, b]}"
_GENERATED = "write a mapping like {total: {sql_type: integer, expression: a + b}}"
_DEPENDENCIES = "write a list like [{determinant: city, dependent: state}]"
_ENUMS = "write a mapping of names to lists of values, like {mood: [calm, cross]}"
# Whatever the type is, it cannot end the definition of its column.
_PLAIN_TYPE = re.compile(r"[a-z][a-z0-9_ ]*(\(\d+(,\d+)?\))?[a-z ]*(\[\])*")


def parse_unique(node: Node) -> tuple[tuple[str, ...], ...]:
    """Return the declared unique sets of columns."""
    raw = node.fields.get("unique") or []
    if not isinstance(raw, list) or not all(isinstance(group, list) for group in raw):
        node.wrong("unique", _UNIQUE)
        return ()
    groups = (Node(node.where, {"unique": group}, node.problems).names("unique", _UNIQUE) for group in raw)
    return tuple(group for group in groups if group is not None)


def parse_checks(node: Node) -> tuple[Check, ...]:
    """Return the CHECK constraints."""
    checks = []
    for item in node.items("checks", _CHECKS):
        item.only("name", "expression")
        name = item.name("name", "name the check")
        if not item.has("expression"):
            item.wrong("expression", "write a condition in SQL")
        expression = item.text("expression", "write a condition in SQL, in quotes")
        if name is not None and expression is not None:
            checks.append(Check(name, expression))
    return tuple(checks)


def parse_indexes(node: Node) -> tuple[Index, ...] | None:
    """Return the indexes; None if the spec leaves them to us."""
    if not node.has("indexes"):
        return None
    indexes = []
    for item in node.items("indexes", _INDEXES):
        item.only("name", "columns", "using")
        name = item.name("name", "name the index")
        columns = item.names("columns", "name its column, or [a, b] for several distinct ones")
        using = item.text("using", "write what follows USING, like 'gin (doc)'")
        if name is not None and columns is not None:
            indexes.append(Index(name, columns, using))
    return tuple(indexes)


def parse_key_names(node: Node) -> tuple[tuple[tuple[str, ...], str], ...]:
    """Return the columns and names of the primary and unique keys that have names of their own."""
    if node.fields.get("key_names") in (None, {}):
        return ()
    listed = node.mapping("key_names", _KEY_NAMES)
    named = Node(node.where, listed.fields if listed else {}, node.problems)
    found = ((named.names(name, _KEY_NAMES), name) for name in named.fields)
    return tuple((group, name) for group, name in found if group is not None)


def parse_generated(node: Node, enums: Mapping[str, EnumType]) -> tuple[Generated, ...]:
    """Return the columns that the database computes."""
    if node.fields.get("generated") in (None, {}):
        return ()
    listed = node.mapping("generated", _GENERATED)
    found = []
    for name, raw in listed.fields.items() if listed else ():
        item = Node(f"{node.where}.{name}", raw if isinstance(raw, dict) else {}, node.problems)
        item.only("sql_type", "expression", "nullable", "comment")
        sql_type = item.name("sql_type", "name a type of PostgreSQL, or an enum of this file")
        expression = item.name("expression", "write an expression in SQL, in quotes")
        if sql_type is not None and sql_type not in enums and not _PLAIN_TYPE.fullmatch(sql_type):
            item.wrong("sql_type", "name a type of PostgreSQL in small letters, or an enum of this file")
        elif sql_type is not None and expression is not None:
            nullable = "nullable" not in item.fields or item.flag("nullable")
            found.append(Generated(name, sql_type, expression, nullable, item.text("comment", "write text")))
    return tuple(found)


def parse_dependencies(node: Node) -> tuple[Dependency, ...]:
    """Return the functional dependencies."""
    rules = []
    for item in node.items("dependencies", _DEPENDENCIES):
        item.only("determinant", "dependent")
        determinant = item.names("determinant", "name the column, or [a, b], whose values decide")
        dependent = item.names("dependent", "name the column, or [a, b], whose values are decided")
        if determinant is not None and dependent is not None:
            rules.append(Dependency(determinant, dependent))
    return tuple(rules)


def parse_enums(node: Node) -> tuple[EnumType, ...]:
    """Return the enums of the whole database."""
    if node.fields.get("enums") in (None, {}):
        return ()
    listed = node.mapping("enums", _ENUMS)
    enums = []
    for name, raw in listed.fields.items() if listed else ():
        values = [ColumnType.CATEGORY.logical.parse(item) for item in raw] if isinstance(raw, list) else []
        if not values or None in values or len(set(values)) < len(values):
            Node("enums", {name: raw}, node.problems).wrong(name, "list its values, each once and in their order")
        else:
            enums.append(EnumType(name, tuple(str(value) for value in values)))
    return tuple(enums)


def known_columns(names: tuple[str, ...], table: Table, problems: Problems) -> bool:
    """Return whether a table has all these columns; each unknown one is reported."""
    known = [column.name for column in table.columns]
    unknown = [name for name in names if name not in known]
    for name in unknown:
        problems.add(f"{table.name}.{name}", "no such column", did_you_mean(name, known))
    return not unknown
