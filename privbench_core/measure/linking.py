"""Measure what links two tables: marginals across them, in rounds, where the rows linked so far are furthest off.

Algorithms 1 to 4 of Alimohammadi et al. (K marginals per round by the exponential mechanism, Gaussian answers), with
changes. Sensitivity is that of a view of the rows that have the key, in privacy units, instead of 2·d_max links: up to
how many rows of a unit count in full is chosen here, because links need only odds ratios, and few rows of each unit
tell these at much less noise. Codes are merged until noise is a small part of a marginal, so that narrow and wide
columns compete fairly. An answer is estimated around what the rows linked so far say of it: a marginal of three columns
adds what its pairs do not imply. And the price of a round that finds nothing beyond its noise halves the number of
marginals that are left.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.binning import Binning
from privbench_core.columns.codec import Codes
from privbench_core.columns.contingency import contingency
from privbench_core.columns.discretizer import Discretizer
from privbench_core.estimate.coarsening import coarsenings
from privbench_core.estimate.fitting import EMPTY, shrunk
from privbench_core.estimate.joints import NoisyTable, estimated_joint
from privbench_core.estimate.segmentation import ABSOLUTE
from privbench_core.estimate.simplex import onto_simplex
from privbench_core.measure.bounded import BoundedCounts
from privbench_core.measure.clipped import Clipping, RowsCounted, Vectors, measure_rows
from privbench_core.models.linking import CrossMarginal, link_rows
from privbench_core.models.row_count import RowCount
from privbench_core.models.rows import Rows
from privbench_core.privacy.budget import Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.features import Feature, OfParent, feature_size
from privbench_core.privacy.queries import Distances, Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import BoundedReferences, ViewSpec
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.identity import Identity

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]
Features = Mapping[str, tuple[Feature, Discretizer]]
# Chosen by hand on generated databases.
_NOISE = 0.1  # of all rows: the noise of a cross-table marginal, as half its expected L1 norm
_LEAST_CELLS = (
    64  # that a cross-table marginal should have when it is decided how many there are: eight codes on either side
)
_OTHERWISE = 0.05  # how far rows that are not counted may move a marginal, as a share of them; as in `by_size`
_UNSEEN = 1e-3  # of a table: spread over all cells, to keep those that a sample lacks possible
_MOST_CELLS = 10_000  # of a cross-table marginal, for memory and time
_WEIGHT = 1 << 20  # integers that stand for the weight of a row


@dataclass(frozen=True)
class LinkingFit:
    """How links spend their price; public constants.

    Attributes:
        select: Share of a cross-table marginal's price for selecting it, the rest is for its answer.
        rounds: Number of rounds.
        per_pair: Workloads measured at most, per pair of columns; those of three columns come with their pairs.
    """

    select: float = 0.1
    rounds: int = 8
    per_pair: float = 1.5

    def identity(self) -> Identity:
        """Return all that a release depends on."""
        return {"select": self.select, "rounds": self.rounds, "per_pair": self.per_pair, "otherwise": _OTHERWISE}


@dataclass(frozen=True)
class Reference:
    """Synthetic rows of both sides, in a sample that no run's seed decides, to compare the source with.

    Attributes:
        rows: With the codes and sizes of all columns on the left.
        others: Codes of the columns on the right, each of shape (rows.n,).
        of_unit: Number of rows of the unit of each, shape (rows.n,); None where that is not known.
        total: Released number of rows, counted with ``size.rows_per_unit``.
        size: Released size of the table.
    """

    rows: Rows
    others: Mapping[str, Codes]
    of_unit: Numbers | None
    total: float
    size: RowCount

    def counted(self, most: int) -> float:
        """Return the number of rows of the source where units with more than ``most`` count as so many."""
        now = float(self.size.counted(self.size.rows_per_unit).sum())
        return self.total * float(self.size.counted(most).sum()) / max(now, 1e-9)

    def weights(self, most: int) -> Numbers | None:
        """Return integers that stand for the weight of each row if so many of a unit count in full; None for 1 each."""
        if self.of_unit is None or self.of_unit.max(initial=1) <= most:
            return None
        weights: Numbers = np.rint(_WEIGHT * np.minimum(1.0, most / self.of_unit)).astype(np.int64)
        return weights


@dataclass(frozen=True)
class LettingGo:
    """A key that lets go, along which rows count that refer to others, and few of those that refer to one unit.

    Attributes:
        key: The key.
        counts: How many rows that are.
        linked: Whether each row of the reference refers to another, shape (rows,).
    """

    key: ForeignKey
    counts: BoundedCounts
    linked: NDArray[np.bool_]


@dataclass(frozen=True)
class _Counting:
    """A way to count rows.

    Attributes:
        rows_per_unit: T of the view.
        counted: About how many rows count.
        lost: Share of the rows that do not.
        alone: A view with a T-th of its noise.
        bounded: Which rows count, where not all do.
    """

    rows_per_unit: int
    counted: float
    lost: float
    alone: Curator
    bounded: BoundedReferences | None = None

    def noise(self, price: Price) -> float:
        """Return the expected error of a count by noise, as a share of the rows that count."""
        return ABSOLUTE * self.rows_per_unit * self.alone.sigma([Marginal(())], price) / self.counted


@dataclass(frozen=True)
class _Candidate:
    """A cross-table marginal that may be measured, and the columns of the view that it is of."""

    left: tuple[str, ...]
    right: tuple[str, ...]
    groups: tuple[Numbers, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(
            f"{name}/{int(group_of.max()) + 1}"
            for name, group_of in zip(self.left + self.right, self.groups, strict=True)
        )

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(int(group_of.max()) + 1 for group_of in self.groups)

    @property
    def pairs(self) -> frozenset[tuple[str, str]]:
        return frozenset((a, b) for a in self.left for b in self.right)


def measure_cross_marginals(
    session: PrivateSession,
    table: str,
    left: Features,
    right: Features,
    reference: Reference,
    price: Price,
    fit: LinkingFit,
    rng: np.random.Generator,
    along: LettingGo | None = None,
) -> tuple[CrossMarginal, ...]:
    """Measure cross-table marginals between the columns of ``left`` and of ``right``, for at most ``price``.

    Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or removing
    one privacy unit; ``docs/privacy.md``, section 4, "Bounded references", and section 5, mechanisms 1, 4, 5, 7 and 12.

    Args:
        session: Open for the step.
        table: That has the key: its rows are the links.
        left: Columns of the row that has the key, and of its owner.
        right: Columns of what is linked to it.
        reference: Of both sides.
        price: Of everything here.
        fit: How to spend it.
        rng: Links the reference; not the run's seed, or another sample would be paid for again.
        along: Where the columns of ``right`` are those of what rows refer to along a key that lets go.
    """
    if not reference.rows.n:
        return ()
    pairs = [(a, b) for a in left for b in right if feature_size(*left[a]) > 1 and feature_size(*right[b]) > 1]
    plan = _planned(_countings(session, table, reference, along), math.ceil(fit.per_pair * len(pairs)), price, fit)
    if plan is None:
        return ()
    planned, most, total = plan.number, plan.counting.rows_per_unit, plan.counting.counted
    features = {**left, **right}
    candidates = list(_candidates(pairs, features, reference, plan.cells))
    coarse = {n: _merged(features, n, g) for c in candidates for n, g in zip(c.names, c.groups, strict=True)}
    view = session.view(ViewSpec(table, coarse, (most,), plan.counting.bounded), "links")
    clipping = None if along else Clipping.of(replace(reference.size, rows_per_unit=most), view, price, ())
    weights = reference.weights(most)
    per_round = math.ceil(planned / fit.rounds)
    found: list[CrossMarginal] = []
    known: set[tuple[str, str]] = set()
    order = rng.permutation(reference.rows.n)
    unspent = 1.0
    while planned:
        share = unspent / planned
        open_now = [c for c in candidates if (len(c.pairs) == 1) or c.pairs <= known]
        codes = {**reference.rows.codes, **{name: values[order] for name, values in reference.others.items()}}
        here = slice(None) if along is None else np.flatnonzero(along.linked[order])
        codes = {name: values[here] for name, values in codes.items()}
        counted = None if weights is None else weights[here]
        now = [(candidate, _expected(candidate, codes, counted, total)) for candidate in open_now]
        chosen = _select(view, now, min(per_round, planned), price.share(share * fit.select))
        if not chosen:
            break
        significant = False
        for candidate, expected in chosen:
            names, for_answer = candidate.names, price.share(share * (1 - fit.select))
            axes = range(expected.ndim)
            columns = tuple(Vectors.plain(expected.sum(axis=tuple(a for a in axes if a != axis))) for axis in axes)
            noisy = measure_rows(view, " x ".join(names), Marginal(names), for_answer, clipping, columns)
            off = float(np.abs(noisy.counts - expected).sum()) / 2
            noise = ABSOLUTE * noisy.sigma * float((1 / np.broadcast_to(noisy.lengths, expected.shape)).sum())
            significant = significant or off > 2 * noise
            if along is None:
                found.append(_cross_marginal(candidate, noisy, expected))
            else:
                cross = _cross_marginal(candidate, noisy, expected, followed=True)
                found.append(_with_none(cross, reference, float(along.linked.mean())))
            candidates.remove(candidate)
            known |= candidate.pairs
        unspent -= share * len(chosen)
        planned -= len(chosen)
        if not significant:
            planned = (planned + 1) // 2 if planned > 1 else planned
        if planned:
            order = link_rows(reference.rows, reference.others, found, rng)
    return tuple(found)


@dataclass(frozen=True)
class _Plan:
    """How many marginals are measured, the cells each may have, and which rows count."""

    number: int
    cells: float
    counting: _Counting


def _countings(session: PrivateSession, table: str, reference: Reference, along: LettingGo | None) -> list[_Counting]:
    """Return the ways to count rows."""
    size = reference.size
    if along is None:
        alone, rows = session.view(ViewSpec(table, {}), "links"), reference.counted(size.classes[-1])
        totals = {most: reference.counted(most) for most in size.classes}
        return [_Counting(most, total, 1 - total / rows, alone) for most, total in totals.items()]
    counts = along.counts
    return [
        _Counting(
            size.rows_per_unit,
            counts.in_view(most),
            counts.lost(most),
            counts.views[most],
            BoundedReferences(along.key, most),
        )
        for most in counts.bounds
    ]


def _planned(countings: Sequence[_Counting], most: int, price: Price, fit: LinkingFit) -> _Plan | None:
    """Return what to measure: fewer marginals, with fewer cells, where noise would hide them; None for nothing.

    Args:
        countings: Ways to count rows.
        most: Marginals.
        price: Of all.
        fit: How to spend it.
    """
    for number in sorted({max(1, round(most / 2**halves)) for halves in range(20)} if most else (), reverse=True):
        each = price.share((1 - fit.select) / number)

        def error(counting: _Counting, each: Price = each) -> float:
            return _LEAST_CELLS * counting.noise(each) + _OTHERWISE * counting.lost

        best = min(countings, key=error)
        cells = _NOISE / best.noise(each)
        if cells >= _LEAST_CELLS or (number == 1 and cells >= 4):  # noqa: PLR2004 - two codes on either side
            return _Plan(number, min(cells, _MOST_CELLS), best)
    return None


def _candidates(
    pairs: Sequence[tuple[str, str]], features: Features, reference: Reference, cells: float
) -> Iterator[_Candidate]:
    """Yield each pair of columns, and each pair with one more column of either side, at the finest codes that fit."""
    sizes = {name: feature_size(*how) for name, how in features.items()}
    codes = {**reference.rows.codes, **reference.others}
    finest = {name: _ways(features[name], codes[name], sizes[name]) for pair in pairs for name in pair}
    for a, b in pairs:
        yield _Candidate((a,), (b,), _within(cells, [finest[a], finest[b]]))
    left, right = (list(dict.fromkeys(pair[side] for pair in pairs)) for side in (0, 1))
    wider: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
        ((a, c), (b,)) for a, c in combinations(left, 2) for b in right
    ]
    wider += [((a,), (b, c)) for a in left for b, c in combinations(right, 2)]
    for some, others in wider:
        yield _Candidate(some, others, _within(cells, [finest[name] for name in some + others]))


def _ways(how: tuple[Feature, Discretizer], codes: Codes, size: int) -> list[Numbers]:
    """Return groupings of a column's codes, coarsest first; a code for "refers to none" stays apart."""
    feature, discretizer = how
    proper = discretizer.size if isinstance(feature, OfParent) else size
    counts = np.bincount(codes, minlength=size)[:proper].astype(np.float64) + 1
    none = np.arange(size - proper)
    found = [
        np.append(way.groups, way.number + none)
        for way in (coarsenings(counts, discretizer.ordered) if proper > 1 else ())
    ]
    return found or [np.arange(size)]


