"""Dates that come as long after others as was measured: after their owners', or after earlier ones of the same row.

A code says in which weeks a date lies, the class of its lag how many minutes, hours or days after another date. Each
row gets proposals, some from its own code and some at lags of the released histograms, and draws one of them by how
likely its code is, times odds of the classes of its lags and of its code (sampling-importance-resampling, Rubin 1987; a
proposal counts by the mixture of all that it may be from, the balance heuristic of Veach and Guibas 1995). Odds are
fitted such that rows have the released shares of all classes, and each code as many rows as were drawn (iterative
proportional fitting).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.arrays import Array, order_within
from privbench_core.columns.codec import Codes
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.grid import Grid
from privbench_core.columns.intervals import OrderedCodec
from privbench_core.columns.lags import Intervals, Points, coarsened, coarser, first_points
from privbench_core.errors import InternalError
from privbench_core.guards import BLOCK_ROWS, FITTING_ROUNDS, PROPOSALS, SAMPLE_ROWS, SMOOTHING, TINY
from privbench_core.profiles.lags import Lag, Lags
from privbench_core.schema.columns import ColumnType
from privbench_core.schema.types.times import DateType, TimestampType
from privbench_core.tuning import TUNING

Places: TypeAlias = NDArray[np.signedinteger[Any]]


@dataclass(frozen=True)
class _Base:
    """A column that a column of the rows comes after.

    Attributes:
        kind: Type of the column of the rows.
        to: The type in which both are compared, see `columns.lags`.
        numbers, known: Its value for each row, as a number of ``to``, and where there is one, shape (n,).
        starts, widths: First lag and number of lags of each class, shape (classes,).
        shares: Of the classes, over the rows that have a lag, same shape.
        offsets: What is added to numbers of the column, where these are differences, shape (n,).
    """

    kind: ColumnType
    to: ColumnType
    numbers: Points
    known: NDArray[np.bool_]
    starts: Points
    widths: Array
    shares: Array
    offsets: Points | None = None

    @classmethod
    def of(cls, lag: Lag, kind: ColumnType, values: pa.Array | pa.ChunkedArray | int) -> _Base | None:
        """Return the base of a lag of a column of a type, with its values; None where no row has a lag.

        Of a lag from 1970-01-01, ``values`` is the number of rows.
        """
        codec = lag.classes.codec
        if not isinstance(codec, OrderedCodec):
            raise InternalError(f"{lag.column}: lags are coded by intervals")
        shares = lag.shares[: codec.ordered]
        if not shares.sum() > 0:
            return None
        if isinstance(values, int):
            numbers, known, of_base = np.zeros(values, np.int64), np.ones(values, bool), kind
        else:
            (numbers, known), of_base = _points(values), _type_of(values)
        to = coarser(kind, of_base) or kind
        starts, numbers = np.asarray(codec.starts, np.int64), coarsened(numbers, of_base, to)
        return cls(kind, to, numbers, known, starts, codec.widths, shares / shares.sum())

    def above(self, values: pa.Array) -> _Base:
        """Return the base of what is a difference from other values of the rows."""
        numbers, known = _points(values)
        return replace(self, offsets=numbers, known=self.known & known)

    def _offsets(self, rows: Places) -> Points | int:
        return 0 if self.offsets is None else self.offsets[rows, None]

    def proposed(self, rows: Places, grid: Grid, number: int, rng: np.random.Generator) -> Points:
        """Return numbers at random lags in steps of the rows' column, shape (rows, number)."""
        shape = len(rows), number
        drawn = np.searchsorted(np.cumsum(self.shares), rng.random(shape), side="right")
        drawn = np.minimum(drawn, len(self.shares) - 1)
        lags = self.starts[drawn] + (rng.random(shape) * self.widths[drawn]).astype(np.int64)
        first = first_points(self.numbers[rows, None] + lags, self.to, self.kind) - self._offsets(rows)
        found = -((grid.origin - first) // grid.step)  # rounded up
        return found if self._steps(grid) <= 1 else found + (rng.random(shape) * self._steps(grid)).astype(np.int64)

    def classes(self, rows: Places, grid: Grid, numbers: Points) -> Places:
        """Return the classes of numbers of some rows, one more than there are without a lag; shapes (rows, numbers)."""
        points = numbers * grid.step + grid.origin + self._offsets(rows)
        lags = coarsened(points, self.kind, self.to) - self.numbers[rows, None]
        found = np.searchsorted(self.starts[1:], lags, side="right")
        return np.where(self.known[rows, None], found, len(self.starts))

    def densities(self, grid: Grid) -> Array:
        """Return the density of the proposals of each class, per step of the rows' column; 0 without a lag."""
        return np.append(self.shares / np.maximum(self.widths * self._steps(grid), 1.0), 0.0)

    def ends(self, grid: Grid) -> tuple[float, float]:
        """Return between which numbers of the rows' column the values of the base lie."""
        first, last = self._ends
        return (first - grid.origin) / grid.step, (last - grid.origin) / grid.step

    @cached_property
    def _ends(self) -> tuple[int, int]:
        known = self.numbers[self.known] if self.known.any() else self.numbers
        first, after = first_points(np.array([known.min(), known.max() + 1]), self.to, self.kind).tolist()
        return first, after - 1

    def _steps(self, grid: Grid) -> float:
        """Return how many steps of the rows' column are in one lag, on average."""
        cycle = 400  # years after which the calendar repeats itself
        first, last = first_points(np.array([0, cycle]) + 1970, self.to, self.kind).tolist()
        return float(last - first) / cycle / grid.step


def _points(values: pa.Array | pa.ChunkedArray) -> tuple[Points, NDArray[np.bool_]]:
    """Return points in time as numbers of their type, and which are neither NULL nor sentinels; shapes (n,)."""
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    known = whole.is_valid().to_numpy(zero_copy_only=False)
    numbers = whole.view(pa.int32() if pa.types.is_date32(whole.type) else pa.int64())
    points = numbers.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    if pa.types.is_date32(whole.type) or pa.types.is_timestamp(whole.type):
        known &= points < (DateType() if pa.types.is_date32(whole.type) else TimestampType()).endless
    return points, known


def _type_of(values: pa.Array | pa.ChunkedArray) -> ColumnType:
    """Return a type that counts as points in time of values are numbered."""
    if pa.types.is_timestamp(values.type):
        return ColumnType.TIMESTAMP
    return ColumnType.DATE if pa.types.is_date32(values.type) else ColumnType.INTEGER


@dataclass(frozen=True)
class _Proposals:
    """Dates that rows draw from; shapes (rows, proposals).

    Attributes:
        numbers: In steps of the column.
        weights: How likely each is by its code, over how often it is proposed.
        classes: Of the lags from each base, and then the codes, where these are to be kept.
    """

    numbers: Points
    weights: Array
    classes: Sequence[Places]

    def chances(self, odds: Sequence[Array]) -> Array:
        """Return the chances of each row's proposals."""
        chances = self.weights.copy()
        for each, classes in zip(odds, self.classes, strict=True):
            chances *= each[classes]
        return np.asarray(chances / np.maximum(chances.sum(axis=1, keepdims=True), TINY))

    def fitted(self, wanted: Sequence[Array]) -> list[Array]:
        """Return odds with which the classes have the wanted numbers of rows; 1 for rows without a lag."""
        odds = [np.ones(len(counts) + 1) for counts in wanted]
        for _ in range(FITTING_ROUNDS):
            for each, counts, classes in zip(odds, wanted, self.classes, strict=True):
                found = np.bincount(classes.ravel(), self.chances(odds).ravel(), len(each))[:-1]
                change = np.where(found > 0, counts / np.maximum(found, TINY), 1.0)
                each[:-1] = np.clip(each[:-1] * change, SMOOTHING, 1 / SMOOTHING)
        return odds

    def drawn(self, odds: Sequence[Array], rng: np.random.Generator) -> Points:
        """Return one number for each row, shape (rows,)."""
        steps = np.cumsum(self.chances(odds), axis=1)
        chosen = (steps < rng.random((len(steps), 1)) * steps[:, -1:]).sum(axis=1)
        return np.asarray(np.take_along_axis(self.numbers, chosen[:, None], axis=1)[:, 0])


@dataclass(frozen=True)
class _TiedRows:
    """Rows of one owner that have the same date or number.

    Attributes:
        owners: Place of each row's owner, -1 for none, shape (rows,).
        share: See `Ties`.
    """

    owners: Places
    share: float

    def tied(self, numbers: Points, rows: Places, rng: np.random.Generator) -> Points | None:
        """Return values of rows, as many of them equal as was measured: those that are nearest to each other.

        All rows with one value get that of any of them, so that no value becomes more likely. None if as many are
        equal already.

        Args:
            numbers: Values of rows, shape (rows,).
            rows: Their places among all, same shape.
            rng: Sampling only.
        """
        owners = self.owners[rows]
        order = order_within(owners, numbers)
        values, ranked = numbers[order], owners[order]
        after = 1 + np.flatnonzero((ranked[1:] == ranked[:-1]) & (ranked[1:] >= 0))
        apart = np.diff(values)[after - 1]
        wanted = round(self.share * len(after))
        if np.count_nonzero(apart == 0) >= wanted:
            return None
        farthest = np.partition(apart, wanted - 1)[wanted - 1]
        nearer, as_far = after[apart < farthest], after[apart == farthest]
        same = np.zeros(len(order), dtype=bool)
        same[nearer] = True
        same[rng.permutation(as_far)[: wanted - len(nearer)]] = True
        starts = np.flatnonzero(~same)
        sizes = np.diff(np.append(starts, len(order)))
        chosen = starts + (rng.random(len(starts)) * sizes).astype(np.int64)
        found = np.empty_like(numbers)
        found[order] = np.repeat(values[chosen], sizes)
        return found


@dataclass
class DatedRows:
    """One column of rows with lags, and what it comes after.

    Attributes:
        coder: Of the column.
        kind: Its type, also where differences are coded.
        owners: Columns of the owners.
        within: Lags from other columns of the row.
        relative: The column of the row that this one is coded as its difference from; None for one that is not.
        assumed: Whether the column's range is, as noise hid it: then dates may be where those are that they come after.
        ties: How often rows of one owner have the same value, where that was measured.
        odds: Of the classes of each base, and of codes; empty until they are fitted.
    """

    coder: Discretizer
    kind: ColumnType
    owners: Sequence[_Base]
    within: Sequence[Lag]
    relative: str | None = None
    assumed: bool = False
    ties: _TiedRows | None = None
    odds: list[Array] = field(default_factory=list)

    def drawn(
        self, codes: Codes, values: pa.Array, rows: Places, others: Mapping[str, pa.Array], rng: np.random.Generator
    ) -> tuple[Codes, pa.Array]:
        """Draw dates for some rows that come after others as was measured, and return them with their codes.

        Odds are fitted the first time, to all rows or many.

        Args:
            codes: Of these rows.
            values: As they were drawn from these codes: differences, where it is coded so.
            rows: Their places among all rows.
            others: Values of the rows' columns, those of all rows.
            rng: Sampling only.
        """
        codec = self.coder.codec
        if not isinstance(codec, OrderedCodec):
            return codes, values
        n = 0 if self.relative is None else len(others[self.relative])
        own = (_Base.of(lag, self.kind, others[lag.base] if lag.base else n) for lag in self.within)
        bases = [*self.owners, *filter(None, own)]
        if self.relative is not None:
            bases = [base.above(others[self.relative]) for base in bases]
        inside = codes < self.coder.ordered
        if codec.open_ended:
            inside |= ~np.isin(codes, Intervals.of(self.coder).timeless)
        found, null = codec.grid.numbers(pa.chunked_array([values]))
        numbers, moved = found.astype(np.int64), codes.copy()
        known = [base.known[rows] for base in bases]
        dated = np.flatnonzero(inside & np.logical_or.reduce([np.zeros(len(rows), bool), *known]))
        if len(dated):
            self._lag(numbers, dated, codec, bases, codes, rows, rng)
        if self.ties is not None and len(rows) == len(self.ties.owners):
            ordered = np.flatnonzero(inside)
            tied = self.ties.tied(numbers[ordered], rows[ordered], rng)
            if tied is not None:
                changed = np.zeros(len(rows), dtype=bool)
                changed[dated] = True
                changed[ordered] |= tied != numbers[ordered]
                numbers[ordered], dated = tied, np.flatnonzero(changed)
        if not len(dated):
            return codes, values
        after = codec.grid.array(numbers, null)
        moved[dated] = self.coder.encode(pa.chunked_array([after.take(pa.array(dated))]))
        return moved, after

    def _lag(
        self,
        numbers: Points,
        dated: Places,
        codec: OrderedCodec,
        bases: Sequence[_Base],
        codes: Codes,
        rows: Places,
        rng: np.random.Generator,
    ) -> None:
        """Draw numbers for the rows that are ``dated`` after others, in place."""
        grid, found = codec.grid, numbers[dated]
        if not self.odds:
            some = dated[np.linspace(0, len(dated) - 1, min(len(dated), SAMPLE_ROWS // len(bases))).astype(np.int64)]
            wanted = [base.shares * base.known[rows[some]].sum() for base in bases]
            if not self.assumed:
                wanted.append(np.bincount(codes[some], minlength=self.coder.size).astype(np.float64))
            self.odds = self._proposals(codec, bases, codes[some], rows[some], rng).fitted(wanted)
        size = max(1, BLOCK_ROWS // PROPOSALS)
        for start in range(0, len(dated), size):
            part = dated[start : start + size]
            numbers[part] = self._proposals(codec, bases, codes[part], rows[part], rng).drawn(self.odds, rng)
        if not (grid.logical.calendar or self.relative or self.assumed):  # each number stays as frequent as drawn
            order = np.lexsort((rng.random(len(dated)), numbers[dated]))  # equal ones in any
            numbers[dated[order]] = np.sort(found)

    def _proposals(
        self, codec: OrderedCodec, bases: Sequence[_Base], codes: Codes, rows: Places, rng: np.random.Generator
    ) -> _Proposals:
        """Return dates of some rows' codes, and at lags from each base; where it has no value, of the code again."""
        grid, (code_of, shares) = codec.grid, self.coder.shares
        sources = 1 + len(bases)
        drawn = self.coder.decode(np.repeat(codes, PROPOSALS * sources), rng)
        numbers = grid.numbers(pa.chunked_array([drawn]))[0].astype(np.int64).reshape(len(codes), -1)
        own = np.ones(len(codes))
        for number, base in enumerate(bases, start=1):
            there = base.known[rows]
            proposed = base.proposed(rows[there], grid, PROPOSALS, rng)
            numbers[there, number * PROPOSALS : (number + 1) * PROPOSALS] = proposed
            own += ~there
        lowest, highest = int(codec.starts[0]), int(codec.last)
        cells, density = codec.densities(numbers)
        density *= shares[cells]
        same = code_of[cells] == codes[:, None]
        classes = [base.classes(rows, grid, numbers) for base in bases]
        mixture = density * same * own[:, None]
        for base, of in zip(bases, classes, strict=True):
            mixture += base.densities(grid)[of]
        if self.assumed:  # where the rows of such a range were drawn says nothing
            ends = [lowest, highest, *(end for base in bases if base.offsets is None for end in base.ends(grid))]
            low, high = max(min(ends), grid.reach[0]), min(max(ends), grid.reach[1])
            possible = (numbers >= low) & (numbers <= high)
            return _Proposals(numbers, possible / np.maximum(mixture, TINY), classes)
        prior = density * np.where(same, 1.0, TUNING.other_code)
        return _Proposals(numbers, prior / np.maximum(mixture, TINY), [*classes, code_of[cells]])


def dated_columns(
    lags: Lags,
    discretizers: Mapping[str, Discretizer],
    owners: tuple[pa.Table, Places] | None,
    relatives: Mapping[str, str] | None = None,
) -> dict[str, DatedRows]:
    """Return the columns with lags by name, those before that others of the row come after.

    ``relatives`` are as in `Profile`, last among the columns and with what they are relative to before them.
    """
    take = None if owners is None else pa.array(owners[1], mask=owners[1] < 0)
    found, relative = {}, relatives or {}
    kinds = {n: each.codec.grid.type for n, each in discretizers.items() if isinstance(each.codec, OrderedCodec)}
    for name in (*(name for name in discretizers if name not in relative), *relative):
        if name not in kinds:
            continue
        kinds[name], coder = kinds[relative.get(name, name)], discretizers[name]
        bases = [
            _Base.of(lag, kinds[name], owners[0].column(lag.base).take(take))
            for lag in lags.of_owners
            if lag.column == name and owners is not None
        ]
        own = [lag for lag in lags.within if lag.column == name]
        tied = [] if own or owners is None else [each for each in lags.ties if each.column == name]
        if own or bases or tied:
            of_owners, assumed = [*filter(None, bases)], name in lags.assumed
            ties = _TiedRows(owners[1], tied[0].share) if owners is not None and tied else None
            found[name] = DatedRows(coder, kinds[name], of_owners, own, relative.get(name), assumed, ties)
    return found
