"""PrivBench's query heat map (section 5, Figure 4): one query on the sum-product networks of two databases.

The network of the source is learned without noise, so it is internal. The paper learns a second one on the synthetic
data; here the synthetic rows go through the *same* splits. Then the two trees have the same nodes, and where two nodes
differ in colour, the data differ and not the trees.

Leaves have one column each: within a region columns count as independent, so a tree's selectivity is an estimate.
Reports show the exact selectivities too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from privbench_core.evaluation.encode import EncodedTable
from privbench_core.evaluation.joins import satisfying
from privbench_core.marginals.spn import split_by_attribute
from privbench_core.privacy.split_rules import ByValue

CodeQuery = Mapping[str, NDArray[np.bool_]]
"""A conjunction: column -> which of its codes satisfy it."""


class Network(NamedTuple):
    """The shape of a network: a leaf of one column, independent sets of columns, or disjoint rows by a ``rule``."""

    columns: tuple[str, ...]
    parts: tuple[Network, ...] = ()
    rule: ByValue | None = None


@dataclass(frozen=True)
class Heat:
    """A node of a heat map.

    The selectivity is the share of the node's rows that satisfy the query's conditions on the node's columns.
    """

    label: str
    kind: str  # "sum", "product" or "leaf"
    share: float  # of the rows of the sum node above, shown on the edge; 1 below other nodes
    selectivity: float
    parts: tuple[Heat, ...] = ()  # those that have a column of the query

    @property
    def leaves(self) -> int:
        """Number of leaves below, or 1 for a leaf."""
        return sum(part.leaves for part in self.parts) or 1

    @property
    def depth(self) -> int:
        """Number of levels."""
        return 1 + max((part.depth for part in self.parts), default=0)


class QueryHeat(NamedTuple):
    """One query on both databases."""

    query: dict[str, float]  # the columns with conditions, and the share of their codes that satisfy them
    exact: Sequence[float]  # selectivity on the source and on the bundle
    source: Heat
    synthetic: Heat


def worst_and_typical(true: EncodedTable, synthetic: EncodedTable, rng: np.random.Generator) -> tuple[QueryHeat, ...]:
    """Return, of random queries, those with the largest and the median relative difference of selectivity.

    Queries that very few or most rows of the source satisfy are left out; the result may be empty.
    """
    answered = [
        (query, selectivity(true, query), selectivity(synthetic, query)) for query in random_queries(true, 200, rng)
    ]
    fit = [found for found in answered if 0.01 <= found[1] <= 0.4]  # noqa: PLR2004 - legible ones
    if not fit or not len(synthetic.codes):
        return ()
    fit.sort(key=lambda found: -abs(found[1] - found[2]) / found[1])
    node = grow_network(true)
    return tuple(
        QueryHeat(
            {column: float(codes.mean()) for column, codes in query.items()},
            exact,
            heat(node, true, query),
            heat(node, synthetic, query),
        )
        for query, *exact in ([fit[0]] if len(fit) == 1 else [fit[0], fit[len(fit) // 2]])
    )


def grow_network(coded: EncodedTable, names: Sequence[str] | None = None, depth: int = 2) -> Network:
    """Learn a network of some columns (all by default) from exact counts: split independent groups, else rows.

    Two row splits from root to leaf make at most four regions, which is what can be read.
    """
    names = coded.names if names is None else names
    leaves = [Network((name,)) for name in names]
    if len(names) == 1 or depth == 0 or len(coded.codes) < 1000:  # noqa: PLR2004 - regions of at least 500 rows
        return _product(leaves)
    scores = _dependence(coded, names)
    graph = nx.Graph([pair for pair, score in scores.items() if score > 0.08])  # noqa: PLR2004 - R-score, of all rows
    graph.add_nodes_from(names)
    groups = [[name for name in names if name in group] for group in nx.connected_components(graph)]
    if len(groups) > 1:
        return _product([grow_network(coded, group, depth) for group in groups])
    ordered = [name for name, is_ordered in zip(coded.names, coded.ordered, strict=True) if is_ordered]
    rule = split_by_attribute(ordered, scores, {name: _counts(coded, name) for name in names})
    if rule is None:
        return _product(leaves)
    return Network(tuple(names), tuple(grow_network(part, names, depth - 1) for part in _split(coded, rule)), rule)


def _product(parts: Sequence[Network]) -> Network:
    flat = [inner for part in parts for inner in (part.parts if part.parts and part.rule is None else (part,))]
    return flat[0] if len(flat) == 1 else Network(tuple(name for part in flat for name in part.columns), tuple(flat))


def _split(coded: EncodedTable, rule: ByValue) -> list[EncodedTable]:
    """Return the rows of each part."""
    part_of = rule.assign({rule.column: coded.codes[:, coded.names.index(rule.column)]})
    return [replace(coded, codes=coded.codes[part_of == part]) for part in range(rule.parts)]


def heat(node: Network, coded: EncodedTable, query: CodeQuery, share: float = 1.0) -> Heat:
    """Return the selectivity of ``query`` on a table at every node that has one of its columns.

    ``share`` is that of the table's rows among those of the sum node above.
    """
    if not node.parts:
        (name,) = node.columns
        return Heat(name, "leaf", share, selectivity(coded, {name: query[name]}))
    if node.rule is None:
        parts = tuple(heat(part, coded, query) for part in node.parts if not query.keys().isdisjoint(part.columns))
        if len(parts) == 1:
            return replace(parts[0], share=share)
        return Heat("×", "product", share, float(np.prod([part.selectivity for part in parts])), parts)
    parts = tuple(
        heat(part, rows, query, len(rows.codes) / max(len(coded.codes), 1))
        for part, rows in zip(node.parts, _split(coded, node.rule), strict=True)
    )
    return Heat(f"split by {node.rule.column}", "sum", share, sum(p.share * p.selectivity for p in parts), parts)


def selectivity(coded: EncodedTable, query: CodeQuery) -> float:
    """Return the share of rows that satisfy a query; 0 in a table without rows."""
    predicate = tuple((coded.names.index(name), codes) for name, codes in query.items())
    return float(satisfying(coded.codes, predicate).sum()) / max(len(coded.codes), 1)


def random_queries(coded: EncodedTable, count: int, rng: np.random.Generator) -> tuple[CodeQuery, ...]:
    """Return conjunctions of ranges or sets of codes on three columns, each holding for a random row."""
    found = []
    for _ in range(count if len(coded.codes) and coded.names else 0):
        row = coded.codes[int(rng.integers(len(coded.codes)))]
        chosen = np.sort(rng.choice(len(coded.names), min(3, len(coded.names)), replace=False))
        found.append({coded.names[c]: _around(int(row[c]), coded.sizes[c], coded.ordered[c], rng) for c in chosen})
    return tuple(found)


def _around(code: int, size: int, ordered: bool, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return a range that ends at a code, or the code and a quarter of the other values."""
    if not ordered:
        admitted = rng.random(size) < 0.25  # noqa: PLR2004 - a quarter
        admitted[code] = True
        return admitted
    return np.arange(size) <= code if rng.integers(2) else np.arange(size) >= code


def _dependence(coded: EncodedTable, names: Sequence[str]) -> dict[tuple[str, str], float]:
    """Return R-scores as shares of rows: half the L1 distance of a pair's counts from the product of its marginals."""
    most = 12  # codes of a column: with more, noise resembles dependence
    coarse = {}
    for name in names:  # groups of neighbouring codes, of about as many rows
        counts = _counts(coded, name)
        group = np.minimum((np.cumsum(counts) - counts) * most // max(counts.sum(), 1), most - 1)
        coarse[name] = group.astype(np.int64)[coded.codes[:, coded.names.index(name)]]
    scores = {}
    for a, b in combinations(names, 2):
        joint = np.bincount(coarse[a] * most + coarse[b], minlength=most**2).reshape(most, most)
        shares = joint / max(joint.sum(), 1)
        independent = np.outer(shares.sum(axis=1), shares.sum(axis=0))
        scores[a, b] = float(np.abs(shares - independent).sum() / 2)
    return scores


def _counts(coded: EncodedTable, name: str) -> NDArray[np.float64]:
    column = coded.names.index(name)
    return np.bincount(coded.codes[:, column], minlength=coded.sizes[column]).astype(np.float64)
