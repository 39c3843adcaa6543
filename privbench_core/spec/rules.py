"""Rules between columns, keys and tables: a schema that meets them has a well-defined privacy unit and a valid DDL.

Every rule returns problems instead of raising, so that all problems of a spec are reported at once. ``broken`` holds
the places (``table`` or ``table.column``) that parsing has already reported; rules skip these.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial

from privbench_core.errors import did_you_mean
from privbench_core.schema.checks import columns_of, is_contained, parse_check
from privbench_core.schema.columns import Column, ColumnType, EnumType, Generated, Learn, Pattern, Range, Scalar, Values
from privbench_core.schema.constraints import NAME_BYTES, Check
from privbench_core.schema.tables import Schema, Table
from privbench_core.schema.types.numeric import IntegerType
from privbench_core.schema.types.registry import SqlType, parse_sql_type
from privbench_core.spec.ddl import heir_problems, partition_problems, shared_names, view_problems
from privbench_core.spec.rules_of_keys import find_column, find_key_problems, without_known_owner

_METHOD = re.compile(r"[a-z]+ ?\(")
_OUTSIDE = "is not one expression; it must not close brackets it did not open, or contain comments"


def find_problems(schema: Schema, *, delta: float, broken: AbstractSet[str] = frozenset()) -> list[str]:
    """Return all broken rules of a schema whose keys went through `spec.rules_of_keys.infer_keys`.

    Args:
        schema: The schema; its foreign keys refer to tables and columns that exist.
        delta: δ of a release: 0 rules out learned lists of categories.
        broken: Places already reported.

    Returns:
        One line per problem: where, what was found, what to do.
    """
    problems = [*_names(schema), *view_problems(schema), *_unit(schema, broken), *find_key_problems(schema, broken)]
    enums, unowned = {enum.name: enum for enum in schema.enums}, without_known_owner(schema, broken)
    for table in schema.tables:
        problems += _circles(table)
        for column in table.columns:
            found, enum = [*_key_column(schema, table, column), *_default(column)], enums.get(column.sql_type or "")
            found += _sql_type(table, column) if enum is None else _enum(table, column, enum)
            if not table.public:
                found += _domain(table, column, delta)
                found += [] if _relative_to_broken(table, column, broken, unowned) else _relative(schema, table, column)
            place = f"{table.name}.{column.name}"
            problems += [f"{place}: {problem}" for problem in found if place not in broken]
        whole = _without_broken(table, broken)
        for rule in (
            _row_order,
            _checks,
            _dependencies,
            _computed,
            _using,
            partial(partition_problems, schema),
            partial(heir_problems, schema),
            _key_names,
        ):
            problems += [f"{table.name}{problem}" for problem in rule(whole)]
    return problems


def _relative_to_broken(table: Table, column: Column, broken: AbstractSet[str], unowned: AbstractSet[str]) -> bool:
    """Return whether a column is relative to one that is reported as wrong, or to one of an owner that is not known."""
    to = column.relative.to if column.relative else ""
    return not broken.isdisjoint((to, f"{table.name}.{to}")) or ("." in to and table.name in unowned)


def _without_broken(table: Table, broken: AbstractSet[str]) -> Table:
    """Return a table without an order of rows and expressions that refer to columns reported as wrong."""

    def is_whole(part: Check | Generated) -> bool:
        tree = parse_check(part.expression)
        return tree is None or broken_here.isdisjoint(columns_of(tree))

    broken_here = {place.removeprefix(f"{table.name}.") for place in broken}
    return replace(
        table,
        row_order=None if table.row_order in broken_here else table.row_order,
        checks=tuple(filter(is_whole, table.checks)),
        generated=tuple(filter(is_whole, table.generated)),
    )


def _names(schema: Schema) -> Iterator[str]:
    """Yield names that cannot be, or that PostgreSQL takes for one."""
    tables = [table.name for table in schema.tables]
    for name in (schema.name, *tables):
        if not name.isprintable():
            yield f"{name!r}: this name holds a character that cannot be printed; rename it"
    cut = f"are the same to PostgreSQL, which reads {NAME_BYTES} bytes of a name; rename one"
    yield from (f"{same}: tables differ only by case; rename one" for same in _same(tables, str.casefold))
    yield from (f"{same}: tables {cut}" for same in _same(tables, _cut))
    keys = [key.name for table in schema.tables for key in table.foreign_keys]
    yield from (f"{same}: two foreign keys of the same name; rename a column" for same in _same(keys, str))
    yield from (
        f"enums: {enum.name} is also the name of a type of PostgreSQL; rename it"
        for enum in schema.enums
        if parse_sql_type(enum.name)
    )
    yield from shared_names(schema)
    for table in schema.tables:
        columns = [column.name for column in table.columns]
        where = f"{table.name}: the columns"
        yield from (f"{where} {same} differ only by case; rename one" for same in _same(columns, str.casefold))
        yield from (f"{where} {same} {cut}" for same in _same(columns, _cut))
        yield from (f"{table.name}: a column name holds a NUL; remove it" for name in columns if "\0" in name)


def _cut(name: str) -> str:
    return name.encode()[:NAME_BYTES].decode(errors="ignore")


def _same(names: Iterable[str], seen_as: Callable[[str], str]) -> list[str]:
    """Return each group of names that ``seen_as`` maps to one, as a comma-separated list."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(seen_as(name), []).append(name)
    return [", ".join(dict.fromkeys(group)) for group in groups.values() if len(group) > 1]


