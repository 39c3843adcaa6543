"""Rules on foreign keys: what they may refer to, which cycles can be opened, and the ownership path."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
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
    tables = []
    for table in schema.tables:
        keys = []
        possible = candidates.get(table.name, [])
        sole = len(possible) == 1 and table.name != schema.unit and table.owner_key is None
        for key in table.foreign_keys:
            parent = schema.by_name.get(key.parent)
            bound = 1 if key.max_children is None and _is_unique(table, key) else key.max_children
            bound = None if parent is not None and parent.public else bound
            keys.append(replace(key, max_children=bound, owner=key.owner or (sole and key.name == possible[0].name)))
        tables.append(replace(table, foreign_keys=tuple(keys)))
    return _with_cascades(replace(schema, tables=tuple(tables)))


def _with_cascades(schema: Schema) -> Schema:
    """Return the schema in which optional keys with ``ON DELETE CASCADE`` cascade, if nothing else is declared.

    Keys are handled in spec order. A key that would close a cycle of cascades (a tree of comments, say) becomes NULL
    instead.
    """
    for name, key in [(table.name, key) for table in schema.private_tables for key in table.foreign_keys]:
        is_open = key.on_unit_removed is None and not key.cascades and not schema.table(key.parent).public
        if is_open and "ON DELETE CASCADE" in (key.actions or ""):
            cascading = {t.name: [k.parent for k in t.foreign_keys if k.cascades] for t in schema.tables}
            closes = name in reachable(key.parent, cascading.__getitem__)
            settled = replace(key, on_unit_removed=OnUnitRemoved.SET_NULL if closes else OnUnitRemoved.CASCADE)
            table = schema.table(name)
            table = replace(table, foreign_keys=tuple(settled if k == key else k for k in table.foreign_keys))
            schema = replace(schema, tables=tuple(table if t.name == name else t for t in schema.tables))
    return schema


def without_known_owner(schema: Schema, broken: AbstractSet[str]) -> set[str]:
    """Return the tables with a key that is reported as wrong and those that refer to them; all without a unit."""
    if schema.unit not in schema.by_name:
        return set(schema.by_name)
    wrong = {name for name in schema.by_name if not broken.isdisjoint((name, f"{name}.foreign_keys"))}
    parents = {table.name: {key.parent for key in table.foreign_keys} for table in schema.tables}
    return {name for name in parents if any(above in wrong for above in reachable(name, parents.__getitem__))}


def find_key_problems(schema: Schema, broken: AbstractSet[str] = frozenset()) -> list[str]:
    """Return one line per broken rule on foreign keys, except at ``broken`` places."""
    problems = list(_cycles(schema))
    rules = (_bound, _same_unit, _on_unit_removed, _row_ids, _cannot_be_null, _changing_target)
    for table in schema.tables:
        for key in table.foreign_keys:
            problems += _types(key, schema, broken)
            parent = schema.table(key.parent)
            found = [*_target(key, parent), *_nulls(key, table)]
            if parent.empty and not table.empty:
                todo = f"declare {table.name} empty too, or remove this key and its columns"
                found.append(f"refers to {parent.name}, which is declared empty; {todo}")
            elif parent.public:
                found += _to_public(key)
            elif not table.empty:
                found += [line for rule in rules for line in rule(key, schema)]
            problems += [f"{key.name}: {line}" for line in found]
    return [*problems, *_ownership(schema, broken)]


def find_column(table: Table, name: str) -> Column | None:
    """Return the column of that name, None if there is none, which is reported elsewhere."""
    return next((column for column in table.columns if column.name == name), None)


def _is_unique(table: Table, key: ForeignKey) -> bool:
    """Return whether at most one row of the table can have a value of the key."""
    return any(set(group) <= set(key.columns) for group in (table.primary_key, *table.unique) if group)


def _target(key: ForeignKey, parent: Table) -> Iterator[str]:
    groups = [parent.primary_key, *parent.unique]
    if not any(set(key.parent_columns) == set(group) for group in groups):
        target = ", ".join(key.parent_columns)
        known = " or ".join(f"({', '.join(group)})" for group in groups)
        found = f"refers to {parent.name}({target}), which is neither its primary key nor declared unique"
        yield f"{found}; refer to {known}, or add unique: [[{target}]] to {parent.name}"


def _types(key: ForeignKey, schema: Schema, broken: AbstractSet[str]) -> Iterator[str]:
    for name, target in zip(key.columns, key.parent_columns, strict=True):
        here, there = f"{key.child}.{name}", f"{key.parent}.{target}"
        own, other = find_column(schema.table(key.child), name), find_column(schema.table(key.parent), target)
        if own and other and here not in broken and there not in broken:
            types = _stored_type(own, schema), _stored_type(other, schema)
            if types[0] != types[1]:
                yield f"{here}: type {types[0]}, but {there} is {types[1]}; give both the same type"


def _stored_type(column: Column, schema: Schema) -> str:
    """Return the type that must agree along a key."""
    is_enum = column.sql_type in {enum.name for enum in schema.enums}
    return f"enum {column.sql_type}" if is_enum else column.logical.key_type


def _nulls(key: ForeignKey, table: Table) -> Iterator[str]:
    nullable = {column.name for column in table.columns if column.nullable}.intersection(key.columns)
    shared = {name for other in table.foreign_keys if other.optional for name in other.columns}
    if key.optional and not nullable:
        yield "optional, but none of its columns can be NULL; remove optional: true, or declare a column nullable: true"
    if not key.optional and not nullable <= shared:
        yield "a nullable column in a required key; remove nullable: true, or declare the key optional: true"


def _to_public(key: ForeignKey) -> Iterator[str]:
    """Yield declarations about units on a key to a public table."""
    if key.max_children_per_unit is not None:
        yield "max_children_per_unit on a key that never refers to another unit; remove it"
    if key.same_unit:
        yield "same_unit: true on a key to a public table, whose rows belong to no unit; remove it"
    if key.on_unit_removed is not None:
        found = f"on_unit_removed: {key.on_unit_removed} on a key to a public table"
        yield f"{found}, whose rows are never removed with a unit; remove it"


# Rules on keys to private tables.


def _bound(key: ForeignKey, schema: Schema) -> Iterator[str]:
    table = schema.table(key.child)
    if table.public:
        yield f"a public table refers to the private table {key.parent}; make both public or both private"
    elif key.max_children is None and not key.same_unit:
        todo = f"declare the most {table.name} rows one {key.parent} row may have"
        yield f"max_children is missing; {todo}"
    elif key.max_children_per_unit is not None and (key.owner or key.same_unit):
        yield "max_children_per_unit on a key that never refers to another unit; remove it"
    elif key.max_children_per_unit is not None and key.parent == schema.unit:
        yield f"max_children_per_unit, but each row of {key.parent} is a unit; declare only max_children"
    elif (key.max_children or 1) > 1 and _is_unique(table, key):
        yield f"max_children is {key.max_children}, but the key is unique in {table.name}; write 1, or leave it out"


def _same_unit(key: ForeignKey, schema: Schema) -> Iterator[str]:
    """Yield where ``same_unit`` is meaningless or always true."""
    if key.same_unit and key.owner:
        yield "same_unit: true on the owner key, where it always holds; remove it"
    elif key.same_unit and key.child == key.parent == schema.unit:
        yield f"same_unit: true between rows of {schema.unit}, each a unit of its own; remove it"


def _on_unit_removed(key: ForeignKey, schema: Schema) -> Iterator[str]:
    """Yield where ``on_unit_removed: set null`` is impossible or meaningless.

    The row of a required key must be able to lose what it refers to while it stays what it is.
    """
    table, found = schema.table(key.child), "on_unit_removed: set null on a required key"
    others = [other for other in table.foreign_keys if other != key and not set(other.columns).isdisjoint(key.columns)]
    if key.on_unit_removed is not OnUnitRemoved.SET_NULL or (key.optional and not key.owner):
        return
    if key.owner:
        todo = "write cascade, or leave it out: a row goes with its owner"
        yield f"on_unit_removed: set null on the owner key; {todo}"
    elif key.same_unit:
        yield f"{found} with same_unit: true, which costs no noise; remove it"
    elif not set(key.columns).isdisjoint(table.primary_key):
        todo = "write cascade, or leave it out: without this reference the row would be a different one"
        yield f"{found} with a column of the primary key; {todo}"
    elif others:
        todo = "write cascade, or leave it out: the other key would lose its reference too"
        yield f"{found} that shares a column with {others[0].name}; {todo}"


def _row_ids(key: ForeignKey, schema: Schema) -> Iterator[str]:
    """Yield keys whose values change with another unit, in tables whose rows are identified by values alone.

    Those with ``same_unit`` too: a row that breaks it refers to another unit, and loses its reference with that one.
    """
    table = schema.table(key.child)
    if table.row_id and not table.public and not key.cascades:
        found = f"becomes NULL when a unit is removed, but rows of {table.name} are identified by their values (row_id)"
        yield f"{found}; name a primary key, or write on_unit_removed: cascade"


def _cannot_be_null(key: ForeignKey, schema: Schema) -> Iterator[str]:
    """Yield an optional key that has to become NULL when its parent's row goes, and none of whose columns can."""
    table = schema.table(key.child)
    nullable = any(column.nullable for name in key.columns if (column := find_column(table, name)))
    if key.optional and nullable and not key.cascades and not table.emptied_columns(key):
        found = (
            f"becomes NULL when the {key.parent} row it refers to is removed, but its columns are part of other keys"
        )
        yield f"{found}; write on_unit_removed: cascade, or leave this key out"


