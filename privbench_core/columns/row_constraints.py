"""What rows make of a constraint between their columns, the values that it gives to one of them, and declared ones.

Values are compared as numbers of their types (`Grid.numbers`), so that an engine that holds such numbers finds the same
(`engines.sql.codes`).
"""

from __future__ import annotations

import datetime as dt
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.arrays import Mask
from privbench_core.columns.grid import Grid
from privbench_core.guards import EXACT_FLOAT
from privbench_core.schema.checks import columns_of, parse_check
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
    is_well_formed,
)
from privbench_core.schema.tables import Table
from privbench_core.schema.types.durations import DAY
from privbench_core.schema.types.times import DateType

if TYPE_CHECKING:
    from sqlglot.expressions import Expr


Numbers: TypeAlias = NDArray[np.int64] | NDArray[np.float64]
Values: TypeAlias = pa.Array | pa.ChunkedArray

NOT_APPLICABLE, VIOLATED, SATISFIED = range(3)
VERDICTS = SATISFIED + 1
"""Number of codes of whether a row keeps a constraint."""

LISTS = (ColumnType.CATEGORY, ColumnType.TEXT, ColumnType.BOOLEAN)
"""Types of lists of which a constraint may name values."""
FIRST_DAY, LAST_DAY = DateType().extent
"""Days from 1970-01-01 to the first one of the year 1, and to the last one of the year 9999."""
LARGEST_REAL, RELATIVE_ERROR = (float(f"1e{digits}") for digits in (70, -9))
"""Numbers in formulas are between this and its opposite, and not nearer to zero than its inverse; and what rounding of
floats may change in relation to a number."""
WEEKDAYS = {
    DatePart.WEEKDAY_FROM_MONDAY: (3, 0),
    DatePart.WEEKDAY_ISO: (3, 1),
    DatePart.WEEKDAY_FROM_SUNDAY: (4, 0),
    DatePart.WEEKDAY_FROM_SUNDAY_1: (4, 1),
}
"""What is added to days since 1970 so that seven divide those of the first weekday; and the number of that weekday."""
MOVED = {DatePart.HOUR: DAY // 24, DatePart.DAY: DAY} | dict.fromkeys(WEEKDAYS, DAY)
"""Parts of dates that are finer than what is known of these, each in microseconds: dates are moved to them."""
WEEKS = {DatePart.SEVEN_DAYS: None, DatePart.WEEK_FROM_MONDAY: 3, DatePart.WEEK_FROM_SUNDAY: 4}
"""The same of weeks that are counted from January 1; None where each has seven days from then."""
_LONGEST_MONTH = dt.date.max.day
_KERNELS = {
    DatePart.YEAR: pc.year,
    DatePart.QUARTER: pc.quarter,
    DatePart.MONTH: pc.month,
    DatePart.WEEK: pc.iso_week,
    DatePart.DAY: pc.day,
}


def verdicts(table: Table, constraint: RowConstraint, values: Mapping[str, pa.ChunkedArray]) -> NDArray[np.uint8]:
    """Return whether rows keep a constraint, shape (rows,).

    One of values says nothing of a row in which one of its columns is NULL, and one of NULLs nothing of a row in which
    none is. ``values`` are those of its columns.
    """
    if isinstance(constraint, MissingTogether):
        missing = np.stack([is_missing(values[each]) for each in constraint.columns])
        judged = np.where(missing.all(axis=0), SATISFIED, VIOLATED)
        return np.where(missing.any(axis=0), judged, NOT_APPLICABLE).astype(np.uint8)
    if isinstance(constraint, MissingWhere):
        wanted, unknown = missing_where(constraint, values[constraint.of])
        kept = is_missing(values[constraint.column]) == wanted
        return np.where(unknown, NOT_APPLICABLE, np.where(kept, SATISFIED, VIOLATED)).astype(np.uint8)
    kept, unknown = _kept(table, constraint, values)
    null = is_missing(values[constraint.columns[0]])
    return np.where(null | unknown, NOT_APPLICABLE, np.where(kept, SATISFIED, VIOLATED)).astype(np.uint8)


def _kept(
    table: Table, constraint: ValueConstraint | InOrder, values: Mapping[str, pa.ChunkedArray]
) -> tuple[Mask, Mask]:
    """Return whether rows keep a constraint, and where a value that the first column is compared with is missing."""
    column, first = table.column(constraint.columns[0]), values[constraint.columns[0]]
    if isinstance(constraint, Formula):
        result, unknown = _result(table, constraint, values)
        apart = np.abs(reals_of(column, first)[0] - result)
        return apart <= constraint.within + np.abs(result) * RELATIVE_ERROR, unknown
    if isinstance(constraint, InOrder):
        last, unknown = numbers_of(table.column(constraint.last), values[constraint.last])
        return numbers_of(column, first)[0] <= last, unknown
    expected, unknown = expected_numbers(table, constraint, values)
    return numbers_of(column, first)[0] == expected, unknown


def expected_numbers(table: Table, constraint: ValueConstraint, values: Mapping[str, Values]) -> tuple[Numbers, Mask]:
    """Return the numbers that a constraint of values gives to its column, and where it gives none; shapes (rows,)."""
    if isinstance(constraint, Formula):
        column = table.column(constraint.column)
        result, unknown = _result(table, constraint, values)
        if column.type is ColumnType.FLOAT:
            digits = max(0, -math.floor(math.log10(2 * constraint.within)))
            return (np.round(result, digits) if digits < sys.float_info.dig else result), unknown
        low, high = Grid.of(column).extent
        steps = np.clip(np.rint(result * 10.0 ** (column.scale or 0)), -EXACT_FLOAT, EXACT_FLOAT).astype(np.int64)
        return np.minimum(np.maximum(steps, low), high), unknown
    if not isinstance(constraint, PartOfDate):
        return numbers_of(table.column(constraint.of), values[constraint.of])
    numbers, null = numbers_of(table.column(constraint.of), values[constraint.of])
    in_days = table.column(constraint.of).type is ColumnType.DATE
    found = part_of_dates(numbers.astype(np.int64), constraint.part, in_days=in_days)
    return found, null


def computed(table: Table, constraint: ValueConstraint, values: Mapping[str, Values]) -> pa.Array:
    """Return a column with the values that a constraint gives it; NULL, and what it says nothing of, stay."""
    column = table.column(constraint.column)
    found, null = numbers_of(column, values[column.name])
    expected, unknown = expected_numbers(table, constraint, values)
    return Grid.of(column).array(np.where(null | unknown, found, expected), null)


def moved(table: Table, constraint: PartOfDate, values: Mapping[str, Values]) -> pa.Array:
    """Return dates moved by hours, or days, so that a part of each is its number, where there is such a day."""
    column, of = (table.column(name) for name in constraint.columns)
    (wanted, missing), (dates, null) = (numbers_of(each, values[each.name]) for each in (column, of))
    steps = np.where(missing | null, 0, wanted - expected_numbers(table, constraint, values)[0])
    steps = np.where(np.abs(steps) < _LONGEST_MONTH, steps, 0).astype(np.int64)
    unit = MOVED[constraint.part] // (DAY if of.type is ColumnType.DATE else 1)
    low, high = Grid.of(of).extent
    return Grid.of(of).array(np.clip(dates.astype(np.int64) + steps * unit, low, high), null)


def missing_where(constraint: MissingWhere, values: Values) -> tuple[Mask, Mask]:
    """Return where a column has to be NULL by the values of a list, and where these are missing; shapes (rows,)."""
    texts = values.cast(pa.string())
    among = pc.is_in(texts, value_set=pa.array(constraint.values, pa.string()))
    return np.asarray(among.to_numpy(zero_copy_only=False), dtype=bool) == constraint.null, is_missing(texts)


def can_be_part(column: Column, of: Column) -> bool:
    """Return whether a column may be a part of another one: a number without digits after the point, or its date."""
    is_part = column.type.logical.numeric and not column.scale
    return of.type.logical.calendar and (is_part or (column.type is ColumnType.DATE and of.type is not column.type))


def can_be_equal(column: Column, of: Column) -> bool:
    """Return whether values of two columns can be compared: they have one type, with an order."""
    same = (column.type, column.precision, column.scale) == (of.type, of.precision, of.scale)
    return same and column.type.ordered


def rounding_of(column: Column) -> float:
    """Return half of what the values of a column are rounded to, by its type; nearly nothing, of floats."""
    return 10.0 ** -(sys.float_info.dig if column.type is ColumnType.FLOAT else column.scale or 0) / 2


def can_hold(constraint: RowConstraint, columns: Sequence[Column]) -> bool:
    """Return whether a constraint can hold between its columns, by their types."""
    if isinstance(constraint, PartOfDate):
        is_date, of_date = (column.type is ColumnType.DATE for column in columns)
        fits = (constraint.part is DatePart.DATE) == is_date
        return can_be_part(*columns) and fits and not (constraint.part is DatePart.HOUR and of_date)
    if isinstance(constraint, Formula):
        return all(map(can_be_computed, columns))
    if isinstance(constraint, MissingWhere):
        return columns[0].nullable and columns[1].type in LISTS
    return isinstance(constraint, MissingTogether) or can_be_equal(*columns)


def can_be_computed(column: Column) -> bool:
    """Return whether a column is a number that may be part of a formula."""
    return column.type.logical.numeric


def reals_of(column: Column, values: Values) -> tuple[NDArray[np.float64], Mask]:
    """Return numbers as floats with which sums and products neither overflow nor vanish, and where they are missing."""
    numbers, null = numbers_of(column, values)
    found = np.clip(numbers.astype(np.float64) / 10.0 ** (column.scale or 0), -LARGEST_REAL, LARGEST_REAL)
    return np.where(np.abs(found) < 1 / LARGEST_REAL, 0.0, found), null


def _result(table: Table, constraint: Formula, values: Mapping[str, Values]) -> tuple[NDArray[np.float64], Mask]:
    """Return what a formula gives, not rounded, and where a part is missing; shapes (rows,)."""
    parts, missing = zip(*(reals_of(table.column(name), values[name]) for name in constraint.of), strict=True)
    return reduce(np.multiply if constraint.product else np.add, parts), np.logical_or.reduce(missing)


def is_missing(values: Values) -> Mask:
    """Return where values are NULL, or NaN; shape (rows,)."""
    return np.asarray(pc.is_null(values, nan_is_null=True).to_numpy(zero_copy_only=False), dtype=bool)


def numbers_of(column: Column, values: Values) -> tuple[Numbers, Mask]:
    """Return values as numbers of their type, and where they are missing; shapes (rows,)."""
    chunked = values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
    return Grid.of(column).numbers(chunked)


def part_of_dates(points: NDArray[np.int64], part: DatePart, *, in_days: bool) -> NDArray[np.int64]:
    """Return a part of days, or microseconds, since 1970, shape (n,).

    What lies beyond the years 1 to 9999 counts as their end.
    """
    times = np.clip(points, FIRST_DAY, LAST_DAY) * DAY if in_days else points
    times = np.clip(times, FIRST_DAY * DAY, (LAST_DAY + 1) * DAY - 1)
    if part is DatePart.HOUR:
        return np.asarray(times % DAY // (DAY // 24))
    days = times // DAY
    if part is DatePart.DATE:
        return np.asarray(days)
    if part in WEEKDAYS:
        turn, first = WEEKDAYS[part]
        return np.asarray((days + turn) % 7 + first)
    dates = pa.array(days.astype(np.int32)).view(pa.date32())
    found = np.asarray(_KERNELS.get(part, pc.day_of_year)(dates).to_numpy(zero_copy_only=False), np.int64)
    if part not in WEEKS:
        return found
    of_first = WEEKS[part]
    before = 0 if of_first is None else (days - found + 1 + of_first) % 7  # weekday of January 1
    return np.asarray((found - 1 + before) // 7 + 1)


_PARTS = {
    "YEAR": DatePart.YEAR,
    "QUARTER": DatePart.QUARTER,
    "MONTH": DatePart.MONTH,
    "WEEK": DatePart.WEEK,
    "DAY": DatePart.DAY,
    "DOY": DatePart.DAY_OF_YEAR,
    "DAYOFYEAR": DatePart.DAY_OF_YEAR,
    "DOW": DatePart.WEEKDAY_FROM_SUNDAY,
    "ISODOW": DatePart.WEEKDAY_ISO,
    "HOUR": DatePart.HOUR,
}


@lru_cache(maxsize=256)
def declared_constraints(table: Table) -> tuple[RowConstraint, ...]:
    """Return the constraints between attributes of a table that its checks state.

    They are ``a = b``, ``a <= b``, ``a = b + c``, ``a = round(b * c, 2)``, ``a = extract(year from b)``,
    ``(a IS NULL) = (b IS NULL)`` and ``(a IS NOT NULL) = (b = 'x')``, each by itself or joined by AND.
    """
    plain = {column.name: column for column in table.attributes if column.relative is None}
    trees = (parse_check(check.expression) for check in table.checks)
    stated = (
        found for tree in trees if tree is not None for part in _conjuncts(tree) for found in _stated(table, part)
    )
    return tuple(
        dict.fromkeys(
            each
            for each in stated
            if is_well_formed(each)
            and plain.keys() >= set(each.columns)
            and can_hold(each, [plain[name] for name in each.columns])
        )
    )


def _conjuncts(tree: Expr) -> Iterator[Expr]:
    """Yield the parts of a condition that must all hold."""
    from sqlglot import exp

    bare = tree.unnest()
    if isinstance(bare, exp.And):
        yield from _conjuncts(bare.left)
        yield from _conjuncts(bare.right)
    else:
        yield bare


def _stated(table: Table, tree: Expr) -> Iterator[RowConstraint]:
    """Yield the constraint that a condition is, if it is one."""
    from sqlglot import exp

    if not isinstance(tree, exp.EQ | exp.LTE | exp.GTE):
        return
    left, right = tree.left.unnest(), tree.right.unnest()
    if isinstance(tree, exp.EQ):
        tests = [test for side in (left, right) if (test := _null_test(side)) is not None]
        if len(tests) == len((left, right)):
            if len({null for _, null in tests}) == 1:
                yield MissingTogether(tuple(name for name, _ in tests))
            return
        for side, other in ((left, right), (right, left)):
            if test := _null_test(side):
                yield from _missing_where(test[0], other, null=test[1])
            for name in _columns(side):
                yield from _computed(table, name, other)
                return
    elif len(names := [*_columns(left), *_columns(right)]) == len((left, right)):
        first, last = names if isinstance(tree, exp.LTE) else names[::-1]
        yield InOrder(first, last)


def _null_test(tree: Expr) -> tuple[str, bool] | None:
    """Return the column that a condition tests for NULL, and whether it holds there; None of other conditions."""
    from sqlglot import exp

    bare, negated = (_bare(tree.this), True) if isinstance(tree, exp.Not) else (tree, False)
    if not isinstance(bare, exp.Is) or not isinstance(bare.expression, exp.Null):
        return None
    return next(((name, negated == bool(bare.args.get("negate"))) for name in _columns(bare.this)), None)


def _missing_where(column: str, other: Expr, *, null: bool) -> Iterator[MissingWhere]:
    """Yield the constraint that a column is NULL, or is not, where another one has some values."""
    from sqlglot import exp

    if isinstance(other, exp.EQ):
        of, values = other.left, [other.right]
    elif isinstance(other, exp.In):
        of, values = other.this, other.expressions
    else:
        return
    texts = tuple(str(_bare(each).this) for each in values if _bare(each).is_string)
    if texts and len(texts) == len(values):
        for listed in _columns(of):
            yield MissingWhere(column, listed, texts, null)


def _computed(table: Table, name: str, tree: Expr) -> Iterator[RowConstraint]:
    """Yield the constraint that a column is equal to an expression."""
    from sqlglot import exp

    bare = _bare(tree)
    if isinstance(bare, exp.Round):
        bare = _bare(bare.this)
    for other in _columns(bare):
        yield from (SameValue(name, other), PartOfDate(name, other, DatePart.DATE))
    if isinstance(bare, exp.Extract) and str(bare.this).upper() in _PARTS:
        for other in _columns(bare.expression):
            yield PartOfDate(name, other, _PARTS[str(bare.this).upper()])
    if isinstance(bare, exp.Add | exp.Mul):
        parts = [*bare.flatten()]
        names = tuple(other for part in parts for other in _columns(part))
        if len(names) == len(parts) and name in {column.name for column in table.attributes}:
            yield Formula(name, names, isinstance(bare, exp.Mul), rounding_of(table.column(name)))


def _columns(tree: Expr) -> Iterator[str]:
    """Yield the name of a column, of an expression that is one."""
    from sqlglot import exp

    bare = _bare(tree)
    if isinstance(bare, exp.Column):
        yield from columns_of(bare)


def _bare(tree: Expr) -> Expr:
    """Return an expression without brackets and casts around it: PostgreSQL casts numbers where types differ."""
    from sqlglot import exp

    while isinstance(tree, exp.Paren | exp.Cast):
        tree = tree.this
    return tree
