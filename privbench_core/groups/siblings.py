"""Exchange rows between owners until siblings have the released intraclass correlation (`links.fanout.Agreement`).

Columns of children that follow those of their owners alone are drawn independently of each other otherwise: thirty
prescriptions of a patient are thirty drugs. Places in groups copy each other as in a Pólya urn (Blackwell and MacQueen
1973), by which two rows of a group share a code through their group with one probability in groups of all sizes, and
rows with these codes are moved there. So no row changes, and no distribution of a column, or joint within rows. Rows
come from owners with similar columns, as far as there are some. Where siblings agree less than independent rows (there
is one head in each household), rows that agree are swapped for others. What stays the same in nearly all rows of an
owner may be many columns, and no other row has their codes: there, rows take the codes that they copy.

Post-processing: uses released numbers and synthetic rows only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from privbench_core.arrays import Array, Numbers, dense, finer, runs
from privbench_core.columns.codec import Codes
from privbench_core.columns.systematic import group_counts, mixed_order, stable_order
from privbench_core.estimators.fitting import mutual_information
from privbench_core.groups.group_model import OWNER
from privbench_core.guards import FEW, FEW_ROWS, MAX_PARTS, MOST_COUNTERS, SAMPLE_ROWS, SPREADING_ROUNDS
from privbench_core.links.fanout import Agreement
from privbench_core.marginals.record_swapping import partners
from privbench_core.marginals.sampler import Model, Rows
from privbench_core.tuning import TUNING


@dataclass(frozen=True)
class WithinGroupCorrelation:
    """A model whose rows agree with their siblings as often as was measured.

    Attributes:
        inner: Draws the rows.
        correlations: Released.
    """

    inner: Model
    correlations: Sequence[Agreement]

    def draw(self, rows: Rows, rng: np.random.Generator) -> None:
        """See `Model.draw`."""
        context = set(rows.codes)
        self.inner.draw(rows, rng)
        drawn = {name: codes for name, codes in rows.codes.items() if name not in context}
        known = [each for each in self.correlations if each.column in drawn]
        if not known or OWNER not in context or rows.n < FEW_ROWS:
            return
        order = _Exchange(rows, drawn, rng).correlated(known)
        for name, codes in drawn.items():
            rows.codes[name] = codes[order]


class _Exchange:
    """Rows while they are exchanged between owners: ``_order`` says which of the drawn rows is at each position."""

    def __init__(self, rows: Rows, drawn: Mapping[str, Codes], rng: np.random.Generator) -> None:
        self._drawn, self._rng = drawn, rng
        self._group = dense(rows.codes[OWNER].astype(np.int64))
        sizes = np.bincount(self._group)
        self._groups, self._with_siblings = len(sizes), int(sizes[sizes > 1].sum())
        self._weight = (1 / np.maximum(sizes - 1, 1))[self._group]  # of each sibling
        self._stratum = _similar_owners(rows, drawn)
        self._order = np.arange(rows.n)
        self._settled = np.zeros(rows.n, dtype=np.int64)  # codes of the settled columns, as one number per position

    def correlated(self, correlations: Sequence[Agreement]) -> Numbers:
        """Return the order in which rows agree with siblings as often as released.

        Columns in which hardly any siblings agree come first, those in which nearly all do last: of these, rows take
        the codes that they copy where exchanges leave a lack. They copy all of them from one row, so their joints stay.
        """
        urn, few = _Urn.of(self._group, self._rng), TUNING.clear
        self._settle([each for each in correlations if each.share <= few], urn)
        self._settle([each for each in correlations if few < each.share < 1 - few], urn)
        for each, copied in self._settle([each for each in correlations if each.share >= 1 - few], urn):
            if each.wanted(found := self._correlation(self._codes(each))) - found > few:
                self._overwrite(each, copied)
        return self._order

    def _settle(self, left: list[Agreement], urn: _Urn) -> list[tuple[Agreement, Numbers]]:
        """Exchange rows for some columns, and return those that lacked agreement, with what each row copies.

        The largest lack comes first, then the largest excess. Later exchanges are among rows with the same codes in the
        columns that are settled.
        """
        lacked = []
        while left:
            now = np.array([self._correlation(self._codes(each)) for each in left])
            gaps = np.array([each.wanted(found) for each, found in zip(left, now, strict=True)]) - now
            best = int(np.argmax(gaps if gaps.max() >= 10 * FEW else -gaps))
            if abs(gaps[best]) < 10 * FEW:
                break
            each, gap = left.pop(best), float(gaps[best])
            if gap > 0:
                lacked.append((each, urn.copied(gap / (1 - now[best]))))
                self._copy(self._codes(each), lacked[-1][1])
            else:
                self._spread(self._codes(each), now[best] + gap)
            self._settled = finer(self._settled, self._codes(each))
        return lacked

    def _codes(self, each: Agreement) -> Numbers:
        """Return what counts as the same, of the row at each position."""
        return each.groups[self._drawn[each.column][self._order]]

    def _correlation(self, codes: Numbers) -> float:
        """Return how likely a row with siblings agrees with one of them."""
        return float((_code_counts(self._group, codes) - 1) @ self._weight) / max(self._with_siblings, 1)

    def _copy(self, codes: Numbers, copied: Numbers) -> None:
        """Exchange rows so that positions have the codes of those that they copy (``copied``), as far as rows go."""
        places = np.flatnonzero(copied != np.arange(len(copied)))
        settled, wanted, have = self._settled[places], codes[copied[places]], codes[places]
        taken = np.empty(len(places), dtype=np.int64)
        to_fill = to_take = np.arange(len(places))
        size = int(codes.max(initial=0)) + 1
        near = finer(settled, self._stratum[places])
        for within in (near, settled):  # similar owners first
            fills, takes = _matched(
                within[to_fill] * size + wanted[to_fill], within[to_take] * size + have[to_take], self._rng
            )
            taken[to_fill[fills]] = to_take[takes]
            to_fill, to_take = np.delete(to_fill, fills), np.delete(to_take, takes)
        # Others take the nearest code: those that want the same one get the same one still.
        to_fill = to_fill[np.lexsort((wanted[to_fill], settled[to_fill]))]
        taken[to_fill] = to_take[np.lexsort((have[to_take], settled[to_take]))]
        self._order[places] = self._order[places[taken]]

    def _overwrite(self, each: Agreement, copied: Numbers) -> None:
        """Give rows that no exchange has given the code of the row that they copy that code (``copied``)."""
        codes = self._codes(each)
        left = np.flatnonzero(codes != codes[copied])
        drawn = self._drawn[each.column]
        drawn[self._order[left]] = drawn[self._order[copied[left]]]

    def _spread(self, codes: Numbers, wanted: float) -> None:
        """Swap rows that agree with siblings for others of similar owners, until a share ``wanted`` does.

        ``codes`` of the row at each position, shape (n,), are changed; ends where swaps help little.
        """
        size, group, weight = int(codes.max(initial=0)) + 1, self._group, self._weight
        if self._groups * size > MOST_COUNTERS:  # so many codes that they hardly ever agree
            return
        for _ in range(SPREADING_ROUNDS):
            counts = group_counts(group * size + codes, self._groups * size)
            others = counts[group * size + codes] - 1  # of the row's group that have its code
            excess = float(others @ weight) - wanted * self._with_siblings
            if excess < 1:
                return
            agreeing = np.flatnonzero(others)
            chosen = others > 0
            chosen[self._rng.integers(len(codes), size=len(agreeing))] = True
            rows = self._rng.permutation(np.flatnonzero(chosen))
            one, other = partners(rows[stable_order(self._stratum[rows])], self._settled)
            gain = np.zeros(len(one))
            for here, comes in ((one, other), (other, one)):
                gain += 2 * weight[here] * (others[here] - counts[group[here] * size + codes[comes]])
            possible = (group[one] != group[other]) & (codes[one] != codes[other])
            good = self._rng.permutation(np.flatnonzero(possible & (gain > 0)))
            good = good[np.cumsum(gain[good]) <= excess]
            one, other = one[good], other[good]
            for values in (self._order, codes):
                values[one], values[other] = values[other], values[one]
            if gain[good].sum() <= TUNING.clear * excess:
                return


def _code_counts(groups: Numbers, codes: Numbers) -> Numbers:
    """Return how many rows of each row's group have its code; all of shape (n,)."""
    size = int(codes.max(initial=0)) + 1
    cells, counters = groups * size + codes, (int(groups.max(initial=0)) + 1) * size
    if counters > MOST_COUNTERS:
        cells = dense(cells)
        counters = int(cells.max(initial=0)) + 1
    return np.asarray(group_counts(cells, counters)[cells])


