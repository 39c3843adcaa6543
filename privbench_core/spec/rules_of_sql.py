"""Rules on what goes into the DDL (SQL types, enums, defaults, checks, indexes), and on dependencies."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator

from privbench_core.errors import did_you_mean
from privbench_core.schema.checks import columns_of, is_contained, parse_check
from privbench_core.schema.columns import Column, ColumnType, EnumType, Learn, Pattern, Range, Values
from privbench_core.schema.tables import Schema, Table
from privbench_core.schema.types.numeric import as_integer
from privbench_core.schema.types.registry import SqlType, parse_sql_type

_METHOD = re.compile(r"[a-z]+ ?\(")
_OUTSIDE = "is not one expression; it must not close brackets it did not open, or contain comments"


def find_sql_problems(schema: Schema, broken: Collection[str] = ()) -> list[str]:
    """Return one line per broken rule, except at ``broken`` places."""
    enums = {enum.name: enum for enum in schema.enums}
    problems = [
        f"enums: {name} is also the name of a type of PostgreSQL; rename it" for name in enums if parse_sql_type(name)
    ]
    for table in schema.tables:
        surrogates = frozenset[str]() if table.public else table.key_columns - table.referring_columns
        for column in table.columns:
            place = f"{table.name}.{column.name}"
            if place in broken:
                continue
            if column.sql_type in enums:
                found = _enum(column, enums[column.sql_type], is_surrogate=column.name in surrogates)
            else:
                found = _sql_type(column, is_key=column.name in table.key_columns)
            problems += [f"{place}: {problem}" for problem in (*found, *_default(column))]
        problems += [*_checks(table), *_dependencies(table), *_computed(table), *_using(table), *_key_names(table)]
    return [*problems, *_index_names(schema)]


def _enum(column: Column, enum: EnumType, *, is_surrogate: bool) -> Iterator[str]:
    if column.type is not ColumnType.CATEGORY:
        yield f"type {column.type}, but {enum.name} is an enum; declare type: category"
    elif is_surrogate:
        todo = "choose another key, declare the table public, or in a key of several columns a domain"
        yield f"a key of the enum {enum.name}; keys are generated, so {todo}"
    elif isinstance(column.domain, Learn):
        yield f"domain: learn, but the enum {enum.name} lists the values; leave the domain out"
    elif isinstance(column.domain, Values):
        unknown = [value for value in column.domain.values if value not in enum.values]
        if unknown:
            hint = did_you_mean(str(unknown[0]), enum.values)
            yield f"values holds {unknown[0]!r}, which the enum {enum.name} does not have; {hint}"


def _sql_type(column: Column, *, is_key: bool) -> Iterator[str]:
    stored = column.stored_type
    if stored is None:
        yield f"sql_type {column.sql_type!r} is neither a known type nor an enum; correct it"
        return
    if column.type not in stored.stores:
        fitting = " or ".join(sorted(stored.stores))
        yield f"type {column.type}, but sql_type {stored} holds {fitting}; change one of them"
        return
    yield from _room(column, stored)
    opaque = column.type.opaque and not isinstance(column.domain, Pattern) and not is_key
    if opaque and not stored.facts.any_text:
        yield f"generated text is no valid {stored}; declare domain: {{faker: ipv4}} or similar, or type: category"


def _room(column: Column, stored: SqlType) -> Iterator[str]:
    """Yield declared values and lengths that do not fit the SQL type: they would fail only in the database."""
    length, bounds = stored.length, stored.integers
    if column.logical.length_unit and length is not None and column.max_length > length:
        yield f"max_length is {column.max_length}, but sql_type {stored} holds at most {length}; lower it to that"
    values: tuple[object, ...] = ()
    if isinstance(column.domain, Values):
        values = column.domain.values
    elif isinstance(column.domain, Range):
        values = (column.domain.low, column.domain.high)
    for value in values:
        number = as_integer(value) if bounds else None
        outside = bounds and number is not None and not bounds[0] <= number <= bounds[1]
        too_long = length is not None and isinstance(value, str) and len(value) > length
        if outside or too_long:
            yield f"the domain holds {value!r}, which does not fit in sql_type {stored}; correct one of them"
    if stored.name == "numeric" and "precision" in column.logical.options and stored.arguments:
        precision, scale = (*stored.arguments, 0)[:2]
        if (precision, scale) != (column.precision, column.scale):
            yield f"{column.logical}, but sql_type {stored}; leave sql_type out, or make them agree"


def _default(column: Column) -> Iterator[str]:
    if column.default is not None and column.identity:
        yield "both a default and identity: true; remove one"
    if column.identity and column.nullable:
        yield "identity: true on a column that may be NULL; remove one of them"
    if column.default is not None and not is_contained(column.default):
        yield f"the default {_OUTSIDE}"


def _checks(table: Table) -> Iterator[str]:
    names = Counter(check.name for check in table.checks)
    yield from (f"{table.name}: two checks are called {name}; rename one" for name, n in names.items() if n > 1)
    for check in table.checks:
        yield from _expression(table, f"{table.name}: the check {check.name}", check.expression)


def _computed(table: Table) -> Iterator[str]:
    for column in table.generated:
        place = f"{table.name}.{column.name}"
        if any(other.name.casefold() == column.name.casefold() for other in table.columns):
            yield f"{place}: both a column and generated; remove one"
        yield from _expression(table, f"{place}: the expression", column.expression)


def _expression(table: Table, place: str, expression: str) -> Iterator[str]:
    """Yield where an expression leaves its brackets, or names columns that its table does not have."""
    known = {column.name for column in table.columns}
    tree = parse_check(expression)
    if not is_contained(expression):
        yield f"{place} {_OUTSIDE}"
    for name in sorted(columns_of(tree) - known) if tree is not None else ():
        quoted = next((column for column in known if column.lower() == name), None)
        hint = f'write "{quoted}" in double quotes' if quoted else did_you_mean(name, known)
        yield f"{place} refers to {name}, which is no column; {hint}"


def _using(table: Table) -> Iterator[str]:
    for index in table.indexes or ():
        if index.using is not None and not (_METHOD.match(index.using) and is_contained(index.using)):
            todo = "write what follows USING in its definition, like 'gin (doc)'"
            yield f"{table.name}: the index {index.name}: using is {index.using!r}; {todo}"


def _key_names(table: Table) -> Iterator[str]:
    groups = {table.primary_key, *table.unique}
    named = Counter(group for group, _ in table.key_names)
    for group, name in table.key_names:
        columns = ", ".join(group)
        if group not in groups:
            found = f"{name} names ({columns}), which is neither the primary key nor declared unique"
            yield f"{table.name}: key_names: {found}; remove it, or declare unique: [[{columns}]]"
        elif named[group] > 1:
            yield f"{table.name}: key_names: ({columns}) has two names; keep one"
    constraints = Counter(key.constraint for key in (*table.foreign_keys, *table.implied_keys) if key.constraint)
    constraints += Counter([*(check.name for check in table.checks), *(name for _, name in table.key_names)])
    yield from (
        f"{table.name}: two constraints are called {name}; rename one" for name, n in constraints.items() if n > 1
    )


def _dependencies(table: Table) -> Iterator[str]:
    for rule in table.dependencies:
        place = f"{table.name}: the dependency of {', '.join(rule.dependent)} on {', '.join(rule.determinant)}"
        if set(rule.determinant) & set(rule.dependent):
            yield f"{place} has a column on both sides; remove it from one"
        for name in sorted(table.key_columns.intersection(rule.dependent)):
            yield f"{place} decides the key column {name}; remove it: keys are generated"


def _index_names(schema: Schema) -> Iterator[str]:
    found = [(table.name, "a table") for table in schema.tables]
    found += [(index.name, "an index") for table in schema.tables for index in table.indexes or ()]
    found += [(name, "a key") for table in schema.tables for _, name in table.key_names]
    counted = (column.sequence for table in schema.tables for column in table.columns if column.sequence)
    found += [(sequence.name, "a sequence") for sequence in counted if sequence.name is not None]
    kinds: dict[str, list[str]] = {}
    for name, kind in found:
        kinds.setdefault(name, []).append(kind)
    for name, (first, *others) in kinds.items():
        if others:
            what = f"{others[0]} is called like {first}" if first != "an index" else "two indexes have this name"
            yield f"{name}: {what}, and PostgreSQL keeps both in one list; rename one"
