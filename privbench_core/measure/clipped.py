"""Marginals of rows with units clipped in L2 norm, where more rows count then than the noise grows.

Noise as long as a unit's vector of counts is spread over all cells alike, and rows are not: most are in few cells, of
defaults and NULLs, and so are those of units with many. So the count of a cell that holds a share p of the rows is
multiplied by about √(max p / p) before units are clipped, for noise that is so much smaller after it. Of s rows that
have their cells by chance the vector is s √max p long, where it was s √Σp², and the noise of all k cells together, for
as many rows that count, Σ√p / (k √Σp²) times as large: at most once (Jensen).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from privbench_core.estimate.candidates import Candidates
from privbench_core.estimate.merge import merge_codes
from privbench_core.models.row_count import RowCount
from privbench_core.privacy.budget import Measure, Price
from privbench_core.privacy.clipping import LARGEST_SCALE
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.queries import Marginal

Array = NDArray[np.float64]
_POSSIBLE = 1e-9  # what is divided by it stays finite
_WORTH = 1.05  # times as many rows that count: less is not worth the time that clipping units takes


@dataclass(frozen=True)
class Vectors:
    """How long the vectors of units' counts are.

    Attributes:
        lengths: Of a row in each cell, powers of two, shape (cells,), or (codes of the first, codes of the second).
        square: Mean of their squares over all rows.
        by_chance: What two rows whose cells have nothing to do with each other add to the square of a vector that both
            are in, in the mean, as a share of ``square``.
    """

    lengths: NDArray[np.int64]
    square: float
    by_chance: float

    @classmethod
    def of(cls, shares: Array, most: float, likely: Array | None = None) -> Vectors:
        """For cells with these shares of all rows, up to a factor.

        Args:
            shares: None of them negative.
            most: T. No row is longer by one column: alone, a unit's only row counts in full, in whichever cell.
            likely: What the shares may well be, where that is not known.
        """
        shares = shares / max(float(shares.sum()), _POSSIBLE)
        likely = shares if likely is None else likely
        largest = max(float(likely.max(initial=0.0)), _POSSIBLE)
        powers = np.round(np.log2(largest / np.maximum(likely, largest * _POSSIBLE)) / 2)
        longest = math.floor(math.log2(min(most, LARGEST_SCALE)))
        return cls._of_lengths(shares, (2 ** np.minimum(powers, longest)).astype(np.int64))

    @classmethod
    def plain(cls, shares: Array) -> Vectors:
        """For the same, where all rows are as long."""
        shares = np.maximum(shares, 0.0) / max(float(np.maximum(shares, 0.0).sum()), _POSSIBLE)
        return cls._of_lengths(shares, np.ones(len(shares), dtype=np.int64))

    @classmethod
    def _of_lengths(cls, shares: Array, lengths: NDArray[np.int64]) -> Vectors:
        square = max(float((shares * lengths**2).sum()), 1.0)
        return cls(lengths, square, min(float(((shares * lengths) ** 2).sum()) / square, 1.0))

    def with_column(self, other: Vectors) -> Vectors:
        """Of the combinations with the codes of another column, which has nothing to do with this one."""
        lengths = np.multiply.outer(self.lengths, other.lengths)
        return Vectors(lengths, self.square * other.square, self.by_chance * other.by_chance)

    @property
    def scale(self) -> tuple[int, ...]:
        """The lengths of a column as `Marginal` takes them."""
        return tuple(self.lengths.tolist())

    def most(self, most: float) -> float:
        """T for vectors of as many rows, each 1 long."""
        return most / math.sqrt(self.square)

    def counted(self, size: RowCount, most: float, alike: float) -> Array:
        """`RowCount.counted`, if units are clipped to T = ``most`` and two of their rows are alike so likely."""
        return size.counted(self.most(most), alike + (1 - alike) * self.by_chance)


@dataclass(frozen=True)
class RowsCounted:
    """Noisy counts, as of the rows that count where units are not clipped.

    Attributes:
        counts: Of the cells.
        sigma: Standard deviation of the noise of a count whose length is 1.
        lengths: By what the noise of each count is smaller, broadcast to its shape.
        gain: How many times as many rows have counted.
    """

    counts: Array
    sigma: float
    lengths: NDArray[np.int64]
    gain: float


@dataclass(frozen=True)
class Clipping:
    """Units of a table clipped in L2 norm, or counted as they are where that is better.

    Attributes:
        size: Of the table.
        noise: How many times as large noise is where units are clipped, inf where they cannot be.
        own: Columns of the table's own rows: the codes of others are scaled alike, as who has many rows may have all
            of them with a rare one.
    """

    size: RowCount
    noise: float
    own: frozenset[str]

    @classmethod
    def of(cls, size: RowCount | None, curator: Curator, price: Price, own: Iterable[str]) -> Clipping | None:
        """For a view and a price; none where noise is Laplace's, or nothing is known of how alike rows are."""
        known = size is not None and size.alike_of_pairs < 1 and math.isfinite(curator.noise_of_clipping)
        if size is None or not known or price.measure is Measure.PURE:
            return None
        return cls(size, curator.noise_of_clipping, frozenset(own))

    def vectors(self, name: str, counts: Array, groups: NDArray[np.int64]) -> Vectors:
        """Of groups of the codes of a column, whose released counts are not negative."""
        merged = merge_codes(counts, [groups])
        return Vectors.of(merged, self.size.rows_per_unit) if name in self.own else Vectors.plain(merged)

    def noise_of(self, vectors: Vectors) -> float:
        """Noise of all cells over the rows that count, as a multiple of what it is if units are not clipped."""
        rows = float(vectors.counted(self.size, self.size.rows_per_unit, self.size.alike_of_pairs).sum())
        return self.noise * float((1 / vectors.lengths).mean()) * self._plain / max(rows, _POSSIBLE)

    def worth(self, vectors: Vectors) -> bool:
        """Whether clipping does more than its noise undoes."""
        return self.noise_of(vectors) * _WORTH < 1

    def noisy_cells(self, candidates: Candidates, clean: Mapping[str, Array]) -> Array:
        """`Candidates.cells`, as far as clipping leaves their noise where it is worth it.

        Args:
            candidates: Pairs, and ways to measure them.
            clean: Released counts of their columns, none negative.
        """
        cells = candidates.cells.copy()
        most = round(cells.shape[1] ** 0.5)
        for pair, names in enumerate(candidates.pairs):
            columns = [
                [self.vectors(name, clean[name], way.groups) for way in candidates.coarsenings[name]] for name in names
            ]
            for (one, first), (other, second) in product(*map(enumerate, columns)):
                way = one * most + other
                if candidates.useful[pair, way] > 0:
                    cells[pair, way] *= min(self.noise_of(first.with_column(second)), 1.0)
        return cells

    @cached_property
    def _plain(self) -> float:
        """How many rows count where units are not clipped."""
        return float(self.size.counted(self.size.rows_per_unit).sum())


def measure_rows(
    curator: Curator,
    what: str,
    asked: Marginal,
    price: Price,
    clipping: Clipping | None = None,
    columns: tuple[Vectors, ...] = (),
) -> RowsCounted:
    """Measure a marginal for ``price``, with units clipped where that is better.

    Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or removing
    one privacy unit; ``docs/privacy.md``, section 5, mechanisms 1 and 4.

    Args:
        curator: Of the view.
        what: A short name for the ledger.
        asked: The marginal.
        price: Of it.
        clipping: How units may be clipped.
        columns: Of the marginal.
    """
    if clipping is not None:
        vectors = columns[0]
        for other in columns[1:]:
            vectors = vectors.with_column(other)
        if clipping.worth(vectors):
            scales = tuple(vectors.scale for vectors in columns)
            noisy = curator.measure(what, [replace(asked, clipped=True, scales=scales)], price)
            counts = noisy.values[0] / vectors.lengths
            gain = clipping.size.gain(float(counts.sum()), vectors.square)
            return RowsCounted(counts / gain, noisy.sigma / gain, vectors.lengths, gain)
    noisy = curator.measure(what, [asked], price)
    return RowsCounted(noisy.values[0], noisy.sigma, np.ones(1, dtype=np.int64), 1.0)
