"""A DuckDB file: its catalogue and rows as a source, and a bundle loaded into one, as far as DuckDB goes.

DuckDB adds foreign keys only while a table is created, so keys stand in CREATE TABLE here. What it cannot hold is
listed by trying it out in a database in memory, and not by a list of what some version cannot do.
"""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from privbench_core.backends import (
    Files,
    Loaded,
    Source,
    check_columns,
    check_table,
    parts_of,
    refuse_tables,
    version_of,
)
from privbench_core.backends.catalogue import (
    Catalogue,
    FoundColumn,
    FoundKey,
    FoundTable,
    enums_of,
    found_column,
    with_exact_names,
)
from privbench_core.backends.integrity import fingerprint_files
from privbench_core.backends.postgres import (
    comment_statements,
    first_statements,
    name_list,
    qualified,
    quote_identifier,
    quote_text,
    sql_type,
)
from privbench_core.backends.scratch import bounded, scratch, waited
from privbench_core.errors import PublishError, SourceError
from privbench_core.guards import RANGE_ROWS
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table, split_name
from privbench_core.schema.types.registry import parse_sql_type
from privbench_core.spec.model import VersionQuery, Watermark

_CATALOGUE = {
    "columns": "SELECT table_name, column_name, data_type, is_nullable, column_default, comment FROM duckdb_columns()"
    " WHERE NOT internal AND schema_name = 'main' ORDER BY table_name, column_index",
    "constraints": "SELECT table_name, constraint_type, constraint_column_names, referenced_table,"
    " referenced_column_names, constraint_name, expression FROM duckdb_constraints() WHERE schema_name = 'main'",
    "indexes": "SELECT table_name, index_name, is_unique, expressions FROM duckdb_indexes()"
    " WHERE schema_name = 'main' ORDER BY index_name",
    "tables": "SELECT table_name, comment FROM duckdb_tables() WHERE NOT internal AND schema_name = 'main'",
    "enums": "SELECT labels, type_name FROM duckdb_types() WHERE logical_type = 'ENUM' AND NOT internal",
}
_NEXTVAL = re.compile(r"\s*nextval\(", re.IGNORECASE)


@dataclass(frozen=True)
class DuckDBSource(Source):
    """Tables and views in the ``main`` schema of a DuckDB file, opened read-only."""

    path: Path

    def catalogue(self) -> Catalogue:
        with self._open() as connection:
            found = {name: connection.execute(query).fetchall() for name, query in _CATALOGUE.items()}
        enums = {tuple(labels): name for labels, name in reversed(found["enums"])}
        columns: dict[str, list[FoundColumn]] = defaultdict(list)
        for table, *column in found["columns"]:
            columns[table].append(_column(enums, *column))
        tables = [_table(name, tuple(listed), found) for name, listed in sorted(columns.items())]
        return Catalogue(self.path.stem, with_exact_names(tables), enums_of(tables))

    def stored_rows(self, table: Table) -> Iterator[pa.Table]:
        with self._open() as connection:
            check_columns(table, _names(connection, table.name))
            names = ", ".join(quote_identifier(column.name) for column in table.columns)
            found = connection.sql(f"SELECT {names} FROM main.{quote_identifier(table.name)}")
            yield from parts_of(found.to_arrow_reader(RANGE_ROWS))

    def version(self, table: Table, change: Watermark | VersionQuery) -> str:
        with self._open() as connection:

            def run(statement: str) -> list[tuple[object, ...]]:
                return connection.execute(statement).fetchmany(2)

            place = quote_identifier(table.name)
            return version_of(
                table.name, place, change, _names(connection, table.name), quote_identifier, run, errors=duckdb.Error
            )

    def stored(self, tables: Sequence[Table]) -> dict[str, str]:
        """See `Source.stored`: all tables share the file, and what was written and is not in it yet."""
        with self._open() as connection:
            held = {name for name, _ in connection.sql(_CATALOGUE["tables"]).fetchall()}
        log = self.path.with_name(f"{self.path.name}.wal")
        with suppress(OSError):  # reading a table reports it
            digest = fingerprint_files(path for path in (self.path, log) if path.exists())
            return {table.name: digest for table in tables if table.name in held}
        return {}

    @contextmanager
    def _open(self) -> Iterator[duckdb.DuckDBPyConnection]:
        try:
            with duckdb.connect(str(self.path), read_only=True) as connection:
                connection.execute("SET TimeZone = 'UTC'")
                yield connection
        except duckdb.IOException:
            found = f"{self.path.name} cannot be opened as a DuckDB file"
            raise SourceError(f"source: {found}; check it, or close it elsewhere") from None
        except duckdb.Error as error:  # its text may quote values (a view that casts, say)
            kind = type(error).__name__
            raise SourceError(f"source: reading {self.path.name} failed ({kind}); check its views") from None


