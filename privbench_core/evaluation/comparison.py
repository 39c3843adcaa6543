"""Fidelity: how far the synthetic database is from its source, table by table and join by join.

Each distance stands beside a baseline: shuffled columns for tables, shuffled links for joins.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from privbench_core.evaluation.inputs import DatabasePair
from privbench_core.evaluation.join_figures import JoinFigures, KeyFigures, key_figures, other_joins
from privbench_core.evaluation.marginals import MarginalDistances
from privbench_core.evaluation.metric import FULL, Scope
from privbench_core.evaluation.table_figures import TableFigures, table_figures
from privbench_core.evaluation.verdict import Remark


@dataclass(frozen=True)
class Comparison:
    """All fidelity figures; a `Section` of a report.

    Attributes:
        tables: By name, without the public tables, which are published unchanged.
        keys: By `ForeignKey.name`.
        joins: Chains of keys and junctions, by a name that says which.
    """

    tables: dict[str, TableFigures]
    keys: dict[str, KeyFigures]
    joins: dict[str, JoinFigures] = field(default_factory=dict)

    def overall(self, order: int) -> dict[str, MarginalDistances | None]:
        """Return mean distances over all marginals of an order of all private tables, as PrivBench reports them.

        Returns:
            "codes" and "values"; where a table's marginals were sampled, its mean stands for all of them.
        """
        found: dict[str, MarginalDistances | None] = {}
        for kind in ("codes", "values"):
            parts = [(f.orders[order].total, getattr(f.orders[order], kind)) for f in self.tables.values()]
            known = [(total, distances) for total, distances in parts if distances is not None]
            weights = [total for total, _ in known]
            means = {
                f.name: float(np.average([getattr(d, f.name) for _, d in known], weights=weights))
                for f in (fields(MarginalDistances) if known else ())
            }
            found[kind] = MarginalDistances(**means) if known else None
        return found

    @property
    def orders(self) -> tuple[int, ...]:
        """λ of the marginals."""
        return next((tuple(figures.orders) for figures in self.tables.values()), ())

    def to_dict(self) -> dict[str, Any]:
        """Return it JSON-able."""
        overall = {order: self.overall(order) for order in self.orders}
        return {
            "overall": {
                order: {kind: distances and asdict(distances) for kind, distances in by_kind.items()}
                for order, by_kind in overall.items()
            },
            "tables": {name: figures.to_dict() for name, figures in self.tables.items()},
            "foreign_keys": {name: figures.to_dict() for name, figures in self.keys.items()},
            "other_joins": {name: figures.to_dict() for name, figures in self.joins.items()},
        }

    def remarks(self) -> Iterable[Remark]:
        """Return one remark per table, foreign key and other join."""
        for figures in (self.tables, self.keys, self.joins):
            yield from (each.remark(name) for name, each in figures.items())


def compare(pair: DatabasePair, scope: Scope = FULL) -> Comparison:
    """Return all fidelity figures within ``scope``; reads private rows."""
    source, synthetic = pair.encoded
    tables = {
        t.name: table_figures(
            t, (pair.source[t.name], pair.synthetic[t.name]), (source[t.name], synthetic[t.name]), scope
        )
        for t in pair.schema.private_tables
    }
    keys = {key.name: key_figures(pair, key, scope) for key in pair.foreign_keys}
    return Comparison(tables, keys, other_joins(pair, scope) if scope.by_value else {})
