"""Measure what links two tables: the marginals across them that are furthest from those of rows linked at random.

Algorithms 1 to 4 of Alimohammadi et al. (marginals chosen by the exponential mechanism, noisy answers), with changes.
All are chosen before the first is answered. Sensitivity is that of a view of the rows that have the key, in privacy
units, instead of 2·d_max links: up to how many rows of a unit count in full is chosen here, because links need only
odds ratios, and few rows of each unit tell these at much less noise. Codes are merged until noise is a small part of a
marginal, so that narrow and wide columns compete fairly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privbench_core.arrays import Array, Numbers
from privbench_core.columns.codec import Codes
from privbench_core.columns.discretizer import Discretizer
from privbench_core.estimators.coarsening import coarsenings
from privbench_core.estimators.denoising import onto_simplex, shrink_haar
from privbench_core.estimators.joints import NoisyTable, estimated_joint
from privbench_core.estimators.segmentation import ABSOLUTE
from privbench_core.guards import NEGLIGIBLE, TINY
from privbench_core.links.linking import CrossMarginal
from privbench_core.links.measure_bounded import BoundedCounts
from privbench_core.marginals.sampler import Rows
from privbench_core.privacy.budget import Price
from privbench_core.privacy.curator import Curator, Measurement
from privbench_core.privacy.features import Feature, OfParent, feature_size
from privbench_core.privacy.queries import Distances, Marginal
from privbench_core.privacy.relations import WEIGHT_SCALE
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import BoundedReferences, ViewSpec
from privbench_core.schema.constraints import ForeignKey
from privbench_core.tuning import TUNING
from privbench_core.units.measure_by_size import Features
from privbench_core.units.row_count import RowCount


@dataclass(frozen=True)
class Reference:
    """Synthetic rows of both sides, in a sample that no run's seed decides, to compare the source with.

    Attributes:
        rows: With the codes and sizes of all columns on the left.
        others: Codes of the columns on the right, each of shape (rows.n,).
        of_unit: Number of rows of the unit of each, shape (rows.n,); None where that is not known.
        total: Released number of rows, counted with ``size.rows_per_unit``.
        size: Released size of the table.
        counts: Where the columns on the right are those of what rows refer to along a SET NULL key: how many rows
            refer to others. Only these count, and few of those that refer to one unit.
        linked: Along a SET NULL key: whether each row refers to another, shape (rows.n,); None for all.
    """

    rows: Rows
    others: Mapping[str, Codes]
    of_unit: Numbers | None
    total: float
    size: RowCount
    counts: BoundedCounts | None = None
    linked: NDArray[np.bool_] | None = None

    def counted(self, most: int) -> float:
        """Return the number of rows of the source where units with more than ``most`` count as so many."""
        now = float(self.size.counted(self.size.rows_per_unit).sum())
        return self.total * float(self.size.counted(most).sum()) / max(now, NEGLIGIBLE)

    def weights(self, most: int) -> Numbers | None:
        """Return integers that stand for the weight of each row if so many of a unit count in full; None for 1 each."""
        if self.of_unit is None or self.of_unit.max(initial=1) <= most:
            return None
        weights: Numbers = np.rint(WEIGHT_SCALE * np.minimum(1.0, most / self.of_unit)).astype(np.int64)
        return weights


@dataclass(frozen=True)
class Counting:
    """A way to count rows: up to so many of a unit, or of those that refer to one unit along a SET NULL key.

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
    """A cross-table marginal that may be measured: a column of either side, and the groups that their codes are in."""

    left: str
    right: str
    groups: tuple[Numbers, Numbers]

    @property
    def names(self) -> tuple[str, str]:
        """Names of the columns of the view."""
        left, right = (int(groups.max()) + 1 for groups in self.groups)
        return f"{self.left}/{left}", f"{self.right}/{right}"


