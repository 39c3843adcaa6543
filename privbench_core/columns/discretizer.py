"""A discretizer: a codec and, where a profile merged its cells, a binning. Values -> codes and back.

Many cells of a column hold next to nothing, and a model that kept them apart would mostly fit noise. A `Binning` merges
them, from noisy counts alone: post-processing, so it costs no budget and may be looked at freely.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.columns.codec import Codec, Codes
from privbench_core.columns.systematic import distribute, group_counts, narrow, systematic_counts
from privbench_core.errors import InternalError
from privbench_core.estimators.segmentation import (
    ABSOLUTE,
    SIGNIFICANT,
    merge_smallest,
    segment_and_smooth,
    segment_sums,
)
from privbench_core.guards import BLOCK_ROWS, FEW, NEGLIGIBLE, SMOOTHING, TINY
from privbench_core.stored import Storable
from privbench_core.tuning import TUNING

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Tails: TypeAlias = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Binning(Storable):
    """Cells -> codes, and how the rows of a code spread over its cells.

    Attributes:
        code_of: The code of each cell; codes are dense, 0 to ``size - 1``.
        weights: The share of each cell within its code; they sum to 1 per code.
        ordered: How many leading codes are intervals, in order, so that neighbours may be merged further; 0 for lists.
        tails: Of each tail that was cut into pieces, its first and its last code on the way outwards; see `with_tails`.
    """

    code_of: tuple[int, ...]
    weights: tuple[float, ...]
    ordered: int = 0
    tails: Tails = ()

    @classmethod
    def even(cls, code_of: NDArray[np.int64], ordered: int = 0) -> Binning:
        """Return a binning where the cells of a code are equally likely; ``code_of`` has shape (cells,)."""
        return cls(tuple(code_of.tolist()), tuple((1 / np.bincount(code_of)[code_of]).tolist()), ordered)

    @cached_property
    def size(self) -> int:
        """Number of codes."""
        return max(self.code_of) + 1

    def codes(self, cells: Codes) -> Codes:
        """The code of each cell, shape (n,)."""
        return self._code_array[cells]

    def sums(self, counts: Floats) -> Floats:
        """Counts per code from counts per cell, shape (size,)."""
        return np.bincount(self._code_array, weights=counts, minlength=self.size).astype(np.float64)

    def cut(self, parts: NDArray[np.int64]) -> tuple[Binning, NDArray[np.int64], Floats]:
        """Return the same cells with codes of neighbouring cells cut into parts of about equal shares.

        Args:
            parts: Into how many parts each code is cut, at most; 1 for those that are no intervals, shape (size,).

        Returns:
            The new codes; for each of them the code that it is a part of, and its share of that, shapes (new size,).
        """
        weights, part = np.array(self.weights), np.zeros(len(self.code_of), np.int64)
        for code in np.flatnonzero(parts > 1).tolist():
            # A cell that is never drawn, of NULL or of other values, makes no part of its own.
            drawn = np.flatnonzero((self._code_array == code) & (weights > 0))
            held = weights[drawn] / weights[drawn].sum()
            part[drawn] = np.minimum((np.cumsum(held) - held / 2) * parts[code], parts[code] - 1)
            part[(self._code_array == code) & (weights <= 0)] = part[drawn].min()
        return self._split(part)

    def with_tails(self, widths: Floats, counts: Floats) -> Binning:
        """Return the same cells with `tails`: long intervals next to denser ones, cut into pieces.

        What holds few rows over a long way mostly has far more of them at its begin than at its end. The first piece is
        as wide as the interval that the tail goes away from, and each further one twice as wide as the one before.

        Args:
            widths: Of the interval cells, shape (intervals,).
            counts: Rows of each code, shape (size,).
        """
        of_cell = self._code_array[: len(widths)]
        spans = np.maximum(np.bincount(of_cell, widths, self.ordered), max(NEGLIGIBLE * widths.sum(), TINY))
        density = counts[: self.ordered] / spans
        piece, away = np.zeros(len(self.code_of), np.int64), np.zeros(self.size, np.int64)
        for code in np.flatnonzero(spans >= TUNING.tail_span * widths.sum()).tolist():
            neighbours = [n for n in (code - 1, code + 1) if 0 <= n < self.ordered]
            denser = max(neighbours, key=density.__getitem__, default=code)
            if density[denser] > density[code] and spans[code] >= (1 + 2) * spans[denser]:  # two pieces at least
                away[code] = code - denser
                cells = np.flatnonzero(of_cell == code)[:: away[code]]
                middle = np.cumsum(widths[cells]) - widths[cells] / 2
                places = np.floor(np.log2(middle / spans[denser] + 1))
                piece[cells] = away[code] * np.unique(places, return_inverse=True)[1]
        pieces, code_of, _ = self._split(piece)
        tails = []
        for code in np.unique(self._code_array[piece != 0]).tolist():
            first, *_, last = np.flatnonzero(code_of == code)[:: away[code]].tolist()
            tails.append((first, last))
        return replace(pieces, tails=tuple(tails))

    def _split(self, piece: Counts) -> tuple[Binning, Counts, Floats]:
        """Return a code for each piece of a code, in their order, the code that each is of, and its share of that."""
        weights = np.array(self.weights)
        order = self._code_array * (np.ptp(piece) + 1) + piece - piece.min()
        new_of = np.unique(order, return_inverse=True)[1]
        held = np.bincount(new_of, weights).astype(np.float64)
        whole = np.zeros(len(held), np.int64)
        whole[new_of] = self._code_array
        shares = weights / np.where(held > 0, held, 1.0)[new_of]
        ordered = int((whole < self.ordered).sum())
        return Binning(tuple(new_of.tolist()), tuple(shares.tolist()), ordered), whole, held

    def expand(self, codes: Codes, rng: np.random.Generator) -> Codes:
        """A cell for each code, shape (n,).

        Low variance: each code's rows are spread over its cells by systematic sampling, so a cell's count differs from
        the expected one by less than one; which row gets which cell is random.
        """
        cells, code, cumulated = self._cumulated
        numbers = systematic_counts(cumulated, code, group_counts(codes, self.size), rng)
        return distribute(cells, numbers, codes, rng)

    @cached_property
    def _code_array(self) -> Codes:
        return np.array(self.code_of, np.int32)

    @cached_property
    def _cumulated(self) -> tuple[Codes, Codes, Floats]:
        """Cells of positive weight by code, their codes, and the weights of a code's cells cumulated."""
        weights = np.array(self.weights)
        cells = np.flatnonzero(weights > 0)
        cells = cells[np.argsort(self._code_array[cells], kind="stable")]
        code = self._code_array[cells]
        total = np.cumsum(weights[cells])
        before = np.append(0.0, total)[np.searchsorted(code, np.arange(self.size))]
        return narrow(cells, len(weights)), code, total - before[code]


