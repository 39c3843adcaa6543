"""How a table's columns follow the number of rows of their unit: one-way marginals, class of sizes by class of sizes.

Units with many rows have other habits than units with few, and most rows. A unit is in one class of sizes, so that a
marginal over (class, column) counts the rows of units with up to T rows at a noise of T, for each class its own, and
all of them for the price of one. Classes that are too small to tell lean on their neighbours (`Drift`), and on looks
that count rows of all classes together.

Noise as long as a unit's vector of counts is spread over all codes alike, and rows are not: most have few codes, of
defaults and NULLs, and so have those of units with many. So the count of a code that a share p of the rows has is
multiplied by about √(max p / p) before units are clipped, for noise that is so much smaller after it.

A unit whose rows all have one code has a longer vector of counts than one whose rows are spread, so that fewer of its
rows count; and fewer still where that code's counts are scaled. How many do follows from one number: the share of a
unit's rows that have a code for what the unit is, the same for all of them, its own code being distributed like all
rows. The others have theirs by chance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.fanout_bins import FanoutCodec
from privbench_core.guards import FEW, GRID_STEPS, LINEARISATIONS, NEGLIGIBLE, SMOOTHING
from privbench_core.marginals.measure_one_way import measure_one_way
from privbench_core.marginals.one_way import OneWay
from privbench_core.privacy.budget import Measure, Price
from privbench_core.privacy.clipping import LARGEST_SCALE
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.features import Feature, UnitRows
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import ViewSpec
from privbench_core.tuning import TUNING
from privbench_core.units.measure_row_count import distance_by_noise
from privbench_core.units.random_walk import Drift
from privbench_core.units.row_count import UNIT_SIZE, RowCount, class_coder, counts_up_to

Array = NDArray[np.float64]
Lengths = NDArray[np.int64]
Features = Mapping[str, tuple[Feature, Discretizer]]


def vector_lengths(likely: Array, most: float) -> Lengths:
    """Return how long a row with each code makes the vector of its unit's counts: powers of two, shape (codes,).

    Args:
        likely: What the shares of codes may well be, up to a factor; none of them negative.
        most: T. No row is longer: alone, a unit's only row counts in full, with whichever code.
    """
    largest = max(float(likely.max(initial=0.0)), NEGLIGIBLE)
    powers = np.round(np.log2(largest / np.maximum(likely, largest * NEGLIGIBLE)) / 2)
    longest = math.floor(math.log2(min(most, LARGEST_SCALE)))
    return np.asarray(2 ** np.minimum(powers, longest)).astype(np.int64)


@dataclass(frozen=True)
class CollisionPosterior:
    """How likely two rows of a unit have the same code for what their unit is: a posterior on a grid.

    Attributes:
        likelihoods: Logarithms of the probabilities of what was measured, up to a number, shape (grid,); all values are
            as likely beforehand.
    """

    likelihoods: Array = field(default_factory=lambda: np.zeros(GRID_STEPS))

    @staticmethod
    def counted(size: RowCount, lengths: Lengths, shapes: Array, most: float) -> Array:
        """How many rows of each class count if all of them have a code, shape (grid, codes, classes).

        Args:
            size: Of the table.
            lengths: Of a row with each code, shape (codes,).
            shapes: Distributions in each class, shape (classes, codes).
            most: T.
        """
        own, squares = np.sqrt(_grid())[:, None, None], lengths[:, None].astype(float) ** 2
        shares = shapes.T
        # Of units by their own code: mean square of the length of a row, and of what two rows add to that of a vector.
        row = own * squares + (1 - own) * (shares * squares).sum(axis=0)
        others = (shares**2 * squares).sum(axis=0)
        pair = own**2 * squares + 2 * own * (1 - own) * shares * squares + (1 - own) ** 2 * others
        counted = size.counted(most / np.sqrt(row), np.minimum(pair / row, 1.0))
        return np.asarray(own * counted + (1 - own) * (counted * shares).sum(axis=1, keepdims=True))

    def updated(self, expected: Array, rows: float, sigmas: Array) -> CollisionPosterior:
        """The same, with a number of rows that was found to count, the numbers expected, and their deviations."""
        deviations = np.maximum(sigmas, SMOOTHING)
        likelihoods = self.likelihoods - 0.5 * ((rows - expected) / deviations) ** 2 - np.log(deviations)
        return CollisionPosterior(likelihoods)

    @property
    def expected(self) -> float:
        """How likely two rows of a unit are alike for what their unit is."""
        return float(self.mean(_grid()))

    def mean(self, values: Array) -> Array:
        """The mean of what depends on it, shape (grid, ..)."""
        return np.tensordot(self._odds, values, axes=1)

    def deviation(self, values: Array) -> Array:
        """The standard deviation of the same."""
        return np.sqrt(np.maximum(self.mean((values - self.mean(values)) ** 2), 0.0))

    @property
    def _odds(self) -> Array:
        odds = np.exp(self.likelihoods - self.likelihoods.max())
        return np.asarray(odds / odds.sum())


def _grid() -> Array:
    return np.linspace(0.0, 1.0, GRID_STEPS)


@dataclass(frozen=True)
class RowLooks:
    """What is known of a table's columns over rows, from looks that count rows of large units in different ways.

    Attributes:
        size: Of the table.
        drifts: Column -> its distributions by class of sizes.
        alike: Column -> how likely two rows of a unit have the same code for what their unit is, and not by chance,
            once something is known of that.
    """

    size: RowCount
    drifts: Mapping[str, Drift]
    alike: Mapping[str, CollisionPosterior] = field(default_factory=dict)

    @property
    def shapes(self) -> dict[str, Array]:
        """Distributions of columns in each class of sizes, shapes (classes, codes)."""
        return {name: drift.shapes for name, drift in self.drifts.items()}

    def updated(self, most: int, found: OneWay) -> RowLooks:
        """The same, with a look at some columns that counted up to ``most`` rows of a unit in full."""
        counted, total, off = self.size.counted(most), found.total, found.total_sigma
        drifts = {
            name: self._updated(self.drifts[name], counted, total, off, noisy, found.sigmas[name])
            for name, noisy in found.counts.items()
        }
        return replace(self, drifts={**self.drifts, **drifts})

    def clipped(self, most: int, found: Mapping[str, Array], sigma: float) -> RowLooks:
        """The same, with a look at some columns in which no unit's vector of scaled counts was longer than ``most``.

        How many rows counted says how long these vectors were, and so which rows counted.

        Args:
            most: T.
            found: Column -> noisy counts, times `lengths`.
            sigma: Standard deviation of the noise of each.
        """
        drifts, alike = dict(self.drifts), dict(self.alike)
        for name, noisy in found.items():
            lengths, before = self.lengths(name, most), self.drifts[name]
            of_codes, noise = noisy / lengths, sigma / lengths
            total, unsure = float(of_codes.sum()), float(np.sqrt((noise**2).sum()))
            for _ in range(LINEARISATIONS):  # which rows counted follows from shapes, and these from which rows counted
                shapes = drifts[name].shapes
                counted = CollisionPosterior.counted(self.size, lengths, shapes, most)
                totals = (counted * shapes.T).sum(axis=(1, 2))
                known = self.alike.get(name, CollisionPosterior())
                known = known.updated(totals, total, np.hypot(unsure, self._unsure * totals))
                expected, doubt = known.mean(counted), known.deviation((counted * shapes.T).sum(axis=2))
                alike[name] = known
                drifts[name] = self._updated(before, expected, total, unsure, of_codes, np.hypot(noise, doubt))
        return replace(self, drifts=drifts, alike=alike)

    def lengths(self, name: str, most: float) -> NDArray[np.int64]:
        """How long a row with each code of a column is, where units are clipped to T: unsure codes are scaled less."""
        shares, deviations = self.drifts[name].average(self.all_rows)
        return vector_lengths(np.maximum(shares, 0.0) + deviations, most)

    def again(self, session: PrivateSession, table: str, columns: Features, price: Price) -> RowLooks:
        """The same, with another look at each column, for ``price`` in all.

        Up to how many rows of a unit count in full is chosen for each column by itself: few codes bear much noise, and
        those of rows that depend on the size of their unit need it. What is left of doubt then is known beforehand.
        Where noise is Gaussian, units are clipped in L2 norm, unless little is left to be known (it takes time).

        Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1, 4 and 7.

        Args:
            session: Open for the step.
            table: The table.
            columns: Of its rows, those of ``drifts``.
            price: Of everything here.
        """
        best = self.best_counted(session, table, price)
        clipped = self._is_clipped(best, self._of_units(session, table, price), price)
        together: dict[int, list[str]] = {}
        for name, most in best.items():
            together.setdefault(most, []).append(name)
        looks = self
        for most, names in sorted(together.items()):
            view = session.view(ViewSpec(table, {name: columns[name] for name in names}, (most,)), "over rows")
            scales = [(tuple(looks.lengths(name, most).tolist()),) * clipped for name in names]
            asked = [Marginal((name,), clipped=clipped, scales=of) for name, of in zip(names, scales, strict=True)]
            noisy = view.measure("one-way", asked, price.share(len(names) / len(self.drifts)))
            found = dict(zip(names, noisy.values, strict=True))
            if clipped:
                looks = looks.clipped(most, found, noisy.sigma)
            else:
                looks = looks.updated(most, OneWay.alike(found, noisy.sigma))
        return looks

    def _is_clipped(self, best: Mapping[str, int], sigma: float, price: Price) -> bool:
        doubts = (self._doubt(name, sigma, most) for name, most in best.items())
        return price.measure is not Measure.PURE and any(doubt > FEW for doubt in doubts)

    def best_counted(self, session: PrivateSession, table: str, price: Price) -> dict[str, int]:
        """Column -> the T that leaves the least doubt about it over all rows after `again` for ``price``.

        Of those that leave hardly more it is the largest: it relies least on what is known of sizes.
        """
        sigma, best = self._of_units(session, table, price), {}
        for name in self.drifts:
            doubts = {most: self._doubt(name, sigma, most) for most in counts_up_to(self.size.classes[-1])}
            best[name] = max(most for most, left in doubts.items() if left <= min(doubts.values()) + FEW)
        return best

    def doubt(self, session: PrivateSession, table: str, price: Price, most: Mapping[str, int]) -> float:
        """Expected standard deviations of the shares of all codes over all rows, summed up, after another look.

        Args:
            session: Open for the step.
            table: The table.
            price: Of the look; nothing for what is known now.
            most: Column -> up to how many rows of a unit count in full.
        """
        if price.amount <= 0:
            return sum(float(drift.average(self.all_rows)[1].sum()) for drift in self.drifts.values())
        sigma = self._of_units(session, table, price)
        return sum(self._doubt(name, sigma, most[name]) for name in self.drifts)

    def one_way(self, most: int) -> OneWay:
        """Counts of as many rows as there are if units count with up to ``most`` rows, distributed like all rows."""
        total = max(1.0, float(self.size.counted(most).sum()))
        counts, sigmas = {}, {}
        for name, drift in self.drifts.items():
            shares, deviations = drift.average(self.all_rows)
            sigmas[name] = np.maximum(deviations, NEGLIGIBLE)
            counts[name] = total * _whole(shares, sigmas[name] ** 2)
            sigmas[name] *= total
        return OneWay(counts, sigmas, total)

    @property
    def all_rows(self) -> Array:
        """Share of each class of sizes in all rows, shape (classes,)."""
        return self.size.rows_of / max(float(self.size.rows_of.sum()), 1.0)

    def collisions(self, name: str) -> float:
        """How likely two rows of a unit have the same code of a column, for what the unit is or by chance."""
        if name not in self.alike:
            return 1.0
        shares, _ = self.drifts[name].average(self.all_rows)
        alike = self.alike[name].expected
        return alike + (1 - alike) * min(float((shares**2).sum()), 1.0)

    def _doubt(self, name: str, sigma: float, most: int) -> float:
        """What is left of doubt about a column over all rows after another look, for so much noise of a unit."""
        drift = self.drifts[name]
        counted, noise = self.size.counted(most), np.full_like(drift.average(self.all_rows)[0], most * sigma)
        if name in self.alike:
            lengths, known = self.lengths(name, most), self.alike[name]
            by_alike = CollisionPosterior.counted(self.size, lengths, drift.shapes, most)
            doubt = known.deviation((by_alike * drift.shapes.T).sum(axis=2))
            counted, noise = known.mean(by_alike), np.hypot(noise / lengths, doubt)
        rows = max(float((counted * drift.shapes.T).sum()), 1.0)
        return drift.doubt(self.all_rows, counted / rows, self._sigmas(drift, rows, noise / rows))

    def _of_units(self, session: PrivateSession, table: str, price: Price) -> float:
        """Noise of a unit in a look at each column, for ``price`` in all."""
        each = price.share(1 / max(1, len(self.drifts)))
        return session.view(ViewSpec(table, {}), "by size").sigma([Marginal(())], each)

    @property
    def _unsure(self) -> float:
        """Relative standard deviation of the number of rows."""
        return self.size.sigma / max(self.size.rows, 1.0)

    def _updated(
        self, drift: Drift, counted: Array, total: float, total_sigma: float, noisy: Array, sigmas: Array
    ) -> Drift:
        """A column's distributions, with a look at it.

        Args:
            drift: What is known of it.
            counted: How many rows of each class count, shape (classes,); or if all of them have a code, shape
                (codes, classes).
            total: How many rows were found to count.
            total_sigma: Standard deviation of that.
            noisy: Counts, shape (codes,).
            sigmas: Standard deviations of these, shape (codes,).
        """
        expected = max(float((counted * drift.shapes.T).sum()), 1.0)
        unsure = expected * self._unsure
        share = unsure**2 / max(unsure**2 + total_sigma**2, NEGLIGIBLE)
        rows = max(1.0, expected + share * (total - expected))
        return drift.updated(counted / expected, noisy / rows, self._sigmas(drift, expected, sigmas / rows))

    def _sigmas(self, drift: Drift, counted: float, noise: Array) -> Array:
        """Standard deviations of shares among so many counted rows: noise, and habits that differ inside of a class."""
        missing = max(0.0, 1 - counted / max(float(self.size.rows_of.sum()), 1.0))
        inside = TUNING.truncation_bias * missing * np.maximum(drift.average(self.all_rows)[0], 0.0)
        return np.asarray(np.hypot(noise, inside))


def _whole(shares: Array, variances: Array) -> Array:
    """Shares that add up to 1: times what the number of rows may be off by, and less the rest, which is noise."""
    scaled = shares / np.clip(shares.sum(), 0.5, 2.0)
    return np.asarray(scaled + (1 - scaled.sum()) * variances / variances.sum())


def measure_by_size(session: PrivateSession, table: str, columns: Features, size: RowCount, price: Price) -> RowLooks:
    """Distributions of columns of a table's rows in each class of sizes.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1 and 4.

    Args:
        session: Open for the step.
        table: The table.
        columns: Of its rows: their own, or of what these refer to.
        size: Of the table: its classes, and how many rows are in each.
        price: Of everything here.
    """
    of_unit = class_coder(FanoutCodec(size.bound), size.classes)
    view = session.view(ViewSpec(table, {UNIT_SIZE: (UnitRows(), of_unit), **columns}, size.classes), "by size")
    measured = view.measure("one-way by size", [Marginal((UNIT_SIZE, name)) for name in columns], price)
    in_rows = np.array(size.classes) / size.classes[-1]  # of a count: those of the last class are of rows
    drifts = {
        name: Drift.of(noisy * in_rows[:, None], measured.sigma * in_rows, size.rows_of)
        for name, noisy in zip(columns, measured.values, strict=True)
    }
    return RowLooks(size, drifts)


def best_counted(curator: Curator, looks: RowLooks, price: Price, *, clipped: bool = False) -> RowCount:
    """The size of the table with T: up to how many rows of a unit to count in full in all that is asked of it later.

    It has the least expected error of the columns by themselves and in pairs. Their distributions over all rows are
    known: joints need only odds ratios.

    Args:
        curator: Of a view that counts every unit once.
        looks: At the columns.
        price: Of all columns' marginals.
        clipped: Whether pairs of columns may be measured with units clipped in L2 norm, and nothing else is asked.
    """
    size, shapes = looks.size, looks.shapes
    sigma = curator.sigma([Marginal(())], price.share(1 / max(1, len(shapes))))
    codes = np.array([shape.shape[1] for shape in shapes.values()], dtype=float)
    every = max(float(size.rows_of.sum()), 1.0)
    collisions = np.array([looks.collisions(name) for name in shapes]) if clipped else np.ones(1)
    likely = float(np.minimum.outer(collisions, collisions).mean())
    asked = [codes * codes.mean()] if clipped else [codes, codes * codes.mean()]

    def error(most: int) -> float:
        rows = max(1.0, float(size.counted(most, likely).sum()))
        noise = [distance_by_noise(cells, most * sigma, rows).sum() for cells in asked]
        return len(codes) * TUNING.truncation_bias * (1 - rows / every) + float(np.mean(noise))

    errors = {most: error(most) for most in counts_up_to(size.classes[-1])}
    # Of those that are hardly worse it is the largest: it relies least on what is known of units.
    enough = min(errors.values()) + FEW
    return replace(size, rows_per_unit=max(most for most, found in errors.items() if found <= enough))


def one_way_over_rows(
    session: PrivateSession, table: str, columns: Features, size: RowCount, price: Price, label: str
) -> OneWay:
    """Counts of columns of a table's rows over all of them, of whatever unit, for ``price`` in all.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1, 4 and 7.

    Args:
        session: Open for the step.
        table: The table.
        columns: As in `measure_by_size`.
        size: Of the table.
        price: Of everything here.
        label: What the ledger calls it.
    """
    if size.units is None and size.in_full:
        return measure_one_way(session.view(ViewSpec(table, dict(columns)), label), list(columns), price, label)
    looks = measure_by_size(session, table, columns, size, price.share(TUNING.early_share))
    return looks.again(session, table, columns, price.share(1 - TUNING.early_share)).one_way(size.classes[-1])
