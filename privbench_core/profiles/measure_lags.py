"""Measure how long after others dates are: one histogram for each pair of columns of dates.

The other one is the owner's, or an earlier one of the same row: when a task was done, and when it was begun. Of a
column that is coded as its difference from another one of the row, it is measured as well where the sum lies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from privbench_core.arrays import Array
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.lags import AFTER, BEFORE, lag_classes, lag_sides, tie_classes
from privbench_core.estimators.coarsening import merge_codes
from privbench_core.estimators.denoising import onto_simplex, shrink_haar
from privbench_core.estimators.fitting import combine
from privbench_core.guards import FEW, MAX_SHARING, TINY
from privbench_core.marginals.one_way import OneWay
from privbench_core.privacy.budget import Price
from privbench_core.privacy.features import AsStored, OwnDifference, OwnerDifference, SincePrevious
from privbench_core.privacy.session import PrivateSession
from privbench_core.profiles.lags import Lag, Ties, expected_lags, joint_with_lags, lag_chances, shares_of_cells
from privbench_core.profiles.profile import Point, Profile, parent_column, points_in_time, relative_dates
from privbench_core.schema.columns import ColumnType
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.tuning import TUNING
from privbench_core.units.measure_by_size import Features, one_way_over_rows

Pair: TypeAlias = tuple[str, str]
Asked: TypeAlias = tuple[OwnDifference | OwnerDifference, Discretizer]
Tied: TypeAlias = tuple[SincePrevious, Discretizer]
LagFeatures: TypeAlias = dict[str, Asked]
"""Lags by their name in a view, each with the coder of its classes."""
_TIES = " ties"  # with the row before, as a column of the view
_SIDES = " sides"  # of a lag, as a column of the view
_SUM = " sum"  # of a difference and what it is from, as a column of the view


@dataclass(frozen=True)
class MeasuredLag:
    """A released lag, and what it says of both columns.

    Attributes:
        lag: Released.
        chances: How likely its cells are within each pair of codes, see `lag_chances`.
        distance: Total variation distance of its classes from those of independent dates.
        ordered: Whether one date never comes before the other, and independent ones would.
    """

    lag: Lag
    chances: Array
    distance: float
    ordered: bool

    @classmethod
    def of(
        cls,
        feature: OwnDifference | OwnerDifference,
        coders: tuple[Discretizer, Discretizer, Discretizer],
        margins: tuple[Array, Array],
        measured: tuple[OneWay, str],
    ) -> MeasuredLag:
        """Shrink noisy counts of a lag's sides, and of its classes, towards those of independent dates.

        Args:
            feature: The lag.
            coders: Of the other column, the rows' own, and the lag.
            margins: Shares or counts of the rows by the codes of the other column, and of their own.
            measured: Noisy counts of `asked_of`, and the name of the lag there.
        """
        (base, own, classes), (noisy, name) = coders, measured
        chances = lag_chances(base, own, classes, (len(margins[0]), len(margins[1])))
        first, second = (counts * (noisy.total / max(float(counts.sum()), TINY)) for counts in margins)
        independent = merge_codes(expected_lags(first, second, chances), [classes.shares[0]])
        side_of = lag_sides(classes)
        of_side = merge_codes(independent, [side_of])
        sides, off = noisy.column(name + _SIDES)
        if name in noisy.counts:
            summed, variances = (merge_codes(each, [side_of]) for each in (noisy.counts[name], noisy.sigmas[name] ** 2))
            sides, off = combine(sides, off, summed, np.sqrt(variances))
        there = _possible(sides, off)
        kept = np.where(there, onto_simplex(shrink_haar(sides, off, of_side * there), noisy.total), 0.0)
        kept *= noisy.total / max(float(kept.sum()), TINY)
        found = independent * (kept / np.maximum(of_side, TINY))[side_of]
        if name in noisy.counts:
            counts, deviations = noisy.column(name)
            possible = [(np.flatnonzero((side_of == side) & (independent > 0)), rows) for side, rows in enumerate(kept)]
            parts = [(inside, float(rows)) for inside, rows in possible if len(inside)]
            for inside, rows in parts:
                found[inside] = _between(found[inside], counts[inside], rows)
            shrunk = shrink_haar(counts, deviations, found)
            for inside, rows in parts:
                found[inside] = onto_simplex(shrunk[inside], rows)
        shares = found / max(float(found.sum()), TINY)
        distance = float(np.abs(shares - independent / max(float(independent.sum()), TINY)).sum()) / 2
        lag = Lag(feature.base, feature.column, classes, shares_of_cells(classes, shares))
        ordered = float(of_side[~there].sum()) > FEW * float(of_side.sum())
        return cls(lag, chances, distance, ordered)

    @property
    def informative(self) -> bool:
        """Whether independent dates would have another lag."""
        return self.distance > TUNING.least_share or self.ordered

    @property
    def pair(self) -> Pair:
        """The context's column and the children's, of a lag from the owner."""
        return parent_column(self.lag.base), self.lag.column

    def joint(self, clean: Mapping[str, Array]) -> Array:
        """Return the counts of `pair` that follow from those of both columns."""
        first, second = (clean[name] for name in self.pair)
        return joint_with_lags(first, second, self.chances, self.lag.shares)


def _possible(sides: Array, sigmas: Array) -> NDArray[np.bool_]:
    """Return which sides of a lag have rows: what begins comes before what ends, where noise explains all else.

    Noisy counts of `lag_sides` and standard deviations of their noise, shape (sides,).
    """
    there, bars = np.ones(len(sides), dtype=bool), TUNING.significant * sigmas
    few, many = (BEFORE, AFTER) if sides[BEFORE] < sides[AFTER] else (AFTER, BEFORE)
    if sides[few] < bars[few] and sides[many] - sides[few] > np.hypot(bars[few], bars[many]):
        there[few] = False
    return there


def _between(independent: Array, noisy: Array, rows: float) -> Array:
    """Return counts of the classes of a side between those of independent dates and equal ones, nearest to noisy ones.

    Classes are longer the longer lags are, so related dates are about as likely in each. All of shape (classes,).
    """
    even = np.full(len(noisy), rows / max(len(noisy), 1))
    way = independent - even
    share = float((noisy - even) @ way) / max(float(way @ way), TINY)
    return np.asarray(even + min(max(share, 0.0), 1.0) * way)


def _seen(counts: Array, sigmas: Array, expected: Array, ordered: int) -> NDArray[np.bool_]:
    """Return which cells of a range are left when ends are cut off that seem to have no rows, shape (codes,).

    An end seems to have none where its noisy count is below one deviation, and far below the expected one.

    Args:
        counts: Noisy counts of rows by code, those of the cells first.
        sigmas: Standard deviations of their noise.
        expected: Counts of rows if differences followed nothing.
        ordered: Number of cells.
    """
    there = np.ones(len(counts), dtype=bool)
    for side in (np.arange(ordered), np.arange(ordered)[::-1]):
        found, likely = np.cumsum(counts[side]), np.cumsum(expected[side])
        deviations = np.sqrt(np.cumsum(sigmas[side] ** 2))
        empty = (found < deviations) & (likely - found > TUNING.significant * deviations)
        there[side[: np.max(np.flatnonzero(empty), initial=-1) + 1]] = False
    return there


def asked_of(features: LagFeatures, points: tuple[Mapping[str, Point], Mapping[str, Point]]) -> LagFeatures:
    """Return the columns of a view of lags: sides of each, and classes of those that could have rows on both sides.

    ``points`` are the columns that they are from, and the rows' own, see `points_in_time`.
    """
    asked: LagFeatures = {}
    for name, (feature, classes) in features.items():
        (base, first), (own, second) = points[0][feature.base], points[1][feature.column]
        side_of = lag_sides(classes)
        asked[name + _SIDES] = feature, classes.grouped(side_of)
        chances = lag_chances(base, own, classes, (len(first), len(second)))
        shares = [counts / max(float(counts.sum()), TINY) for counts in (first, second)]
        expected = merge_codes(expected_lags(shares[0], shares[1], chances), [classes.shares[0]])
        before, _, after, _ = merge_codes(expected, [side_of])
        if min(before, after) > TUNING.clear * (before + after):
            asked[name] = feature, classes
    return asked


def lag_features(schema: Schema, key: ForeignKey, parent: Profile, child: Profile) -> LagFeatures:
    """Return the lags along an owner key that can be measured, those between columns of one type first.

    A column that is coded as its difference from another one has that column's lag.
    """
    found: list[tuple[OwnDifference | OwnerDifference, Discretizer]] = []
    here, owner = schema.table(key.child), schema.table(key.parent)
    owners = points_in_time(parent, parent.one_way.clean())
    for name, (own, _) in points_in_time(child, child.one_way.clean()).items():
        for base, (above, _) in owners.items():
            coded = here.column(name).relative is None
            summed = owner.column(base).relative is None or base in parent.relatives
            drawn = owner.leaf(base) is None  # leaves of owners are in their documents by then
            classes = lag_classes(above, own) if coded and summed and drawn else None
            if classes is not None:
                found.append((OwnerDifference(key, name, base), classes))
    found.sort(key=lambda each: here.column(each[0].column).type is not owner.column(each[0].base).type)
    return {str(number): each for number, each in enumerate(found[:MAX_SHARING])}


def measure_lags(
    session: PrivateSession,
    key: ForeignKey,
    features: LagFeatures,
    expected: Mapping[str, Array],
    parent: Profile,
    child: Profile,
    price: Price,
) -> tuple[MeasuredLag, ...]:
    """Measure lags over the rows of all units, for at most ``price``.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1, 4 and 7.

    Args:
        session: Open for the step.
        key: The owner key.
        features: Of `lag_features`, at least one.
        expected: Shares of the children by the owner's columns, see `expected_context`.
        parent: The owners.
        child: The children.
        price: Of all of them.
    """
    owners = {name: expected[parent_column(name)] for name in parent.discretizers}
    bases, own = points_in_time(parent, owners), points_in_time(child, child.one_way.clean())
    asked = asked_of(features, (bases, own))
    noisy, found = one_way_over_rows(session, key.child, asked, child.size, price, "lags"), []
    for number, (feature, classes) in features.items():
        (above, first), (here, second) = bases[feature.base], own[feature.column]
        found.append(MeasuredLag.of(feature, (above, here, classes), (first, second), (noisy, number)))
    return tuple(found)


def own_lag_pairs(table: Table) -> list[Pair]:
    """Return the columns of a table's rows whose lags can be measured, each after an earlier one: public.

    Not those of which one is coded as its difference from the other, nor from a column of the owner. Those between
    columns of one type come first.
    """
    relative = relative_dates(table)
    dates = [
        column
        for column in table.attributes
        if (column.type.logical.calendar or column.written_years)
        and (column.relative is None or column.name in relative)
    ]
    dates.sort(key=lambda column: column.name in relative)  # what a difference is added to is drawn before it
    pairs = sorted(combinations(dates, 2), key=lambda pair: pair[0].type is not pair[1].type)
    return [(a.name, b.name) for a, b in pairs if a.name != relative.get(b.name)][:MAX_SHARING]


def tied_columns(table: Table) -> list[str]:
    """Return the columns in which rows of one owner may have the same date or number, dates first: public."""
    key = table.owner_key
    if key is None or key.max_children == 1:
        return []
    plain = [column for column in table.attributes if column.relative is None and column.type.difference is not None]
    dates = [column.name for column in plain if column.type.logical.calendar]
    numbers = [column.name for column in plain if column.type is ColumnType.INTEGER]
    return [*dates, *numbers][:MAX_SHARING]


def own_lag_share(table: Table) -> float:
    """Return the part of a table's price that `measure_own_lags` gets."""
    if own_lag_pairs(table) or relative_dates(table):
        return TUNING.own_lag_share
    return TUNING.number_share if tied_columns(table) else 0.0


