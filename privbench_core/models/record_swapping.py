"""Record swapping: pairs of synthetic rows swap their values of a column if that brings tables closer to targets.

Swaps keep the column's own distribution. Similar to GUM (PrivSyn, section 4.3), which overwrites values instead.
Post-processing: uses released tables and synthetic rows only.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.columns.contingency import contingency
from privbench_core.columns.systematic import stable_order

Array = NDArray[np.float64]
Numbers = NDArray[np.integer[Any]]
# Chosen by hand, for fit and time on the benchmark data sets.
_SHARE = 0.4  # share of the rows proposed in a sweep: those that fit the tables worst
_BATCHES = 16  # per column and sweep; gaps are updated after each
_LITTLE = 0.01  # of the gaps: sweeps that take less away are not worth their time
_MAX_ROWS = 100_000  # drawn per column and sweep: tables of more rows have little sampling error


@dataclass(frozen=True)
class TargetTable:
    """A target for a table of the rows over two columns or more.

    Attributes:
        columns: Its columns.
        counts: Target weight of each cell, shape (size of the first, size of the second, ..).
        weight: Relative to other tables.
    """

    columns: tuple[str, ...]
    counts: Array
    weight: float = 1.0


class RecordSwapping:
    """Rows, and their gaps to target tables.

    All tables are concatenated in one flat array. Seen from a column, a cell of a table is at
    code * stride + the sum of other columns' codes * their steps + begin of the table.
    """

    def __init__(self, codes: Mapping[str, Codes], tables: Sequence[TargetTable], weights: Array | None) -> None:
        """Compare the rows with all ``tables``.

        Args:
            codes: Of all columns of the tables, each of shape (n,); swapped in place.
            tables: All of positive size.
            weights: Weight of each row, shape (n,); None for 1 each.
        """
        self._codes = codes
        self._weights = np.ones(len(next(iter(codes.values()), ()))) if weights is None else weights
        self._sides: dict[str, list[_Side]] = {}
        gaps = []
        begin = 0
        for table in tables:
            sizes = table.counts.shape
            steps = {name: math.prod(sizes[axis + 1 :]) for axis, name in enumerate(table.columns)}
            gaps.append(table.counts.ravel() - self._counted(table, steps, alike=weights is None))
            for name, step in steps.items():
                others = tuple((other, along) for other, along in steps.items() if other != name)
                self._sides.setdefault(name, []).append(_Side(others, step, begin))
            begin += table.counts.size
        self._gaps = np.concatenate([np.zeros(0), *gaps])
        self._joint_change = np.zeros(begin)  # workspace of `_share`, zero between calls
        # Weight of a squared gap: the inverse of its sampling variance.
        self._importance = np.concatenate([np.zeros(0), *((t.weight / (t.counts + 1)).ravel() for t in tables)])

    def _counted(self, table: TargetTable, steps: Mapping[str, int], *, alike: bool) -> Array:
        """The rows' own weight in each cell of a table, shape (cells,)."""
        if alike:
            sizes = dict(zip(table.columns, table.counts.shape, strict=True))
            return contingency(self._codes, sizes, table.columns).ravel().astype(np.float64)
        cells = sum(self._codes[name].astype(np.int64) * step for name, step in steps.items())
        return np.asarray(np.bincount(cells, self._weights, table.counts.size), dtype=np.float64)

    def sweep(
        self, columns: Collection[str], rng: np.random.Generator, within: Mapping[str, Codes] | None = None
    ) -> None:
        """Bring the rows closer to the tables, one column after the other.

        Args:
            columns: The columns that may change.
            rng: Sampling only: pairs rows.
            within: Column -> codes, shape (n,): only rows with equal codes swap; None if all rows may.
        """
        for name in columns:
            if name in self._sides:
                self._sweep((name,), rng, None if within is None else within[name])

    def fit_together(self, columns: Sequence[str], rng: np.random.Generator, most: int) -> None:
        """Bring the rows closer to the tables by pairs of rows that swap all of ``columns`` at once.

        Args:
            columns: No table has two of them.
            rng: Sampling only: pairs rows.
            most: Sweeps at most; they end when one takes little away of what is left of the gaps.
        """
        left = self._left
        for _ in range(most):
            before = left
            self._sweep(columns, rng, None)
            left = self._left
            if left > before * (1 - _LITTLE):
                return

    @property
    def _left(self) -> float:
        """Sum of squared gaps in units of their sampling variance."""
        return float(self._importance @ self._gaps**2)

    def _sweep(self, names: Sequence[str], rng: np.random.Generator, within: Codes | None) -> None:
        sides = [(name, side) for name in names for side in self._sides.get(name, ())]
        n = len(self._codes[names[0]])
        rows = np.arange(n) if n <= _MAX_ROWS else np.sort(rng.choice(n, _MAX_ROWS, replace=False, shuffle=False))
        seen = {name for name, side in sides for name in (name, *(other for other, _ in side.others))}
        codes = {name: self._codes[name][rows].astype(np.int32) for name in seen}
        offsets, own = (np.empty((len(sides), len(rows)), dtype=np.int32) for _ in range(2))
        cost = np.zeros(len(rows))
        pull = self._importance * self._gaps
        for number, (name, side) in enumerate(sides):
            offsets[number] = side.begin
            for other, step in side.others:
                offsets[number] += codes[other] * np.int32(step)
            np.multiply(codes[name], np.int32(side.stride), out=own[number])
            cost += pull[offsets[number] + own[number]]
        proposed = int(len(rows) * _SHARE)
        worst = rng.permutation(np.argpartition(cost, proposed)[:proposed])
        left, right = _partners(worst, None if within is None else within[rows])
        order = rng.permutation(len(left))
        left, right = left[order], right[order]
        # No row is in two pairs: what the rows of a pair hold does not change before its batch comes.
        a, b, left_others, right_others = (each.take(side, axis=1) for each in (own, offsets) for side in (left, right))
        left_weights, right_weights = self._weights[rows[left]], self._weights[rows[right]]
        source = np.arange(len(rows))  # whose values each row has by then
        for batch in _equal_slices(len(left), _BATCHES):
            better = batch.start + self._better(
                rng,
                a[:, batch],
                b[:, batch],
                left_others[:, batch],
                right_others[:, batch],
                left_weights[batch],
                right_weights[batch],
            )
            source[left[better]], source[right[better]] = right[better], left[better]
        for name in names:
            self._codes[name][rows] = self._codes[name][rows[source]]

    def _better(
        self,
        rng: np.random.Generator,
        a: Numbers,
        b: Numbers,
        left: Numbers,
        right: Numbers,
        left_weights: Array,
        right_weights: Array,
    ) -> Numbers:
        """Return the pairs of rows that swap their codes: those for which the weighted sum of squared gaps decreases.

        Args:
            rng: Sampling only: selects among too many swaps.
            a: What the codes of the left rows add to their cells, shape (tables, pairs).
            b: The same for the right rows.
            left: The rest of the cells of the left rows (other column's code and begin of the table), same shape.
            right: The same for the right rows.
            left_weights: Weights of the left rows, shape (pairs,).
            right_weights: Weights of the right rows.
        """
        # The left row's old and new cell, the right row's old and new cell.
        cells = np.empty((4, *a.shape), dtype=np.intp)  # numpy would make these of others at every look-up
        for place, (code, others) in enumerate(((a, left), (b, left), (b, right), (a, right))):
            np.add(code, others, out=cells[place])
        curve = self._importance[cells]
        slope = 2 * curve * self._gaps[cells]
        effect = left_weights * (slope[0] - slope[1] + left_weights * (curve[0] + curve[1]))
        effect += right_weights * (slope[2] - slope[3] + right_weights * (curve[2] + curve[3]))
        better = np.flatnonzero(effect.sum(axis=0, where=(left != right) & (a != b)) < 0)
        changes = _gap_changes(left_weights[better], right_weights[better])
        cells = cells.take(better, axis=2)
        swapped = rng.random(len(better)) < self._share(cells, changes)
        _add(self._gaps, cells[:, :, swapped], changes[:, :, swapped])
        return better[swapped]

    def _share(self, cells: Numbers, changes: Array) -> float:
        """Return the best share of some swaps: each one improves the fit, but all together may overshoot.

        The sum of squared gaps is a parabola in the share; a cell counts once for each swap that changes it.
        """
        _add(self._joint_change, cells, changes)
        curve = self._importance[cells] * changes
        quadratic = float((curve * self._joint_change[cells]).sum())
        linear = float((curve * self._gaps[cells]).sum())
        self._joint_change[cells] = 0.0
        return -linear / quadratic if quadratic > 0 else 1.0


