"""From a source's own name of a type to the column type and the SQL type of a spec."""

from __future__ import annotations

import re
from dataclasses import replace

from privbench_core.backends.catalogue import FoundColumn
from privbench_core.schema.columns import ColumnType
from privbench_core.schema.types.sql import SqlType, default_sql_type, parse_sql_type

_NO_NUMBER = re.compile(r".*(RANGE|VECTOR)$", re.IGNORECASE)  # int4range, datemultirange, int2vector
_NESTED = re.compile(r".*\[\d*\]$|(ARRAY|STRUCT|MAP|UNION|LIST|ROW|VARIANT)\b", re.IGNORECASE)
_CLOCK = re.compile(r"TIME(\(\d\))?( WITHOUT TIME ZONE)?$", re.IGNORECASE)
_MAX_PRECISION = 38


def found_column(name: str, native: str, *, nullable: bool) -> FoundColumn:
    """Return a column of the source by its declared type.

    >>> column = found_column("price", "NUMERIC(8, 2)", nullable=True)
    >>> str(column.type), column.precision, column.scale, column.sql_type
    ('decimal', 8, 2, None)
    >>> found_column("tags", "text[]", nullable=True).type is None
    True
    """
    stored = parse_sql_type(native)
    if stored is not None:
        return _known(FoundColumn(name, stored.read_as, native, nullable), stored)
    if _NESTED.match(native):
        note = "holds several values in one; make it a table of its own in the source, or do without"
        return FoundColumn(name, None, native, nullable, note=note)
    if _CLOCK.match(native):
        return FoundColumn(name, ColumnType.INTERVAL, native, nullable, clock=True)
    starts = ((kind, kind.logical.native) for kind in ColumnType)
    logical = next((kind for kind, start in starts if start and re.match(start, native.upper())), None)
    if logical is None or _NO_NUMBER.match(native):
        return FoundColumn(
            name, ColumnType.TEXT, native, nullable, note=f"{native} has no type here and is read as text"
        )
    return FoundColumn(name, logical, native, nullable)


def _known(column: FoundColumn, stored: SqlType) -> FoundColumn:
    if stored.name == "numeric" and stored.arguments:
        precision, scale = (*stored.arguments, 0)[:2]
        if precision > _MAX_PRECISION:
            return replace(column, note=f"more digits than {_MAX_PRECISION} are not kept")
        column = replace(column, precision=precision, scale=scale)
    usual = default_sql_type(stored.read_as.logical.sized(column.precision, column.scale, 64))
    unusual = stored != usual or (stored.name == "numeric" and not stored.arguments)
    return replace(column, sql_type=str(stored)) if unusual else column
