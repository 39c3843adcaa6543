"""Fidelity: how far the synthetic database is from its source, table by table and join by join.

Each distance stands beside a baseline: shuffled columns for tables, shuffled links for joins. Distances of tables are
over two kinds of cells. Over *values*, as in PrivBench, every distinct value is a cell. Over *codes*, the cells are
those of the declared domains (or quantiles of the source), as the models see them. ``docs/evaluation.md`` says why a
report shows both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privbench_core.evaluation.encode import EncodedTable, value_codes
from privbench_core.evaluation.inputs import DatabasePair
from privbench_core.evaluation.join_figures import JoinFigures, KeyFigures, key_figures, other_joins
from privbench_core.evaluation.marginals import CodeTable, MarginalDistances, mean_distances, mean_of, subset_distances
from privbench_core.evaluation.subsets import FULL, SEED, Scope, Subset, column_subsets
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
    nulls: tuple[float, ...]
    distinct: tuple[int, ...]


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


@dataclass(frozen=True)
class Comparison:
    """All fidelity figures.

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
        return {
            "overall": {
                order: {kind: distances and asdict(distances) for kind, distances in self.overall(order).items()}
                for order in self.orders
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
    names, a, b, sizes = encoded[0].names, encoded[0].codes, encoded[1].codes, encoded[0].sizes
    limit = scope.limit(len(a) + len(b))
    with_values = [c.name for c in table.attributes if not (c.type.opaque or isinstance(c.domain, Pattern))]
    compared = with_values if scope.by_value else []
    of_codes, of_values = (
        {order: column_subsets(columns, order, limit) for order in scope.orders}
        for columns in (len(names), len(compared))
    )
    pairs = column_subsets(len(names), 2, limit)
    singles = [(place,) for place in range(len(names))]
    wanted = [*singles, *pairs.subsets, *(s for chosen in of_codes.values() for s in chosen.subsets)]
    by_code = _by_subset(a, b, sizes, wanted)
    by_value = _by_subset(*value_codes(*rows, compared), [s for each in of_values.values() for s in each.subsets])
    orders = {
        order: OrderFigures(
            mean_of([by_code[subset] for subset in chosen.subsets]).known,
            mean_of([by_value[subset] for subset in of_values[order].subsets]).known,
            str(chosen),
            chosen.total,
        )
        for order, chosen in of_codes.items()
    }
    of_column = {name: by_code[single].tvd for name, single in zip(names, singles, strict=True)}
    shuffled = mean_distances(a, np.random.default_rng(SEED).permuted(a, axis=0), sizes, pairs)
    return TableFigures(
        rows=(len(a), len(b)),
        columns={c.name: _facts(rows, c.name, of_column.get(c.name)) for c in table.columns},
        orders=orders,
        pairs={(names[i], names[j]): by_code[i, j].tvd for i, j in pairs.subsets},
        shuffled=shuffled.tvd if pairs.subsets else None,
        left_out=tuple(c.name for c in table.attributes if c.name not in with_values),
    )


def _by_subset(
    a: CodeTable, b: CodeTable, sizes: Sequence[int], wanted: Iterable[Subset]
) -> dict[Subset, MarginalDistances]:
    subsets = sorted(set(wanted))  # in this order, neighbours share columns that are counted once
    return dict(zip(subsets, subset_distances(a, b, sizes, subsets), strict=True))


def _facts(rows: tuple[pa.Table, pa.Table], name: str, distance: float | None) -> ColumnFacts:
    columns = [table[name] for table in rows]
    return ColumnFacts(
        distance,
        tuple(column.null_count / max(len(column), 1) for column in columns),
        tuple(int(pc.count_distinct(column, mode="only_valid").as_py()) for column in columns),
    )
