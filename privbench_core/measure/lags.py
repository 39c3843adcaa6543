"""Measure how long after others dates are: one histogram for each pair of columns of dates.

The other one is the owner's, or an earlier one of the same row: when a task was done, and when it was begun.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.discretizer import Discretizer
from privbench_core.estimate.haar_shrinkage import shrink_haar
from privbench_core.estimate.simplex import onto_simplex
from privbench_core.guards import MAX_SHARING, TINY
from privbench_core.measure.by_size import Features
from privbench_core.measure.fanout_fit import FanoutFit
from privbench_core.measure.over_rows import one_way_over_rows
from privbench_core.models.fanout import PARENT
from privbench_core.models.lags import Lag, expected_lags, joint_with_lags, lag_chances, lag_classes
from privbench_core.models.one_way import OneWay
from privbench_core.models.profile import Profile
from privbench_core.privacy.budget import Price
from privbench_core.privacy.features import OwnDifference, OwnerDifference
from privbench_core.privacy.session import PrivateSession
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Table
from privbench_core.tuning import TUNING

Array = NDArray[np.float64]
Pair: TypeAlias = tuple[str, str]


@dataclass(frozen=True)
class DatePair:
    """Two columns of dates whose lag can be measured.

    Attributes:
        feature: The column of a view.
        coders: Of the other column, and of the rows' own.
        classes: Coder of the lag.
    """

    feature: OwnDifference | OwnerDifference
    coders: tuple[Discretizer, Discretizer]
    classes: Discretizer

    @classmethod
    def of(cls, feature: OwnDifference | OwnerDifference, base: Profile, own: Profile) -> DatePair | None:
        """Return the pair; None where they are not points in time of one type."""
        coders = base.discretizers[feature.base], own.discretizers[feature.column]
        classes = lag_classes(*coders)
        return None if classes is None else cls(feature, coders, classes)

    def lag(self, noisy: OneWay, name: str, first: Array, second: Array) -> Lag | None:
        """Return the lag, drawn towards that of independent dates; None where it is that, or nearly.

        Args:
            noisy: Counts of classes, its own among them.
            name: What they are called there.
            first: Counts or shares of the rows by the other column's codes.
            second: The same by their own column's.
        """
        chances = lag_chances(*self.coders, self.classes, (len(first), len(second)))
        shares = expected_lags(first / max(float(first.sum()), TINY), second / max(float(second.sum()), TINY), chances)
        found = shrink_haar(noisy.counts[name], noisy.sigmas[name], shares * noisy.total)
        found = onto_simplex(found / noisy.total, 1.0)
        apart = float(np.abs(found - shares).sum()) / 2
        return Lag(self.feature.base, self.feature.column, self.classes, found) if apart > TUNING.least_share else None


def lag_joints(
    lags: Iterable[Lag],
    coders: Mapping[str, Discretizer],
    counts: Mapping[str, Array],
    base: Callable[[str], str] = str,
) -> dict[Pair, Array]:
    """Return counts of the pairs of columns that follow from lags, each of shape (base codes, own codes).

    Args:
        lags: Released.
        coders: Of both columns.
        counts: Of the rows by them, in any scale for the other column.
        base: What the other column is called in both.
    """
    found = {}
    for lag in lags:
        pair = base(lag.base), lag.column
        first, second = (counts[name] for name in pair)
        rows = float(second.sum())
        chances = lag_chances(coders[pair[0]], coders[pair[1]], lag.classes, (len(first), len(second)))
        first = first * (rows / max(float(first.sum()), TINY))
        found[pair] = joint_with_lags(first, second, chances, lag.shares * rows)
    return found


def date_pairs(key: ForeignKey, parent: Profile, child: Profile) -> tuple[DatePair, ...]:
    """Return the lags along an owner key that can be measured: between columns of points in time of one type."""
    features = (OwnerDifference(key, name, base) for name in child.discretizers for base in parent.discretizers)
    return tuple(filter(None, (DatePair.of(feature, parent, child) for feature in features)))[:MAX_SHARING]


def measure_lags(
    session: PrivateSession,
    key: ForeignKey,
    pairs: Sequence[DatePair],
    expected: Mapping[str, Array],
    child: Profile,
    price: Price,
) -> tuple[Lag, ...]:
    """Measure lags over the rows of all units, for at most ``price``.

    Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or removing
    one privacy unit; ``docs/privacy.md``, section 5, mechanisms 1, 4 and 7.

    Args:
        session: Open for the step.
        key: The owner key.
        pairs: Of `date_pairs`, at least one.
        expected: Shares of the children by the owner's columns, see `expected_context`.
        child: The children.
        price: Of all of them.
    """
    noisy, clean = _measured(session, key.child, pairs, child, price), child.one_way.clean()
    return _lags(pairs, noisy, {name.removeprefix(PARENT): shares for name, shares in expected.items()}, clean)


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
    return FanoutFit.lag_share if own_lag_pairs(table) else 0.0


@dataclass(frozen=True)
class OwnLags:
    """Released: counts of lags within the rows of a table.

    Attributes:
        pairs: What was measured.
        noisy: Counts of its classes, by position among ``pairs``.
    """

    pairs: tuple[DatePair, ...] = ()
    noisy: OneWay = field(default_factory=lambda: OneWay({}, {}))

    def of(self, profile: Profile) -> Profile:
        """Return a profile of the table with the lags that independent dates would not have."""
        clean, coders = profile.one_way.clean(), profile.discretizers
        pairs = [replace(pair, coders=(coders[pair.feature.base], coders[pair.feature.column])) for pair in self.pairs]
        return replace(profile, lags=_lags(pairs, self.noisy, clean, clean))


def own_lag_joints(profile: Profile) -> dict[Pair, Array]:
    """Return counts of the pairs of columns that follow from the lags within the rows of a table."""
    return lag_joints(profile.lags, profile.discretizers, profile.one_way.clean())


def measure_own_lags(session: PrivateSession, table: Table, profile: Profile, price: Price) -> OwnLags:
    """Measure lags within the rows of a table, for ``price`` in all.

    Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or removing
    one privacy unit; ``docs/privacy.md``, section 5, mechanisms 1, 4 and 7.
    """
    features = (OwnDifference(name, base) for base, name in own_lag_pairs(table))
    found = tuple(filter(None, (DatePair.of(feature, profile, profile) for feature in features)))
    if not found or price.amount <= 0:
        return OwnLags()
    return OwnLags(found, _measured(session, table.name, found, profile, price))


def _measured(session: PrivateSession, table: str, pairs: Sequence[DatePair], profile: Profile, price: Price) -> OneWay:
    """Return counts of the classes of lags over all rows of a table, by position among ``pairs``."""
    columns: Features = {str(number): (pair.feature, pair.classes) for number, pair in enumerate(pairs)}
    return one_way_over_rows(session, table, columns, profile, price, "lags")


def _lags(
    pairs: Sequence[DatePair], noisy: OneWay, first: Mapping[str, Array], second: Mapping[str, Array]
) -> tuple[Lag, ...]:
    """Return the lags that say something, given counts of the rows by the other columns and by their own."""
    found = (
        pair.lag(noisy, str(number), first[pair.feature.base], second[pair.feature.column])
        for number, pair in enumerate(pairs)
    )
    return tuple(lag for lag in found if lag is not None)