@dataclass(frozen=True)
class _Side:
    others: tuple[tuple[str, int], ...]
    stride: int
    begin: int


def _gap_changes(left: Array, right: Array) -> Array:
    """Return what swaps of rows with these weights add to the gaps of the cells of `_better`, shape (4, 1, pairs)."""
    return np.stack([left, -left, right, -right])[:, None, :]


def _add(total: Array, cells: Numbers, changes: Array) -> None:
    """Add to cells, some of them several times; numpy is five times as fast without a shape to broadcast to."""
    np.add.at(total, cells.ravel(), np.broadcast_to(changes, cells.shape).ravel())


def _equal_slices(n: int, number: int) -> list[slice]:
    """Return where ``number`` parts of ``n`` pairs are, as `numpy.array_split` cuts them."""
    ends = np.cumsum([n // number + (place < n % number) for place in range(number)]).tolist()
    return [slice(start, end) for start, end in pairwise([0, *ends])]


def _partners(rows: Numbers, within: Codes | None) -> tuple[Numbers, Numbers]:
    """Return disjoint pairs of rows."""
    if within is None:
        half = len(rows) // 2
        return rows[:half], rows[half : 2 * half]
    rows = rows[stable_order(within[rows])]
    left, right = rows[: len(rows) // 2 * 2 : 2], rows[1::2]
    equal = within[left] == within[right]
    return left[equal], right[equal]
