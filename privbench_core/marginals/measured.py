"""What was measured of a table's attributes, before a network is fitted to it.

Measuring is paid for; fitting is not. So noisy numbers are what a profile step releases, and the network that a model
step makes of them can be fitted again, by a better estimator say, at no cost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from privbench_core.arrays import Array
from privbench_core.estimators.copula import SignSums
from privbench_core.estimators.fitting import fit_margins
from privbench_core.estimators.joints import NoisyTable, Pair, Triple, estimated_joints, estimated_triples
from privbench_core.guards import TINY
from privbench_core.marginals.one_way import OneWay
from privbench_core.marginals.spn import Leaf, Node, Product, Sum
from privbench_core.privacy.split_rules import Rule
from privbench_core.stored import Storable

Names = TypeVar("Names", bound=tuple[str, ...])


@dataclass(frozen=True)
class Counted(Storable):
    """The rows that joints count: units with many rows may have other values, and count as few rows.

    Attributes:
        one_way: Counts of their columns, as many as of all rows.
        share: Of all rows.
    """

    one_way: OneWay
    share: float

    def of_all(self, tables: Mapping[Names, Array], one_way: OneWay) -> dict[Names, Array]:
        """Return joints of all rows, with the columns in ``one_way``, from those of the rows that were counted.

        Those that are left out have other marginals, and are taken to have the same odds ratios.
        """
        clean, counted = one_way.clean(), self.one_way.clean()
        left = {name: np.maximum(clean[name] - self.share * counts, 0.0) for name, counts in counted.items()}
        found = {}
        for names, table in tables.items():
            others = with_marginals(names, table, left)
            others *= (1 - self.share) * table.sum() / max(float(others.sum()), TINY)
            found[names] = with_marginals(names, self.share * table + others, clean)
        return found


@dataclass(frozen=True)
class MeasuredLeaf(Storable):
    """Noisy counts of some columns, and of pairs of them.

    Attributes:
        one_way: Counts of the columns.
        tables: Counts of pairs.
        signs: How the ordered columns are correlated, where that was measured.
        triples: Counts of triples that pairs do not explain.
        counted: Of the rows that pairs count, where these are not all rows; where units were clipped for them, signs
            and triples count somewhat fewer.
        lags: Counts of pairs of dates that follow from how far they are apart.
    """

    one_way: OneWay
    tables: Mapping[Pair, NoisyTable] = field(default_factory=dict)
    signs: SignSums | None = None
    triples: Mapping[Triple, NoisyTable] = field(default_factory=dict)
    counted: Counted | None = None
    lags: Mapping[Pair, Array] = field(default_factory=dict)

    def joints(self, names: Collection[str] | None = None) -> dict[Pair, Array]:
        """Return counts of the pairs that were measured, or follow from signs or lags; of all columns or of some.

        They have the marginals of the rows that are counted.
        """
        clean = self._as_counted.clean()
        wanted = set(clean if names is None else names)
        known = {} if self.signs is None else self.signs.joints(clean)
        known |= {pair: with_marginals(pair, self.lags[pair], clean) for pair in self.lags if wanted.issuperset(pair)}
        known = {pair: joint for pair, joint in known.items() if wanted.issuperset(pair)}
        return estimated_joints({pair: t for pair, t in self.tables.items() if wanted.issuperset(pair)}, clean, known)

    @property
    def _as_counted(self) -> OneWay:
        return self.one_way if self.counted is None else self.counted.one_way

    def fit(self) -> Leaf:
        """Return the leaf that these counts speak for."""
        clean, total, joints = self.one_way.clean(), self.one_way.total, self.joints()
        triples = estimated_triples(self.triples, joints, self._as_counted.clean())
        if self.counted is not None:
            joints, triples = (self.counted.of_all(tables, self.one_way) for tables in (joints, triples))
        rows = max(1.0, float(np.mean([counts.sum() for counts in clean.values()]))) if clean else 1.0
        joints = {pair: joint / rows for pair, joint in joints.items()}
        triples = {triple: joint / rows for triple, joint in triples.items()}
        return Leaf(total, {name: counts / total for name, counts in clean.items()}, joints, triples)


def with_marginals(names: tuple[str, ...], table: Array, margins: Mapping[str, Array]) -> Array:
    """Return a joint of some columns with these marginals and its own odds ratios."""
    return fit_margins(table, [((axis,), margins[name]) for axis, name in enumerate(names)])


@dataclass(frozen=True)
class MeasuredParts(Storable):
    """Parts that were measured apart.

    Attributes:
        parts: Of the rows, or of the columns.
        rule: Which rows are in which part; None where the parts are of columns.
    """

    parts: tuple[Measured, ...]
    rule: Rule | None = None

    def fit(self) -> Node:
        """Return the sum or product node of the fitted parts."""
        parts = tuple(part.fit() for part in self.parts)
        return Product(parts) if self.rule is None else Sum(self.rule, parts)


Measured = MeasuredLeaf | MeasuredParts
