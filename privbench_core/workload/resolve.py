"""Parse a query and resolve its names to the schema's, in quotes.

Workloads mostly write names without quotes, which PostgreSQL folds to lower case, while a bundle keeps the source's
spelling. So unquoted names match the schema's regardless of case.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import sqlglot
from sqlglot import exp

from privbench_core.errors import did_you_mean

Catalogue = Mapping[str, Iterable[str]]
"""Column names by table name."""


class UnansweredError(Exception):
    """Why a query has no answer; the message quotes no value of any row."""


@dataclass(frozen=True)
class ResolvedQuery:
    """A query with resolved names.

    Attributes:
        tree: The syntax tree.
        tables: The schema's tables that it reads, one entry per mention.
    """

    tree: exp.Query
    tables: tuple[str, ...]

    @property
    def joins(self) -> int:
        """Number of joins: mentions of tables, including those in subqueries, minus one."""
        return max(0, len(self.tables) - 1)


def resolve(sql: str, dialect: str, catalogue: Catalogue) -> ResolvedQuery:
    """Parse a query and resolve its names.

    Args:
        sql: One statement.
        dialect: Its SQL dialect.
        catalogue: The schema.

    Raises:
        UnansweredError: It does not parse, is not a SELECT, or names an unknown table. Unknown columns are left to the
            engine, which knows subqueries and aliases.
    """
    # sqlglot warns about statements that it does not parse; here they become an error with a reason.
    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    try:
        tree = sqlglot.parse_one(sql, read=dialect)
    except sqlglot.errors.SqlglotError:
        raise UnansweredError(f"not understood as {'PostgreSQL' if dialect == 'postgres' else 'DuckDB'}") from None
    if not isinstance(tree, exp.Query):
        raise UnansweredError("not a SELECT")
    named = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    tables: list[str] = []
    aliases: dict[str, set[str]] = {}
    for node in tree.find_all(exp.Table):
        if not isinstance(node.this, exp.Identifier) or node.name.lower() in named:
            continue  # a function or a common table expression
        table = _table(node, catalogue)
        tables.append(table)
        node.set("this", exp.to_identifier(table, quoted=True))
        aliases.setdefault((node.alias or table).lower(), set()).add(table)
    _name_columns(tree, {table: list(catalogue[table]) for table in tables}, aliases)
    return ResolvedQuery(tree, tuple(tables))


def _table(node: exp.Table, catalogue: Catalogue) -> str:
    if node.db.lower() not in {"", "public"} or node.catalog:
        raise UnansweredError(f"names the schema {node.db}; name the table alone")
    node.set("db", None)
    exact = node.this.quoted
    found = [name for name in catalogue if name == node.name or (not exact and name.lower() == node.name.lower())]
    if not found:
        raise UnansweredError(f"{node.name}: no such table; {did_you_mean(node.name, catalogue)}")
    return found[0]


def _name_columns(tree: exp.Query, tables: Mapping[str, list[str]], aliases: Mapping[str, set[str]]) -> None:
    """Give every unquoted name that matches a column, regardless of case, the column's spelling.

    Output names that match a column are renamed with it everywhere, so the query keeps its meaning.
    """
    spellings: dict[str, set[str]] = {}
    for columns in tables.values():
        for column in columns:
            spellings.setdefault(column.lower(), set()).add(column)
    written_aliases = {node.alias.lower() for node in tree.find_all(exp.Table, exp.Subquery) if node.alias}
    for node in list(tree.find_all(exp.Identifier)):
        parent = node.parent
        if node.quoted or isinstance(parent, exp.Table) or (isinstance(parent, exp.TableAlias) and parent.this is node):
            continue
        if isinstance(parent, exp.Column) and parent.args.get("table") is node:
            owners = aliases.get(node.name.lower(), set())
            if node.name.lower() not in written_aliases and len(owners) == 1:
                node.replace(exp.to_identifier(next(iter(owners)), quoted=True))
            continue
        options = spellings.get(node.name.lower(), set())
        if len(options) > 1:
            options = _of_owner(node, tables, aliases)
        if len(options) == 1:
            node.replace(exp.to_identifier(next(iter(options)), quoted=True))


def _of_owner(node: exp.Identifier, tables: Mapping[str, list[str]], aliases: Mapping[str, set[str]]) -> set[str]:
    """Return the spellings of a column in the tables that its qualifier may refer to."""
    qualifier = node.parent.table.lower() if isinstance(node.parent, exp.Column) else ""
    owners = aliases.get(qualifier, set()) if qualifier else set(tables)
    found = {column for table in owners for column in tables[table] if column.lower() == node.name.lower()}
    if len(found) > 1:
        raise UnansweredError(f"{node.name}: tables spell this column in several ways; write it in quotes")
    return found
