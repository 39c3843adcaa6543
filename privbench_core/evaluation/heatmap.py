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

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from privbench_core.evaluation.counting import satisfying
from privbench_core.evaluation.encode import EncodedTable
from privbench_core.evaluation.marginals import marginal
from privbench_core.marginals.spn import Leaf, Node, Product, Sum, split_by_attribute
from privbench_core.privacy.split_rules import Rule

CodeQuery = Mapping[str, NDArray[np.bool_]]
"""A conjunction: column -> which of its codes satisfy it."""


@dataclass(frozen=True)
class Heat:
    """A node of a heat map.

    Attributes:
        label: The column that splits, or the leaf's columns.
        kind: "sum", "product" or "leaf".
        share: Share of the rows of the sum node above, shown on the edge; 1 below other nodes.
        selectivity: Share of the node's rows that satisfy the query's conditions on the node's columns.
        parts: The child nodes that have a column of the query.
    """

    label: str
    kind: str
    share: float
    selectivity: float
    parts: tuple[Heat, ...] = ()

    @property
    def leaves(self) -> int:
        """Number of leaves below, or 1 for a leaf."""
        return sum(part.leaves for part in self.parts) or 1

    @property
    def depth(self) -> int:
        """Number of levels."""
        return 1 + max((part.depth for part in self.parts), default=0)


@dataclass(frozen=True)
class QueryHeat:
    """One query on both databases.

    Attributes:
        query: The columns with conditions, and the share of their codes that satisfy them.
        exact: Exact selectivity on the source and on the bundle.
        source: The tree of the source.
        synthetic: The same tree with the bundle's rows.
    """

    query: dict[str, float]
    exact: tuple[float, float]
    source: Heat
    synthetic: Heat