def merge_cells(
    noisy: Floats,
    codec: Codec,
    sigma: float,
    max_codes: int,
    widths: Floats | None = None,
    *,
    visible: bool = False,
    laplace: bool = False,
) -> Binning:
    """Merge cells whose released counts are not significant.

    Lists of values: values with a noisy count of at most ``SIGNIFICANT`` * ``sigma`` become one rare code, unless
    another release has shown that they are ``visible``. Ordered domains: neighbouring cells that do not differ
    significantly become one code. NULL and cells of values outside of the domain keep a code of their own if they are
    significant; else they join another code with weight 0, that is, they are never drawn.

    Args:
        noisy: A released count per cell of ``codec``, shape (codec.size,).
        codec: Says which cells are ordered, outside of the domain, or NULL.
        sigma: Standard deviation of the counts' noise; 0 for exact (public) counts.
        max_codes: Bound on the codes of the domain proper; at most three more hold values outside of it and NULL.
        widths: Of ordered cells, shape (codec.ordered,), where they are not equal.
        visible: Whether all listed values are known to be significant, counted in another way.
        laplace: Whether the counts' noise is Laplace's.

    Returns:
        Every cell in exactly one code, and no code without weight.

    Raises:
        InternalError: The counts do not fit the codec, or there may be no code at all.
    """
    if noisy.shape != (codec.size,) or max_codes < 1:
        raise InternalError(f"{noisy.shape} noisy counts for {codec.size} cells, to be merged into {max_codes} codes")
    proper = codec.proper
    code_of = np.empty(codec.size, np.int64)
    weights = np.zeros(codec.size)
    if codec.ordered:
        spans = np.ones(proper) if widths is None else widths
        code_of[:proper], weights[:proper] = _merge_ordered(noisy[:proper], sigma, max_codes, spans, laplace)
    else:
        code_of[:proper], weights[:proper] = _merge_list(noisy[:proper], sigma, max_codes, visible)
    ordered = groups = int(code_of[:proper].max()) + 1
    counts = np.bincount(code_of[:proper], noisy[:proper], groups)
    size = groups
    for cell in codec.special:
        if noisy[cell] > SIGNIFICANT * sigma:
            code_of[cell], weights[cell] = size, 1.0
            size += 1
        elif codec.ordered:
            code_of[cell] = _nearest_interval(cell, codec, counts)
        else:
            all_alone = groups == proper and (visible or bool((noisy[:proper] > SIGNIFICANT * sigma).all()))
            # The rare code is the last one; where there is none, the smallest code is disturbed least.
            code_of[cell] = counts.argmin() if all_alone else groups - 1
    weights /= np.bincount(code_of, weights, size)[code_of]
    return Binning(tuple(code_of.tolist()), tuple(weights.tolist()), ordered if codec.ordered else 0)


