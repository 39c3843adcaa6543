"""Rules between columns, keys and tables: what makes a schema one whose privacy unit is well defined.

Every rule returns problems instead of raising, so that a spec is told all of them at once. `broken` holds the places
(``table`` or ``table.column``) that parsing has already reported; nothing is said about those twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

from privbench_core.errors import did_you_mean
from privbench_core.schema.model import Column, ColumnType, ForeignKey, Learn, Schema, Table

_UNKEYED = frozenset({ColumnType.FLOAT, ColumnType.BOOLEAN})
_FORBIDDEN = frozenset('/\\:*?"<>|')


def infer_owners(schema: Schema) -> Schema:
    """Mark the only possible owner key of every private table that marks none; the rest is left to `find_problems`."""
    reached = _reached(schema)

    def settled(table: Table) -> Table:
        candidates = _candidates(schema, table, reached)
        if table.public or table.name == schema.unit or table.owner_key or len(candidates) != 1:
            return table
        keys = tuple(replace(key, owner=True) if key == candidates[0] else key for key in table.foreign_keys)
        return replace(table, foreign_keys=keys)

    return replace(schema, tables=tuple(settled(table) for table in schema.tables))


def find_problems(schema: Schema, *, delta: float, broken: Collection[str] = ()) -> list[str]:
    """All broken rules of a schema whose owner keys are settled.

    Args:
        schema: The schema; its foreign keys refer to tables and columns that exist.
        delta: δ of a release: 0 rules out learned lists of categories.
        broken: Places already reported.

    Returns:
        One line per problem: where, what was found, what to do.
    """
    rules: tuple[Callable[[Schema], Iterator[str]], ...] = (_names, _unit, _primary_keys, _cycles)
    problems = [problem for rule in rules for problem in rule(schema)]
    problems += _foreign_keys(schema, broken)
    problems += _ownership(schema, broken)
    problems += _domains(schema, delta, broken)
    return problems


def _names(schema: Schema) -> Iterator[str]:
    for name in (schema.name, *(table.name for table in schema.tables)):
        if not _FORBIDDEN.isdisjoint(name) or not name.isprintable() or name.startswith("."):
            yield f"{name!r}: this name becomes part of file names; remove path separators, leading dots and wildcards"
    names = [table.name for table in schema.tables]
    yield from (f"{same}: tables differ only by case; rename one" for same in _same_but_case(names))
    for table in schema.tables:
        same_columns = _same_but_case([column.name for column in table.columns])
        yield from (f"{table.name}: the columns {same} differ only by case; rename one" for same in same_columns)
        yield from (f"{table.name}: a column name holds a NUL; remove it" for c in table.columns if "\0" in c.name)
        for column in sorted(table.key_columns):
            if not _FORBIDDEN.isdisjoint(column):
                yield f"{table.name}.{column}: a key's name becomes part of file names; remove path separators"


def _same_but_case(names: list[str]) -> list[str]:
    folded = Counter(name.casefold() for name in names)
    return [", ".join(n for n in names if n.casefold() == fold) for fold, count in folded.items() if count > 1]


def _unit(schema: Schema) -> Iterator[str]:
    if schema.unit not in schema.by_name:
        if schema.unit:
            hint = did_you_mean(schema.unit, schema.by_name)
            yield f"privacy: unit {schema.unit!r} is no table; {hint}"
        return
    unit = schema.table(schema.unit)
    if unit.public:
        yield f"{unit.name}: the privacy unit is a public table; remove public: true, or choose another unit"
    for key in unit.foreign_keys:
        if not schema.table(key.parent).public and key.parent != unit.name:
            todo = f"make {key.parent} (or a table above it) the unit, or declare it public: true"
            yield f"{key.name}: the privacy unit depends on the private table {key.parent}; {todo}"


def _primary_keys(schema: Schema) -> Iterator[str]:
    for table in schema.tables:
        for name in table.primary_key:
            column = _find(table, name)
            if column and column.nullable:
                yield f"{table.name}.{name}: a primary key that may be NULL; remove nullable: true"
        for name in sorted(table.key_columns):
            column = _find(table, name)
            if column and column.type in _UNKEYED:
                yield f"{table.name}.{name}: a key of type {column.type}; keys are integers, decimals, times or text"
            if column and column.domain is not None and not table.public:
                yield f"{table.name}.{name}: a domain on a key column; remove it: keys are made anew"


def _foreign_keys(schema: Schema, broken: Collection[str]) -> Iterator[str]:
    for table in schema.tables:
        for key in table.foreign_keys:
            parent = schema.table(key.parent)
            yield from _reference(table, key, parent, broken)
            if table.public and not parent.public:
                todo = "make both public or both private"
                yield f"{key.name}: a public table refers to the private table {parent.name}; {todo}"
            elif not parent.public and key.max_children is None:
                todo = f"declare the most {table.name} rows one {parent.name} row may have"
                yield f"{key.name}: max_children is missing; {todo}"


def _reference(table: Table, key: ForeignKey, parent: Table, broken: Collection[str]) -> Iterator[str]:
    if set(key.parent_columns) != set(parent.primary_key):
        target = ", ".join(key.parent_columns)
        known = ", ".join(parent.primary_key)
        yield f"{key.name}: refers to {parent.name}({target}), which is not its primary key; refer to ({known})"
    for name, target in zip(key.columns, key.parent_columns, strict=True):
        here, there = _find(table, name), _find(parent, target)
        reported = f"{table.name}.{name}" in broken or f"{parent.name}.{target}" in broken
        if here and there and not reported and _stored_type(here) != _stored_type(there):
            found = f"type {_stored_type(here)}, but {parent.name}.{target} is {_stored_type(there)}"
            yield f"{table.name}.{name}: {found}; give both the same type"
    nullable = [name for name in key.columns if (column := _find(table, name)) and column.nullable]
    shared = {name for other in table.foreign_keys if other.optional for name in other.columns}
    if key.optional and not nullable:
        todo = "remove optional: true, or declare a column nullable: true"
        yield f"{key.name}: optional, but none of its columns can be NULL; {todo}"
    if not key.optional and not shared.issuperset(nullable):
        todo = "remove nullable: true, or declare the key optional: true"
        yield f"{key.name}: a nullable column in a required key; {todo}"


def _stored_type(column: Column) -> str:
    """What must agree along a key: categories and opaque text are both stored as text."""
    if column.type is ColumnType.DECIMAL:
        return f"decimal({column.precision},{column.scale})"
    return "text" if column.type is ColumnType.CATEGORY else str(column.type)


def _cycles(schema: Schema) -> Iterator[str]:
    parents = {table.name: [key.parent for key in table.foreign_keys] for table in schema.tables}
    for name, above in parents.items():
        if name in above:
            yield f"{name}: refers to itself; leave this foreign key out of the spec (make its column an attribute)"
    waiting = {name: {parent for parent in above if parent != name} for name, above in parents.items()}
    while waiting:
        ready = [name for name, above in waiting.items() if above.isdisjoint(waiting)]
        if not ready:  # every table left has a parent that is left: walk up until one comes again
            path = [next(iter(waiting))]
            while path[-1] not in path[:-1]:
                path.append(next(parent for parent in parents[path[-1]] if parent in waiting and parent != path[-1]))
            ready = path[path.index(path[-1]) :]
            cycle = " -> ".join(ready)
            yield f"{ready[0]}: a cycle of foreign keys ({cycle}); leave one of these keys out of the spec"
        for name in ready:
            waiting.pop(name, None)


def _reached(schema: Schema) -> set[str]:
    """Private tables that some chain of foreign keys connects with the unit."""
    reached = {schema.unit}
    while True:
        more = {t.name for t in schema.private_tables if any(k.parent in reached for k in t.foreign_keys)} - reached
        if not more:
            return reached
        reached |= more


def _candidates(schema: Schema, table: Table, reached: set[str]) -> list[ForeignKey]:
    private = {other.name for other in schema.private_tables} & reached - {table.name}
    return [key for key in table.foreign_keys if key.parent in private]


def _ownership(schema: Schema, broken: Collection[str]) -> Iterator[str]:
    known_unit = schema.unit in schema.by_name
    reached = _reached(schema)
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
        elif marked and marked[0].optional:
            yield f"{marked[0].name}: the owner key is optional; every private row needs an owner, so make it required"
        elif known_unit and f"{table.name}.foreign_keys" not in broken:
            candidates = _candidates(schema, table, reached)
            if not candidates:
                todo = f"add a foreign key that leads to {schema.unit}, or declare public: true"
                yield f"{table.name}: a private table with no path to the privacy unit; {todo}"
            elif not marked:
                names = ", ".join(key.name for key in candidates)
                yield f"{table.name}: several paths lead to the privacy unit; mark one of {names} with owner: true"
            elif marked[0] not in candidates and marked[0].parent != table.name:
                found = f"owner: true, but {marked[0].parent} has no path to {schema.unit}"
                yield f"{marked[0].name}: {found}; mark another key"


def _domains(schema: Schema, delta: float, broken: Collection[str]) -> Iterator[str]:
    for table in schema.private_tables:
        for column in table.attributes:
            place = f"{table.name}.{column.name}"
            modelled = column.type.ordered or column.type is ColumnType.CATEGORY
            if place in broken or not modelled:
                continue
            if column.domain is None:
                shape = "{min:, max:}" if column.type.ordered else "{values: [..]}"
                todo = f"declare domain: {shape}, or domain: learn (paid for)"
                yield f"{place}: a column of type {column.type} without a domain; {todo}"
            elif isinstance(column.domain, Learn) and not column.type.ordered and delta == 0:
                todo = "list the values, or declare delta above 0"
                yield f"{place}: a list of values cannot be learned with delta 0; {todo}"


def _find(table: Table, name: str) -> Column | None:
    return next((column for column in table.columns if column.name == name), None)
