"""The indexes of a table in the order in which its DDL makes them, taken apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from privbench_core.schema.constraints import Index
from privbench_core.schema.tables import Table

if TYPE_CHECKING:
    from sqlglot import exp


@dataclass(frozen=True)
class IndexParts:
    """An index.

    Attributes:
        keys: Columns by name, expressions as SQL.
        name: None where the server chooses it.
        method: Such as ``btree``.
        unique: Whether no two rows share a key.
        include: Columns that it holds beside the keys.
        where: The condition on the rows that it holds; None for all.
    """

    keys: tuple[str, ...]
    name: str | None = None
    method: str = "btree"
    unique: bool = False
    include: tuple[str, ...] = ()
    where: str | None = None


def index_parts(table: Table) -> list[IndexParts]:
    """Return the indexes of a table, or of each of its partitions, in the order of `create_keys_sql`."""
    keys = (*([table.primary_key] if table.primary_key else []), *table.unique)
    parts = table.partitioned
    made = [IndexParts(columns, unique=parts is None or parts.allows_key(columns)) for columns in keys]
    return made + [_parsed(index) for index in (table.indexes or ())] + [IndexParts(c) for c in indexed_keys(table)]


def indexed_keys(table: Table) -> list[tuple[str, ...]]:
    """Return the columns of the foreign keys that get an index, where a table does not list its indexes.

    A primary or unique key that starts with the same columns is an index on them already.
    """
    ready = (table.primary_key, *table.unique)
    keys = [key.columns for key in table.foreign_keys] if table.indexes is None else []
    return [columns for columns in keys if not any(group[: len(columns)] == columns for group in ready)]


def _parsed(index: Index) -> IndexParts:
    """Take an index apart; where sqlglot does not understand it, it is one on the columns that it is about."""
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    if index.using is None:
        return IndexParts(index.columns, index.name)
    method = index.using.partition("(")[0].strip().lower()
    try:
        made = sqlglot.parse_one(f"CREATE INDEX i ON t USING {index.using}", read="postgres")
        params = made.find(exp.IndexParameters)
    except SqlglotError:
        params = None
    if params is None:
        return IndexParts(index.columns, index.name, method)
    keys = [_expression(key.this if isinstance(key, exp.Ordered) else key) for key in params.args["columns"]]
    include = tuple(column.name for column in params.args.get("include") or ())
    where = params.args.get("where")
    condition = where.this.sql(dialect="postgres") if where else None
    return IndexParts(tuple(keys), index.name, method, include=include, where=condition)


def _expression(key: exp.Expr) -> str:
    from sqlglot import exp

    inside = key.this if isinstance(key, exp.Opclass) else key
    inside = inside.unnest()
    return inside.name if isinstance(inside, exp.Column | exp.Identifier) else inside.sql(dialect="postgres")
