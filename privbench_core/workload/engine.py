"""Parse queries, resolve their names, say what they touch, and count their results in an in-memory DuckDB.

Workloads mostly write names without quotes, which PostgreSQL folds to lower case, while a bundle keeps the source's
spelling. So unquoted names match the schema's regardless of case.

DuckDB has no access to files or network, and a time limit per query. Values are written as the literals of such
queries, and constant expressions evaluated, here too.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, lru_cache
from itertools import combinations
from math import isfinite
from threading import Timer
from typing import Any

import duckdb
import pyarrow as pa
import sqlglot
from sqlglot import exp

from privbench_core.backends.postgres import quote_identifier, quote_text
from privbench_core.errors import did_you_mean
from privbench_core.schema.columns import Column
from privbench_core.schema.queried import Place, Queried
from privbench_core.schema.tables import Schema, Table, split_name
from privbench_core.workload import Workload

TIMEOUT_SECONDS = 30.0
"""Time limit of one query on one database, in seconds. Chosen by hand."""

Catalogue = Mapping[str, Iterable[str]]
"""Column names by table name."""


class UnansweredError(Exception):
    """Why a query has no answer; the message quotes no value of any row."""


@dataclass(frozen=True)
class ResolvedQuery:
    """A query with resolved names.

    Attributes:
        tree: The syntax tree.
        tables: The schema's tables that it names, one entry per mention.
        columns: All columns of these tables.
    """

    tree: exp.Expr
    tables: tuple[str, ...]
    columns: frozenset[str]

    @property
    def joins(self) -> int:
        """Number of joins: mentions of tables, including those in subqueries, minus one."""
        return max(0, len(self.tables) - 1)

    @property
    def names(self) -> frozenset[str]:
        """Names of these tables and of all columns that the schema gives them, and that of a row in conflict."""
        excluded = {"excluded"} if self.tree.find(exp.OnConflict) else set[str]()
        return frozenset({*self.tables, *self.columns, *excluded})

    def column(self, node: exp.Column, schema: Schema) -> tuple[Table, Column] | None:
        """Return the schema's column that ``node`` names; None if it belongs to a subquery or is ambiguous."""
        names = {
            table.name
            for table in self.tree.find_all(exp.Table)
            if table.name in self.tables and node.table in {"", table.alias or table.name}
        }
        owners = [schema.table(name) for name in sorted(names) if name in schema.by_name]
        found = [(table, c) for table in owners for c in table.columns if c.name == node.name]
        return found[0] if len(found) == 1 else None


PLACEHOLDERS = (exp.Parameter, exp.Placeholder)
WRITES = (exp.Insert, exp.Update, exp.Delete)
"""Statements that write, as far as they are replayed."""


def resolve(sql: str, dialect: str, catalogue: Catalogue, *, writes: bool = False) -> ResolvedQuery:
    """Parse a query, or a statement that ``writes``, and resolve its names.

    Raises:
        UnansweredError: It does not parse, is neither, or names an unknown table. Unknown columns are left to the
            engine, which knows subqueries and aliases.
    """
    # sqlglot warns about statements that it does not parse; here they become an error with a reason.
    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    try:
        tree = sqlglot.parse_one(sql, read=dialect)
    except sqlglot.errors.SqlglotError:
        raise UnansweredError(f"not understood as {'PostgreSQL' if dialect == 'postgres' else 'DuckDB'}") from None
    if writes and not (isinstance(tree, WRITES) and [*tree.find_all(*WRITES, exp.Merge)] == [tree]):
        raise UnansweredError("no INSERT, UPDATE or DELETE by itself")
    if not writes and not isinstance(tree, exp.Query):
        raise UnansweredError("not a SELECT")
    named = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    tables: list[str] = []
    aliases: dict[str, set[str]] = {}
    for node in tree.find_all(exp.Table):
        if not isinstance(node.this, exp.Identifier) or node.name.lower() in named:
            continue  # a function or a common table expression
        table = _table(node, catalogue)
        tables.append(table)
        if node.db and not node.alias and table.lower() != node.name.lower():  # its columns are those of its own name
            node.set("alias", exp.TableAlias(this=node.this.copy()))
        node.set("db", None)
        node.set("this", exp.to_identifier(table, quoted=True))
        aliases.setdefault((node.alias or table).lower(), set()).add(table)
    for column in tree.find_all(exp.Column):
        column.set("db", None)
    _name_columns(tree, {table: list(catalogue[table]) for table in tables}, aliases)
    return ResolvedQuery(tree, tuple(tables), frozenset(c for table in tables for c in catalogue[table]))


def is_regenerated(schema: Schema, table: Table, column: Column) -> bool:
    """Return whether a column's values are regenerated: keys but those to public tables, and opaque text."""
    if table.public or any(
        column.name in key.columns and schema.table(key.parent).public for key in table.foreign_keys
    ):
        return False
    return column.name in table.key_columns or column.type.opaque


