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
)
from privbench_core.evaluation.counting import CountingQuery, CountingShape, counting_errors, counting_queries
from privbench_core.evaluation.encode import EncodedTable
from privbench_core.evaluation.inputs import DatabasePair
from privbench_core.evaluation.joins import (
    LinkedTables,
    chains,
    cross_distances,
    fanout_distance,
    junctions,
    link_chain,
    link_junction,
    sibling_agreements,
)
from privbench_core.evaluation.marginals import subset_distances
from privbench_core.evaluation.metric import SEED, Metric, Scope
from privbench_core.evaluation.subsets import crossing_subsets
from privbench_core.evaluation.verdict import DISTANCE, Remark
from privbench_core.schema.constraints import ForeignKey
from privbench_core.validate.references import NO_PARENT

_MAX_TRIPLES = 200
"""Cross-table 3-way marginals of one join, at most. Chosen by hand, not tuned."""
_LARGE_FANOUT = 8.0
"""Mean fanout from which predicates are narrower. Chosen by hand: PrivPetal names no limit (section 6.3)."""
_SELECTIVITY = {False: 0.2, True: 0.01}
"""Selectivity of counting queries for small and for large fanouts (PrivPetal, sections 6.2 and 6.3)."""
_MAX_COUNTED = 2_000_000_000
"""Counting queries times rows, at most. Chosen by hand, not tuned."""


@dataclass(frozen=True)
class JoinMetric:
    """A `Metric` by its function."""

    name: str
    label: str
    measure: Callable[[LinkedTables, LinkedTables, Scope], float | None]


def _cross_tvd(source: LinkedTables, synthetic: LinkedTables, order: int, limit: int) -> float | None:
    subsets = crossing_subsets(len(source.parent_sizes), len(source.child_sizes), order, limit, SEED)
    return cross_distances(source, synthetic, subsets).tvd if subsets.subsets else None


def _joint(source: LinkedTables, synthetic: LinkedTables, scope: Scope) -> float | None:
    return _cross_tvd(source, synthetic, 2, scope.limit(len(source.child)))


def _shuffled(source: LinkedTables, synthetic: LinkedTables, scope: Scope) -> float | None:
    return _joint(source, synthetic.with_shuffled_links(np.random.default_rng(SEED)), scope)


def _three(source: LinkedTables, synthetic: LinkedTables, scope: Scope) -> float | None:
    limit = min(scope.limit(len(source.child)), _MAX_TRIPLES)
    return _cross_tvd(source, synthetic, 3, limit) if max(scope.orders) > 2 else None  # noqa: PLR2004


def _siblings(source: LinkedTables, synthetic: LinkedTables, _: Scope) -> float | None:
    apart = [abs(true - made) for true, made in sibling_agreements(source, synthetic).values()]
    return float(np.mean(apart)) if apart else None


JOIN_METRICS: tuple[Metric, ...] = (
    JoinMetric("joint", "mean distance of joined pairs", _joint),
    JoinMetric("shuffled", "the same with the links shuffled", _shuffled),
    JoinMetric("three", "mean distance of cross-table 3-way marginals", _three),
)
"""Metrics of every join; "three" is the workload of Alimohammadi et al."""

