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
from privbench_core.columns.intervals import OrderedCodec
from privbench_core.columns.lags import interval_points, lag_classes
from privbench_core.errors import InternalError
from privbench_core.estimators.coarsening import merge_codes
from privbench_core.estimators.denoising import onto_simplex, shrink_haar
from privbench_core.guards import LAG_CODES, MAX_SHARING, TINY
from privbench_core.marginals.one_way import OneWay
from privbench_core.privacy.budget import Price
from privbench_core.privacy.features import OwnDifference, OwnerDifference
from privbench_core.privacy.session import PrivateSession
from privbench_core.profiles.lags import Lag, expected_lags, joint_with_lags, lag_chances, shares_of_cells
from privbench_core.profiles.names import parent_column
from privbench_core.profiles.profile import Profile
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Table
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
        chances: Of `lag_chances`, with the codes of ``lag.above``.
        code_of: The code of the profile that each of these is a part of, shape (codes,).
        parts: Its share of that, same shape.
    """

    lag: Lag
    chances: Array
    code_of: NDArray[np.int64]
    parts: Array

    @property
    def pair(self) -> Pair:
        """The context's column, with the codes of its profile, and the children's."""
        return parent_column(self.lag.base), self.lag.column

    @property
    def finer(self) -> Pair:
        """The same with the codes of ``lag.above``."""
        return parent_column(self.lag.context), self.lag.column

    def joint(self, clean: Mapping[str, Array]) -> Array:
        """Return the counts of the finer pair that follow from those of both columns."""
        first, second = (clean[name] for name in self.pair)
        return joint_with_lags(
            first[self.code_of] * self.parts, second, self.chances, self.lag.shares * float(second.sum())
        )

    def merged(self, finer: Array) -> Array:
        """Return a joint of `pair` from one of `finer`."""
        return merge_codes(finer, [self.code_of, np.arange(finer.shape[1])])

    def cut(self, finer: Array, joint: Array) -> Array:
        """Return the joint of `finer` that adds up to one of `pair`, and is else as it was."""
        return finer * (joint / np.maximum(self.merged(finer), TINY))[self.code_of]


def lag_features(key: ForeignKey, parent: Profile, child: Profile) -> LagFeatures:
    """Return the lags along an owner key that can be measured: between columns of points in time of one type."""
    found: list[tuple[OwnDifference | OwnerDifference, Discretizer]] = []
    for name, own in child.discretizers.items():
        for base, above in parent.discretizers.items():
            classes = lag_classes(above, own)
            if classes is not None:
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
    found, clean = [], child.one_way.clean()
    for number, (feature, classes) in features.items():
        first, second = expected[parent_column(feature.base)], clean[feature.column]
        own = child.discretizers[feature.column]
        above, code_of, parts = _finer(parent.discretizers[feature.base], own, first)
        chances = lag_chances(above, own, classes, (len(code_of), len(second)))
        shares = _lag_shares(classes, noisy, number, first[code_of] * parts, second, chances)[0]
        found.append(MeasuredLag(Lag(feature.base, feature.column, classes, shares, above), chances, code_of, parts))
    return tuple(found)


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
        """Return a profile of the table with the lags that independent dates would not have.

        Others say nothing, or noise has hidden what they say.
        """
        found, clean = [], profile.one_way.clean()
        for number, (feature, classes) in self.features.items():
            base, name = feature.base, feature.column
            above, own = (profile.discretizers[column] for column in (base, name))
            chances = lag_chances(above, own, classes, (len(clean[base]), len(clean[name])))
            shares, apart = _lag_shares(classes, self.noisy, number, clean[base], clean[name], chances)
            if apart > TUNING.least_share:
                found.append(Lag(base, name, classes, shares, above))
        return replace(profile, lags=tuple(found))


def lag_joints(profile: Profile) -> dict[Pair, Array]:
    """Return counts of the pairs of columns that follow from the lags within the rows of a table."""
    clean, found = profile.one_way.clean(), {}
    for lag in profile.lags:
        first, second = clean[lag.base], clean[lag.column]
        coders = profile.discretizers[lag.base], profile.discretizers[lag.column]
        chances = lag_chances(*coders, lag.classes, (len(first), len(second)))
        found[lag.base, lag.column] = joint_with_lags(first, second, chances, lag.shares * float(second.sum()))
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


def _lag_shares(
    classes: Discretizer, noisy: OneWay, name: str, first: Array, second: Array, chances: Array
) -> tuple[Array, float]:
    """Return shares of the cells of a lag, and how far those of its classes are from those of independent dates.

    Args:
        classes: Coder of the lag.
        noisy: Counts of its classes, and of others.
        name: What it is called there.
        first: Counts or shares of the rows by the other column's codes, as in ``chances``.
        second: The same by their own column's.
        chances: Of `lag_chances`.
    """
    rows = noisy.total / max(float(second.sum()), TINY)
    first = first * (noisy.total / max(float(first.sum()), TINY))
    independent = merge_codes(expected_lags(first, second * rows, chances), [classes.shares[0]])
    near = shrink_haar(noisy.counts[name], noisy.sigmas[name], independent)
    of_classes = onto_simplex(near / noisy.total, 1.0)
    apart = float(np.abs(of_classes - independent / max(float(independent.sum()), TINY)).sum()) / 2
    return shares_of_cells(classes, of_classes), apart


def _finer(above: Discretizer, own: Discretizer, rows: Array) -> tuple[Discretizer, NDArray[np.int64], Array]:
    """Return an owner's column with more codes; the old code of each, and its share of that.

    What follows from lags has no noise that grows with codes. A code begins wherever one of the children's does: what
    comes hours after an owner has the owner's code, unless there is a border between them; and more where children are.

    Args:
        above: Coder of the owner's column.
        own: Coder of the children's.
        rows: Shares of the children by codes of ``above``, and of those without an owner, where there may be any.
    """
    codec = above.codec
    if not isinstance(codec, OrderedCodec):
        raise InternalError("lags are between columns with an order")
    (code_of, shares), inside = above.shares, codec.ordered
    borders, _ = interval_points(own)
    grid = codec.grid
    borders = -((grid.origin - borders) // grid.step)  # rounded up to a number of the column
    held = np.cumsum(rows[code_of[:inside]] * shares[:inside])
    begins = np.append(True, (np.diff(code_of[:inside]) != 0) | (np.diff(np.floor(held * LAG_CODES)) != 0))
    starts = np.asarray(codec.starts, np.int64)
    cuts = np.union1d(starts[begins], borders[(borders > starts[0]) & (borders <= codec.last)])
    cells = np.searchsorted(starts, cuts, side="right") - 1
    ends = np.append(starts - starts[0], int(codec.last) + 1 - starts[0]).astype(np.float64)
    before = np.interp((cuts - starts[0]).astype(np.float64), ends, np.append(0.0, np.cumsum(shares[:inside])))
    parts = np.diff(before, append=shares[:inside].sum())
    finer = OrderedCodec(grid, codec.nullable, tuple(cuts.tolist()), int(codec.last), codec.open_ended)
    without = np.arange(above.size, len(rows))
    new_of = np.concatenate([code_of[cells], code_of[inside:], without])
    return Discretizer(finer), new_of, np.concatenate([parts, shares[inside:], np.ones(len(without))])
