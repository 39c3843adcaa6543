"""Candidate pairwise marginals: which pairs of columns to measure at which coarsening, by expected L1 error.

A pair left out costs its score; a measured pair costs the noise on its cells. Post-processing of released numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privbench_core.estimators.coarsening import Coarsening, coarsenings
from privbench_core.guards import TOLERANCE
from privbench_core.tuning import TUNING

Array = NDArray[np.float64]
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