def _within(cells: float, ways: Sequence[Sequence[Numbers]]) -> tuple[Numbers, ...]:
    """Return the finest groupings with so many cells, the widest column being merged first; else the coarsest."""
    chosen = [len(options) - 1 for options in ways]

    def numbers() -> list[int]:
        return [int(options[k].max()) + 1 for options, k in zip(ways, chosen, strict=True)]

    while math.prod(numbers()) > cells and any(chosen):
        widest = max((i for i in range(len(ways)) if chosen[i]), key=lambda i: numbers()[i])
        chosen[widest] -= 1
    return tuple(options[k] for options, k in zip(ways, chosen, strict=True))


def _merged(features: Features, name: str, groups: Numbers) -> tuple[Feature, Discretizer]:
    """Return a column of the view over groups of its codes."""
    feature, discretizer = features[name.rpartition("/")[0]]
    code_of = groups[discretizer.shares[0]]  # of the codec's cells: "refers to none" is none of them
    shares = 1 / np.bincount(code_of)[code_of]
    return feature, Discretizer(discretizer.codec, Binning(tuple(code_of.tolist()), tuple(shares.tolist())))


def _select(
    view: Curator, candidates: Sequence[tuple[_Candidate, Array]], number: int, price: Price
) -> list[tuple[_Candidate, Array]]:
    """Return the candidates whose counts in the linked reference are furthest off, with these counts.

    Formal guarantee: satisfies ``number`` times the price; ``docs/privacy.md``, section 5, mechanisms 5 and 7.
    """
    left, chosen = list(candidates), []
    for _ in range(min(number, len(left))):
        distances = Distances(tuple(((candidate.names, expected),) for candidate, expected in left))
        chosen.append(left.pop(view.select("cross-table marginal", distances, price)))
    return chosen


