"""Rules on foreign keys: what they may refer to, which cycles can be opened, and the ownership path."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from privbench_core.schema.columns import Column
from privbench_core.schema.constraints import ForeignKey, OnUnitRemoved, reachable
from privbench_core.schema.tables import Schema, Table


def infer_keys(schema: Schema) -> Schema:
    """Return the schema with the properties of keys that follow from others; `find_key_problems` reports the rest.

    A private table without a marked owner key gets the only possible one. A key whose columns are unique in its table
    has at most one row per parent; a bound says nothing of a public parent. References to removed rows follow the
    source's ``ON DELETE``.
    """
    candidates = _candidates(schema)

    def bounded(table: Table, key: ForeignKey) -> ForeignKey:
        parent = schema.by_name.get(key.parent)
        if parent is not None and parent.public:
            return replace(key, max_children=None)
        single = key.max_children is None and _is_unique(table, key)
        return replace(key, max_children=1) if single else key

    def settled(table: Table) -> Table:
        keys = tuple(bounded(table, key) for key in table.foreign_keys)
        possible = candidates.get(table.name, [])
        if table.name != schema.unit and table.owner_key is None and len(possible) == 1:
            keys = tuple(replace(key, owner=True) if key.name == possible[0].name else key for key in keys)
        return replace(table, foreign_keys=keys)

    return _with_cascades(replace(schema, tables=tuple(settled(table) for table in schema.tables)))


def _with_cascades(schema: Schema) -> Schema:
    """Return the schema in which optional keys with ``ON DELETE CASCADE`` cascade, if nothing else is declared.

    Keys are handled in spec order. A key that would close a cycle of cascades (a tree of comments, say) becomes NULL
    instead.
    """
    for table in schema.private_tables:
        for key in table.foreign_keys:
            open_ended = key.on_unit_removed is None and not key.cascades and not schema.table(key.parent).public
            if not open_ended or "ON DELETE CASCADE" not in (key.actions or ""):
                continue
            closes = table.name in _carried_by(schema, key.parent)
            action = OnUnitRemoved.SET_NULL if closes else OnUnitRemoved.CASCADE
            keys = tuple(
                replace(k, on_unit_removed=action) if k == key else k for k in schema.table(table.name).foreign_keys
            )
            changed = replace(schema.table(table.name), foreign_keys=keys)
            schema = replace(schema, tables=tuple(changed if t.name == table.name else t for t in schema.tables))
    return schema


def _carried_by(schema: Schema, table: str) -> set[str]:
    """Return ``table`` and the tables whose removed rows can remove rows of it, along keys that cascade."""
    keys_of = {t.name: [key for key in t.foreign_keys if key.cascades] for t in schema.tables}
    return reachable(table, lambda name: (key.parent for key in keys_of[name]))


def find_key_problems(schema: Schema, broken: Collection[str] = ()) -> list[str]:
    """Return one line per broken rule on foreign keys, except at ``broken`` places."""
    problems = list(_cycles(schema))
    for table in schema.tables:
        for key in table.foreign_keys:
            problems += _reference(table, key, schema, broken)
            for rule in (_bound, _same_unit, _on_unit_removed, _row_ids, _cannot_be_null, _changing_target):
                problems += rule(key, schema)
    return [*problems, *_ownership(schema, broken)]


def find_column(table: Table, name: str) -> Column | None:
    """Return the column of that name, None if there is none, which is reported elsewhere."""
    return next((column for column in table.columns if column.name == name), None)


def _is_unique(table: Table, key: ForeignKey) -> bool:
    """Return whether at most one row of the table can have a value of the key."""
    return any(set(group) <= set(key.columns) for group in (table.primary_key, *table.unique) if group)


def _bound(key: ForeignKey, schema: Schema) -> Iterator[str]:
    table, parent = schema.table(key.child), schema.table(key.parent)
    if table.public and not parent.public:
        todo = "make both public or both private"
        yield f"{key.name}: a public table refers to the private table {parent.name}; {todo}"
    elif not parent.public and key.max_children is None and not key.same_unit:
        todo = f"declare the most {table.name} rows one {parent.name} row may have"
        yield f"{key.name}: max_children is missing; {todo}"
    elif key.max_children_per_unit is not None and (key.owner or key.same_unit or parent.public):
        yield f"{key.name}: max_children_per_unit on a key that reaches into no other unit; remove it"
    elif key.max_children_per_unit is not None and parent.name == schema.unit:
        yield f"{key.name}: max_children_per_unit, but each row of {parent.name} is a unit; declare only max_children"
    elif (key.max_children or 1) > 1 and _is_unique(table, key):
        found = f"max_children is {key.max_children}, but the key is unique in {table.name}"
        yield f"{key.name}: {found}; write 1, or leave it out"


def _same_unit(key: ForeignKey, schema: Schema) -> Iterator[str]:
    """Yield where ``same_unit`` is meaningless or always true."""
    if not key.same_unit:
        return
    if schema.table(key.parent).public:
        yield f"{key.name}: same_unit: true on a key to a public table, whose rows belong to no unit; remove it"
    elif key.owner:
        yield f"{key.name}: same_unit: true on the owner key, where it always holds; remove it"
    elif key.child == key.parent == schema.unit:
        yield f"{key.name}: same_unit: true between rows of {schema.unit}, each a unit of its own; remove it"


def _on_unit_removed(key: ForeignKey, schema: Schema) -> Iterator[str]:
    """Yield where ``on_unit_removed`` is impossible or meaningless."""
    if key.on_unit_removed is None:
        return
    found = f"on_unit_removed: {key.on_unit_removed}"
    if schema.table(key.parent).public:
        yield f"{key.name}: {found} on a key to a public table, whose rows no unit takes away; remove it"
    elif key.on_unit_removed is OnUnitRemoved.SET_NULL and key.owner:
        todo = "write cascade, or leave it out: a row goes with its owner"
        yield f"{key.name}: {found} on the owner key; {todo}"
    elif not (key.cascades or key.optional):
        yield from _forgotten(key, schema.table(key.child), found)


def _forgotten(key: ForeignKey, table: Table, found: str) -> Iterator[str]:
    """Yield why a required key cannot lose what it refers to while its row stays what it is."""
    others = [other for other in table.foreign_keys if other != key and not set(other.columns).isdisjoint(key.columns)]
    if key.same_unit:
        yield f"{key.name}: {found} on a required key with same_unit: true, which costs no noise; remove it"
    elif not set(key.columns).isdisjoint(table.primary_key):
        todo = "write cascade, or leave it out: without it the row would be another one"
        yield f"{key.name}: {found} on a required key with a column of the primary key; {todo}"
    elif others:
        todo = "write cascade, or leave it out: they would lose what they refer to as well"
        yield f"{key.name}: {found} on a required key that shares a column with {others[0].name}; {todo}"


def _row_ids(key: ForeignKey, schema: Schema) -> Iterator[str]:
    """Yield keys whose values change with another unit, in tables whose rows are identified by values alone.

    Those with ``same_unit`` too: a row that breaks it refers to another unit, and loses its reference with that one.
    """
    table = schema.table(key.child)
    private = not table.public and not schema.table(key.parent).public
    if table.row_id and private and not key.cascades:
        found = f"becomes NULL when a unit is removed, but rows of {table.name} are identified by their values (row_id)"
        yield f"{key.name}: {found}; name a primary key, or write on_unit_removed: cascade"


def _cannot_be_null(key: ForeignKey, schema: Schema) -> Iterator[str]:
    """Yield an optional key that has to become NULL when its parent's row goes, and none of whose columns can."""
    table, parent = schema.table(key.child), schema.table(key.parent)
    nullable = any(column.nullable for name in key.columns if (column := find_column(table, name)))
    if parent.public or key.cascades or not (key.optional and nullable) or table.emptied_columns(key):
        return
    found = f"becomes NULL when the {parent.name} row it refers to is removed, but its columns are part of other keys"
    yield f"{key.name}: {found}; write on_unit_removed: cascade, or leave this key out"


