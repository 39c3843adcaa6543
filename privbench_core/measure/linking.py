"""Measure what links two tables: the marginals across them that are furthest from those of rows linked at random.

Algorithms 1 to 4 of Alimohammadi et al. (marginals chosen by the exponential mechanism, noisy answers), with changes.
All are chosen before the first is answered. Sensitivity is that of a view of the rows that have the key, in privacy
units, instead of 2·d_max links: up to how many rows of a unit count in full is chosen here, because links need only
odds ratios, and few rows of each unit tell these at much less noise. Codes are merged until noise is a small part of a
marginal, so that narrow and wide columns compete fairly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.columns.discretizer import Discretizer
from privbench_core.estimate.coarsening import coarsenings
from privbench_core.estimate.denoising import onto_simplex, shrink_haar
from privbench_core.estimate.joints import NoisyTable, estimated_joint
from privbench_core.guards import MAX_MARGINAL_CELLS, NEGLIGIBLE
from privbench_core.measure.by_size import Features
from privbench_core.measure.linked_rows import Counting, LettingGo, Reference, countings, with_none
from privbench_core.models.linking import CrossMarginal
from privbench_core.privacy.budget import Price
from privbench_core.privacy.curator import Curator, Measurement
from privbench_core.privacy.features import Feature, OfParent, feature_size
from privbench_core.privacy.queries import Distances, Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import ViewSpec
from privbench_core.tuning import TUNING

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class _Candidate:
    """A cross-table marginal that may be measured: a column of either side, and the groups that their codes are in."""

    left: str
    right: str
    groups: tuple[Numbers, Numbers]

    @property
    def names(self) -> tuple[str, str]:
        """Names of the columns of the view."""
        rows, columns = self.shape
        return f"{self.left}/{rows}", f"{self.right}/{columns}"

    @property
    def shape(self) -> tuple[int, int]:
        """Number of groups of each column."""
        left, right = self.groups
        return int(left.max()) + 1, int(right.max()) + 1


def measure_cross_marginals(
    session: PrivateSession,
    table: str,
    left: Features,
    right: Features,
    reference: Reference,
    price: Price,
    select: float,
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
        select: Share of a marginal's price for choosing it, where not all are measured.
        along: Where the columns of ``right`` are those of what rows refer to along a key that lets go.
    """
    if not reference.rows.n or (along is not None and not along.linked.any()):
        return ()
    pairs = [(a, b) for a in left for b in right if feature_size(*left[a]) > 1 and feature_size(*right[b]) > 1]
    plan = _planned(countings(session, table, reference, along), len(pairs), price.share(1 - select))
    if plan is None:
        return ()
    most, features = plan.counting.rows_per_unit, {**left, **right}
    candidates = list(_candidates(pairs, features, reference, plan.cells))
    sides = [_expected(each, reference, along, plan.counting) for each in candidates]
    view = session.view(ViewSpec(table, _coarse(candidates, features), (most,), plan.counting.bounded), "links")
    chosen = list(range(len(candidates)))
    if plan.number < len(candidates):
        expected = [np.outer(*each) / each[0].sum() for each in sides]
        chosen = _chosen(view, candidates, expected, plan.number, price.share(select / plan.number))
        price = price.share(1 - select)
    found: list[CrossMarginal] = []
    for each, counts in ((candidates[number], sides[number]) for number in chosen):
        noisy = view.measure(" x ".join(each.names), [Marginal(each.names)], price.share(1 / len(chosen)))
        cross = _cross_marginal(each, noisy, counts, followed=along is not None)
        found.append(cross if along is None else with_none(cross, reference, float(along.linked.mean())))
    return tuple(found)


def _coarse(candidates: Sequence[_Candidate], features: Features) -> dict[str, tuple[Feature, Discretizer]]:
    """Return the columns of a view of these marginals."""
    found = {}
    for each in candidates:
        for shown, name, groups in zip(each.names, (each.left, each.right), each.groups, strict=True):
            found[shown] = grouped(features[name], groups)
    return found


@dataclass(frozen=True)
class _Plan:
    """How many marginals are measured, the cells each may have, and which rows count."""

    number: int
    cells: float
    counting: Counting


