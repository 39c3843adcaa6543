"""Rules between columns, keys and tables: a schema that meets them has a well-defined privacy unit.

Every rule returns problems instead of raising, so that all problems of a spec are reported at once. ``broken`` holds
the places (``table`` or ``table.column``) that parsing has already reported; rules skip these.
"""

from __future__ import annotations

from collections import Counter
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
    rules: tuple[Callable[[Schema], Iterator[str]], ...] = (_names, _unit, _primary_keys, _row_order)
    problems = [problem for rule in rules for problem in rule(schema)]
    problems += find_key_problems(schema, broken)
    problems += _domains(schema, delta, broken)
    problems += _relatives(schema, broken)
    problems += find_sql_problems(schema, broken)
    return problems


def _names(schema: Schema) -> Iterator[str]:
    tables = [table.name for table in schema.tables]
    for name in (schema.name, *tables):
        if not name.isprintable():
            yield f"{name!r}: this name holds a character that cannot be printed; rename it"
    yield from (f"{same}: tables differ only by case; rename one" for same in _same(tables, str.casefold))
    yield from (f"{same}: tables are the same to PostgreSQL, {_CUT}" for same in _same(tables, _cut))
    keys = [key.name for table in schema.tables for key in table.foreign_keys]
    yield from (f"{same}: two foreign keys of the same name; rename a column" for same in _same(keys, str))
    for table in schema.tables:
        columns = [column.name for column in table.columns]
        where = f"{table.name}: the columns"
        yield from (f"{where} {same} differ only by case; rename one" for same in _same(columns, str.casefold))
        yield from (f"{where} {same} are the same to PostgreSQL, {_CUT}" for same in _same(columns, _cut))
        yield from (f"{table.name}: a column name holds a NUL; remove it" for name in columns if "\0" in name)


_CUT = f"which reads {_IDENTIFIER_BYTES} bytes of a name; rename one"


def _cut(name: str) -> str:
    return name.encode()[:_IDENTIFIER_BYTES].decode(errors="ignore")


def _same(names: Iterable[str], seen_as: Callable[[str], str]) -> list[str]:
    """Return each group of names that ``seen_as`` maps to one, as a comma-separated list."""
    listed = list(names)
    groups = Counter(seen_as(name) for name in listed)
    found = [[name for name in listed if seen_as(name) == group] for group, count in groups.items() if count > 1]
    return [", ".join(dict.fromkeys(group)) for group in found]


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
        if not schema.table(key.parent).public and key.parent != unit.name and not key.optional:
            todo = (
                f"make {key.parent} (or a table above it) the unit, make the key optional, or make {key.parent} public"
            )
            yield f"{key.name}: the privacy unit depends on the private table {key.parent}; {todo}"


def _primary_keys(schema: Schema) -> Iterator[str]:
    for table in schema.tables:
        for name in table.primary_key:
            column = find_column(table, name)
            if column and column.nullable:
                yield f"{table.name}.{name}: a primary key that may be NULL; remove nullable: true"
        for name in sorted(table.referring_columns.union(table.primary_key)):
            column = find_column(table, name)
            if column and not (column.logical.keyable and (column.logical.surrogate or table.public)):
                todo = "keys are integers, decimals, times, UUIDs or text"
                yield f"{table.name}.{name}: a key of type {column.type}; {todo}"
            if column and column.domain is not None and not table.public:
                yield from _domain_in_a_key(table, column)


def _domain_in_a_key(table: Table, column: Column) -> Iterator[str]:
    """Yield why a key column cannot be modelled like an attribute."""
    where = f"{table.name}.{column.name}: a domain on a key column"
    if column.name in table.referring_columns:
        yield f"{where} of a foreign key; remove it: references are generated"
    elif len(table.primary_key) == 1:
        yield f"{where} that is the whole primary key; remove it: keys are generated"
    elif column.type.opaque or isinstance(column.domain, Pattern):
        yield f"{where} of type {column.type}; remove it, or declare type: category and its values"


def _row_order(schema: Schema) -> Iterator[str]:
    for table in schema.private_tables:
        column = None if table.row_order is None else find_column(table, table.row_order)
        if column is None:
            continue
        where = f"{table.name}: row_order: {column.name}"
        if column.name in table.key_columns:
            yield f"{where} is a key column, and keys are numbered in that order; name another column, or remove it"
        elif not column.type.ordered or column.type is ColumnType.INTERVAL:
            yield f"{where} is of type {column.type}, which has no order; name a date, a time or a number, or remove it"


def _domains(schema: Schema, delta: float, broken: Collection[str]) -> Iterator[str]:
    for table in schema.private_tables:
        for column in table.attributes:
            place = f"{table.name}.{column.name}"
            if place in broken or column.logical.codec:
                continue
            if column.domain is None and column.relative is None:
                shape = "{min:, max:}" if column.type.ordered else "{values: [..]}"
                todo = f"declare domain: {shape}, or domain: learn (paid for)"
                yield f"{place}: a column of type {column.type} without a domain; {todo}"
            elif column.learns_list and delta == 0:
                todo = "list the values, or declare delta above 0"
                yield f"{place}: a list of values cannot be learned with delta 0; {todo}"


def _relatives(schema: Schema, broken: Collection[str]) -> Iterator[str]:
    """Yield what is wrong with columns that are relative to another one, of the same row or of the row that owns it."""
    for table in schema.private_tables:
        for column in table.columns:
            place = f"{table.name}.{column.name}"
            if column.relative is not None and place not in broken:
                found = _of_relative(schema, table, column, column.relative.to)
                yield from (f"{place}: {problem}" for problem in found)
        yield from _circles(table)


def _of_relative(schema: Schema, table: Table, column: Column, to: str) -> Iterator[str]:
    owner = table.owner_key
    above = None if owner is None else schema.by_name.get(owner.parent)
    of_owner = above is not None and to in table.owner_bases
    known, name = (above, table.owner_bases[to]) if above is not None and of_owner else (table, to)
    base = find_column(known, name)
    if column.name in table.key_columns:
        yield "relative_to on a key column; remove it: keys are generated"
    elif base is None:
        candidates = [each.name for each in table.columns]
        candidates += [] if above is None else [f"{above.name}.{each.name}" for each in above.attributes]
        yield f"relative to {to}, which is no column; {did_you_mean(to, candidates)}"
    elif of_owner and owner is not None and owner.optional:
        todo = f"make {owner.name} required, or remove relative_to"
        yield f"relative to {to}, which a row without an owner does not have; {todo}"
    elif base.name in known.key_columns:
        yield f"relative to the key column {to}, whose values are generated; name a column that is no key, or remove it"
    elif (base.type, base.scale) != (column.type, column.scale):
        todo = "differences are taken between columns of one type and scale; change a type, or remove it"
        yield f"of type {column.logical}, relative to {to} of type {base.logical}; {todo}"
    elif of_owner and base.precision != column.precision:
        todo = "declare the same precision for both, or remove relative_to"
        yield f"of type {column.logical}, relative to {to} of type {base.logical}; {todo}"
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
