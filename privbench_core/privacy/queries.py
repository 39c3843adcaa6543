"""Queries on a coded view: a closed list, integer-valued, each with a proven sensitivity.

A view's rows carry integer weights; adding or removing one unit moves a total weight of at most ``s`` (the view's
stability, times the weight scale). Each query states how far its answer then moves in L1 and in L2; the proofs are in
``docs/privacy.md``, and the record-and-replay tests check them on every synthesizer.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.exact_sums import HALF, LARGEST, joined, total, weighted_sums, words
from privbench_core.errors import InternalError
from privbench_core.estimators.coarsening import merge_codes
from privbench_core.privacy.clipping import lengths_of_cells
from privbench_core.privacy.noise import Counts
from privbench_core.privacy.split_rules import Centres
from privbench_core.privacy.views import CodedView, Groupings, Scales


class Query(ABC):
    """A query with a known sensitivity."""

    def marginals(self) -> tuple[tuple[str, ...], ...]:
        """Return the columns of each marginal that `evaluate` reads: public; none if it reads rows themselves."""
        return ()

    @abstractmethod
    def evaluate(self, view: CodedView) -> Counts:
        """Return the exact answer: private."""

    @abstractmethod
    def moves(self, view: CodedView) -> tuple[float, float]:
        """Return (L1, L2²): the most that one unit moves the answer."""

    def scale(self, view: CodedView) -> int:
        """Return the integer that represents a count of 1."""
        return view.weight_scale


@dataclass(frozen=True)
class Marginal(Query):
    """Weighted counts over all combinations of ``columns``, or of *released* groups of their codes.

    With a unit, cells lose a total of b and gain one of a, b + a = ``s`` (`CodedView.shifts`): L1 is at most s, and L2²
    at most b² + a², as neither is negative in any cell. A group is a function of the code only, so merged cells are
    sums of disjoint sets of cells, and they lose and gain no more than these.

    Where units are *clipped*, each has at most T in L2 norm, and not in sum: cells lose a vector of norm b and gain one
    of norm a. So L2² is at most b² + a², and L1 is larger by the square root of the number of cells at most. With
    *scales* that is so of the counts times these, which are what the answer has.

    Attributes:
        columns: The columns.
        groups: Of each column the group of each code, dense from 0, shape (size,); none: every code is a cell.
        clipped: Whether the counts of each unit are clipped in L2 norm.
        scales: Of each column by what counts with a (group of) code are multiplied before units are clipped, released
            whole numbers from 1 to `LARGEST_SCALE`; none: 1.
    """

    columns: tuple[str, ...]
    groups: Groupings = ()
    clipped: bool = False
    scales: Scales = ()

    def marginals(self) -> tuple[tuple[str, ...], ...]:
        """Return the one marginal; none where units are clipped, as its cells are no sums of others."""
        return () if self.clipped else (self.columns,)

    def evaluate(self, view: CodedView) -> Counts:
        """Return counts, shape (numbers of codes or groups); times the scales, where there are some."""
        if self.clipped:
            found = view.data.clipped_counts(self.columns, self.groups, self.scales)
            lengths = lengths_of_cells(self.scales)
            return np.minimum(found, LARGEST // lengths) * lengths
        counts = view.counts(self.columns)
        if not self.groups:
            return counts
        if counts.sum(dtype=np.float64) < LARGEST / 2:
            return merge_codes(counts, self.groups)
        low, high = (merge_codes(word, self.groups) for word in words(counts, HALF))
        return joined(low, high, HALF)

    def moves(self, view: CodedView) -> tuple[float, float]:
        """Return the bound: L1 ≤ b + a; L2² ≤ b² + a²."""
        if not self.clipped:
            return _moves(*view.shifts)
        if self.scales and view.own <= 1:
            raise InternalError("counts cannot be scaled where every row is a unit, and weighs 1")
        sizes = [int(of.max(initial=-1)) + 1 for of in self.groups] or [view.sizes[name] for name in self.columns]
        return _clipped_moves(math.prod(sizes), *view.clipped_shifts)


@dataclass(frozen=True)
class Distances(Query):
    """L1 distances of marginals to *released* reference counts, summed in groups.

    ``groups[g]`` lists (columns, reference); the answer's entry ``g`` is Σ over the group of ‖marginal - reference‖₁.
    By the triangle inequality one unit moves each distance by at most ``s``, whatever the reference: the R-score of
    PrivMRF and PrivPetal against released one-way marginals has sensitivity s instead of the 2s (up to a constant) of
    the score against exact ones, and no dependence on n. References and answers are clipped at 2⁶² (after scaling), so
    that nothing overflows: clipping references is post-processing, and clipping answers moves no two further apart.

    Attributes:
        groups: The references in counts, of the shape that the marginal has.
    """

    groups: tuple[tuple[tuple[tuple[str, ...], NDArray[np.float64]], ...], ...]

    def marginals(self) -> tuple[tuple[str, ...], ...]:
        """Return those that are compared with a reference."""
        return tuple(columns for group in self.groups for columns, _ in group)

    def evaluate(self, view: CodedView) -> Counts:
        """Return one sum of distances per group, shape (groups,)."""
        sums = (sum(_distance(view, columns, reference) for columns, reference in group) for group in self.groups)
        return np.array([min(each, LARGEST) for each in sums], dtype=np.int64)

    def moves(self, view: CodedView) -> tuple[float, float]:
        """Return the bound: entry g moves by at most s·|group g|."""
        lengths = [len(group) for group in self.groups]
        s = float(view.stability)
        return s * sum(lengths), s**2 * sum(k * k for k in lengths)


def _distance(view: CodedView, columns: tuple[str, ...], reference: NDArray[np.float64]) -> int:
    """Return ‖marginal - reference‖₁, times the weight scale, exactly."""
    most = LARGEST / view.weight_scale
    public = np.rint(np.clip(reference, -most, most) * view.weight_scale).astype(np.int64)
    return total(np.abs(view.counts(columns) - public))


@dataclass(frozen=True)
class SignProducts(Query):
    """Sums over rows of the product of the signs of some columns: how often signs agree, less how often they do not.

    Each code of a column has the sign -1 or 1, or 0 for no say. An answer is Σ over the cells of a marginal of the
    count times 1, -1 or 0, so one unit moves it by no more than the marginal in L1 norm: by at most ``s``. Answers are
    clipped at ±2⁶² (after scaling), which moves no two further apart.

    Attributes:
        signs: Column -> sign of each code, shape (size,).
        subsets: The columns of each answer, each once.
    """

    signs: Mapping[str, NDArray[np.int64]]
    subsets: tuple[tuple[str, ...], ...]

    def marginals(self) -> tuple[tuple[str, ...], ...]:
        """Return one per subset."""
        return self.subsets

    def evaluate(self, view: CodedView) -> Counts:
        """Return one sum per subset, shape (subsets,)."""
        return np.array([self._sum(view, columns) for columns in self.subsets], dtype=np.int64)

    def _sum(self, view: CodedView, columns: tuple[str, ...]) -> int:
        counts = view.counts(columns)
        product = np.ones((), dtype=np.int64)
        for name in columns:
            product = np.multiply.outer(product, self.signs[name])
        difference = total(counts[product > 0]) - total(counts[product < 0])
        return max(-LARGEST, min(difference, LARGEST))

    def moves(self, view: CodedView) -> tuple[float, float]:
        """Return the bound: each of the answers moves by at most s."""
        s = float(view.stability)
        return s * len(self.subsets), s**2 * len(self.subsets)


@dataclass(frozen=True)
class CentreSums(Query):
    """Weight of each cluster of released centres, and the sum of its points minus ½ (the query of DPLloyd).

    Coordinates are in [0, 1] on a grid of 1/`GRID`; ordered columns give one coordinate x - ½ in [-½, ½], lists of
    values one 0/1 coordinate per value, of which exactly one is 1. A row of weight 1 therefore contributes at most
    1 + d_ordered/2 + d_lists in L1 and √(1 + d_ordered/4 + d_lists) in L2, to one cluster only.
    """

    centres: Centres
    GRID = 256  # chosen by hand: rounding to 1/256 is far below the noise of a sum

    def evaluate(self, view: CodedView) -> Counts:
        """Return weights and sums, shape (clusters, 1 + coordinates), times the weight scale and GRID."""
        held = view.data.held()
        assigned = self.centres.assign(held.codes)
        weights = np.ones(held.rows, dtype=np.int64) if held.weights is None else held.weights.astype(np.int64)
        clusters = len(self.centres.points)
        columns = [self.GRID * weighted_sums(assigned, weights, clusters)]
        for name, kind in self.centres.columns:
            size = view.sizes[name]
            if kind == "ordered":
                grid = np.rint((np.arange(size) / max(size - 1, 1) - 0.5) * self.GRID).astype(np.int64)
                columns.append(weighted_sums(assigned, weights * grid[held.codes[name]], clusters))
            else:
                cells = assigned * size + held.codes[name]
                table = self.GRID * weighted_sums(cells, weights, clusters * size)
                columns += list(table.reshape(clusters, size).T)
        return np.stack(columns, axis=1)

    def moves(self, view: CodedView) -> tuple[float, float]:
        """Return the bound of the class, times s·GRID."""
        ordered = sum(kind == "ordered" for _, kind in self.centres.columns)
        lists = len(self.centres.columns) - ordered
        s = float(view.stability) * self.GRID
        return s * (1 + ordered / 2 + lists), s**2 * (1 + ordered / 4 + lists)

    def scale(self, view: CodedView) -> int:
        """Return the weight scale times the grid."""
        return view.weight_scale * self.GRID


@dataclass(frozen=True)
class ParentCounts(Query):
    """Weight of the references to each group of rows of a *public* parent, and of those to none (the last cell).

    A marginal: each row is in one cell, that of the row it refers to. It moves as far as any.

    Attributes:
        group_of: Group of each parent row, dense from 0, shape (parents,); groups of one row count that row.
        clipped: Whether the counts of each unit are clipped in L2 norm, as in `Marginal`; each row is its own group.
    """

    group_of: NDArray[np.int64]
    clipped: bool = False

    def evaluate(self, view: CodedView) -> Counts:
        """Return weights, shape (groups + 1,).

        Raises:
            InternalError: The view does not hold references to a public parent with this many rows. The position of a
                private row depends on the rows before it.
        """
        sums = view.data.clipped_references() if self.clipped else view.data.reference_sums()
        if sums.parents is None or sums.parents != len(self.group_of):
            raise InternalError("references are counted by parent row only for a public parent, with a group per row")
        groups = int(self.group_of.max(initial=-1)) + 1
        return np.append(weighted_sums(self.group_of[sums.rows], sums.totals, groups), sums.none)

    def moves(self, view: CodedView) -> tuple[float, float]:
        """Return the bound: L1 ≤ b + a; L2² ≤ b² + a²."""
        return _clipped_moves(len(self.group_of) + 1, *view.clipped_shifts) if self.clipped else _moves(*view.shifts)


@dataclass(frozen=True)
class RankSums(Query):
    """Weight of the references to the most popular parent, to the next, and so on, in blocks of ranks.

    The unattributed histogram of Hay et al. 2010, "Boosting the accuracy of differentially private histograms through
    consistency", section 3. Sorting is a contraction: two vectors of weights per parent are no nearer to each other in
    L1 than the same vectors sorted; and a vector that is nowhere larger than another is not after sorting either, so
    sorted vectors lose and gain no more than unsorted ones (see `Marginal`), whichever parents come or go (they weigh 0
    in the other database). Rows that refer to none are in no cell: those that only lose their reference leave, and come
    nowhere. Sums over disjoint blocks of ranks lose and gain no more.

    Attributes:
        ends: One past the last rank of each block, ascending; parents beyond the last are left out.
    """

    ends: tuple[int, ...]

    def evaluate(self, view: CodedView) -> Counts:
        """Return weights, shape (blocks,)."""
        totals = view.data.reference_sums().totals
        summed = np.append(0, np.cumsum(np.sort(totals)[::-1]))
        return np.diff(summed[np.minimum(self.ends, len(totals))], prepend=0)

    def moves(self, view: CodedView) -> tuple[float, float]:
        """Return the bound: L1 ≤ b + a; L2² ≤ b² + a²; rows that lose their reference are not in a."""
        lost, gained = view.shifts
        return _moves(lost, gained - view.lost)


def _moves(lost: float, gained: float) -> tuple[float, float]:
    """Return (L1, L2²) by which cells move that lose and gain this much in total."""
    return lost + gained, lost**2 + gained**2


def _clipped_moves(cells: int, lost: float, gained: float) -> tuple[float, float]:
    """Return (L1, L2²) by which cells move that lose and gain vectors of these L2 norms."""
    squared = lost**2 + gained**2
    return math.sqrt(cells * squared), squared
