"""Discretizers as SQL: the code of a stored value, by binary search (`engines.sql.search`).

A search compares a value with the first number of each interval, or with the listed values in the order of their
characters; nothing is computed with floating point but what the codec itself computes, so that a value has the code
that `Discretizer.encode` gives it. Where the bounds of whole numbers lie close together, the code is looked up in a
list instead: that takes as long for many codes as for two.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np
from sqlglot import exp

from privbench_core.columns.categorical import CategoricalCodec
from privbench_core.columns.codec import Codec
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.fanout_bins import FanoutCodec
from privbench_core.columns.grid import Grid, in_units
from privbench_core.columns.intervals import OrderedCodec, StepCodec
from privbench_core.columns.opaque import OpaqueCodec
from privbench_core.columns.surrogates import SurrogateCodec
from privbench_core.engines.sql.database import Database
from privbench_core.engines.sql.literals import Expr, is_missing, number, real
from privbench_core.engines.sql.search import NUMBERS, REALS, TEXTS, Kind, either
from privbench_core.errors import InternalError
from privbench_core.guards import EXACT_FLOAT, FINEST_CELL, FLOAT_DUST, LEAST_FLOAT
from privbench_core.schema.columns import ColumnType
from privbench_core.schema.types.base import INT64_MAX

_HALVES = 2**52  # beyond, floats have no halves
_LISTED = 1 << 12  # numbers in a list: more than the days of ten years; longer ones would make long statements
_PER_BOUND = 4  # numbers in a longer list for each bound: a search would make a statement as long
_SEARCHED = 3  # bounds from which on looking up is faster; measured with DuckDB, 12 million rows
_LARGEST = 1e307  # a float whose sum with another one of its size is still one


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


def difference_of(value: Expr, base: Expr) -> Expr:
    """Return the difference of two stored numbers in 64 bits, see `columns.differences`; NULL where one of them is."""
    long = exp.DataType.build("decimal(38, 0)")
    ends = [exp.cast(_clamped(each), long.copy()) for each in (value, base)]
    return bounded(exp.Paren(this=exp.Sub(this=ends[0], expression=ends[1])), -INT64_MAX, INT64_MAX)


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
    if isinstance(codec, StepCodec):
        found = exp.case()
        for place in range(len(codec.units) - 1, 0, -1):
            found = found.when(_is_multiple(value, codec.units[place], codec.grid), number(meant[place]))
        return found.else_(number(meant[0]))
    raise InternalError(f"{type(codec).__name__}: a codec without a form in SQL")


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
    most = min(4.0 * EXACT_FLOAT * spacing, _LARGEST)  # beyond all steps, and nothing overflows
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
    if abs(step) > _HALVES:
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
    """Return whether whole numbers with these bounds are to be looked up in a list."""
    return len(firsts) > _SEARCHED and firsts[-1] - firsts[0] < max(_LISTED, _PER_BOUND * len(firsts))


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
