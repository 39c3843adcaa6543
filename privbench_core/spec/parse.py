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
from privbench_core.schema.constraints import Check, Dependency, ForeignKey, Index, OnUnitRemoved
from privbench_core.schema.implied_keys import without_implied
from privbench_core.schema.key_names import parse_actions
from privbench_core.schema.tables import Table
from privbench_core.spec.columns import COLUMN, parse_column
from privbench_core.spec.fields import (
    COMMENT,
    NAME,
    NAME_LIST,
    NAMES,
    TEXT,
    YES_OR_NO,
    Form,
    Key,
    Kind,
    Node,
    Problems,
    T,
    anything,
    choice,
    count,
    either,
    list_of,
    named,
)

_PRIMARY_KEY = "name its column, or [a, b] for several distinct ones; without any, write row_id: generated instead"
_ACTIONS = "write clauses like ON DELETE CASCADE or ON UPDATE RESTRICT DEFERRABLE INITIALLY DEFERRED"
_CHANGE = "write content, {watermark: updated_at} or {sql: 'select ..'}"
_KEY_NAMES = "write a mapping like {orders_pk: id, one_each: [a, b]}"
_ENUM = "list its values, each once and in their order"
_SQL_TYPE = "name a type of PostgreSQL in small letters, or an enum of this file"
# A type that matches cannot end the definition of its column in the DDL.
_PLAIN_TYPE = re.compile(r"[a-z][a-z0-9_ ]*(\(\d+(,\d+)?\))?[a-z ]*(\[\])*")