def _planned(countings: Sequence[Counting], most: int, price: Price) -> _Plan | None:
    """Return what to measure: fewer marginals, with fewer cells, where noise would hide them; None for nothing.

    Args:
        countings: Ways to count rows.
        most: Marginals.
        price: Of the answers of all.
    """
    wide, least = 8 * 8, 2 * 2  # cells of a marginal that tells most of two columns, and of one that tells anything
    numbers = [math.ceil(most / 2**halves) for halves in range((most - 1).bit_length() + 1)] if most else []
    for number in numbers:
        each = price.share(1 / number)

        def error(counting: Counting, each: Price = each) -> float:
            return wide * counting.noise(each) + TUNING.truncation_bias * counting.lost

        best = min(countings, key=error)
        cells = TUNING.most_noise / best.noise(each)
        if cells >= wide or (number == 1 and cells >= least):
            return _Plan(number, min(cells, MAX_MARGINAL_CELLS), best)
    return None


def _candidates(
    pairs: Sequence[tuple[str, str]], features: Features, reference: Reference, cells: float
) -> Iterator[_Candidate]:
    """Yield each pair of columns at the finest groups of codes that make so many cells, wider columns merged first."""
    codes = {**reference.rows.codes, **reference.others}
    ways = {name: _ways(features[name], codes[name]) for pair in pairs for name in pair}
    for a, b in pairs:
        left, right = list(ways[a]), list(ways[b])
        while _groups(left) * _groups(right) > cells and max(len(left), len(right)) > 1:
            wider = left if len(right) == 1 or (len(left) > 1 and _groups(left) >= _groups(right)) else right
            wider.pop()
        yield _Candidate(a, b, (left[-1], right[-1]))


def _groups(ways: Sequence[Numbers]) -> int:
    """Return the number of groups in the finest way."""
    return int(ways[-1].max()) + 1


def _ways(how: tuple[Feature, Discretizer], codes: Codes) -> list[Numbers]:
    """Return groupings of a column's codes, coarsest first; a code for "refers to none" stays apart."""
    feature, discretizer = how
    size = feature_size(*how)
    proper = discretizer.size if isinstance(feature, OfParent) else size
    counts = np.bincount(codes, minlength=size)[:proper].astype(np.float64) + 1
    none = np.arange(size - proper)
    found = [
        np.append(way.groups, way.number + none)
        for way in (coarsenings(counts, discretizer.ordered) if proper > 1 else ())
    ]
    return found or [np.arange(size)]


def grouped(column: tuple[Feature, Discretizer], groups: Numbers) -> tuple[Feature, Discretizer]:
    """Return a column over groups of its codes, shape (codes,), as dense numbers."""
    feature, discretizer = column
    return feature, discretizer.grouped(groups)  # "refers to none" is none of the codec's cells


def _expected(
    candidate: _Candidate, reference: Reference, along: LettingGo | None, counting: Counting
) -> tuple[Array, Array]:
    """Return the expected counts of the groups of both sides; rows linked at random have their product, as a share.

    Args:
        candidate: The marginal.
        reference: Of both sides.
        along: As in `measure_cross_marginals`.
        counting: Which rows count.
    """
    (left, right), here = candidate.groups, slice(None) if along is None else along.linked
    of_rows = left[reference.rows.codes[candidate.left]]
    counts = np.bincount(of_rows, reference.weights(counting.rows_per_unit), int(left.max()) + 1)
    others = np.bincount(right[reference.others[candidate.right][here]], minlength=int(right.max()) + 1)
    sides = (np.maximum(counts, counts.sum() * NEGLIGIBLE), np.maximum(others, 1.0))  # no group is ruled out
    first, second = (side * (counting.counted / side.sum()) for side in sides)
    return first, second


def _chosen(
    view: Curator, candidates: Sequence[_Candidate], expected: Sequence[Array], number: int, price: Price
) -> list[int]:
    """Return which candidates have counts furthest from those of rows linked at random.

    Formal guarantee: satisfies ``number`` times the price; ``docs/privacy.md``, section 5, mechanisms 5 and 7.
    """
    left, chosen = list(range(len(candidates))), list[int]()
    for _ in range(number):
        distances = Distances(tuple(((candidates[each].names, expected[each]),) for each in left))
        chosen.append(left.pop(view.select("cross-table marginal", distances, price)))
    return chosen


def _cross_marginal(
    candidate: _Candidate, noisy: Measurement, sides: tuple[Array, Array], *, followed: bool
) -> CrossMarginal:
    """Return the estimate of a marginal, given those of both sides, which are known better.

    Unless whether a row counts may follow its own columns: then those of the left are only near what is expected.
    """
    left, right = sides
    table = NoisyTable(noisy.values[0], noisy.sigma)
    if followed:
        near = shrink_haar(table.counts.sum(axis=1), noisy.sigma * math.sqrt(len(right)), left)
        left = onto_simplex(near, float(left.sum()))
    return CrossMarginal(candidate.left, candidate.right, candidate.groups, estimated_joint(table, left, right))
