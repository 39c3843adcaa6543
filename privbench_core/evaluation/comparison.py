"""Fidelity: how far the synthetic database is from its source, table by table and join by join.

Each distance has a baseline: shuffled columns for tables, shuffled links for joins. Distances of tables are over two
kinds of cells. Over *values*, as in PrivBench, every distinct value is a cell. Over *codes*, the cells are those of the
declared domains (or quantiles of the source), as the models see them. ``docs/evaluation.md`` says why a report shows
both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.evaluation import DatabasePair
from privbench_core.evaluation.joins import (
    LinkedTables,
    chains,
    correlations,
    counting_figures,
    fanout_wasserstein,
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
    Figures,
    MarginalDistances,
    Scope,
    average,
    codes_tvd,
    column_subsets,
    crossing_subsets,
    mean_distances,
    subset_distances,
    value_codes,
)
from privbench_core.publishing.verdicts import ONE_WAY, TWO_WAY, FidelityFigure, Verdict, judge_figures
from privbench_core.schema.columns import Pattern
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Table
from privbench_core.spec.model import FidelityPolicy

CELLS = {"codes": "", "values": "_of_values"}
"""Kinds of cells, and what is appended to the names of their distances."""
JOIN_METRICS = {
    "joint": "mean distance of joined pairs",
    "shuffled": "mean distance of joined pairs if the source's links are shuffled",
    "three": "mean distance of cross-table 3-way marginals",
}
"""Captions of the metrics of every join; "three" is the workload of Alimohammadi et al."""
FANOUT_METRICS = {
    "fanout_tvd": "distance of fanouts (children per parent)",
    "fanout_wasserstein": "earth mover's distance of fanouts, in children",
    "siblings": "difference in the similarity of siblings, mean of columns",
}
"""Captions of the metrics of joins along one foreign key."""


class TableFigures(Figures):
    """Figures of one private table, as in metrics.json.

    "rows" of source and bundle; by λ the mean distances of marginals ("tvd", "tvd_of_values", "kld", "kld_of_values",
    see `CELLS`; None where there are none, or the scope leaves them out) and in words the "marginals" of the means; the
    2-way distance of the source from itself with every column "shuffled": no correlations at all; of each of "columns",
    keys included, "tvd" (None for keys), and share of "nulls" and number of "distinct" values in source and bundle;
    "tvd" of "pairs" of columns; columns "without_values" to compare, because each row's value is regenerated.
    """

    def tvd(self, order: int) -> float | None:
        """Return the mean total variation distance of the marginals of an order, over codes."""
        found: float | None = self["tvd"].get(order)
        return found


@dataclass(frozen=True)
class Comparison:
    """All fidelity figures.

    Attributes:
        overall: By λ and kind of cells ("codes", "values"), mean distances over all marginals of all private tables, as
            PrivBench reports them; where a table's marginals were sampled, its mean stands for all of them.
        tables: By name, without the public tables, which are published unchanged.
        keys: By `ForeignKey.name`: both "tables", the marginals of the means in words ("over"), `JOIN_METRICS` and
            `FANOUT_METRICS` (None where not defined), the "parent", "tvd" of "pairs" of columns over the joined rows,
            "fanout_mean" of source and bundle, errors of "counting" queries of a "selectivity", and Pearson
            coefficients "between" parent and child and "among" the children of one parent.
        joins: Chains of keys and junctions, by a name that says which: "tables", "over" and `JOIN_METRICS`.
    """

    overall: Mapping[int, Mapping[str, MarginalDistances | None]]
    tables: Mapping[str, TableFigures]
    keys: Mapping[str, Figures]
    joins: Mapping[str, Figures] = field(default_factory=dict)

    def to_dict(self) -> Figures:
        """Return it JSON-able."""
        return {
            "overall": {
                order: {kind: distances and distances._asdict() for kind, distances in kinds.items()}
                for order, kinds in self.overall.items()
            },
            "tables": self.tables,
            "foreign_keys": self.keys,
            "other_joins": self.joins,
        }

    def verdicts(self, policy: FidelityPolicy) -> Iterator[Verdict]:
        """Yield a verdict per table, its foreign keys included, and one on longer joins."""
        for name, table in self.tables.items():
            joins = {key: join for key, join in self.keys.items() if join["tables"][1] == name}
            figures = [
                _figure(ONE_WAY, table.tvd(1)),
                _figure(TWO_WAY, table.tvd(2), table["shuffled"]),
                *_joined(joins),
            ]
            yield judge_figures(name, filter(None, figures), policy)
        if self.joins:
            yield judge_figures("Longer joins", filter(None, _joined(self.joins)), policy)


def _figure(metric: str, distance: float | None, shuffled: float | None = None) -> FidelityFigure | None:
    """Return a distance as a figure without noise; None where nothing is compared."""
    return None if distance is None else FidelityFigure("", metric, distance, 0.0, shuffled)


def _joined(joins: Mapping[str, Figures]) -> Iterator[FidelityFigure | None]:
    """Yield the figure of each join, the furthest off first; of children per parent where no columns are joined."""
    for name, join in sorted(joins.items(), key=lambda named: -(named[1]["joint"] or 0.0)):
        if join["joint"] is not None:
            yield _figure(f"joined pairs along {name}", join["joint"], join["shuffled"])
        else:
            yield _figure(f"children per parent along {name}", join.get("fanout_tvd"))


def compare(pair: DatabasePair, scope: Scope = FULL) -> Comparison:
    """Return all fidelity figures within ``scope``; reads private rows."""
    found = {table.name: _table_figures(pair, table, scope) for table in pair.schema.private_tables}
    overall = {
        order: {cells: _overall([means[order][cells] for _, means in found.values()]) for cells in CELLS}
        for order in scope.orders
    }
    return Comparison(
        overall,
        {name: figures for name, (figures, _) in found.items()},
        {key.name: _key_figures(pair, key, scope) for key in pair.foreign_keys},
        _other_joins(pair, scope) if scope.by_value else {},
    )


_Mean = tuple[MarginalDistances | None, int]
"""Mean distances, and the number of marginals that they stand for."""


def _overall(means: Sequence[_Mean]) -> MarginalDistances | None:
    known = [(distances, total) for distances, total in means if distances is not None]
    return average([distances for distances, _ in known], [total for _, total in known])


def _table_figures(pair: DatabasePair, table: Table, scope: Scope) -> tuple[TableFigures, dict[int, dict[str, _Mean]]]:
    """Return the figures of a table, and its mean distances by λ and kind of cells."""
    rows = pair.source[table.name], pair.synthetic[table.name]
    source, synthetic = (side[table.name] for side in pair.encoded)
    names, a, b, sizes = source.names, source.codes, synthetic.codes, source.sizes
    limit = scope.limit(len(a) + len(b))
    with_values = [c.name for c in table.attributes if not (c.type.opaque or isinstance(c.domain, Pattern))]
    compared = with_values if scope.by_value else []
    values = value_codes(*rows, compared)
    chosen = {order: column_subsets(len(names), order, limit) for order in scope.orders}
    means: dict[int, dict[str, _Mean]] = {}
    for order, subsets in chosen.items():
        of_values = mean_distances(*values, column_subsets(len(compared), order, limit))
        means[order] = {
            "codes": (mean_distances(a, b, sizes, subsets), subsets.total),
            "values": (of_values, subsets.total),
        }
    pairs = column_subsets(len(names), 2, limit)
    of_columns = _by_name(names, a, b, sizes, column_subsets(len(names), 1))
    shuffled = mean_distances(a, _shuffled(names, a), sizes, pairs)
    leaves = sorted({*names} - {c.name for c in table.columns}, key=names.index)
    figures = TableFigures(
        rows=(len(a), len(b)),
        **{
            f"{distance}{suffix}": {order: getattr(kinds[cells][0], distance, None) for order, kinds in means.items()}
            for cells, suffix in CELLS.items()
            for distance in MarginalDistances._fields
        },
        marginals={order: str(subsets) for order, subsets in chosen.items()},
        shuffled=None if shuffled is None else shuffled.tvd,
        columns={
            c.name: {
                "tvd": of_columns.get((c.name,)),
                "nulls": tuple(side[c.name].null_count / max(side.num_rows, 1) for side in rows),
                "distinct": tuple(int(pc.count_distinct(side[c.name], mode="only_valid").as_py()) for side in rows),
            }
            for c in table.columns
        }
        | {name: {"tvd": of_columns.get((name,)), "nulls": (), "distinct": ()} for name in leaves},
        pairs=[{"columns": columns, "tvd": tvd} for columns, tvd in _by_name(names, a, b, sizes, pairs).items()],
        without_values=tuple(c.name for c in table.attributes if c.name in {*names} - {*with_values}),
    )
    return figures, means


def _shuffled(names: Sequence[str], codes: CodeTable) -> CodeTable:
    """Return codes with every column shuffled; the leaves of a document stay together."""
    rng, orders, shuffled = np.random.default_rng(SEED), dict[str, NDArray[np.int64]](), codes.copy(order="F")
    for position, name in enumerate(names):
        column = name.partition("->")[0]
        if column not in orders:
            orders[column] = rng.permutation(len(codes))
        shuffled[:, position] = codes[orders[column], position]
    return shuffled


def _by_name(
    names: Sequence[str], a: CodeTable, b: CodeTable, sizes: Sequence[int], subsets: ColumnSubsets
) -> dict[tuple[str, ...], float]:
    """Return total variation distances by the names of the columns of each marginal."""
    each = zip(subsets.subsets, subset_distances(a, b, sizes, subsets.subsets), strict=True)
    return {tuple(names[i] for i in subset): distances.tvd for subset, distances in each}


def _key_figures(pair: DatabasePair, key: ForeignKey, scope: Scope) -> Figures:
    source, synthetic = sides = pair.linked(key)
    parent, child = (pair.encoded[0][name] for name in (key.parent, key.child))
    apart = [abs(true - made) for true, made in sibling_agreements(*sides).values()]
    fanouts = source.fanout[source.fanout > 0]
    # PrivPetal, sections 6.2 and 6.3, which name no limit between small and large fanouts.
    selectivity = 0.01 if fanouts.size and fanouts.mean() >= 8 else 0.2  # noqa: PLR2004 - ours
    crossing = _crossing(source, 2, scope.limit(len(source.child)))
    pairs = _by_name(parent.names + child.names, source.joined, synthetic.joined, source.sizes, crossing)
    tables = pair.schema.table(key.parent), pair.schema.table(key.child)
    values = [
        (ordered_values(tables[0], rows[key.parent]), ordered_values(tables[1], rows[key.child]), linked.links)
        for rows, linked in zip((pair.source, pair.synthetic), sides, strict=True)
    ]
    between, among = correlations(*values)
    return {
        **_join_figures((key.parent, key.child), sides, scope),
        "fanout_tvd": codes_tvd(source.fanout, synthetic.fanout),
        "fanout_wasserstein": fanout_wasserstein(source.fanout, synthetic.fanout),
        "siblings": float(np.mean(apart)) if apart else None,
        "parent": key.parent,
        "pairs": [{"parent": p, "child": c, "tvd": tvd} for (p, c), tvd in pairs.items()],
        "fanout_mean": tuple(float(linked.fanout.mean()) if len(linked.fanout) else 0.0 for linked in sides),
        "selectivity": selectivity,
        "counting": counting_figures(*sides, (parent.ordered, child.ordered), selectivity, scope.counting),
        "between": between,
        "among": among,
    }


def _other_joins(pair: DatabasePair, scope: Scope) -> dict[str, Figures]:
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
    return {name: figures for name, figures in found.items() if figures["joint"] is not None}


def _join_figures(tables: tuple[str, str], sides: tuple[LinkedTables, LinkedTables], scope: Scope) -> Figures:
    """Measure `JOIN_METRICS` of a join in the source and in the synthetic database."""
    source, synthetic = sides
    limit = scope.limit(len(source.child))
    pairs, triples = _crossing(source, 2, limit), _crossing(source, 3, min(limit, 200))
    shuffled = source.with_shuffled_links(np.random.default_rng(SEED))
    compared = {"joint": (synthetic, pairs), "shuffled": (shuffled, pairs)}
    if max(scope.orders) > 2:  # noqa: PLR2004 - without triples within a table there are none across
        compared["three"] = synthetic, triples
    metrics: dict[str, float | None] = dict.fromkeys(JOIN_METRICS)
    for name, (other, subsets) in compared.items():
        found = mean_distances(source.joined, other.joined, source.sizes, subsets)
        metrics[name] = None if found is None else found.tvd
    over = f"{pairs} across the two tables" if pairs.subsets else str(pairs)
    return {"tables": tables, "over": over, **metrics}


def _crossing(source: LinkedTables, order: int, limit: int) -> ColumnSubsets:
    """Return the marginals that take columns of both tables."""
    return crossing_subsets(len(source.parent_sizes), len(source.child_sizes), order, limit)
