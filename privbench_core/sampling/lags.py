"""Dates that come as long after others as was measured: after their owners', or after earlier ones of the same row.

A code says in which weeks a date lies; the class of its lag says how many minutes, hours or days after the other one it
is. Each class gets odds, and so does each part of a code, such that the rows have the released shares of all classes
and as many rows in each part as were drawn, as far as that is possible (iterative proportional fitting); a row then
gets a class and a part by their odds and by how much of the row's code is in both. A code beside the row's own is
possible, too, but unlikely, and any other date is still less so: models of codes place some rows before what they come
after, or years after it. Dates whose class and part are not other ones than before stay as they were drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.equal_width import OrderedCodec
from privbench_core.columns.grid import Grid
from privbench_core.columns.lags import Intervals, Points
from privbench_core.errors import InternalError
from privbench_core.models.lags import Lag, Lags

Array = NDArray[np.float64]
Places: TypeAlias = NDArray[np.signedinteger[Any]]
_FAR = 1 << 61  # no value lies beyond it, and sums of two are still whole numbers of 64 bits
_BLOCK = 1 << 11  # rows at a time, for caches
_SAMPLE = 10_000  # rows that odds are fitted to, times one more than columns that they come after: for time
_PARTS = 8  # of a code; chosen by hand
_BESIDE = 0.02  # how likely a code beside a row's own is, where both have room for its lag; chosen by hand
_ANYWHERE = 1e-4  # the same of any date; chosen by hand
_CLEAR = 10  # times as likely as others: dates near those that were drawn, where no others are looked at
_REGIONS = 32  # with as many rows each, about, in which as many dates are to be as were drawn; chosen by hand
_ROUNDS = 10  # of fitting; chosen by hand, changes are small from there on
_MOST_ODDS = 1e30  # of a class: one may be a single number of 10^15, and one that no row has room for grows for ever
_NOTHING = 1e-300


@dataclass(frozen=True)
class _Cuts:
    """Where classes begin inside an interval of each row; at its end for rows that have fewer than others.

    Attributes:
        begins: Shape (rows, cuts).
        before: The class at the start of the interval, shape (rows,).
        last: The last class of all.
    """

    begins: Points
    before: Places
    last: int


@dataclass(frozen=True)
class _Base:
    """A column that a column of the rows comes after.

    Attributes:
        numbers: Its value for each row, shape (n,).
        known: Where there is one, same shape.
        starts: First lag of each class, shape (classes,).
        shares: Of the classes, over the rows that have a lag, same shape.
    """

    numbers: Points
    known: NDArray[np.bool_]
    starts: Points
    shares: Array

    @classmethod
    def of(cls, lag: Lag, values: pa.Array | pa.ChunkedArray, grid: Grid) -> _Base | None:
        """Return the base of a lag, with its values and their grid; None where no row has a lag."""
        codec = lag.classes.codec
        if not isinstance(codec, OrderedCodec):
            raise InternalError(f"{lag.column}: lags are coded by intervals")
        shares = lag.shares[: codec.ordered]
        if not shares.sum() > 0:
            return None
        chunked = values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
        numbers, null = replace(grid, step=1, origin=0).numbers(chunked)
        return cls(numbers.astype(np.int64), ~null, np.asarray(codec.starts, np.int64), shares / shares.sum())

    def in_steps(self, grid: Grid) -> Points:
        """Return the known values in steps of another column."""
        return (np.clip(self.numbers[self.known], -_FAR, _FAR) - grid.origin) // grid.step

    def cuts(self, rows: Places, grid: Grid, first: Points, after: Points) -> _Cuts:
        """Return where classes begin between two numbers of each row, in steps of their column, shapes (rows,)."""
        numbers = np.where(self.known[rows], np.clip(self.numbers[rows], -_FAR, _FAR), -2 * _FAR)
        later, zero = self.starts[1:], grid.origin - numbers
        before = np.searchsorted(later, zero + first * grid.step, side="right")
        upto = np.searchsorted(later, zero + (after - 1) * grid.step, side="right")
        places = before[:, None] + np.arange(max(int((upto - before).max(initial=0)), 0))
        begins = -((zero[:, None] - later[np.minimum(places, len(later) - 1)]) // grid.step)  # rounded up
        return _Cuts(np.where(places < upto[:, None], begins, after[:, None]), before, len(later))


@dataclass
class DatedRows:
    """One column of rows with lags, and what it comes after.

    Attributes:
        coder: Of the column.
        owners: Columns of the owners.
        within: Lags from other columns of the row.
        assumed: Whether the column's range is, as noise hid it: then dates may be where those are that they come after.
        odds: Of the classes of each base, of regions, and in the end of the parts of all codes, with 1 for dates
            anywhere; empty until they are fitted.
        parts: Where the parts of the codes begin, shape (codes, `_PARTS`).
        region_of: Of each part, ascending, shape (codes · `_PARTS`,).
        enough: How likely dates near a row's are, up to a factor, where others need not be looked at, for time.
    """

    coder: Discretizer
    owners: Sequence[_Base]
    within: Sequence[Lag]
    assumed: bool = False
    odds: list[Array] = field(default_factory=list)
    parts: Points = field(default_factory=lambda: np.empty((0, _PARTS), np.int64))
    region_of: Points = field(default_factory=lambda: np.empty(0, np.int64))
    enough: float = 0.0

    def drawn(
        self, codes: Codes, values: pa.Array, rows: Places, others: Mapping[str, pa.Array], rng: np.random.Generator
    ) -> tuple[Codes, pa.Array]:
        """Return dates for some rows that come after others as was measured, and their codes.

        Odds are fitted the first time, to all rows or many.

        Args:
            codes: Of these rows.
            values: As they were drawn from these codes.
            rows: Their places among all rows.
            others: Values of the rows' columns, those of all rows.
            rng: Sampling only.
        """
        codec = self.coder.codec
        if not isinstance(codec, OrderedCodec):
            return codes, values
        grid, intervals = codec.grid, Intervals.of(self.coder)
        bases = [*self.owners, *filter(None, (_Base.of(lag, others[lag.base], grid) for lag in self.within))]
        if not bases:
            return codes, values
        known = np.logical_or.reduce([base.known[rows] for base in bases])
        dated = np.flatnonzero((codes < len(intervals.first)) & known)
        if not len(dated):
            return codes, values
        if self.assumed:
            intervals = _reaching(intervals, [base.in_steps(grid) for base in bases])
        found, null = grid.numbers(pa.chunked_array([values]))
        numbers, moved = found.astype(np.int64), codes.copy()
        if not self.odds:
            self._fit(bases, intervals, grid, codes[dated], numbers[dated], rows[dated])
        for start in range(0, len(dated), _BLOCK):
            part = dated[start : start + _BLOCK]
            segments = self._near(bases, intervals, grid, codes[part], rows[part])
            weights = segments.weights(self.odds)
            numbers[part] = segments.moved(numbers[part], weights, rng)
            few = np.flatnonzero(weights.sum(axis=1) < self.enough)
            both = segments.take(few).beside(self._anywhere(bases, intervals, grid, rows[part[few]]))
            numbers[part[few]] = both.moved(found[part[few]].astype(np.int64), both.weights(self.odds), rng)
        moved[dated] = np.searchsorted(intervals.first, numbers[dated], side="right") - 1
        return moved, grid.array(numbers, null)

    def _fit(
        self,
        bases: Sequence[_Base],
        intervals: Intervals,
        grid: Grid,
        codes: Codes,
        numbers: Points,
        rows: Places,
    ) -> None:
        """Fit the odds of all classes and parts by iterative scaling; what no row has room for is the last resort."""
        size = len(intervals.first)
        self.parts = _quantiles(codes, numbers, intervals)
        of_part = codes.astype(np.int64) * _PARTS + (self.parts[codes, 1:] <= numbers[:, None]).sum(axis=1)
        in_part = np.bincount(of_part, minlength=size * _PARTS) / np.repeat(
            np.maximum(np.bincount(codes, minlength=size), 1), _PARTS
        )
        some = np.linspace(0, len(codes) - 1, min(len(codes), _SAMPLE // (1 + len(bases)))).astype(np.int64)
        of_parts = in_part * np.repeat(np.bincount(codes[some], minlength=size), _PARTS)
        before = (np.cumsum(of_parts) - of_parts) / max(float(of_parts.sum()), _NOTHING)
        self.region_of = np.unique(np.floor(before * _REGIONS), return_inverse=True)[1].astype(np.int64)
        near = self._near(bases, intervals, grid, codes[some], rows[some])
        anywhere = self._anywhere(bases, intervals, grid, rows[some])
        segments = near.beside(anywhere)
        there = segments.sizes > 0  # few of them, and each row has one
        row, weights = np.nonzero(there)[0], segments.sizes[there]
        first = np.searchsorted(row, np.arange(len(some)))
        classes = [of[there].astype(np.intp) for of in segments.classes]  # as counting takes them
        known = [*(base.known[rows[some]] for base in bases), *np.ones((2, len(some)), dtype=bool)]
        heeded = [slice(None) if each.all() else np.flatnonzero(each[row]) for each in known]
        counts = [base.shares * each.sum() for base, each in zip(bases, known, strict=False)]
        counts += [np.bincount(self.region_of, of_parts), np.append(of_parts, 0.0)]
        self.odds = [np.ones(len(wanted)) for wanted in counts]
        for _ in range(_ROUNDS):
            # Where the rows of an assumed range were drawn says nothing.
            for number, wanted in enumerate(counts[: len(bases)] if self.assumed else counts):
                weights /= np.maximum(np.add.reduceat(weights, first), _NOTHING)[row]
                mine, before = heeded[number], self.odds[number]
                found = np.bincount(classes[number][mine], weights[mine], len(wanted))
                # Dates anywhere are not among those of the parts, but among those of regions.
                share = found[:-1].sum() / wanted.sum() if number == len(counts) - 1 else 1.0
                odds = before * np.where(found > 0, wanted * share / np.maximum(found, _NOTHING), 0.0)
                self.odds[number] = np.clip(odds, 1 / _MOST_ODDS, _MOST_ODDS)
                self.odds[-1][-1] = 1.0
                weights *= (self.odds[number] / before)[classes[number]]

        others = anywhere.weights(self.odds).sum(axis=1)
        self.enough = _CLEAR * float(np.median(others))

    def _near(self, bases: Sequence[_Base], intervals: Intervals, grid: Grid, codes: Codes, rows: Places) -> _Segments:
        """Return the codes of some rows and those beside them."""
        size = len(intervals.first)
        lowest = np.maximum(codes.astype(np.int64) - 1, 0)
        highest = np.minimum(codes.astype(np.int64) + 1, size - 1)
        places = np.minimum(lowest[:, None] * _PARTS + np.arange(1, 3 * _PARTS), size * _PARTS - 1)
        first, after = intervals.first[lowest], intervals.last[highest] + 1
        lags = [base.cuts(rows, grid, first, after) for base in bases]
        found = _cut([*lags, _Cuts(self.parts.ravel()[places], lowest * _PARTS, size * _PARTS - 1)], first, after)
        parts = found.classes[-1]
        sizes: Array = np.where(parts // _PARTS == codes[:, None], 1.0, _BESIDE) * found.lengths
        return replace(found, sizes=sizes, classes=[*found.classes[:-1], self.region_of.astype(np.int32)[parts], parts])

    def _anywhere(self, bases: Sequence[_Base], intervals: Intervals, grid: Grid, rows: Places) -> _Segments:
        """Return all dates for some rows, likewise."""
        regions = self.parts.ravel()[np.flatnonzero(np.diff(self.region_of)) + 1]
        first, after = np.full((2, len(rows)), [[intervals.first[0]], [intervals.last[-1] + 1]])
        lags = [base.cuts(rows, grid, first, after) for base in bases]
        at_regions = np.broadcast_to(regions, (len(rows), len(regions)))
        of_regions = _Cuts(at_regions, np.zeros(len(rows), np.int64), len(regions))
        found = _cut([*lags, of_regions], first, after)
        none = np.full(found.lengths.shape, self.parts.size, np.int32)
        sizes: Array = _ANYWHERE * found.lengths.astype(np.float64)
        return replace(found, sizes=sizes, classes=[*found.classes, none])


def _reaching(intervals: Intervals, points: Sequence[Points]) -> Intervals:
    """Return intervals of which the first, or the last, reaches as far as the given points do."""
    points = [each for each in points if len(each)]
    first, last = intervals.first.copy(), intervals.last.copy()
    first[0] = min(int(first[0]), *(int(each.min()) for each in points))
    last[-1] = max(int(last[-1]), *(int(each.max()) for each in points))
    return replace(intervals, first=first, last=last)


def _cut(cuts: Sequence[_Cuts], first: Points, after: Points) -> _Segments:
    """Cut the interval of each row, shapes (rows,), at numbers of several kinds."""
    first, after = first[:, None], after[:, None]
    joined = np.concatenate([first, *(np.clip(each.begins, first, after) for each in cuts)], axis=1)
    order = np.argsort(joined, axis=1)
    joined = np.take_along_axis(joined, order, axis=1)
    classes, start = [], 1
    for each in cuts:
        begun = (order >= start) & (order < start + each.begins.shape[1])
        found = each.before[:, None].astype(np.int32) + np.cumsum(begun, axis=1, dtype=np.int32)
        classes.append(np.minimum(found, each.last))
        start += each.begins.shape[1]
    lengths = np.diff(joined, axis=1, append=after)
    return _Segments(joined, lengths, lengths.astype(np.float64), classes)


@dataclass(frozen=True)
class _Segments:
    """Dates that are possible for some rows, cut where a class of lags or a part begins; shapes (rows, segments).

    Attributes:
        begins: First number of each segment.
        lengths: How many numbers it has.
        sizes: How likely it is for its length and its code, up to a factor.
        classes: Of the lags from each base, the region, and the part; for any date one more than there are.
    """

    begins: Points
    lengths: Points
    sizes: Array
    classes: Sequence[NDArray[np.int32]]

    def take(self, rows: Places) -> _Segments:
        """Return those of some rows."""
        return _Segments(self.begins[rows], self.lengths[rows], self.sizes[rows], [of[rows] for of in self.classes])

    def beside(self, other: _Segments) -> _Segments:
        """Return these and others of the same rows."""
        return _Segments(
            np.concatenate([self.begins, other.begins], axis=1),
            np.concatenate([self.lengths, other.lengths], axis=1),
            np.concatenate([self.sizes, other.sizes], axis=1),
            [np.concatenate(both, axis=1) for both in zip(self.classes, other.classes, strict=True)],
        )

    def weights(self, odds: Sequence[Array]) -> Array:
        """Return how likely the segments of each row are, up to a factor."""
        weights = self.sizes.copy()
        for each, classes in zip(odds, self.classes, strict=True):
            weights *= each[classes]
        return weights

    def moved(self, numbers: Points, weights: Array, rng: np.random.Generator) -> Points:
        """Return other numbers for the rows that get another segment by these weights, shape (rows,)."""
        weights = np.cumsum(weights, axis=1)
        wanted = rng.random(len(numbers)) * weights[:, -1]
        chosen = np.minimum((weights <= wanted[:, None]).sum(axis=1), weights.shape[1] - 1)
        row = np.arange(len(numbers))
        begin, length = self.begins[row, chosen], self.lengths[row, chosen]
        inside = ((numbers >= begin) & (numbers < begin + length)) | (length <= 0)
        other = begin + np.minimum((rng.random(len(numbers)) * length).astype(np.int64), np.maximum(length - 1, 0))
        return np.where(inside, numbers, other)


def _quantiles(codes: Codes, numbers: Points, intervals: Intervals) -> Points:
    """Return where parts of codes begin that have about as many rows each, shape (codes, parts)."""
    size = len(intervals.first)
    ordered = np.append(numbers[np.lexsort((numbers, codes))], 0)
    held = np.bincount(codes, minlength=size)
    places = (np.cumsum(held) - held)[:, None] + held[:, None] * np.arange(1, _PARTS) // _PARTS
    cuts = np.where(held[:, None] > 0, ordered[places], intervals.first[:, None])
    return np.concatenate([intervals.first[:, None], cuts], axis=1)


def dated_columns(
    lags: Lags, discretizers: Mapping[str, Discretizer], owners: tuple[pa.Table, Places] | None
) -> dict[str, DatedRows]:
    """Return the columns with lags by name, those before that others of the row come after.

    Args:
        lags: Released.
        discretizers: Of the rows' columns, in their order.
        owners: Rows of the owners, and the owner of each row, -1 for none; None where rows have none.
    """
    take = None if owners is None else pa.array(owners[1], mask=owners[1] < 0)
    found = {}
    for name, coder in discretizers.items():
        if not isinstance(coder.codec, OrderedCodec):
            continue
        bases = [
            _Base.of(lag, owners[0].column(lag.base).take(take), coder.codec.grid)
            for lag in lags.of_owners
            if lag.column == name and owners is not None
        ]
        own = [lag for lag in lags.within if lag.column == name]
        if own or bases:
            found[name] = DatedRows(coder, [*filter(None, bases)], own, name in lags.assumed)
    return found
