"""Measure what links two tables: the marginals across them that are furthest from those of rows linked at random.

Algorithms 1 to 4 of Alimohammadi et al. (marginals chosen by the exponential mechanism, noisy answers), with changes.
All are chosen before the first is answered. Sensitivity is that of a view of the rows that have the key, in privacy
units, instead of 2·d_max links: up to how many rows of a unit count in full is chosen here, because links need only
odds ratios, for which few rows of each unit suffice at much less noise. Codes are merged until noise is a small part of
a marginal, so that narrow and wide columns compete fairly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.discretizer import Discretizer
from privbench_core.estimators.coarsening import coarsenings
from privbench_core.estimators.denoising import onto_simplex, shrink_haar
from privbench_core.estimators.joints import NoisyTable, estimated_joint
from privbench_core.guards import LEAST_JOINT, MAX_MARGINAL_CELLS, NEGLIGIBLE, TINY, WIDE_JOINT
from privbench_core.links.link_model import ANY
from privbench_core.links.linking import CrossMarginal
from privbench_core.links.measure_references import Counting
from privbench_core.privacy.budget import Price
from privbench_core.privacy.curator import Measurement
from privbench_core.privacy.features import Feature, OfParent, feature_size
from privbench_core.privacy.queries import Distances, Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import ViewSpec
from privbench_core.schema.constraints import ForeignKey
from privbench_core.tuning import TUNING
from privbench_core.units.measure_by_size import Features

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Sides:
    """The columns of both sides of a link.

    Attributes:
        left: Columns of the row that has the key, and of its owner.
        right: Columns of what is linked to it.
        shares: How frequent the codes of each are: of the left, among all rows; of the right, among those that count.
        referring: Where only rows that refer to another count, along a SET NULL key: their share of all rows; else
            None. The last code of the right is that of none then.
    """

    left: Features
    right: Features
    shares: Mapping[str, Array]
    referring: float | None = None

    @property
    def finest(self) -> tuple[int, int]:
        """Cells of a marginal that shows most of two columns, and of one that shows anything.

        Of which rows refer to another, all that is to be known is the share of each group of rows.
        """
        return (1, 1) if list(self.right) == [ANY] else (WIDE_JOINT, LEAST_JOINT)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Pairs of columns, one of each side, that both have several codes."""
        return [(a, b) for a in self.left for b in self.right if min(len(self.shares[a]), len(self.shares[b])) > 1]


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
    session: PrivateSession, key: ForeignKey, sides: Sides, ways: Sequence[Counting], price: Price, select: float
) -> tuple[CrossMarginal, ...]:
    """Measure cross-table marginals, for at most ``price``.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 4, "Bounded references", and section 5,
    mechanisms 1, 4, 5, 7 and 12.

    Args:
        session: Open for the step.
        key: The rows of its child table are the links.
        sides: Both sides.
        ways: To count rows.
        price: Of everything here.
        select: Share of a marginal's price for choosing it, where not all are measured.
    """
    pairs = sides.pairs
    plan = planned(ways, len(pairs), price.share(1 - select), sides.finest)
    if plan is None:
        return ()
    (number, cells, way), features = plan, {**sides.left, **sides.right}
    candidates = list(_candidates(pairs, features, sides.shares, cells))
    margins = [_expected(each, sides, way) for each in candidates]
    columns = {
        shown: (features[name][0], features[name][1].grouped(groups))
        for each in candidates
        for shown, name, groups in zip(each.names, (each.left, each.right), each.groups, strict=True)
    }
    view = session.view(ViewSpec(key.child, columns, (way.most,), way.bounded), "links")
    chosen = list(range(len(candidates)))
    if number < len(candidates):
        expected = [np.outer(*each) / each[0].sum() for each in margins]
        left_over, chosen = chosen, []
        for _ in range(number):  # those with counts furthest from those of rows linked at random
            distances = Distances(tuple(((candidates[each].names, expected[each]),) for each in left_over))
            chosen.append(left_over.pop(view.select("cross-table marginal", distances, price.share(select / number))))
        price = price.share(1 - select)
    found: list[CrossMarginal] = []
    for each, counts in ((candidates[number], margins[number]) for number in chosen):
        noisy = view.measure(" x ".join(each.names), [Marginal(each.names)], price.share(1 / len(chosen)))
        found.append(_cross_marginal(each, noisy, counts, sides))
    return tuple(found)