def is_constant(node: exp.Expr) -> bool:
    """Return whether an expression reads no row."""
    return node.find(exp.Column, exp.Query, exp.AggFunc, exp.Window, exp.Star) is None


def with_schemas(tree: exp.Expr, schemas: Sequence[str]) -> exp.Expr:
    """Return a resolved query with the schemas of its tables, as in the DDL, and not in their names."""
    for node in tree.find_all(exp.Table):
        home, own = split_name(node.name, schemas)
        if home is not None:
            node.set("this", exp.to_identifier(own, quoted=True))
            node.set("db", exp.to_identifier(home, quoted=True))
    return tree


def _table(node: exp.Table, catalogue: Catalogue) -> str:
    home = "" if node.db.lower() == "public" else node.db
    exact, wanted = node.this.quoted, f"{home}.{node.name}" if home else node.name
    found = [name for name in catalogue if name == wanted or (not exact and name.lower() == wanted.lower())]
    if node.catalog or (home and not found):
        raise UnansweredError(f"names the schema {node.db}; name the table alone")
    if not found:
        raise UnansweredError(f"{node.name}: no such table; {did_you_mean(node.name, catalogue)}")
    return found[0]


def _name_columns(tree: exp.Expr, tables: Mapping[str, list[str]], aliases: Mapping[str, set[str]]) -> None:
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


class Engine:
    """A database in memory.

    Attributes:
        catalogue: Column names by table name.
        timeout: Time limit of a query, in seconds.
    """

    def __init__(self, tables: Mapping[str, pa.Table], timeout: float = TIMEOUT_SECONDS) -> None:
        self.catalogue = {name: rows.column_names for name, rows in tables.items()}
        self.timeout = timeout
        self._resolved: dict[tuple[str, str], ResolvedQuery] = {}
        self._counted: dict[str, int] = {}
        self._connection = duckdb.connect(config={"enable_external_access": False})
        for name, rows in tables.items():
            # Copied, so that the optimiser has statistics and queries need no conversion.
            self._connection.register("privbench_staged", rows)
            self._connection.execute(f"CREATE TABLE {quote_identifier(name)} AS SELECT * FROM privbench_staged")
            self._connection.unregister("privbench_staged")

    @cached_property
    def functions(self) -> frozenset[str]:
        """Names of the functions that queries can call."""
        found = self._connection.execute("SELECT DISTINCT lower(function_name) FROM duckdb_functions()").fetchall()
        return frozenset(name for (name,) in found)

    def resolve(self, sql: str, dialect: str = "postgres") -> ResolvedQuery:
        """See `resolve`, the function, for queries; the same text is resolved once."""
        if (sql, dialect) not in self._resolved:
            self._resolved[sql, dialect] = resolve(sql, dialect, self.catalogue)
        return self._resolved[sql, dialect]

    def cardinality(self, query: ResolvedQuery) -> int:
        """Return the cardinality of a query, see `counting_query`; the same query is counted once.

        Raises:
            UnansweredError: The query fails, takes too long, or does not return a number.
        """
        text = query.tree.sql(dialect="duckdb")
        if text not in self._counted:
            rows = self.rows(counting_query(query.tree), limit=2)
            if len(rows) != 1 or len(rows[0]) != 1 or type(rows[0][0]) is not int:
                raise UnansweredError("does not return one whole number where it counts")
            self._counted[text] = rows[0][0]
        return self._counted[text]

    def try_write(self, tree: exp.Expr) -> list[tuple[Any, ...]]:
        """Return what a statement that writes returns, or its number of rows; nothing of it is kept.

        Raises:
            UnansweredError: As `rows`.
        """
        self._connection.begin()
        try:
            return self.rows(tree)
        finally:
            self._connection.rollback()

    def rows(self, tree: exp.Expr, limit: int = 1_000_000) -> list[tuple[Any, ...]]:
        """Return at most ``limit`` rows of a query's result.

        Raises:
            UnansweredError: The query fails or takes too long.
        """
        timer = Timer(self.timeout, self._connection.interrupt)
        timer.daemon = True
        timer.start()
        try:
            return self._connection.execute(tree.sql(dialect="duckdb")).fetchmany(limit)
        except duckdb.InterruptException:
            raise UnansweredError(f"took longer than {self.timeout:g} s") from None
        except (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException) as error:
            raise UnansweredError(str(error).splitlines()[0]) from None
        except duckdb.Error as error:
            # Errors at run time can quote values, so only their kind is shown.
            raise UnansweredError(f"failed while running ({type(error).__name__})") from None
        finally:
            timer.cancel()


