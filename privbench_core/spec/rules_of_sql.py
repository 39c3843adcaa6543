"""Rules on what goes into the DDL (SQL types, enums, defaults, checks, indexes), and on dependencies."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator

from privbench_core.errors import did_you_mean
from privbench_core.schema.checks import columns_of, is_contained, parse_check
from privbench_core.schema.columns import Column, ColumnType, EnumType, Learn, Pattern, Range, Scalar, Values
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
        for column in table.columns:
            place, enum = f"{table.name}.{column.name}", enums.get(column.sql_type or "")
            if place not in broken:
                found = _sql_type(table, column) if enum is None else _enum(table, column, enum)
                problems += [f"{place}: {problem}" for problem in (*found, *_default(column))]
        for rule in (_checks, _dependencies, _computed, _using, _key_names):
            problems += [f"{table.name}{problem}" for problem in rule(table)]
    return [*problems, *_shared_names(schema)]


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
    made = column.type.opaque and not isinstance(column.domain, Pattern) and column.name not in table.key_columns
    if made and not stored.facts.any_text:
        yield f"generated text is no valid {stored}; declare domain: {{faker: ipv4}} or similar, or type: category"


def _room(column: Column, stored: SqlType) -> Iterator[str]:
    """Yield declared values and lengths that do not fit the SQL type: they would fail only in the database."""
    length, bounds = stored.length, stored.integers
    if column.logical.length_unit and length is not None and column.max_length > length:
        yield f"max_length is {column.max_length}, but sql_type {stored} holds at most {length}; lower it to that"
    values: tuple[Scalar, ...] = ()
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
    digits = (*stored.arguments, 0)[:2] if stored.name == "numeric" and "precision" in column.logical.options else ()
    if stored.arguments and digits and digits != (column.precision, column.scale):
        yield f"{column.logical}, but sql_type {stored}; leave sql_type out, or make them agree"


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
    for check in table.checks:
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
        yield f"{place} refers to {name}, which is no column; {hint}"


def _using(table: Table) -> Iterator[str]:
    for index in table.indexes or ():
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


def _shared_names(schema: Schema) -> Iterator[str]:
    """Yield names that two things have which PostgreSQL keeps in one list."""
    kinds: dict[str, list[str]] = {table.name: ["a table"] for table in schema.tables}
    found = [(index.name, "an index") for table in schema.tables for index in table.indexes or ()]
    found += [(name, "a key") for table in schema.tables for _, name in table.key_names]
    counted = (column.sequence for table in schema.tables for column in table.columns if column.sequence)
    found += [(sequence.name, "a sequence") for sequence in counted if sequence.name is not None]
    for name, kind in found:
        kinds.setdefault(name, []).append(kind)
    for name, (first, *others) in kinds.items():
        if others:
            what = f"{others[0]} is called like {first}" if first != "an index" else "two indexes have this name"
            yield f"{name}: {what}, and PostgreSQL keeps both in one list; rename one"
