"""How a table's columns follow the number of rows of their unit: one-way marginals, stratified by that number.

Units with many rows have other habits than units with few, and most rows. A unit is in one class of sizes, so that a
marginal over (class, column) counts the rows of units with up to T rows at a noise of T, for each class its own, and
all of them for the price of one. Classes below the noise borrow from their neighbours (`Drift`), and from marginals
that count rows of all classes together.

Noise as long as a unit's vector of counts is spread over all codes evenly, and rows are not: most have few codes, of
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

from privbench_core.arrays import Array
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.fanout_bins import FanoutCodec
from privbench_core.guards import FEW, GRID_STEPS, LINEARISATIONS, NEGLIGIBLE, SMOOTHING
from privbench_core.marginals.measure_one_way import measure_one_way
from privbench_core.marginals.one_way import OneWay
from privbench_core.privacy.budget import Measure, Price
from privbench_core.privacy.clipping import LARGEST_SCALE
from privbench_core.privacy.features import Feature, UnitRows
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import ViewSpec
from privbench_core.tuning import TUNING
from privbench_core.units.measure_row_count import distance_by_noise
from privbench_core.units.random_walk import Drift
from privbench_core.units.row_count import UNIT_SIZE, RowCount, class_coder, counts_up_to

Lengths = NDArray[np.int64]
Features = Mapping[str, tuple[Feature, Discretizer]]


def vector_lengths(likely: Array, most: float) -> Lengths:
    """Return how long a row with each code makes its unit's vector of counts: powers of two, shape (codes,).

    Shares of codes are likely up to a factor, none negative. No row is longer than T = ``most``: alone, a unit's only
    row counts in full, with whichever code.
    """
    largest = max(float(likely.max(initial=0.0)), NEGLIGIBLE)
    powers = np.round(np.log2(largest / np.maximum(likely, largest * NEGLIGIBLE)) / 2)
    return np.asarray(2 ** np.minimum(powers, math.floor(math.log2(min(most, LARGEST_SCALE))))).astype(np.int64)


@dataclass(frozen=True)
class CollisionPosterior:
    """How likely two rows of a unit have the same code for what their unit is: a posterior on a grid, flat at first.

    Attributes:
        likelihoods: Logarithms of the probabilities of what was measured, up to a constant, shape (grid,).
    """

    likelihoods: Array = field(default_factory=lambda: np.zeros(GRID_STEPS))

    @staticmethod
    def counted(size: RowCount, lengths: Lengths, shapes: Array, most: float) -> Array:
        """Return how many rows of each class count if all of them have a code, shape (grid, codes, classes).

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
        """Return the posterior given how many rows counted, how many were expected to, and standard deviations."""
        deviations = np.maximum(sigmas, SMOOTHING)
        return CollisionPosterior(self.likelihoods - 0.5 * ((rows - expected) / deviations) ** 2 - np.log(deviations))

    @property
    def expected(self) -> float:
        """The posterior mean."""
        return float(self.mean(_grid()))

    def mean(self, values: Array) -> Array:
        """Return the mean of what depends on it, shape (grid, ..)."""
        odds = np.exp(self.likelihoods - self.likelihoods.max())
        return np.tensordot(odds / odds.sum(), values, axes=1)

    def deviation(self, values: Array) -> Array:
        """Return the standard deviation of what depends on it, shape (grid, ..)."""
        return np.sqrt(np.maximum(self.mean((values - self.mean(values)) ** 2), 0.0))


def _grid() -> Array:
    return np.linspace(0.0, 1.0, GRID_STEPS)


