"""The schema as SQL for DuckDB, as far as DuckDB goes, and what has to be left out.

DuckDB adds foreign keys only while a table is created, so keys stand in CREATE TABLE here. What it cannot hold is
listed by trying it out in a database in memory, and not by a list of what some version cannot do.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from privbench_core.backends.duckdb.scratch import scratch
from privbench_core.backends.postgres.ddl import (
    comment_statements,
    enum_statements,
    name_list,
    quote_identifier,
    sql_type,
)
from privbench_core.schema.columns import Column
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.schema.types.sql import parse_sql_type

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


@dataclass(frozen=True)
class DuckDBSchema:
    """What to run in DuckDB.

    Attributes:
        enums: CREATE TYPE statements.
        tables: One CREATE TABLE per table name, each after those that it refers to.
        after: Indexes and comments, for after the rows are loaded.
        left_out: What DuckDB cannot hold, in words.
    """

    enums: tuple[str, ...]
    tables: dict[str, str]
    after: tuple[str, ...]
    left_out: tuple[str, ...]


def duckdb_schema(schema: Schema) -> DuckDBSchema:
    """Translate a schema, leaving out what DuckDB refuses."""
    enums = tuple(enum_statements(schema))
    left_out: list[str] = []
    tables: dict[str, str] = {}
    with scratch() as connection:
        for statement in enums:
            connection.execute(statement)
        for table in schema.sampling_order:
            keys = []
            for key in table.foreign_keys:
                reason = _obstacle(schema, key, tables)
                if reason is None:
                    keys.append(key)
                else:
                    left_out.append(f"{key.name}: the foreign key, because {reason}")
            tables[table.name] = _table(table, keys, connection, left_out)
            connection.execute(tables[table.name])
    after = []
    for table in schema.tables:
        left_out += [f"{table.name}.{column.name}: the computed column" for column in table.generated]
        for index in table.indexes or ():
            if index.using is None:
                name = quote_identifier(index.name)
                after.append(f"CREATE INDEX {name} ON {quote_identifier(table.name)} ({name_list(index.columns)});")
            else:
                left_out.append(f"{table.name}: the index {index.name}, which DuckDB has no such kind of")
    bare = [replace(table, generated=()) for table in schema.tables]
    after += [statement for table in bare for statement in comment_statements(table)]
    return DuckDBSchema(enums, tables, tuple(after), tuple(left_out))


def _obstacle(schema: Schema, key: ForeignKey, there: Collection[str]) -> str | None:
    """Return why DuckDB cannot hold a foreign key of a table made after those that are ``there``, None if it can."""
    if key.parent not in there:
        return f"rows of {key.parent} are loaded at the same time or later"
    child, parent = schema.table(key.child), schema.table(key.parent)
    pairs = zip(key.columns, key.parent_columns, strict=True)
    differ = [f"{key.parent}.{b}" for a, b in pairs if _kind(child.column(a)) != _kind(parent.column(b))]
    return f"DuckDB wants the types of {', '.join(differ)}" if differ else None


def _kind(column: Column) -> str:
    """Return what must agree along a foreign key; all bounds on the length of text are the same to DuckDB."""
    stored = parse_sql_type(_type(column))
    return _type(column) if stored is None or stored.length is None else "text"


def _table(table: Table, keys: list[ForeignKey], connection: DuckDBPyConnection, left_out: list[str]) -> str:
    plain = [f"{quote_identifier(column.name)} {_type(column)}" for column in table.columns]
    inside = [_column(table, column, connection, left_out) for column in table.columns]
    if table.primary_key:
        inside.append(f"PRIMARY KEY ({name_list(table.primary_key)})")
    inside += [f"UNIQUE ({name_list(columns)})" for columns in table.unique]
    for check in table.checks:
        if _accepts(connection, [*plain, f"CHECK ({check.expression})"]):
            inside.append(f"CHECK ({check.expression})")
        else:
            left_out.append(f"{table.name}: the check {check.name}, which DuckDB does not understand")
    for key in keys:
        there = f"{quote_identifier(key.parent)} ({name_list(key.parent_columns)})"
        inside.append(f"FOREIGN KEY ({name_list(key.columns)}) REFERENCES {there}")
    lines = ",\n".join(f"    {line}" for line in inside)
    return f"CREATE TABLE {quote_identifier(table.name)} (\n{lines}\n);"


def _column(table: Table, column: Column, connection: DuckDBPyConnection, left_out: list[str]) -> str:
    bare = f"{quote_identifier(column.name)} {_type(column)}"
    whole = bare if column.nullable else f"{bare} NOT NULL"
    if column.identity:
        left_out.append(f"{table.name}.{column.name}: the numbering of new rows")
    if column.default is None:
        return whole
    if _accepts(connection, [f"{bare} DEFAULT ({column.default})"]):
        return f"{whole} DEFAULT ({column.default})"
    left_out.append(f"{table.name}.{column.name}: the default, which DuckDB does not understand")
    return whole


def _type(column: Column) -> str:
    stored = column.stored_type
    if stored is None:
        return sql_type(column)
    if stored.name == "numeric" and column.precision:  # PostgreSQL needs no bound; the declared digits are enough
        return f"numeric({column.precision},{column.scale})"
    return stored.facts.duckdb or str(stored)


def _accepts(connection: DuckDBPyConnection, inside: list[str]) -> bool:
    """Return whether DuckDB makes a table of these lines."""
    import duckdb

    try:
        connection.execute(f"CREATE TEMP TABLE tried ({', '.join(inside)})")
        connection.execute("DROP TABLE tried")
    except duckdb.Error:
        return False
    return True
