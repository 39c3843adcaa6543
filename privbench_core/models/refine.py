"""Drawn rows, moved closer to all released pair tables at once.

Columns are drawn one after the other, each given the few that tell most about it (`conditional.draw_column`): what all
other tables say is lost, and chance adds to that. Here two rows exchange their values of a column wherever that brings
the tables of that column closer to the released ones. An exchange leaves the column's own distribution as it is, and
rows keep their context. In the spirit of GUM (PrivSyn, section 4.3), which overwrites values. Post-processing: only
released tables and synthetic rows are looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privbench_core.domain.codec import Codes
from privbench_core.models.estimate import fit_margins
from privbench_core.models.rows import PairTables, Rows

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]
_SWEEPS = 2
_SHARE = 0.4  # of the rows are proposed in a sweep: those that disagree most with the tables
_BATCHES = 16  # per column and sweep: between two, gaps are brought up to date
_MOST = 100_000  # rows are looked at per column and sweep: chance does little to more rows than that
_FEWEST = 200  # rows: below that, tables are all chance
_RAKING = 10


def refine(rows: Rows, columns: Sequence[str], tables: PairTables, rng: np.random.Generator) -> None:
    """Exchange values of ``columns`` between rows, in place.

    Tables are fitted to the margins that the rows have: exchanges cannot change those, and rows of a part of a mixture,
    or rows given their context, need not have the margins of the whole.

    Args:
        rows: With all columns of the tables drawn.
        columns: Those that may change; the others are context.
        tables: Released joints, adding up to 1 each: (column, column) -> shape (size, size).
        rng: Sampling only.
    """
    if rows.n < _FEWEST or not tables:
        return
    weights = np.ones(rows.n) if rows.weights is None else rows.weights / rows.weights.mean()
    ties: dict[str, list[_Tie]] = {name: [] for name in columns}
    for (first, second), joint in tables.items():
        table = _Table.of(joint, rows.codes[first], rows.codes[second], weights)
        size = joint.shape[1]
        for name, other, strides in ((first, second, (size, 1)), (second, first, (1, size))):
            if name in ties:
                ties[name].append(_Tie(table, rows.codes[other], *strides))
    for _ in range(_SWEEPS):
        for name in columns:
            if ties[name]:
                _exchange(rows.codes[name], ties[name], weights, rng)


@dataclass
class _Table:
    """A released table beside that of the rows, flat.

    Attributes:
        gap: Weight that is missing in each cell; changes with every exchange.
        importance: Of a squared gap: one over the standard deviation that chance would give it.
    """

    gap: Array
    importance: Array

    @classmethod
    def of(cls, joint: Array, first: Codes, second: Codes, weights: Array) -> _Table:
        """The gaps of rows with these codes."""
        cells = first.astype(np.int64) * joint.shape[1] + second
        drawn = np.bincount(cells, weights, joint.size)
        square = drawn.reshape(joint.shape)
        wanted = fit_margins(joint, [((0,), square.sum(axis=1)), ((1,), square.sum(axis=0))], _RAKING).ravel()
        return cls(wanted - drawn, 1 / np.sqrt(wanted + 1))


@dataclass(frozen=True)
class _Tie:
    """A table of the column at hand and another one: a cell is code * stride + other's code * step."""

    table: _Table
    other: Codes
    stride: int
    step: int

    def beside(self, rows: Numbers) -> Numbers:
        """What the other column adds to the cells of some rows."""
        return self.other[rows] * np.int64(self.step)


def _exchange(codes: Codes, ties: Sequence[_Tie], weights: Array, rng: np.random.Generator) -> None:
    """One sweep over a column."""
    seen = rng.permutation(len(codes))[:_MOST]
    own = codes[seen].astype(np.int64)
    cost = np.zeros(len(seen))
    for tie in ties:
        cost += (tie.table.importance * tie.table.gap)[own * tie.stride + tie.beside(seen)]
    number = int(len(seen) * _SHARE)
    worst = rng.permutation(seen[np.argpartition(cost, number)[:number]])
    half = number // 2
    for batch in np.array_split(np.arange(half), _BATCHES):
        _exchange_some(codes, ties, weights, worst[batch], worst[half + batch])


def _exchange_some(codes: Codes, ties: Sequence[_Tie], weights: Array, left: Numbers, right: Numbers) -> None:
    """Exchange the codes of rows ``left[i]`` and ``right[i]`` where that lowers the weighted sum of squared gaps."""
    differ = codes[left] != codes[right]
    left, right = left[differ], right[differ]
    a, b = codes[left].astype(np.int64), codes[right].astype(np.int64)
    heavy, light = weights[left], weights[right]
    change = np.zeros(len(left))
    cells = []
    for tie in ties:
        beside_left, beside_right = tie.beside(left), tie.beside(right)
        of_a, of_b = a * tie.stride, b * tie.stride
        cells.append((of_a + beside_left, of_b + beside_left, of_b + beside_right, of_a + beside_right))
        slope, curve = tie.table.importance * tie.table.gap * 2, tie.table.importance
        out_left, in_left, out_right, in_right = cells[-1]
        effect = heavy * (slope[out_left] - slope[in_left] + heavy * (curve[out_left] + curve[in_left]))
        effect += light * (slope[out_right] - slope[in_right] + light * (curve[out_right] + curve[in_right]))
        change += np.where(beside_left == beside_right, 0.0, effect)
    better = np.flatnonzero(change < 0)
    heavy, light = heavy[better], light[better]
    for tie, (out_left, in_left, out_right, in_right) in zip(ties, cells, strict=True):
        moved = np.concatenate([out_left[better], in_left[better], out_right[better], in_right[better]])
        tie.table.gap += np.bincount(
            moved, np.concatenate([heavy, -heavy, light, -light]), minlength=len(tie.table.gap)
        )
    codes[left[better]], codes[right[better]] = b[better], a[better]
