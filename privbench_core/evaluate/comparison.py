"""The figures of fidelity: how far the synthetic database is from its source, table by table and join by join.

Each figure stands beside what would be got for nothing: shuffled columns for tables, shuffled children for keys.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from privbench_core.evaluate.join_figures import JoinFigures, KeyFigures, key_figures, other_joins
from privbench_core.evaluate.marginals import MarginalDistances
from privbench_core.evaluate.subjects import TablesSideBySide
from privbench_core.evaluate.table_figures import FULL, Scope, TableFigures, table_figures


@dataclass(frozen=True)
class Comparison:
    """All figures of fidelity.

    Attributes:
        tables: By name; public tables are published as they are and not among them.
        keys: By `ForeignKey.name`.
        joins: Chains of keys, and parents that meet in the rows of a child, by a name that says which.
    """

    tables: dict[str, TableFigures]
    keys: dict[str, KeyFigures]
    joins: dict[str, JoinFigures] = field(default_factory=dict)

    def overall(self, order: int) -> dict[str, MarginalDistances | None]:
        """Mean distances over all marginals of an order of all private tables, as PrivBench states them.

        Returns:
            "codes" and "values"; where a table's marginals were sampled, its mean stands for all of them.
        """
        found: dict[str, MarginalDistances | None] = {}
        for kind in ("codes", "values"):
            parts = [(f.orders[order].total, getattr(f.orders[order], kind)) for f in self.tables.values()]
            known = [(total, distances) for total, distances in parts if distances is not None]
            weights = [total for total, _ in known]
            found[kind] = (
                MarginalDistances(
                    float(np.average([d.tvd for _, d in known], weights=weights)),
                    float(np.average([d.kld for _, d in known], weights=weights)),
                )
                if known
                else None
            )
        return found

    @property
    def orders(self) -> tuple[int, ...]:
        """λ of the marginals that were taken."""
        return next((tuple(figures.orders) for figures in self.tables.values()), ())

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        overall = {order: self.overall(order) for order in self.orders}
        return {
            "overall": {
                order: {kind: distances and asdict(distances) for kind, distances in by_kind.items()}
                for order, by_kind in overall.items()
            },
            "tables": {name: figures.to_dict() for name, figures in self.tables.items()},
            "foreign_keys": {name: figures.to_dict() for name, figures in self.keys.items()},
            "other_joins": {name: asdict(figures) for name, figures in self.joins.items()},
        }


def compare(pair: TablesSideBySide, scope: Scope = FULL) -> Comparison:
    """Work out all figures of ``scope``; looks at private rows."""
    true, made = pair.coded
    tables = {
        t.name: table_figures(t, (pair.source[t.name], pair.synthetic[t.name]), (true[t.name], made[t.name]), scope)
        for t in pair.schema.private_tables
    }
    keys = {key.name: key_figures(pair, key, scope) for key in pair.foreign_keys}
    return Comparison(tables, keys, other_joins(pair, scope) if scope.by_value else {})
