"""Parse the ``tables`` part of a spec into `Table` values, and report every mistake.

Rules on one field are checked here; rules between columns, keys and tables in `spec.rules`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from privbench_core.errors import did_you_mean
from privbench_core.schema.change import Change, Content
from privbench_core.schema.columns import Column, ColumnType, EnumType, Values
from privbench_core.schema.constraints import ForeignKey, OnUnitRemoved
from privbench_core.schema.implied_keys import without_implied
from privbench_core.schema.key_names import parse_actions
from privbench_core.schema.tables import Table
from privbench_core.spec.change import parse_change
from privbench_core.spec.columns import parse_column
from privbench_core.spec.fields import MAX_COUNT, Node, Problems, as_name
from privbench_core.spec.parts import (
    known_columns,
    parse_checks,
    parse_dependencies,
    parse_generated,
    parse_indexes,
    parse_key_names,
    parse_unique,
)

_ROW_ORDER = "name the column, usually a date, in whose order rows were added to the table, or leave it out"
_PRIMARY_KEY = "name its column, or [a, b] for several distinct ones; without any, write row_id: generated instead"
_ACTIONS = "write clauses like ON DELETE CASCADE or ON UPDATE RESTRICT DEFERRABLE INITIALLY DEFERRED"


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


def parse_tables(node: Node, enums: tuple[EnumType, ...] = ()) -> ParsedTables:
    """Read all tables; foreign keys last, because they need the primary keys of their parents."""
    named = {enum.name: enum for enum in enums}
    drafts = {name: _table(name, raw, node.problems, named) for name, raw in node.fields.items()}
    tables = {name: table for name, table in drafts.items() if table is not None}
    orphans: dict[str, str] = {}
    keys = {
        table.name: _foreign_keys(table, node.fields[table.name], tables, orphans, node.problems)
        for table in tables.values()
    }
    required = {name: [k for k in found if k.cascades and not k.optional] for name, found in keys.items()}
    for table in tuple(tables.values()):
        kept, implied = without_implied(keys[table.name], lambda name: required.get(name, ()))
        kept = _unique_keys(kept, node.problems)
        _check_implied(implied, node.problems)
        tables[table.name] = _with_enums(_with_keys(table, tuple(kept), tuple(implied)), named)
    chosen = {
        name: parse_change(Node(name, node.fields[name], node.problems), public=table.public)
        for name, table in tables.items()
    }
    changes = {name: change for name, change in chosen.items() if change != Content()}
    return ParsedTables(tuple(tables.values()), orphans, changes)


def _table(name: str, raw: object, problems: Problems, enums: Mapping[str, EnumType]) -> Table | None:
    if not isinstance(raw, dict):
        problems.add(name, "the table has no content", "give it a primary_key and columns")
        return None
    node = Node(name, raw, problems)
    node.only(
        *("primary_key", "columns", "foreign_keys", "unique", "public", "checks", "indexes", "dependencies"),
        *("comment", "key_names", "generated", "change", "row_id", "row_order"),
    )
    numbered = _numbered(node)
    key = () if numbered else node.names("primary_key", _PRIMARY_KEY)
    columns = node.mapping("columns", "list them as name: type")
    if columns is None:
        return None
    parsed = tuple(parse_column(name, column, value, problems, enums) for column, value in columns.fields.items())
    row_id = _free_name({column.name.casefold() for column in parsed}) if numbered else None
    if row_id is not None:
        parsed, key = (*parsed, Column(row_id, ColumnType.INTEGER)), (row_id,)
    table = Table(
        name, parsed, key or (), public=node.flag("public"), unique=parse_unique(node), checks=parse_checks(node),
        indexes=parse_indexes(node), dependencies=parse_dependencies(node), comment=node.text("comment", "write text"),
        key_names=parse_key_names(node), generated=parse_generated(node, enums), row_id=row_id,
        row_order=node.name("row_order", _ROW_ORDER) if node.has("row_order") else None,
    )  # fmt: skip
    if table.public:  # published as it is: no column is modelled
        plain = tuple(replace(column, relative=None) for column in table.columns)
        table = replace(table, columns=plain, row_order=None)
    groups = [table.primary_key, *table.unique, *([(table.row_order,)] if table.row_order else [])]
    groups += [part for rule in table.dependencies for part in (rule.determinant, rule.dependent)]
    for group in groups:
        known_columns(group, table, problems)
    computed = {column.name for column in table.generated}
    for index in table.indexes or ():
        known_columns(tuple(name for name in index.columns if name not in computed), table, problems)
    return table


def _numbered(node: Node) -> bool:
    """Return whether the rows of a table have no key, so that they are numbered."""
    if not node.has("row_id"):
        return False
    if node.fields["row_id"] != "generated" or node.has("primary_key"):
        node.wrong("row_id", "write row_id: generated where rows have no key, and no primary_key then")
    return True


def _free_name(taken: set[str]) -> str:
    name = "row_id"
    while name in taken:
        name += "_"
    return name


def _foreign_keys(
    table: Table, raw: object, tables: dict[str, Table], orphans: dict[str, str], problems: Problems
) -> tuple[ForeignKey, ...]:
    listed = raw.get("foreign_keys") or [] if isinstance(raw, dict) else []
    items = listed if isinstance(listed, list) else [listed]
    keys: list[ForeignKey] = []
    for item in items:
        if not isinstance(item, dict):
            problems.add(table.name, "a foreign key is not a mapping", "write {columns:, references:, max_children:}")
            problems.broken.add(f"{table.name}.foreign_keys")
            continue
        key = _foreign_key(Node(table.name, item, problems), table, tables)
        if key is None:
            named = item.get("columns")
            problems.broken |= {f"{table.name}.{column}" for column in (named if isinstance(named, list) else [named])}
            problems.broken.add(f"{table.name}.foreign_keys")
            continue
        policy = item.get("on_orphan", "refuse")
        if policy not in ("refuse", "drop"):  # not a set: the value may be unhashable
            Node(key.name, item, problems).wrong("on_orphan", "write refuse or drop")
            policy = "refuse"
        # Of two keys on the same columns one follows from the other, and drops with it.
        orphans[key.name] = "drop" if "drop" in (policy, orphans.get(key.name)) else "refuse"
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


def _foreign_key(bare: Node, table: Table, tables: dict[str, Table]) -> ForeignKey | None:
    columns = bare.names("columns", "name the foreign key's column, or [a, b] for several")
    if columns is None or not known_columns(columns, table, bare.problems):
        return None
    name = ForeignKey(table.name, columns, "", ()).name
    node = Node(name, bare.fields, bare.problems)
    known = (
        "columns",
        "references",
        "max_children",
        "max_children_per_unit",
        "owner",
        "optional",
        "same_unit",
        "on_unit_removed",
        "on_orphan",
        "constraint",
        "actions",
    )
    node.only(*known)
    children, per_unit = _bounds(node)
    owner, optional, same_unit = (node.flag(name) for name in ("owner", "optional", "same_unit"))
    removed = _on_unit_removed(node)
    constraint = node.text("constraint", "write the constraint's name")
    actions = parse_actions(node.text("actions", _ACTIONS) or "")
    if node.has("actions") and actions is None:
        node.wrong("actions", _ACTIONS)
    target = node.fields.get("references")
    inner = Node(name, target if isinstance(target, dict) else {"table": target}, node.problems)
    inner.only("table", "columns")
    parent = as_name(inner.fields.get("table"))
    if parent is None:
        node.wrong("references", "name the parent table")
        return None
    if parent not in tables:
        if parent not in node.problems.broken:  # otherwise the parent is in the spec, and its own mistake is reported
            node.problems.add(name, f"references {parent!r}, which is no table", did_you_mean(parent, tables))
        return None
    key = tables[parent].primary_key
    wanted = inner.names("columns", "name the parent's columns") if inner.has("columns") else key
    if wanted and tables[parent].row_id in wanted:
        todo = f"name the columns, {{table: {parent}, columns: [..]}}, and declare them unique there"
        node.problems.add(name, f"references {parent}, whose rows have no key (row_id: generated)", todo)
        return None
    if not wanted or not key or not known_columns(wanted, tables[parent], node.problems):
        return None
    if len(wanted) != len(columns):
        found = f"{len(columns)} column(s) refer to {len(wanted)} column(s) of {parent}"
        node.problems.add(name, found, f"list one column for each of ({', '.join(wanted)})")
        return None
    # Canonical order: that of the parent's own key, primary or unique.
    order = next((group for group in (key, *tables[parent].unique) if set(group) == set(wanted)), wanted)
    pairs = sorted(zip(wanted, columns, strict=True), key=lambda pair: order.index(pair[0]))
    wanted, columns = tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)
    return ForeignKey(
        *(table.name, columns, parent, wanted, children, owner, optional, same_unit, constraint, actions),
        on_unit_removed=removed,
        max_children_per_unit=per_unit,
    )


def _bounds(node: Node) -> tuple[int | None, int | None]:
    """Return the most rows of one parent row, and of all those of one unit."""
    children = node.count("max_children", 1, MAX_COUNT, "declare the most rows one parent row may have, 1 or more")
    per_unit = node.count(
        "max_children_per_unit", 1, MAX_COUNT, "declare the most rows that refer to the rows of one unit, 1 or more"
    )
    if not node.has("max_children"):
        children = per_unit  # the rows that refer to one row are some of those that refer to its unit
    if children is None and (node.has("max_children") or node.has("max_children_per_unit")):
        children = 1  # reported already, so not also as missing
    return children, per_unit


def _on_unit_removed(node: Node) -> OnUnitRemoved | None:
    raw = node.fields.get("on_unit_removed")
    found = next((action for action in OnUnitRemoved if raw == action), None)
    if node.has("on_unit_removed") and found is None:
        node.wrong("on_unit_removed", "write cascade or set null")
    return found


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
