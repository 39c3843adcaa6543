"""Rows exchanged between owners, so that children of one owner agree as often as was measured (`models.agreement`).

Columns of children that follow those of their owners alone are drawn independently of each other otherwise: thirty
prescriptions of a patient are thirty drugs. Here rows that are drawn are exchanged between owners that are alike. Where
siblings should agree more, a part of the rows is sorted by a column and dealt to one owner after the other; where they
should agree less (there is one head in each household), pairs of rows are swapped if that takes an agreement away. So
no row changes, and no distribution of a column, or joint within rows.

Post-processing: uses released numbers and synthetic rows only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.columns.systematic import group_counts
from privbench_core.estimate.fitting import mutual_information
from privbench_core.guards import FEW_ROWS, REDRAWING_ROUNDS, SAMPLE_ROWS, SPREADING_ROUNDS, TINY
from privbench_core.models.agreement import Agreement
from privbench_core.models.group_model import OWNER
from privbench_core.models.record_swapping import partners
from privbench_core.models.registry import Model
from privbench_core.models.rows import Rows
from privbench_core.tuning import TUNING

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class AgreeingSiblings:
    """A model whose rows agree with their siblings as often as was measured.

    Attributes:
        inner: Draws the rows.
        agreements: Released.
    """

    inner: Model
    agreements: Sequence[Agreement]

    def draw(self, rows: Rows, rng: np.random.Generator) -> None:
        """See `Model.draw`."""
        context = set(rows.codes)
        self.inner.draw(rows, rng)
        drawn = {name: codes for name, codes in rows.codes.items() if name not in context}
        known = [agreement for agreement in self.agreements if agreement.column in drawn]
        if not known or OWNER not in context or rows.n < FEW_ROWS:
            return
        order = _exchanged(rows, drawn, known, rng)
        for name, codes in drawn.items():
            rows.codes[name] = codes[order]


def _exchanged(
    rows: Rows, drawn: Mapping[str, Codes], agreements: Sequence[Agreement], rng: np.random.Generator
) -> Numbers:
    """Return the order in which rows agree with siblings as often as they should, shape (n,).

    The column that lacks most agreement comes first, then the one that has most too much. What is settled stays: later
    exchanges are among rows with the same codes in the columns before.
    """
    groups = _dense(rows.codes[OWNER].astype(np.int64))
    alike = [_alike_owners(rows, drawn, TUNING.alike_rows * times) for times in (1, 8, 64)]
    siblings = _Siblings(groups, np.bincount(groups))
    order, settled = np.arange(rows.n), np.zeros(rows.n, dtype=np.int64)
    little = 1 / math.sqrt(rows.n)  # about the sampling error of an agreement
    left = list(agreements)
    while left:
        codes = [each.groups[drawn[each.column][order]] for each in left]
        now = np.array([siblings.agreement(of) for of in codes])
        wanted = np.array([each.wanted(share) for each, share in zip(left, now, strict=True)])
        gaps = wanted - now
        place = int(np.argmax(gaps if gaps.max() >= little else -gaps))
        if abs(gaps[place]) < little:
            break
        left.pop(place)
        near = [_dense(settled * (int(each.max()) + 1) + each) for each in alike]
        of_place = codes[place]
        exchange = siblings.dealt if gaps[place] > 0 else siblings.spread
        taken = exchange(of_place, (*near, settled), float(wanted[place]), rng)  # owners that are alike first
        order, settled, of_place = order[taken], settled[taken], of_place[taken]
        settled = _dense(settled * (int(of_place.max(initial=0)) + 1) + of_place)
    return order


@dataclass(frozen=True)
class _Siblings:
    """Whose siblings rows are.

    Attributes:
        of_row: Group of each row, dense, shape (n,).
        sizes: Of the groups, shape (groups,).
    """

    of_row: Numbers
    sizes: Numbers

    @property
    def weights(self) -> Array:
        """What one pair of rows of a group that agree adds to the sum over rows with siblings, shape (groups,)."""
        return np.asarray(1 / np.maximum(self.sizes - 1, 1))

    def agreement(self, codes: Numbers) -> float:
        """Return how likely a row with siblings agrees with one of them."""
        size = int(codes.max(initial=0)) + 1
        cells, counts = np.unique(self.of_row * size + codes, return_counts=True)
        pairs = counts * (counts - 1) * self.weights[cells // size]
        return float(pairs.sum()) / max(int(self.sizes[self.sizes > 1].sum()), 1)

    def dealt(self, codes: Numbers, strata: Sequence[Numbers], wanted: float, rng: np.random.Generator) -> Numbers:
        """Return the row that each place gets, such that ``wanted`` of the rows agree with a sibling, or nearly so.

        Two rows of a group agree if both are dealt, so that the part that is dealt is the root of what lacks.

        Args:
            codes: What counts as the same, of the row at each place, shape (n,).
            strata: Rows are dealt among those with the same number, dense, each of shape (n,); in the first of these
                partitions that leaves room for that, or in the best of them.
            wanted: Share of the rows that have siblings.
            rng: Sampling only.
        """
        n, size, now = len(codes), int(codes.max(initial=0)) + 1, self.agreement(codes)
        chance, turn, shuffled = rng.random(n), rng.random(len(self.sizes))[self.of_row], rng.permutation(n)
        best, least = np.arange(n), abs(wanted - now)
        for of_row in strata:
            part = math.sqrt(max(0.0, wanted - now) / max(1 - now, TINY))
            for _ in range(REDRAWING_ROUNDS):
                dealt = shuffled[chance[shuffled] < part]
                places, rows = np.argsort(of_row[dealt] + turn[dealt]), np.argsort(of_row[dealt] * size + codes[dealt])
                taken = np.arange(n)
                taken[dealt[places]] = dealt[rows]
                gained = self.agreement(codes[taken]) - now
                if abs(wanted - now - gained) < least:
                    best, least = taken, abs(wanted - now - gained)
                if least < 1 / math.sqrt(n) or (part == 1 and now + gained < wanted):
                    break
                part = min(1.0, part * math.sqrt(max(0.0, wanted - now) / max(gained, TINY)))
            if least < 1 / math.sqrt(n):
                break
        return best

    def spread(self, codes: Numbers, strata: Sequence[Numbers], wanted: float, rng: np.random.Generator) -> Numbers:
        """Return the row that each place gets, such that no more than ``wanted`` of them agree, or few can be spread.

        Args:
            codes: As in `dealt`.
            strata: As there.
            wanted: As there.
            rng: Sampling only.
        """
        codes, size, taken = codes.copy(), int(codes.max(initial=0)) + 1, np.arange(len(codes))
        for of_row in (each for each in strata for _ in range(SPREADING_ROUNDS)):
            cells, counts = np.unique(self.of_row * size + codes, return_counts=True)

            def often(places: Any, rows: Any, cells: Any = cells, counts: Any = counts) -> Any:
                """Return how many rows of the groups of some places have the codes of others."""
                cell = self.of_row[places] * size + codes[rows]
                found = np.minimum(np.searchsorted(cells, cell), len(cells) - 1)
                return np.where(cells[found] == cell, counts[found], 0)

            everywhere = np.arange(len(codes))
            agreeing = np.flatnonzero(often(everywhere, everywhere) > 1)
            too_many = (self.agreement(codes) - wanted) * int(self.sizes[self.sizes > 1].sum())
            if too_many < 1:
                break
            rows = np.union1d(agreeing, rng.integers(len(codes), size=len(agreeing)))
            one, other = partners(rng.permutation(rows), of_row)
            fewer = np.zeros(len(one))
            for here, comes in ((one, other), (other, one)):
                weight = 2 * self.weights[self.of_row[here]]
                fewer += weight * (often(here, here) - 1 - often(here, comes))
            possible = (self.of_row[one] != self.of_row[other]) & (codes[one] != codes[other])
            good = rng.permutation(np.flatnonzero(possible & (fewer > 0)))
            good = good[np.cumsum(fewer[good]) <= too_many]
            one, other = one[good], other[good]
            for values in (taken, codes):
                values[one], values[other] = values[other], values[one]
        return taken


def _alike_owners(rows: Rows, drawn: Mapping[str, Codes], number: int) -> Numbers:
    """Return which rows have owners that are alike, by the columns of the context that rows follow most; shape (n,).

    Args:
        rows: With their context.
        drawn: Columns that are not of the context.
        number: Rows whose owners are alike, about.
    """
    sample = slice(None, None, max(1, rows.n // SAMPLE_ROWS))
    context = [name for name in rows.codes if name not in drawn and name != OWNER and rows.sizes[name] > 1]
    information = {name: sum(_shared(rows, name, other, sample) for other in drawn) for name in context}
    alike = np.zeros(rows.n, dtype=np.int64)
    for name in sorted(filter(information.__getitem__, context), key=information.__getitem__, reverse=True):
        parts = rows.n // (number * (int(alike.max()) + 1))
        counts = group_counts(rows.codes[name], rows.sizes[name])
        middle = (np.cumsum(counts) - counts / 2) / rows.n
        part_of = np.minimum((middle * parts).astype(np.int64), max(parts - 1, 0))
        alike = _dense(alike * max(parts, 1) + part_of[rows.codes[name]])
    return alike


def _shared(rows: Rows, first: str, second: str, sample: slice) -> float:
    """Return the mutual information of two columns in a sample of rows, 0 below twice its bias; in nats."""
    shape = rows.sizes[first], rows.sizes[second]
    cells = rows.codes[first][sample].astype(np.int64) * shape[1] + rows.codes[second][sample]
    counts = group_counts(cells, shape[0] * shape[1]).reshape(shape).astype(np.float64)
    free = (np.count_nonzero(counts.sum(axis=1)) - 1) * (np.count_nonzero(counts.sum(axis=0)) - 1)
    found = mutual_information(counts)
    return found if found > free / len(cells) else 0.0


def _dense(numbers: Numbers) -> Numbers:
    return np.asarray(np.unique(numbers, return_inverse=True)[1], dtype=np.int64)
