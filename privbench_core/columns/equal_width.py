"""Codecs of ordered columns: cells are adjacent intervals, plus one below, one above and one for NULL.

`EqualWidthCodec` cuts a range, declared or learned and paid for, into equal cells.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.columns.grid import Grid, Numbers
from privbench_core.errors import InternalError, SourceError, SpecError
from privbench_core.schema.columns import Column, Scalar

DEFAULT_CELLS = 256
"""Cells of a range that declares none, unless it holds fewer values."""

MAX_CELLS = 4096
"""Cells that may be declared: merging them by noisy counts stays quick, and a model never sees more than it keeps."""

_EXACT = 1 << 52


@dataclass(frozen=True)
class OrderedCodec(ABC):
    """What codecs of ordered columns share; subclasses say where the cells start.

    Attributes:
        grid: The column's number line.
        nullable: Whether the column has a cell for NULL.
    """

    grid: Grid
    nullable: bool

    @property
    @abstractmethod
    def starts(self) -> Numbers:
        """First number of each interval cell, ascending, shape (ordered,)."""

    @property
    @abstractmethod
    def last(self) -> int | float:
        """Last number of the last interval cell."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able description."""

    @property
    def open_ended(self) -> bool:
        """Whether the ends are estimates, at which values must not pile up, rather than bounds of the domain."""
        return False

    @property
    def ordered(self) -> int:
        """Number of interval cells."""
        return len(self.starts)

    @property
    def below(self) -> int:
        """The cell of values below the first interval."""
        return self.ordered

    @property
    def above(self) -> int:
        """The cell of values above the last interval."""
        return self.ordered + 1

    @property
    def outside(self) -> tuple[int, ...]:
        """Below and above."""
        return (self.below, self.above)

    @property
    def null(self) -> int | None:
        """The last cell, if the column is nullable."""
        return self.ordered + 2 if self.nullable else None

    @property
    def size(self) -> int:
        """Interval cells, below, above, and NULL if there is one."""
        return self.ordered + 2 + self.nullable

    @cached_property
    def ends(self) -> Numbers:
        """Last number of each interval cell, shape (ordered,)."""
        starts = self.starts
        before = np.nextafter(starts[1:], -np.inf) if self.grid.continuous else starts[1:] - 1
        return np.append(before, np.array([self.last], starts.dtype))

    @cached_property
    def widths(self) -> NDArray[np.float64]:
        """Width of each interval cell, in values where these can be counted; shape (ordered,)."""
        starts = self.starts.astype(np.float64)
        return np.diff(starts, append=float(self.last) + (0.0 if self.grid.continuous else 1.0))

    def encode(self, values: pa.ChunkedArray) -> Codes:
        """Return the cells of ``values``, shape (n,).

        Raises:
            SourceError: Values of the wrong type, or NULL (or NaN) in a column that has none.
        """
        numbers, null = self.grid.numbers(values)
        cells = self._locate(numbers)
        cells[numbers < self.starts[0]] = self.below
        cells[numbers > self.last] = self.above
        return with_nulls(cells, null, self.null, self.grid.where)

    def decode(self, cells: Codes, rng: np.random.Generator) -> pa.Array:
        """Values drawn uniformly from the grid points of each cell; below and above give the ends of the range.

        Where the range is open-ended, they give values of the first and the last cell.
        """
        inside = np.arange(self.size, dtype=np.int32)
        inside[self.ordered :] = 0
        inside[self.above] = self.ordered - 1
        some = cells >= self.ordered
        outside = bool(some.any())
        numbers = self._draw(inside[cells] if outside else cells, rng)
        if outside and not self.open_ended:
            numbers[cells == self.below] = self.starts[0]
            numbers[cells == self.above] = self.last
        return self.grid.array(numbers, cells == self.null if self.nullable else None)

    def edges(self, cell: int) -> tuple[Scalar, Scalar]:
        """Smallest and largest value of a cell, as `Range` takes them; below and above give an end of the range."""
        if not 0 <= cell <= self.above:
            raise InternalError(f"{self.grid.where}: cell {cell} has no edges; there are {self.ordered} interval cells")
        if cell >= self.ordered:
            end = self.grid.scalar(self.starts[0] if cell == self.below else self.last)
            return end, end
        return self.grid.scalar(self.starts[cell]), self.grid.scalar(self.ends[cell])

    def labels(self) -> list[str]:
        """Return a short text per cell: the value, or first and last value."""
        pairs = [self.edges(cell) for cell in range(self.ordered)]
        names = [_label(low, high) for low, high in pairs]
        return [*names, f"< {pairs[0][0]}", f"> {pairs[-1][1]}", *(["NULL"] if self.nullable else [])]

    def _locate(self, numbers: Numbers) -> Codes:
        """Return the interval cell of each number; anything for numbers outside."""
        return (np.searchsorted(self.starts, numbers, side="right") - 1).astype(np.int32)

    def _draw(self, cells: Codes, rng: np.random.Generator) -> Numbers:
        first = self.starts[cells]
        if self.grid.continuous:
            final = self.ends[cells]
            part = rng.random(len(cells))
            # Two products and no difference: the width of a cell may be more than a float holds.
            return np.clip(first * (1 - part) + final * part, first, final)
        # Unsigned arithmetic wraps around, which makes it exact even for cells wider than the signed range.
        width = (self.ends - self.starts).view(np.uint64)
        if not width.any() or not (width > 0)[cells].any():
            return first
        part = rng.random(len(cells))
        part *= (width.astype(np.float64) + 1)[cells]
        if width.max() < _EXACT:  # then no product is rounded up to the next whole number
            first += part.astype(np.int64)
            return first
        return first + np.minimum(part.astype(np.uint64), width[cells]).view(np.int64)