def _changing_target(key: ForeignKey, schema: Schema) -> Iterator[str]:
    """Yield a key to a column that becomes NULL when another unit goes: rows would lose a parent that is still there.

    What a row refers to, and whose it is, would then depend on other units, whatever the key itself does on removal.
    """
    for other in schema.table(key.parent).foreign_keys:
        lost = set(key.parent_columns).intersection(schema.changing_columns(other))
        if lost:
            found = (
                f"refers to {key.parent}.{min(lost)}, which becomes NULL when the {other.parent} row it refers to is"
            )
            todo = f"refer to another unique column of {key.parent}, or write on_unit_removed: cascade for {other.name}"
            yield f"{found} removed; {todo}"


# Rules on the whole schema.


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
            yield f"{cycle[0].child}: {_cycle(cycle)}"
            ready = [key.child for key in cycle]
        for name in ready:
            waiting.pop(name, None)


def _cycle(cycle: list[ForeignKey]) -> str:
    names = " or ".join(key.name for key in cycle if not key.owner)
    way = " -> ".join([*(key.child for key in cycle), cycle[-1].parent])
    if not names:
        return f"the owner keys form a cycle ({way}); mark owner: true on a key that leads to the unit"
    optional = [key.name for key in cycle if key.optional and not key.owner]
    if optional:
        return f"a cycle of keys that cascade ({way}); declare on_unit_removed: set null for {' or '.join(optional)}"
    found = "refers to itself by a required key" if len(cycle) == 1 else f"a cycle of required foreign keys ({way})"
    return f"{found}; declare {names} optional: true (filled in last), or leave it out of the spec"


