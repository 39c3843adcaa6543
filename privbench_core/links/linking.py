"""Cross-table marginals, as released, and rows linked so that they have them.

Section 3 of Alimohammadi et al. with two changes: links are learned between classes of rows, and degrees of both sides
are given. Rows with equal codes are interchangeable, so the relaxed bi-adjacency has a row and a column per *class* of
rows, not per row. It is fitted by mirror descent with the negative-entropy mirror (section 3 and appendix B): every
step multiplies the links of a cell of a cross-table marginal by a factor. Post-processing: uses released numbers and
synthetic rows only.

What classes lose: rows of one class are linked as if they were alike, so what no measured marginal tells of them (other
columns, combinations of them) is linked at random. What the relaxed matrix has no room for, because a class
more would make it too large, is left to swaps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from privbench_core.arrays import Array, Numbers, finer
from privbench_core.columns.codec import Codes
from privbench_core.estimators.fitting import fit_margins, mutual_information, raking_factors
from privbench_core.guards import FEW_ROWS, FITTING_ROUNDS, MAX_CELLS, TINY
from privbench_core.marginals.record_swapping import TargetTable, swap
from privbench_core.marginals.sampler import Model, Rows, draw_grouped
from privbench_core.stored import Storable


@dataclass(frozen=True)
class CrossMarginal(Storable):
    """Counts of linked rows by groups of codes of columns on the left and on the right, estimated from released ones.

    Attributes:
        left: Column of the row that has the key, or of its owner.
        right: Column of what is linked to it.
        groups: Group of each code of both columns; () if every code is a group.
        counts: Shape (left groups, right groups), of any total. Which rows are counted may be others on either side:
            what is kept are their odds ratios.
    """

    left: str
    right: str
    groups: tuple[Numbers, ...]
    counts: Array

    def cells(self, left: Mapping[str, Codes], right: Mapping[str, Codes]) -> tuple[Numbers, Numbers]:
        """Return the group of each row on either side."""
        first, second = left[self.left].astype(np.int64), right[self.right].astype(np.int64)
        return (self.groups[0][first], self.groups[1][second]) if self.groups else (first, second)


@dataclass(frozen=True)
class Linked:
    """A model that draws rows by themselves and links them to their owners: degrees are those of the context.

    Attributes:
        inner: Draws the rows regardless of their owners.
        cross_marginals: Released, between the context and the columns of ``inner``.
    """

    inner: Model
    cross_marginals: tuple[CrossMarginal, ...]

    def draw(self, rows: Rows, rng: np.random.Generator) -> None:
        """See `Model.draw`; pair tables of ``rows.links`` are cross-table marginals too."""
        alone = Rows(rows.n)
        self.inner.draw(alone, rng)
        known = tuple(CrossMarginal(c, t, (), joint) for (c, t), joint in rows.links.items())
        order = link_rows(rows, alone.codes, (*self.cross_marginals, *known), rng)
        for name, codes in alone.codes.items():
            rows.add(name, alone.sizes[name], codes[order])


def link_rows(
    rows: Rows, others: Mapping[str, Codes], cross_marginals: Sequence[CrossMarginal], rng: np.random.Generator
) -> Numbers:
    """Return which of ``others`` each row is linked to, each exactly once; shape (n,).

    The relaxed bi-adjacency of the strongest marginals is rounded by systematic sampling: every link has the
    probability of the exponential race of Algorithm 7, and counts differ from expected ones by less than one. Then
    pairs of links swap ends if that brings all marginals closer, up to 100,000 rows at a time (Algorithm 9's slices).

    Args:
        rows: With all columns on the left.
        others: Codes of the columns on the right, each of shape (n,).
        cross_marginals: Those of other columns are left out.
        rng: Sampling only.
    """
    order = np.asarray(rng.permutation(rows.n), dtype=np.int64)
    known = [w for w in cross_marginals if w.left in rows.codes and w.right in others]
    if not known or not rows.n:
        return order
    tables = [_Table.of(cross, rows.codes, others) for cross in known]
    tables.sort(key=lambda table: -mutual_information(table.links))
    order = _rounded(tables, rows.n, rng)
    if rows.n < FEW_ROWS:
        return order
    codes = {_ITEM: order}
    for k, table in enumerate(tables):
        codes |= {f"left {k}": table.left, f"right {k}": table.right[order]}
    targets = [TargetTable((f"left {k}", f"right {k}"), table.links) for k, table in enumerate(tables)]
    swap(codes, targets, [(_ITEM, *(f"right {k}" for k in range(len(tables))))], rng, sweeps=FITTING_ROUNDS)
    return codes[_ITEM]


_ITEM = "item"


@dataclass(frozen=True)
class _Table:
    """A cross-table marginal among certain rows: their cells, and the links wanted between cells."""

    left: Numbers
    right: Numbers
    links: Array

    @classmethod
    def of(cls, cross: CrossMarginal, left: Mapping[str, Codes], right: Mapping[str, Codes]) -> _Table:
        cells = cross.cells(left, right)
        margins = [
            ((axis,), np.bincount(of, minlength=size).astype(np.float64))
            for axis, (of, size) in enumerate(zip(cells, cross.counts.shape, strict=True))
        ]
        return cls(*cells, fit_margins(cross.counts, margins))


def _rounded(tables: Sequence[_Table], n: int, rng: np.random.Generator) -> Numbers:
    """Return links drawn from the relaxed bi-adjacency of the first tables whose classes are few enough."""
    left, right = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    chosen = []
    for table in tables:
        both = finer(left, table.left), finer(right, table.right)
        if (int(both[0].max()) + 1) * (int(both[1].max()) + 1) <= MAX_CELLS:
            left, right = both
            chosen.append(table)
    first, other = (np.unique(side, return_index=True)[1] for side in (left, right))
    targets = [ClassTarget(table.left[first], table.right[other], table.links) for table in chosen]
    links = relaxed_links(np.bincount(left).astype(np.float64), np.bincount(right).astype(np.float64), targets)
    wanted = draw_grouped(links, left, rng)
    return _matched(wanted, right, rng)


def _matched(wanted: Codes, have: Numbers, rng: np.random.Generator) -> Numbers:
    """Return another row of the class that each row wants, in random order; any that is left where there is none."""
    rows, others = (rng.permutation(len(have)) for _ in range(2))
    rows = rows[np.argsort(wanted[rows], kind="stable")]
    others = others[np.argsort(have[others], kind="stable")]
    of_row, of_other = wanted[rows].astype(np.int64), have[others]
    place = np.searchsorted(of_other, of_row) + np.arange(len(rows)) - np.searchsorted(of_row, of_row)
    met = place < np.searchsorted(of_other, of_row, side="right")
    order = np.empty(len(have), dtype=np.int64)
    order[rows[met]] = others[place[met]]
    left = np.ones(len(have), dtype=bool)
    left[place[met]] = False
    order[rows[~met]] = rng.permutation(others[left])
    return order


@dataclass(frozen=True)
class ClassTarget:
    """The links wanted between cells of a cross-table marginal.

    Attributes:
        left, right: Cell of each class, shapes (left classes,) and (right classes,).
        links: Shape (left cells, right cells).
    """

    left: Numbers
    right: Numbers
    links: Array


def relaxed_links(left: Array, right: Array, targets: Sequence[ClassTarget]) -> Array:
    """Return the links between classes, shape (left classes, right classes), none below zero.

    A step along the gradient of one marginal in the dual of the negative entropy, as long as brings its cells to their
    targets, is the Bregman projection onto them: so there is no step size to choose. Rounds end with the degrees.

    Args:
        left: Links of each class on the left, shape (left classes,).
        right: The same on the right, with the same sum.
        targets: All with the sums of ``left`` and ``right`` in their cells.
    """
    links = np.outer(left, right) / max(float(right.sum()), TINY)
    sides = [(_sums(t.left, t.links.shape[0]), _sums(t.right, t.links.shape[1])) for t in targets]
    for _ in range(FITTING_ROUNDS if len(targets) > 1 else 1):
        for target, (of_left, of_right) in zip(targets, sides, strict=True):
            current = (of_right @ (of_left @ links).T).T
            links *= raking_factors(target.links, current)[:, target.right][target.left]
        links *= raking_factors(right, links.sum(axis=0))
        links *= raking_factors(left, links.sum(axis=1))[:, None]
    return links


def _sums(cells: Numbers, size: int) -> scipy.sparse.csr_array:
    """Return the matrix that adds up the classes of each cell, shape (size, classes)."""
    classes = np.arange(len(cells))
    return scipy.sparse.csr_array((np.ones(len(cells)), (cells, classes)), (size, len(cells)))
