"""Write values as SQL literals, and evaluate constant expressions."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from math import isfinite
from typing import Any

from sqlglot import exp

from privbench_core.workload.engine import Engine
from privbench_core.workload.resolve import UnansweredError


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
