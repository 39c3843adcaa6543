"""Figures of joins: along foreign keys, along chains of them, and between the two parents of a junction table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from privbench_core.evaluation.correlations import (
    Correlation,
    JoinValues,
    inter_table,
    intra_group,
    ordered_values,
    sibling_agreements,
)
from privbench_core.evaluation.counting import CountingQuery, CountingShape, counting_errors, counting_queries
from privbench_core.evaluation.inputs import DatabasePair
from privbench_core.evaluation.joins import (
    LinkedTables,
    chains,
    cross_distances,
    fanout_wasserstein,
    junctions,
    link_junction,
    link_tables,
)
from privbench_core.evaluation.marginals import codes_tvd, subset_distances
from privbench_core.evaluation.subsets import SEED, ColumnSubsets, Scope, crossing_subsets
from privbench_core.evaluation.verdict import DISTANCE, Remark
from privbench_core.schema.constraints import ForeignKey


@dataclass(frozen=True)
class JoinMetric:
    """One number that compares a join in the source and in the synthetic database.

    Listed in `JOIN_METRICS` or `FANOUT_METRICS`, it is measured, written to metrics.json and shown in the report.

    Attributes:
        name: Key in metrics.json.
        label: Caption in the report.
        measure: Returns the number, None where it is not defined.
    """

    name: str
    label: str
    measure: Callable[[LinkedTables, LinkedTables, Scope], float | None]


def _crossing(source: LinkedTables, scope: Scope, order: int = 2, limit: int | None = None) -> ColumnSubsets:
    """Return the marginals that take columns of both tables."""
    most = limit or scope.limit(len(source.child))
    return crossing_subsets(len(source.parent_sizes), len(source.child_sizes), order, most)


def _cross_tvd(source: LinkedTables, synthetic: LinkedTables, subsets: ColumnSubsets) -> float | None:
    return cross_distances(source, synthetic, subsets).tvd if subsets.subsets else None


def _joint(source: LinkedTables, synthetic: LinkedTables, scope: Scope) -> float | None:
    return _cross_tvd(source, synthetic, _crossing(source, scope))


def _shuffled(source: LinkedTables, synthetic: LinkedTables, scope: Scope) -> float | None:
    return _joint(source, synthetic.with_shuffled_links(np.random.default_rng(SEED)), scope)


def _three(source: LinkedTables, synthetic: LinkedTables, scope: Scope) -> float | None:
    if max(scope.orders) < 3:  # noqa: PLR2004 - no triples within a table, so none across
        return None
    limit = min(scope.limit(len(source.child)), 200)
    return _cross_tvd(source, synthetic, _crossing(source, scope, 3, limit))


def _siblings(source: LinkedTables, synthetic: LinkedTables, _: Scope) -> float | None:
    apart = [abs(true - made) for true, made in sibling_agreements(source, synthetic).values()]
    return float(np.mean(apart)) if apart else None


JOIN_METRICS = (
    JoinMetric("joint", "mean distance of joined pairs", _joint),
    JoinMetric("shuffled", "the same with the links shuffled", _shuffled),
    JoinMetric("three", "mean distance of cross-table 3-way marginals", _three),
)
"""Metrics of every join; "three" is the workload of Alimohammadi et al."""

FANOUT_METRICS = (
    JoinMetric("fanout_tvd", "distance of fanouts", lambda a, b, _: codes_tvd(a.fanout, b.fanout)),
    JoinMetric(
        "fanout_wasserstein",
        "earth mover's distance of fanouts, in children",
        lambda a, b, _: fanout_wasserstein(a.fanout, b.fanout),
    ),
    JoinMetric("siblings", "how far agreement of siblings is off, mean of columns", _siblings),
)
"""Metrics of joins along one foreign key."""


@dataclass(frozen=True)
class CountingFigures:
    """Regularised relative errors of PrivLava's counting queries of one kind.

    Attributes:
        children: c, the number of distinct children a query requires.
        attributes: Attributes per predicate.
        queries: Number of queries.
        mean: Mean error, the papers' figure.
        median: Median error.
    """

    children: int
    attributes: int
    queries: int
    mean: float
    median: float


@dataclass(frozen=True)
class JoinFigures:
    """Metrics of two tables' joined rows.

    Attributes:
        tables: The two tables.
        over: The marginals of the means, in words: "all 12 2-way marginals".
        metrics: By name; None where a metric is not defined.
    """

    tables: tuple[str, str]
    over: str
    metrics: Mapping[str, float | None]

    @classmethod
    def of(
        cls, tables: tuple[str, str], sides: tuple[LinkedTables, LinkedTables], scope: Scope, *metrics: JoinMetric
    ) -> JoinFigures:
        """Measure `JOIN_METRICS` and more of a join in the source and in the synthetic database."""
        pairs = _crossing(sides[0], scope)
        over = f"{pairs} across the two tables" if pairs.subsets else str(pairs)
        return cls(tables, over, {m.name: m.measure(*sides, scope) for m in JOIN_METRICS + metrics})

    def to_dict(self) -> dict[str, Any]:
        """Return it JSON-able."""
        return {"tables": self.tables, "over": self.over, **self.metrics}

    def remark(self, name: str) -> Remark:
        """Return the remark for the verdict."""
        joint, shuffled = self.metrics.get("joint"), self.metrics.get("shuffled")
        if joint is None or shuffled is None:
            return Remark(None, name, "has no attributes to compare.")
        lost = "" if joint < shuffled else ": the link is lost"
        text = f"joined pairs are {joint:.3f} from the source; shuffled rows would be {shuffled:.3f}{lost}."
        return Remark(DISTANCE.level(joint, lost=bool(lost)), name, text)


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

    def remark(self, name: str) -> Remark:
        """Return the remark for the verdict: about the joined pairs, else about the fanout."""
        fanout = self.join.metrics.get("fanout_tvd")
        if self.join.metrics.get("joint") is not None or fanout is None:
            return self.join.remark(name)
        return Remark(DISTANCE.level(fanout), name, f"children per parent are {fanout:.3f} from the source.")


def key_figures(pair: DatabasePair, key: ForeignKey, scope: Scope) -> KeyFigures:
    """Return the figures of one foreign key; reads private rows."""
    source, synthetic = pair.linked(key)
    parents, children = (pair.encoded[0][name].names for name in (key.parent, key.child))
    crossing = _crossing(source, scope).subsets
    each = subset_distances(source.joined, synthetic.joined, source.sizes, crossing)
    fanouts = source.fanout[source.fanout > 0]
    # PrivPetal, sections 6.2 and 6.3, which name no limit between small and large fanouts.
    selectivity = 0.01 if fanouts.size and fanouts.mean() >= 8 else 0.2  # noqa: PLR2004 - ours
    parent, child = pair.schema.table(key.parent), pair.schema.table(key.child)
    values = [
        JoinValues(ordered_values(parent, rows[key.parent]), ordered_values(child, rows[key.child]), linked.links)
        for rows, linked in ((pair.source, source), (pair.synthetic, synthetic))
    ]
    return KeyFigures(
        join=JoinFigures.of((key.parent, key.child), (source, synthetic), scope, *FANOUT_METRICS),
        pairs={(parents[i], children[j - len(parents)]): d.tvd for (i, j), d in zip(crossing, each, strict=True)},
        fanout_mean=tuple(float(linked.fanout.mean()) if len(linked.fanout) else 0.0 for linked in (source, synthetic)),
        selectivity=selectivity,
        counting=tuple(_counting(pair, key, (source, synthetic), scope, selectivity)),
        inter_table=inter_table(*values),
        intra_group=intra_group(*values),
    )


def other_joins(pair: DatabasePair, scope: Scope) -> dict[str, JoinFigures]:
    """Return the figures of chains of keys and of junction tables, by name."""
    both = (pair.source, pair.encoded[0]), (pair.synthetic, pair.encoded[1])
    found = {}
    for chain in chains(pair.schema):
        name = " → ".join([*(key.name for key in chain), chain[-1].parent])
        sides = link_tables(chain, *both[0]), link_tables(chain, *both[1])
        found[name] = JoinFigures.of((chain[-1].parent, chain[0].child), sides, scope)
    for first, second in junctions(pair.schema):
        name = f"{first.parent} ← {first.name}, {second.name} → {second.parent}"
        sides = link_junction(first, second, *both[0]), link_junction(first, second, *both[1])
        found[name] = JoinFigures.of((first.parent, second.parent), sides, scope)
    return {name: figures for name, figures in found.items() if figures.metrics["joint"] is not None}


def _counting(
    pair: DatabasePair, key: ForeignKey, sides: tuple[LinkedTables, LinkedTables], scope: Scope, selectivity: float
) -> Iterable[CountingFigures]:
    """Yield errors by kind: 1 and 2 children, 1 and 2 attributes, fanouts drawn up to their 99th percentile."""
    source, synthetic = sides
    parents, children = len(source.parent), len(source.child)
    each = min(scope.counting, 2_000_000_000 // max(parents + children, 1)) // 4  # so many rows are looked at, at most
    has_columns = source.parent_sizes and source.child_sizes
    if not each or not parents or not len(synthetic.parent) or not has_columns:
        return
    fanouts = source.fanout[source.fanout > 0]
    largest = int(np.percentile(fanouts, 99, method="inverted_cdf")) if fanouts.size else 1
    ordered = pair.encoded[0][key.parent].ordered, pair.encoded[0][key.child].ordered
    shapes = [CountingShape(c, k, selectivity, largest) for c in (1, 2) for k in (1, 2)]
    queries: list[CountingQuery] = []
    for shape in shapes:
        rng = np.random.default_rng((SEED, shape.children, shape.attributes))
        queries += counting_queries(source, ordered, shape, each, rng)
    for shape, errors in zip(shapes, np.split(counting_errors(source, synthetic, queries), len(shapes)), strict=True):
        yield CountingFigures(shape.children, shape.attributes, each, float(errors.mean()), float(np.median(errors)))