@dataclass(frozen=True)
class SizeStratifiedMarginals:
    """What is known of a table's columns over rows, from marginals that count rows of large units in different ways.

    Attributes:
        size: Of the table.
        drifts: Column -> its distributions by class of sizes.
        posteriors: Column -> how likely two rows of a unit have the same code for what their unit is, once something
            is known of that.
    """

    size: RowCount
    drifts: Mapping[str, Drift]
    posteriors: Mapping[str, CollisionPosterior] = field(default_factory=dict)

    @property
    def shapes(self) -> dict[str, Array]:
        """Distributions of columns in each class of sizes, shapes (classes, codes)."""
        return {name: drift.shapes for name, drift in self.drifts.items()}

    @property
    def all_rows(self) -> Array:
        """Share of each class of sizes in all rows, shape (classes,)."""
        return self.size.rows_of / max(float(self.size.rows_of.sum()), 1.0)

    def updated(self, most: int, found: OneWay) -> SizeStratifiedMarginals:
        """Return what is known given marginals of some columns that counted up to ``most`` rows of a unit in full."""
        counted, total, off = self.size.counted(most), found.total, found.total_sigma
        drifts = {name: self._updated(name, counted, (total, off), found.column(name)) for name in found.counts}
        return replace(self, drifts={**self.drifts, **drifts})

    def clipped(self, most: int, found: Mapping[str, Array], sigma: float) -> SizeStratifiedMarginals:
        """Return what is known given marginals in which units' vectors of scaled counts were clipped in L2 norm.

        How many rows counted says how long these vectors were, and so which rows counted.

        Args:
            most: T, the longest vector.
            found: Column -> noisy counts, times `lengths`.
            sigma: Standard deviation of the noise of each.
        """
        drifts, posteriors = dict(self.drifts), dict(self.posteriors)
        for name, noisy in found.items():
            lengths, shapes = self.lengths(name, most), drifts[name].shapes
            of_codes, noise = noisy / lengths, sigma / lengths
            total, total_sigma = float(of_codes.sum()), float(np.sqrt((noise**2).sum()))
            for _ in range(LINEARISATIONS):  # which rows counted follows from shapes, and these from which rows counted
                counted = CollisionPosterior.counted(self.size, lengths, shapes, most)
                of_code = (counted * shapes.T).sum(axis=2)
                totals = of_code.sum(axis=1)
                known = self.posteriors.get(name, CollisionPosterior())
                known = known.updated(totals, total, np.hypot(total_sigma, self._size_error * totals))
                measured = of_codes, np.hypot(noise, known.deviation(of_code))
                posteriors[name] = known
                drifts[name] = self._updated(name, known.mean(counted), (total, total_sigma), measured)
                shapes = drifts[name].shapes
        return replace(self, drifts=drifts, posteriors=posteriors)

    def lengths(self, name: str, most: float) -> Lengths:
        """Return `vector_lengths` of a column's codes: uncertain ones are scaled less."""
        shares, deviations = self.drifts[name].average(self.all_rows)
        return vector_lengths(np.maximum(shares, 0.0) + deviations, most)

    def remeasure(
        self, session: PrivateSession, table: str, columns: Features, price: Price
    ) -> SizeStratifiedMarginals:
        """Measure each column once more, for ``price`` in all.

        Up to how many rows of a unit count in full is chosen for each column by itself: few codes bear much noise, and
        those of rows that depend on the size of their unit need it. Where noise is Gaussian, units are clipped in L2
        norm, unless little is left to be known (it takes time).

        Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1, 4 and 7.

        Args:
            session: Open for the step.
            table: The table.
            columns: Of its rows, those of ``drifts``.
            price: Of everything here.
        """
        chosen, sigma = self.truncations(session, table, price), self.sigma_of_units(session, table, price)
        clipped, found = self._is_clipped(chosen, sigma, price), self
        for most in sorted(set(chosen.values())):
            names = [name for name, each in chosen.items() if each == most]
            view = session.view(ViewSpec(table, {name: columns[name] for name in names}, (most,)), "over rows")
            scales = [(tuple(found.lengths(name, most).tolist()),) * clipped for name in names]
            asked = [Marginal((name,), clipped=clipped, scales=of) for name, of in zip(names, scales, strict=True)]
            noisy = view.measure("one-way", asked, price.share(len(names) / len(self.drifts)))
            counts = dict(zip(names, noisy.values, strict=True))
            if clipped:
                found = found.clipped(most, counts, noisy.sigma)
            else:
                found = found.updated(most, OneWay.with_sigma(counts, noisy.sigma))
        return found

    def _is_clipped(self, chosen: Mapping[str, int], sigma: float, price: Price) -> bool:
        errors = (self._error(name, sigma, most) for name, most in chosen.items())
        return price.measure is not Measure.PURE and any(error > FEW for error in errors)

    def truncations(self, session: PrivateSession, table: str, price: Price) -> dict[str, int]:
        """Return for each column the T that leaves it known best over all rows after `remeasure` for ``price``.

        Of those that leave hardly more error it is the largest: it relies least on what is known of sizes.
        """
        sigma, best = self.sigma_of_units(session, table, price), {}
        for name in self.drifts:
            errors = {most: self._error(name, sigma, most) for most in counts_up_to(self.size.classes[-1])}
            best[name] = max(most for most, left in errors.items() if left <= min(errors.values()) + FEW)
        return best

    def error(self, session: PrivateSession, table: str, price: Price, most: Mapping[str, int]) -> float:
        """Return expected standard deviations of shares of codes over all rows, summed up, after `remeasure`.

        Args:
            session: Open for the step.
            table: The table.
            price: Of the measurement; nothing for what is known now.
            most: Column -> up to how many rows of a unit count in full.
        """
        if price.amount <= 0:
            return sum(float(drift.average(self.all_rows)[1].sum()) for drift in self.drifts.values())
        sigma = self.sigma_of_units(session, table, price)
        return sum(self._error(name, sigma, most[name]) for name in self.drifts)

    def one_way(self, most: int) -> OneWay:
        """Return counts of as many rows as count if units do with up to ``most`` rows, distributed like all rows."""
        total = max(1.0, float(self.size.counted(most).sum()))
        counts, sigmas = {}, {}
        for name, drift in self.drifts.items():
            shares, deviations = drift.average(self.all_rows)
            sigmas[name] = np.maximum(deviations, NEGLIGIBLE)
            # Shares add up to 1: what the number of rows may be off by is a factor, and the rest is noise.
            scaled = shares / np.clip(shares.sum(), 0.5, 2.0)
            counts[name] = total * (scaled + (1 - scaled.sum()) * sigmas[name] ** 2 / (sigmas[name] ** 2).sum())
            sigmas[name] *= total
        return OneWay(counts, sigmas, total)

    def collisions(self, name: str) -> float:
        """Return how likely two rows of a unit have the same code of a column, for what the unit is or by chance."""
        if name not in self.posteriors:
            return 1.0
        shares, _ = self.drifts[name].average(self.all_rows)
        own = self.posteriors[name].expected
        return own + (1 - own) * min(float((shares**2).sum()), 1.0)

    def _error(self, name: str, sigma: float, most: int) -> float:
        """Return the expected error of a column over all rows after a measurement at so much noise of a unit."""
        drift = self.drifts[name]
        shapes = drift.shapes
        counted, noise = self.size.counted(most), np.full(shapes.shape[1], most * sigma)
        if name in self.posteriors:
            lengths, known = self.lengths(name, most), self.posteriors[name]
            by_collision = CollisionPosterior.counted(self.size, lengths, shapes, most)
            noise = np.hypot(noise / lengths, known.deviation((by_collision * shapes.T).sum(axis=2)))
            counted = known.mean(by_collision)
        rows = max(float((counted * shapes.T).sum()), 1.0)
        return drift.error(self.all_rows, counted / rows, self._sigmas(drift, rows, noise / rows))

    def sigma_of_units(self, session: PrivateSession, table: str, price: Price) -> float:
        """Return the noise of a unit if each column is measured, for ``price`` in all."""
        each = price.share(1 / max(1, len(self.drifts)))
        return session.view(ViewSpec(table, {}), "by size").sigma([Marginal(())], each)

    @property
    def _size_error(self) -> float:
        """Relative standard deviation of the number of rows."""
        return self.size.sigma / max(self.size.rows, 1.0)

    def _updated(self, name: str, counted: Array, rows: tuple[float, float], measured: tuple[Array, Array]) -> Drift:
        """Return a column's distributions given its marginal.

        Args:
            name: The column.
            counted: How many rows of each class count, shape (classes,); or if all of them have a code, shape
                (codes, classes).
            rows: How many were found to count, and its standard deviation.
            measured: Counts and their standard deviations, shapes (codes,).
        """
        drift = self.drifts[name]
        expected = max(float((counted * drift.shapes.T).sum()), 1.0)
        error = expected * self._size_error
        share = error**2 / max(error**2 + rows[1] ** 2, NEGLIGIBLE)
        total = max(1.0, expected + share * (rows[0] - expected))
        shares, noise = (values / total for values in measured)
        return drift.updated(counted / expected, shares, self._sigmas(drift, expected, noise))

    def _sigmas(self, drift: Drift, counted: float, noise: Array) -> Array:
        """Return standard deviations of shares among counted rows: noise, and habits that differ inside of a class."""
        missing = max(0.0, 1 - counted / max(float(self.size.rows_of.sum()), 1.0))
        inside = TUNING.truncation_bias * missing * np.maximum(drift.average(self.all_rows)[0], 0.0)
        return np.asarray(np.hypot(noise, inside))