@dataclass(frozen=True)
class _Urn:
    """The order in which rows of groups are drawn from urns, and the chances that they are copies; shapes (n,).

    They are the same for all columns, so that rows that copy a rare column copy the others, too.

    Attributes:
        rows: In an order in which groups stand together.
        rank: Number of rows of the group before each.
        chance: Uniform.
        earlier: A random position before each in its group, where there is one.
    """

    rows: Numbers
    rank: Numbers
    chance: Array
    earlier: Numbers

    @classmethod
    def of(cls, groups: Numbers, rng: np.random.Generator) -> _Urn:
        rows = mixed_order(groups, rng)
        first = np.repeat(*runs(groups[rows]))
        rank = np.arange(len(rows)) - first
        earlier = first + (rng.random(len(rows)) * np.maximum(rank, 1)).astype(np.int64)
        return cls(rows, rank, rng.random(len(rows)), earlier)

    def copied(self, share: float) -> Numbers:
        """Return the row that each one copies, itself where it is drawn: two of a group are one with probability share.

        The r-th row after the first copies one before it with probability r / (α + r), where 1 / (1 + α) = ``share``.
        """
        share = min(share, 1.0)
        copies = self.chance * (1 - share + self.rank * share) < self.rank * share
        root = np.where(copies, self.earlier, np.arange(len(self.rows)))
        while ((further := root[root]) != root).any():
            root = further
        found = np.empty(len(root), dtype=np.int64)
        found[self.rows] = self.rows[root]
        return found


