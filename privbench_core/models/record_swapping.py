"""Exchanges between rows: two of them swap their values of a column where that brings tables closer to what is wanted.

An exchange leaves the column's own distribution as it is. In the spirit of GUM (PrivSyn, section 4.3), which overwrites
values. Post-processing: only released tables and synthetic rows are looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.columns.systematic import stable_order

Array = NDArray[np.float64]
Numbers = NDArray[np.integer[Any]]
_SHARE = 0.4  # of the rows are proposed in a sweep: those that disagree most with the tables
_BATCHES = 16  # per column and sweep: between two, gaps are brought up to date
_MOST = 100_000  # rows are looked at per column and sweep: chance does little to more rows than that


@dataclass(frozen=True)
class Wanted:
    """A table that rows are to have.

    Attributes:
        first, second: Its columns.
        counts: What each cell is to weigh, shape (size of the first, size of the second).
        weight: Of this table beside others.
    """

    first: str
    second: str
    counts: Array
    weight: float = 1.0


class RecordSwapping:
    """Rows, and how far they are from the tables that they are to have.

    All tables lie one after the other in one flat array. From the side of a column, a cell of a table is
    code * stride + other column's code * step + where the table begins.
    """

    def __init__(self, codes: Mapping[str, Codes], tables: Sequence[Wanted], weights: Array) -> None:
        """Compare the rows with all ``tables``.

        Args:
            codes: Of all columns of the tables, each of shape (n,); exchanged in place.
            tables: All of positive size.
            weights: How much a row counts, shape (n,).
        """
        self._codes, self._weights = codes, weights
        self._sides: dict[str, list[_Side]] = {}
        missing = []
        begin = 0
        for table in tables:
            size = table.counts.shape[1]
            cells = codes[table.first].astype(np.int64) * size + codes[table.second]
            missing.append(table.counts.ravel() - np.bincount(cells, weights, table.counts.size))
            self._sides.setdefault(table.first, []).append(_Side(table.second, size, 1, begin))
            self._sides.setdefault(table.second, []).append(_Side(table.first, 1, size, begin))
            begin += table.counts.size
        self._missing = np.concatenate([np.zeros(0), *missing])
        self._together = np.zeros(begin)  # what many exchanges would do to a cell; zero in between
        # Of a squared gap: one over the variance that chance would give it.
        self._importance = np.concatenate([np.zeros(0), *(t.weight / (t.counts.ravel() + 1) for t in tables)])

    def sweep(
        self, columns: Collection[str], rng: np.random.Generator, within: Mapping[str, Codes] | None = None
    ) -> None:
        """Bring the rows closer to the tables, one column after the other.

        Args:
            columns: Those that may change.
            rng: Decides who meets whom.
            within: Column -> what only rows that are alike in it may exchange; None if all may.
        """
        for name in columns:
            if name in self._sides:
                self._sweep(name, rng, None if within is None else within[name])

    def _sweep(self, name: str, rng: np.random.Generator, within: Codes | None) -> None:
        codes, sides = self._codes[name], self._sides[name]
        n = len(codes)
        rows = np.arange(n) if n <= _MOST else np.sort(rng.choice(n, _MOST, replace=False, shuffle=False))
        beside = np.empty((len(sides), len(rows)), dtype=np.int32)
        own = codes[rows].astype(np.int32)
        cost = np.zeros(len(rows))
        pull = self._importance * self._missing
        for number, side in enumerate(sides):
            beside[number] = self._codes[side.other][rows]
            beside[number] *= side.step
            beside[number] += side.begin
            cost += pull[beside[number] + own * side.stride]
        proposed = int(len(rows) * _SHARE)
        worst = rng.permutation(np.argpartition(cost, proposed)[:proposed])
        left, right = _partners(worst, None if within is None else within[rows])
        strides = np.array([side.stride for side in sides], dtype=np.int32)[:, None]
        for batch in np.array_split(rng.permutation(len(left)), _BATCHES):
            here, there = left[batch], right[batch]
            differ = own[here] != own[there]
            here, there = here[differ], there[differ]
            better = self._better(
                rng,
                own[here] * strides,
                own[there] * strides,
                beside[:, here],
                beside[:, there],
                self._weights[rows[here]],
                self._weights[rows[there]],
            )
            here, there = here[better], there[better]
            own[here], own[there] = own[there], own[here]
        codes[rows] = own

    def _better(
        self,
        rng: np.random.Generator,
        a: Numbers,
        b: Numbers,
        left: Numbers,
        right: Numbers,
        heavy: Array,
        light: Array,
    ) -> Numbers:
        """Which pairs of rows exchange their codes: those where that lowers the weighted sum of squared gaps.

        Args:
            rng: Decides which of too many.
            a: What the codes of the left rows add to their cells, shape (tables, pairs).
            b: The same for the right rows.
            left: What is beside the codes of the left rows, same shape.
            right: The same for the right rows.
            heavy: Weights of the left rows, shape (pairs,).
            light: Weights of the right rows.
        """
        # Out of the left row's cell and into its new one, out of the right row's and into its new one.
        cells = np.stack([a + left, b + left, b + right, a + right])
        curve = self._importance[cells]
        slope = 2 * curve * self._missing[cells]
        effect = heavy * (slope[0] - slope[1] + heavy * (curve[0] + curve[1]))
        effect += light * (slope[2] - slope[3] + light * (curve[2] + curve[3]))
        better = np.flatnonzero(effect.sum(axis=0, where=left != right) < 0)
        better = better[
            rng.random(len(better)) < self._share(cells[:, :, better], _freed(heavy[better], light[better]))
        ]
        np.add.at(self._missing, cells[:, :, better], _freed(heavy[better], light[better]))
        return better

    def _share(self, cells: Numbers, freed: Array) -> float:
        """Which share of some exchanges is best: each pays alone, but all of them may be too many.

        The sum of squared gaps is a parabola in the share; cells that many exchanges touch count once for each of them.
        """
        np.add.at(self._together, cells, freed)
        curve = self._importance[cells] * freed
        bend = float((curve * self._together[cells]).sum())
        fall = float((curve * self._missing[cells]).sum())
        self._together[cells] = 0.0
        return -fall / bend if bend > 0 else 1.0


@dataclass(frozen=True)
class _Side:
    other: str
    stride: int
    step: int
    begin: int


def _freed(heavy: Array, light: Array) -> Array:
    """Weights that exchanges take out of and put into the cells of `RecordSwapping._better`, shape (4, 1, pairs)."""
    return np.stack([heavy, -heavy, light, -light])[:, None, :]


def _partners(rows: Numbers, within: Codes | None) -> tuple[Numbers, Numbers]:
    """Rows two by two, each at most once."""
    if within is None:
        half = len(rows) // 2
        return rows[:half], rows[half : 2 * half]
    rows = rows[stable_order(within[rows])]
    left, right = rows[: len(rows) // 2 * 2 : 2], rows[1::2]
    alike = within[left] == within[right]
    return left[alike], right[alike]