def planned(
    ways: Sequence[Counting], most: int, price: Price, finest: tuple[int, int] = (WIDE_JOINT, LEAST_JOINT)
) -> tuple[int, float, Counting] | None:
    """Return how many marginals to measure, the cells each may have, and which rows count; None for nothing.

    These are fewer marginals, with fewer cells, where noise would hide them.

    Args:
        ways: To count rows.
        most: Marginals.
        price: Of the answers of all.
        finest: See `Sides`.
    """
    numbers = [math.ceil(most / 2**halves) for halves in range((most - 1).bit_length() + 1)] if most else []
    for number in numbers:
        each = price.share(1 / number)

        def error(way: Counting, each: Price = each) -> float:
            return WIDE_JOINT * way.noise(each) + TUNING.truncation_bias * (1 - way.counted)

        best = min(ways, key=error)
        cells = TUNING.most_noise / best.noise(each)
        if cells >= finest[0] or (number == 1 and cells >= finest[1]):
            return number, min(cells, MAX_MARGINAL_CELLS), best
    return None


def _candidates(
    pairs: Sequence[tuple[str, str]], features: Features, shares: Mapping[str, Array], cells: float
) -> Iterator[_Candidate]:
    """Yield each pair of columns at the finest groups of codes that make so many cells, wider columns merged first."""
    ways = {name: _ways(features[name], shares[name]) for pair in pairs for name in pair}
    for a, b in pairs:
        left, right = list(ways[a]), list(ways[b])
        while _groups(left) * _groups(right) > cells and max(len(left), len(right)) > 1:
            wider = left if len(right) == 1 or (len(left) > 1 and _groups(left) >= _groups(right)) else right
            wider.pop()
        yield _Candidate(a, b, (left[-1], right[-1]))


def _groups(ways: Sequence[Numbers]) -> int:
    """Return the number of groups in the finest way."""
    return int(ways[-1].max()) + 1


def _ways(how: tuple[Feature, Discretizer], shares: Array) -> list[Numbers]:
    """Return groupings of a column's codes, coarsest first; a code for "refers to none" stays apart."""
    feature, discretizer = how
    size = feature_size(*how)
    proper = discretizer.size if isinstance(feature, OfParent) else size
    none, inside = np.arange(size - proper), shares[:proper] / max(float(shares[:proper].sum()), TINY)
    found = [
        np.append(way.groups, way.number + none)
        for way in (coarsenings(inside, discretizer.ordered) if proper > 1 else ())
    ]
    return found or [np.arange(size)]


def _expected(candidate: _Candidate, sides: Sides, way: Counting) -> tuple[Array, Array]:
    """Return the expected counts of the groups of both sides; rows linked at random have their product, as a share."""
    grouped = [
        np.bincount(groups, sides.shares[name])
        for name, groups in zip((candidate.left, candidate.right), candidate.groups, strict=True)
    ]
    held = [np.maximum(side, side.sum() * NEGLIGIBLE) for side in grouped]  # no group is ruled out
    first, second = (side * (way.rows / side.sum()) for side in held)
    return first, second


def _cross_marginal(
    candidate: _Candidate, noisy: Measurement, margins: tuple[Array, Array], sides: Sides
) -> CrossMarginal:
    """Return the estimate of a marginal over all rows, given those of both sides.

    Which rows count may follow their own columns (those of large units, those that refer to another): counts of the
    left are only near what is expected, as far as noise explains it. Where only rows that refer to another count, the
    others are what these leave of each cell on the left.
    """
    left, right = margins
    last = len(right) - (sides.referring is not None)  # none of the rows that count refers to none
    table = NoisyTable(noisy.values[0][:, :last], noisy.sigma)
    near = shrink_haar(table.counts.sum(axis=1), noisy.sigma * math.sqrt(last), left)
    near = np.maximum(onto_simplex(near, float(left.sum())), NEGLIGIBLE * left)
    counts = estimated_joint(table, near, right[:last] * (left.sum() / right[:last].sum()))
    if sides.referring is not None:
        counts = counts * (sides.referring / max(float(counts.sum()), TINY))
        rest = np.maximum(left / left.sum() - counts.sum(axis=1), 0.0)
        rest *= (1 - sides.referring) / max(float(rest.sum()), TINY)
        counts = np.append(counts, rest[:, np.newaxis], axis=1)
    return CrossMarginal(candidate.left, candidate.right, candidate.groups, counts)
