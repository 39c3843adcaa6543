"""Rows exchanged between owners, so that children of one owner are as alike as was measured (`links.fanout`).

Columns of children that follow those of their owners alone are drawn independently of each other otherwise: thirty
prescriptions of a patient are thirty drugs. Rows that are drawn are exchanged between owners until they agree with
their siblings as often as they should: groups copy codes among their own rows as in a Pólya urn (Blackwell and MacQueen
1973), by which two rows of a group have one code for what their group is with one probability in groups of all sizes,
and the rows that have these codes come from elsewhere. So no row changes, and no distribution of a column, or joint
within rows. Rows come from owners that are like theirs, as far as there are some. Where siblings agree less than rows
that are drawn independently (there is one head in each household), rows that agree are exchanged for others.

Post-processing: uses released numbers and synthetic rows only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.columns.systematic import group_counts, stable_order
from privbench_core.estimators.fitting import mutual_information
from privbench_core.groups.group_model import OWNER
from privbench_core.guards import FEW, FEW_ROWS, MAX_PARTS, MOST_COUNTERS, SAMPLE_ROWS, SPREADING_ROUNDS
from privbench_core.links.fanout import Agreement
from privbench_core.marginals.record_swapping import partners
from privbench_core.marginals.sampler import Model, Rows
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
        order = _Exchange(rows, drawn, rng).agreeing(known)
        for name, codes in drawn.items():
            rows.codes[name] = codes[order]


class _Exchange:
    """Rows while they are exchanged between owners: ``order`` says which of the drawn rows is where now.

    Attributes:
        order: The row at each place, shape (n,).
    """

    def __init__(self, rows: Rows, drawn: Mapping[str, Codes], rng: np.random.Generator) -> None:
        self._drawn, self._rng = drawn, rng
        self._groups = _Groups.of(_dense(rows.codes[OWNER].astype(np.int64)))
        self._like = _alike_owners(rows, drawn)
        self.order = np.arange(rows.n)
        self._same = np.zeros(rows.n, dtype=np.int64)  # the settled codes of the row at each place, as one number

    def agreeing(self, agreements: Sequence[Agreement]) -> Numbers:
        """Return the order in which rows agree with siblings as often as they should.

        What agrees most comes first, then what agrees least. What is settled stays: later exchanges are among rows with
        the same codes in the columns before.
        """
        urn = _Urn.of(self._groups.of_row, self._rng)
        left = list(agreements)
        while left:
            now = np.array([self._groups.agreement(self._codes(each)) for each in left])
            gaps = np.array([each.wanted(agree) for each, agree in zip(left, now, strict=True)]) - now
            place = int(np.argmax(gaps if gaps.max() >= 10 * FEW else -gaps))
            if abs(gaps[place]) < 10 * FEW:
                break
            agreement, gap = left.pop(place), float(gaps[place])
            if gap > 0:
                self._copy(self._codes(agreement), urn.copied(gap / (1 - now[place])))
            else:
                self._spread(self._codes(agreement), now[place] + gap)
            codes = self._codes(agreement)
            self._same = _dense(self._same * (int(codes.max(initial=0)) + 1) + codes)
        return self.order

    def _codes(self, agreement: Agreement) -> Numbers:
        """Return what counts as the same, of the row at each place."""
        return agreement.groups[self._drawn[agreement.column][self.order]]

    def _copy(self, codes: Numbers, copied: Numbers) -> None:
        """Exchange rows so that places have the codes of the places that they copy, as far as there are such rows.

        Args:
            codes: Of the row at each place, shape (n,).
            copied: Which place each copies; itself for those that keep their row, shape (n,).
        """
        places = np.flatnonzero(copied != np.arange(len(copied)))
        same, wanted, have = self._same[places], codes[copied[places]], codes[places]
        taken = np.empty(len(places), dtype=np.int64)
        to_fill = to_take = np.arange(len(places))
        size = int(codes.max(initial=0)) + 1
        near = _dense(same * (int(self._like.max()) + 1) + self._like[places])
        for within in (near, same):  # owners that are alike first
            fills, takes = _matched(
                within[to_fill] * size + wanted[to_fill], within[to_take] * size + have[to_take], self._rng
            )
            taken[to_fill[fills]] = to_take[takes]
            to_fill, to_take = np.delete(to_fill, fills), np.delete(to_take, takes)
        # Others take the nearest code: those that want the same one get the same one still.
        to_fill = to_fill[np.lexsort((wanted[to_fill], same[to_fill]))]
        taken[to_fill] = to_take[np.lexsort((have[to_take], same[to_take]))]
        self.order[places] = self.order[places[taken]]

    def _spread(self, codes: Numbers, wanted: float) -> None:
        """Swap rows that agree with siblings for others, until ``wanted`` of them do, or swaps help little.

        Rows of owners that are alike are next to each other, and swap.

        Args:
            codes: Of the row at each place, shape (n,); changed.
            wanted: Share of the rows that have siblings.
        """
        size, of_row = int(codes.max(initial=0)) + 1, self._groups.of_row
        cells = len(self._groups.sizes) * size
        if cells > MOST_COUNTERS:  # so many codes that they hardly ever agree
            return
        weight = (1 / np.maximum(self._groups.sizes - 1, 1))[of_row]
        for _ in range(SPREADING_ROUNDS):
            counts = group_counts(of_row * size + codes, cells)
            others = counts[of_row * size + codes] - 1  # of the row's group that have its code
            too_many = float(others @ weight) - wanted * self._groups.with_siblings
            if too_many < 1:
                return
            agreeing = np.flatnonzero(others)
            rows = self._rng.permutation(np.union1d(agreeing, self._rng.integers(len(codes), size=len(agreeing))))
            one, other = partners(rows[stable_order(self._like[rows])], self._same)
            fewer = np.zeros(len(one))
            for here, comes in ((one, other), (other, one)):
                fewer += 2 * weight[here] * (others[here] - counts[of_row[here] * size + codes[comes]])
            possible = (of_row[one] != of_row[other]) & (codes[one] != codes[other])
            good = self._rng.permutation(np.flatnonzero(possible & (fewer > 0)))
            good = good[np.cumsum(fewer[good]) <= too_many]
            one, other = one[good], other[good]
            for values in (self.order, codes):
                values[one], values[other] = values[other], values[one]
            if fewer[good].sum() <= TUNING.clear * too_many:
                return


@dataclass(frozen=True)
class _Groups:
    """Whose siblings rows are.

    Attributes:
        of_row: Group of each row, dense, shape (n,).
        sizes: Of the groups, shape (groups,).
        with_siblings: Number of rows in groups of several.
    """

    of_row: Numbers
    sizes: Numbers
    with_siblings: int

    @classmethod
    def of(cls, of_row: Numbers) -> _Groups:
        sizes = np.bincount(of_row)
        return cls(of_row, sizes, int(sizes[sizes > 1].sum()))

    def agreement(self, codes: Numbers) -> float:
        """Return how likely a row with siblings agrees with one of them."""
        size = int(codes.max(initial=0)) + 1
        cells, counters = self.of_row * size + codes, len(self.sizes) * size
        if counters > MOST_COUNTERS:
            cells = _dense(cells)
            counters = int(cells.max(initial=0)) + 1
        others = group_counts(cells, counters)[cells] - 1
        return float(others @ (1 / np.maximum(self.sizes - 1, 1))[self.of_row]) / max(self.with_siblings, 1)


@dataclass(frozen=True)
class _Urn:
    """The order in which the rows of groups are drawn from urns, and the chances that they are copies.

    They are the same for all columns, so that rows that copy a rare column copy the others, too.

    Attributes:
        rows: In an order in which groups stand together, shape (n,).
        rank: How many of their group stand before them, shape (n,).
        chance: Uniform, shape (n,).
        earlier: A place before them in their group, where there is one, shape (n,).
    """

    rows: Numbers
    rank: Numbers
    chance: Array
    earlier: Numbers

    @classmethod
    def of(cls, groups: Numbers, rng: np.random.Generator) -> _Urn:
        rows = rng.permutation(len(groups))
        rows = rows[stable_order(groups[rows])]
        begins = np.r_[True, np.diff(groups[rows]) != 0]
        place = np.arange(len(rows))
        first = np.maximum.accumulate(np.where(begins, place, 0))
        rank = place - first
        earlier = first + (rng.random(len(rows)) * np.maximum(rank, 1)).astype(np.int64)
        return cls(rows, rank, rng.random(len(rows)), earlier)

    def copied(self, share: float) -> Numbers:
        """Return the row that each one copies, itself where it is drawn: two of a group are one with this probability.

        The r-th row after the first copies one before it with probability r / (α + r), where 1 / (1 + α) = ``share``.
        """
        share, place = min(share, 1.0), np.arange(len(self.rows))
        copies = self.chance * (1 - share + self.rank * share) < self.rank * share
        root = np.where(copies, self.earlier, place)
        while not (root == root[root]).all():
            root = root[root]
        found = np.empty(len(root), dtype=np.int64)
        found[self.rows] = self.rows[root]
        return found


def _alike_owners(rows: Rows, drawn: Mapping[str, Codes]) -> Numbers:
    """Return which rows have owners that are alike, by the columns of the context that rows follow most; shape (n,)."""
    sample = slice(None, None, max(1, rows.n // SAMPLE_ROWS))
    context = [name for name in rows.codes if name not in drawn and name != OWNER and rows.sizes[name] > 1]
    telling = {name: sum(_shared(rows, name, other, sample) for other in drawn) for name in context}
    alike = np.zeros(rows.n, dtype=np.int64)
    for name in sorted(telling, key=lambda name: -telling[name]):
        if telling[name] < 5 * FEW:
            break
        counts = group_counts(rows.codes[name], rows.sizes[name])
        middle = (np.cumsum(counts) - counts / 2) / rows.n
        parts = MAX_PARTS
        while parts > 1:  # as many as there are rows for
            part_of = np.minimum((middle * parts).astype(np.int64), parts - 1)
            finer = _dense(alike * parts + part_of[rows.codes[name]])
            if (int(finer.max()) + 1) * TUNING.alike_rows <= rows.n:
                alike = finer
                break
            parts //= 2
    return alike


def _shared(rows: Rows, first: str, second: str, sample: slice) -> float:
    """Return the information that two columns share in a sample of rows, less what they would share by chance."""
    shape = rows.sizes[first], rows.sizes[second]
    cells = rows.codes[first][sample].astype(np.int64) * shape[1] + rows.codes[second][sample]
    counts = group_counts(cells, shape[0] * shape[1]).reshape(shape).astype(np.float64)
    free = (np.count_nonzero(counts.sum(axis=1)) - 1) * (np.count_nonzero(counts.sum(axis=0)) - 1)
    return max(0.0, mutual_information(counts) - free / (2 * len(cells)))


def _matched(wanted: Numbers, have: Numbers, rng: np.random.Generator) -> tuple[Numbers, Numbers]:
    """Return pairs of places with the same number in both, each place once, at random among equal ones."""
    places, others = (rng.permutation(len(values)) for values in (wanted, have))
    places, others = places[np.argsort(wanted[places])], others[np.argsort(have[others])]
    sorted_wanted, sorted_have = wanted[places], have[others]
    occurrence = np.arange(len(places)) - np.searchsorted(sorted_wanted, sorted_wanted)
    place = np.searchsorted(sorted_have, sorted_wanted) + occurrence
    met = place < np.searchsorted(sorted_have, sorted_wanted, side="right")
    return places[met], others[place[met]]


def _dense(numbers: Numbers) -> Numbers:
    return np.asarray(np.unique(numbers, return_inverse=True)[1], dtype=np.int64)