@dataclass(frozen=True)
class OwnLags:
    """Released: counts of lags within the rows of a table.

    Attributes:
        features: What was measured.
        tied: Likewise, the columns of which was measured how often rows of one owner have the same value.
        sums: Where dates lie that are coded as differences, and how many were expected where.
        noisy: Counts of the classes of each.
        relatives: Of the table, see `Profile`.
    """

    features: LagFeatures = field(default_factory=dict)
    tied: Mapping[str, Tied] = field(default_factory=dict)
    sums: Mapping[str, tuple[AsStored, Point]] = field(default_factory=dict)
    noisy: OneWay = field(default_factory=lambda: OneWay({}, {}))
    relatives: Mapping[str, str] = field(default_factory=dict)

    def of(self, profile: Profile) -> Profile:
        """Return a profile of the table with the lags that independent dates would not have, beyond noise."""
        found, profile = [], replace(profile, relatives=self.relatives)
        points = points_in_time(profile, profile.one_way.clean())
        for number, (feature, classes) in self.features.items():
            (base, first), (own, second) = points[feature.base], points[feature.column]
            found.append(MeasuredLag.of(feature, (base, own, classes), (first, second), (self.noisy, number)))
        kept = (each.lag for each in found if each.informative)
        return replace(profile, lags=(*kept, *self._sums()), ties=tuple(self._ties()))

    def _sums(self) -> Iterator[Lag]:
        """Yield where dates lie that are coded as differences, if differences that follow nothing would not."""
        total = max(self.noisy.total, TINY) if self.sums else TINY
        for number, (feature, (coder, shares)) in self.sums.items():
            (counts, sigmas), expected = self.noisy.column(number + _SUM), shares / max(float(shares.sum()), TINY)
            seen = _seen(counts, sigmas, expected * total, coder.ordered)
            found = onto_simplex(shrink_haar(counts, sigmas, expected * total * seen), total) * seen
            found /= max(float(found.sum()), TINY)
            if seen[: coder.ordered].any() and np.abs(found - expected).sum() / 2 > TUNING.least_share:
                yield Lag("", feature.column, coder, found)

    def _ties(self) -> Iterator[Ties]:
        """Yield how often rows of one owner have the same value, one deviation of its noise below what was found."""
        for number, (feature, _) in self.tied.items():
            (same, _), (sigma, _) = (each[:2] for each in self.noisy.column(number + _TIES))
            following = float(self.noisy.clean()[number + _TIES][:2].sum())
            share = float(same - sigma) / max(following, sigma)
            if share > 0:
                yield Ties(feature.column, min(1.0, share))