def _unit(schema: Schema, broken: AbstractSet[str]) -> Iterator[str]:
    if schema.unit not in schema.by_name:
        if schema.unit and schema.unit not in broken:
            yield f"privacy: unit: there is no table {schema.unit!r}; {did_you_mean(schema.unit, schema.by_name)}"
        return
    unit = schema.table(schema.unit)
    if unit.empty:
        yield f"{unit.name}: the privacy unit is declared empty; remove empty: true, or choose another unit"
    elif unit.public:
        yield f"{unit.name}: the privacy unit is a public table; remove public: true, or choose another unit"
    for key in unit.foreign_keys:
        above = key.parent
        if not schema.table(above).public and above != unit.name and not key.optional:
            todo = f"make {above} (or a table above it) the unit, make the key optional, or make {above} public"
            yield f"{key.name}: the privacy unit depends on the private table {above}; {todo}"


def _key_column(schema: Schema, table: Table, column: Column) -> Iterator[str]:
    """Yield why a column cannot be part of a key, or cannot be modelled like an attribute in one."""
    in_reference = column.name in table.referring_columns
    if column.name in table.primary_key and column.nullable:
        yield "a primary key that may be NULL; remove nullable: true"
    if not (in_reference or column.name in table.primary_key):
        return
    if not (column.logical.keyable and (column.logical.surrogate or table.public)):
        yield f"a key of type {column.type}; keys are integers, decimals, times, UUIDs or text"
    if column.domain is None or table.public:
        return
    if not schema.is_stable(table.name, column.name):
        yield "a domain on a key column of a foreign key; remove it: references are generated"
    elif in_reference and not (column.type.ordered and column.domain == Learn()):
        todo = "only dates and numbers are modelled there, with domain: learn"
        yield f"a domain on a reference to public rows; remove it: {todo}"
    elif table.primary_key == (column.name,):
        if column.type is not ColumnType.TEXT or not (isinstance(column.domain, Pattern) and column.domain.regex):
            yield "a domain on a key column that is the whole primary key; remove it: only text keys have a pattern"
    elif column.type.opaque or isinstance(column.domain, Pattern):
        todo = "remove it, or declare type: category and its values"
        yield f"a domain on a key column of type {column.type}; {todo}"


def _row_order(table: Table) -> Iterator[str]:
    column = None if table.row_order is None else find_column(table, table.row_order)
    where = f": row_order: {table.row_order}"
    if column and column.name in table.key_columns:
        yield f"{where} is a key column, and keys are numbered in that order; name another column, or remove it"
    elif column and (not column.type.ordered or column.type is ColumnType.INTERVAL):
        yield f"{where} is of type {column.type}, which has no order; name a date, a time or a number, or remove it"


def _domain(table: Table, column: Column, delta: float) -> Iterator[str]:
    if column.name in table.key_columns or not (column.logical.needs_domain or column.learns_list):
        return
    if column.domain is None and column.relative is None:
        shape = "{min:, max:}" if column.type.ordered else "{values: [..]}"
        todo = f"declare domain: {shape}, or domain: learn (paid for)"
        yield f"a column of type {column.type} without a domain; {todo}"
    elif column.learns_list and delta == 0:
        kind = "the structure" if column.logical.structured else "a list of values"
        todo = "leave domain: learn out" if column.logical.structured else "list the values"
        yield f"{kind} cannot be learned with delta 0; {todo}, or declare delta above 0"


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
        yield f"relative to {to}, which is not a column; {did_you_mean(to, candidates)}"
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
        todo = "there would be nothing to add the difference to; declare it nullable: true, or remove relative_to"
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


def _enum(table: Table, column: Column, enum: EnumType) -> Iterator[str]:
    surrogate = not table.public and column.name in table.key_columns - table.referring_columns
    listed = column.domain.values if isinstance(column.domain, Values) else ()
    unknown = next((value for value in listed if value not in enum.values), None)
    if column.type is not ColumnType.CATEGORY:
        yield f"type {column.type}, but {enum.name} is an enum; declare type: category"
    elif surrogate:
        todo = "choose another key, declare the table public, or in a key of several columns a domain"
        yield f"a key of the enum {enum.name}; keys are generated, so {todo}"
    elif isinstance(column.domain, Learn):
        yield f"domain: learn, but the enum {enum.name} lists the values; leave the domain out"
    elif unknown is not None:
        hint = did_you_mean(str(unknown), enum.values)
        yield f"values holds {unknown!r}, which the enum {enum.name} does not have; {hint}"