def worst_and_typical(true: EncodedTable, synthetic: EncodedTable, rng: np.random.Generator) -> tuple[QueryHeat, ...]:
    """Return, of random queries, those with the largest and the median relative difference of selectivity.

    Queries that very few or most rows of the source satisfy are left out; the result may be empty.
    """
    queries = random_queries(true, 200, rng)
    answered = zip(queries, selectivities(true, queries), selectivities(synthetic, queries), strict=True)
    fit = [found for found in answered if 0.01 <= found[1] <= 0.4]  # noqa: PLR2004 - legible ones
    if not fit or not len(synthetic.codes):
        return ()
    fit.sort(key=lambda found: -abs(found[1] - found[2]) / found[1])
    tree = grow_spn(true)
    other = refit_spn(tree, synthetic)
    shown = [fit[0]] if len(fit) == 1 else [fit[0], fit[len(fit) // 2]]
    return tuple(
        QueryHeat({c: float(codes.mean()) for c, codes in query.items()}, (a, b), heat(tree, query), heat(other, query))
        for query, a, b in shown
    )


def grow_spn(coded: EncodedTable, names: Sequence[str] | None = None, depth: int = 2) -> Node:
    """Learn a network of a table from exact counts: split independent groups of columns, else rows by one column.

    Args:
        coded: The table.
        names: The columns to model; all of them by default.
        depth: Most row splits from root to leaf: two make at most four regions, which is what can be read.
    """
    names = coded.names if names is None else names
    leaves = [_leaf(coded, name) for name in names]
    if len(names) == 1 or depth == 0 or len(coded.codes) < 1000:  # noqa: PLR2004 - regions of at least 500 rows
        return _product(leaves)
    scores = _dependence(coded, names)
    graph = nx.Graph([pair for pair, score in scores.items() if score > 0.08])  # noqa: PLR2004 - R-score, of all rows
    graph.add_nodes_from(names)
    groups = [[name for name in names if name in group] for group in nx.connected_components(graph)]
    if len(groups) > 1:
        return _product([grow_spn(coded, group, depth) for group in groups])
    ordered = [name for name, is_ordered in zip(coded.names, coded.ordered, strict=True) if is_ordered]
    counts = {leaf.columns[0]: _counts(coded, leaf.columns[0]) for leaf in leaves}
    rule = split_by_attribute(ordered, scores, counts)
    if rule is None:
        return _product(leaves)
    return Sum(rule, tuple(grow_spn(part, names, depth - 1) for part in _split(coded, rule)))


def refit_spn(node: Node, coded: EncodedTable) -> Node:
    """Return the same network with the counts of another table of the same codes."""
    if isinstance(node, Leaf):
        return _leaf(coded, node.columns[0])
    if isinstance(node, Product):
        return Product(tuple(refit_spn(part, coded) for part in node.parts))
    inside = _split(coded, node.rule)
    return Sum(node.rule, tuple(refit_spn(part, rows) for part, rows in zip(node.parts, inside, strict=True)))


def _split(coded: EncodedTable, rule: Rule) -> list[EncodedTable]:
    """Return the rows of each part."""
    part_of = rule.assign({name: coded.codes[:, i].astype(np.int32, copy=False) for i, name in enumerate(coded.names)})
    return [replace(coded, codes=coded.codes[part_of == part]) for part in range(rule.parts)]


def heat(node: Node, query: CodeQuery, share: float = 1.0) -> Heat:
    """Return the selectivity of ``query`` at every node that has one of its columns.

    Columns of one leaf count as independent.
    """
    if isinstance(node, Leaf):
        columns = [name for name in node.columns if name in query]
        kept = [float(node.marginals[name][query[name]].sum()) for name in columns]
        return Heat(", ".join(columns), "leaf", share, float(np.prod(kept)))
    if isinstance(node, Product):
        parts = tuple(heat(part, query) for part in node.parts if set(part.columns) & set(query))
        if len(parts) == 1:
            return Heat(parts[0].label, parts[0].kind, share, parts[0].selectivity, parts[0].parts)
        return Heat("×", "product", share, float(np.prod([part.selectivity for part in parts])), parts)
    total = max(node.total, 1.0)
    parts = tuple(heat(part, query, part.total / total) for part in node.parts)
    return Heat(
        f"split by {getattr(node.rule, 'column', 'centres')}",
        "sum",
        share,
        sum(part.share * part.selectivity for part in parts),
        parts,
    )


def selectivities(coded: EncodedTable, queries: Sequence[CodeQuery]) -> list[float]:
    """Return the share of rows that satisfy each query; 0 in a table without rows."""
    predicates = (tuple((coded.names.index(name), codes) for name, codes in query.items()) for query in queries)
    return [float(satisfying(coded.codes, each).sum()) / max(len(coded.codes), 1) for each in predicates]


def random_queries(coded: EncodedTable, count: int, rng: np.random.Generator) -> tuple[CodeQuery, ...]:
    """Return conjunctions of ranges or sets of codes on three columns, each holding for a random row."""
    found = []
    for _ in range(count if len(coded.codes) and coded.names else 0):
        row = coded.codes[int(rng.integers(len(coded.codes)))]
        chosen = np.sort(rng.choice(len(coded.names), min(3, len(coded.names)), replace=False))
        found.append({coded.names[c]: _around(int(row[c]), coded.sizes[c], coded.ordered[c], rng) for c in chosen})
    return tuple(found)


def _around(code: int, size: int, ordered: bool, rng: np.random.Generator) -> NDArray[np.bool_]:
    admitted = np.zeros(size, bool)
    if ordered:
        side = bool(rng.integers(2))
        admitted[: code + 1] = side
        admitted[code:] = not side
    else:
        admitted[rng.random(size) < 0.25] = True  # noqa: PLR2004 - a quarter of the other values
    admitted[code] = True
    return admitted


def _dependence(coded: EncodedTable, names: Sequence[str]) -> dict[tuple[str, str], float]:
    """Return R-scores as shares of rows: half the L1 distance of a pair's counts from the product of its marginals."""
    most = 12  # codes of a column: with more, noise looks like dependence
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


def _leaf(coded: EncodedTable, name: str) -> Leaf:
    column = coded.names.index(name)
    return Leaf(float(len(coded.codes)), {name: marginal(coded.codes[:, column], coded.sizes[column])})


def _product(parts: Sequence[Node]) -> Node:
    flat = [inner for part in parts for inner in (part.parts if isinstance(part, Product) else (part,))]
    return flat[0] if len(flat) == 1 else Product(tuple(flat))
