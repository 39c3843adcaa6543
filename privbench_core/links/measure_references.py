"""Measure how often the parents along a key are referred to, over rows.

A unit has many references, and one noisy number per parent must bound them. Every row of a unit of s rows weighs
min(1/T, 1/s), so units of up to T rows count in full and larger ones as T rows, with a noise of T. Which T follows from
the released size of the table, by the error that it is expected to leave: under Zipf's law, or for public parents by
what an early look counts with T = 1. It says how often a unit refers to the same parent, too: where that is seldom,
units that are clipped in L2 norm count in full at less noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from privbench_core.estimators.denoising import shrink_haar
from privbench_core.estimators.fitting import combine
from privbench_core.estimators.segmentation import ABSOLUTE
from privbench_core.guards import MAX_CELLS, TINY
from privbench_core.links.degrees import rank_ends, row_counts, truncated_mean, zipf
from privbench_core.links.popularity import ByRank, ByRow, Margin, raked
from privbench_core.privacy.budget import Measure, Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.queries import Marginal, ParentCounts, RankSums
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import BoundedReferences, ViewSpec
from privbench_core.schema.constraints import ForeignKey
from privbench_core.tuning import TUNING
from privbench_core.units.row_count import RowCount

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Counting:
    """A way to count the rows that refer to others: up to T of a unit in full, or up to a bound of those to one unit.

    Attributes:
        curator: Answers about references, with a T-th of the noise of a count of rows.
        size: Of the table that has the key.
        most: T.
        references: Estimated number of all references, at least one.
        bounded: Which references count, where not all do.
        inside: Share of all references that the bound counts.
        collisions: How likely two rows of a unit refer to the same parent, where units are clipped in L2 norm.
    """

    curator: Curator
    size: RowCount
    most: int
    references: float
    bounded: BoundedReferences | None = None
    inside: float = 1.0
    collisions: float | None = None

    @property
    def counted(self) -> float:
        """Share of all references that count, above 0."""
        return max(share_in_full(self.size, self.most, self.collisions) * self.inside, TINY)

    @property
    def bound(self) -> float:
        """How many references to one unit count at most, as rows."""
        in_full = self.counted / self.inside
        return math.inf if self.bounded is None else self.bounded.most / in_full

    @property
    def rows(self) -> float:
        """Number of rows that count in a view of rows, where units beyond T count as T rows."""
        return self.references * self.counted

    @property
    def scale(self) -> float:
        """Of answers to references: a unit beyond T is taken to refer to parents as the others do."""
        return self.most / self.counted

    def noise(self, price: Price) -> float:
        """Return the expected error of a number by noise, as a share of all references."""
        return ABSOLUTE * self.curator.sigma([Marginal(())], price) * self.scale / self.references

    def error(self, likely: Array, price: Price, bias: float = TUNING.reference_bias) -> float:
        """Return the expected error of all numbers, as a share of all references.

        Args:
            likely: Shares of references that are to be expected. None is off by more than itself, as a number that
                noise hides is not kept.
            price: Of the measurement.
            bias: How far references that do not count differ from the others, 1 at most.
        """
        return bias * (1 - self.counted) + float(np.minimum(self.noise(price), likely).sum())

    def count(self, parents: int, name: str, price: Price) -> tuple[Array, float]:
        """Return noisy references to each parent, and to none, and the standard deviation of their noise."""
        asked = ParentCounts(np.arange(parents), clipped=self.collisions is not None)
        noisy = self.curator.measure(name, [asked], price)
        return noisy.values[0] * self.scale, noisy.sigma * self.scale


def share_in_full(size: RowCount, most: int, collisions: float | None = None) -> float:
    """Return the share of a table's rows that count if units with more than ``most`` of them count as so many."""
    counted = size.counted(most, 1.0 if collisions is None else collisions)
    share = float(counted.sum()) / max(float(size.rows_of.sum()), TINY)
    return min(max(share, 1 / max(size.rows, 1.0)), 1.0)


def countings(session: PrivateSession, key: ForeignKey, size: RowCount) -> list[Counting]:
    """Return the ways to count rows along a key that does not let go, one for each T."""
    rows = max(size.rows, 1.0)
    if key.owner:
        view = session.view(ViewSpec(key.child, {}), "links")
        return [Counting(view, size, most, rows) for most in size.classes]
    name = "units of up to {:,} rows"
    return [Counting(session.references(key, t, name.format(t)), size, t, rows) for t in size.classes]