def measure_by_size(
    session: PrivateSession, table: str, columns: Features, size: RowCount, price: Price
) -> SizeStratifiedMarginals:
    """Measure distributions of columns of a table's rows in each class of sizes.

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
    return SizeStratifiedMarginals(size, drifts)


def choose_truncation(
    session: PrivateSession, table: str, known: SizeStratifiedMarginals, price: Price, *, clipped: bool = False
) -> RowCount:
    """Return the size of the table with T: up to how many rows of a unit to count in full in what is asked later.

    It has the least expected error of the columns by themselves and in pairs. Their distributions over all rows are
    known: joints need only odds ratios. Of those that are hardly worse it is the largest, see `truncations`.

    Args:
        session: Open for the step.
        table: The table.
        known: Its columns.
        price: Of all columns' marginals.
        clipped: Whether pairs of columns may be measured with units clipped in L2 norm, and nothing else is asked.
    """
    size = known.size
    sigma = known.sigma_of_units(session, table, price)
    codes = np.array([shape.shape[1] for shape in known.shapes.values()], dtype=float)
    every = max(float(size.rows_of.sum()), 1.0)
    collisions = np.array([known.collisions(name) for name in known.drifts]) if clipped else np.ones(1)
    likely = float(np.minimum.outer(collisions, collisions).mean())
    asked = [codes * codes.mean()] if clipped else [codes, codes * codes.mean()]

    def error(most: int) -> float:
        rows = max(1.0, float(size.counted(most, likely).sum()))
        noise = [distance_by_noise(cells, most * sigma, rows).sum() for cells in asked]
        return len(codes) * TUNING.truncation_bias * (1 - rows / every) + float(np.mean(noise))

    errors = {most: error(most) for most in counts_up_to(size.classes[-1])}
    return replace(
        size, rows_per_unit=max(most for most, found in errors.items() if found <= min(errors.values()) + FEW)
    )


def one_way_over_rows(
    session: PrivateSession, table: str, columns: Features, size: RowCount, price: Price, label: str
) -> OneWay:
    """Measure columns of a table's rows over all of them, of whatever unit, for ``price`` in all.

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
    known = measure_by_size(session, table, columns, size, price.share(TUNING.early_share))
    return known.remeasure(session, table, columns, price.share(1 - TUNING.early_share)).one_way(size.classes[-1])
