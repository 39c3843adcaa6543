"""Coarsenings: groups of a column's codes over which a joint with another column is measured.

Every cell gets noise, so the joint of a wide column is expensive, while most of its codes are too rare for their own
cells to be informative. Measured over groups of codes, each cell holds more rows under the same noise: that is better
than averaging over cells afterwards, as the noise of a group is drawn once. Within a group, rows are distributed by the
released one-way counts. Which pairs of columns are measured at which coarsening follows from the expected L1 error: a
pair left out costs its score, a measured one the noise on its cells. Post-processing of released numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from privbench_core.arrays import Array, Numbers, dense
from privbench_core.errors import InternalError
from privbench_core.guards import FEW, MAX_PARTS, SMOOTHING, TINY, TOLERANCE
from privbench_core.tuning import TUNING

Number = TypeVar("Number", np.int64, np.float64)


@dataclass(frozen=True)
class Coarsening:
    """A partition of a column's codes into groups.

    Attributes:
        groups: Group of each code, shape (codes,); groups are dense, 0 to ``number - 1``.
        number: Number of groups, at least 2 unless there is only one code.
        lost: Expected share of a weak dependence that is lost within groups.
    """

    groups: Numbers
    number: int
    lost: float


def coarsenings(counts: Array, ordered: int = 0) -> list[Coarsening]:
    """Return coarsenings of a column, from few groups to one per code.

    Codes that hold less than some share of the rows are merged: neighbours among the first ``ordered`` codes, into
    groups of about that share; all others into one group. A share of 1 / parts is tried for parts in half octaves. The
    loss grows with the squares of the widths of groups along an ordered column, as for a dependence that grows evenly,
    and half as fast with the rows of the merged codes of a list.

    Args:
        counts: Clean one-way counts, shape (codes,).
        ordered: Number of leading codes that are intervals, in order.
    """
    shares = counts / max(float(counts.sum()), 1.0)
    found: dict[int, Coarsening] = {}
    for least in (*2.0 ** (-np.arange(2, 2 * math.log2(MAX_PARTS) + 1) / 2), 0.0):
        groups = _groups(shares, ordered, least)
        number = int(groups.max()) + 1
        if number in found or number <= min(len(counts) - 1, 1):
            continue
        held, merged = np.bincount(groups, shares), np.bincount(groups) > 1
        neighbours = np.bincount(groups[:ordered], minlength=number) > 0
        evenly, listed = (held[merged & neighbours] ** 2).sum(), held[merged & ~neighbours].sum()
        found[number] = Coarsening(groups, number, TUNING.coarsening_loss * float(evenly + listed / 2))
    return list(found.values())


def _groups(shares: Array, ordered: int, least: float) -> Numbers:
    """Return the group of each code if codes with less than the share ``least`` of the rows are merged."""
    single = shares >= least
    groups, number, start = np.zeros(len(shares), dtype=np.int64), 0, 0
    for end in [*np.flatnonzero(single[:ordered]).tolist(), ordered]:
        if end > start:  # a run of rare neighbours, in parts with about the share ``least`` each
            held = shares[start:end]
            parts = max(1, int(float(held.sum()) / least))
            middles = (np.cumsum(held) - held / 2) / max(float(held.sum()), np.finfo(float).tiny)
            part = np.minimum((middles * parts).astype(np.int64), parts - 1)
            groups[start:end] = number + np.unique(part, return_inverse=True)[1]
            number = int(groups[end - 1]) + 1
        if end < ordered:
            groups[end], number = number, number + 1
        start = end + 1
    listed = np.arange(len(shares)) >= ordered
    own = np.flatnonzero(listed & single)
    groups[own] = number + np.arange(len(own))
    groups[listed & ~single] = number + len(own)
    return groups


@dataclass(frozen=True)
class Ends:
    """Groups of a column's codes, with fewer rows in each the nearer it is to either end of the order.

    Those that have most, or came first, are apart from the many: groups are as wide in the log-odds of a row's rank.
    Of codes without an order the most frequent ones are groups of their own, and all others are one.

    Attributes:
        groups: Group of each code, dense, shape (codes,).
        shares: Of the rows, by code, shape (codes,).
        places: Log-odds of the rank of the rows of each ordered code, as far as groups distinguish them.
    """

    groups: Numbers
    shares: Array
    places: Array

    @classmethod
    def of(cls, shares: Array, ordered: int, number: int, least: float) -> Ends:
        """Make about ``number`` groups.

        Args:
            shares: Of the rows, by code, shape (codes,).
            ordered: Number of leading codes that are intervals, in order.
            number: Of groups, about.
            least: Share of the rows that a group should have: smaller ones at an end are one.

        >>> Ends.of(np.array([0.9, 0.05, 0.03, 0.015, 0.005]), 5, 4, 1e-3).groups.tolist()
        [0, 1, 1, 2, 2]
        """
        least = min(max(least, SMOOTHING), 0.5)  # beyond the last code with rows the rank is 1, whose odds are infinite
        groups, places = np.zeros(len(shares), dtype=np.int64), np.zeros(ordered)
        whole = float(shares[:ordered].sum())
        if whole > 0:
            rank = np.clip((np.cumsum(shares[:ordered]) - shares[:ordered] / 2) / whole, least, 1 - least)
            places = np.log(rank / (1 - rank))
            widest = max(-np.log(least / (1 - least)), TINY)
            groups[:ordered] = np.clip(((places / widest + 1) / 2 * number).astype(np.int64), 0, number - 1)
        listed = np.arange(ordered, len(shares))
        frequent = listed[np.argsort(-shares[listed], kind="stable")][: number - 1]
        own = frequent[shares[frequent] >= least]
        groups[listed] = number + len(own)
        groups[own] = number + np.arange(len(own))
        return cls(dense(groups), shares, places)

    @property
    def of_groups(self) -> Array:
        """Share of the rows of each group, shape (groups,)."""
        return np.bincount(self.groups, self.shares).astype(np.float64)

    def spread(self, found: Array) -> Array:
        """Return shares of something else by code, from those by group; shapes (groups,) and (codes,).

        How often it is found with a row changes evenly, in logarithms, from the middle of a group to that of the next;
        within a group by no more than it differs from its neighbours'.
        """
        rates = np.divide(found, self.of_groups, out=np.zeros(len(found)), where=self.of_groups > 0)
        weights = self.shares + TINY
        if len(self.places):
            inside = self.groups[: len(self.places)]
            numbers, held = np.unique(inside), weights[: len(self.places)]
            middle = np.bincount(inside, held * self.places)[numbers] / np.bincount(inside, held)[numbers]
            logs = np.log(np.maximum(rates[numbers], FEW * float(rates.max())) + TINY)
            steps = np.diff(logs)
            reach = np.maximum(np.append(np.abs(steps), 0.0), np.append(0.0, np.abs(steps)))[inside]
            change = np.zeros(len(inside))
            if len(steps):  # on the lines through the middles, those at the ends drawn on
                at = np.clip(np.searchsorted(middle, self.places) - 1, 0, len(steps) - 1)
                slopes = steps / np.maximum(np.diff(middle), TINY)
                change = logs[at] + slopes[at] * (self.places - middle[at]) - logs[inside]
            weights[: len(self.places)] *= np.exp(np.clip(change, -reach, reach))
        return np.asarray(found[self.groups] * weights / np.bincount(self.groups, weights)[self.groups])


def merge_codes(counts: NDArray[Number], groups: Sequence[Numbers]) -> NDArray[Number]:
    """Return counts over groups of codes. Integers must add up to less than 2⁶³.

    Args:
        counts: Any shape.
        groups: Per axis, the group of each code, dense from 0.

    Raises:
        InternalError: Not one group for each code of each axis.

    >>> merge_codes(np.array([[1, 2, 3], [4, 5, 6]]), [np.array([0, 1]), np.array([0, 1, 0])])
    array([[ 4,  2],
           [10,  5]])
    """
    if tuple(group_of.shape for group_of in groups) != tuple((size,) for size in counts.shape) or any(
        group_of.min() < 0 for group_of in groups
    ):
        raise InternalError("each code of each column is in one group")
    merged = counts
    for axis, group_of in enumerate(groups):
        codes_first: NDArray[Number] = np.moveaxis(merged, axis, 0)
        groups_first = np.zeros((int(group_of.max()) + 1, *codes_first.shape[1:]), dtype=counts.dtype)
        np.add.at(groups_first, group_of, codes_first)
        merged = np.moveaxis(groups_first, 0, axis)
    return merged


Pair = tuple[str, str]


@dataclass(frozen=True)
class PairTable:
    """A pairwise marginal to measure.

    Attributes:
        pair: The columns.
        coarsenings: How their codes are merged.
        cells: Number of cells whose noise remains in the estimate; see `noisy_cells`.
        ordered: How many leading codes of each column are intervals, in order; 0 for lists.
    """

    pair: Pair
    coarsenings: tuple[Coarsening, Coarsening]
    cells: float
    ordered: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Candidates:
    """Pairs that may be measured, each at several coarsenings.

    Attributes:
        pairs: The pairs.
        coarsenings: Column -> coarsenings of its codes.
        useful: Reduction of error before noise, in rows, shape (pairs, ways), a way being a coarsening of each column;
            0 where a column has fewer coarsenings.
        cells: `noisy_cells` of each way, shape (pairs, ways).
        ordered: Column -> number of its leading codes that are intervals, in order; columns it lacks are lists.
    """

    pairs: Sequence[Pair]
    coarsenings: Mapping[str, Sequence[Coarsening]]
    useful: Array
    cells: Array
    ordered: Mapping[str, int]

    @classmethod
    def of(
        cls, pairs: Sequence[Pair], scores: Array, clean: Mapping[str, Array], ordered: Mapping[str, int]
    ) -> Candidates:
        """Return all ways to measure ``pairs``, of columns with several codes, given scores in rows and clean counts.

        A coarsening loses more of a strong dependence: if a column almost determines another, groups of codes carry
        little of the information of single codes. Not so where both have an order: queries ask for ranges, and those
        that cut through a group of neighbours get wrong at most what this group holds.
        """
        names = sorted({name for pair in pairs for name in pair})
        ways = {name: coarsenings(clean[name], ordered.get(name, 0)) for name in names}
        most = max(map(len, ways.values()), default=1)
        number, lost = np.full((len(names), most), 2.0), np.full((len(names), most), np.inf)
        for index, name in enumerate(names):
            number[index, : len(ways[name])] = [coarsening.number for coarsening in ways[name]]
            lost[index, : len(ways[name])] = [coarsening.lost for coarsening in ways[name]]
        first, second = (np.array([names.index(pair[side]) for pair in pairs], dtype=np.int64) for side in (0, 1))
        cells = noisy_cells(number[first][:, :, None], number[second][:, None, :])
        totals = np.array([max(float(clean[name].sum()), 1.0) for name in names])
        # The score of a column that determines this one.
        largest = totals - np.array([float((clean[name] ** 2).sum()) for name in names]) / totals
        strength = np.minimum(scores / np.maximum(np.minimum(largest[first], largest[second]), 1.0), 1 - TOLERANCE)
        neighbours = np.array([min(ordered.get(a, 0), ordered.get(b, 0)) > 2 for a, b in pairs], dtype=bool)  # noqa: PLR2004
        amplified = np.where(neighbours, 1.0, (1 - strength) ** -TUNING.strength_exponent)[:, None]
        kept = [np.maximum(1 - amplified * lost[side], 0.0) for side in (first, second)]
        useful = scores[:, None, None] * kept[0][:, :, None] * kept[1][:, None, :]
        shape = (len(pairs), most * most)
        return cls(pairs, ways, useful.reshape(shape), cells.reshape(shape), ordered)

    def table(self, pair: int, way: int) -> PairTable:
        """Return one way to measure one pair, by their indices."""
        (a, b), (one, other) = self.pairs[pair], divmod(way, round(self.cells.shape[1] ** 0.5))
        merged = self.coarsenings[a][one], self.coarsenings[b][other]
        return PairTable((a, b), merged, float(self.cells[pair, way]), (self.ordered.get(a, 0), self.ordered.get(b, 0)))


@dataclass(frozen=True)
class PairSelection:
    """Candidates to measure.

    Attributes:
        gain: What they promise to take off the L1 error.
        ways: Candidate and the way to measure it, by index.
    """

    gain: float
    ways: tuple[tuple[int, int], ...]

    def tables(self, candidates: Candidates) -> list[PairTable]:
        """Return what is to be measured, of these candidates."""
        return [candidates.table(pair, way) for pair, way in self.ways]


def noisy_cells(rows: Array, columns: Array) -> Array:
    """Return the number of cells whose noise remains in an estimated joint with this many rows and columns.

    What is beyond the product of the marginals is about of rank one: it keeps the noise of rows + columns - 3 free
    numbers, spread over all cells: in L1 norm, that of √(cells · free) cells.
    """
    free = np.minimum((rows - 1) * (columns - 1), rows + columns - 3)
    return np.asarray(np.sqrt(rows * columns * free))
