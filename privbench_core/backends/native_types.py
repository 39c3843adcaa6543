"""From a source's own name of a type to the logical type and the SQL type of a spec."""

from __future__ import annotations

import re
from dataclasses import replace

from privbench_core.backends.catalogue import FoundColumn
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.sql_types import SqlType, default_sql_type, parse_sql_type

_LOGICAL = {
    "smallint": ColumnType.INTEGER,
    "integer": ColumnType.INTEGER,
    "bigint": ColumnType.INTEGER,
    "numeric": ColumnType.DECIMAL,
    "real": ColumnType.FLOAT,
    "double precision": ColumnType.FLOAT,
    "boolean": ColumnType.BOOLEAN,
    "date": ColumnType.DATE,
    "timestamp without time zone": ColumnType.TIMESTAMP,
    "timestamp with time zone": ColumnType.TIMESTAMPTZ,
    "interval": ColumnType.INTERVAL,
    "uuid": ColumnType.UUID,
    "bytea": ColumnType.BYTES,
    "json": ColumnType.JSON,
    "jsonb": ColumnType.JSON,
    "text": ColumnType.CATEGORY,
    "character varying": ColumnType.CATEGORY,
    "character": ColumnType.CATEGORY,
    "inet": ColumnType.TEXT,
    "cidr": ColumnType.TEXT,
    "macaddr": ColumnType.TEXT,
}
# How other names of types begin, in the spellings of DuckDB, SQLite, MySQL and others.
_BEGINNINGS = (
    (r"(U|BIG|SMALL|TINY|MEDIUM|HUGE)*INT(?!ERVAL)|SERIAL", ColumnType.INTEGER),
    (r"DECIMAL|NUMERIC", ColumnType.DECIMAL),
    (r"DOUBLE|FLOAT|REAL", ColumnType.FLOAT),
    (r"BOOL", ColumnType.BOOLEAN),
    (r"TIMESTAMP|DATETIME", ColumnType.TIMESTAMP),
    (r"DATE", ColumnType.DATE),
    (r"INTERVAL", ColumnType.INTERVAL),
    (r"N?VARCHAR|N?CHAR|(TINY|MEDIUM|LONG)?TEXT|STRING|CLOB|ENUM", ColumnType.CATEGORY),
    (r"(TINY|MEDIUM|LONG)?BLOB|(VAR)?BINARY", ColumnType.BYTES),
)
_NO_NUMBER = re.compile(r".*(RANGE|VECTOR)$", re.IGNORECASE)  # int4range, datemultirange, int2vector
_NESTED = re.compile(r".*\[\d*\]$|(STRUCT|MAP|UNION|LIST|ROW)\b", re.IGNORECASE)
_CLOCK = re.compile(r"TIME\b", re.IGNORECASE)
_MAX_PRECISION = 38


def found_column(name: str, native: str, *, nullable: bool) -> FoundColumn:
    """A column of the source by its declared type.

    >>> column = found_column("price", "NUMERIC(8, 2)", nullable=True)
    >>> str(column.type), column.precision, column.scale, column.sql_type
    ('decimal', 8, 2, None)
    >>> found_column("tags", "text[]", nullable=True).type is None
    True
    """
    stored = parse_sql_type(native)
    if stored is not None:
        return _known(FoundColumn(name, _LOGICAL[stored.name], native, nullable), stored)
    if _NESTED.match(native):
        note = "holds several values in one; make it a table of its own in the source, or do without"
        return FoundColumn(name, None, native, nullable, note=note)
    if _CLOCK.match(native):
        return FoundColumn(
            name, None, native, nullable, note="is a time without a day; store an interval, or do without"
        )
    logical = next((kind for start, kind in _BEGINNINGS if re.match(start, native.upper())), None)
    if logical is None or _NO_NUMBER.match(native):
        return FoundColumn(
            name, ColumnType.TEXT, native, nullable, note=f"{native} has no type here and is read as text"
        )
    return FoundColumn(name, logical, native, nullable)


def _known(column: FoundColumn, stored: SqlType) -> FoundColumn:
    kind = column.type or ColumnType.TEXT
    if stored.name == "numeric" and stored.arguments:
        precision, scale = (*stored.arguments, 0)[:2]
        if precision > _MAX_PRECISION:
            return replace(column, note=f"more digits than {_MAX_PRECISION} are not kept")
        column = replace(column, precision=precision, scale=scale)
    usual = default_sql_type(Column(column.name, kind, precision=column.precision, scale=column.scale))
    unusual = stored != usual or (stored.name == "numeric" and not stored.arguments)
    return replace(column, sql_type=str(stored)) if unusual else column
