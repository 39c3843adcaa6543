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

from privbench_core.arrays import Array, Numbers
from privbench_core.estimators.denoising import shrink_haar
from privbench_core.estimators.fitting import combine
from privbench_core.estimators.segmentation import ABSOLUTE
from privbench_core.guards import MAX_CELLS, TINY
from privbench_core.links.popularity import ByRank, ByRow, Margin, raked
from privbench_core.links.popularity_shapes import rank_ends, row_counts, rows_without_reference, zipf
from privbench_core.privacy.budget import Measure, Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.queries import Marginal, ParentCounts, RankSums
from privbench_core.privacy.session import PrivateSession
from privbench_core.schema.constraints import ForeignKey
from privbench_core.tuning import TUNING
from privbench_core.units.row_count import RowCount


def rank_popularity(session: PrivateSession, key: ForeignKey, size: RowCount, present: float, price: Price) -> ByRank:
    """References to the most popular row of a private parent, the next, and so on, for at most ``price``.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 4, 7 and 9.

    Args:
        session: Open for the step.
        key: Refers to a private table.
        size: Released, of the table that has the key.
        present: Released share of its rows that refer to some row.
        price: Of everything here.
    """
    references = max(1.0, size.rows * present)
    ends = rank_ends(min(math.ceil(references), MAX_CELLS))
    likely = zipf(ends)
    view = min(_views(session, key, size), key=lambda view: view.error(likely, price))
    noisy = view.curator.measure("ranks", [RankSums(tuple(ends.tolist()))], price)
    return ByRank(ends, noisy.values[0] * view.scale, noisy.sigma * view.scale, references)


@dataclass(frozen=True)
class ParentReferences:
    """What has been released of the references to the rows of a public parent.

    Attributes:
        views: Of references, one for each T.
        view: Of single rows: one of these, in which units may be clipped.
        optional: Whether a row may refer to none.
        noisy: Noisy references to each row, and to none, shape (parents + 1,).
        sigma: Standard deviation of their noise.
        attributes: Code of each row in its attributes, and how often codes are referred to.
    """

    views: tuple[_View, ...]
    view: _View
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
        more, sigma = self.view.count(len(self.noisy) - 1, "parents again", price)
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
        view = min(self.views, key=lambda view: view.error(likely, each))
        noisy = view.curator.measure("attributes", [ParentCounts(of_rows) for of_rows in codes], price)
        found = [
            np.maximum(shrink_haar(values[:-1] * view.scale, noisy.sigma * view.scale, guess), 0.0)
            for values, guess in zip(noisy.values, usual, strict=True)
        ]
        return replace(self, attributes=tuple(zip(codes, found, strict=True)))

    @property
    def popularity(self) -> tuple[ByRow, float]:
        """How often each row is referred to, and the share of rows that refer to none."""
        rows = self.view.size.rows
        none = rows_without_reference(float(self.noisy[-1]), self.sigma, rows) if self.optional else 0.0
        counts = row_counts(self.noisy[:-1], self.sigma, max(1.0, rows - none))
        total = float(counts.sum())
        if self.attributes:
            fitted = raked(counts, self.attributes)
            counts = fitted * (total / max(float(fitted.sum()), TINY))
        return ByRow(counts), none / max(none + total, 1.0)


def row_popularity(
    session: PrivateSession, key: ForeignKey, size: RowCount, parents: int, price: Price
) -> ParentReferences:
    """References to each row of a public parent, and to none, for at most ``price``.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 4, 7 and 9.

    Args:
        session: Open for the step.
        key: Refers to a public table.
        size: Released, of the table that has the key.
        parents: Number of rows of that table, at least one.
        price: Of everything here.
    """
    views, likely = _views(session, key, size), zipf(np.arange(1, parents + 1))
    plain = tuple(views)
    if len(views) > 1:
        early, price = price.share(TUNING.first_look), price.share(1 - TUNING.first_look)
        clipped = price.measure is Measure.GDP
        first = replace(views[0], collisions=1.0 if clipped else None)
        noisy, sigma = first.count(parents, "parents, early", early)
        likely = np.sort(row_counts(noisy[:-1], sigma, max(1.0, size.rows)))[::-1] / max(1.0, size.rows)
        if clipped:
            counted = (float(noisy.sum()) - sigma * math.sqrt(len(noisy))) / first.scale * first.most
            least = float(likely @ likely)  # as often as two rows of any units do
            alike = min(max(size.collisions(first.most, counted), least), 1.0)
            views = [replace(view, collisions=alike) for view in views]
    view = min(views, key=lambda view: view.error(likely, price))
    return ParentReferences(plain, view, key.optional, *view.count(parents, "parents", price))


@dataclass(frozen=True)
class _View:
    """A view of references in which units of up to T rows count in full.

    Attributes:
        curator: Answers.
        size: Of the table that has the key.
        most: T.
        collisions: How likely two rows of a unit refer to the same parent, where units are clipped in L2 norm.
    """

    curator: Curator
    size: RowCount
    most: int
    collisions: float | None = None

    @property
    def counted(self) -> float:
        """Share of the rows that count, above 0."""
        counted = self.size.counted(self.most, 1.0 if self.collisions is None else self.collisions)
        share = float(counted.sum()) / max(float(self.size.rows_of.sum()), TINY)
        return min(max(share, 1 / max(self.size.rows, 1.0)), 1.0)

    @property
    def scale(self) -> float:
        """Of answers to references: a unit beyond T is taken to refer to parents as the others do."""
        return self.most / self.counted

    def count(self, parents: int, name: str, price: Price) -> tuple[Array, float]:
        """Return noisy references to each parent, and to none, and the standard deviation of their noise."""
        asked = ParentCounts(np.arange(parents), clipped=self.collisions is not None)
        noisy = self.curator.measure(name, [asked], price)
        return noisy.values[0] * self.scale, noisy.sigma * self.scale

    def error(self, likely: Array, price: Price) -> float:
        """Return the expected error of all numbers, as a share of all references.

        Args:
            likely: Shares of references that are to be expected. None is off by more than itself, as a number that
                noise hides is not kept.
            price: Of the measurement.
        """
        noise = ABSOLUTE * self.curator.sigma([Marginal(())], price) * self.scale / max(self.size.rows, 1.0)
        return TUNING.reference_bias * (1 - self.counted) + float(np.minimum(noise, likely).sum())


def _views(session: PrivateSession, key: ForeignKey, size: RowCount) -> list[_View]:
    return [_View(session.references(key, most, f"units of up to {most:,} rows"), size, most) for most in size.classes]
