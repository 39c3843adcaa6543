"""What was measured of a table's attributes, before a network is fitted to it.

Measuring is paid for; fitting is not. So noisy numbers are what a profile step releases, and the network that a model
step makes of them can be fitted again, by a better estimator say, at no cost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from privbench_core.estimate.copula import Cut, SignSums
from privbench_core.estimate.implied_pairs import Pair
from privbench_core.estimate.joints import NoisyTable, estimated_joints
from privbench_core.estimate.triples import Triple, estimated_triples
from privbench_core.models.one_way import OneWay
from privbench_core.models.spn import Leaf, Node, Product, Sum, rule_from_dict, rule_to_dict
from privbench_core.privacy.split_rules import Rule

Array = NDArray[np.float64]
T = TypeVar("T")
_MOST_BY_COPULA = 500  # pairs of a leaf, the strongest; chosen by hand: all of 32 columns, and each takes time to fit


@dataclass(frozen=True)
class MeasuredLeaf:
    """Noisy counts of some columns, and of pairs of them.

    Attributes:
        one_way: Counts of the columns.
        tables: Counts of pairs.
        signs: How the ordered columns are correlated, where that was measured.
        triples: Counts of triples that pairs do not explain.
    """

    one_way: OneWay
    tables: Mapping[Pair, NoisyTable] = field(default_factory=dict)
    signs: SignSums | None = None
    triples: Mapping[Triple, NoisyTable] = field(default_factory=dict)

    def joints(self, names: Collection[str] | None = None) -> dict[Pair, Array]:
        """Return counts of the pairs that were measured, or that follow from the signs; of all columns or of some."""
        clean = self.one_way.clean()
        by_copula = {} if self.signs is None else self.signs.joints(clean, most=_MOST_BY_COPULA)
        wanted = set(clean if names is None else names)
        return estimated_joints(_among(self.tables, wanted), clean, _among(by_copula, wanted))

    def fit(self) -> Leaf:
        """Return the leaf that these counts speak for."""
        clean, total, joints = self.one_way.clean(), self.one_way.total, self.joints()
        triples = estimated_triples(self.triples, joints, clean)
        rows = max(1.0, float(np.mean([counts.sum() for counts in clean.values()]))) if clean else 1.0
        marginals = {name: counts / total for name, counts in clean.items()}
        return Leaf(
            total,
            marginals,
            {pair: joint / rows for pair, joint in joints.items()},
            {triple: joint / rows for triple, joint in triples.items()},
        )


def _among(tables: Mapping[Pair, T], names: set[str]) -> dict[Pair, T]:
    """Return the tables whose columns are both among ``names``."""
    return {pair: table for pair, table in tables.items() if names.issuperset(pair)}


@dataclass(frozen=True)
class MeasuredParts:
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


def measured_to_dict(measured: Measured) -> dict[str, Any]:
    """Return a description that `Artifact` can store."""
    if isinstance(measured, MeasuredParts):
        parts = [measured_to_dict(part) for part in measured.parts]
        return {"parts": parts, "rule": None if measured.rule is None else rule_to_dict(measured.rule)}
    one_way = measured.one_way
    tables = [
        {
            "columns": list(names),
            "counts": table.counts,
            "sigma": table.sigma,
            "groups": list(table.groups),
            "ordered": list(table.ordered),
        }
        for names, table in [*measured.tables.items(), *measured.triples.items()]
    ]
    signs = measured.signs and {
        "cuts": [[name, cut.ordered, cut.at] for name, cut in measured.signs.cuts.items()],
        "sums": measured.signs.sums,
        "sigma": measured.signs.sigma,
    }
    return {
        "counts": [[name, counts] for name, counts in one_way.counts.items()],
        "sigmas": [[name, sigmas] for name, sigmas in one_way.sigmas.items()],
        "rows": one_way.rows,
        "tables": tables,
        "signs": signs,
    }


def measured_from_dict(stored: Mapping[str, Any]) -> Measured:
    """Return what `measured_to_dict` has described."""
    if "parts" in stored:
        rule = None if stored["rule"] is None else rule_from_dict(stored["rule"])
        return MeasuredParts(tuple(measured_from_dict(part) for part in stored["parts"]), rule)
    pairs: dict[Pair, NoisyTable] = {}
    triples: dict[Triple, NoisyTable] = {}
    for table in stored["tables"]:
        first, second, *third = table["columns"]
        noisy = NoisyTable(table["counts"], table["sigma"], tuple(table["groups"]), tuple(table.get("ordered", (0, 0))))
        if third:
            triples[first, second, third[0]] = noisy
        else:
            pairs[first, second] = noisy
    found = stored["signs"]
    signs = found and SignSums({n: Cut(ordered, at) for n, ordered, at in found["cuts"]}, found["sums"], found["sigma"])
    return MeasuredLeaf(OneWay(dict(stored["counts"]), dict(stored["sigmas"]), stored["rows"]), pairs, signs, triples)
