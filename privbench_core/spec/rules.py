"""Rules between columns, keys and tables: a schema that meets them has a well-defined privacy unit and a valid DDL.

Every rule returns problems instead of raising, so that all problems of a spec are reported at once. ``broken`` holds
the places (``table`` or ``table.column``) that parsing has already reported; rules skip these.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from privbench_core.errors import did_you_mean
from privbench_core.schema.columns import Column, ColumnType, Pattern
from privbench_core.schema.tables import Schema, Table
from privbench_core.spec.rules_of_keys import find_column, find_key_problems
from privbench_core.spec.rules_of_sql import find_sql_problems

_IDENTIFIER_BYTES = 63  # PostgreSQL truncates longer identifiers


def find_problems(schema: Schema, *, delta: float, broken: Collection[str] = ()) -> list[str]:
    """Return all broken rules of a schema whose keys went through `spec.rules_of_keys.infer_keys`.

    Args:
        schema: The schema; its foreign keys refer to tables and columns that exist.
        delta: δ of a release: 0 rules out learned lists of categories.
        broken: Places already reported.

    Returns:
        One line per problem: where, what was found, what to do.
    """
    problems = [*_names(schema), *_unit(schema)]
    for table in schema.tables:
        problems += [*_key_columns(table), *([] if table.public else _row_order(table))]
    problems += find_key_problems(schema, broken)
    for table in schema.private_tables:
        for column in table.columns:
            place = f"{table.name}.{column.name}"
            if place not in broken:
                found = [*_domain(table, column, delta), *_relative(schema, table, column)]
                problems += [f"{place}: {problem}" for problem in found]
        problems += _circles(table)
    return problems + find_sql_problems(schema, broken)


def _names(schema: Schema) -> Iterator[str]:
    tables = [table.name for table in schema.tables]
    for name in (schema.name, *tables):
        if not name.isprintable():
            yield f"{name!r}: this name holds a character that cannot be printed; rename it"
    cut = f"are the same to PostgreSQL, which reads {_IDENTIFIER_BYTES} bytes of a name; rename one"
    yield from (f"{same}: tables differ only by case; rename one" for same in _same(tables, str.casefold))
    yield from (f"{same}: tables {cut}" for same in _same(tables, _cut))
    keys = [key.name for table in schema.tables for key in table.foreign_keys]
    yield from (f"{same}: two foreign keys of the same name; rename a column" for same in _same(keys, str))
    for table in schema.tables:
        columns = [column.name for column in table.columns]
        where = f"{table.name}: the columns"
        yield from (f"{where} {same} differ only by case; rename one" for same in _same(columns, str.casefold))
        yield from (f"{where} {same} {cut}" for same in _same(columns, _cut))
        yield from (f"{table.name}: a column name holds a NUL; remove it" for name in columns if "\0" in name)


def _cut(name: str) -> str:
    return name.encode()[:_IDENTIFIER_BYTES].decode(errors="ignore")


def _same(names: Iterable[str], seen_as: Callable[[str], str]) -> list[str]:
    """Return each group of names that ``seen_as`` maps to one, as a comma-separated list."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(seen_as(name), []).append(name)
    return [", ".join(dict.fromkeys(group)) for group in groups.values() if len(group) > 1]


def _unit(schema: Schema) -> Iterator[str]:
    if schema.unit not in schema.by_name:
        if schema.unit:
            yield f"privacy: unit {schema.unit!r} is no table; {did_you_mean(schema.unit, schema.by_name)}"
        return
    unit = schema.table(schema.unit)
    if unit.public:
        yield f"{unit.name}: the privacy unit is a public table; remove public: true, or choose another unit"
    for key in unit.foreign_keys:
        above = key.parent
        if not schema.table(above).public and above != unit.name and not key.optional:
            todo = f"make {above} (or a table above it) the unit, make the key optional, or make {above} public"
            yield f"{key.name}: the privacy unit depends on the private table {above}; {todo}"