def _changing_target(key: ForeignKey, schema: Schema) -> Iterator[str]:
    """Yield a key to a column that becomes NULL when another unit goes: rows would lose a parent that is still there.

    What a row refers to, and whose it is, would then depend on other units, whatever the key itself does on removal.
    """
    parent = schema.table(key.parent)
    for other in parent.foreign_keys if not parent.public else ():
        lost = set(key.parent_columns).intersection(schema.changing_columns(other))
        if lost:
            target = f"{parent.name}.{min(lost)}"
            found = f"refers to {target}, which becomes NULL when the {other.parent} row it refers to is removed"
            todo = (
                f"refer to another unique column of {parent.name}, or write on_unit_removed: cascade for {other.name}"
            )
            yield f"{key.name}: {found}; {todo}"


def _reference(table: Table, key: ForeignKey, schema: Schema, broken: Collection[str]) -> Iterator[str]:
    parent = schema.table(key.parent)
    groups = [parent.primary_key, *parent.unique]
    if not any(set(key.parent_columns) == set(group) for group in groups):
        target = ", ".join(key.parent_columns)
        known = " or ".join(f"({', '.join(group)})" for group in groups)
        found = f"refers to {parent.name}({target}), which is neither its primary key nor declared unique"
        yield f"{key.name}: {found}; refer to {known}, or add unique: [[{target}]] to {parent.name}"
    for name, target in zip(key.columns, key.parent_columns, strict=True):
        here, there = find_column(table, name), find_column(parent, target)
        reported = f"{table.name}.{name}" in broken or f"{parent.name}.{target}" in broken
        if here and there and not reported and _stored_type(here, schema) != _stored_type(there, schema):
            found = f"type {_stored_type(here, schema)}, but {parent.name}.{target} is {_stored_type(there, schema)}"
            yield f"{table.name}.{name}: {found}; give both the same type"
    nullable = [name for name in key.columns if (column := find_column(table, name)) and column.nullable]
    shared = {name for other in table.foreign_keys if other.optional for name in other.columns}
    if key.optional and not nullable:
        todo = "remove optional: true, or declare a column nullable: true"
        yield f"{key.name}: optional, but none of its columns can be NULL; {todo}"
    if not key.optional and not shared.issuperset(nullable):
        todo = "remove nullable: true, or declare the key optional: true"
        yield f"{key.name}: a nullable column in a required key; {todo}"


