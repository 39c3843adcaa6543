"""A DuckDB database file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from privbench_core.errors import SourceError
from privbench_core.schema.ddl import quote_identifier
from privbench_core.schema.model import Table
from privbench_core.source.base import check_columns, check_table
from privbench_core.source.cast import canonical_table
from privbench_core.source.fingerprint import fingerprint_rows


@dataclass(frozen=True)
class DuckDBSource:
    """Tables and views in the ``main`` schema of a DuckDB file, opened read-only."""

    path: Path

    def tables(self) -> list[str]:
        """Names of tables and views."""
        with self._open() as connection:
            return sorted(_columns(connection))

    def read(self, table: Table) -> pa.Table:
        """See `Source.read`."""
        with self._open() as connection:
            columns = _columns(connection)
            check_table(table.name, columns)
            check_columns(table, columns[table.name])
            names = ", ".join(quote_identifier(column.name) for column in table.columns)
            rows = connection.sql(f"SELECT {names} FROM main.{quote_identifier(table.name)}").to_arrow_table()
        return canonical_table(table, rows)

    def fingerprint(self, table: Table) -> str:
        """See `Source.fingerprint`."""
        return fingerprint_rows(table, self.read(table))

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
