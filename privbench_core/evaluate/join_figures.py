"""The figures of joins: along foreign keys, along chains of them, and between the parents that rows bring together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from privbench_core.evaluate.correlations import Correlation, Side, among, between, numbers_of
from privbench_core.evaluate.counting import CountingShape, counting_errors, counting_queries
from privbench_core.evaluate.encode import Coded
from privbench_core.evaluate.joins import (
    Linked,
    chains,
    cross_distances,
    fanout_distance,
    link_chain,
    link_parents,
    meetings,
)
from privbench_core.evaluate.marginals import subset_distances
from privbench_core.evaluate.subjects import TablesSideBySide
from privbench_core.evaluate.subsets import crossing_subsets
from privbench_core.evaluate.table_figures import SEED, Scope
from privbench_core.schema.constraints import ForeignKey
from privbench_core.validate.references import NO_PARENT

_CROSS = 200
"""Cross-table 3-way marginals of one join at most."""
_LARGE_GROUPS = 8.0
"""Mean number of children from which groups count as large: predicates are then made narrower (PrivPetal, 6.3)."""
_SELECTIVITY = {False: 0.2, True: 0.01}
_ROW_LIMIT = 2_000_000_000
"""Counting queries times rows they look at, at most."""


@dataclass(frozen=True)
class CountingFigures:
    """Regularised relative errors of PrivLava's counting queries of one kind.

    Attributes:
        children: c, how many distinct children a query asks for.
        attributes: Attributes per predicate.
        queries: How many there were.
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
    """Distances of two tables' joined rows.

    Attributes:
        tables: The two tables.
        over: What the means are over: "all 12 2-way marginals".
        joint: Mean total variation distance of (a column of one, a column of the other); None without columns.
        shuffled: The same with the synthetic rows dealt out at random: what unlinked tables would give.
        three: Mean of cross-table 3-way marginals (Alimohammadi et al.); None where there are none.
    """

    tables: tuple[str, str]
    over: str
    joint: float | None
    shuffled: float | None
    three: float | None


@dataclass(frozen=True)
class KeyFigures:
    """Distances for the join along one foreign key.

    Attributes:
        join: As for every other join.
        pairs: Total variation distance per (parent attribute, child attribute) over the joined rows.
        fanout_tvd: Distance between the distributions of children per parent.
        fanout_wasserstein: The same as an earth mover's distance, in children.
        fanout_mean: Mean number of children in either database.
        selectivity: Of the counting queries.
        counting: Errors of counting queries by kind; empty where there are none.
        between: Pearson coefficients of ordered columns of parent and child.
        among: The same among siblings.
    """

    join: JoinFigures
    pairs: dict[tuple[str, str], float]
    fanout_tvd: float
    fanout_wasserstein: float
    fanout_mean: tuple[float, float]
    selectivity: float = _SELECTIVITY[False]
    counting: tuple[CountingFigures, ...] = ()
    between: tuple[Correlation, ...] = ()
    among: tuple[Correlation, ...] = ()

    @property
    def parent(self) -> str:
        """The table that the key refers to."""
        return self.join.tables[0]

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        flat = asdict(self) | asdict(self.join) | {"parent": self.parent}
        flat.pop("join")
        return flat | {"pairs": [{"parent": p, "child": c, "tvd": d} for (p, c), d in self.pairs.items()]}


def key_figures(pair: TablesSideBySide, key: ForeignKey, scope: Scope) -> KeyFigures:
    """Work out the figures of one foreign key; looks at private rows."""
    true, made = pair.linked(key)
    names = [pair.coded[0][name].names for name in (key.parent, key.child)]
    subsets = crossing_subsets(len(names[0]), len(names[1]), 2, scope.limit(len(true.child)), SEED)
    join = _join((key.parent, key.child), true, made, scope)
    sizes = true.parent_sizes + true.child_sizes
    each = [d.tvd for d in subset_distances(true.joined, made.joined, sizes, subsets.subsets)]
    columns = [(names[0][i], names[1][j - len(names[0])]) for i, j in subsets.subsets]
    fanout = fanout_distance(true.fanout, made.fanout)
    means = [float(linked.fanout.mean()) if len(linked.fanout) else 0.0 for linked in (true, made)]
    large = _group_size(true) >= _LARGE_GROUPS
    sides = [_side(pair, key, rows, linked) for rows, linked in ((pair.source, true), (pair.synthetic, made))]
    return KeyFigures(
        join=join,
        pairs=dict(zip(columns, each, strict=True)),
        fanout_tvd=fanout.tvd,
        fanout_wasserstein=fanout.wasserstein,
        fanout_mean=(means[0], means[1]),
        selectivity=_SELECTIVITY[large],
        counting=tuple(_counting(pair, key, true, made, scope, _SELECTIVITY[large])),
        between=between(*sides),
        among=among(*sides),
    )


