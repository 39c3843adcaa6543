"""Try the schema of a bundle on empty databases before anything is bought: what cannot be loaded is worth no budget.

DuckDB tries every schema, in memory. What only a PostgreSQL server can judge (expressions, kinds of indexes) is tried
on an embedded one where that package is installed, never on the source's own server. Elsewhere what is known of
operator classes has to do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from privbench_core.backends.postgres import create_schema_sql
from privbench_core.backends.postgres.temporary import temporary_postgres
from privbench_core.errors import PublishError, SpecError
from privbench_core.schema.checks import enforceable_check
from privbench_core.schema.tables import Schema, Table

if TYPE_CHECKING:
    import psycopg

_PLAIN_INDEX = re.compile(r'(\w+) \(((?:"(?:[^"]|"")+"|\w+)(?:, (?:"(?:[^"]|"")+"|\w+))*)\)')
_CALL = re.compile(r"\((?!\))")  # of a function with arguments, or a sub-expression
_REMEDY = "Remove it from the spec: no bundle with it can be loaded. Nothing was spent."


@lru_cache(maxsize=4)
def refuse_unloadable(schema: Schema) -> None:
    """Refuse a schema that no database would take.

    Raises:
        SpecError: What DuckDB or PostgreSQL refuses of it, a line each.
    """
    problems = [*_refused_by_duckdb(schema)]
    if schema.views or any(_needs_server(table) for table in schema.tables):
        try:
            problems += _refused_by_postgres(schema)
        except PublishError:  # there is no embedded server, or it does not start here
            problems += _without_operator_class(schema)
    if problems:
        raise SpecError(problems)


def _refused_by_duckdb(schema: Schema) -> Iterator[str]:
    import duckdb

    from privbench_core.backends.duckdb import duckdb_schema

    try:
        duckdb_schema(schema)
    except duckdb.Error as error:
        yield f"DuckDB refuses the tables of the bundle: {str(error).splitlines()[0]}. Nothing was spent."


def _needs_server(table: Table) -> bool:
    """Return whether the table has expressions, parts or indexes that may mean nothing to a server."""
    return bool(
        table.generated
        or table.partitioned
        or table.heirs
        or any(index.using is not None for index in table.indexes or ())
        or any(enforceable_check(check.expression) is None for check in table.checks)
        or any(column.default is not None and _CALL.search(column.default) for column in table.columns)
    )


def _refused_by_postgres(schema: Schema) -> Sequence[str]:
    import psycopg

    with temporary_postgres({"fsync": "off"}) as server, psycopg.connect(server.url) as connection:
        whole = _refused(connection, schema)
        if whole is None:
            return []
        parts = [
            f"{table.name}: PostgreSQL refuses {what}: {why}. {_REMEDY}"
            for table in schema.tables
            for what, part in _parts(table)
            if (why := _refused(connection, replace(schema, tables=(part,), views=())))
        ]
        for number, view in enumerate(() if parts else schema.views, start=1):
            if why := _refused(connection, replace(schema, views=schema.views[:number])):
                parts.append(f"{view.name}: PostgreSQL refuses the view: {why}. {_REMEDY}")
                break
    return parts or [f"PostgreSQL refuses the schema of the bundle: {whole}. Nothing was spent."]


def _refused(connection: psycopg.Connection[Any], schema: Schema) -> str | None:
    """Return why the server does not make a schema, which it forgets at once; None if it does."""
    import psycopg

    try:
        connection.execute(create_schema_sql(schema).encode())
    except psycopg.Error as error:
        return error.diag.message_primary or type(error).__name__
    finally:
        connection.rollback()
    return None


def _parts(table: Table) -> Iterator[tuple[str, Table]]:
    """Yield what of a table a server may refuse, each in a table with nothing else."""
    plain = tuple(replace(column, default=None) for column in table.columns)
    alone = replace(table, foreign_keys=(), implied_keys=(), unique=(), checks=(), indexes=(), generated=(), heirs=())
    bare = replace(alone, columns=plain, partitioned=None)
    if table.partitioned:
        yield "the partitions", replace(bare, partitioned=table.partitioned)
    for heir in table.heirs:
        bound = replace(heir, foreign_keys=(), keys=())
        yield f"the table {heir.name}, which inherits", replace(bare, generated=table.generated, heirs=(bound,))
    yield from ((f"the check {check.name}", replace(bare, checks=(check,))) for check in table.checks)
    yield from ((f"the computed column {each.name}", replace(bare, generated=(each,))) for each in table.generated)
    for column in table.columns:
        if column.default is not None:
            others = (column if each.name == column.name else each for each in plain)
            yield f"the default of {column.name}", replace(bare, columns=tuple(others))
    for index in table.indexes or ():
        read = tuple(each for each in table.generated if each.name in index.columns)
        yield f"the index {index.name}", replace(bare, indexes=(index,), generated=read)


def _without_operator_class(schema: Schema) -> Iterator[str]:
    """Yield the indexes of plain columns whose types no operator class of their method is for by default."""
    for table in schema.tables:
        for index in table.indexes or ():
            plain = _PLAIN_INDEX.fullmatch(index.using or "")
            columns = [column for column in table.columns if column.name in index.columns]
            if plain is None or len(columns) < len(index.columns):  # of a computed column, whose type is the source's
                continue
            method = plain[1]
            for column in columns:
                held = str(column.stored_type)
                fits = {
                    "gist": False,
                    "gin": column.is_array or held == "jsonb",
                    "spgist": held == "text" or held.startswith("character varying"),
                }.get(method, held != "json" or method == "brin")
                if not fits:
                    yield (
                        f"{table.name}: PostgreSQL has no operator class of the index {index.name} for {column.name},"
                        f" which is {held} in the bundle. {_REMEDY}"
                    )