def rank_popularity(ways: Sequence[Counting], references: float, price: Price) -> ByRank:
    """Measure references to the most popular row of a private parent, the next, and so on, for at most ``price``.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 4, 7 and 9.

    Args:
        ways: To count the references.
        references: Released number of them, at least one.
        price: Of everything here.
    """
    ends = rank_ends(min(math.ceil(references), MAX_CELLS))
    likely = zipf(ends)
    way = min(ways, key=lambda way: way.error(likely, price))
    noisy = way.curator.measure("ranks", [RankSums(tuple(ends.tolist()))], price)
    return ByRank(ends, noisy.values[0] * way.scale, noisy.sigma * way.scale, references)


@dataclass(frozen=True)
class ParentReferences:
    """What has been released of the references to the rows of a public parent.

    Attributes:
        ways: To count references, one for each T.
        way: To count single rows: one of these, in which units may be clipped.
        optional: Whether a row may refer to none.
        noisy: Noisy references to each row, and to none, shape (parents + 1,).
        sigma: Standard deviation of their noise.
        attributes: Code of each row in its attributes, and how often codes are referred to.
    """

    ways: tuple[Counting, ...]
    way: Counting
    optional: bool
    noisy: Array
    sigma: float
    attributes: tuple[Margin, ...] = ()

    def remeasured(self, price: Price) -> ParentReferences:
        """Return the same at less noise, for ``price``: references are counted once more, and averaged.

        Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 4, 7 and 9.
        """
        if price.amount <= 0:
            return self
        more, sigma = self.way.count(len(self.noisy) - 1, "parents again", price)
        noisy, sigmas = combine(self.noisy, self.sigma, more, sigma)
        return replace(self, noisy=noisy, sigma=float(sigmas[0]))

    def with_attributes(self, codes: Sequence[Numbers], price: Price) -> ParentReferences:
        """Return the same with references to the codes of attributes, for ``price``.

        Each row is counted at the noise of one count; a code that many rows share is counted at that noise once. It is
        believed as far as noise does not explain how it differs from the sum of its rows.

        Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 4, 7 and 9.

        Args:
            codes: Of each row in each attribute, dense from 0, shape (parents,) each. Where there are none, rows are
                counted once more.
            price: Of everything here.
        """
        if not codes or price.amount <= 0:
            return self.remeasured(price)
        counts = self.popularity[0].counts
        usual = [np.bincount(of_rows, counts).astype(np.float64) for of_rows in codes]
        each = price.share(1 / len(codes))
        likely = np.concatenate(usual) / max(float(counts.sum()), TINY)
        way = min(self.ways, key=lambda way: way.error(likely, each))
        noisy = way.curator.measure("attributes", [ParentCounts(of_rows) for of_rows in codes], price)
        found = [
            np.maximum(shrink_haar(values[:-1] * way.scale, noisy.sigma * way.scale, guess), 0.0)
            for values, guess in zip(noisy.values, usual, strict=True)
        ]
        return replace(self, attributes=tuple(zip(codes, found, strict=True)))

    @property
    def popularity(self) -> tuple[ByRow, float]:
        """How often each row is referred to, and the share of rows that refer to none."""
        rows = self.way.size.rows
        none = truncated_mean(float(self.noisy[-1]), self.sigma, rows) if self.optional else 0.0
        counts = row_counts(self.noisy[:-1], self.sigma, max(1.0, rows - none))
        total = float(counts.sum())
        if self.attributes:
            fitted = raked(counts, self.attributes)
            counts = fitted * (total / max(float(fitted.sum()), TINY))
        return ByRow(counts), none / max(none + total, 1.0)


def row_popularity(
    session: PrivateSession, key: ForeignKey, size: RowCount, parents: int, price: Price
) -> ParentReferences:
    """Count references to each row of a public parent, and to none, for at most ``price``.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 4, 7 and 9.

    Args:
        session: Open for the step.
        key: Refers to a public table.
        size: Released, of the table that has the key.
        parents: Number of rows of that table, at least one.
        price: Of everything here.
    """
    ways, likely = countings(session, key, size), zipf(np.arange(1, parents + 1))
    plain = tuple(ways)
    if len(ways) > 1:
        early, price = price.share(TUNING.first_look), price.share(1 - TUNING.first_look)
        clipped = price.measure is Measure.ZCDP
        first = replace(ways[0], collisions=1.0 if clipped else None)
        noisy, sigma = first.count(parents, "parents, early", early)
        likely = np.sort(row_counts(noisy[:-1], sigma, max(1.0, size.rows)))[::-1] / max(1.0, size.rows)
        if clipped:
            counted = (float(noisy.sum()) - sigma * math.sqrt(len(noisy))) / first.scale * first.most
            least = float(likely @ likely)  # as often as two rows of any units do
            alike = min(max(size.collisions(first.most, counted), least), 1.0)
            ways = [replace(way, collisions=alike) for way in ways]
    way = min(ways, key=lambda way: way.error(likely, price))
    return ParentReferences(plain, way, key.optional, *way.count(parents, "parents", price))