def place_hidden_cells(binning: Binning, codec: Codec, counts: Floats) -> Binning:
    """Return the same codes, where cells of NULL and of values outside that are not significant join the nearest ones.

    Args:
        binning: Cells and codes; a hidden cell has weight 0.
        codec: Says which cells are outside of the domain, or NULL.
        counts: Rows of each code, shape (binning.size,).
    """
    code_of = list(binning.code_of)
    for cell in codec.special:
        if binning.weights[cell] == 0 and code_of[cell] < binning.ordered:
            code_of[cell] = _nearest_interval(cell, codec, counts[: binning.ordered])
    return replace(binning, code_of=tuple(code_of))


def parts_worth_cutting(binning: Binning, counts: Floats, sigma: float, others: float, max_codes: int) -> Counts:
    """Return into how many parts to cut each code, so that joints see them apart; shape (binning.size,).

    Neighbours that do not differ significantly are one code, and a code is all that joints see. Of what two
    ordered columns have to do with each other, about a quarter of all rows' places, a code with the share h of the rows
    hides 4h² (`coarsening`): h² of all rows. A code of its own has a count for each code of the other column; their
    sum is wrong by 0.4 of its noise. A code is cut while it hides more than that, and more than `FEW` rows.

    Args:
        binning: Cells and codes.
        counts: Released rows of each code, shape (binning.size,).
        sigma: Standard deviation of the noise of a cell's count.
        others: Number of codes that other columns of the table have on average.
        max_codes: Bound on the intervals in all.
    """
    cells = np.bincount(binning.code_of, np.array(binning.weights) > 0, binning.size)
    rows = np.maximum(counts, 0.0)
    # One code: h² n = 0.4 σ √(cells · others). Each of k parts: (h/k)² n = 0.4 σ √(cells · others / k).
    total = max(float(rows.sum()), 1.0)
    hidden = np.nan_to_num(rows**2 / total / max(ABSOLUTE * sigma * np.sqrt(others), SMOOTHING))
    most = np.maximum(np.minimum(cells, np.ceil(rows / total / np.sqrt(FEW))), 1.0)
    interval = np.arange(binning.size) < binning.ordered
    bar = 1.0
    while True:
        parts = (hidden / bar / np.sqrt(np.maximum(cells, 1.0))) ** (2 / 3)
        parts = np.where(interval, np.clip(parts, 1.0, most), 1.0)
        if np.floor(parts[interval]).sum() <= max(max_codes, binning.ordered):
            return parts.astype(np.int64)
        bar *= 1.25  # while there are too many parts, noise is taken to weigh a quarter more


def _merge_list(noisy: Floats, sigma: float, max_codes: int, visible: bool) -> tuple[NDArray[np.int64], Floats]:
    """Codes and unnormalised weights of listed values: significant ones in order, then a rare code, if need be."""
    own = (noisy > SIGNIFICANT * sigma) | visible
    if own.sum() > max_codes or (own.sum() == max_codes and not own.all()):
        kept = np.argsort(-noisy, kind="stable")[: max_codes - 1]
        own = np.zeros(len(noisy), bool)
        own[kept] = True
    code_of = np.where(own, np.cumsum(own) - 1, own.sum())
    # A noisy count below zero does not rule a value out.
    weights = np.where(own, 1.0, np.maximum(noisy, 0) + ABSOLUTE / 2 * sigma)
    if not own.all() and not weights[~own].any():
        weights[~own] = 1.0
    return code_of, weights


