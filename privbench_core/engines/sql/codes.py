"""Discretizers, and constraints between the columns of a row, as SQL: the codes of stored values.

The code of a value is found by binary search. A search compares a value with the first number of each interval, or with
the listed values in the order of their characters; nothing is computed with floating point but what the codec itself
computes, so that a value has the code that `Discretizer.encode` gives it. Where the bounds of whole numbers lie close
together, the code is looked up in a list instead: that takes as long for many codes as for two.

Whether a row keeps a constraint is the twin of `columns.row_constraints`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from functools import reduce

import numpy as np
from sqlglot import exp

from privbench_core.columns.categorical import CategoricalCodec
from privbench_core.columns.codec import Codec
from privbench_core.columns.differences import compared
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.fanout_bins import FanoutCodec
from privbench_core.columns.grid import Grid, in_units
from privbench_core.columns.intervals import OrderedCodec, StepCodec
from privbench_core.columns.lags import part_shared
from privbench_core.columns.opaque import FormCodec, OpaqueCodec
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
from privbench_core.columns.surrogates import SurrogateCodec
from privbench_core.engines.sql import (
    NUMBERS,
    REALS,
    TEXTS,
    Database,
    Expr,
    Kind,
    either,
    is_missing,
    number,
    real,
)
from privbench_core.errors import InternalError
from privbench_core.guards import EXACT_FLOAT, FINEST_CELL, FLOAT_DUST, LEAST_FLOAT
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
from privbench_core.schema.types.times import NO_DISTANCE, CalendarType


def code_of(database: Database, value: Expr, discretizer: Discretizer, labels: Sequence[int] | None = None) -> Expr:
    """Return the code of a stored value, or what ``labels`` have for it, shape (size,), as an expression."""
    binning, codec = discretizer.binning, discretizer.codec
    codes = range(codec.size) if binning is None else binning.code_of
    meant = [int(code if labels is None else labels[code]) for code in codes]
    found = _of_present(database, value, codec, meant)
    if codec.null is None:
        return found
    kind = codec.grid.type if isinstance(codec, OrderedCodec | StepCodec) else getattr(codec, "type", None)
    return exp.case().when(is_missing(value, kind), number(meant[codec.null])).else_(found)


def difference_of(value: Expr, base: Expr, columns: tuple[Column, Column]) -> Expr:
    """Return the difference of two stored numbers in 64 bits, see `columns.differences`; NULL where one of them is.

    ``columns`` are those of the value and of the base.
    """
    of = compared(*columns)
    value, base = (_coarsened(each, one, of) for each, one in zip((value, base), columns, strict=True))
    long = exp.DataType.build("decimal(38, 0)")
    ends = [exp.cast(_clamped(each), long.copy()) for each in (value, base)]
    found = bounded(exp.Paren(this=exp.Sub(this=ends[0], expression=ends[1])), -INT64_MAX, INT64_MAX)
    if isinstance(kind := of.logical, CalendarType):
        known = exp.Not(this=exp.Is(this=base.copy(), expression=exp.Null()))
        endless = exp.and_(exp.GTE(this=value.copy(), expression=number(kind.endless)), known)
        itself = exp.Add(this=bounded(value, 0, INT64_MAX - NO_DISTANCE), expression=number(NO_DISTANCE))
        found = exp.Paren(this=exp.case().when(endless, itself).else_(found))
    return found


def _coarsened(value: Expr, column: Column, to: Column) -> Expr:
    """Return a stored number as the type of another column counts, see `columns.lags`."""
    part = part_shared(column.type, to.type)
    return value if part is None else _part(value, part, column.type is ColumnType.DATE)


def _of_present(database: Database, value: Expr, codec: Codec, meant: Sequence[int]) -> Expr:
    """Return the number that is meant by the cell of a value that is not NULL."""
    if isinstance(codec, OrderedCodec):
        return _interval(database, value, codec, meant)
    if isinstance(codec, CategoricalCodec):
        return listed_value(database, value, codec, meant)
    if isinstance(codec, FanoutCodec):
        return _search(database, value, codec.starts[1:].tolist(), meant, NUMBERS)
    if isinstance(codec, SurrogateCodec):
        return number(meant[0])
    if isinstance(codec, OpaqueCodec):
        lengths = codec.lengths
        length: Expr = exp.Length(this=value.copy())
        if codec.binary:
            length = exp.Anonymous(this="octet_length", expressions=[value.copy()])
        cells = [*meant[: lengths.ordered], meant[0], meant[codec.outside[0]]]
        return _interval(database, length, lengths, cells)
    if isinstance(codec, FormCodec):
        return _form(value, codec, meant)
    if isinstance(codec, StepCodec):
        found = exp.case()
        for place in range(len(codec.units) - 1, 0, -1):
            found = found.when(_is_multiple(value, codec.units[place], codec.grid), number(meant[place]))
        return found.else_(number(meant[0]))
    raise InternalError(f"{type(codec).__name__}: a codec without a form in SQL")


def _form(value: Expr, codec: FormCodec, meant: Sequence[int]) -> Expr:
    """Return the number that is meant by what a text is made of."""
    digits, nothing = exp.Literal.string("0123456789"), exp.Literal.string("")
    rest = exp.Anonymous(this="translate", expressions=[value.copy(), digits, nothing])
    found = exp.case()
    for place, expected in enumerate(codec.rests, 1):
        found = found.when(exp.EQ(this=rest.copy(), expression=exp.Literal.string(expected)), number(meant[place]))
    return found.else_(number(meant[0]))


def _is_multiple(value: Expr, unit: float, grid: Grid) -> Expr:
    """Return the condition that a value is a multiple of a unit; of floats see `columns.grid.is_multiple`."""
    if not grid.continuous:
        rest = exp.Mod(this=exp.Paren(this=_clamped(value)), expression=number(unit))
        return exp.EQ(this=rest, expression=number(0))
    bounded = exp.Greatest(this=exp.Abs(this=value.copy()), expressions=[real(LEAST_FLOAT)])
    size = exp.Least(this=bounded, expressions=[real(1 / LEAST_FLOAT)])
    narrow = exp.cast(exp.cast(size.copy(), exp.DataType.Type.FLOAT), exp.DataType.Type.DOUBLE)
    factor, divisor = in_units(unit)
    counted = exp.Div(this=exp.Mul(this=size.copy(), expression=real(factor)), expression=real(divisor), typed=False)
    steps = exp.Least(this=counted, expressions=[real(EXACT_FLOAT)])
    whole = exp.Floor(this=exp.Add(this=steps.copy(), expression=real(0.5)))
    off = exp.Abs(this=exp.Sub(this=steps.copy(), expression=whole))
    digits = exp.case().when(exp.EQ(this=narrow, expression=size), real(FINEST_CELL)).else_(real(FLOAT_DUST))
    most = exp.Greatest(this=steps, expressions=[real(1.0)])
    return exp.LTE(this=off, expression=exp.Mul(this=digits, expression=most))


def _interval(database: Database, value: Expr, codec: OrderedCodec, meant: Sequence[int]) -> Expr:
    """Return what is meant by the interval that holds a value, or by the cells below and above all of them."""
    grid, inside = codec.grid, [*meant[: codec.ordered]]
    cells = [meant[codec.below], *inside, meant[codec.above]]
    if grid.continuous:
        bounds = [*codec.starts.tolist(), float(np.nextafter(codec.last, np.inf))]
        return _search(database, value, bounds, cells, REALS)
    steps = [*map(int, codec.starts.tolist()), int(codec.last) + 1]
    if grid.spacing is not None:
        return _search(database, _in_spacings(value, grid), [_first_rounded_to(step) for step in steps], cells, REALS)
    points = [step * grid.step + grid.origin for step in steps]
    # Numbers beyond 64 bits count as the largest, or smallest, of these: no bound lies behind them.
    never = bisect_left(points, INT64_MAX + 1)
    always = bisect_left(points, -INT64_MAX)
    return _search(database, value, points[always:never], cells[always : never + 1], NUMBERS)


def _in_spacings(value: Expr, grid: Grid) -> Expr:
    """Return how many spacings a float lies above the start of its grid, not rounded."""
    spacing = grid.spacing or 1.0
    most = min(4.0 * EXACT_FLOAT * spacing, 1e307)  # beyond all steps; twice it is still a float
    bounded = exp.Least(this=exp.Greatest(this=value.copy(), expressions=[real(-most)]), expressions=[real(most)])
    return exp.Paren(
        this=exp.Div(
            this=exp.Paren(this=exp.Sub(this=bounded, expression=real(grid.start))),
            expression=real(spacing),
            typed=False,
            safe=False,
        )
    )


def _first_rounded_to(step: int) -> float:
    """Return the smallest float that rounds to ``step`` or above it, halves to even."""
    if abs(step) > EXACT_FLOAT // 2:  # beyond, floats have no halves
        return float(step)
    half = step - 0.5
    return half if step % 2 == 0 else float(np.nextafter(half, np.inf))


def listed_value(database: Database, value: Expr, codec: CategoricalCodec, meant: Sequence[int]) -> Expr:
    """Return the number that is meant by a value of a list, or by all others; of two values, there are no others."""
    if codec.type.logical.fixed_values:
        return exp.case().when(value.copy(), number(meant[1])).else_(number(meant[0]))
    other = meant[len(codec.values)]
    kind = REALS if codec.type is ColumnType.FLOAT else NUMBERS if codec.type.ordered else TEXTS
    if kind is NUMBERS:
        cells = {int(key): meant[place] for place, key in enumerate(codec.values)}
        points = sorted({point for key in cells for point in (key, key + 1)})
        if _in_a_list(points):
            return _looked_up(database, value, points, [other, *(cells.get(point, other) for point in points)])
    keys = [(key, meant[place]) for place, key in enumerate(codec.values)]
    listed = sorted(pair for pair in keys if database.zeros or "\0" not in str(pair[0]))
    return database.search.equal(value, listed, other, kind) if listed else number(other)


def _search(database: Database, value: Expr, bounds: Sequence[float], cells: Sequence[int], kind: Kind) -> Expr:
    """Return the cell of a value, see `Search.interval`."""
    kept = [place for place in range(len(bounds)) if cells[place] != cells[place + 1]]
    firsts, after = [bounds[place] for place in kept], [cells[0], *(cells[place + 1] for place in kept)]
    if kind is NUMBERS and _in_a_list(firsts):
        return _looked_up(database, value, [*map(int, firsts)], after)
    return database.search.interval(value, firsts, after, kind)


def _in_a_list(firsts: Sequence[float]) -> bool:
    """Return whether whole numbers with these bounds are to be looked up in a list.

    Looking up is faster from four bounds on (measured with DuckDB, 12 million rows). Lists of more numbers than the
    days of ten years would make long statements, but so would a search among a quarter as many bounds.
    """
    few = 3
    return len(firsts) > few and firsts[-1] - firsts[0] < max(1 << 12, 4 * len(firsts))


def _looked_up(database: Database, value: Expr, firsts: Sequence[int], cells: Sequence[int]) -> Expr:
    """Return the same for whole numbers, from a list of the cells of all numbers from the first to the last bound.

    Its elements are numbered from 1, as DuckDB and PostgreSQL do: sqlglot takes long to count in another way. Where
    most of them count up, no list is needed there: with DuckDB that takes a fifth of the time.
    """
    least, most = firsts[0] - 1, firsts[-1]
    listed = [cells[bisect_right(firsts, point)] for point in range(least, most + 1)]
    place = exp.Sub(this=bounded(value, least, most), expression=number(least - 1))
    found = exp.Bracket(this=database.search.numbers(listed), expressions=[place], offset=1)
    first, last = _longest_count(listed)
    if 2 * (last - first) < len(listed):
        return found
    inside = exp.Between(this=value.copy(), low=number(least + first), high=number(least + last))
    counted = exp.Sub(
        this=exp.cast(value.copy(), exp.DataType.Type.BIGINT), expression=number(least + first - listed[first])
    )
    return either(inside, exp.Paren(this=counted), found)


def _longest_count(listed: Sequence[int]) -> tuple[int, int]:
    """Return where the longest part of a list begins and ends in which each number is the one before and one."""
    breaks = np.flatnonzero(np.diff(listed) != 1) + 1
    firsts, ends = np.append(0, breaks), np.append(breaks, len(listed))
    longest = int(np.argmax(ends - firsts))
    return int(firsts[longest]), int(ends[longest]) - 1


def _clamped(value: Expr) -> Expr:
    """Return a number, or NULL, as one of 64 bits."""
    return bounded(value, -INT64_MAX - 1, INT64_MAX)


def bounded(value: Expr, least: int, most: int) -> Expr:
    """Return a number, or the nearest one between two of 64 bits; NULL stays.

    Measured with DuckDB, 12 million rows: LEAST and GREATEST take three times longer.
    """
    found = exp.case().when(exp.LT(this=value.copy(), expression=number(least)), number(least))
    found = found.when(exp.GT(this=value.copy(), expression=number(most)), number(most))
    return exp.Paren(this=found.else_(exp.cast(value.copy(), exp.DataType.Type.BIGINT)))


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
