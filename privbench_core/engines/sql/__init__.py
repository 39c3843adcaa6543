"""Views as SQL: written once as expressions, and spelled for each database that runs them.

Here is what they need of a database: values as SQL, how one is searched for, and where databases differ.

There are two ways to search for a value among sorted ones; which of them a database is asked for is its own choice.
Both compare a value with the same numbers or texts, in the same order, with ``<``: what that finds of NULL and of NaN
is the same. DuckDB and PostgreSQL search fastest through nested CASE expressions. Spark's parser keeps hundreds of
bytes for each way in which expressions can be nested, for as long as the server runs: nested bounds of one view can
take a gigabyte of it, and Spark compiles them for a minute. A list is one text to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import sqlglot
from sqlglot import exp

from privbench_core.engines.stored import LoadedRows
from privbench_core.errors import SourceError
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.tables import Table
from privbench_core.schema.types.base import INT64_MAX

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


class Database(Protocol):
    """A database that tables can be made in, for as long as a run takes; nobody else sees them.

    Attributes:
        dialect: Its name in sqlglot.
        zeros: Whether its texts may hold the character 0.
        near: Whether it is in this process: then codes are counted as they come out of it, which takes less time than
            having it group them.
        search: How it finds the code of a value.
        scans: Of a view that take about as long as one that writes its codes down.
    """

    dialect: str
    zeros: bool
    near: bool
    search: Search
    scans: int

    def load(self, table: Table, name: str, *, hashed: bool) -> LoadedRows:
        """Make the table ``name`` of a private table's rows, and return what was seen of them.

        Its column ``n`` is a number for each row; ``c0``, ``c1``… hold the stored values (see `engines.stored`) of the
        table's columns, in spec order. ``hashed`` says whether the rows' fingerprint will be asked for.

        Raises:
            SourceError: The rows cannot be read, or are not of the declared types.
        """
        ...

    def insert(self, name: str, rows: pa.Table) -> None:
        """Make the table ``name`` of these rows."""
        ...

    def replace(self, name: str, query: exp.Query) -> None:
        """Make a table again of what a query of its rows returns."""
        ...

    def drop(self, name: str) -> None:
        """Delete a table."""
        ...

    def create(self, name: str, query: exp.Query, kind: str = "TABLE") -> None:
        """Make a table, or a view, of what a query returns."""
        ...

    def fetch(self, query: exp.Query) -> pa.Table:
        """Return what a query returns."""
        ...

    def batches(self, query: exp.Query, rows: int) -> Iterator[pa.RecordBatch]:
        """Return what a query returns, in parts of about so many rows."""
        ...

    def digest(self, text: exp.Expr) -> exp.Expr:
        """Return the SHA-256 of a text in UTF-8, in a form that is ordered as its bytes are."""
        ...

    def hexadecimal(self, value: exp.Expr) -> exp.Expr:
        """Return the hexadecimal digits of bytes, in lower case."""
        ...

    def close(self) -> None:
        """Delete all that was made, and disconnect."""
        ...


def refuse_unfit(
    database: Database, table: Table, rows: exp.Expr, unfit: Sequence[tuple[Column, Expr]], todo: str
) -> None:
    """Refuse values that are not of the declared types, as reading them does.

    ``unfit`` are columns, and whether some value of each in the table ``rows`` does not fit; ``todo`` says what then.
    """
    if not unfit:
        return
    asked = [exp.alias_(found, f"p{place}") for place, (_, found) in enumerate(unfit)]
    row = database.fetch(exp.select(*asked).from_(rows)).to_pylist()[0]
    problems = [
        f"{table.name}.{column.name}: some values do not fit type {column.logical}{todo}"
        for place, (column, _) in enumerate(unfit)
        if row[f"p{place}"]
    ]
    if problems:
        raise SourceError("\n".join(problems))
