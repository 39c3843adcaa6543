"""Synthetic rows while they are drawn: the codes so far, and how a column is drawn given those that are there.

The joint of a column and its context starts from (the column's marginal) x (context as *drawn*) and is fitted by
iterative proportional fitting to the released pair tables and, last in each round, to the drawn context itself, so that
noise in the pair tables cannot distort columns that are drawn already. Draws have low variance, by systematic sampling:
counts of codes are the expected ones, rounded; all groups in one pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import scipy
from numpy.typing import NDArray

from privbench_core.arrays import Array
from privbench_core.columns.codec import Codes
from privbench_core.columns.exact_sums import cell_index
from privbench_core.columns.systematic import diffused_counts, distribute, group_counts, narrow, systematic_counts
from privbench_core.estimators.fitting import AxesMargin, CodesMargin, fit_margins, mutual_information, rake
from privbench_core.guards import BLOCK_ROWS, MAX_CELLS, SAMPLE_ROWS, SETTLING_ROUNDS, TINY

PairTables = Mapping[tuple[str, str], Array]


@dataclass
class Rows:
    """Rows under construction.

    Attributes:
        n: Number of rows.
        codes: Columns drawn so far, each of shape (n,): attributes of the table, and context (columns of the parent
            row).
        sizes: Number of codes of each of them.
        weights: How much a row counts in the measure the model was fitted in (1/group size), None for all alike.
        links: Released joint probabilities of (context column, column), shape (size, size).
    """

    n: int
    codes: dict[str, Codes] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    weights: Array | None = None
    links: PairTables = field(default_factory=dict)

    def take(self, index: NDArray[np.int64] | slice) -> Rows:
        """A copy of some rows, to draw them apart."""
        codes = {name: values[index] for name, values in self.codes.items()}
        weights = None if self.weights is None else self.weights[index]
        n = len(index) if not isinstance(index, slice) else index.stop - index.start
        return Rows(n, codes, dict(self.sizes), weights, self.links)

    def put(self, index: NDArray[np.int64], part: Rows) -> None:
        """Copy back the columns that were drawn for the rows of ``index``."""
        for name, values in part.codes.items():
            if name not in self.codes:
                self.codes[name] = np.zeros(self.n, dtype=values.dtype)
                self.sizes[name] = part.sizes[name]
            self.codes[name][index] = values

    def add(self, name: str, size: int, codes: Codes) -> None:
        """Add a drawn column."""
        self.codes[name], self.sizes[name] = codes, size


class Model(Protocol):
    """A released model of a table's attributes; a new class of models is `stored.Storable`."""

    def draw(self, rows: Rows, rng: np.random.Generator) -> None:
        """Add all columns of the model to ``rows``, given the context columns there."""
        ...


def draw_grouped(
    conditionals: Array,
    groups: NDArray[np.integer[Any]],
    rng: np.random.Generator,
    *,
    diffused: bool = False,
) -> Codes:
    """Draw one code per row from the distribution of the row's group, by systematic sampling within each group.

    In a group of m rows a code of probability p is drawn ⌊mp⌋ or ⌈mp⌉ times.

    Args:
        conditionals: Non-negative weights, shape (groups, codes); a group without weight is drawn uniformly.
        groups: Group of each row, shape (n,).
        rng: Sampling only.
        diffused: Whether codes are as even over all groups as within each (`diffused_counts`), which takes a moment for
            each group; a row's code then has the distribution of its group and of those before.
    """
    n, size = len(groups), conditionals.shape[1]
    if n == 0:
        return np.zeros(0, dtype=np.uint8)
    counts = group_counts(groups, len(conditionals))
    present = np.flatnonzero(counts)
    weights = np.maximum(conditionals[present], 0.0)
    sums = weights.sum(axis=1, keepdims=True)
    weights = np.where(sums > 0, weights, 1.0)
    if diffused:
        expected = weights / weights.sum(axis=1, keepdims=True) * counts[present][:, None]
        numbers = diffused_counts(expected, counts[present]).ravel()
    else:
        cumulated = np.cumsum(weights, axis=1)
        shares = (cumulated / cumulated[:, -1:]).ravel()
        numbers = systematic_counts(shares, np.repeat(np.arange(len(present)), size), counts[present], rng)
    codes = np.tile(narrow(np.arange(size), size), len(present))
    return distribute(codes, numbers, groups if len(present) > 1 else None, rng)


@dataclass(frozen=True)
class PairMarginal:
    """A released joint of the target and one drawn column, shape (target, column), adding up to 1.

    Attributes:
        column: The drawn column.
        joint: Shape (codes of the target, codes of the column).
        latent: Whether the column is a latent attribute, which comes after all observed columns.
    """

    column: str
    joint: Array
    latent: bool = False


