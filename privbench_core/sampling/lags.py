"""Dates that come as long after their owners' as was measured, within the codes that they were drawn with.

A code says in which weeks a date lies; the class of its lag says how many minutes, hours or days after its owner's it
is. Each class gets odds, and so does each part of a code, such that the rows have the released shares of all classes
and as many rows in each part as were drawn, as far as that is possible (iterative proportional fitting); a row then
gets a class and a part by their odds and by how much of the row's code is in both. Dates whose class and part are not
other ones than before stay as they were drawn.
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
from privbench_core.models.lags import Lag

Array = NDArray[np.float64]
Places: TypeAlias = NDArray[np.signedinteger[Any]]
_FAR = 1 << 61  # no value lies beyond it, and sums of two are still whole numbers of 64 bits
_BLOCK = 1 << 14  # rows at a time, for memory
_SAMPLE = 5_000  # rows that odds are fitted to
_PARTS = 8  # of a code; chosen by hand
_ROUNDS = 20  # of fitting; chosen by hand, changes are small from there on
_MOST_ODDS = 1e30  # of a class: one may be a single number of 10^15, and one that no row has room for grows for ever
_NOTHING = 1e-300


@dataclass(frozen=True)
class _Base:
    """A column of the owners that a column of the rows comes after.

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

    def begins(self, rows: Places, grid: Grid) -> Points:
        """Return where all classes but the first begin for some rows, in steps of their column, shape (rows, n)."""
        numbers = np.where(self.known[rows], np.clip(self.numbers[rows], -_FAR, _FAR), -2 * _FAR)
        begins: Points = numbers[:, None] + self.starts[1:]
        return -((grid.origin - begins) // grid.step) if grid.step > 1 else begins  # rounded up


@dataclass
class DatedRows:
    """One column of rows with lags, and what it comes after.

    Attributes:
        coder: Of the column.
        bases: Owners' columns.
        odds: Of the classes of each base, and in the end of the parts of all codes; empty until they are fitted.
        cuts: Where the parts of each code begin, but for the first one, shape (codes, parts - 1).
    """

    coder: Discretizer
    bases: Sequence[_Base]
    odds: list[Array] = field(default_factory=list)
    cuts: Points = field(default_factory=lambda: np.empty((0, 0), np.int64))

    @classmethod
    def of(cls, coder: Discretizer, lags: Sequence[tuple[Lag, pa.ChunkedArray, Grid]]) -> DatedRows:
        """Make them, given lags with the owners' values for each row, and the grid of these values."""
        bases = []
        for lag, values, grid in lags:
            codec = lag.classes.codec
            if not isinstance(codec, OrderedCodec):
                raise InternalError(f"{lag.column}: lags are coded by intervals")
            numbers, null = replace(grid, step=1, origin=0).numbers(values)
            shares = lag.shares[: codec.ordered]
            if shares.sum() > 0:
                starts = np.asarray(codec.starts, np.int64)
                bases.append(_Base(numbers.astype(np.int64), ~null, starts, shares / shares.sum()))
        return cls(coder, bases)

    def drawn(self, codes: Codes, values: pa.Array, rows: Places, rng: np.random.Generator) -> pa.Array:
        """Return dates for some rows that come after their owners' as was measured.

        Odds are fitted the first time, to all rows or many.

        Args:
            codes: Of these rows.
            values: As they were drawn from these codes.
            rows: Their places among all rows.
            rng: Sampling only.
        """
        codec = self.coder.codec
        if not self.bases or not isinstance(codec, OrderedCodec):
            return values
        grid, intervals = codec.grid, Intervals.of(self.coder)
        known = np.logical_or.reduce([base.known[rows] for base in self.bases])
        dated = np.flatnonzero((codes < len(intervals.first)) & known)
        found, null = grid.numbers(pa.chunked_array([values]))
        numbers = found.astype(np.int64)
        if not self.odds:
            self._fit(intervals, grid, codes[dated], numbers[dated], rows[dated])
        for start in range(0, len(dated), _BLOCK):
            part = dated[start : start + _BLOCK]
            segments = self._segments(intervals, grid, codes[part], rows[part])
            numbers[part] = segments.moved(numbers[part], self.odds, rng)
        return grid.array(numbers, null)

    def _fit(self, intervals: Intervals, grid: Grid, codes: Codes, numbers: Points, rows: Places) -> None:
        """Fit the odds of all classes and parts by iterative scaling; what no row has room for is the last resort."""
        size = len(intervals.first)
        self.cuts = _quantiles(codes, numbers, intervals)
        of_part = codes.astype(np.int64) * _PARTS + (self.cuts[codes] <= numbers[:, None]).sum(axis=1)
        in_part = np.bincount(of_part, minlength=size * _PARTS) / np.repeat(
            np.maximum(np.bincount(codes, minlength=size), 1), _PARTS
        )
        some = np.linspace(0, len(codes) - 1, min(len(codes), _SAMPLE)).astype(np.int64)
        segments = self._segments(intervals, grid, codes[some], rows[some])
        there = segments.lengths > 0  # few of them, and each row has one
        row, weights = np.nonzero(there)[0], segments.lengths[there].astype(np.float64)
        first = np.searchsorted(row, np.arange(len(some)))
        classes = [of[there] for of in segments.classes]
        known = [*(base.known[rows[some]] for base in self.bases), np.ones(len(some), dtype=bool)]
        heeded = [np.flatnonzero(each[row]) for each in known]
        counts = [base.shares * each.sum() for base, each in zip(self.bases, known, strict=False)]
        counts.append(in_part * np.repeat(np.bincount(codes[some], minlength=size), _PARTS))
        self.odds = [np.ones(len(wanted)) for wanted in counts]
        for _ in range(_ROUNDS):
            for number, wanted in enumerate(counts):
                weights /= np.maximum(np.add.reduceat(weights, first), _NOTHING)[row]
                mine, before = heeded[number], self.odds[number]
                found = np.bincount(classes[number][mine], weights[mine], len(wanted))
                odds = before * np.where(found > 0, wanted / np.maximum(found, _NOTHING), 0.0)
                self.odds[number] = np.clip(odds, 1 / _MOST_ODDS, _MOST_ODDS)
                weights *= (self.odds[number] / before)[classes[number]]

    def _segments(self, intervals: Intervals, grid: Grid, codes: Codes, rows: Places) -> _Segments:
        first, after = intervals.first[codes][:, None], intervals.last[codes][:, None] + 1
        begins = [*(base.begins(rows, grid) for base in self.bases), self.cuts[codes]]
        joined = np.concatenate([first, *(np.clip(each, first, after) for each in begins)], axis=1)
        places = np.argsort(joined, axis=1, kind="stable")
        joined = np.take_along_axis(joined, places, axis=1)
        classes, start = [], 1
        for each in begins:
            inside = (places >= start) & (places < start + each.shape[1])
            classes.append(np.cumsum(inside, axis=1, dtype=np.int32))
            start += each.shape[1]
        classes[-1] += (codes.astype(np.int32) * _PARTS)[:, None]
        return _Segments(joined, np.diff(joined, axis=1, append=after), classes)


@dataclass(frozen=True)
class _Segments:
    """The codes of some rows, cut where a class of lags or a part begins; shapes (rows, segments).

    Attributes:
        begins: First number of each segment.
        lengths: How many numbers it has.
        classes: Of the lags from each base, and the parts.
    """

    begins: Points
    lengths: Points
    classes: Sequence[NDArray[np.int32]]

    def weights(self, odds: Sequence[Array]) -> Array:
        """Return how likely the segments of each row are, up to a factor."""
        weights = self.lengths.astype(np.float64)
        for each, classes in zip(odds, self.classes, strict=True):
            weights *= each[classes]
        return weights

    def moved(self, numbers: Points, odds: Sequence[Array], rng: np.random.Generator) -> Points:
        """Return other numbers for the rows that get another segment, shape (rows,)."""
        weights = np.cumsum(self.weights(odds), axis=1)
        wanted = rng.random(len(numbers)) * weights[:, -1]
        chosen = np.minimum((weights <= wanted[:, None]).sum(axis=1), weights.shape[1] - 1)
        row = np.arange(len(numbers))
        begin, length = self.begins[row, chosen], self.lengths[row, chosen]
        inside = (numbers >= begin) & (numbers < begin + length)
        other = begin + np.minimum((rng.random(len(numbers)) * length).astype(np.int64), np.maximum(length - 1, 0))
        return np.where(inside | (length <= 0), numbers, other)


def _quantiles(codes: Codes, numbers: Points, intervals: Intervals) -> Points:
    """Return where parts of codes begin that have about as many rows each, shape (codes, parts - 1)."""
    size = len(intervals.first)
    ordered = np.append(numbers[np.lexsort((numbers, codes))], 0)
    held = np.bincount(codes, minlength=size)
    places = (np.cumsum(held) - held)[:, None] + held[:, None] * np.arange(1, _PARTS) // _PARTS
    return np.where(held[:, None] > 0, ordered[places], intervals.first[:, None])


def dated_columns(
    lags: Sequence[Lag],
    discretizers: Mapping[str, Discretizer],
    owners: pa.Table,
    places: NDArray[np.signedinteger[Any]],
) -> dict[str, DatedRows]:
    """Return the columns with lags, by name.

    Args:
        lags: Released.
        discretizers: Of the rows' columns.
        owners: Rows of their owner.
        places: The owner of each row, -1 for none.
    """
    take = pa.array(places, mask=places < 0)
    found = {}
    for name in dict.fromkeys(lag.column for lag in lags):
        coder = discretizers[name]
        if isinstance(coder.codec, OrderedCodec):
            here = [(lag, owners.column(lag.base).take(take), coder.codec.grid) for lag in lags if lag.column == name]
            found[name] = DatedRows.of(coder, here)
    return found