def _names(connection: duckdb.DuckDBPyConnection, table: str) -> list[str]:
    """Return the columns of a table or view, which must be there."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, column, *_ in connection.sql(_CATALOGUE["columns"]).fetchall():
        found[name].append(column)
    check_table(table, sorted(found))
    return found[table]


def _column(
    enums: dict[tuple[str, ...], str], name: str, native: str, nullable: bool, default: str | None, comment: str | None
) -> FoundColumn:
    from privbench_core.backends.expressions import in_postgres  # brings in sqlglot, which loading can do without

    if native.startswith("ENUM("):  # the file says which values, not which type, so the type is the one that has them
        values = tuple(label.replace("''", "'") for label in re.findall(r"'((?:[^']|'')*)'", native))
        column = FoundColumn(name, ColumnType.CATEGORY, native, nullable, sql_type=enums.get(values), values=values)
    else:
        # What DuckDB calls FLOAT has 4 bytes.
        column = found_column(name, "REAL" if native == "FLOAT" else native, nullable=nullable)
    counted = default is not None and _NEXTVAL.match(default) is not None
    translated = None if counted or default is None else in_postgres(default, "duckdb", ())
    return replace(column, default=translated, identity=counted and not nullable, comment=comment)


def _table(name: str, columns: tuple[FoundColumn, ...], found: dict[str, list[Any]]) -> FoundTable:
    from privbench_core.backends.expressions import declared_table

    constraints: dict[str, list[Any]] = defaultdict(list)
    for _, kind, *details in (row for row in found["constraints"] if row[0] == name):
        constraints[kind].append(details)
    names = {column.name for column in columns}
    indexes = [(row[1], row[2], _indexed(row[3], names)) for row in found["indexes"] if row[0] == name]
    table = FoundTable(
        name,
        columns,
        next((tuple(row[0]) for row in constraints["PRIMARY KEY"]), ()),
        tuple(FoundKey(tuple(row[0]), row[1], tuple(row[2])) for row in constraints["FOREIGN KEY"]),
        tuple(tuple(row[0]) for row in constraints["UNIQUE"]),
        comment=dict(found["tables"]).get(name),
    )
    return declared_table(table, indexes, [(row[3], row[4]) for row in constraints["CHECK"]], "duckdb")


def _indexed(expressions: str, known: Collection[str]) -> tuple[str, ...] | None:
    """Return the columns of an index, ``[a, "b c"]`` in DuckDB's words; None if it is on anything else."""
    parts = re.findall(r"\"((?:[^\"]|\"\")+)\"|([^,\"]+)", expressions.strip()[1:-1])
    names = tuple(name for quoted, bare in parts if (name := (quoted.replace('""', '"') or bare).strip()))
    return names if names and set(known).issuperset(names) else None


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
            tables[table.name] = _table_sql(table, schema.schemas, keys, connection, left_out)
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
    kind = _type_sql(column, schemas)
    stored = parse_sql_type(kind)
    return kind if stored is None or stored.length is None else "text"


def _table_sql(
    table: Table,
    schemas: Sequence[str],
    keys: Sequence[ForeignKey],
    connection: duckdb.DuckDBPyConnection,
    left_out: list[str],
) -> str:
    plain = [f"{quote_identifier(column.name)} {_type_sql(column, schemas)}" for column in table.columns]
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


def _type_sql(column: Column, schemas: Sequence[str]) -> str:
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
    return (
        f"CAST(CAST({{}} AS JSON) AS {_type_sql(column, schemas)})" if column.is_array else column.logical.duckdb_form
    )


def _first_line(error: duckdb.Error) -> str:
    return str(error).splitlines()[0]


def _execute(connection: duckdb.DuckDBPyConnection, statement: str) -> int:
    """Run a statement that may take long; return how many rows it inserts."""
    done = waited(connection, lambda: connection.execute(statement).fetchone())
    return int(done[0]) if done else 0