def _similar_owners(rows: Rows, drawn: Mapping[str, Codes]) -> Numbers:
    """Return a stratum of owners for each row, by the columns of the context that rows follow most; shape (n,)."""
    sample = slice(None, None, max(1, rows.n // SAMPLE_ROWS))
    context = [name for name in rows.codes if name not in drawn and name != OWNER and rows.sizes[name] > 1]
    information = {name: sum(_shared(rows, name, other, sample) for other in drawn) for name in context}
    stratum = np.zeros(rows.n, dtype=np.int64)
    for name in sorted(information, key=lambda name: -information[name]):
        if information[name] < 5 * FEW:
            break
        counts = group_counts(rows.codes[name], rows.sizes[name])
        middle = (np.cumsum(counts) - counts / 2) / rows.n
        parts = MAX_PARTS
        while parts > 1:  # as many as there are rows for
            part_of = np.minimum((middle * parts).astype(np.int64), parts - 1)
            finer = dense(stratum * parts + part_of[rows.codes[name]])
            if (int(finer.max()) + 1) * TUNING.alike_rows <= rows.n:
                stratum = finer
                break
            parts //= 2
    return stratum


def _shared(rows: Rows, first: str, second: str, sample: slice) -> float:
    """Return the mutual information of two columns in a sample of rows, less its expectation by chance."""
    shape = rows.sizes[first], rows.sizes[second]
    cells = rows.codes[first][sample].astype(np.int64) * shape[1] + rows.codes[second][sample]
    counts = group_counts(cells, shape[0] * shape[1]).reshape(shape).astype(np.float64)
    free = (np.count_nonzero(counts.sum(axis=1)) - 1) * (np.count_nonzero(counts.sum(axis=0)) - 1)
    return max(0.0, mutual_information(counts) - free / (2 * len(cells)))


def _matched(wanted: Numbers, have: Numbers, rng: np.random.Generator) -> tuple[Numbers, Numbers]:
    """Return pairs of positions with the same number in both, each once, at random among equal ones."""
    places, others = mixed_order(wanted, rng), mixed_order(have, rng)
    sorted_wanted, sorted_have = wanted[places], have[others]
    starts, numbers = runs(sorted_wanted)
    first, end = (np.searchsorted(sorted_have, sorted_wanted[starts], side) for side in ("left", "right"))
    place = np.arange(len(places)) + np.repeat(first - starts, numbers)
    met = place < np.repeat(end, numbers)
    return places[met], others[place[met]]