def _key_columns(table: Table) -> Iterator[str]:
    """Yield why a column cannot be part of a key, or cannot be modelled like an attribute in one."""
    for column in table.columns:
        where = f"{table.name}.{column.name}"
        in_reference = column.name in table.referring_columns
        if column.name in table.primary_key and column.nullable:
            yield f"{where}: a primary key that may be NULL; remove nullable: true"
        if not (in_reference or column.name in table.primary_key):
            continue
        if not (column.logical.keyable and (column.logical.surrogate or table.public)):
            yield f"{where}: a key of type {column.type}; keys are integers, decimals, times, UUIDs or text"
        if column.domain is None or table.public:
            continue
        if in_reference:
            yield f"{where}: a domain on a key column of a foreign key; remove it: references are generated"
        elif len(table.primary_key) == 1:
            yield f"{where}: a domain on a key column that is the whole primary key; remove it: keys are generated"
        elif column.type.opaque or isinstance(column.domain, Pattern):
            todo = "remove it, or declare type: category and its values"
            yield f"{where}: a domain on a key column of type {column.type}; {todo}"


def _row_order(table: Table) -> Iterator[str]:
    column = None if table.row_order is None else find_column(table, table.row_order)
    where = f"{table.name}: row_order: {table.row_order}"
    if column and column.name in table.key_columns:
        yield f"{where} is a key column, and keys are numbered in that order; name another column, or remove it"
    elif column and (not column.type.ordered or column.type is ColumnType.INTERVAL):
        yield f"{where} is of type {column.type}, which has no order; name a date, a time or a number, or remove it"


def _domain(table: Table, column: Column, delta: float) -> Iterator[str]:
    if column.name in table.key_columns or column.logical.codec:
        return
    if column.domain is None and column.relative is None:
        shape = "{min:, max:}" if column.type.ordered else "{values: [..]}"
        todo = f"declare domain: {shape}, or domain: learn (paid for)"
        yield f"a column of type {column.type} without a domain; {todo}"
    elif column.learns_list and delta == 0:
        yield "a list of values cannot be learned with delta 0; list the values, or declare delta above 0"


def _relative(schema: Schema, table: Table, column: Column) -> Iterator[str]:
    """Yield why a column cannot be relative to another one of the same row, or of the row that owns it."""
    if column.relative is None:
        return
    owner, to = table.owner_key, column.relative.to
    above = schema.by_name.get(owner.parent) if owner and to in table.owner_bases else None
    known, name = (above, table.owner_bases[to]) if above else (table, to)
    base = find_column(known, name)
    of_types = "" if base is None else f"of type {column.logical}, relative to {to} of type {base.logical}"
    if column.name in table.key_columns:
        yield "relative_to on a key column; remove it: keys are generated"
    elif base is None:
        candidates = [each.name for each in table.columns]
        if owner and owner.parent in schema.by_name:
            candidates += [f"{owner.parent}.{each.name}" for each in schema.table(owner.parent).attributes]
        yield f"relative to {to}, which is no column; {did_you_mean(to, candidates)}"
    elif above and owner and owner.optional:
        todo = f"make {owner.name} required, or remove relative_to"
        yield f"relative to {to}, which a row without an owner does not have; {todo}"
    elif base.name in known.key_columns:
        yield f"relative to the key column {to}, whose values are generated; name a column that is no key, or remove it"
    elif (base.type, base.scale) != (column.type, column.scale):
        todo = "differences are taken between columns of one type and scale; change a type, or remove it"
        yield f"{of_types}; {todo}"
    elif above and base.precision != column.precision:
        yield f"{of_types}; declare the same precision for both, or remove relative_to"
    elif base.nullable and not column.nullable:
        todo = "there would be nothing to add to; declare it nullable: true, or remove relative_to"
        yield f"never NULL, but relative to {to}, which may be NULL; {todo}"


def _circles(table: Table) -> Iterator[str]:
    """Yield each circle of columns that are relative to each other, once."""
    bases = {column.name: column.relative.to for column in table.columns if column.relative is not None}
    seen: set[str] = set()
    for start in bases:
        path: list[str] = []
        here = start
        while here in bases and here not in seen:
            seen.add(here)
            path.append(here)
            here = bases[here]
        if here in path:
            circle = ", ".join(path[path.index(here) :])
            yield f"{table.name}: {circle}: relative to each other in a circle; remove relative_to from one of them"
