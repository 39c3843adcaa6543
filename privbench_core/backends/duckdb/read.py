"""A DuckDB database file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from privbench_core.backends.base import check_columns, check_table, check_watermark
from privbench_core.backends.cast import canonical_batches, canonical_parts
from privbench_core.backends.fingerprint import fingerprint_files, fingerprint_rows
from privbench_core.backends.postgres.ddl import quote_identifier
from privbench_core.backends.version import failed_query, version_of, watermark_sql
from privbench_core.errors import SourceError
from privbench_core.schema.change import VersionQuery, Watermark
from privbench_core.schema.tables import Table

_ROWS = 1 << 20  # read at a time


@dataclass(frozen=True)
class DuckDBSource:
    """Tables and views in the ``main`` schema of a DuckDB file, opened read-only."""

    path: Path

    def tables(self) -> list[str]:
        """Return the names of tables and views."""
        with self._open() as connection:
            return sorted(_columns(connection))

    def read(self, table: Table) -> pa.Table:
        """See `Source.read`."""
        return canonical_batches(table, self._stored_rows(table))

    def batches(self, table: Table) -> Iterator[pa.Table]:
        """See `Source.batches`."""
        return canonical_parts(table, self._stored_rows(table))

    def _stored_rows(self, table: Table) -> Iterator[pa.Table]:
        """Return the declared columns as they are stored, in parts."""
        with self._open() as connection:
            columns = _columns(connection)
            check_table(table.name, columns)
            check_columns(table, columns[table.name])
            names = ", ".join(quote_identifier(column.name) for column in table.columns)
            found = connection.sql(f"SELECT {names} FROM main.{quote_identifier(table.name)}")
            reader = found.to_arrow_reader(_ROWS)
            yield pa.Table.from_batches([], reader.schema)  # a table without rows still has its columns
            for batch in reader:
                yield pa.Table.from_batches([batch])

    def known_rows(self, table: Table) -> int | None:
        """See `Source.known_rows`: while rows are counted, others may change them."""
        return None

    def fingerprint(self, table: Table) -> str:
        """See `Source.fingerprint`."""
        return fingerprint_rows(table, self.read(table))

    def version(self, table: Table, change: Watermark | VersionQuery) -> str:
        """See `Source.version`."""
        with self._open() as connection:
            columns = _columns(connection)
            check_table(table.name, columns)
            if isinstance(change, Watermark):
                check_watermark(table.name, change.column, columns[table.name])
                statement = watermark_sql(f"main.{quote_identifier(table.name)}", quote_identifier(change.column))
                return version_of(table.name, connection.sql(statement).fetchall())
            try:
                cursor = connection.execute(change.sql)
                return version_of(table.name, cursor.fetchmany(2))
            except duckdb.Error as error:  # its text may quote values
                raise failed_query(table.name, error) from None

    def stored(self, tables: Sequence[Table]) -> dict[str, str]:
        """See `Source.stored`: all tables share the file, and what was written and is not in it yet."""
        query = "SELECT table_name FROM duckdb_tables() WHERE NOT internal AND schema_name = 'main'"
        with self._open() as connection:
            held = {name for (name,) in connection.sql(query).fetchall()}
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


def _columns(connection: duckdb.DuckDBPyConnection) -> dict[str, list[str]]:
    query = (
        "SELECT table_name, list(column_name ORDER BY column_index) FROM duckdb_columns()"
        " WHERE NOT internal AND schema_name = 'main' GROUP BY table_name"
    )
    return dict(connection.sql(query).fetchall())
