"""Fidelity: how far the synthetic database is from its source, table by table and join by join.

Each distance stands beside a baseline: shuffled columns for tables, shuffled links for joins. Distances of tables are
over two kinds of cells. Over *values*, as in PrivBench, every distinct value is a cell. Over *codes*, the cells are
those of the declared domains (or quantiles of the source), as the models see them. ``docs/evaluation.md`` says why a
report shows both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np
import pyarrow.compute as pc

from privbench_core.evaluation.counting import CountingFigures, counting_figures
from privbench_core.evaluation.encode import value_codes
from privbench_core.evaluation.inputs import DatabasePair
from privbench_core.evaluation.joins import (
    Correlation,
    JoinValues,
    LinkedTables,
    chains,
    cross_distances,
    fanout_wasserstein,
    inter_table,
    intra_group,
    junctions,
    link_junction,
    link_tables,
    ordered_values,
    sibling_agreements,
)
from privbench_core.evaluation.marginals import (
    FULL,
    SEED,
    CodeTable,
    ColumnSubsets,
    MarginalDistances,
    Scope,
    Subset,
    codes_tvd,
    column_subsets,
    crossing_subsets,
    mean_distances,
    subset_distances,
)
from privbench_core.evaluation.verdict import DISTANCE, Remark
from privbench_core.schema.columns import Pattern
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Table

JOIN_METRICS = {
    "joint": "mean distance of joined pairs",
    "shuffled": "the same with the links shuffled",
    "three": "mean distance of cross-table 3-way marginals",
}
"""Captions of the metrics of every join; "three" is the workload of Alimohammadi et al."""
FANOUT_METRICS = {
    "fanout_tvd": "distance of fanouts",
    "fanout_wasserstein": "earth mover's distance of fanouts, in children",
    "siblings": "how far agreement of siblings is off, mean of columns",
}
"""Captions of the metrics of joins along one foreign key."""


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
            "rows": self.rows,
            **means,
            "marginals": {order: figures.over for order, figures in self.orders.items()},
            "shuffled": self.shuffled,
            "columns": {name: asdict(facts) for name, facts in self.columns.items()},
            "pairs": [{"columns": pair, "tvd": value} for pair, value in self.pairs.items()],
            "without_values": self.left_out,
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
class JoinFigures:
    """Metrics of two tables' joined rows.

    Attributes:
        tables: The two tables.
        over: The marginals of the means, in words: "all 12 2-way marginals".
        metrics: By name, of `JOIN_METRICS` and `FANOUT_METRICS`; None where a metric is not defined.
    """

    tables: tuple[str, str]
    over: str
    metrics: Mapping[str, float | None]

    def to_dict(self) -> dict[str, Any]:
        """Return it JSON-able."""
        return {"tables": self.tables, "over": self.over, **self.metrics}

    def remark(self, name: str) -> Remark:
        """Return the remark for the verdict: about the joined pairs, else about the fanout."""
        joint, shuffled, fanout = (self.metrics.get(metric) for metric in ("joint", "shuffled", "fanout_tvd"))
        if joint is not None and shuffled is not None:
            lost = "" if joint < shuffled else ": the link is lost"
            text = f"joined pairs are {joint:.3f} from the source; shuffled rows would be {shuffled:.3f}{lost}."
            return Remark(DISTANCE.level(joint, lost=bool(lost)), name, text)
        if fanout is not None:
            return Remark(DISTANCE.level(fanout), name, f"children per parent are {fanout:.3f} from the source.")
        return Remark(None, name, "has no attributes to compare.")


@dataclass(frozen=True)
class KeyFigures:
    """Figures of the join along one foreign key.

    Attributes:
        join: The metrics, those of the fanout included.
        pairs: Total variation distance per (parent attribute, child attribute) over the joined rows.
        fanout_mean: Mean fanout in the source and in the synthetic database.
        selectivity: Of the counting queries.
        counting: Errors of counting queries by kind; empty where there are none.
        inter_table: Pearson coefficients of ordered columns of parent and child.
        intra_group: Pearson coefficients among the children of one parent.
    """

    join: JoinFigures
    pairs: dict[tuple[str, str], float]
    fanout_mean: tuple[float, ...]
    selectivity: float = 0.2
    counting: tuple[CountingFigures, ...] = ()
    inter_table: tuple[Correlation, ...] = ()
    intra_group: tuple[Correlation, ...] = ()

    @property
    def parent(self) -> str:
        """The referenced table."""
        return self.join.tables[0]

    def to_dict(self) -> dict[str, Any]:
        """Return it JSON-able."""
        return {
            **self.join.to_dict(),
            "parent": self.parent,
            "pairs": [{"parent": p, "child": c, "tvd": d} for (p, c), d in self.pairs.items()],
            "fanout_mean": self.fanout_mean,
            "selectivity": self.selectivity,
            "counting": [asdict(figures) for figures in self.counting],
            "between": [asdict(correlation) for correlation in self.inter_table],
            "among": [asdict(correlation) for correlation in self.intra_group],
        }


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
        found = {}
        for kind in ("codes", "values"):
            parts = [(f.orders[order].total, getattr(f.orders[order], kind)) for f in self.tables.values()]
            known = [(total, distances) for total, distances in parts if distances is not None]
            found[kind] = MarginalDistances.mean([d for _, d in known], [total for total, _ in known])
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
        joins = {name: figures.join for name, figures in self.keys.items()}
        yield from (each.remark(name) for name, each in self.tables.items())
        yield from (each.remark(name) for name, each in (joins | self.joins).items())


def compare(pair: DatabasePair, scope: Scope = FULL) -> Comparison:
    """Return all fidelity figures within ``scope``; reads private rows."""
    return Comparison(
        {table.name: _table_figures(pair, table, scope) for table in pair.schema.private_tables},
        {key.name: _key_figures(pair, key, scope) for key in pair.foreign_keys},
        _other_joins(pair, scope) if scope.by_value else {},
    )


def _table_figures(pair: DatabasePair, table: Table, scope: Scope) -> TableFigures:
    rows = pair.source[table.name], pair.synthetic[table.name]
    source, synthetic = (side[table.name] for side in pair.encoded)
    names, a, b, sizes = source.names, source.codes, synthetic.codes, source.sizes
    limit = scope.limit(len(a) + len(b))
    with_values = [c.name for c in table.attributes if not (c.type.opaque or isinstance(c.domain, Pattern))]
    compared = with_values if scope.by_value else []
    values = value_codes(*rows, compared)
    orders = {}
    for order in scope.orders:
        chosen = column_subsets(len(names), order, limit)
        of_values = mean_distances(*values, column_subsets(len(compared), order, limit))
        orders[order] = OrderFigures(mean_distances(a, b, sizes, chosen), of_values, str(chosen), chosen.total)
    singles, pairs = column_subsets(len(names), 1), column_subsets(len(names), 2, limit)
    of_columns = {names[i]: d.tvd for (i,), d in _each(a, b, sizes, singles)}
    shuffled = mean_distances(a, np.random.default_rng(SEED).permuted(a, axis=0), sizes, pairs)
    return TableFigures(
        rows=(len(a), len(b)),
        columns={
            c.name: ColumnFacts(
                of_columns.get(c.name),
                tuple(side[c.name].null_count / max(side.num_rows, 1) for side in rows),
                tuple(int(pc.count_distinct(side[c.name], mode="only_valid").as_py()) for side in rows),
            )
            for c in table.columns
        },
        orders=orders,
        pairs={(names[i], names[j]): d.tvd for (i, j), d in _each(a, b, sizes, pairs)},
        shuffled=None if shuffled is None else shuffled.tvd,
        left_out=tuple(c.name for c in table.attributes if c.name not in with_values),
    )


def _each(
    a: CodeTable, b: CodeTable, sizes: Sequence[int], subsets: ColumnSubsets
) -> Iterator[tuple[Subset, MarginalDistances]]:
    return zip(subsets.subsets, subset_distances(a, b, sizes, subsets.subsets), strict=True)


def _key_figures(pair: DatabasePair, key: ForeignKey, scope: Scope) -> KeyFigures:
    source, synthetic = sides = pair.linked(key)
    parent, child = (pair.encoded[0][name] for name in (key.parent, key.child))
    crossing = _crossing(source, 2, scope.limit(len(source.child)))
    each = _each(source.joined, synthetic.joined, source.sizes, crossing)
    names = parent.names + child.names
    apart = [abs(true - made) for true, made in sibling_agreements(*sides).values()]
    of_fanout = {
        "fanout_tvd": codes_tvd(source.fanout, synthetic.fanout),
        "fanout_wasserstein": fanout_wasserstein(source.fanout, synthetic.fanout),
        "siblings": float(np.mean(apart)) if apart else None,
    }
    fanouts = source.fanout[source.fanout > 0]
    # PrivPetal, sections 6.2 and 6.3, which name no limit between small and large fanouts.
    selectivity = 0.01 if fanouts.size and fanouts.mean() >= 8 else 0.2  # noqa: PLR2004 - ours
    tables = pair.schema.table(key.parent), pair.schema.table(key.child)
    values = []
    for rows, linked in zip((pair.source, pair.synthetic), sides, strict=True):
        of_parent, of_child = (ordered_values(table, rows[table.name]) for table in tables)
        values.append(JoinValues(of_parent, of_child, linked.links))
    return KeyFigures(
        join=_join_figures((key.parent, key.child), sides, scope, of_fanout),
        pairs={(names[i], names[j]): d.tvd for (i, j), d in each},
        fanout_mean=tuple(float(linked.fanout.mean()) if len(linked.fanout) else 0.0 for linked in sides),
        selectivity=selectivity,
        counting=tuple(counting_figures(*sides, (parent.ordered, child.ordered), selectivity, scope.counting)),
        inter_table=inter_table(*values),
        intra_group=intra_group(*values),
    )


def _other_joins(pair: DatabasePair, scope: Scope) -> dict[str, JoinFigures]:
    """Return the figures of chains of keys and of junction tables, by name."""
    both = (pair.source, pair.encoded[0]), (pair.synthetic, pair.encoded[1])
    found = {}
    for chain in chains(pair.schema):
        name = " → ".join([*(key.name for key in chain), chain[-1].parent])
        sides = link_tables(chain, *both[0]), link_tables(chain, *both[1])
        found[name] = _join_figures((chain[-1].parent, chain[0].child), sides, scope)
    for first, second in junctions(pair.schema):
        name = f"{first.parent} ← {first.name}, {second.name} → {second.parent}"
        sides = link_junction(first, second, *both[0]), link_junction(first, second, *both[1])
        found[name] = _join_figures((first.parent, second.parent), sides, scope)
    return {name: figures for name, figures in found.items() if figures.metrics["joint"] is not None}


def _join_figures(
    tables: tuple[str, str],
    sides: tuple[LinkedTables, LinkedTables],
    scope: Scope,
    more: Mapping[str, float | None] | None = None,
) -> JoinFigures:
    """Measure `JOIN_METRICS` of a join in the source and in the synthetic database, beside ``more`` metrics."""
    source, synthetic = sides
    limit = scope.limit(len(source.child))
    pairs, triples = _crossing(source, 2, limit), _crossing(source, 3, min(limit, 200))
    over = f"{pairs} across the two tables" if pairs.subsets else str(pairs)
    distances = {
        "joint": cross_distances(source, synthetic, pairs),
        "shuffled": cross_distances(source, synthetic.with_shuffled_links(np.random.default_rng(SEED)), pairs),
        # Without triples within a table there are none across.
        "three": cross_distances(source, synthetic, triples) if max(scope.orders) > 2 else None,  # noqa: PLR2004
    }
    metrics = {name: None if found is None else found.tvd for name, found in distances.items()}
    return JoinFigures(tables, over, metrics | dict(more or {}))


def _crossing(source: LinkedTables, order: int, limit: int) -> ColumnSubsets:
    """Return the marginals that take columns of both tables."""
    return crossing_subsets(len(source.parent_sizes), len(source.child_sizes), order, limit)
