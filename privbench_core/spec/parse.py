"""Parse the ``tables`` part of a spec into `Table` values, and report every mistake.

Rules on one key of a mapping are checked here; rules between columns, keys and tables in `spec.rules`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from privbench_core.errors import did_you_mean
from privbench_core.schema.change import Change, VersionQuery, Watermark
from privbench_core.schema.columns import Column, ColumnType, EnumType, Generated, Values
from privbench_core.schema.constraints import Check, Dependency, ForeignKey, Index, OnUnitRemoved, without_implied
from privbench_core.schema.tables import Table
from privbench_core.spec import forms
from privbench_core.spec.columns import parse_column
from privbench_core.spec.fields import Form, Node, Problems, T

# A type that matches cannot end the definition of its column in the DDL.
_PLAIN_TYPE = re.compile(r"[a-z][a-z0-9_ ]*(\(\d+(,\d+)?\))?[a-z ]*(\[\])*")


@dataclass(frozen=True)
class ParsedTables:
    """The parsed ``tables`` part.

    Attributes:
        tables: In spec order, without those that could not be parsed.
        orphans: ``refuse`` or ``drop`` per `ForeignKey.name`.
        changes: How a change is detected, for the tables whose content is not compared.
    """

    tables: tuple[Table, ...]
    orphans: dict[str, str]
    changes: dict[str, Change]


def parse_enums(node: Node) -> tuple[EnumType, ...]:
    """Return the enums of the whole database."""
    inner = node.inside("enums", where="enums")
    enums = []
    for name in inner.fields:
        values = inner.value(name, forms.ENUM)
        if values is not None and len(set(values)) < len(values):
            inner.wrong(name, forms.ENUM.todo)
        elif values is not None:
            enums.append(EnumType(name, tuple(map(str, values))))
    return tuple(enums)


def parse_tables(raw: Mapping[str, Any], problems: Problems, enums: tuple[EnumType, ...] = ()) -> ParsedTables:
    """Read all tables; foreign keys last, because they need the primary keys of their parents."""
    enums_by_name = {enum.name: enum for enum in enums}
    drafts = {name: _table(name, content, problems, enums_by_name) for name, content in raw.items()}
    tables = {name: table for name, table in drafts.items() if table is not None}
    orphans: dict[str, str] = {}
    keys = {name: _foreign_keys(table, raw[name], tables, orphans, problems) for name, table in tables.items()}
    required = {name: [k for k in found if k.cascades and not k.optional] for name, found in keys.items()}
    changes: dict[str, Change] = {}
    for name, table in tuple(tables.items()):
        kept, implied = without_implied(keys[name], lambda parent: required.get(parent, ()))
        kept = _unique_keys(kept, problems)
        _check_implied(implied, problems)
        tables[name] = _with_enums(_with_keys(table, tuple(kept), tuple(implied)), enums_by_name)
        change = _change(Node(name, raw[name], problems), public=table.public)
        if change is not None:
            changes[name] = change
    return ParsedTables(tuple(tables.values()), orphans, changes)


def _table(name: str, raw: object, problems: Problems, enums: Mapping[str, EnumType]) -> Table | None:
    if not isinstance(raw, dict):
        problems.add(name, "the table has no content", "give it a primary_key and columns")
        return None
    node = Node(name, raw, problems)
    found = node.read(forms.TABLE)
    numbered = node.has("row_id")
    if found["row_id"] and node.has("primary_key"):
        node.wrong("row_id", forms.TABLE.keys["row_id"].todo)
    if not (numbered or node.has("primary_key")):
        node.wrong("primary_key", forms.TABLE.keys["primary_key"].todo)
    if found["columns"] is None:
        return None
    columns = tuple(parse_column(name, column, value, problems, enums) for column, value in found["columns"].items())
    key = () if numbered else found["primary_key"] or ()
    row_id = _free_name({column.name.casefold() for column in columns}) if numbered else None
    if row_id is not None:
        columns, key = (*columns, Column(row_id, ColumnType.INTEGER)), (row_id,)
    named_keys = node.inside("key_names")
    groups = [(named_keys.value(each, forms.KEY_COLUMNS), each) for each in named_keys.fields]
    if found["public"]:  # published as it is: no column is modelled
        columns = tuple(replace(column, relative=None) for column in columns)
    table = Table(
        name,
        columns,
        key,
        public=found["public"],
        unique=found["unique"],
        checks=_items(node, found["checks"], forms.CHECK, Check),
        indexes=None if found["indexes"] is None else _items(node, found["indexes"], forms.INDEX, Index),
        dependencies=_items(node, found["dependencies"], forms.DEPENDENCY, Dependency),
        comment=found["comment"],
        key_names=tuple((group, each) for group, each in groups if group is not None),
        generated=_generated(node, enums),
        row_id=row_id,
        row_order=None if found["public"] else found["row_order"],
    )
    groups_of_columns = [table.primary_key, *table.unique, *([(table.row_order,)] if table.row_order else [])]
    groups_of_columns += [part for rule in table.dependencies for part in (rule.determinant, rule.dependent)]
    computed = {column.name for column in table.generated}
    groups_of_columns += [tuple(c for c in index.columns if c not in computed) for index in table.indexes or ()]
    for group in groups_of_columns:
        _known_columns(group, table, problems)
    return table


def _items(node: Node, listed: tuple[Mapping[str, Any], ...], form: Form, make: Callable[..., T]) -> tuple[T, ...]:
    """Return what the mappings of a list are, without those that are reported as wrong."""
    built = (Node(node.where, item, node.problems).build(form, make) for item in listed)
    return tuple(item for item in built if item is not None)


def _generated(node: Node, enums: Mapping[str, EnumType]) -> tuple[Generated, ...]:
    """Return the columns that the database computes."""
    listed = node.inside("generated")
    found = []
    for name in listed.fields:
        item = listed.inside(name, where=f"{node.where}.{name}")
        column = item.build(forms.GENERATED, partial(Generated, name))
        if column is not None and column.sql_type not in enums and not _PLAIN_TYPE.fullmatch(column.sql_type):
            item.wrong("sql_type", forms.GENERATED.keys["sql_type"].todo)
        elif column is not None:
            found.append(column)
    return tuple(found)


def _change(node: Node, *, public: bool) -> Change | None:
    """Return how a change of a table is detected, None if its content is compared.

    A public table is published row by row, so no change of it may be missed.
    """
    raw = node.fields.get("change")
    if not isinstance(raw, dict):
        return None
    inner = node.inside("change", where=f"{node.where}.change")
    if public:
        node.wrong("change", "a public table is published as it is, so its content is compared; remove the line")
    elif len(raw) != 1:
        node.wrong("change", forms.TABLE.keys["change"].todo)
    elif "sql" in raw:
        return inner.build(forms.QUERY, VersionQuery)
    else:
        return inner.build(forms.WATERMARK, Watermark)
    return None


def _known_columns(names: tuple[str, ...], table: Table, problems: Problems) -> bool:
    """Return whether a table has all these columns, and report each unknown one."""
    known = [column.name for column in table.columns]
    unknown = [name for name in names if name not in known]
    for name in unknown:
        problems.add(f"{table.name}.{name}", "no such column", did_you_mean(name, known))
    return not unknown


def _free_name(taken: set[str]) -> str:
    name = "row_id"
    while name in taken:
        name += "_"
    return name


def _foreign_keys(
    table: Table, raw: object, tables: dict[str, Table], orphans: dict[str, str], problems: Problems
) -> tuple[ForeignKey, ...]:
    listed = raw.get("foreign_keys") or [] if isinstance(raw, dict) else []
    keys: list[ForeignKey] = []
    for item in listed if isinstance(listed, list) else [listed]:
        if not isinstance(item, dict):
            problems.add(table.name, "a foreign key is not a mapping", "write {columns:, references:, max_children:}")
            problems.broken.add(f"{table.name}.foreign_keys")
            continue
        key, on_orphan = _foreign_key(Node(table.name, item, problems), table, tables)
        if key is None:
            columns = item.get("columns")
            problems.broken |= {f"{table.name}.{c}" for c in (columns if isinstance(columns, list) else [columns])}
            problems.broken.add(f"{table.name}.foreign_keys")
            continue
        # Of two keys on the same columns one follows from the other, and drops with it.
        orphans[key.name] = "drop" if "drop" in (on_orphan, orphans.get(key.name)) else "refuse"
        keys.append(key)
    return tuple(keys)


def _unique_keys(keys: list[ForeignKey], problems: Problems) -> list[ForeignKey]:
    """Return the first of several keys on the same columns; report the others."""
    kept: dict[frozenset[str], ForeignKey] = {}
    for key in keys:
        first = kept.setdefault(frozenset(key.columns), key)
        if first is not key:
            found = f"two foreign keys on the same columns, to {first.parent} and to {key.parent}"
            todo = f"keep one, or declare a required key of {first.parent} that leads to {key.parent} (or the reverse)"
            problems.add(key.name, found, todo)
    return list(kept.values())


def _check_implied(implied: list[ForeignKey], problems: Problems) -> None:
    """Report implied keys with declarations, which belong on the key that implies them."""
    for key in implied:
        if key.owner or key.same_unit or key.on_unit_removed is not None or key.max_children is not None:
            found = f"the key to {key.parent} follows from the other one on the same columns"
            problems.add(key.name, found, "declare owner, max_children, same_unit and on_unit_removed on that one")


def _foreign_key(bare: Node, table: Table, tables: dict[str, Table]) -> tuple[ForeignKey | None, str]:
    """Return a foreign key, None if it is reported as wrong, and what is done with its orphans."""
    problems = bare.problems
    columns = bare.value("columns", forms.FOREIGN_KEY.keys["columns"])
    if columns is None or not _known_columns(columns, table, problems):
        return None, "refuse"
    name = ForeignKey(table.name, columns, "", ()).name
    node = replace(bare, where=name)
    found = node.read(forms.FOREIGN_KEY)
    reference = node.inside("references", short="table")
    target = None if found["references"] is None else reference.build(forms.REFERENCE, lambda *values: values)
    if target is None:
        return None, "refuse"
    parent, wanted = target
    if parent not in tables:
        if parent not in problems.broken:  # else the parent is in the spec, and its own mistake is reported
            problems.add(name, f"references {parent!r}, which is no table", did_you_mean(parent, tables))
        return None, "refuse"
    above = tables[parent]
    wanted = wanted or above.primary_key
    if above.row_id in wanted:
        todo = f"name the columns, {{table: {parent}, columns: [..]}}, and declare them unique there"
        problems.add(name, f"references {parent}, whose rows have no key (row_id: generated)", todo)
        return None, "refuse"
    if not wanted or not above.primary_key or not _known_columns(wanted, above, problems):
        return None, "refuse"
    if len(wanted) != len(columns):
        mistake = f"{len(columns)} column(s) refer to {len(wanted)} column(s) of {parent}"
        problems.add(name, mistake, f"list one column for each of ({', '.join(wanted)})")
        return None, "refuse"
    # Canonical order: that of the parent's own key, primary or unique.
    order = next((group for group in (above.primary_key, *above.unique) if set(group) == set(wanted)), wanted)
    pairs = sorted(zip(wanted, columns, strict=True), key=lambda pair: order.index(pair[0]))
    removed, (children, per_unit) = found["on_unit_removed"], _bounds(node, found)
    key = ForeignKey(
        table.name,
        tuple(own for _, own in pairs),
        parent,
        tuple(target for target, _ in pairs),
        children,
        found["owner"],
        found["optional"],
        found["same_unit"],
        found["constraint"],
        found["actions"],
        on_unit_removed=None if removed is None else OnUnitRemoved(removed),
        max_children_per_unit=per_unit,
    )
    return key, found["on_orphan"]


def _bounds(node: Node, found: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return the most rows of one parent row, and of all those of one unit."""
    children, per_unit = found["max_children"], found["max_children_per_unit"]
    if not node.has("max_children"):
        children = per_unit  # the rows that refer to one row are some of those that refer to its unit
    if children is None and (node.has("max_children") or node.has("max_children_per_unit")):
        children = 1  # reported already, so not also as missing
    return children, per_unit


def _with_keys(table: Table, keys: tuple[ForeignKey, ...], implied: tuple[ForeignKey, ...]) -> Table:
    """Return the table with its foreign keys; columns of an optional key become nullable if none is declared so."""
    fixed = set(table.primary_key).union(*(key.columns for key in keys if not key.optional))
    nullable = {column.name for column in table.columns if column.nullable}
    for key in keys:
        if key.optional and nullable.isdisjoint(key.columns):
            nullable |= set(key.columns) - fixed
    columns = tuple(replace(column, nullable=column.name in nullable) for column in table.columns)
    return replace(table, columns=columns, foreign_keys=keys, implied_keys=implied)


def _with_enums(table: Table, enums: Mapping[str, EnumType]) -> Table:
    """Return the table with the values of its enums as the domains of categories without a declared one."""
    keys = table.key_columns

    def with_values(column: Column) -> Column:
        enum = enums.get(column.sql_type or "")
        open_list = column.type is ColumnType.CATEGORY and column.domain is None and column.name not in keys
        return replace(column, domain=Values(enum.values)) if enum and open_list else column

    return replace(table, columns=tuple(with_values(column) for column in table.columns))
