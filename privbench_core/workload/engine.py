"""Count query results in an in-memory DuckDB without access to files or network, and with a time limit per query.

Also write values as the literals of such queries, and evaluate their constant expressions.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from math import isfinite
from threading import Timer
from typing import Any

import duckdb
import pyarrow as pa
from sqlglot import exp

from privbench_core.backends.postgres.ddl import quote_identifier
from privbench_core.workload.resolve import ResolvedQuery, UnansweredError, resolve

TIMEOUT_SECONDS = 30.0
"""Time limit of one query on one database, in seconds. Chosen by hand."""

_STAGED = "privbench_staged"


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
            self._connection.register(_STAGED, rows)
            self._connection.execute(f"CREATE TABLE {quote_identifier(name)} AS SELECT * FROM {_STAGED}")
            self._connection.unregister(_STAGED)

    def resolve(self, sql: str, dialect: str = "postgres") -> ResolvedQuery:
        """See `resolve.resolve`; the same text is resolved once."""
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
            self._counted[text] = self._count(query)
        return self._counted[text]

    def _count(self, query: ResolvedQuery) -> int:
        rows = self.rows(counting_query(query.tree), limit=2)
        if len(rows) != 1 or len(rows[0]) != 1 or isinstance(rows[0][0], bool) or not isinstance(rows[0][0], int):
            raise UnansweredError("does not return one whole number where it counts")
        return rows[0][0]

    def rows(self, tree: exp.Query, limit: int = 1_000_000) -> list[tuple[Any, ...]]:
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


def counting_query(tree: exp.Query) -> exp.Query:
    """Return a query for the cardinality of ``tree``.

    A query that returns a single COUNT returns its cardinality itself. Other aggregates without GROUP BY always return
    one row, so the aggregated rows are counted. For all other queries, the rows of the result are counted.
    """
    if isinstance(tree, exp.Select) and not any(tree.args.get(part) for part in ("group", "distinct", "having")):
        projected = [item.unalias() for item in tree.expressions]
        if len(projected) == 1 and isinstance(_inside_casts(projected[0]), exp.Count):
            return tree
        if projected and tree.args.get("from_") and all(_aggregates(item) for item in projected):
            counted = tree.copy()
            counted.set("expressions", [exp.Count(this=exp.Star())])
            counted.set("order", None)
            counted.set("limit", None)
            return counted
    inside = tree.copy()
    if not inside.args.get("limit"):
        inside.set("order", None)
    alias = exp.TableAlias(this=exp.to_identifier("counted", quoted=True))
    return exp.select(exp.Count(this=exp.Star())).from_(exp.Subquery(this=inside, alias=alias))


def _inside_casts(item: exp.Expr) -> exp.Expr:
    while isinstance(item, exp.Cast | exp.Paren):
        item = item.this
    return item


def _aggregates(item: exp.Expr) -> bool:
    return item.find(exp.AggFunc) is not None and item.find(exp.Window) is None


def literal(value: Any) -> str | None:
    """Return a value as SQL that PostgreSQL and DuckDB read alike; None for NULL and for values without a literal.

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
            escaped = value.replace("'", "''")
            return None if "\0" in value else f"'{escaped}'"
        case dt.datetime():
            kind = "TIMESTAMP" if value.tzinfo is None else "TIMESTAMPTZ"
            return f"{kind} '{value.isoformat(sep=' ')}'"
        case dt.date():
            return f"DATE '{value.isoformat()}'"
    return None


def constant(expression: exp.Expr, engine: Engine) -> Any:
    """Return the value of an expression without columns, such as ``DATE '1994-01-01' + INTERVAL '1' YEAR``.

    Args:
        expression: Any part of a query.
        engine: Evaluates the expression; its tables do not matter.

    Returns:
        The value; None if the expression names a column, is a subquery, has no value, or has one that `literal` cannot
        write.
    """
    if expression.find(exp.Column, exp.Query, exp.Parameter, exp.Placeholder) is not None:
        return None
    try:
        rows = engine.rows(exp.select(expression.copy()), limit=1)
    except UnansweredError:
        return None
    return rows[0][0] if literal(rows[0][0]) is not None else None
