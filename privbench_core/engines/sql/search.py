"""Two ways to search for a value among sorted ones in SQL; which of them a database is asked for is its own choice.

Both compare a value with the same numbers or texts, in the same order, with ``<``: what that finds of NULL and of NaN
is the same. DuckDB and PostgreSQL search fastest through nested CASE expressions. Spark's parser keeps hundreds of
bytes for each way in which expressions can be nested, for as long as the server runs: nested bounds of one view can
take a gigabyte of it, and Spark compiles them for a minute. A list is one text to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from sqlglot import exp

from privbench_core.engines.sql.literals import Expr, number, real, text
from privbench_core.schema.types.base import INT64_MAX

_FEW = 32  # bounds up to which CASE expressions are kept: Spark 4.2 takes 2.1 s for them, 5.3 for lists, 1 million rows
_SEPARATORS = range(0xE000, 0x110000)  # characters that texts rarely have, and that mean themselves in a pattern


@dataclass(frozen=True)
class Kind:
    """Values that are searched for: how one is written as an expression, and the least value above one."""

    write: Callable[[Any], Expr]
    after: Callable[[Any], Any]


NUMBERS = Kind(number, lambda value: value + 1)
REALS = Kind(real, lambda value: float(np.nextafter(value, np.inf)))
TEXTS = Kind(text, lambda value: value + "\0")


class Search:
    """Binary search through nested CASE expressions."""

    def interval(self, value: Expr, bounds: Sequence[Any], cells: Sequence[int], kind: Kind) -> Expr:
        """Return the cell of a value: the first below all bounds, the next from the first bound on, and so on.

        NULL counts as above all bounds.
        """

        def found(low: int, high: int) -> Expr:
            if low == high:
                return number(cells[low])
            middle = (low + high + 1) // 2
            before = exp.LT(this=value.copy(), expression=kind.write(bounds[middle - 1]))
            return either(before, found(low, middle - 1), found(middle, high))

        return found(0, len(bounds))

    def equal(self, value: Expr, keys: Sequence[tuple[Any, int]], other: int, kind: Kind) -> Expr:
        """Return the cell of the one of some sorted keys that a value is equal to, or ``other``."""

        def found(part: Sequence[tuple[Any, int]]) -> Expr:
            if len(part) == 1:
                equal = exp.EQ(this=value.copy(), expression=kind.write(part[0][0]))
                return either(equal, number(part[0][1]), number(other))
            middle = len(part) // 2
            before = exp.LT(this=value.copy(), expression=kind.write(part[middle][0]))
            return either(before, found(part[:middle]), found(part[middle:]))

        return found(keys)

    def numbers(self, listed: Sequence[int]) -> Expr:
        """Return a list of whole numbers."""
        return exp.Array(expressions=[*map(number, listed)])


class ListSearch(Search):
    """Binary search in a list that is written as one text, with Spark's functions for lists."""

    def interval(self, value: Expr, bounds: Sequence[Any], cells: Sequence[int], kind: Kind) -> Expr:
        if len(bounds) <= _FEW:
            return super().interval(value, bounds, cells, kind)
        at, step = exp.column("at"), exp.column("step")
        after = exp.Add(this=at, expression=step)
        bound = _element(_listed(bounds, kind), exp.Sub(this=after.copy(), expression=number(1)))
        before = exp.LT(this=value.copy(), expression=bound)
        next_place = exp.If(this=before, true=at.copy(), false=after)
        search = exp.Lambda(this=next_place, expressions=[exp.to_identifier("at"), exp.to_identifier("step")])
        steps = exp.Array(expressions=[*map(number, _steps(len(bounds)))])
        place = exp.Anonymous(this="aggregate", expressions=[steps, number(0), search])
        if all(one + 1 == other for one, other in pairwise(cells)):
            return exp.Paren(this=exp.Add(this=place, expression=number(cells[0])))
        return _element(self.numbers(cells), place)

    def equal(self, value: Expr, keys: Sequence[tuple[Any, int]], other: int, kind: Kind) -> Expr:
        """See `Search.equal`: a key begins an interval of one value."""
        if len(keys) <= _FEW:
            return super().equal(value, keys, other, kind)
        cells = dict(keys)
        bounds = sorted({bound for key in cells for bound in (key, kind.after(key))})
        return self.interval(value, bounds, [other, *(cells.get(bound, other) for bound in bounds)], kind)

    def numbers(self, listed: Sequence[int]) -> Expr:
        return _listed(listed, NUMBERS)


def either(condition: Expr, yes: Expr, no: Expr) -> Expr:
    """Return a choice as an expression; ``exp.case`` would copy both sides, on each level of a search."""
    return exp.Case(ifs=[exp.If(this=condition, true=yes)], default=no)


def _steps(bounds: int) -> list[int]:
    """Return how far each step of a search goes ahead, if the value is not before the bound there.

    After each of them so many places are left as after the step to the one side or the other: all of them together lead
    to the last place.

    >>> _steps(5), _steps(8)
    ([3, 1, 1], [4, 2, 1, 1])
    """
    found = []
    while bounds:
        found.append((bounds + 1) // 2)
        bounds //= 2
    return found


def _listed(values: Sequence[Any], kind: Kind) -> Expr:
    """Return a list of values as one text that is split, which is done once per statement."""
    if kind is TEXTS:
        used = set().union(*values)
        separator = next(chr(point) for point in _SEPARATORS if chr(point) not in used)
        return _split(separator.join(values), separator)
    if kind is REALS:
        return exp.cast(_split(" ".join(repr(float(value)) for value in values), " "), "array<double>", dialect="spark")
    within = all(-INT64_MAX <= value <= INT64_MAX for value in values)
    kept = "array<bigint>" if within else "array<decimal(38, 0)>"
    return exp.cast(_split(" ".join(str(int(value)) for value in values), " "), kept, dialect="spark")


def _split(joined: str, separator: str) -> Expr:
    return exp.Anonymous(this="split", expressions=[exp.Literal.string(joined), exp.Literal.string(separator)])


def _element(listed: Expr, place: Expr) -> Expr:
    """Return an element of a list, from 0."""
    return exp.Anonymous(this="get", expressions=[listed, place])
