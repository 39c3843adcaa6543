"""Codecs of ordered columns: cells are adjacent intervals, plus one below, one above and one for NULL.

The cells of a declared range are equally wide, those of a learned one follow the rows; what released counts have shown
to hold many rows is cut further. The grid on which ranges are learned covers all that a type can hold; steps
are learned by the coarsest of some units that a value is a multiple of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.columns.codec import Codec, Codes
from privbench_core.columns.grid import Grid, Numbers, day_of, is_multiple, sentinels_of, written_day
from privbench_core.errors import InternalError, SpecError
from privbench_core.guards import EXACT_FLOAT, FINEST_CELL, TINY
from privbench_core.schema.columns import Column, ColumnType, Scalar
from privbench_core.tuning import TUNING


@dataclass(frozen=True)
class OrderedCodec(Codec):
    """Interval cells that begin at given numbers.

    Attributes:
        grid: The column's number line.
        nullable: Whether the column has a cell for NULL.
        cuts: First number of each cell, ascending.
        last: Last number of the last cell.
        open_ended: Whether the ends are estimates, at which values must not pile up, rather than bounds of the domain.
        beyond: How far values outside of open ends lie beyond the first and the last number on average; 0 where they
            are taken to lie in the first and the last cell.
        dates: Whether the numbers are dates, as 20201231: no other ones are drawn.
        sentinel: The grid point of the type that all values above the range stand for, as 9999-12-31; None for none.
    """

    grid: Grid
    nullable: bool
    cuts: tuple[int | float, ...]
    last: int | float
    open_ended: bool = False
    beyond: tuple[float, float] = (0.0, 0.0)
    dates: bool = False
    sentinel: int | None = None
    in_order: ClassVar[bool] = True

    @cached_property
    def starts(self) -> Numbers:
        """First number of each interval cell, ascending, shape (ordered,)."""
        return np.array(self.cuts, np.float64) if self.grid.continuous else np.array(self.cuts, np.int64)

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

    @cached_property
    def values_in(self) -> NDArray[np.float64]:
        """How many values each interval cell holds, as far as it may be cut, shape (ordered,).

        Grid points; for floats the number of finest cells, at least 1.
        """
        if self.grid.continuous:
            return np.maximum(np.floor((self.ends - self.starts) / self._largest / FINEST_CELL), 1.0)
        return (self.ends - self.starts).view(np.uint64).astype(np.float64) + 1

    @property
    def proper(self) -> int:
        return len(self.cuts)

    @property
    def distinct(self) -> float:
        return np.inf if self.grid.continuous else float(self.values_in.sum())

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
        return (self.below, self.above)

    def encode(self, values: pa.ChunkedArray) -> Codes:
        numbers, null = self.grid.numbers(values)
        if self._one_each:  # unsigned, because a difference may not fit the signed range
            cells = (numbers - self.starts[0]).view(np.uint64).astype(np.int32)
        else:
            cells = (np.searchsorted(self.starts, numbers, side="right") - 1).astype(np.int32)
        cells[numbers < self.starts[0]] = self.below
        cells[numbers > self.last] = self.above
        return self.with_nulls(cells, null, self.grid.where)

    def decode(self, cells: Codes, rng: np.random.Generator) -> pa.Array:
        """Return values drawn uniformly from the grid points of each cell; below and above give the ends of the range.

        Where the range is open-ended, they give values of the first and the last cell, or beyond them.
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
        elif outside:
            self._spread(numbers, cells, rng)
        if self.dates:
            self._to_dates(numbers, inside[cells], rng)
        drawn = self.grid.array(numbers, cells == self.null if self.nullable else None)
        if self.sentinel is None or not outside:
            return drawn
        beyond = replace(self.grid, step=1, origin=0).array(np.full(1, self.sentinel))
        return pc.if_else(pa.array(cells == self.above), beyond[0], drawn)

    def cut(self, parts: Mapping[int, int]) -> OrderedCodec:
        """Return the codec with some cells cut: interval cell -> number of equal parts, at most `values_in` it."""
        cuts = (start for cell in range(self.ordered) for start in self.starts_of_parts(cell, parts.get(cell, 1)))
        return replace(self, cuts=tuple(cuts))

    def joined(self, kept: NDArray[np.int64]) -> OrderedCodec:
        """Return the codec with only the ``kept`` cells beginning a cell; the others join the cell before them."""
        return replace(self, cuts=tuple(self.cuts[cell] for cell in kept.tolist()))

    def starts_of_parts(self, cell: int, parts: int) -> list[int] | list[float]:
        """Return the first number of each of so many equal parts of a cell."""
        first, final = self.starts[cell].item(), self.ends[cell].item()
        if self.grid.continuous:
            inside = (first * (1 - i / parts) + final * (i / parts) for i in range(parts))
            return sorted({min(max(number, first), final) for number in inside})  # rounding may make some the same
        return [first + i * (final - first + 1) // parts for i in range(parts)]

    def edges(self, cell: int) -> tuple[Scalar, Scalar]:
        """Return the smallest and largest value of an interval cell, as `Range` takes them."""
        return self.grid.scalar(self.starts[cell]), self.grid.scalar(self.ends[cell])

    def value_labels(self) -> list[str]:
        pairs = [self.edges(cell) for cell in range(self.ordered)]
        if self.grid.logical.continuous:
            names = [f"{low:.6g} to {high:.6g}" for low, high in pairs]
        else:
            names = [str(low) if low == high else f"{low} to {high}" for low, high in pairs]
        beyond = f"> {pairs[-1][1]}" if self.sentinel is None else "no end"
        return [*names, f"< {pairs[0][0]}", beyond]

    def with_tails(self, rows: NDArray[np.float64]) -> OrderedCodec:
        """Return the codec whose open ends go on as an exponential tail, as dense at its end as the cell there.

        Args:
            rows: Of each cell, shape (size,).
        """
        if not self.open_ended:
            return self
        most, ends = float(self.last) - float(self.cuts[0]), ((0, self.below), (self.ordered - 1, self.above))
        if self.sentinel is not None:
            rows = np.where(np.arange(self.size) == self.above, 0.0, rows)
        parts = ((float(rows[outside] * self.widths[cell]), float(rows[cell])) for cell, outside in ends)
        means = [min(spread, most * there) / there if there > TINY else most * (spread > 0) for spread, there in parts]
        return replace(self, beyond=(means[0], means[1]))

    def _to_dates(self, numbers: Numbers, cells: Codes, rng: np.random.Generator) -> None:
        """Draw a day of its cell for each number that is no date; the day before it where the cell has none."""
        wrong = np.flatnonzero(numbers != written_day(day_of(numbers)))
        first, last = day_of(self.starts[cells[wrong]] - 1) + 1, day_of(self.ends[cells[wrong]])
        days = first + (rng.random(len(wrong)) * np.maximum(last - first + 1, 0)).astype(np.int64)
        numbers[wrong] = written_day(np.minimum(days, last))

    def _spread(self, numbers: Numbers, cells: Codes, rng: np.random.Generator) -> None:
        """Move values outside beyond the ends: as far again at most, and none below zero if the range is above it."""
        for sign, outside, mean, most, end in self._tails():
            which = np.flatnonzero(cells == outside)
            far = -mean * np.log1p(rng.random(len(which)) * np.expm1(-most / mean))
            numbers[which] = end + sign * (far if self.grid.continuous else far.astype(np.int64) + 1)

    def _tails(self) -> Iterator[tuple[int, int, float, float, int | float]]:
        """Yield the sign, cell, mean and largest distance, and end of the range of each side with values beyond it."""
        first, final, one = self.cuts[0], self.last, 0 if self.grid.continuous else 1
        low, high = self.grid.reach
        low = max(low, 0) if first >= 0 and not self.grid.logical.calendar else low
        rooms = first - low, high - final
        sides = zip((-1, 1), self.outside, self.beyond, rooms, (first, final), strict=True)
        for sign, outside, mean, room, end in sides:
            if mean > 0 and room > one and (sign < 0 or self.sentinel is None):
                yield sign, outside, mean, min(float(final) - float(first), float(min(room, EXACT_FLOAT)) - one), end

    def densities(self, numbers: Numbers) -> tuple[Codes, NDArray[np.float64]]:
        """Return the cell of each number, and how likely `decode` draws it there, 0 where it never does; same shape."""
        cells = np.searchsorted(self.starts, numbers, side="right") - 1
        above, cells[cells < 0] = numbers > self.last, self.below
        cells[above] = self.above
        found = np.append(1 / self.widths, [0.0, 0.0])[cells]
        for sign, outside, mean, most, end in self._tails() if self.open_ended else ():
            which = cells == outside
            far = sign * (numbers[which] - end).astype(np.float64)
            found[which] = np.where(far <= most, np.exp(-far / mean) / (-mean * np.expm1(-most / mean)), 0.0)
        return cells, found

    def _draw(self, cells: Codes, rng: np.random.Generator) -> Numbers:
        first = self.starts[cells]
        if self.grid.continuous:
            final = self.ends[cells]
            part = rng.random(len(cells))
            # Two products and no difference: the width of a cell may be more than a float holds.
            drawn = np.clip(first * (1 - part) + final * part, first, final)
            points = self._points[cells]
            return np.where(np.isnan(points), drawn, points)
        # Unsigned arithmetic wraps around, which makes it exact even for cells wider than the signed range.
        width = (self.ends - self.starts).view(np.uint64)
        if not width.any() or not (width > 0)[cells].any():
            return first
        part = rng.random(len(cells))
        part *= (width.astype(np.float64) + 1)[cells]
        if width.max() < EXACT_FLOAT / 2:  # then no product is rounded up to the next whole number
            first += part.astype(np.int64)
            return first
        return first + np.minimum(part.astype(np.uint64), width[cells]).view(np.int64)

    @cached_property
    def _one_each(self) -> bool:
        """Whether each cell is one whole number."""
        return not self.grid.continuous and int(self.last) - int(self.cuts[0]) + 1 == self.ordered

    @cached_property
    def _largest(self) -> NDArray[np.float64]:
        """The largest number in each cell of floats; all numbers of a cell have one sign, as zero has its own."""
        largest = np.maximum(np.abs(self.starts), np.abs(self.ends))
        return np.asarray(np.where(largest > 0, largest, 1.0), np.float64)

    @cached_property
    def _points(self) -> NDArray[np.float64]:
        """The value that a narrow cell of floats stands for, NaN for wider cells, shape (ordered,).

        A cell that was cut this often is narrow because many rows share a value in it, and no count tells which of
        the floats between its ends it is; people write round ones.
        """
        narrow = self.ends - self.starts < 16 * FINEST_CELL * np.minimum(self._largest, self.last - self.cuts[0])
        pairs = zip(self.starts.tolist(), self.ends.tolist(), narrow.tolist(), strict=True)
        return np.array([roundest(first, final) if point else np.nan for first, final, point in pairs])


@dataclass(frozen=True)
class StepCodec(Codec):
    """Values by the coarsest unit that divides them; not to draw values from.

    Attributes:
        grid: The column's number line.
        nullable: Whether the column has a cell for NULL.
        units: Of each class, ascending; each divides the next. Grid points, of which the first unit is 1; of floats
            decimals, after 0 for what is no multiple of any.
    """

    grid: Grid
    nullable: bool
    units: tuple[float, ...]

    @classmethod
    def of(cls, column: Column, *, table: str = "") -> StepCodec | None:
        """Return the classes of a column, None for a type whose steps are not learned.

        Integers and decimals: 1, 5, 10, 50, … of the last digit. Floats: the same from a millionth to 5,000. Times, and
        differences between times: units of the calendar, in microseconds.
        """
        times = {ColumnType.TIMESTAMP, ColumnType.TIMESTAMPTZ, *([ColumnType.INTERVAL] if column.relative else [])}
        units: tuple[float, ...]
        if column.type in {ColumnType.INTEGER, ColumnType.DECIMAL}:
            units = tuple(digit * 10**power for power in range(9) for digit in (1, 5))
        elif column.type is ColumnType.FLOAT:
            units = (0.0, *(float(f"{digit}e{power}") for power in range(-6, 4) for digit in (1, 5)))
        elif column.type in times:
            units = (1, 1_000, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000)  # from µs to a day
        else:
            return None
        return cls(Grid.of(column, table), column.nullable, units)

    @property
    def usual(self) -> int:
        """Place of the unit that is taken if nothing is known: the last digit of numbers, seconds of times."""
        return 0 if self.grid.logical.numeric else self.units.index(1_000_000)

    @property
    def shares(self) -> NDArray[np.float64]:
        """Of the multiples of each unit, all equally frequent, the share of each class; shape (units, units).

        >>> StepCodec(Grid("n", ColumnType.INTEGER), False, (1, 5, 10)).shares
        array([[0.8, 0.1, 0.1],
               [0. , 0.5, 0.5],
               [0. , 0. , 1. ]])
        """
        units = np.array(self.units, np.float64)
        dividing = np.append(1 / np.maximum(units, TINY), 0.0)
        shares = np.triu(np.outer(units, dividing[:-1] - dividing[1:]))
        shares[units == 0, 0] = 1.0  # what is no multiple of any
        return shares

    @property
    def proper(self) -> int:
        return len(self.units)

    def encode(self, values: pa.ChunkedArray) -> Codes:
        """Return the coarsest unit that divides each value, shape (n,); errors as for all codecs."""
        numbers, null = self.grid.numbers(values)
        cells = np.zeros(len(numbers), np.int32)
        for place, unit in enumerate(self.units[1:], 1):
            cells[is_multiple(numbers, unit) if self.grid.continuous else numbers % unit == 0] = place
        return self.with_nulls(cells, null, self.grid.where)

    def decode(self, cells: Codes, rng: np.random.Generator) -> pa.Array:
        raise InternalError(f"{self.grid.where}: values are not drawn by their step")


def equal_width_codec(
    column: Column, low: Scalar, high: Scalar, cells: int | None = None, *, step: Scalar | None = None, table: str = ""
) -> OrderedCodec:
    """Return the codec of an ordered column with the range [low, high] in equal cells, and zero in a cell of its own.

    Columns of amounts are often zero for most rows (no capital gain, no discount). Were zero one value among the
    hundreds of a wide cell, decoding would lose it; so in numeric columns it is always apart. This is a public rule:
    it asks no row.

    Args:
        column: Its type, precision, scale and nullability matter; its domain does not.
        low: Smallest value of the domain.
        high: Largest value of the domain.
        cells: Number of equal cells; `Tuning.cells` if None. Never more than there are values in the range. Their
            widths on a whole-number grid differ by at most one; zero may add two cells.
        step: What the values are apart, counted from ``low``; those between are rounded down.
        table: For messages.

    Raises:
        SpecError: ``low`` or ``high`` is not a value of the column, low > high, there are no cells or more than
            4,096, or ``step`` is no step of its type.
    """
    grid = Grid.of(column, table)
    if step is not None:
        grid = grid.stepped(low, step)
    first, final = grid.number(low), grid.number(high)
    wanted = TUNING.cells if cells is None else cells
    if first > final:
        raise SpecError(f"{grid.where}: the domain begins at {low!r}, after its end {high!r}; swap them")
    most = 4096  # merging them by noisy counts stays quick
    if not 1 <= wanted <= most:
        raise SpecError(f"{grid.where}: the domain has {wanted:,} cells; declare 1 to {most:,}")
    cuts: list[int] | list[float]
    if grid.continuous:
        while len(cuts := _float_starts(first, final, wanted)) < wanted:
            wanted //= 2
        after_zero = float(np.nextafter(0.0, 1.0))
    else:
        points = int(final) - int(first) + 1
        wanted, after_zero = min(wanted, points), 1
        cuts = [int(first) + i * points // wanted for i in range(wanted)]
    if first <= 0 <= final and not grid.logical.calendar:
        cuts = sorted({*cuts, after_zero * 0, *([after_zero] if after_zero <= final else [])})
    return OrderedCodec(grid, column.nullable, tuple(cuts), final)


def log_scale_codec(column: Column, *, table: str = "") -> OrderedCodec:
    """Return a public grid over all that a type can hold, on which a range is learned under differential privacy.

    Integers, decimals, intervals (in microseconds) and floats: powers of two of either sign around zero (floats from
    2^-32 to 2^128; smaller ones count as zero). Dates and timestamps: calendar years 1900 to 2100, and before and after
    these stretches of 1, 2, 4 and so on years. Sentinels like 9999-12-31 have cells of their own; cells of whole
    numbers that are called years begin at 1900 and 2101, too.
    """
    grid = Grid.of(column, table)
    if grid.continuous:
        powers = [2.0**exponent for exponent in range(-32, 129)]
        negative = [float(np.nextafter(-power, 0)) for power in reversed(powers[:-1])]
        return OrderedCodec(grid, column.nullable, (-powers[-1], *negative, *powers[:-1]), powers[-1])
    low, high = grid.extent
    years = range(1900, 2102)
    if grid.logical.calendar:
        reach = [(1 << power) - 1 for power in range(1, 11)]  # and a thousand years beyond
        firsts = (*(years[0] - by for by in reversed(reach)), *years, *(years[-1] + by for by in reach))
        starts = {low, *(int(grid.number(f"{year:04}-01-01")) for year in firsts)}
    else:
        powers_of_two = {1 << k for k in range(high.bit_length())}
        # The mirror image of [2^k, 2^(k+1) - 1] starts at 1 - 2^(k+1); the outermost cells end where the type does.
        starts = {low, *(1 - power for power in powers_of_two if power > 1), 0, *powers_of_two}
        starts |= {years[0], years[-1]} if column.written_years else set()
    first, *usual = sentinels_of(column) or (low,)
    starts |= {first, *(start for point in usual for start in (point, point + 1) if start <= high)}
    return OrderedCodec(grid, column.nullable, tuple(sorted(starts)), high)


def roundest(low: float, high: float) -> float:
    """Return the number in [low, high] with the fewest decimals, ``low`` if rounding allows no other.

    >>> roundest(9.9899999, 9.9900001), roundest(-250.3, -199.0), roundest(-1.0, 2.0)
    (9.99, -200.0, 0.0)
    """
    if low <= 0 <= high:
        return 0.0
    first, final = Decimal(repr(low)), Decimal(repr(high))
    exponent = max(first.adjusted(), final.adjusted())
    while exponent >= first.adjusted() - 17:
        found = float(first.scaleb(-exponent).to_integral_value(ROUND_CEILING).scaleb(exponent))
        if low <= found <= high:
            return found
        exponent -= 1
    return low


def _float_starts(low: float, high: float, cells: int) -> list[float]:
    part = np.arange(cells) / cells
    return [*map(float, np.unique(low * (1 - part) + high * part))]