def _sql_type(table: Table, column: Column) -> Iterator[str]:
    stored = column.stored_type
    if stored is None:
        yield f"sql_type {column.sql_type!r} is neither a known type nor an enum; correct it"
        return
    if column.type not in stored.stores:
        fitting = " or ".join(sorted(stored.stores))
        yield f"type {column.type}, but sql_type {stored} holds {fitting}; change one of them"
        return
    yield from _room(column, stored)
    if table.public:  # its values are the source's
        return
    if stored.is_array and column.domain is None:
        yield f"an array {stored}, for which no values can be made; declare domain: learn, or leave the column out"
    made = column.type.opaque and not isinstance(column.domain, Pattern) and column.name not in table.key_columns
    if made and not stored.facts.any_text and not stored.is_array:
        yield f"generated text is no valid {stored}; declare domain: {{faker: ipv4}} or similar, or type: category"


def _room(column: Column, stored: SqlType) -> Iterator[str]:
    """Yield declared values and lengths that do not fit the SQL type: they would fail only in the database."""
    length, logical = stored.length, column.logical
    low, high = logical.extent if isinstance(logical, IntegerType) else (-math.inf, math.inf)
    if logical.length_unit and length is not None and column.max_length > length:
        yield f"max_length is {column.max_length}, but sql_type {stored} holds at most {length}; lower it to that"
    values: tuple[Scalar, ...] = ()
    if isinstance(column.domain, Values):
        values = column.domain.values
    elif isinstance(column.domain, Range):
        values = (column.domain.low, column.domain.high)
    for value in values:
        too_long = length is not None and isinstance(value, str) and len(value) > length
        if too_long or (isinstance(value, int) and not low <= value <= high):
            yield f"the domain holds {value!r}, which does not fit in sql_type {stored}; correct one of them"
    digits = (*stored.arguments, 0)[:2] if stored.name == "numeric" and "precision" in logical.options else ()
    if stored.arguments and digits and digits != (column.precision, column.scale):
        yield f"{logical}, but sql_type {stored}; leave sql_type out, or make them agree"


def _default(column: Column) -> Iterator[str]:
    if column.default is not None and column.identity:
        yield "both a default and identity: true; remove one"
    if column.identity and column.nullable:
        yield "identity: true on a column that may be NULL; remove one of them"
    if column.default is not None and not is_contained(column.default):
        yield f"the default {_OUTSIDE}"


# Rules on what stands in a table: each problem begins with what follows the name of the table.


def _checks(table: Table) -> Iterator[str]:
    names = Counter(check.name for check in table.checks)
    yield from (f": two checks are called {name}; rename one" for name, n in names.items() if n > 1)
    for check in (*table.checks, *(check for heir in table.heirs for check in heir.checks)):
        yield from _expression(table, f": the check {check.name}", check.expression)


def _computed(table: Table) -> Iterator[str]:
    columns = {column.name.casefold() for column in table.columns}
    for column in table.generated:
        if column.name.casefold() in columns:
            yield f".{column.name}: both a column and generated; remove one"
        yield from _expression(table, f".{column.name}: the expression", column.expression)


def _expression(table: Table, place: str, expression: str) -> Iterator[str]:
    """Yield where an expression leaves its brackets, or names columns that its table does not have."""
    known = {column.name for column in table.columns}
    tree = parse_check(expression)
    if not is_contained(expression):
        yield f"{place} {_OUTSIDE}"
    for name in sorted(columns_of(tree) - known) if tree is not None else ():
        quoted = next((column for column in known if column.lower() == name), None)
        hint = f'write "{quoted}" in double quotes' if quoted else did_you_mean(name, known)
        yield f"{place} refers to {name}, which is not a column; {hint}"


def _using(table: Table) -> Iterator[str]:
    for index in (*(table.indexes or ()), *(index for heir in table.heirs for index in heir.indexes)):
        if index.using is not None and not (_METHOD.match(index.using) and is_contained(index.using)):
            todo = "write what follows USING in its definition, like 'gin (doc)'"
            yield f": the index {index.name}: using is {index.using!r}; {todo}"


def _key_names(table: Table) -> Iterator[str]:
    groups = {table.primary_key, *table.unique}
    named = Counter(group for group, _ in table.key_names)
    for group, name in table.key_names:
        columns = ", ".join(group)
        if group not in groups:
            found = f"{name} names ({columns}), which is neither the primary key nor declared unique"
            yield f": key_names: {found}; remove it, or declare unique: [[{columns}]]"
        elif named[group] > 1:
            yield f": key_names: ({columns}) has two names; keep one"
    keys = [key.constraint for key in (*table.foreign_keys, *table.implied_keys) if key.constraint]
    names = Counter([*keys, *(check.name for check in table.checks), *(name for _, name in table.key_names)])
    yield from (f": two constraints are called {name}; rename one" for name, n in names.items() if n > 1)


def _dependencies(table: Table) -> Iterator[str]:
    for rule in table.dependencies:
        place = f": the dependency of {', '.join(rule.dependent)} on {', '.join(rule.determinant)}"
        if set(rule.determinant) & set(rule.dependent):
            yield f"{place} has a column on both sides; remove it from one"
        for name in sorted(table.key_columns.intersection(rule.dependent)):
            yield f"{place} decides the key column {name}; remove it: keys are generated"
