"""Drawing one column given columns that are drawn already: a small joint fitted to released pair tables.

The joint of the target and its context starts from (target's marginal) x (context as *drawn*) and is fitted by
iterative proportional fitting to the released pair tables and, last in each round, to the drawn context itself, so
that what noise did to the pair tables cannot distort the columns that stand already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from privbench_core.columns.codec import Codes
from privbench_core.estimate.fitting import fit_margins, mutual_information
from privbench_core.models.draw import draw_grouped
from privbench_core.models.rows import Rows

Array = NDArray[np.float64]
_ROUNDS = 15
_RAKING = 10
_MAX_CONTEXT = 6
_SEEN = 10_000  # rows that are looked at for what two columns share
_MAX_CELLS = 500_000  # contexts that rows are in, times codes of the target
_NOTHING = 1e-300  # what is below is empty, and stays so
_MOST = 1e9  # by which one round may raise a cell


@dataclass(frozen=True)
class PairMarginal:
    """A released joint of the target and one drawn column, shape (target, column), adding up to 1."""

    column: str
    joint: Array


def draw_column(rows: Rows, marginal: Array, pair_tables: Sequence[PairMarginal], rng: np.random.Generator) -> Codes:
    """Codes of a column for all rows, shape (n,).

    Args:
        rows: Rows with the context columns drawn.
        marginal: Released probabilities of the target's codes.
        pair_tables: Released joints with drawn columns; the few that tell most together, within the limits, are used.
        rng: Sampling only.
    """
    chosen, context = _chosen(len(marginal), pair_tables, rows)
    if not chosen or not rows.n:
        return draw_grouped(marginal[None, :], np.zeros(rows.n, dtype=np.uint8), rng)
    first = np.zeros(int(context.max()) + 1, dtype=np.int64)
    first[context] = np.arange(rows.n)  # a row of each context
    drawn = np.bincount(context, weights=rows.weights).astype(float)
    drawn /= max(drawn.sum(), _NOTHING)
    parts = []
    for pair_table in chosen:
        codes = rows.codes[pair_table.column][first].astype(np.int32)
        sums = csr_array(
            (np.ones(len(codes)), codes, np.arange(len(codes) + 1)), (len(codes), pair_table.joint.shape[1])
        ).T
        parts.append((codes, sums.tocsr(), _raked(pair_table.joint, marginal, sums @ drawn).T))
    joint = np.outer(drawn, marginal)
    for _ in range(2 if len(chosen) == 1 else _ROUNDS):
        for codes, sums, target in parts:
            current = sums @ joint
            ratio = np.divide(target, current, out=np.zeros_like(target), where=current > _NOTHING)
            joint *= np.minimum(ratio, _MOST)[codes]
        whole = joint.sum(axis=1)
        joint *= np.divide(drawn, whole, out=np.zeros_like(drawn), where=whole > _NOTHING)[:, None]
    joint[joint.sum(axis=1) <= 0] = marginal
    return draw_grouped(joint, context, rng)


def _raked(joint: Array, marginal: Array, column: Array) -> Array:
    """``joint`` fitted to the target's marginal and, last, to the drawn ``column``.

    A table released for a whole mixture keeps its odds ratios inside of a part that way, but not its margins.
    """
    return fit_margins(joint, [((0,), marginal), ((1,), column)], _RAKING)


def _chosen(size: int, pair_tables: Sequence[PairMarginal], rows: Rows) -> tuple[list[PairMarginal], NDArray[np.int64]]:
    """The pair tables that together tell most about the target, within the limits, and the context of each row.

    One after the other, that with the most information on the target beyond what those before it say already: two
    columns that determine each other are one column. Contexts are numbered in the order of their codes, the first
    table's first; those that no row is in have none.
    """
    chosen: list[PairMarginal] = []
    context, contexts = np.zeros(rows.n, dtype=np.int64), 1
    left = sorted(pair_tables, key=lambda pair_table: -mutual_information(pair_table.joint))
    tells = [mutual_information(pair_table.joint) for pair_table in left]
    known = [0.0] * len(left)  # of that, what the chosen pair tables say already
    while left and len(chosen) < _MAX_CONTEXT:
        best = int(np.argmax(np.subtract(tells, known)))
        pair_table, told, _ = left.pop(best), tells.pop(best), known.pop(best)
        columns = pair_table.joint.shape[1]
        finer = context * columns + rows.codes[pair_table.column]
        there = np.zeros(contexts * columns, dtype=bool)
        there[finer] = True
        found = int(there.sum())
        if found * size > _MAX_CELLS:
            continue
        chosen.append(pair_table)
        context, contexts = (np.cumsum(there) - 1)[finer], found
        if len(left) > _MAX_CONTEXT - len(chosen):  # else all of them are taken
            shared = _shared(pair_table, left, rows)
            known = [max(k, min(told * s, t)) for k, s, t in zip(known, shared, tells, strict=True)]
    return chosen, context


def _shared(pair_table: PairMarginal, others: Sequence[PairMarginal], rows: Rows) -> list[float]:
    """Of the information in a table's column, the share that each other table's column has too, among the rows.

    What the column says about the target is taken to be shared alike (Kwak and Choi 2002, equation 11).
    """
    some = slice(None, None, max(1, rows.n // _SEEN))
    columns = pair_table.joint.shape[1]
    own = rows.codes[pair_table.column][some].astype(np.int64)
    entropy = mutual_information(np.diag(np.bincount(own, minlength=columns).astype(float)))
    shares = []
    for other in others:
        size = other.joint.shape[1]
        cells = np.bincount(own * size + rows.codes[other.column][some], minlength=columns * size)
        both = cells.reshape(columns, size).astype(float)
        shares.append(mutual_information(both) / entropy if entropy > 0 else 0.0)
    return shares