def other_joins(pair: TablesSideBySide, scope: Scope) -> dict[str, JoinFigures]:
    """Figures of chains of keys and of parents that meet, by name."""
    true, made = pair.coded
    found = {}
    for chain in chains(pair.schema):
        name = " → ".join([chain[0].name, *(key.name for key in chain[1:]), chain[-1].parent])
        sides = link_chain(chain, pair.source, true), link_chain(chain, pair.synthetic, made)
        found[name] = _join((chain[-1].parent, chain[0].child), *sides, scope)
    for first, second in meetings(pair.schema):
        name = f"{first.parent} ← {first.name}, {second.name} → {second.parent}"
        sides = link_parents(first, second, pair.source, true), link_parents(first, second, pair.synthetic, made)
        found[name] = _join((first.parent, second.parent), *sides, scope)
    return {name: figures for name, figures in found.items() if figures.joint is not None}


def _join(tables: tuple[str, str], true: Linked, made: Linked, scope: Scope) -> JoinFigures:
    left, right = len(true.parent_sizes), len(true.child_sizes)
    limit = scope.limit(len(true.child))
    pairs = crossing_subsets(left, right, 2, limit, SEED)
    triples = crossing_subsets(left, right, 3, min(limit, _CROSS), SEED)
    if not pairs.subsets:
        return JoinFigures(tables, str(pairs), None, None, None)
    random = made.relinked(np.random.default_rng(SEED))
    return JoinFigures(
        tables,
        f"{pairs} across the two tables",
        cross_distances(true, made, pairs).tvd,
        cross_distances(true, random, pairs).tvd,
        cross_distances(true, made, triples).tvd if triples.subsets and max(scope.orders) > 2 else None,  # noqa: PLR2004
    )


def _counting(
    pair: TablesSideBySide, key: ForeignKey, true: Linked, made: Linked, scope: Scope, selectivity: float
) -> Iterable[CountingFigures]:
    """Errors by kind: 1 and 2 children, 1 and 2 attributes, the group size drawn up to its 99th percentile."""
    coded: Mapping[str, Coded] = pair.coded[0]
    rows = len(true.parent) + len(true.child)
    each = min(scope.counting, _ROW_LIMIT // max(rows, 1)) // 4
    if not each or not len(true.parent) or not len(made.parent) or not (true.parent_sizes and true.child_sizes):
        return
    sizes = true.fanout[true.fanout > 0]
    largest = int(np.percentile(sizes, 99, method="inverted_cdf")) if sizes.size else 1
    ordered = coded[key.parent].ordered, coded[key.child].ordered
    for children in (1, 2):
        for attributes in (1, 2):
            shape = CountingShape(children, attributes, selectivity, largest)
            rng = np.random.default_rng((SEED, children, attributes))
            errors = counting_errors(true, made, counting_queries(true, ordered, shape, each, rng))
            yield CountingFigures(children, attributes, each, float(errors.mean()), float(np.median(errors)))


def _side(pair: TablesSideBySide, key: ForeignKey, rows: Mapping[str, Any], linked: Linked) -> Side:
    of_parent, of_child = (numbers_of(pair.schema.table(name), rows[name]) for name in (key.parent, key.child))
    return Side(of_parent, of_child, linked.links)


def _group_size(linked: Linked) -> float:
    """Mean number of children of the parents that have any."""
    referred = np.unique(linked.links[linked.links != NO_PARENT])
    return float((linked.links != NO_PARENT).sum() / max(len(referred), 1))
