"""Which pairs of columns are measured, and how finely: what promises the largest reduction of L1 error for a price.

A pair left out costs its score, a pair measured the noise on its cells. Public arithmetic on released numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privbench_core.estimate.coarsening import Coarsening, coarsenings

Array = NDArray[np.float64]
Pair = tuple[str, str]
_STEEP = 3.0  # how much more of a strong dependence merged codes lose: (1 - strength) to the power of minus this
_CERTAIN = 0.99  # strength that counts as determined
_RANK = 1.5  # of what a joint usually has over the product of its marginals


@dataclass(frozen=True)
class PairTable:
    """What is measured of a pair.

    Attributes:
        pair: The columns.
        coarsenings: How their codes are merged.
        cells: How many cells' noise its joint is left with; see `noisy_cells`.
    """

    pair: Pair
    coarsenings: tuple[Coarsening, Coarsening]
    cells: float


@dataclass(frozen=True)
class Candidates:
    """Pairs that may be measured, each in several ways.

    Attributes:
        pairs: The pairs.
        coarsenings: Column -> ways to merge its codes.
        useful: Error that each way takes away but for noise, in rows, shape (pairs, ways); 0 for ways there are not.
        cells: `noisy_cells` of each way, shape (pairs, ways).
    """

    pairs: Sequence[Pair]
    coarsenings: Mapping[str, Sequence[Coarsening]]
    useful: Array
    cells: Array

    @classmethod
    def of(
        cls, pairs: Sequence[Pair], scores: Array, clean: Mapping[str, Array], ordered: Mapping[str, int]
    ) -> Candidates:
        """All ways to measure ``pairs``.

        What merged codes lose of a dependence grows with its strength: where a column all but determines another one,
        groups of codes tell little of what codes tell.

        Args:
            pairs: Pairs of columns that have more than one code each.
            scores: Of the pairs, in rows.
            clean: Released one-way counts of the columns.
            ordered: Column -> how many of its leading codes are intervals, in order; columns it lacks are lists.
        """
        names = sorted({name for pair in pairs for name in pair})
        ways = {name: coarsenings(clean[name], ordered.get(name, 0)) for name in names}
        most = max(map(len, ways.values()), default=1)
        place = {name: index for index, name in enumerate(names)}
        number, lost = np.full((len(names), most), 2.0), np.full((len(names), most), np.inf)
        for name, index in place.items():
            number[index, : len(ways[name])] = [coarsening.number for coarsening in ways[name]]
            lost[index, : len(ways[name])] = [coarsening.lost for coarsening in ways[name]]
        first, second = (np.array([place[pair[side]] for pair in pairs], dtype=np.int64) for side in (0, 1))
        shape = (len(pairs), most * most)
        cells = noisy_cells(number[first][:, :, None], number[second][:, None, :])
        largest = np.array([_largest(clean[name]) for name in names])
        strength = np.clip(scores / np.maximum(np.minimum(largest[first], largest[second]), 1.0), 0.0, _CERTAIN)
        more = ((1 - strength) ** -_STEEP)[:, None]
        kept = [np.maximum(1 - more * lost[side], 0.0) for side in (first, second)]
        useful = scores[:, None, None] * kept[0][:, :, None] * kept[1][:, None, :]
        return cls(pairs, ways, useful.reshape(shape), cells.reshape(shape))

    def table(self, pair: int, way: int) -> PairTable:
        """One way to measure one pair, by their indices."""
        most = round(self.cells.shape[1] ** 0.5)
        (a, b), (one, other) = self.pairs[pair], divmod(way, most)
        return PairTable((a, b), (self.coarsenings[a][one], self.coarsenings[b][other]), float(self.cells[pair, way]))


def noisy_cells(rows: Array, columns: Array) -> Array:
    """How many cells' noise a joint of so many rows and columns is left with.

    Of the L1 norm of its cells' noise, an estimate of rank r keeps that of about r(rows + columns) free numbers, spread
    over all cells: √(cells · free).
    """
    free = np.minimum((rows - 1) * (columns - 1), _RANK * (rows + columns - 2))
    return np.asarray(np.sqrt(rows * columns * free))


def _largest(counts: Array) -> float:
    """Largest score of a pair with a column of these counts: what it is where the other column determines it."""
    total = max(float(counts.sum()), 1.0)
    return total - float((counts**2).sum()) / total