CHECK = Form(name=Key(NAME, "name the check"), expression=Key(TEXT, "write a condition in SQL, in quotes"))
INDEX = Form(
    name=Key(NAME, "name the index"),
    columns=Key(NAMES, "name its column, or [a, b] for several distinct ones"),
    using=Key(TEXT, "write what follows USING, like 'gin (doc)'", None),
)
DEPENDENCY = Form(
    determinant=Key(NAMES, "name the column, or [a, b], whose values decide"),
    dependent=Key(NAMES, "name the column, or [a, b], whose values are decided"),
)
GENERATED = Form(
    sql_type=Key(NAME, _SQL_TYPE),
    expression=Key(NAME, "write an expression in SQL, in quotes"),
    nullable=replace(YES_OR_NO, default=True),
    comment=COMMENT,
)
_WATERMARK = Form(watermark=Key(NAME, "name a column that grows with every change"))
_QUERY = Form(sql=Key(TEXT, "write a query that returns one row"))
_REFERENCE = Form(table=Key(NAME, "name the parent table"), columns=Key(NAMES, "name the parent's columns", None))
_PER_UNIT = "declare the most rows that refer to the rows of one unit, 1 or more"
FOREIGN_KEY = Form(
    columns=Key(NAMES, "name the foreign key's column, or [a, b] for several"),
    references=Key(either(NAME, _REFERENCE.kind), "name the parent table"),
    max_children=Key(count(), "declare the most rows one parent row may have, 1 or more", None),
    max_children_per_unit=Key(count(), _PER_UNIT, None),
    owner=YES_OR_NO,
    optional=YES_OR_NO,
    same_unit=YES_OR_NO,
    on_unit_removed=Key(choice(*OnUnitRemoved), "write cascade or set null", None),
    constraint=Key(TEXT, "write the constraint's name", None),
    actions=Key(Kind(lambda text: parse_actions(text) if isinstance(text, str) else None, TEXT.schema), _ACTIONS, None),
    on_orphan=Key(choice("refuse", "drop"), "write refuse or drop", "refuse"),
)
_LISTED = either(FOREIGN_KEY.kind, list_of(FOREIGN_KEY.kind)).schema
_ROW_ORDER = "name the column, usually a date, in whose order rows were added to the table, or leave it out"
TABLE = Form(
    "primary_key",
    "row_id",
    change=Key(either(choice("content"), _WATERMARK.kind, _QUERY.kind), _CHANGE, None),
    public=YES_OR_NO,
    comment=COMMENT,
    row_id=Key(choice("generated"), "write row_id: generated where rows have no key, and no primary_key then", None),
    primary_key=Key(NAMES, _PRIMARY_KEY, None),
    foreign_keys=Key(anything(_LISTED), "list them as {columns:, references:, max_children:}", None),
    unique=Key(list_of(NAME_LIST), "write a list of lists of column names, like [[a, b], [c]]", ()),
    key_names=Key(named(NAMES), _KEY_NAMES, None),
    checks=Key(list_of(CHECK.kind), "write a list like [{name: .., expression: 'low <= high'}]", ()),
    indexes=Key(list_of(INDEX.kind), "write a list like [{name: .., columns: [a, b]}]; [] for none", None),
    dependencies=Key(list_of(DEPENDENCY.kind), "write a list like [{determinant: city, dependent: state}]", ()),
    row_order=Key(NAME, _ROW_ORDER, None),
    generated=Key(named(GENERATED.kind), "write a mapping like {total: {sql_type: integer, expression: a + b}}", None),
    columns=Key(named(either(COLUMN.keys["type"].kind, COLUMN.kind), 1), "list them as name: type"),
)
ENUMS = Key(
    named(list_of(Kind(ColumnType.CATEGORY.logical.parse, {"type": ["number", "string", "boolean"]}), 1)),
    "write a mapping of names to lists of values, like {mood: [calm, cross]}",
    None,
)


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
    node.value("enums", ENUMS)
    kind = list_of(Kind(ColumnType.CATEGORY.logical.parse, {}), 1)
    enums = []
    for name in inner.fields:
        values = inner.value(name, Key(kind, _ENUM))
        if values is not None and len(set(values)) < len(values):
            inner.wrong(name, _ENUM)
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
    found = node.read(TABLE)
    numbered = node.has("row_id")
    if found["row_id"] and node.has("primary_key"):
        node.wrong("row_id", TABLE.keys["row_id"].todo)
    if not (numbered or node.has("primary_key")):
        node.wrong("primary_key", _PRIMARY_KEY)
    if found["columns"] is None:
        return None
    columns = tuple(parse_column(name, column, value, problems, enums) for column, value in found["columns"].items())
    key = () if numbered else found["primary_key"] or ()
    row_id = _free_name({column.name.casefold() for column in columns}) if numbered else None
    if row_id is not None:
        columns, key = (*columns, Column(row_id, ColumnType.INTEGER)), (row_id,)
    named_keys = node.inside("key_names")
    groups = [(named_keys.value(each, Key(NAMES, _KEY_NAMES)), each) for each in named_keys.fields]
    if found["public"]:  # published as it is: no column is modelled
        columns = tuple(replace(column, relative=None) for column in columns)
    table = Table(
        name,
        columns,
        key,
        public=found["public"],
        unique=found["unique"],
        checks=_items(node, found["checks"], CHECK, Check),
        indexes=None if found["indexes"] is None else _items(node, found["indexes"], INDEX, Index),
        dependencies=_items(node, found["dependencies"], DEPENDENCY, Dependency),
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
        column = item.build(GENERATED, partial(Generated, name))
        if column is not None and column.sql_type not in enums and not _PLAIN_TYPE.fullmatch(column.sql_type):
            item.wrong("sql_type", _SQL_TYPE)
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
        node.wrong("change", _CHANGE)
    elif "sql" in raw:
        return inner.build(_QUERY, VersionQuery)
    else:
        return inner.build(_WATERMARK, Watermark)
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
    columns = bare.value("columns", FOREIGN_KEY.keys["columns"])
    if columns is None or not _known_columns(columns, table, problems):
        return None, "refuse"
    name = ForeignKey(table.name, columns, "", ()).name
    node = replace(bare, where=name)
    found = node.read(FOREIGN_KEY)
    reference = node.inside("references", short="table").read(_REFERENCE) if found["references"] else {"table": None}
    parent = reference["table"]
    if parent is not None and parent not in tables and parent not in problems.broken:  # else reported already
        problems.add(name, f"references {parent!r}, which is no table", did_you_mean(parent, tables))
    if parent not in tables:
        return None, "refuse"
    above = tables[parent]
    wanted = reference["columns"] or above.primary_key
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
