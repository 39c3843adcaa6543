"""A bundle into PostgreSQL: one transaction, COPY, and no password in any message."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from privbench_core.backends.loading import Files, Loaded, refuse_tables
from privbench_core.backends.postgres.ddl import (
    create_keys_sql,
    create_tables_sql,
    move_to_heirs,
    name_list,
    qualified,
    vacuum_sql,
    with_heirs,
)
from privbench_core.errors import PublishError, SourceError
from privbench_core.schema.columns import Column
from privbench_core.schema.tables import Schema, Table
from privbench_core.spec.location import connection_parameters, describe, parse_url, reason_of

if TYPE_CHECKING:
    import psycopg


def load_postgres(schema: Schema, files: Files, target_url: str, *, replace: bool) -> Loaded:
    """Load into the current schema of a PostgreSQL database; see `load_bundle`."""
    with changing(target_url) as target:
        target.make_room(schema, replace=replace)
        connection = target.connection
        connection.execute(create_tables_sql(schema))
        names = {table: qualified(table, schema.schemas) for table in files}
        rows = {table: _copy(connection, schema.table(table), name, files[table]) for table, name in names.items()}
        for moved in move_to_heirs(schema):
            connection.execute(moved.encode())
        connection.execute(create_keys_sql(schema))
        connection.commit()
        connection.autocommit = True  # VACUUM runs in no transaction
        for vacuum in vacuum_sql(schema).splitlines():
            connection.execute(vacuum.encode())
        return Loaded(rows)


@dataclass(frozen=True)
class Target:
    """A database that is being changed, in one transaction.

    Attributes:
        connection: To it.
        where: What messages call it.
    """

    connection: psycopg.Connection[Any]
    where: str

    def make_room(self, schema: Schema, *, replace: bool) -> None:
        """Drop what is called as in the schema if ``replace``; else PublishError if there is any table."""
        connection = self.connection
        current = connection.execute("SELECT current_schema()").fetchone()
        if current is None or current[0] is None:
            why = "has no schema that the login may use; create it, or name another with ?schema="
            raise PublishError(f"{self.where}: {why}")
        called = "CASE WHEN schemaname = current_schema() THEN tablename ELSE concat(schemaname, '.', tablename) END"
        query = f"SELECT {called} FROM pg_tables WHERE schemaname = current_schema() OR schemaname = ANY(%s::text[])"
        found = [name for (name,) in connection.execute(query.encode(), [list(schema.schemas[1:])])]
        named = [table.name for table in with_heirs(schema)]
        if not replace:
            refuse_tables(found, named, self.where)
        for view in reversed(schema.views) if replace else ():
            connection.execute(f"DROP {view.kind} IF EXISTS {qualified(view.name, schema.schemas)}".encode())
        existing = [qualified(name, schema.schemas) for name in named if name in found]
        if existing:
            # Together, because they refer to each other; without CASCADE, so what else depends on them makes this fail.
            connection.execute(f"DROP TABLE {', '.join(existing)}".encode())
        for enum in schema.enums if replace else ():
            connection.execute(f"DROP TYPE IF EXISTS {qualified(enum.name, schema.schemas)}".encode())


@contextmanager
def changing(target_url: str, what: str = "bundle") -> Iterator[Target]:
    """Open a database for a change that is committed at the end, or rolled back on any error.

    ``what`` is loaded, for messages.

    Raises:
        PublishError: It cannot be reached, or refuses; no message contains a password.
    """
    import psycopg

    try:
        url = parse_url(target_url)
    except SourceError:
        # The text is not repeated: it may hold a password.
        raise PublishError("target: not a database URL; write postgresql://user@host:port/database") from None
    where = describe(url)
    try:
        connection = psycopg.connect(**connection_parameters(url))
    except psycopg.Error as error:
        raise PublishError(f"{where}: cannot connect ({reason_of(error, url)}); check the URL and the server") from None
    try:
        with connection:
            yield Target(connection, where)
    except psycopg.Error as error:
        raise PublishError(f"{where}: refused the {what}, and nothing was changed: {reason_of(error, url)}") from None


def _copy(connection: psycopg.Connection[Any], table: Table, name: str, files: Sequence[Path]) -> int:
    """COPY a table's Parquet files, batch by batch; returns the number of rows."""
    loaded = 0
    columns = name_list(pq.read_schema(files[0]).names)
    command = f"COPY {name} ({columns}) FROM STDIN (FORMAT csv)"
    with connection.cursor() as cursor, cursor.copy(command) as copy:
        for path in files:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(100_000):  # rows sent at once; chosen by hand
                    copy.write(copy_text(batch, table))
                    loaded += batch.num_rows
    return loaded


def copy_text(batch: pa.RecordBatch, table: Table) -> bytes:
    """Return rows of a table as CSV.

    Arrow quotes all text and never NULL, which is how PostgreSQL distinguishes '' from NULL.
    """
    buffer = io.BytesIO()
    names = batch.schema.names
    columns = [spelled(table.column(name), values) for name, values in zip(names, batch.columns, strict=True)]
    texts = pa.RecordBatch.from_arrays(columns, names=names)
    pacsv.write_csv(texts, buffer, pacsv.WriteOptions(include_header=False))
    return buffer.getvalue()


def spelled(column: Column, values: pa.Array) -> pa.Array:
    """Return bytes, spans of time and arrays as the text that PostgreSQL reads; CSV has no form for them."""
    if pa.types.is_binary(values.type):
        return pa.array([None if value is None else f"\\x{value.hex()}" for value in values.to_pylist()], pa.string())
    if pa.types.is_duration(values.type):
        number = values.cast(pa.int64()).cast(pa.string())
        return pc.binary_join_element_wise(number, pa.scalar("microseconds"), pa.scalar(" "))
    if column.is_array:
        texts = values.to_pylist()
        return pa.array([None if text is None else array_literal(json.loads(text)) for text in texts], pa.string())
    return values


def array_literal(value: Any) -> str:
    r"""Return a JSON array as a literal of PostgreSQL.

    >>> array_literal(["a", 'b"', None, 1.5, True])
    '{"a","b\\"",NULL,1.5,true}'
    """
    if isinstance(value, list):
        return f"{{{','.join(map(array_literal, value))}}}"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return "NULL" if value is None else json.dumps(value)