def draw_column(
    rows: Rows,
    marginal: Array,
    pair_tables: Sequence[PairMarginal],
    rng: np.random.Generator,
    *,
    diffused: bool = False,
) -> Codes:
    """Draw the codes of a column for all rows, shape (n,).

    Args:
        rows: Rows with the context columns drawn.
        marginal: Released probabilities of the target's codes.
        pair_tables: Released joints with drawn columns; the most informative ones, within the limits, are used.
        rng: Sampling only.
        diffused: See `draw_grouped`; where there are too many contexts, codes are as even within each alone.
    """
    chosen, codes_of, context = _chosen(len(marginal), pair_tables, rows)
    if not chosen or not rows.n:
        return draw_grouped(marginal[None, :], np.zeros(rows.n, dtype=np.uint8), rng)
    drawn = np.bincount(context, weights=rows.weights).astype(float)
    drawn /= max(drawn.sum(), TINY)
    parts = []
    for pair_table, codes in zip(chosen, codes_of, strict=True):
        shape, ends = (len(codes), pair_table.joint.shape[1]), np.arange(len(codes) + 1)
        sums = scipy.sparse.csr_array((np.ones(len(codes)), codes, ends), shape).T.tocsr()  # by code
        # Within one part of a mixture, a table released for the whole keeps its odds ratios, but not its margins.
        target = fit_margins(pair_table.joint, [((0,), marginal), ((1,), sums @ drawn)]).T
        parts.append(CodesMargin(target, codes, sums))
    joint = np.outer(drawn, marginal)
    context_margin = AxesMargin.of(joint.shape, (0,), drawn)
    # The most informative table comes last in each round, and alone in the last ones: it agrees with the context and
    # the marginal, and holds with both where other tables contradict it.
    if len(parts) > 1:
        rake(joint, [*parts[::-1], context_margin])
    rake(joint, [parts[0], context_margin], SETTLING_ROUNDS)
    # Where tables leave nothing together, as of a parent with most of the children, the most informative one decides.
    for fallback in (parts[0].target[parts[0].codes], marginal):
        empty = joint.sum(axis=1) <= 0
        joint[empty] = fallback[empty] if fallback.ndim > 1 else fallback
    few = len(joint) <= 5_000  # noqa: PLR2004 - contexts over which draws are made even
    return draw_grouped(joint, context, rng, diffused=diffused and few)


def _chosen(
    size: int, pair_tables: Sequence[PairMarginal], rows: Rows
) -> tuple[list[PairMarginal], list[Codes], Codes]:
    """Return the most informative pair tables, within the limits, each context's codes of them, and that of each row.

    Greedy: each next table is the one with the most information on the target that earlier tables do not share. Latent
    attributes come after all observed columns: a type follows from its group's rows and so knows most of them, but that
    holds only as far as drawn types and columns meet as in the source. Contexts are numbered in the order of their
    codes, the first table's first; contexts without rows get no number.
    """
    chosen: list[PairMarginal] = []
    codes_of: list[Codes] = []
    context, contexts = np.zeros(rows.n, dtype=np.int32), 1
    parts = [slice(start, start + BLOCK_ROWS) for start in range(0, rows.n, BLOCK_ROWS)]
    left = sorted(pair_tables, key=lambda pair_table: -mutual_information(pair_table.joint))
    information = [mutual_information(pair_table.joint) for pair_table in left]
    known = [0.0] * len(left)  # the part of it that the chosen pair tables share
    most = 6  # columns that a drawn one is conditioned on
    while left and len(chosen) < most:
        best = max(range(len(left)), key=lambda i: (not left[i].latent, information[i] - known[i]))
        pair_table, gained, _ = left.pop(best), information.pop(best), known.pop(best)
        columns = pair_table.joint.shape[1]
        both, sizes = (context, rows.codes[pair_table.column]), {"context": contexts, "column": columns}

        def finer(part: slice, both: tuple[Codes, Codes] = both, sizes: Mapping[str, int] = sizes) -> Codes:
            return cell_index({"context": both[0][part], "column": both[1][part]}, sizes, ("context", "column"))

        present = np.zeros(contexts * columns, dtype=bool)
        for part in parts:
            present[finer(part)] = True
        found = np.flatnonzero(present)
        if len(found) * size > MAX_CELLS:
            continue
        chosen.append(pair_table)
        before, code = np.divmod(found, columns)
        codes_of = [*(codes[before] for codes in codes_of), code.astype(np.int32)]
        number = (np.cumsum(present) - 1).astype(np.int32)
        for part in parts:
            context[part] = number[finer(part)]
        contexts = len(found)
        if len(left) > most - len(chosen):  # otherwise all of them are used
            shared = _shared(pair_table, left, rows)
            known = [max(k, min(gained * s, i)) for k, s, i in zip(known, shared, information, strict=True)]
    return chosen, codes_of, context


def _shared(pair_table: PairMarginal, others: Sequence[PairMarginal], rows: Rows) -> list[float]:
    """Return the share of the entropy of a table's column that each other table's column shares, in the rows.

    Its information on the target is assumed to be shared in the same proportion (Kwak and Choi 2002, equation 11).
    """
    sample = slice(None, None, max(1, rows.n // SAMPLE_ROWS))
    columns = pair_table.joint.shape[1]
    own = rows.codes[pair_table.column][sample].astype(np.int64)
    entropy = mutual_information(np.diag(np.bincount(own, minlength=columns).astype(float)))
    shares = []
    for other in others:
        size = other.joint.shape[1]
        cells = np.bincount(own * size + rows.codes[other.column][sample], minlength=columns * size)
        both = cells.reshape(columns, size).astype(float)
        shares.append(mutual_information(both) / entropy if entropy > 0 else 0.0)
    return shares