def _expected(candidate: _Candidate, codes: Mapping[str, Codes], weights: Numbers | None, total: float) -> Array:
    merged = {
        name: group_of[codes[column]]
        for name, column, group_of in zip(
            candidate.names, candidate.left + candidate.right, candidate.groups, strict=True
        )
    }
    sizes = dict(zip(candidate.names, candidate.shape, strict=True))
    counts = contingency(merged, sizes, candidate.names, weights).astype(np.float64)
    return np.asarray(counts * (total / max(float(counts.sum()), 1.0)))


def _cross_marginal(
    candidate: _Candidate, noisy: RowsCounted, expected: Array, *, followed: bool = False
) -> CrossMarginal:
    """Return the estimate of a marginal, given its counts in the reference: their margins are known better.

    Unless whether a row counts may follow its own columns: then those of the left are only near what is expected.
    """
    rows = math.prod(candidate.shape[: len(candidate.left)])
    base = expected.reshape(rows, -1)
    sides = np.maximum(base.sum(axis=1), 1.0), np.maximum(base.sum(axis=0), 1.0)
    base = base + _UNSEEN * np.outer(*sides) / expected.sum()  # cells that the sample lacks are like all others
    lengths = np.broadcast_to(noisy.lengths, expected.shape).reshape(rows, -1)
    table = NoisyTable(noisy.counts.reshape(rows, -1), noisy.sigma, lengths=lengths)
    left = base.sum(axis=1)
    if followed:
        near = shrunk(table.counts.sum(axis=1), noisy.sigma * math.sqrt(base.shape[1]), left)
        left = onto_simplex(near, float(left.sum()))
    counts = estimated_joint(table, left, base.sum(axis=0), [base])
    return CrossMarginal(candidate.left, candidate.right, candidate.groups, counts)


def _with_none(cross: CrossMarginal, reference: Reference, linked: float) -> CrossMarginal:
    """Return a marginal over all rows: of each cell on the left, those that refer to none are what the others leave.

    Args:
        cross: Over the rows that refer to others.
        reference: All rows.
        linked: Share of them that refer to others.
    """
    none = tuple(int(groups[-1]) for groups in cross.groups[len(cross.left) :])
    shape = tuple(int(groups.max()) + 1 for groups in cross.groups[len(cross.left) :])
    last = int(np.ravel_multi_index(none, shape))
    counts = cross.counts.copy()
    counts[:, last] = 0.0
    counts *= linked / max(float(counts.sum()), EMPTY)
    of_left, _ = cross.cells(reference.rows.codes, reference.others)
    left = np.bincount(of_left, minlength=len(counts)) / reference.rows.n
    rest = np.maximum(left - counts.sum(axis=1), 0.0)
    counts[:, last] = rest * ((1 - linked) / max(float(rest.sum()), EMPTY))
    return replace(cross, counts=counts)
