"""A bundle into a DuckDB file."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb

from privbench_core.backends.duckdb.ddl import DuckDBSchema, duckdb_schema
from privbench_core.backends.duckdb.interruptible import waited
from privbench_core.backends.loading import Loadable, Loaded, refuse_tables
from privbench_core.backends.postgres.ddl import quote_identifier, quote_text
from privbench_core.errors import PublishError
from privbench_core.schema.tables import Schema, Table

_MEMORY = "512MB"  # for rows that are tried, where that will do; what does not fit goes to a temporary file


def load_duckdb(bundle: Loadable, path: Path, *, replace: bool) -> Loaded:
    """Load into the file at ``path``, which is made if it is not there; see `load_bundle`."""
    file = path.expanduser().resolve()
    is_new = not file.exists()
    try:
        try:
            with duckdb.connect(str(file)) as connection:
                return _load(bundle, connection, file, replace=replace)
        except BaseException:
            if is_new:
                file.unlink(missing_ok=True)
                file.with_name(f"{file.name}.wal").unlink(missing_ok=True)
            raise
    except duckdb.Error as error:
        raise PublishError(
            f"{file}: DuckDB refused the bundle, and nothing was changed: {_first_line(error)}"
        ) from error


@dataclass(frozen=True)
class RowTrial:
    """Loads rows of a bundle into a scratch database by the bundle's own DDL, a table at a time, and forgets them.

    Types, enums, NOT NULL and those CHECK constraints that DuckDB understands are tried; keys are not: the expectations
    on a bundle prove them, and their indexes would take most of the memory and time.

    Attributes:
        schema: The database, without keys.
        translated: Its DDL; to translate it takes as long as to try a hundred thousand rows.
    """

    schema: Schema
    translated: DuckDBSchema

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
        without_keys = dataclasses.replace(schema, tables=bare)
        return cls(without_keys, duckdb_schema(without_keys))

    def __call__(self, files: Mapping[str, Path]) -> None:
        """Try the rows of each table, given the Parquet files of them; PublishError if the DDL refuses some."""
        with TemporaryDirectory(prefix="privbench-try-") as folder, duckdb.connect() as connection:
            connection.execute("SET temp_directory = ?", [folder])  # for what is beyond the limit; a file takes longer
            connection.execute(f"SET memory_limit = '{_MEMORY}'")
            for statement in self.translated.enums:
                connection.execute(statement)
            for table, statement in self.translated.tables.items():
                connection.execute(statement)
                insertion = insert_rows(self.schema.table(table), quote_text(str(files[table])))
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
                connection.execute(f"DROP TABLE {quote_identifier(table)}")


def insert_rows(table: Table, files: str) -> str:
    """Return the statement that inserts the rows of Parquet files; ``files`` is SQL: a text, or a list of them."""
    rows = f"SELECT {_selected(table)} FROM read_parquet({files})"
    return f"INSERT INTO {quote_identifier(table.name)} BY NAME {rows}"


def _load(bundle: Loadable, connection: duckdb.DuckDBPyConnection, file: Path, *, replace: bool) -> Loaded:
    schema = bundle.schema
    translated = duckdb_schema(schema)
    found = connection.execute("SELECT table_name FROM duckdb_tables() WHERE schema_name = current_schema()").fetchall()
    # Names differ by more than case in DuckDB, or not at all.
    there = {name.lower(): name for (name,) in found}
    existing = [there[table] for table in map(str.lower, translated.tables) if table in there]
    if not replace:
        refuse_tables(list(there.values()), existing, str(file))
    connection.begin()
    for name in reversed(existing):
        connection.execute(f"DROP TABLE {quote_identifier(name)}")
    for enum in schema.enums if replace else ():
        connection.execute(f"DROP TYPE IF EXISTS {quote_identifier(enum.name)}")
    for statement in translated.enums:
        connection.execute(statement)
    for table, statement in translated.tables.items():
        connection.execute(statement)
        files = ", ".join(quote_text(str(file)) for file in bundle.files(table))
        _execute(connection, insert_rows(schema.table(table), f"[{files}]"))
    for statement in translated.after:
        _execute(connection, statement)
    connection.commit()
    connection.execute("ANALYZE")
    rows = {table: int(bundle.manifest["tables"][table]["rows"]) for table in translated.tables}
    return Loaded(rows, translated.left_out)


def _selected(table: Table) -> str:
    """Return all columns, those that Parquet holds in another type converted."""
    named = [(quote_identifier(column.name), column.logical.duckdb_form) for column in table.columns]
    forms = [f"{form.format(name)} AS {name}" for name, form in named if form != "{}"]
    return f"* REPLACE ({', '.join(forms)})" if forms else "*"


def _first_line(error: duckdb.Error) -> str:
    return str(error).splitlines()[0]


def _execute(connection: duckdb.DuckDBPyConnection, statement: str) -> None:
    """Run a statement that may take long."""
    waited(connection, lambda: connection.execute(statement))