FANOUT_METRICS: tuple[Metric, ...] = (
    JoinMetric("fanout_tvd", "distance of fanouts", lambda a, b, _: fanout_distance(a.fanout, b.fanout).tvd),
    JoinMetric(
        "fanout_wasserstein",
        "earth mover's distance of fanouts, in children",
        lambda a, b, _: fanout_distance(a.fanout, b.fanout).wasserstein,
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
    fanout_mean: tuple[float, float]
    selectivity: float = _SELECTIVITY[False]
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
    names = [pair.encoded[0][name].names for name in (key.parent, key.child)]
    subsets = crossing_subsets(len(names[0]), len(names[1]), 2, scope.limit(len(source.child)), SEED)
    sizes = source.parent_sizes + source.child_sizes
    each = [d.tvd for d in subset_distances(source.joined, synthetic.joined, sizes, subsets.subsets)]
    columns = [(names[0][i], names[1][j - len(names[0])]) for i, j in subsets.subsets]
    means = [float(linked.fanout.mean()) if len(linked.fanout) else 0.0 for linked in (source, synthetic)]
    selectivity = _SELECTIVITY[_mean_fanout(source) >= _LARGE_FANOUT]
    values = [_values(pair, key, rows, linked) for rows, linked in ((pair.source, source), (pair.synthetic, synthetic))]
    return KeyFigures(
        join=_join((key.parent, key.child), source, synthetic, scope, JOIN_METRICS + FANOUT_METRICS),
        pairs=dict(zip(columns, each, strict=True)),
        fanout_mean=(means[0], means[1]),
        selectivity=selectivity,
        counting=tuple(_counting(pair, key, (source, synthetic), scope, selectivity)),
        inter_table=inter_table(*values),
        intra_group=intra_group(*values),
    )


def other_joins(pair: DatabasePair, scope: Scope) -> dict[str, JoinFigures]:
    """Return the figures of chains of keys and of junction tables, by name."""
    of_source, of_synthetic = pair.encoded
    found = {}
    for chain in chains(pair.schema):
        name = " → ".join([chain[0].name, *(key.name for key in chain[1:]), chain[-1].parent])
        sides = link_chain(chain, pair.source, of_source), link_chain(chain, pair.synthetic, of_synthetic)
        found[name] = _join((chain[-1].parent, chain[0].child), *sides, scope)
    for first, second in junctions(pair.schema):
        name = f"{first.parent} ← {first.name}, {second.name} → {second.parent}"
        sides = (
            link_junction(first, second, pair.source, of_source),
            link_junction(first, second, pair.synthetic, of_synthetic),
        )
        found[name] = _join((first.parent, second.parent), *sides, scope)
    return {name: figures for name, figures in found.items() if figures.metrics["joint"] is not None}


def _join(
    tables: tuple[str, str],
    source: LinkedTables,
    synthetic: LinkedTables,
    scope: Scope,
    metrics: Iterable[Metric] = JOIN_METRICS,
) -> JoinFigures:
    pairs = crossing_subsets(len(source.parent_sizes), len(source.child_sizes), 2, scope.limit(len(source.child)), SEED)
    over = f"{pairs} across the two tables" if pairs.subsets else str(pairs)
    return JoinFigures(tables, over, {m.name: m.measure(source, synthetic, scope) for m in metrics})


def _counting(
    pair: DatabasePair,
    key: ForeignKey,
    sides: tuple[LinkedTables, LinkedTables],
    scope: Scope,
    selectivity: float,
) -> Iterable[CountingFigures]:
    """Yield errors by kind: 1 and 2 children, 1 and 2 attributes, fanouts drawn up to their 99th percentile."""
    source, synthetic = sides
    encoded: Mapping[str, EncodedTable] = pair.encoded[0]
    rows = len(source.parent) + len(source.child)
    each = min(scope.counting, _MAX_COUNTED // max(rows, 1)) // 4
    has_columns = source.parent_sizes and source.child_sizes
    if not each or not len(source.parent) or not len(synthetic.parent) or not has_columns:
        return
    fanouts = source.fanout[source.fanout > 0]
    largest = int(np.percentile(fanouts, 99, method="inverted_cdf")) if fanouts.size else 1
    ordered = encoded[key.parent].ordered, encoded[key.child].ordered
    shapes = [CountingShape(children, attributes, selectivity, largest) for children in (1, 2) for attributes in (1, 2)]
    queries: list[CountingQuery] = []
    for shape in shapes:
        rng = np.random.default_rng((SEED, shape.children, shape.attributes))
        queries += counting_queries(source, ordered, shape, each, rng)
    for shape, errors in zip(shapes, np.split(counting_errors(source, synthetic, queries), len(shapes)), strict=True):
        yield CountingFigures(shape.children, shape.attributes, each, float(errors.mean()), float(np.median(errors)))


def _values(pair: DatabasePair, key: ForeignKey, rows: Mapping[str, Any], linked: LinkedTables) -> JoinValues:
    parent, child = (ordered_values(pair.schema.table(name), rows[name]) for name in (key.parent, key.child))
    return JoinValues(parent, child, linked.links)


def _mean_fanout(linked: LinkedTables) -> float:
    """Return the mean fanout of the parents that have children."""
    referenced = np.unique(linked.links[linked.links != NO_PARENT])
    return float((linked.links != NO_PARENT).sum() / max(len(referenced), 1))