@dataclass(frozen=True)
class EqualWidthCodec(OrderedCodec):
    """A range in equal cells, and zero in a cell of its own; made by `equal_width_codec`.

    Columns of amounts are often zero for most rows (no capital gain, no discount). Were zero one value among the
    hundreds of a wide cell, decoding would lose it; so in numeric columns it is always apart. This is a public rule:
    it asks no row.

    Attributes:
        low: Number of the smallest value of the domain.
        high: Number of the largest value of the domain.
        cells: Number of equal cells, at most the number of grid points in the range; zero may add two.
    """

    low: int | float
    high: int | float
    cells: int

    @cached_property
    def starts(self) -> Numbers:
        """First number of each interval cell. Widths on a whole-number grid differ by at most one, but for zero's."""
        equal = self._equal_starts
        if not self._zero_apart:
            return equal
        after = np.nextafter(0.0, 1.0) if self.grid.continuous else 1
        starts = np.unique(np.concatenate([equal, np.array([0, after], equal.dtype)]))
        return starts[starts <= self.high]

    @cached_property
    def _equal_starts(self) -> Numbers:
        if self.grid.continuous:
            return _float_starts(float(self.low), float(self.high), self.cells)
        points = int(self.high) - int(self.low) + 1
        return np.array([int(self.low) + i * points // self.cells for i in range(self.cells)], np.int64)

    @property
    def _zero_apart(self) -> bool:
        """Whether zero is a value of the range that equal cells would mix with others."""
        dates = self.grid.logical.calendar
        one_each = not self.grid.continuous and self.cells == int(self.high) - int(self.low) + 1
        return not dates and not one_each and self.low <= 0 <= self.high

    @property
    def last(self) -> int | float:
        """The upper end of the range."""
        return self.high

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able description."""
        ends = {"low": self.low, "high": self.high, "cells": self.cells}
        return {"codec": "interval", **self.grid.to_dict(), "nullable": self.nullable, **ends}

    @classmethod
    def from_dict(cls, description: dict[str, Any]) -> EqualWidthCodec:
        """Return the codec of a description: the inverse of `to_dict`."""
        ends = (description["low"], description["high"], description["cells"])
        return cls(Grid.from_dict(description), description["nullable"], *ends)

    def _locate(self, numbers: Numbers) -> Codes:
        if self.grid.continuous or self._zero_apart:
            return super()._locate(numbers)
        # Unsigned, because the difference may not fit the signed range; numbers outside are set by the caller.
        offset = (numbers - np.int64(self.low)).view(np.uint64)
        points = int(self.high) - int(self.low) + 1
        if self.cells == points:
            return offset.astype(np.int32)
        # A guess that is off by one at most, then put right: three times as fast as a search.
        guess = np.minimum(offset * (self.cells / points), self.cells - 1).astype(np.int32)
        guess -= numbers < self.starts[guess]
        guess += numbers > self.ends[guess]
        return np.asarray(guess, np.int32)


def equal_width_codec(
    column: Column, low: Scalar, high: Scalar, cells: int | None = None, *, step: Scalar | None = None, table: str = ""
) -> EqualWidthCodec:
    """Return the codec of an ordered column with the range [low, high].

    Args:
        column: Its type, precision, scale and nullability matter; its domain does not.
        low: Smallest value of the domain.
        high: Largest value of the domain.
        cells: Number of cells; `DEFAULT_CELLS` if None. Never more than there are values in the range.
        step: What the values are apart, counted from ``low``; those between are rounded down.
        table: For messages.

    Raises:
        SpecError: ``low`` or ``high`` is not a value of the column, low > high, cells < 1 or above `MAX_CELLS`, or
            ``step`` is no step of its type.
    """
    grid = Grid.of(column, table)
    if step is not None:
        grid = grid.stepped(low, step)
    first, final = grid.number(low), grid.number(high)
    wanted = DEFAULT_CELLS if cells is None else cells
    if first > final:
        raise SpecError(f"{grid.where}: the domain begins at {low!r}, after its end {high!r}; swap them")
    if not 1 <= wanted <= MAX_CELLS:
        raise SpecError(f"{grid.where}: {wanted:,} cells; declare 1 to {MAX_CELLS:,}")
    if grid.continuous:
        while wanted > 1 and not _strictly_ascending(_float_starts(first, final, wanted), final):
            wanted //= 2
    else:
        wanted = min(wanted, int(final) - int(first) + 1)
    return EqualWidthCodec(grid, column.nullable, first, final, wanted)


def with_nulls(cells: Codes, null: NDArray[np.bool_], code: int | None, where: str) -> Codes:
    """``cells`` with the code of NULL where ``null`` says so, in place; SourceError if there is none but should be."""
    if code is not None:
        cells[null] = code
    elif null.any():
        raise SourceError(
            f"{where}: found NULL (or NaN) in a column declared without; declare nullable: true or fix the source",
            private_detail=f"{where}: {int(null.sum()):,} of {len(null):,} values are NULL or NaN",
        )
    return cells


def _float_starts(low: float, high: float, cells: int) -> NDArray[np.float64]:
    part = np.arange(cells) / cells
    return low * (1 - part) + high * part


def _strictly_ascending(starts: NDArray[np.float64], last: float) -> bool:
    return bool((np.diff(starts) > 0).all()) and starts[-1] <= last


def _label(low: Scalar, high: Scalar) -> str:
    if isinstance(low, float) and isinstance(high, float):
        return f"{low:.6g} to {high:.6g}"
    return str(low) if low == high else f"{low} to {high}"
