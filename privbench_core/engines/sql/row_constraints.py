"""Constraints between the columns of a row as SQL: the twin of `columns.row_constraints`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from sqlglot import exp

from privbench_core.columns.categorical import CategoricalCodec
from privbench_core.columns.row_constraints import (
    FIRST_DAY,
    LARGEST_REAL,
    LAST_DAY,
    NOT_APPLICABLE,
    RELATIVE_ERROR,
    SATISFIED,
    VIOLATED,
    WEEKDAYS,
    WEEKS,
)
from privbench_core.engines.sql.codes import bounded, listed_value
from privbench_core.engines.sql.database import Database
from privbench_core.engines.sql.literals import Expr, is_missing, number, real
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.row_constraints import (
    DatePart,
    Formula,
    InOrder,
    MissingTogether,
    MissingWhere,
    PartOfDate,
    RowConstraint,
    SameValue,
    ValueConstraint,
)
from privbench_core.schema.tables import Table
from privbench_core.schema.types.base import INT64_MAX
from privbench_core.schema.types.durations import DAY

_FIELDS = {
    DatePart.YEAR: "YEAR",
    DatePart.QUARTER: "QUARTER",
    DatePart.MONTH: "MONTH",
    DatePart.WEEK: "WEEK",
    DatePart.DAY: "DAY",
}
_SEVENS = 7 * (-FIRST_DAY // 7 + 1)  # days that make all since 1970 numbers above zero, which leave the same rest


def verdict_of(database: Database, table: Table, constraint: RowConstraint, values: Mapping[str, Expr]) -> Expr:
    """Return the code of whether a row keeps a constraint, given the stored values of its columns."""
    missing = {name: is_missing(value, table.column(name).type) for name, value in values.items()}
    if isinstance(constraint, MissingTogether):
        every, one = (kind(*(each.copy() for each in missing.values())) for kind in (exp.and_, exp.or_))
        return exp.case().when(every, number(SATISFIED)).when(one, number(VIOLATED)).else_(number(NOT_APPLICABLE))
    if isinstance(constraint, MissingWhere):
        unknown, kept = missing[constraint.of], _is_missing_where(database, table, constraint, values, missing)
    else:
        unknown, kept = exp.or_(*missing.values()), _is_kept(table, constraint, values)
    return exp.case().when(unknown, number(NOT_APPLICABLE)).when(kept, number(SATISFIED)).else_(number(VIOLATED))


def _is_missing_where(
    database: Database, table: Table, constraint: MissingWhere, values: Mapping[str, Expr], missing: Mapping[str, Expr]
) -> Expr:
    """Return the condition that a column is NULL where it has to be, and nowhere else."""
    of, listed = table.column(constraint.of), constraint.values
    codec = CategoricalCodec(of.name, of.type, (False, True) if of.type.logical.fixed_values else listed, nullable=True)
    told = (
        [*("false" in listed, "true" in listed)] if of.type.logical.fixed_values else [*(True for _ in listed), False]
    )
    wanted = listed_value(database, values[constraint.of], codec, [int(each == constraint.null) for each in told])
    found = exp.case().when(missing[constraint.column], number(1)).else_(number(0))
    return exp.EQ(this=exp.Paren(this=found), expression=exp.Paren(this=wanted))


def _is_kept(table: Table, constraint: ValueConstraint | InOrder, values: Mapping[str, Expr]) -> Expr:
    """Return the condition that a row keeps a constraint whose values are all there."""
    name, *others = constraint.columns
    if isinstance(constraint, Formula):
        found, *parts = (_real(table.column(each), values[each]) for each in constraint.columns)
        kind = exp.Mul if constraint.product else exp.Add
        expected: Expr = exp.Paren(this=reduce(lambda one, other: kind(this=one, expression=other), parts))
        apart = exp.Abs(this=exp.Sub(this=found, expression=expected))
        error = exp.Mul(this=exp.Abs(this=expected.copy()), expression=real(RELATIVE_ERROR))
        return exp.LTE(this=apart, expression=exp.Paren(this=exp.Add(this=real(constraint.within), expression=error)))
    found = _number(table.column(name), values[name])
    if isinstance(constraint, InOrder):
        return exp.LTE(this=found, expression=_number(table.column(others[0]), values[others[0]]))
    return exp.EQ(this=found, expression=exp.Paren(this=_expected(table, constraint, values)))


def _real(column: Column, value: Expr) -> Expr:
    """Return a stored value as `reals_of` returns it."""
    if column.type is not ColumnType.FLOAT:
        whole = exp.cast(_number(column, value), exp.DataType.Type.DOUBLE)
        digits = real(10.0 ** (column.scale or 0))
        return exp.Paren(this=exp.Div(this=whole, expression=digits, typed=False, safe=False))
    found = exp.case().when(exp.GT(this=value.copy(), expression=real(LARGEST_REAL)), real(LARGEST_REAL))
    found = found.when(exp.LT(this=value.copy(), expression=real(-LARGEST_REAL)), real(-LARGEST_REAL))
    small = exp.LT(this=exp.Abs(this=value.copy()), expression=real(1 / LARGEST_REAL))
    return exp.Paren(this=found.when(small, real(0.0)).else_(value.copy()))


def _expected(table: Table, constraint: PartOfDate | SameValue, values: Mapping[str, Expr]) -> Expr:
    """Return the number that a constraint of values gives to its column."""
    of, column = table.column(constraint.of), table.column(constraint.column)
    if not isinstance(constraint, PartOfDate):
        return _number(of, values[constraint.of])
    part = _part(values[constraint.of], constraint.part, of.type is ColumnType.DATE)
    return exp.cast(part, exp.DataType.Type.DOUBLE) if column.type is ColumnType.FLOAT else part


def _number(column: Column, value: Expr) -> Expr:
    """Return a stored value as `Grid.numbers` returns it."""
    return value.copy() if column.type is ColumnType.FLOAT else bounded(value, -INT64_MAX - 1, INT64_MAX)


def _part(value: Expr, part: DatePart, in_days: bool) -> Expr:
    """Return a part of days, or microseconds, since 1970, see `columns.row_constraints`."""
    if in_days:
        days: Expr = bounded(value, FIRST_DAY, LAST_DAY)
        if part is DatePart.HOUR:
            return number(0)
    else:
        times = _plus(bounded(value, FIRST_DAY * DAY, (LAST_DAY + 1) * DAY - 1), -FIRST_DAY * DAY)
        if part is DatePart.HOUR:
            return _over(_rest(times, DAY), DAY // 24)
        days = _plus(_over(times, DAY), FIRST_DAY)
    if part is DatePart.DATE:
        return days
    if part in WEEKDAYS:
        turn, first = WEEKDAYS[part]
        return _plus(_rest(_plus(days, _SEVENS + turn), 7), first)
    date = exp.Add(
        this=exp.cast(exp.Literal.string("1970-01-01"), exp.DataType.Type.DATE),
        expression=exp.cast(days.copy(), exp.DataType.Type.INT),
    )
    field = exp.Extract(this=exp.var(_FIELDS.get(part, "DOY")), expression=exp.Paren(this=date))
    found = exp.cast(field, exp.DataType.Type.BIGINT)
    if part not in WEEKS:
        return found
    of_first = WEEKS[part]
    if of_first is None:
        return _plus(_over(_plus(found, -1), 7), 1)
    before = _rest(_plus(exp.Paren(this=exp.Sub(this=days, expression=found)), _SEVENS + 1 + of_first), 7)
    return _plus(_over(exp.Paren(this=exp.Add(this=_plus(found, -1), expression=before)), 7), 1)


def _plus(value: Expr, more: int) -> Expr:
    return exp.Paren(this=exp.Add(this=value, expression=number(more)))


def _rest(value: Expr, divisor: int) -> Expr:
    return exp.Paren(this=exp.Mod(this=value, expression=number(divisor)))


def _over(value: Expr, divisor: int) -> Expr:
    """Return how often a divisor is contained in a number that is not negative."""
    whole = exp.IntDiv(this=exp.Paren(this=value), expression=number(divisor))
    return exp.cast(whole, exp.DataType.Type.BIGINT)