def _merge_ordered(
    noisy: Floats, sigma: float, max_codes: int, widths: Floats, laplace: bool
) -> tuple[NDArray[np.int64], Floats]:
    """Codes and unnormalised weights of interval cells: groups of neighbours, in order."""
    starts, weights = segment_and_smooth(noisy, sigma, widths, laplace=laplace)
    final = starts[merge_smallest(segment_sums(noisy, starts), max_codes)]
    code_of = np.repeat(np.arange(len(final)), np.diff(np.append(final, len(noisy))))
    empty = np.bincount(code_of, weights) <= 0
    weights[empty[code_of]] = widths[empty[code_of]]
    return code_of, weights


def _nearest_interval(cell: int, codec: Codec, counts: NDArray[Any]) -> int:
    """The group that an insignificant special cell of an ordered domain joins; NULL goes where it disturbs least."""
    if cell == codec.null:
        return int(counts.argmax())
    below = len(codec.outside) > 1 and cell == codec.outside[0]
    return 0 if below else len(counts) - 1


@dataclass(frozen=True)
class Discretizer(Storable):
    """Values <-> codes of one column; released, so public.

    Attributes:
        codec: Values <-> cells.
        binning: Cells <-> codes, None where each cell is a code.
    """

    codec: Codec
    binning: Binning | None = None

    @property
    def size(self) -> int:
        """Number of codes."""
        return self.codec.size if self.binning is None else self.binning.size

    @property
    def ordered(self) -> int:
        """How many leading codes are intervals, in order; 0 for lists of values."""
        return self.codec.ordered if self.binning is None else self.binning.ordered

    def grouped(self, groups: NDArray[np.int64]) -> Discretizer:
        """The same over groups of its codes, dense numbers of shape (codes,); cells of a group are equally likely."""
        return Discretizer(self.codec, Binning.even(groups[self.shares[0]]))

    def encode(self, values: pa.ChunkedArray) -> Codes:
        """Codes of ``values``, shape (n,)."""
        cells = self.codec.encode(values)
        return cells if self.binning is None else self.binning.codes(cells)

    def encode_numbers(self, numbers: NDArray[np.int64]) -> Codes:
        """Codes of plain integers that never were a column (group sizes, row positions)."""
        return self.encode(pa.chunked_array([pa.array(numbers)]))

    @property
    def tails(self) -> Tails:
        """First and last code of each tail that was cut into pieces; see `Binning.with_tails`."""
        return () if self.binning is None else self.binning.tails

    @property
    def shares(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The code of each cell, and its share of the rows of that code."""
        if self.binning is None:
            return np.arange(self.codec.size), np.ones(self.codec.size)
        return np.array(self.binning.code_of), np.array(self.binning.weights)

    def decode(self, codes: Codes, rng: np.random.Generator) -> pa.Array:
        """Return values for ``codes``: cells by their released weights, uniform inside a cell."""
        return self.values(self.cells(codes, rng), rng)

    def cells(self, codes: Codes, rng: np.random.Generator) -> Codes:
        """Cells for ``codes``, by their released weights."""
        return codes if self.binning is None else self.binning.expand(codes, rng)

    def values(self, cells: Codes, rng: np.random.Generator) -> pa.Array:
        """Return values for ``cells``, uniform inside each."""
        blocks = [cells[start : start + BLOCK_ROWS] for start in range(0, max(len(cells), 1), BLOCK_ROWS)]
        return joined([self.codec.decode(block.astype(np.int32), rng) for block in blocks])


def joined(parts: Sequence[pa.Array]) -> pa.Array:
    """Return one array of the values of several; Arrow would copy a single one, too."""
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def ordered_codes(discretizers: Mapping[str, Discretizer]) -> dict[str, int]:
    """Columns with ordered codes -> how many of their leading codes are intervals, in order."""
    return {name: discretizer.ordered for name, discretizer in discretizers.items() if discretizer.ordered}


def tails_of(discretizers: Mapping[str, Discretizer]) -> dict[str, Tails]:
    """Return the tails of the columns that have any."""
    return {name: discretizer.tails for name, discretizer in discretizers.items() if discretizer.tails}