def measure_cross_marginals(
    session: PrivateSession,
    key: ForeignKey,
    left: Features,
    right: Features,
    reference: Reference,
    price: Price,
    select: float,
) -> tuple[CrossMarginal, ...]:
    """Measure cross-table marginals between the columns of ``left`` and of ``right``, for at most ``price``.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 4, "Bounded references", and section 5,
    mechanisms 1, 4, 5, 7 and 12.

    Args:
        session: Open for the step.
        key: The rows of its child table are the links.
        left: Columns of the row that has the key, and of its owner.
        right: Columns of what is linked to it.
        reference: Of both sides.
        price: Of everything here.
        select: Share of a marginal's price for choosing it, where not all are measured.
    """
    if not reference.rows.n or (reference.linked is not None and not reference.linked.any()):
        return ()
    pairs = [(a, b) for a in left for b in right if feature_size(*left[a]) > 1 and feature_size(*right[b]) > 1]
    plan = _planned(countings(session, key, reference), len(pairs), price.share(1 - select))
    if plan is None:
        return ()
    (number, cells, counting), features = plan, {**left, **right}
    candidates = list(_candidates(pairs, features, reference, cells))
    sides = [_expected(each, reference, counting) for each in candidates]
    columns = {
        shown: grouped(features[name], groups)
        for each in candidates
        for shown, name, groups in zip(each.names, (each.left, each.right), each.groups, strict=True)
    }
    view = session.view(ViewSpec(key.child, columns, (counting.rows_per_unit,), counting.bounded), "links")
    chosen = list(range(len(candidates)))
    if number < len(candidates):
        expected = [np.outer(*each) / each[0].sum() for each in sides]
        left_over, chosen = chosen, []
        for _ in range(number):  # those with counts furthest from those of rows linked at random
            distances = Distances(tuple(((candidates[each].names, expected[each]),) for each in left_over))
            chosen.append(left_over.pop(view.select("cross-table marginal", distances, price.share(select / number))))
        price = price.share(1 - select)
    found: list[CrossMarginal] = []
    for each, counts in ((candidates[number], sides[number]) for number in chosen):
        noisy = view.measure(" x ".join(each.names), [Marginal(each.names)], price.share(1 / len(chosen)))
        found.append(_cross_marginal(each, noisy, counts, reference))
    return tuple(found)


def countings(session: PrivateSession, key: ForeignKey, reference: Reference) -> list[Counting]:
    """Return the ways to count rows."""
    size, counts = reference.size, reference.counts
    if counts is None:
        alone, rows = session.view(ViewSpec(key.child, {}), "links"), reference.counted(size.classes[-1])
        totals = {most: reference.counted(most) for most in size.classes}
        return [Counting(most, total, 1 - total / rows, alone) for most, total in totals.items()]
    full = counts.size.rows_per_unit
    return [
        Counting(full, counts.in_view(most), counts.lost(most), view, BoundedReferences(key, most))
        for most, view in counts.views.items()
    ]


def _planned(countings: Sequence[Counting], most: int, price: Price) -> tuple[int, float, Counting] | None:
    """Return how many marginals to measure, the cells each may have, and which rows count; None for nothing.

    These are fewer marginals, with fewer cells, where noise would hide them.

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
            return number, min(cells, 10_000), best  # links are learned from all marginals across tables together
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


def _expected(candidate: _Candidate, reference: Reference, counting: Counting) -> tuple[Array, Array]:
    """Return the expected counts of the groups of both sides; rows linked at random have their product, as a share."""
    (left, right), here = candidate.groups, slice(None) if reference.linked is None else reference.linked
    of_rows = left[reference.rows.codes[candidate.left]]
    counts = np.bincount(of_rows, reference.weights(counting.rows_per_unit), int(left.max()) + 1)
    others = np.bincount(right[reference.others[candidate.right][here]], minlength=int(right.max()) + 1)
    sides = (np.maximum(counts, counts.sum() * NEGLIGIBLE), np.maximum(others, 1.0))  # no group is ruled out
    first, second = (side * (counting.counted / side.sum()) for side in sides)
    return first, second


def _cross_marginal(
    candidate: _Candidate, noisy: Measurement, sides: tuple[Array, Array], reference: Reference
) -> CrossMarginal:
    """Return the estimate of a marginal over all rows, given those of both sides, which are known better.

    Along a SET NULL key, whether a row counts may follow its own columns: those of the left are only near what is
    expected. And of each cell on the left, rows that refer to none are what those that refer to others leave.
    """
    left, right = sides
    table = NoisyTable(noisy.values[0], noisy.sigma)
    if reference.linked is None:
        return CrossMarginal(candidate.left, candidate.right, candidate.groups, estimated_joint(table, left, right))
    near = shrink_haar(table.counts.sum(axis=1), noisy.sigma * math.sqrt(len(right)), left)
    counts = estimated_joint(table, onto_simplex(near, float(left.sum())), right).copy()
    linked, last = float(reference.linked.mean()), int(candidate.groups[1][-1])
    counts[:, last] = 0.0
    counts *= linked / max(float(counts.sum()), TINY)
    of_left = candidate.groups[0][reference.rows.codes[candidate.left]]
    rows = np.bincount(of_left, minlength=len(counts)) / reference.rows.n
    rest = np.maximum(rows - counts.sum(axis=1), 0.0)
    counts[:, last] = rest * ((1 - linked) / max(float(rest.sum()), TINY))
    return CrossMarginal(candidate.left, candidate.right, candidate.groups, counts)