def _candidates(schema: Schema) -> dict[str, list[ForeignKey]]:
    """Return, per private table, the keys whose parent reaches the unit without that table."""
    private = {table.name: table for table in schema.private_tables}
    children: dict[str, list[str]] = {}
    for table in private.values():
        for key in table.foreign_keys:
            children.setdefault(key.parent, []).append(table.name)

    def above(table: Table) -> set[str]:
        reached = reachable(schema.unit, lambda name: (n for n in children.get(name, ()) if n != table.name))
        return reached & private.keys() - {table.name}

    return {
        name: [key for key in table.foreign_keys if key.parent in reached]
        for name, table in private.items()
        for reached in [above(table) if table.foreign_keys else ()]
    }


def _ownership(schema: Schema, broken: AbstractSet[str]) -> Iterator[str]:
    """Yield where not exactly one path of owner keys leads from a private table to the unit."""
    candidates, unknown = _candidates(schema), without_known_owner(schema, broken)
    for table in schema.tables:
        marked = [key for key in table.foreign_keys if key.owner]
        if table.public or table.name == schema.unit:
            what = "a public table" if table.public else "the privacy unit"
            yield from (f"{key.name}: owner: true in {what}, which has no owner; remove it" for key in marked)
        elif len(marked) > 1:
            names = ", ".join(key.name for key in marked)
            yield f"{table.name}: several keys are marked owner: true ({names}); keep it on one"
        elif marked and schema.table(marked[0].parent).public:
            yield f"{marked[0].name}: owner: true on a key to a public table; mark a key that leads to {schema.unit}"
        elif table.name not in unknown:
            yield from _path(schema, table, marked, candidates[table.name])


def _path(schema: Schema, table: Table, marked: list[ForeignKey], candidates: list[ForeignKey]) -> Iterator[str]:
    if not candidates:
        out = "leave the table out with the keys that refer to it"
        todo = f"add a foreign key that leads to {schema.unit}, {out}, or declare it public if anyone may see its rows"
        yield f"{table.name}: a private table with no path to the privacy unit; {todo}"
    elif not marked:
        names = ", ".join(key.name for key in candidates)
        how = (
            "the one whose parent the row is about: there max_children is enforced, on the others only declared, unless"
            " they have same_unit: true"
        )
        yield f"{table.name}: several paths lead to the privacy unit; mark one of {names} with owner: true ({how})"
    elif marked[0] not in candidates and marked[0].parent != table.name:
        found = f"owner: true, but {marked[0].parent} has no path of its own to {schema.unit}"
        yield f"{marked[0].name}: {found}; mark another key"
