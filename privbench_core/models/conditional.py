"""Drawing one column given columns that are drawn already: a small joint fitted to released pair tables.

The joint of the target and its context starts from (target's marginal) x (context as *drawn*) and is fitted by
iterative proportional fitting to the released pair tables and, last in each round, to the drawn context itself, so
that what noise did to the pair tables cannot distort the columns that stand already.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privbench_core.counts.contingency import cell_index
from privbench_core.domain.codec import Codes
from privbench_core.models.draw import draw_grouped
from privbench_core.models.estimate import fit_margins, mutual_information
from privbench_core.models.rows import Rows

Array = NDArray[np.float64]
_ROUNDS = 15
_RAKING = 10
_MAX_CONTEXT = 4
_MAX_CELLS = 300_000
_FLOOR = 1e-12  # weight of context cells that no row is in, so that fitting never divides by zero


@dataclass(frozen=True)
class Tie:
    """A released joint of the target and one drawn column, shape (target, column), adding up to 1."""

    column: str
    joint: Array


def draw_column(rows: Rows, marginal: Array, ties: Sequence[Tie], rng: np.random.Generator) -> Codes:
    """Codes of a column for all rows, shape (n,).

    Args:
        rows: Rows with the context columns drawn.
        marginal: Released probabilities of the target's codes.
        ties: Released joints with drawn columns; the strongest few that fit into the cell limit are used.
        rng: Sampling only.
    """
    chosen = _strongest(len(marginal), ties)
    if not chosen:
        return draw_grouped(marginal[None, :], np.zeros(rows.n, dtype=np.uint8), rng)
    shape = [rows.sizes[tie.column] for tie in chosen]
    context = cell_index(rows.codes, rows.sizes, [tie.column for tie in chosen])
    weights = rows.weights
    drawn = np.bincount(context, weights=weights, minlength=math.prod(shape)).astype(float).reshape(shape)
    drawn = drawn / max(drawn.sum(), _FLOOR) + _FLOOR
    margins: list[tuple[tuple[int, ...], Array]] = [
        ((0, axis), _raked(tie.joint, marginal, drawn, axis - 1)) for axis, tie in enumerate(chosen, start=1)
    ]
    margins.append((tuple(range(1, len(shape) + 1)), drawn))
    joint = fit_margins(np.multiply.outer(marginal, drawn), margins, 2 if len(chosen) == 1 else _ROUNDS)
    conditionals = joint.reshape(len(marginal), -1).T
    empty = conditionals.sum(axis=1) <= 0
    conditionals[empty] = marginal
    return draw_grouped(conditionals, context, rng)


def _raked(joint: Array, marginal: Array, drawn: Array, axis: int) -> Array:
    """``joint`` fitted to the target's marginal and, last, to the column on ``axis`` of the drawn context.

    A table released for a whole mixture keeps its odds ratios inside of a part that way, but not its margins.
    """
    column = drawn.sum(axis=tuple(other for other in range(drawn.ndim) if other != axis))
    return fit_margins(joint, [((0,), marginal), ((1,), column)], _RAKING)


def _strongest(size: int, ties: Sequence[Tie]) -> list[Tie]:
    """The ties with the most information on the target, within the limits on columns and cells."""
    ranked = sorted(ties, key=lambda tie: -mutual_information(tie.joint))
    chosen: list[Tie] = []
    cells = size
    for tie in ranked:
        columns = tie.joint.shape[1]
        if len(chosen) < _MAX_CONTEXT and cells * columns <= _MAX_CELLS:
            chosen.append(tie)
            cells *= columns
    return chosen
