"""A closer look at heavy cells: values that many rows share get cells of their own.

A range is first counted in equal cells. A cell with many rows may hold them evenly, or nearly all of them at one
value: 9.99, a default, midnight. Whether finer counts could show it is public arithmetic on what was released before,
and so are the cells that are counted: the heavy ones in many parts, all others as they are. One unit moves each
column's counts by its stability, however many cells they have (mechanism 1 of ``docs/privacy.md``). Parts that noise
cannot distinguish from an even spread are joined; one that stands out and still holds many values is cut further.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from privbench_core.arrays import Array
from privbench_core.columns.categorical import CategoricalCodec
from privbench_core.columns.codec import Codec
from privbench_core.columns.discretizer import Binning, merge_cells, parts_worth_cutting, place_hidden_cells
from privbench_core.columns.intervals import OrderedCodec
from privbench_core.errors import InternalError
from privbench_core.estimators.segmentation import SIGNIFICANT, segment_sums, segments
from privbench_core.guards import MOST_CUT, MOST_PARTS, NEGLIGIBLE
from privbench_core.marginals.measure_one_way import measure_one_way, view_of_cells
from privbench_core.marginals.measure_scores import highest_noise
from privbench_core.privacy.budget import Measure, Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import ViewSpec
from privbench_core.schema.tables import Table
from privbench_core.tuning import TUNING


@dataclass(frozen=True)
class CellCounts:
    """What has been released about the cells of a column.

    Attributes:
        codec: Values <-> cells.
        counts: Best estimates, shape (codec.size,).
        variances: Of these, shape (codec.size,).
        widths: Of the ordered cells, where the cells that were counted first have width 1.
        unseen: Which of the ordered cells have not been cut yet, or only from a wider cell that they stood out of.
        named: Whether the cells are values of a learned list: they stood out when units were counted.
        laplace: Whether the noise is Laplace's.
    """

    codec: Codec
    counts: Array
    variances: Array
    widths: Array
    unseen: NDArray[np.bool_]
    named: bool = False
    laplace: bool = False

    @classmethod
    def first(
        cls, codec: Codec, counts: Array, sigma: float, *, named: bool = False, laplace: bool = False
    ) -> CellCounts:
        """Return cells that count as equally wide."""
        equal, unseen = np.ones(codec.ordered), np.ones(codec.ordered, bool)
        return cls(codec, counts, np.full(codec.size, sigma**2), equal, unseen, named, laplace)

    @property
    def sigma(self) -> float:
        """Standard deviation of most counts."""
        return math.sqrt(float(np.median(self.variances)))

    @property
    def shown(self) -> Codec:
        """The codec, without made-up values if their rows are not significant: named values stand for them."""
        codec = self.codec
        if not isinstance(codec, CategoricalCodec) or codec.made is None or not (codec.made.hidden and codec.values):
            return codec
        other = codec.outside[0]
        significant = self.counts[other] > SIGNIFICANT * math.sqrt(float(self.variances[other]))
        return codec if significant else replace(codec, made=None)

    @property
    def intervals(self) -> OrderedCodec:
        """The codec of a column whose cells may be cut."""
        if not isinstance(self.codec, OrderedCodec):
            raise InternalError(f"a {type(self.codec).__name__} has no intervals to cut")
        return self.codec

    def combined(self, counts: Array, variances: Array) -> CellCounts:
        """Return the average with independent counts of the same cells, by their variances, which may be infinite."""
        gain = self.variances / (self.variances + variances)
        return replace(self, counts=self.counts + gain * (counts - self.counts), variances=(1 - gain) * self.variances)

    def merged(self, max_codes: int) -> Binning:
        """Return the cells merged into codes; see `merge_cells`.

        A value of a learned list keeps its code where noise hides its rows: what units with many rows have in common
        weighs little in first counts of units, and has most rows.
        """
        widths = _visible(self.widths)
        # Values of a list may have been counted when they were named, and the others less precisely.
        sigma = math.sqrt(float(self.variances.max())) if self.named else self.sigma
        return merge_cells(self.counts, self.codec, sigma, max_codes, widths, visible=self.named, laplace=self.laplace)

    def cut(self, merged: Binning, others: float, max_codes: int) -> tuple[Binning, Array, Array]:
        """Return these codes, those cut that hide too much, with their counts and standard deviations.

        See `parts_worth_cutting` (``others``: mean codes of the other columns) and `Binning.with_tails`. A part has its
        share of the count of the code that it was cut from, a piece of a tail its own.
        """
        counts = merged.sums(self.counts)
        binning, whole, share = merged.cut(parts_worth_cutting(merged, counts, self.sigma, others, max_codes))
        counts = counts[whole] * share
        if isinstance(self.codec, OrderedCodec):
            tailed = binning.with_tails(self.codec.widths, counts)
            before, pieces = np.zeros(tailed.size, np.int64), np.zeros(tailed.size, np.bool_)
            before[np.array(tailed.code_of)] = binning.code_of
            for tail in tailed.tails:
                pieces[min(tail) : max(tail) + 1] = True
            binning, counts = tailed, np.where(pieces, tailed.sums(self.counts), counts[before])
        binning = place_hidden_cells(binning, self.codec, counts)
        return binning, counts, np.sqrt(binning.sums(self.variances))

    def neighbours(self) -> Array:
        """Return rows per width to the left and right of each interval cell, on average; 0 for a single cell."""
        density = np.maximum(self.counts[: len(self.widths)], 0) / _visible(self.widths)
        if len(density) == 1:
            return np.zeros(1)
        padded = np.pad(density, 1, mode="reflect")
        return np.asarray((padded[:-2] + padded[2:]) / 2)


def share_of(table: Table, codecs: Mapping[str, Codec]) -> float:
    """Return the part of the price of one-way marginals for closer looks: none where no column can gain by them.

    At most so much that a closer look at all columns that may be cut is as precise as the first counts of all.
    """
    divisible = sum(_divisible(table, name, codec) for name, codec in codecs.items())
    return min(TUNING.detail_share, divisible / (len(codecs) + divisible)) if divisible else 0.0


def refine_bins(
    session: PrivateSession, table: Table, known: Mapping[str, CellCounts], full: int, price: Price
) -> dict[str, CellCounts]:
    """Cut heavy cells of the columns where it pays, for exactly ``price``.

    What no closer look can use counts all columns once more. Rows of a unit with up to ``full`` of them count in full,
    as they did first.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1, 4 and 7.
    """
    found, left = dict(known), price
    for levels in range(5, 0, -1):  # looks at parts of heavy cells, one after another
        parts, share = _plan(session, table, found, full, left, levels)
        if not parts:
            break
        now, left = left.share(share), left.share(1 - share)
        finer = {name: found[name].intervals.cut(cells) for name, cells in parts.items()}
        view = view_of_cells(session, table.name, finer, full, "closer look")
        noisy = measure_one_way(view, list(finer), now, "parts of heavy cells")
        bar = highest_noise(now.measure, 1.0, _most_parts(len(finer)) * len(finer))
        for name, counts in noisy.counts.items():
            found[name] = _refined(found[name], finer[name], counts, noisy.sigmas[name][0], bar)
    if left.amount > 0:
        view = view_of_cells(
            session, table.name, {name: cells.codec for name, cells in found.items()}, full, "closer look"
        )
        noisy = measure_one_way(view, list(found), left, "again")
        found = {name: cells.combined(noisy.counts[name], noisy.sigmas[name] ** 2) for name, cells in found.items()}
    return found


def _plan(
    session: PrivateSession, table: Table, known: Mapping[str, CellCounts], full: int, left: Price, levels: int
) -> tuple[dict[str, dict[int, int]], float]:
    """Return for each column that pays the cells to cut and in how many parts; and the share of ``left`` for it."""
    curator = session.view(ViewSpec(table.name, {}, (full,)), "closer look")
    open_to = {name: cells for name, cells in known.items() if left.amount > 0 and _divisible(table, name, cells.codec)}
    number, share = len(open_to), 1.0
    while number > 0:
        parts = _paying(curator, open_to, left.share(share), number)
        if len(parts) < number:
            # The more columns are counted together, the noisier each is: about as many as still pay then.
            number, share = number - (number - len(parts) + 1) // 2, 1.0
            continue
        # Later looks are at fewer columns: of all that are still to come, this one has its part.
        to_come = sum(min(levels, _depth(known[name], cells)) for name, cells in parts.items())
        if number >= share * to_come * (1 - NEGLIGIBLE):
            return parts, share
        share = number / to_come
    return {}, 0.0


def _paying(curator: Curator, known: Mapping[str, CellCounts], price: Price, number: int) -> dict[str, dict[int, int]]:
    """Return the cells worth cutting of at most ``number`` columns, if so many were counted for ``price``."""
    sigma = curator.sigma([Marginal(())] * number, price)
    most = _most_parts(number)
    bar = highest_noise(price.measure, sigma, most * number)
    found = {name: _worth_cutting(cells, bar, price.measure, most) for name, cells in known.items()}
    paying = sorted((name for name in found if found[name]), key=lambda n: -max(known[n].counts[list(found[n])]))
    return {name: found[name] for name in paying[:number]}


def _most_parts(columns: int) -> int:
    """Return the most parts of all cells of a column, if so many columns are counted; enough for `MOST_CUT` cells."""
    # Noise of more than 2^15 parts of the cells of a table takes long to draw.
    return max(2 * MOST_CUT, min(MOST_PARTS, (1 << 15) // columns))


def _worth_cutting(known: CellCounts, bar: float, measure: Measure, most: int) -> dict[int, int]:
    """Return the cells with enough rows for a spike inside to stand out of ``bar``, with the number of their parts."""
    codec = known.intervals
    counts, values = known.counts[: codec.ordered], codec.values_in
    excess = counts - known.neighbours() * known.widths
    bar = TUNING.standing_out * bar
    significant = excess > max(bar, highest_noise(measure, known.sigma, codec.ordered))
    # A few looks lead to single ones of 2^16 values.
    pays = significant | ((values <= 1 << 16) & (counts > 4 * bar))
    cells = np.flatnonzero(pays & known.unseen & (values > 1))
    cells = cells[np.argsort(-counts[cells], kind="stable")[:MOST_CUT]]
    return {int(cell): int(min(values[cell], most // len(cells))) for cell in np.sort(cells)}


def _depth(known: CellCounts, parts: Mapping[int, int]) -> int:
    """Return how many measurements of so many parts lead from the widest of the cells to single values."""
    values = known.intervals.values_in
    # Less a little, because the logarithm of a power may come out above the exponent.
    return max(math.ceil(math.log(values[cell]) / math.log(number) - NEGLIGIBLE) for cell, number in parts.items())


def _refined(known: CellCounts, finer: OrderedCodec, counts: Array, sigma: float, bar: float) -> CellCounts:
    """Return cells with counts of their parts: least squares, and parts that do not stand out joined again.

    The rest of a cell around a spike is counted badly, as a sum over many parts; its neighbours say better what to
    expect, unless the count says otherwise beyond its noise.

    Args:
        known: Before.
        finer: Its cells, some of them cut.
        counts: Noisy counts of the cells of ``finer``.
        sigma: Standard deviation of their noise.
        bar: Standard deviations that a part must stand out by.
    """
    before = known.intervals
    inside = np.searchsorted(before.starts, finer.starts, side="right") - 1
    number = np.bincount(inside)
    values = finer.values_in
    share = values / np.bincount(inside, values)[inside]
    kept = []
    for first, size in zip(np.searchsorted(inside, np.arange(before.ordered)), number, strict=True):
        block = slice(first, first + size)
        # A spike costs two cuts, before and after it.
        local = segments(counts[block], sigma, share[block] * size, bar**2 / 2) if size > 1 else np.zeros(1, np.int64)
        kept.append(first + local)
    starts = np.concatenate(kept)
    parent = inside[starts]
    pieces = np.append(starts, np.arange(finer.ordered, finer.size))
    runs = np.diff(np.append(pieces, finer.size))
    widths = known.widths[parent] * segment_sums(share, starts)
    found, variances = segment_sums(counts, pieces), runs * sigma**2
    rest = np.flatnonzero((runs[: len(starts)] > 1) & (np.bincount(parent)[parent] > 1))
    expected = known.neighbours()[parent[rest]] * widths[rest]
    off = found[rest] - expected
    spread = np.maximum.reduce([off**2 - variances[rest], expected**2, np.full(len(rest), known.sigma**2)])
    gain = spread / (spread + variances[rest])
    found[rest], variances[rest] = expected + gain * off, variances[rest] * gain
    parents = np.append(parent, np.arange(before.ordered, before.size))
    together = known.variances + np.bincount(parents, variances)
    missing = (known.counts - np.bincount(parents, found)) / together
    found, variances = found + variances * missing[parents], variances - variances**2 / together[parents]
    codec: OrderedCodec = before if len(starts) == before.ordered else finer.joined(starts)
    unseen = (runs[: len(starts)] == 1) & (number[parent] > 1)
    return CellCounts(codec, found, variances, widths, unseen, laplace=known.laplace)


def _divisible(table: Table, name: str, codec: Codec) -> bool:
    """Return whether some cell of a range holds more than one value that rows may share."""
    shared = (name,) not in table.unique
    return shared and isinstance(codec, OrderedCodec) and bool((codec.values_in > 1).any())


def _visible(widths: Array) -> Array:
    return np.maximum(widths, 0.01)  # of an equal cell: what a very narrow one is taken for when levels are compared