def lag_joints(profile: Profile) -> dict[Pair, Array]:
    """Return counts of the pairs of columns that follow from the lags within the rows of a table."""
    clean, found = profile.one_way.clean(), {}
    for lag in profile.lags:
        if {lag.base, lag.column} & profile.relatives.keys():
            continue  # of another code than that of the point in time
        first, second = clean[lag.base], clean[lag.column]
        coders = profile.discretizers[lag.base], profile.discretizers[lag.column]
        chances = lag_chances(*coders, lag.classes, (len(first), len(second)))
        found[lag.base, lag.column] = joint_with_lags(first, second, chances, lag.shares)
    return found


def measure_own_lags(session: PrivateSession, table: Table, profile: Profile, price: Price) -> OwnLags:
    """Measure lags within the rows of a table, and between those of one owner, for ``price`` in all.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1, 4 and 7.
    """
    features, relatives = LagFeatures(), relative_dates(table)
    points = points_in_time(replace(profile, relatives=relatives), profile.one_way.clean())
    for base, name in own_lag_pairs(table):
        classes = lag_classes(points[base][0], points[name][0]) if {base, name} <= points.keys() else None
        if classes is not None:
            features[str(len(features))] = OwnDifference(name, base), classes
    tied, summed = _tied(table, profile), [name for name in relatives if name in points]
    sums = {str(number): (AsStored(name), points[name]) for number, name in enumerate(summed[:MAX_SHARING])}
    if not (features or tied or sums) or price.amount <= 0:
        return OwnLags(relatives=relatives)
    asked: Features = {
        **asked_of(features, (points, points)),
        **{number + _TIES: each for number, each in tied.items()},
        **{number + _SUM: (feature, coder) for number, (feature, (coder, _)) in sums.items()},
    }
    noisy = one_way_over_rows(session, table.name, asked, profile.size, price, "lags")
    return OwnLags(features, tied, sums, noisy, relatives)


def _tied(table: Table, profile: Profile) -> dict[str, Tied]:
    """Return the columns of which is measured how often rows of one owner have the same value."""
    found, key = list[Tied](), table.owner_key
    for name in tied_columns(table):
        classes = tie_classes(profile.discretizers[name]) if name in profile.discretizers else None
        if classes is not None and key is not None:
            found.append((SincePrevious(key, name), classes))
    return {str(number): each for number, each in enumerate(found)}