def counting_query(tree: exp.Expr) -> exp.Expr:
    """Return a query for the cardinality of ``tree``.

    A query that returns a single COUNT returns its cardinality itself. Other aggregates without GROUP BY always return
    one row, so the aggregated rows are counted. For all other queries, the rows of the result are counted.
    """
    if projected := aggregates_of_all(tree):
        item = projected[0]
        while isinstance(item, exp.Cast | exp.Paren):
            item = item.this
        if len(projected) == 1 and isinstance(item, exp.Count):
            return tree
        if tree.args.get("from_"):
            counted = tree.copy()
            for part, replaced in (("expressions", [exp.Count(this=exp.Star())]), ("order", None), ("limit", None)):
                counted.set(part, replaced)
            return counted
    inside = tree.copy()
    if not inside.args.get("limit"):
        inside.set("order", None)
    alias = exp.TableAlias(this=exp.to_identifier("counted", quoted=True))
    return exp.select(exp.Count(this=exp.Star())).from_(exp.Subquery(this=inside, alias=alias))


def aggregates_of_all(tree: exp.Expr) -> list[exp.Expr]:
    """Return the output columns of a query that aggregates all of its rows into one; none for any other query."""
    if not isinstance(tree, exp.Select) or any(tree.args.get(part) for part in ("group", "distinct", "having")):
        return []
    projected = [item.unalias() for item in tree.expressions]
    aggregated = (item.find(exp.AggFunc) is not None and item.find(exp.Window) is None for item in projected)
    return projected if all(aggregated) else []


def literal(value: Any) -> str | None:
    """Return a value as SQL for PostgreSQL and DuckDB; None for NULL and for values without a literal.

    >>> literal(dt.date(2020, 2, 29)), literal("it's")
    ("DATE '2020-02-29'", "'it''s'")
    """
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case int() | Decimal():
            return str(value) if isinstance(value, int) else format(value, "f")
        case float():
            return repr(value) if isfinite(value) else None
        case str():
            return None if "\0" in value else quote_text(value)
        case dt.datetime():
            kind = "TIMESTAMP" if value.tzinfo is None else "TIMESTAMPTZ"
            return f"{kind} '{value.isoformat(sep=' ')}'"
        case dt.date():
            return f"DATE '{value.isoformat()}'"
    return None


def constant(expression: exp.Expr, engine: Engine) -> Any:
    """Evaluate an expression without columns in any ``engine``, such as ``DATE '1994-01-01' + INTERVAL '1' YEAR``.

    Returns:
        The value; None if the expression names a column, is a subquery, has no value, or has one that `literal` cannot
        write.
    """
    if expression.find(exp.Column, exp.Query, *PLACEHOLDERS) is not None:
        return None
    try:
        rows = engine.rows(exp.select(expression.copy()), limit=1)
    except UnansweredError:
        return None
    return rows[0][0] if literal(rows[0][0]) is not None else None


@lru_cache(maxsize=4)
def queried_by(workload: Workload, schema: Schema) -> Queried:
    """Return what the queries of a workload touch, by their text without its constants.

    Those that are not understood touch nothing.

    Columns that a query only shows are left out: mappers of objects show all of a table's.
    """
    catalogue = {table.name: tuple(column.name for column in table.columns) for table in schema.tables}
    attributes = {(table.name, column.name) for table in schema.tables for column in table.attributes}
    keys = [key for table in schema.tables for key in table.foreign_keys]
    tables, columns, pairs, touched_keys = set[str](), set[Place](), set[frozenset[Place]](), set[str]()
    for statement in workload.statements:
        try:
            query = resolve(statement.sql, workload.dialect, catalogue)
        except UnansweredError:
            continue
        found = set(_places(query, catalogue))
        tables |= set(query.tables)
        touched_keys |= {key.name for key in keys if found.issuperset((key.child, name) for name in key.columns)}
        columns |= found & attributes
        pairs |= {frozenset(pair) for pair in combinations(found & attributes, 2)}
    return Queried(frozenset(tables), frozenset(columns), frozenset(pairs), frozenset(touched_keys))


def _places(query: ResolvedQuery, catalogue: Catalogue) -> Iterator[Place]:
    """Yield the columns of tables that a query names: of every table that has one of the name, if it is not said."""
    aliases: dict[str, set[str]] = {}
    for node in query.tree.find_all(exp.Table):
        aliases.setdefault((node.alias or node.name).lower(), set()).add(node.name)
    shown = _shown(query.tree)
    named = [(node.table, node.name) for node in query.tree.find_all(exp.Column) if id(node) not in shown]
    named += [("", column.name) for join in query.tree.find_all(exp.Join) for column in join.args.get("using") or ()]
    for qualifier, column in named:
        for table in aliases.get(qualifier.lower(), set()) if qualifier else query.tables:
            if column in catalogue.get(table, ()):
                yield table, column


def _shown(tree: exp.Expr) -> set[int]:
    """Return the ids of the columns that stand alone in the result of a query that neither groups nor is distinct."""
    if not isinstance(tree, exp.Select) or tree.args.get("group") or tree.args.get("distinct"):
        return set()
    return {id(item.unalias()) for item in tree.expressions}
