"""The figures of one table: how far its marginals are from the source's, in two ways of counting, and column by column.

*Values* are PrivBench's way: every distinct value is a cell of its own. *Codes* are cells of the declared domains (or
quantiles of the source), which is what the models see. See ``docs/evaluation.md`` for why both are shown.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privbench_core.evaluate.encode import Coded, value_codes
from privbench_core.evaluate.marginals import CodeTable, MarginalDistances, mean_distances, mean_tvd, subset_distances
from privbench_core.evaluate.subsets import ColumnSubsets, column_subsets
from privbench_core.schema.columns import Pattern
from privbench_core.schema.tables import Table

SEED = 0
"""Of everything that is sampled: the report of a bundle is the same whenever it is made."""


@dataclass(frozen=True)
class Scope:
    """How much is looked at.

    Attributes:
        orders: λ of the marginals.
        marginals: Marginals of one order at most, for a table of ordinary size; a seeded sample of them above that.
        by_value: Whether marginals over values are taken too.
        counting: Counting queries per foreign key.
    """

    orders: tuple[int, ...] = (1, 2, 3, 4)
    marginals: int = 1500
    by_value: bool = True
    counting: int = 10_000

    def limit(self, rows: int) -> int:
        """Marginals of one order for a table of so many rows: fewer where each takes longer."""
        return max(50, min(self.marginals, _ROW_LIMIT // max(rows, 1)))


FULL = Scope()
"""What a report shows."""
BRIEF = Scope(orders=(1, 2), marginals=200, by_value=False, counting=0)
"""What takes a moment: for the terminal."""
_ROW_LIMIT = 150_000_000


@dataclass(frozen=True)
class ColumnFacts:
    """One column in the source and in the bundle.

    Attributes:
        tvd: Total variation distance over codes; None for keys.
        nulls: Share of NULL in either.
        distinct: Number of distinct values in either.
    """

    tvd: float | None
    nulls: tuple[float, float]
    distinct: tuple[int, int]


@dataclass(frozen=True)
class OrderFigures:
    """Mean distances of the λ-way marginals.

    Attributes:
        codes: Over codes; None where there are no such marginals.
        values: Over values; None where there are none, or they were not taken.
        over: What the means are over, in words.
        total: How many marginals of that order there are.
    """

    codes: MarginalDistances | None
    values: MarginalDistances | None
    over: str
    total: int


@dataclass(frozen=True)
class TableFigures:
    """Distances for one private table.

    Attributes:
        rows: Rows in the source and in the synthetic table.
        columns: Facts per column, keys included.
        orders: Mean distances by λ.
        pairs: Total variation distance of each 2-way marginal that was taken, over codes.
        shuffled: 2-way distance of the source from itself with every column shuffled: no correlation at all.
        left_out: Columns that have no values to compare, because each row's is made anew.
    """

    rows: tuple[int, int]
    columns: dict[str, ColumnFacts]
    orders: dict[int, OrderFigures]
    pairs: dict[tuple[str, str], float]
    shuffled: float | None
    left_out: tuple[str, ...] = ()

    def tvd(self, order: int) -> float | None:
        """Mean total variation distance of the marginals of an order, over codes."""
        figures = self.orders.get(order)
        return None if figures is None or figures.codes is None else figures.codes.tvd

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        kinds = ("codes", "values")
        by_kind = {kind: {order: getattr(figures, kind) for order, figures in self.orders.items()} for kind in kinds}
        return {
            "rows": list(self.rows),
            "tvd": {order: self.tvd(order) for order in self.orders},
            "kld": {order: d and d.kld for order, d in by_kind["codes"].items()},
            "tvd_of_values": {order: d and d.tvd for order, d in by_kind["values"].items()},
            "kld_of_values": {order: d and d.kld for order, d in by_kind["values"].items()},
            "marginals": {order: figures.over for order, figures in self.orders.items()},
            "shuffled": self.shuffled,
            "columns": {name: asdict(facts) for name, facts in self.columns.items()},
            "pairs": [{"columns": list(pair), "tvd": value} for pair, value in self.pairs.items()],
            "without_values": list(self.left_out),
        }


def table_figures(
    table: Table, rows: tuple[pa.Table, pa.Table], coded: tuple[Coded, Coded], scope: Scope
) -> TableFigures:
    """Work out the figures of a private table; looks at private rows.

    Args:
        table: The table.
        rows: Of the source and of the bundle.
        coded: The same as codes.
        scope: What to take.
    """
    true, made = coded
    a, b, sizes = true.codes, made.codes, true.sizes
    limit = scope.limit(len(a) + len(b))
    subsets = {order: column_subsets(len(sizes), order, limit, SEED) for order in scope.orders}
    singles = [d.tvd for d in subset_distances(a, b, sizes, [(i,) for i in range(len(sizes))])]
    of_column = dict(zip(true.names, singles, strict=True))
    pairs = subsets.get(2, column_subsets(len(sizes), 2, limit, SEED))
    each = [d.tvd for d in subset_distances(a, b, sizes, pairs.subsets)]
    named = [(true.names[i], true.names[j]) for i, j in pairs.subsets]
    valued = [c.name for c in table.attributes if not (c.type.opaque or isinstance(c.domain, Pattern))]
    return TableFigures(
        rows=(len(a), len(b)),
        columns={c.name: _facts(rows, c.name, of_column.get(c.name)) for c in table.columns},
        orders=_orders(coded, rows, valued if scope.by_value else [], subsets, limit),
        pairs=dict(zip(named, each, strict=True)),
        shuffled=_finite(mean_tvd(a, _shuffled(a), sizes, 2, pairs)),
        left_out=tuple(c.name for c in table.attributes if c.name not in valued),
    )


def _orders(
    coded: tuple[Coded, Coded],
    rows: tuple[pa.Table, pa.Table],
    valued: list[str],
    subsets: dict[int, ColumnSubsets],
    limit: int,
) -> dict[int, OrderFigures]:
    true, made = coded
    values = value_codes(*rows, valued)
    found = {}
    for order, chosen in subsets.items():
        by_code = _known(mean_distances(true.codes, made.codes, true.sizes, order, chosen))
        by_value = _known(mean_distances(*values, order, column_subsets(len(valued), order, limit, SEED)))
        found[order] = OrderFigures(by_code, by_value, str(chosen), chosen.total)
    return found


def _facts(rows: tuple[pa.Table, pa.Table], name: str, distance: float | None) -> ColumnFacts:
    columns = [table[name] for table in rows]
    nulls = [column.null_count / max(len(column), 1) for column in columns]
    distinct = [int(pc.count_distinct(column, mode="only_valid").as_py()) for column in columns]
    return ColumnFacts(distance, (nulls[0], nulls[1]), (distinct[0], distinct[1]))


def _shuffled(codes: CodeTable) -> CodeTable:
    return np.random.default_rng(SEED).permuted(codes, axis=0)


def _known(distances: MarginalDistances) -> MarginalDistances | None:
    return distances if math.isfinite(distances.tvd) else None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
