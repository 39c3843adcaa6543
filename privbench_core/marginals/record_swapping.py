"""Record swapping: pairs of synthetic rows swap their values of a column if that brings tables closer to targets.

Swaps keep the column's own distribution. Similar to GUM (PrivSyn, section 4.3), which overwrites values instead.
Post-processing: uses released tables and synthetic rows only.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privbench_core.arrays import Array, dense, finer
from privbench_core.columns.codec import Codes
from privbench_core.columns.systematic import stable_order
from privbench_core.schema.constraints import reachable

Numbers = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class TargetTable:
    """A target for a table of the rows over two columns or more.

    Attributes:
        columns: Its columns.
        counts: Target weight of each cell, shape (size of the first, size of the second, ..).
    """

    columns: tuple[str, ...]
    counts: Array


def swap(
    codes: Mapping[str, Codes],
    targets: Sequence[TargetTable],
    moves: Iterable[Sequence[str]],
    rng: np.random.Generator,
    *,
    sweeps: int = 2,
    weights: Array | None = None,
    within: Mapping[str, Codes] | None = None,
    kept: Collection[tuple[str, str]] = (),
) -> None:
    """Bring rows closer to target tables by pairs of rows that swap values, in place.

    Args:
        codes: Of all columns of the tables, each of shape (n,).
        targets: Tables to approach, all of positive size.
        moves: Columns that swap together, one move after the other; of each table one, or all.
        rng: Sampling only: pairs rows.
        sweeps: Over all moves; further ones than two change little.
        weights: Weight of each row, shape (n,); None for 1 each.
        within: Column -> codes, shape (n,): only rows with equal codes swap it; None if all rows may.
        kept: Pairs of columns whose own table stays as it is: each swaps between rows with equal codes of the other
            one, or all that such pairs connect swap together, unless some columns of a larger table are among them.
    """
    gaps = _Gaps(codes, targets, weights)
    others: dict[str, list[str]] = {}
    for a, b in kept:
        others.setdefault(a, []).append(b)
        others.setdefault(b, []).append(a)
    together = [
        columns
        for columns in dict.fromkeys(frozenset(reachable(name, others.__getitem__)) for name in others)
        if all(len(columns & {*each.columns}) < 2 or columns >= {*each.columns} for each in targets)  # noqa: PLR2004
    ]
    for columns in (*moves, *(tuple(sorted(each)) for each in together)) * sweeps:
        classes = None if within is None else within[columns[0]]
        if len(columns) == 1 and columns[0] in others:
            first, *more = (codes[name] for name in others[columns[0]])
            classes = reduce(finer, more, dense(first))
        gaps.sweep(columns, rng, classes)


@dataclass(frozen=True)
class _Side:
    """A table as seen from a column: its cells are at begin + code * step + other columns' codes * their steps."""

    begin: int
    step: int
    others: tuple[tuple[str, int], ...]


