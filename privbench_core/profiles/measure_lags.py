"""Measure how long after others dates are: one histogram for each pair of columns of dates.

The other one is the owner's, or an earlier one of the same row: when a task was done, and when it was begun.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.lags import lag_classes
from privbench_core.estimators.coarsening import merge_codes
from privbench_core.estimators.denoising import onto_simplex, shrink_haar
from privbench_core.guards import MAX_SHARING, TINY
from privbench_core.marginals.one_way import OneWay
from privbench_core.privacy.budget import Price
from privbench_core.privacy.features import OwnDifference, OwnerDifference
from privbench_core.privacy.session import PrivateSession
from privbench_core.profiles.lags import Lag, expected_lags, joint_with_lags, lag_chances, shares_of_cells
from privbench_core.profiles.names import parent_column
from privbench_core.profiles.profile import Profile
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.tuning import TUNING
from privbench_core.units.measure_by_size import one_way_over_rows

Array = NDArray[np.float64]
Pair: TypeAlias = tuple[str, str]
LagFeatures: TypeAlias = dict[str, tuple[OwnDifference | OwnerDifference, Discretizer]]
"""Columns of a view that are lags, each with the coder of its classes."""


@dataclass(frozen=True)
class MeasuredLag:
    """A released lag, and what it says of both columns.

    Attributes:
        lag: Released.
        chances: How likely its cells are within each pair of codes, see `lag_chances`.
        distance: Total variation distance of its classes from those of independent dates.
    """

    lag: Lag
    chances: Array
    distance: float

    @classmethod
    def of(
        cls,
        feature: OwnDifference | OwnerDifference,
        coders: tuple[Discretizer, Discretizer, Discretizer],
        margins: tuple[Array, Array],
        measured: tuple[Array, Array, float],
    ) -> MeasuredLag:
        """Shrink noisy counts of a lag's classes towards those of independent dates.

        Args:
            feature: The lag.
            coders: Of the other column, the rows' own, and the lag.
            margins: Shares or counts of the rows by the codes of the other column, and of their own.
            measured: Noisy counts of the classes, their standard deviations, and the noisy number of rows.
        """
        (base, own, classes), (noisy, sigmas, rows) = coders, measured
        chances = lag_chances(base, own, classes, (len(margins[0]), len(margins[1])))
        first, second = (counts * (rows / max(float(counts.sum()), TINY)) for counts in margins)
        independent = merge_codes(expected_lags(first, second, chances), [classes.shares[0]])
        shares = onto_simplex(shrink_haar(noisy, sigmas, independent) / rows, 1.0)
        distance = float(np.abs(shares - independent / max(float(independent.sum()), TINY)).sum()) / 2
        return cls(Lag(feature.base, feature.column, classes, shares_of_cells(classes, shares)), chances, distance)

    @property
    def pair(self) -> Pair:
        """The context's column and the children's, of a lag from the owner."""
        return parent_column(self.lag.base), self.lag.column

    def joint(self, clean: Mapping[str, Array]) -> Array:
        """Return the counts of `pair` that follow from those of both columns."""
        first, second = (clean[name] for name in self.pair)
        return joint_with_lags(first, second, self.chances, self.lag.shares)


def lag_features(schema: Schema, key: ForeignKey, parent: Profile, child: Profile) -> LagFeatures:
    """Return the lags along an owner key that can be measured: between columns of points in time of one type."""
    found: list[tuple[OwnDifference | OwnerDifference, Discretizer]] = []
    for name, own in child.discretizers.items():
        for base, above in parent.discretizers.items():
            ends = schema.table(key.child).column(name), schema.table(key.parent).column(base)
            classes = lag_classes(above, own)
            drawn = schema.table(key.parent).leaf(base) is None  # leaves of owners are in their documents by then
            if classes is not None and drawn and all(column.relative is None for column in ends):
                found.append((OwnerDifference(key, name, base), classes))
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
    noisy = one_way_over_rows(session, key.child, features, child.size, price, "lags")
    clean = child.one_way.clean()
    return tuple(
        MeasuredLag.of(
            feature,
            (parent.discretizers[feature.base], child.discretizers[feature.column], classes),
            (expected[parent_column(feature.base)], clean[feature.column]),
            (*noisy.column(number), noisy.total),
        )
        for number, (feature, classes) in features.items()
    )


def own_lag_pairs(table: Table) -> list[Pair]:
    """Return the columns of a table's rows whose lags can be measured, each after an earlier one: public."""
    dates = [
        column
        for column in table.attributes
        if column.type.logical.calendar and column.type.difference is not None and column.relative is None
    ]
    pairs = [(a.name, b.name) for a, b in combinations(dates, 2) if (a.type, a.precision) == (b.type, b.precision)]
    return pairs[:MAX_SHARING]


def own_lag_share(table: Table) -> float:
    """Return the part of a table's price that `measure_own_lags` gets."""
    return TUNING.own_lag_share if own_lag_pairs(table) else 0.0


@dataclass(frozen=True)
class OwnLags:
    """Released: counts of lags within the rows of a table.

    Attributes:
        features: What was measured.
        noisy: Counts of the classes of each.
    """

    features: LagFeatures = field(default_factory=dict)
    noisy: OneWay = field(default_factory=lambda: OneWay({}, {}))

    def of(self, profile: Profile) -> Profile:
        """Return a profile of the table with the lags that independent dates would not have, beyond noise."""
        found, clean = [], profile.one_way.clean()
        for number, (feature, classes) in self.features.items():
            names = feature.base, feature.column
            coders = profile.discretizers[names[0]], profile.discretizers[names[1]], classes
            counted = (*self.noisy.column(number), self.noisy.total)
            found.append(MeasuredLag.of(feature, coders, (clean[names[0]], clean[names[1]]), counted))
        return replace(profile, lags=tuple(each.lag for each in found if each.distance > TUNING.least_share))


def lag_joints(profile: Profile) -> dict[Pair, Array]:
    """Return counts of the pairs of columns that follow from the lags within the rows of a table."""
    clean, found = profile.one_way.clean(), {}
    for lag in profile.lags:
        first, second = clean[lag.base], clean[lag.column]
        coders = profile.discretizers[lag.base], profile.discretizers[lag.column]
        chances = lag_chances(*coders, lag.classes, (len(first), len(second)))
        found[lag.base, lag.column] = joint_with_lags(first, second, chances, lag.shares)
    return found


def measure_own_lags(session: PrivateSession, table: Table, profile: Profile, price: Price) -> OwnLags:
    """Measure lags within the rows of a table, for ``price`` in all.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1, 4 and 7.
    """
    features: LagFeatures = {}
    for base, name in own_lag_pairs(table):
        classes = lag_classes(profile.discretizers[base], profile.discretizers[name])
        if classes is not None:
            features[str(len(features))] = OwnDifference(name, base), classes
    if not features or price.amount <= 0:
        return OwnLags()
    return OwnLags(features, one_way_over_rows(session, table.name, features, profile.size, price, "lags"))
