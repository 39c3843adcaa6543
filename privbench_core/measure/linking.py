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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.columns.contingency import contingency
from privbench_core.estimate.haar_shrinkage import shrink_haar
from privbench_core.estimate.joints import NoisyTable, estimated_joint
from privbench_core.estimate.segmentation import ABSOLUTE
from privbench_core.estimate.simplex import onto_simplex
from privbench_core.measure.link_candidates import Candidate, Features, candidates_of, merged
from privbench_core.measure.linked_rows import Counting, LettingGo, Reference, countings, with_none
from privbench_core.models.linking import CrossMarginal, link_rows
from privbench_core.privacy.budget import Price
from privbench_core.privacy.curator import Curator, Measurement
from privbench_core.privacy.features import feature_size
from privbench_core.privacy.queries import Distances, Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import ViewSpec
from privbench_core.schema.identity import Identity

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]
# Chosen by hand on generated databases.
_NOISE = 0.1  # of all rows: the noise of a cross-table marginal, as half its expected L1 norm
_LEAST_CELLS = (
    64  # that a cross-table marginal should have when it is decided how many there are: eight codes on either side
)
_OTHERWISE = 0.05  # how far rows that are not counted may move a marginal, as a share of them; as in `by_size`
_UNSEEN = 1e-3  # of a table: spread over all cells, to keep those that a sample lacks possible
_MOST_CELLS = 10_000  # of a cross-table marginal, for memory and time


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
    if not reference.rows.n or (along is not None and not along.linked.any()):
        return ()
    pairs = [(a, b) for a in left for b in right if feature_size(*left[a]) > 1 and feature_size(*right[b]) > 1]
    plan = _planned(countings(session, table, reference, along), math.ceil(fit.per_pair * len(pairs)), price, fit)
    if plan is None:
        return ()
    planned, most, total = plan.number, plan.counting.rows_per_unit, plan.counting.counted
    features = {**left, **right}
    candidates = list(candidates_of(pairs, features, reference, plan.cells))
    coarse = {n: merged(features, n, g) for c in candidates for n, g in zip(c.names, c.groups, strict=True)}
    view = session.view(ViewSpec(table, coarse, (most,), plan.counting.bounded), "links")
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
            noisy = view.measure(" x ".join(names), [Marginal(names)], for_answer)
            off = float(np.abs(noisy.values[0] - expected).sum()) / 2
            significant = significant or off > 2 * ABSOLUTE * noisy.sigma * expected.size
            cross = _cross_marginal(candidate, noisy, expected, followed=along is not None)
            found.append(cross if along is None else with_none(cross, reference, float(along.linked.mean())))
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
    counting: Counting


def _planned(countings: Sequence[Counting], most: int, price: Price, fit: LinkingFit) -> _Plan | None:
    """Return what to measure: fewer marginals, with fewer cells, where noise would hide them; None for nothing.

    Args:
        countings: Ways to count rows.
        most: Marginals.
        price: Of all.
        fit: How to spend it.
    """
    for number in sorted({max(1, round(most / 2**halves)) for halves in range(20)} if most else (), reverse=True):
        each = price.share((1 - fit.select) / number)

        def error(counting: Counting, each: Price = each) -> float:
            return _LEAST_CELLS * counting.noise(each) + _OTHERWISE * counting.lost

        best = min(countings, key=error)
        cells = _NOISE / best.noise(each)
        if cells >= _LEAST_CELLS or (number == 1 and cells >= 4):  # noqa: PLR2004 - two codes on either side
            return _Plan(number, min(cells, _MOST_CELLS), best)
    return None


def _select(
    view: Curator, candidates: Sequence[tuple[Candidate, Array]], number: int, price: Price
) -> list[tuple[Candidate, Array]]:
    """Return the candidates whose counts in the linked reference are furthest off, with these counts.

    Formal guarantee: satisfies ``number`` times the price; ``docs/privacy.md``, section 5, mechanisms 5 and 7.
    """
    left, chosen = list(candidates), []
    for _ in range(min(number, len(left))):
        distances = Distances(tuple(((candidate.names, expected),) for candidate, expected in left))
        chosen.append(left.pop(view.select("cross-table marginal", distances, price)))
    return chosen


def _expected(candidate: Candidate, codes: Mapping[str, Codes], weights: Numbers | None, total: float) -> Array:
    codes_of = {
        name: group_of[codes[column]]
        for name, column, group_of in zip(
            candidate.names, candidate.left + candidate.right, candidate.groups, strict=True
        )
    }
    sizes = dict(zip(candidate.names, candidate.shape, strict=True))
    counts = contingency(codes_of, sizes, candidate.names, weights).astype(np.float64)
    return np.asarray(counts * (total / max(float(counts.sum()), 1.0)))


def _cross_marginal(
    candidate: Candidate, noisy: Measurement, expected: Array, *, followed: bool = False
) -> CrossMarginal:
    """Return the estimate of a marginal, given its counts in the reference: their margins are known better.

    Unless whether a row counts may follow its own columns: then those of the left are only near what is expected.
    """
    rows = math.prod(candidate.shape[: len(candidate.left)])
    base = expected.reshape(rows, -1)
    sides = np.maximum(base.sum(axis=1), 1.0), np.maximum(base.sum(axis=0), 1.0)
    base = base + _UNSEEN * np.outer(*sides) / expected.sum()  # cells that the sample lacks are like all others
    table = NoisyTable(noisy.values[0].reshape(rows, -1), noisy.sigma)
    left = base.sum(axis=1)
    if followed:
        near = shrink_haar(table.counts.sum(axis=1), noisy.sigma * math.sqrt(base.shape[1]), left)
        left = onto_simplex(near, float(left.sum()))
    counts = estimated_joint(table, left, base.sum(axis=0), base)
    return CrossMarginal(candidate.left, candidate.right, candidate.groups, counts)
