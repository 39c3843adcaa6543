"""A DuckDB database file."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from privbench_core.backends.base import Source, check_columns, check_table, parts_of, version_of
from privbench_core.backends.catalogue import (
    Catalogue,
    FoundColumn,
    FoundKey,
    FoundTable,
    enums_of,
    found_column,
    with_exact_names,
)
from privbench_core.backends.expressions import declared_table, in_postgres
from privbench_core.backends.fingerprint import fingerprint_files
from privbench_core.backends.postgres.ddl import quote_identifier
from privbench_core.errors import SourceError
from privbench_core.guards import RANGE_ROWS
from privbench_core.schema.columns import ColumnType
from privbench_core.schema.tables import Table
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
