"""Values as SQL that means exactly them."""

from __future__ import annotations

import math

import sqlglot
from sqlglot import exp

from privbench_core.schema.columns import ColumnType

Expr = exp.Expr


def column(name: str, table: str | None = None) -> exp.Column:
    """Return a column as an expression."""
    return exp.column(name, table)


def count() -> Expr:
    """Return the number of rows."""
    return exp.Count(this=exp.Star())


def number(value: float) -> Expr:
    """Return a whole number as an expression."""
    literal = exp.Literal.number(abs(int(value)))
    return exp.Paren(this=exp.Neg(this=literal)) if value < 0 else literal


def text(value: str) -> Expr:
    """Return a text as an expression; no statement may hold the character 0 itself."""
    first, *rest = value.split("\0")
    found: Expr = exp.Literal.string(first)
    for part in rest:
        zero = exp.Anonymous(this="chr", expressions=[number(0)])
        found = exp.DPipe(this=exp.DPipe(this=found, expression=zero), expression=exp.Literal.string(part))
    return exp.Paren(this=found) if rest else found


def real(value: float) -> Expr:
    """Return a float as an expression, exactly: its shortest decimal text, cast."""
    return exp.cast(exp.Literal.string(repr(float(value))), exp.DataType.Type.DOUBLE)


def not_a_number(value: Expr) -> Expr:
    """Return the condition that a float is NaN: all databases hold NaN for equal to itself."""
    return exp.EQ(this=value.copy(), expression=real(math.nan))


def is_null(value: Expr) -> Expr:
    """Return the condition that a value is NULL."""
    return exp.Is(this=value.copy(), expression=exp.Null())


def is_missing(value: Expr, kind: ColumnType | None) -> Expr:
    """Return the condition that a value of a type is NULL, or NaN."""
    return exp.or_(is_null(value), not_a_number(value)) if kind is ColumnType.FLOAT else is_null(value)


def of_column(form: str, column: exp.Column, dialect: str) -> Expr:
    """Return an expression that is written with x for a column."""
    tree = sqlglot.parse_one(form, dialect=dialect)
    return tree.transform(lambda node: column.copy() if isinstance(node, exp.Column) and node.name == "x" else node)