def _stored_type(column: Column, schema: Schema) -> str:
    """Return the type that must agree along a key."""
    if column.sql_type in {enum.name for enum in schema.enums}:
        return f"enum {column.sql_type}"
    return column.logical.key_type


def _cycles(schema: Schema) -> Iterator[str]:
    """Yield cycles of keys that cascade or are required: a row could remove itself, or none can be filled in later."""
    waiting = {
        table.name: [key for key in table.foreign_keys if key.cascades or not key.optional]
        for table in schema.private_tables
    }
    while waiting:
        ready = [name for name, keys in waiting.items() if not any(key.parent in waiting for key in keys)]
        if not ready:  # every remaining table has a remaining parent: walk up until a table repeats
            path: list[ForeignKey] = []
            here = next(iter(waiting))
            while here not in [key.child for key in path]:
                path.append(next(key for key in waiting[here] if key.parent in waiting))
                here = path[-1].parent
            cycle = path[[key.child for key in path].index(here) :]
            yield _cycle(cycle)
            ready = [key.child for key in cycle]
        for name in ready:
            waiting.pop(name, None)


def _cycle(cycle: list[ForeignKey]) -> str:
    names = " or ".join(key.name for key in cycle if not key.owner)
    way = " -> ".join([*(key.child for key in cycle), cycle[-1].parent])
    if not names:
        return (
            f"{cycle[0].child}: the owner keys form a cycle ({way}); mark owner: true on a key that leads to the unit"
        )
    optional = [key.name for key in cycle if key.optional and not key.owner]
    if optional:
        found = f"a cycle of keys that cascade ({way})"
        return f"{cycle[0].child}: {found}; declare on_unit_removed: set null for {' or '.join(optional)}"
    found = "refers to itself by a required key" if len(cycle) == 1 else f"a cycle of required foreign keys ({way})"
    return f"{cycle[0].child}: {found}; declare {names} optional: true (filled in last), or leave it out of the spec"


def _candidates(schema: Schema) -> dict[str, list[ForeignKey]]:
    """Return, per private table, the keys whose parent reaches the unit without that table."""
    children: dict[str, list[str]] = {table.name: [] for table in schema.tables}
    for table in schema.private_tables:
        for key in table.foreign_keys:
            children[key.parent].append(table.name)

    def reached(without: str) -> set[str]:
        return reachable(schema.unit, lambda name: (n for n in children.get(name, ()) if n != without))

    private = {table.name for table in schema.private_tables}
    found: dict[str, list[ForeignKey]] = {}
    for table in schema.private_tables:
        above = reached(table.name) & private - {table.name} if table.foreign_keys else set()
        found[table.name] = [key for key in table.foreign_keys if key.parent in above]
    return found


def _ownership(schema: Schema, broken: Collection[str]) -> Iterator[str]:
    candidates = _candidates(schema)
    for table in schema.tables:
        marked = [key for key in table.foreign_keys if key.owner]
        if table.public or table.name == schema.unit:
            what = "a public table" if table.public else "the privacy unit"
            yield from (f"{key.name}: owner: true in {what}, which nobody owns; remove it" for key in marked)
        elif len(marked) > 1:
            names = ", ".join(key.name for key in marked)
            yield f"{table.name}: several keys are marked owner: true ({names}); keep it on one"
        elif marked and schema.table(marked[0].parent).public:
            yield f"{marked[0].name}: owner: true on a key to a public table; mark a key that leads to {schema.unit}"
        elif schema.unit in schema.by_name and f"{table.name}.foreign_keys" not in broken:
            yield from _path(schema, table, marked, candidates[table.name])


def _path(schema: Schema, table: Table, marked: list[ForeignKey], candidates: list[ForeignKey]) -> Iterator[str]:
    """Yield where not exactly one path leads from a private table to the unit."""
    names = ", ".join(key.name for key in candidates)
    if not candidates:
        out = "leave the table out with the keys that refer to it"
        todo = f"add a foreign key that leads to {schema.unit}, {out}, or declare it public if anyone may see its rows"
        yield f"{table.name}: a private table with no path to the privacy unit; {todo}"
    elif not marked:
        how = (
            "the one whose parent the row is about: there max_children is enforced, on the others only declared, unless"
            " they have same_unit: true"
        )
        yield f"{table.name}: several paths lead to the privacy unit; mark one of {names} with owner: true ({how})"
    elif marked[0] not in candidates and marked[0].parent != table.name:
        found = f"owner: true, but {marked[0].parent} has no path of its own to {schema.unit}"
        yield f"{marked[0].name}: {found}; mark another key"
