"""The schema as SQL, in the dialect that PostgreSQL and DuckDB share.

Tables come in sampling order, so every statement refers only to what stands before it. Tables and keys are emitted
apart: rows load fastest into bare tables, and an index built afterwards is packed. Constraints and indexes carry no
names, because generated names could collide where the server cuts identifiers short; the server picks unique ones.
"""

from __future__ import annotations

from collections.abc import Iterable

from privbench_core.schema.model import Column, ColumnType, ForeignKey, Schema, Table

_SQL_TYPES = {
    ColumnType.INTEGER: "bigint",
    ColumnType.FLOAT: "double precision",
    ColumnType.BOOLEAN: "boolean",
    ColumnType.DATE: "date",
    ColumnType.TIMESTAMP: "timestamp",
    ColumnType.CATEGORY: "text",
    ColumnType.TEXT: "text",
}


def quote_identifier(name: str) -> str:
    """A name as a quoted SQL identifier.

    >>> print(quote_identifier('my "odd" name'))
    "my ""odd"" name"
    """
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def sql_type(column: Column) -> str:
    """The SQL type of a column, the same in PostgreSQL and DuckDB."""
    if column.type is ColumnType.DECIMAL:
        return f"numeric({column.precision}, {column.scale})"
    return _SQL_TYPES[column.type]


def create_schema_sql(schema: Schema) -> str:
    """The whole schema: tables, then keys and indexes."""
    return f"{create_tables_sql(schema)}\n{create_keys_sql(schema)}"


def create_tables_sql(schema: Schema) -> str:
    """The tables with their columns and NOT NULL, without keys: what rows are loaded into."""
    return "\n".join(_table(table) for table in schema.sampling_order)


def create_primary_keys_sql(schema: Schema) -> str:
    """The primary keys alone: all that DuckDB can add to a table that exists."""
    return _lines(
        f"ALTER TABLE {quote_identifier(table.name)} ADD PRIMARY KEY ({_list(table.primary_key)});"
        for table in schema.sampling_order
    )


def create_keys_sql(schema: Schema) -> str:
    """Primary keys, UNIQUE constraints, foreign keys and one index per foreign key, for after the rows are loaded."""
    tables = schema.sampling_order
    unique = [
        f"ALTER TABLE {quote_identifier(table.name)} ADD UNIQUE ({_list(columns)});"
        for table in tables
        for columns in table.unique
    ]
    keys = [key for table in tables for key in table.foreign_keys]
    # A primary key that starts with the same columns is an index on them already.
    bare = [key for key in keys if schema.table(key.child).primary_key[: len(key.columns)] != key.columns]
    indexes = [f"CREATE INDEX ON {quote_identifier(key.child)} ({_list(key.columns)});" for key in bare]
    return create_primary_keys_sql(schema) + _lines([*unique, *(_foreign_key(key) for key in keys), *indexes])


def _table(table: Table) -> str:
    columns = [
        f"    {quote_identifier(column.name)} {sql_type(column)}{'' if column.nullable else ' NOT NULL'}"
        for column in table.columns
    ]
    inside = ",\n".join(columns)
    return f"CREATE TABLE {quote_identifier(table.name)} (\n{inside}\n);\n"


def _foreign_key(key: ForeignKey) -> str:
    there = f"{quote_identifier(key.parent)} ({_list(key.parent_columns)})"
    return f"ALTER TABLE {quote_identifier(key.child)} ADD FOREIGN KEY ({_list(key.columns)}) REFERENCES {there};"


def _list(names: Iterable[str]) -> str:
    return ", ".join(quote_identifier(name) for name in names)


def _lines(statements: Iterable[str]) -> str:
    return "".join(f"{statement}\n" for statement in statements)
