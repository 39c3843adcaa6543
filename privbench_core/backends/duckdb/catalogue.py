"""The catalogue of a DuckDB file."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from privbench_core.backends.catalogue import Catalogue, FoundColumn, FoundKey, FoundTable, enums_of
from privbench_core.backends.native_types import found_column
from privbench_core.backends.other_dialects import checks_in_postgres, in_postgres, with_exact_names
from privbench_core.errors import SourceError
from privbench_core.schema.columns import ColumnType, EnumType
from privbench_core.schema.constraints import Index

_QUERIES = {
    "columns": "SELECT table_name, column_name, data_type, is_nullable, column_default, comment FROM duckdb_columns()"
    " WHERE NOT internal AND schema_name = 'main' ORDER BY table_name, column_index",
    "constraints": "SELECT table_name, constraint_type, constraint_column_names, referenced_table,"
    " referenced_column_names, constraint_name, expression FROM duckdb_constraints() WHERE schema_name = 'main'",
    "indexes": "SELECT table_name, index_name, is_unique, expressions FROM duckdb_indexes()"
    " WHERE schema_name = 'main' ORDER BY index_name",
    "tables": "SELECT table_name, comment FROM duckdb_tables() WHERE NOT internal AND schema_name = 'main'",
    "enums": "SELECT type_name, labels FROM duckdb_types() WHERE logical_type = 'ENUM' AND NOT internal",
}
_NEXTVAL = re.compile(r"\s*nextval\(", re.IGNORECASE)


def duckdb_catalogue(path: Path) -> Catalogue:
    """Return the tables and views of the ``main`` schema, opened read-only.

    Raises:
        SourceError: It is no DuckDB file, or another process has it open.
    """
    import duckdb

    try:
        with duckdb.connect(str(path), read_only=True) as connection:
            found = {name: connection.execute(query).fetchall() for name, query in _QUERIES.items()}
    except duckdb.Error:
        reason = f"{path.name} cannot be opened as a DuckDB file"
        raise SourceError(f"source: {reason}; check it, or close it elsewhere") from None
    enums = tuple(EnumType(name, tuple(labels)) for name, labels in found["enums"])
    columns: dict[str, list[FoundColumn]] = {}
    for table, *column in found["columns"]:
        columns.setdefault(table, []).append(_column(enums, *column))
    comments = dict(found["tables"])
    tables = [_table(name, tuple(listed), comments, found) for name, listed in sorted(columns.items())]
    return Catalogue(path.stem, with_exact_names(tables), enums_of(tables))


def _column(
    enums: tuple[EnumType, ...], name: str, native: str, nullable: bool, default: str | None, comment: str | None
) -> FoundColumn:
    values = _labels(native)
    if values:  # the file says which values, not which type, so the type is the one that has them
        named = next((enum.name for enum in enums if enum.values == values), None)
        column = FoundColumn(name, ColumnType.CATEGORY, native, nullable, sql_type=named, values=values)
    else:
        # What DuckDB calls FLOAT has 4 bytes.
        column = found_column(name, "REAL" if native == "FLOAT" else native, nullable=nullable)
    counted = default is not None and _NEXTVAL.match(default) is not None
    translated = None if counted or default is None else in_postgres(default, "duckdb", ())
    return replace(column, default=translated, identity=counted and not nullable, comment=comment)


def _labels(native: str) -> tuple[str, ...]:
    if not native.startswith("ENUM("):
        return ()
    return tuple(label.replace("''", "'") for label in re.findall(r"'((?:[^']|'')*)'", native))


def _table(name: str, columns: tuple[FoundColumn, ...], comments: dict[str, Any], found: dict[str, Any]) -> FoundTable:
    constraints = [row[1:] for row in found["constraints"] if row[0] == name]
    by_kind: dict[str, list[Any]] = {}
    for kind, *details in constraints:
        by_kind.setdefault(kind, []).append(details)
    indexes = [row[1:] for row in found["indexes"] if row[0] == name]
    plain, notes = [], []
    unique = [tuple(row[0]) for row in by_kind.get("UNIQUE", [])]
    for index, is_unique, expressions in indexes:
        listed = _names(expressions, columns)
        if listed is None:
            notes.append(f"the index {index}, which is on an expression")
        elif is_unique:
            unique.append(listed)
        else:
            plain.append(Index(index, listed))
    conditions = [(called, condition) for *_, called, condition in by_kind.get("CHECK", [])]
    checks, strange = checks_in_postgres(conditions, "duckdb", columns)
    return FoundTable(
        name,
        columns,
        next((tuple(row[0]) for row in by_kind.get("PRIMARY KEY", [])), ()),
        tuple(FoundKey(tuple(row[0]), row[1], tuple(row[2])) for row in by_kind.get("FOREIGN KEY", [])),
        tuple(dict.fromkeys(unique)),
        checks,
        tuple(plain),
        comments.get(name),
        declares_indexes=True,
        notes=(*notes, *strange),
    )


def _names(expressions: str, columns: tuple[FoundColumn, ...]) -> tuple[str, ...] | None:
    """Return the columns of an index, ``[a, "b c"]`` in DuckDB's words; None if it is on anything else."""
    inside = expressions.strip()[1:-1]
    found = [
        quoted.replace('""', '"') or bare for quoted, bare in re.findall(r"\"((?:[^\"]|\"\")+)\"|([^,\"]+)", inside)
    ]
    names = tuple(name.strip() for name in found if name.strip())
    known = {column.name for column in columns}
    return names if names and known.issuperset(names) else None
