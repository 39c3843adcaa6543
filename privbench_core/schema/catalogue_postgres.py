"""The catalogue of PostgreSQL: one schema, the first of the search path that is there.

Read from ``pg_catalog``, which every login may read, and not from ``information_schema``, which hides what a login has
no rights on: so a table that cannot be read is reported, and not silently missing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from privbench_core.errors import SourceError
from privbench_core.schema.catalogue import Catalogue, FoundColumn, FoundKey, FoundTable, enums_of
from privbench_core.schema.location import describe, open_engine
from privbench_core.schema.model import Check, ColumnType, Index
from privbench_core.schema.native_types import found_column
from privbench_core.schema.readable import readable

if TYPE_CHECKING:
    from sqlalchemy import URL

    Rows = Mapping[str, Sequence[Any]]

_TABLES = (
    "WITH c AS (SELECT oid, relname, relnamespace FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition"
    " AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema()))"
)
_NAMES = (
    "(SELECT array_agg(CAST(attname AS text) ORDER BY place) FROM unnest({keys}) WITH ORDINALITY AS k(number, place)"
    " JOIN pg_attribute ON attrelid = {table}.oid AND attnum = number)"
)
_QUERIES = {
    "schema": "SELECT current_schema(), current_database()",
    "tables": f"{_TABLES} SELECT relname, obj_description(oid, 'pg_class') FROM c ORDER BY relname",
    "columns": f"{_TABLES} SELECT c.relname, a.attname, format_type(coalesce(b.oid, t.oid), CASE WHEN b.oid IS NULL"
    " THEN a.atttypmod ELSE t.typtypmod END), NOT (a.attnotnull OR t.typnotnull), pg_get_expr(d.adbin, d.adrelid),"
    " a.attidentity <> '', a.attgenerated <> '', col_description(c.oid, a.attnum),"
    " CASE WHEN e.typtype = 'e' THEN CAST(e.typname AS text) END, (SELECT array_agg(CAST(enumlabel AS text)"
    " ORDER BY enumsortorder) FROM pg_enum WHERE enumtypid = e.oid), has_column_privilege(c.oid, a.attnum, 'SELECT')"
    " FROM c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped"
    " JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_type b ON b.oid = t.typbasetype AND t.typtype = 'd'"
    " JOIN pg_type e ON e.oid = coalesce(b.oid, t.oid)"
    " LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum ORDER BY c.relname, a.attnum",
    "domain_checks": f"{_TABLES} SELECT c.relname, a.attname, quote_ident(a.attname), k.conname,"
    " pg_get_expr(k.conbin, 0) FROM c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped"
    " JOIN pg_constraint k ON k.contypid = a.atttypid AND k.contype = 'c' ORDER BY c.relname, a.attnum, k.conname",
    "constraints": f"{_TABLES} SELECT c.relname, k.conname, CAST(k.contype AS text),"
    f" {_NAMES.format(keys='k.conkey', table='c')}, f.relname, {_NAMES.format(keys='k.confkey', table='f')},"
    " f.relnamespace = c.relnamespace, pg_get_expr(k.conbin, k.conrelid) FROM c JOIN pg_constraint k"
    " ON k.conrelid = c.oid AND k.conparentid = 0 LEFT JOIN pg_class f ON f.oid = k.confrelid"
    " ORDER BY c.relname, k.conname",
    "indexes": f"{_TABLES} SELECT c.relname, i.relname, x.indisunique, {_NAMES.format(keys='x.indkey', table='c')},"
    " m.amname, x.indpred IS NOT NULL, x.indexprs IS NOT NULL, x.indnkeyatts < x.indnatts FROM c"
    " JOIN pg_index x ON x.indrelid = c.oid AND x.indisvalid JOIN pg_class i ON i.oid = x.indexrelid"
    " JOIN pg_am m ON m.oid = i.relam WHERE NOT EXISTS (SELECT FROM pg_constraint k"
    " WHERE k.conindid = i.oid AND k.contype IN ('p', 'u', 'x')) ORDER BY c.relname, i.relname",
}


def postgres_catalogue(url: URL) -> Catalogue:
    """Tables of the current schema, those that the login may not read included and marked.

    Raises:
        SourceError: The server refuses, or the login may use no schema of the search path.
    """
    import sqlalchemy as sa

    engine = open_engine(url)
    try:
        with engine.connect() as connection:
            found = {name: connection.exec_driver_sql(query).fetchall() for name, query in _QUERIES.items()}
    except sa.exc.SQLAlchemyError as error:
        kind = type(getattr(error, "orig", None) or error).__name__
        raise SourceError(
            f"source: the catalogue of {describe(url)} cannot be read ({kind}); check your rights"
        ) from None
    finally:
        engine.dispose()
    schema, database = found["schema"][0]
    if schema is None:
        todo = "grant USAGE on it, or name another with ?schema="
        raise SourceError(f"source: {describe(url)} has no schema that the login may use; {todo}")
    tables = tuple(_table(name, comment, found) for name, comment in found["tables"])
    enums = enums_of(tables)
    return Catalogue(database if schema == "public" else schema, tables, enums)


def _table(name: str, comment: str | None, found: Rows) -> FoundTable:
    mine = {kind: [row[1:] for row in rows if row[0] == name] for kind, rows in found.items()}
    columns = tuple(_column(*row) for row in mine["columns"])
    textual = [column.name for column in columns if column.type in {ColumnType.CATEGORY, ColumnType.TEXT}]
    constraints = mine["constraints"]
    unique = [tuple(row[2]) for row in constraints if row[1] == "u"]
    plain, notes = [], []
    for index, is_unique, names, method, partial, expressions, included in mine["indexes"]:
        odd = "on an expression" if expressions else "partial" if partial else "with more columns" if included else None
        if odd or method != "btree":
            notes.append(f"the index {index}, which is {odd or method}")
        elif is_unique:
            unique.append(tuple(names))
        else:
            plain.append(Index(index, tuple(names)))
    keys = [row for row in constraints if row[1] == "f"]
    notes += [f"the foreign key {row[0]}, which leaves this schema" for row in keys if not row[5]]
    notes += [f"the constraint {row[0]}, which excludes" for row in constraints if row[1] == "x"]
    checks = [Check(row[0], readable(row[6], textual)) for row in constraints if row[1] == "c"]
    checks += _of_domains(mine, textual)
    return FoundTable(
        name,
        columns,
        next((tuple(row[2]) for row in constraints if row[1] == "p"), ()),
        tuple(FoundKey(tuple(row[2]), row[3], tuple(row[4])) for row in keys if row[5]),
        tuple(dict.fromkeys(unique)),
        tuple(sorted(checks, key=lambda check: check.name)),
        tuple(plain),
        comment,
        declares_indexes=True,
        notes=tuple(notes),
        unreadable=bool(mine["columns"]) and not any(row[-1] for row in mine["columns"]),
    )


def _column(name: str, native: str, nullable: bool, *rest: Any) -> FoundColumn:
    default, identity, generated, comment, enum, labels, may_read = rest
    if enum is not None and not native.endswith("]"):
        column = FoundColumn(name, ColumnType.CATEGORY, native, nullable, sql_type=enum, values=tuple(labels))
    else:
        column = found_column(name, native, nullable=nullable)
    if not may_read:
        return replace(column, type=None, note="may not be read by this login; grant SELECT on it, or do without")
    counted = identity or (default is not None and default.startswith("nextval("))
    if generated:
        column = replace(column, note="is computed in the source, and an ordinary column here")
    return replace(
        column,
        default=None if counted or generated else default,
        identity=bool(counted and not nullable and column.type is ColumnType.INTEGER),
        comment=comment,
    )


def _of_domains(mine: Rows, textual: Sequence[str]) -> list[Check]:
    """The checks of a column's domain (CREATE DOMAIN) as checks of the table, with the column for VALUE."""
    checks = []
    for column, quoted, name, expression in mine["domain_checks"]:
        about = quoted.join(re.split(r"\bVALUE\b", expression))
        checks.append(Check(f"{column}_{name}", readable(about, textual)))
    return checks