class _Gaps:
    """Rows, and their gaps to target tables, concatenated in one flat array."""

    def __init__(self, codes: Mapping[str, Codes], targets: Sequence[TargetTable], weights: Array | None) -> None:
        self._codes = codes
        self._weights = np.ones(len(next(iter(codes.values()), ()))) if weights is None else weights
        self._sides: dict[str, list[_Side]] = {}
        gaps, begin = [np.zeros(0)], 0
        for table in targets:
            shape = table.counts.shape
            steps = {name: math.prod(shape[axis + 1 :]) for axis, name in enumerate(table.columns)}
            found = np.bincount(self._cells(0, steps.items(), slice(None)), self._weights, table.counts.size)
            gaps.append(table.counts.ravel() - found)
            for name, step in steps.items():
                others = tuple((other, along) for other, along in steps.items() if other != name)
                self._sides.setdefault(name, []).append(_Side(begin, step, others))
            begin += table.counts.size
        self._gaps = np.concatenate(gaps)
        self._together = np.zeros(begin)  # what swaps add to cells, in between: there are more cells than swaps
        # Weight of a squared gap: the inverse of its sampling variance.
        self._curve = np.concatenate([np.zeros(0), *((1 / (table.counts + 1)).ravel() for table in targets)])

    def _cells(self, begin: int, steps: Iterable[tuple[str, int]], rows: Numbers | slice) -> Numbers:
        """Return the cells of rows by some columns, shape (rows,)."""
        cells = np.full(len(self._weights[rows]), begin, dtype=np.intp)
        for name, step in steps:
            cells += self._codes[name][rows].astype(np.intp) * step
        return cells

    def sweep(self, columns: Sequence[str], rng: np.random.Generator, within: Numbers | None) -> None:
        """Let each row swap ``columns`` with another one at most, as far as that takes away from the gaps."""
        sides = [
            (name, side)
            for name in columns
            for side in self._sides.get(name, ())
            if all(other not in columns for other, _ in side.others)  # else all that it has of a row moves along
        ]
        if not sides:
            return
        n = len(self._weights)
        rows = rng.choice(n, min(n, 100_000), replace=False)  # tables of more rows have little sampling error
        pull = self._curve * self._gaps
        excess = [pull[self._cells(side.begin, [(name, side.step), *side.others], rows)] for name, side in sides]
        left, right = partners(rows[np.sum(excess, axis=0) < 0], within)  # of cells that hold too many rows
        order = rng.permutation(len(left))
        for batch in np.array_split(order, 16):  # after each of which gaps to targets are updated
            one, other = left[batch], right[batch]
            # What the swapped columns add to the cells of each row, and the rest of the cells; shapes (tables, pairs).
            here, there = (np.stack([self._cells(0, [(n, s.step)], of) for n, s in sides]) for of in (one, other))
            near, far = (np.stack([self._cells(s.begin, s.others, of) for _, s in sides]) for of in (one, other))
            swapped = self._swapped((here, there), (near, far), (self._weights[one], self._weights[other]), rng)
            one, other = one[swapped], other[swapped]
            for name in columns:
                values = self._codes[name]
                values[one], values[other] = values[other], values[one]

    def _swapped(
        self,
        own: tuple[Numbers, Numbers],
        rest: tuple[Numbers, Numbers],
        weights: tuple[Array, Array],
        rng: np.random.Generator,
    ) -> Numbers:
        """Return pairs of rows whose swaps lower the weighted sum of squared gaps, and take them from the gaps.

        Each swap alone would, but all together may overshoot: their sum is a parabola in the share that is made.
        """
        (a, b), (left, right), (one, other) = own, rest, weights
        cells = np.stack([a + left, b + left, b + right, a + right])  # that the rows leave and enter, in turn
        changes = np.stack([one, -one, other, -other])[:, None, :]
        curve = self._curve[cells]
        effect = (changes * curve * (2 * self._gaps[cells] + changes)).sum(axis=0, where=(left != right) & (a != b))
        better = np.flatnonzero(effect.sum(axis=0) < 0)
        changed, by = cells[:, :, better], np.broadcast_to(changes[:, :, better], (4, len(left), len(better)))
        np.add.at(self._together, changed.ravel(), by.ravel())
        pull = self._curve[changed] * by
        linear, quadratic = -(pull * self._gaps[changed]).sum(), (pull * self._together[changed]).sum()
        self._together[changed] = 0.0
        swapped = rng.random(len(better)) * quadratic < linear
        np.add.at(self._gaps, changed[:, :, swapped].ravel(), by[:, :, swapped].ravel())
        return np.asarray(better[swapped])


def partners(rows: Numbers, within: Numbers | None) -> tuple[Numbers, Numbers]:
    """Return disjoint pairs of some rows, of equal numbers in ``within`` (of shape (n,)) where that is given."""
    if within is not None:
        rows = rows[stable_order(within[rows])]
    left, right = rows[: len(rows) // 2 * 2 : 2], rows[1::2]
    equal = np.ones(len(left), dtype=bool) if within is None else within[left] == within[right]
    return left[equal], right[equal]
