"""A bundle in DuckDB: its schema as SQL, as far as DuckDB goes, and its rows.

DuckDB adds foreign keys only while a table is created, so keys stand in CREATE TABLE here. What it cannot hold is
listed by trying it out in a database in memory, and not by a list of what some version cannot do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from privbench_core.backends.duckdb.connections import bounded, scratch, waited
from privbench_core.backends.loading import Files, Loaded, refuse_tables
from privbench_core.backends.postgres.ddl import (
    comment_statements,
    first_statements,
    name_list,
    qualified,
    quote_identifier,
    quote_text,
    sql_type,
)
from privbench_core.errors import PublishError
from privbench_core.schema.columns import Column
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table, split_name
from privbench_core.schema.types.registry import parse_sql_type


@dataclass(frozen=True)
class DuckDBSchema:
    """What to run in DuckDB."""

    first: tuple[str, ...]  # CREATE SCHEMA and CREATE TYPE statements
    tables: dict[str, str]  # one CREATE TABLE per table name, each after those that it refers to
    after: tuple[str, ...]  # indexes and comments, for after the rows are loaded
    left_out: tuple[str, ...]  # what DuckDB cannot hold, in words


def duckdb_schema(schema: Schema) -> DuckDBSchema:
    """Translate a schema, leaving out what DuckDB refuses."""
    first = tuple(first_statements(schema))
    left_out: list[str] = []
    tables: dict[str, str] = {}
    with scratch() as connection:
        for statement in first:
            connection.execute(statement)
        for table in schema.sampling_order:
            obstacles = {key: _obstacle(schema, key, tables) for key in table.foreign_keys}
            left_out += [f"{key.name}: the foreign key, because {why}" for key, why in obstacles.items() if why]
            keys = [key for key, why in obstacles.items() if why is None]
            tables[table.name] = _table(table, schema.schemas, keys, connection, left_out)
            connection.execute(tables[table.name])
        after = []
        for table in schema.tables:
            left_out += [f"{table.name}.{column.name}: the computed column" for column in table.generated]
            left_out += [f"{table.name}: the partitions"] if table.partitioned else []
            left_out += [f"{table.name}: the table {heir.name}, which inherits from it" for heir in table.heirs]
            for index in table.indexes or ():
                on = f"{qualified(table.name, schema.schemas)} ({name_list(index.columns)})"
                statement = f"CREATE INDEX {quote_identifier(index.name)} ON {on};"
                if index.using is None and _runs(connection, statement):
                    after.append(statement)
                else:
                    left_out.append(f"{table.name}: the index {index.name}, of a kind that DuckDB does not have")
    left_out += [f"the view {view.name}" for view in schema.views]
    bare = [dataclasses.replace(table, generated=()) for table in schema.tables]
    after += [statement for table in bare for statement in comment_statements(table, schema.schemas)]
    return DuckDBSchema(first, tables, tuple(after), tuple(left_out))


def _obstacle(schema: Schema, key: ForeignKey, there: Collection[str]) -> str | None:
    """Return why DuckDB cannot hold a foreign key of a table made after those that are ``there``, None if it can."""
    if key.parent not in there:
        return f"{key.parent} is loaded at the same time or later"
    child, parent, schemas = schema.table(key.child), schema.table(key.parent), schema.schemas
    if split_name(key.child, schemas)[0] != split_name(key.parent, schemas)[0]:
        return f"{key.parent} is in another schema"
    pairs = zip(key.columns, key.parent_columns, strict=True)
    differ = [
        f"{key.parent}.{b}" for a, b in pairs if _kind(child.column(a), schemas) != _kind(parent.column(b), schemas)
    ]
    return f"DuckDB requires the same types as {', '.join(differ)}" if differ else None


def _kind(column: Column, schemas: Sequence[str]) -> str:
    """Return what must agree along a foreign key; all bounds on the length of text are the same to DuckDB."""
    kind = _type(column, schemas)
    stored = parse_sql_type(kind)
    return kind if stored is None or stored.length is None else "text"


def _table(
    table: Table,
    schemas: Sequence[str],
    keys: Sequence[ForeignKey],
    connection: duckdb.DuckDBPyConnection,
    left_out: list[str],
) -> str:
    plain = [f"{quote_identifier(column.name)} {_type(column, schemas)}" for column in table.columns]
    inside = []
    for column, bare in zip(table.columns, plain, strict=True):
        where, line = f"{table.name}.{column.name}", bare if column.nullable else f"{bare} NOT NULL"
        if column.identity:
            left_out.append(f"{where}: the numbering of new rows")
        if column.default is not None and _accepts(connection, [f"{bare} DEFAULT ({column.default})"]):
            line += f" DEFAULT ({column.default})"
        elif column.default is not None:
            left_out.append(f"{where}: the default, which DuckDB does not understand")
        inside.append(line)
    if table.primary_key:
        inside.append(f"PRIMARY KEY ({name_list(table.primary_key)})")
    inside += [f"UNIQUE ({name_list(columns)})" for columns in table.unique]
    for check in table.checks:
        if _accepts(connection, [*plain, f"CHECK ({check.expression})"]):
            inside.append(f"CHECK ({check.expression})")
        else:
            left_out.append(f"{table.name}: the check {check.name}, which DuckDB does not understand")
    for key in keys:
        there = f"{qualified(key.parent, schemas)} ({name_list(key.parent_columns)})"
        inside.append(f"FOREIGN KEY ({name_list(key.columns)}) REFERENCES {there}")
    lines = ",\n".join(f"    {line}" for line in inside)
    return f"CREATE TABLE {qualified(table.name, schemas)} (\n{lines}\n);"


def _type(column: Column, schemas: Sequence[str]) -> str:
    stored = column.stored_type
    if stored is None:
        return sql_type(column, schemas)
    if stored.name == "numeric" and column.precision:  # PostgreSQL needs no bound; the declared digits are enough
        return f"numeric({column.precision},{column.scale})"
    return stored.facts.duckdb or str(stored)


def _accepts(connection: duckdb.DuckDBPyConnection, inside: Sequence[str]) -> bool:
    """Return whether DuckDB makes a table of these lines."""
    return _runs(connection, f"CREATE TEMP TABLE tried ({', '.join(inside)}); DROP TABLE tried")


def _runs(connection: duckdb.DuckDBPyConnection, statements: str) -> bool:
    try:
        connection.execute(statements)
    except duckdb.Error:
        return False
    return True


def load_duckdb(schema: Schema, files: Files, path: Path, *, replace: bool) -> Loaded:
    """Load into the file at ``path``, which is made if it is not there; see `load_bundle`."""
    file = path.expanduser().resolve()
    is_new = not file.exists()
    try:
        with duckdb.connect(str(file)) as connection:
            return _load(schema, files, connection, file, replace=replace)
    except BaseException as error:
        if is_new:
            file.unlink(missing_ok=True)
            file.with_name(f"{file.name}.wal").unlink(missing_ok=True)
        if isinstance(error, duckdb.Error):
            found = f"DuckDB refused the bundle, and nothing was changed: {_first_line(error)}"
            raise PublishError(f"{file}: {found}") from error
        raise


def _load(schema: Schema, files: Files, connection: duckdb.DuckDBPyConnection, file: Path, *, replace: bool) -> Loaded:
    translated = duckdb_schema(schema)
    others = list(schema.schemas[1:])
    called = "CASE WHEN schema_name = current_schema() THEN table_name ELSE concat(schema_name, '.', table_name) END"
    here = "schema_name = current_schema() OR list_contains(?, schema_name)"
    query = f"SELECT {called} FROM duckdb_tables() WHERE {here}"
    found = connection.execute(query, [others]).fetchall()
    # Names differ by more than case in DuckDB, or not at all.
    there = {name.lower(): name for (name,) in found}
    existing = [there[table] for table in map(str.lower, translated.tables) if table in there]
    if not replace:
        refuse_tables(list(there.values()), existing, str(file))
    connection.begin()
    for name in reversed(existing):
        connection.execute(f"DROP TABLE {qualified(name, schema.schemas)}")
    for enum in schema.enums if replace else ():
        connection.execute(f"DROP TYPE IF EXISTS {qualified(enum.name, schema.schemas)}")
    for statement in translated.first:
        connection.execute(statement)
    rows = {}
    for table, statement in translated.tables.items():
        connection.execute(statement)
        listed = ", ".join(quote_text(str(file)) for file in files[table])
        rows[table] = _execute(connection, insert_rows(schema.table(table), schema.schemas, f"[{listed}]"))
    for statement in translated.after:
        _execute(connection, statement)
    connection.commit()
    connection.execute("ANALYZE")
    return Loaded(rows, translated.left_out)


@dataclass(frozen=True)
class RowTrial:
    """Loads rows of a bundle into a scratch database by the bundle's own DDL, a table at a time, and forgets them.

    Types, enums, NOT NULL and those CHECK constraints that DuckDB understands are tried; keys are not: the expectations
    on a bundle prove them, and their indexes would take most of the memory and time.
    """

    schema: Schema  # without keys
    translated: DuckDBSchema  # its DDL, which takes as long to translate as a hundred thousand rows to try

    @classmethod
    def of(cls, schema: Schema, tables: Collection[str]) -> RowTrial:
        """Return the trial of some tables."""
        bare = tuple(
            dataclasses.replace(
                table, primary_key=(), foreign_keys=(), implied_keys=(), unique=(), indexes=(), generated=()
            )
            for table in schema.tables
            if table.name in tables
        )
        without_keys = dataclasses.replace(schema, tables=bare, views=())
        return cls(without_keys, duckdb_schema(without_keys))

    def __call__(self, files: Mapping[str, Path]) -> None:
        """Try the rows of each table, given the Parquet files of them; PublishError if the DDL refuses some."""
        with bounded() as connection:
            for statement in self.translated.first:
                connection.execute(statement)
            for table, statement in self.translated.tables.items():
                connection.execute(statement)
                schemas = self.schema.schemas
                insertion = insert_rows(self.schema.table(table), schemas, quote_text(str(files[table])))
                try:
                    try:
                        _execute(connection, insertion)
                    except duckdb.OutOfMemoryException:  # a row group of long texts is one block
                        connection.execute("RESET memory_limit")
                        _execute(connection, insertion)
                except duckdb.Error as error:
                    raise PublishError(
                        f"{table}: its rows break the bundle's own schema.sql, so nothing was published:"
                        f" {_first_line(error)}. If it is a check, declare domains that keep it, or remove it from the"
                        " spec; what was released is not paid for again"
                    ) from None
                connection.execute(f"DROP TABLE {qualified(table, schemas)}")


def insert_rows(table: Table, schemas: Sequence[str], files: str) -> str:
    """Return the statement that inserts, and converts, the rows of Parquet files: SQL of a text or a list of texts."""
    named = [(quote_identifier(column.name), _form(column, schemas)) for column in table.columns]
    forms = [f"{form.format(name)} AS {name}" for name, form in named if form != "{}"]
    selected = f"* REPLACE ({', '.join(forms)})" if forms else "*"
    read = f"read_parquet({files}, hive_partitioning = false)"  # else a folder called epsilon=1 adds a column
    return f"INSERT INTO {qualified(table.name, schemas)} BY NAME SELECT {selected} FROM {read}"


def _form(column: Column, schemas: Sequence[str]) -> str:
    """Return the value of a column from what Parquet holds, as an expression where ``{}`` stands for the column."""
    return f"CAST(CAST({{}} AS JSON) AS {_type(column, schemas)})" if column.is_array else column.logical.duckdb_form


def _first_line(error: duckdb.Error) -> str:
    return str(error).splitlines()[0]


def _execute(connection: duckdb.DuckDBPyConnection, statement: str) -> int:
    """Run a statement that may take long; return how many rows it inserts."""
    done = waited(connection, lambda: connection.execute(statement).fetchone())
    return int(done[0]) if done else 0
