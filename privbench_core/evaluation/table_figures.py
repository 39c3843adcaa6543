"""Figures of one table: distances of its marginals from the source's, over two kinds of cells, and facts per column.

Over *values*, as in PrivBench, every distinct value is a cell. Over *codes*, the cells are those of the declared
domains (or quantiles of the source), as the models see them. ``docs/evaluation.md`` says why a report shows both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privbench_core.evaluation.encode import EncodedTable, value_codes
from privbench_core.evaluation.marginals import CodeTable, MarginalDistances, mean_distances, mean_of, subset_distances
from privbench_core.evaluation.metric import SEED, Scope
from privbench_core.evaluation.subsets import ColumnSubsets, column_subsets
from privbench_core.evaluation.verdict import DISTANCE, Remark
from privbench_core.schema.columns import Pattern
from privbench_core.schema.tables import Table


@dataclass(frozen=True)
class ColumnFacts:
    """One column in the source and in the bundle.

    Attributes:
        tvd: Total variation distance over codes; None for keys.
        nulls: Share of NULLs in each.
        distinct: Number of distinct values in each.
    """

    tvd: float | None
    nulls: tuple[float, float]
    distinct: tuple[int, int]


@dataclass(frozen=True)
class OrderFigures:
    """Mean distances of the λ-way marginals.

    Attributes:
        codes: Over codes; None where there are no such marginals.
        values: Over values; None where there are none, or the scope leaves them out.
        over: The marginals of the means, in words.
        total: Number of marginals of that order.
    """

    codes: MarginalDistances | None
    values: MarginalDistances | None
    over: str
    total: int


@dataclass(frozen=True)
class TableFigures:
    """Figures of one private table.

    Attributes:
        rows: Rows in the source and in the synthetic table.
        columns: Facts per column, keys included.
        orders: Mean distances by λ.
        pairs: Total variation distance of each 2-way marginal, over codes.
        shuffled: 2-way distance of the source from itself with every column shuffled: no correlations at all.
        left_out: Columns without values to compare, because the values of each row are regenerated.
    """

    rows: tuple[int, int]
    columns: dict[str, ColumnFacts]
    orders: dict[int, OrderFigures]
    pairs: dict[tuple[str, str], float]
    shuffled: float | None
    left_out: tuple[str, ...] = ()

    def tvd(self, order: int) -> float | None:
        """Return the mean total variation distance of the marginals of an order, over codes."""
        figures = self.orders.get(order)
        return None if figures is None or figures.codes is None else figures.codes.tvd

    def to_dict(self) -> dict[str, Any]:
        """Return it JSON-able."""
        means = {
            f"{each.name}{suffix}": {
                order: getattr(getattr(figures, kind), each.name, None) for order, figures in self.orders.items()
            }
            for kind, suffix in (("codes", ""), ("values", "_of_values"))
            for each in fields(MarginalDistances)
        }
        return {
            "rows": list(self.rows),
            **means,
            "marginals": {order: figures.over for order, figures in self.orders.items()},
            "shuffled": self.shuffled,
            "columns": {name: asdict(facts) for name, facts in self.columns.items()},
            "pairs": [{"columns": list(pair), "tvd": value} for pair, value in self.pairs.items()],
            "without_values": list(self.left_out),
        }

    def remark(self, name: str) -> Remark:
        """Return the remark for the verdict."""
        pairs, single = self.tvd(2), self.tvd(1)
        if pairs is not None and self.shuffled is not None:
            lost = "" if pairs < self.shuffled else ": the correlations are lost"
            shuffled = f"shuffled columns would be {self.shuffled:.3f}"
            text = f"pairs of columns are {pairs:.3f} from the source; {shuffled}{lost}."
            return Remark(DISTANCE.level(pairs, lost=bool(lost)), name, text)
        if single is not None:
            return Remark(DISTANCE.level(single), name, f"columns are {single:.3f} from the source.")
        return Remark(None, name, "has no attributes to compare.")


def table_figures(
    table: Table, rows: tuple[pa.Table, pa.Table], encoded: tuple[EncodedTable, EncodedTable], scope: Scope
) -> TableFigures:
    """Return the figures of a private table; reads private rows.

    Args:
        table: The table.
        rows: Rows of the source and of the bundle.
        encoded: The same as codes.
        scope: How much of the data to use.
    """
    source, synthetic = encoded
    a, b, sizes = source.codes, synthetic.codes, source.sizes
    limit = scope.limit(len(a) + len(b))
    subsets = {order: column_subsets(len(sizes), order, limit, SEED) for order in scope.orders}
    singles = [(i,) for i in range(len(sizes))]
    pairs = subsets.get(2, column_subsets(len(sizes), 2, limit, SEED))
    wanted = sorted({*singles, *pairs.subsets, *(s for chosen in subsets.values() for s in chosen.subsets)})
    found = dict(zip(wanted, subset_distances(a, b, sizes, wanted), strict=True))
    of_column = {name: found[single].tvd for name, single in zip(source.names, singles, strict=True)}
    with_values = [c.name for c in table.attributes if not (c.type.opaque or isinstance(c.domain, Pattern))]
    return TableFigures(
        rows=(len(a), len(b)),
        columns={c.name: _facts(rows, c.name, of_column.get(c.name)) for c in table.columns},
        orders=_orders(found, rows, with_values if scope.by_value else [], subsets, limit),
        pairs={(source.names[i], source.names[j]): found[i, j].tvd for i, j in pairs.subsets},
        shuffled=_finite(mean_distances(a, _shuffled(a), sizes, pairs).tvd),
        left_out=tuple(c.name for c in table.attributes if c.name not in with_values),
    )


def _orders(
    by_code: Mapping[tuple[int, ...], MarginalDistances],
    rows: tuple[pa.Table, pa.Table],
    with_values: list[str],
    subsets: Mapping[int, ColumnSubsets],
    limit: int,
) -> dict[int, OrderFigures]:
    values = value_codes(*rows, with_values)
    of_values = {order: column_subsets(len(with_values), order, limit, SEED).subsets for order in subsets}
    wanted = sorted(subset for chosen in of_values.values() for subset in chosen)
    by_value = dict(zip(wanted, subset_distances(*values, wanted), strict=True))
    return {
        order: OrderFigures(
            _known(mean_of([by_code[subset] for subset in chosen.subsets])),
            _known(mean_of([by_value[subset] for subset in of_values[order]])),
            str(chosen),
            chosen.total,
        )
        for order, chosen in subsets.items()
    }


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
