"""PrivBench's query heat map (section 5, Figure 4): one query on the sum-product networks of two databases.

The network of the source is learned without noise, so it is internal. The paper learns a second one on the synthetic
data; here the synthetic rows go through the *same* splits. Then the two trees have the same nodes, and where two nodes
differ in colour, the data differ and not the trees.

Leaves have one column each: within a region columns count as independent, so a tree's selectivity is an estimate.
Reports show the exact selectivities too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.evaluation.counting import rows_satisfying
from privbench_core.evaluation.encode import EncodedTable
from privbench_core.models.attribute_split import AttributeSplit
from privbench_core.models.spn import Leaf, Node, Product, Sum

CodeQuery = Mapping[str, NDArray[np.bool_]]
"""A conjunction: column -> which of its codes satisfy it."""

# Chosen by hand for legible pictures, not tuned:
_MAX_SPLITS = 2  # row splits from root to leaf, so at most four regions
_MIN_ROWS = 500  # rows of a region
_MIN_DEPENDENCE = 0.08  # R-score, as a share of rows, above which two columns count as dependent
_QUERIES, _MIN_SELECTIVITY, _MAX_SELECTIVITY = 200, 0.01, 0.4  # random queries, and which of them may be shown
_MAX_CODES = 12  # per column for the dependence of two columns: with more, noise looks like dependence


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
    queries = random_queries(true, _QUERIES, rng)
    answered = zip(queries, selectivities(true, queries), selectivities(synthetic, queries), strict=True)
    fit = [found for found in answered if _MIN_SELECTIVITY <= found[1] <= _MAX_SELECTIVITY]
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


def grow_spn(coded: EncodedTable) -> Node:
    """Learn a network of a table from exact counts: split independent groups of columns, else rows by one column."""
    return _grow_spn(coded, _columns(coded), coded.names, _MAX_SPLITS)


def _grow_spn(coded: EncodedTable, codes: Mapping[str, Codes], names: Sequence[str], depth: int) -> Node:
    rows = len(next(iter(codes.values())))
    if len(names) == 1 or depth == 0 or rows < 2 * _MIN_ROWS:
        return _product([_leaf(coded, codes, name) for name in names])
    scores = _dependence(coded, codes, names)
    graph = nx.Graph([pair for pair, score in scores.items() if score > _MIN_DEPENDENCE])
    graph.add_nodes_from(names)
    groups = [[name for name in names if name in group] for group in nx.connected_components(graph)]
    if len(groups) > 1:
        return _product([_grow_spn(coded, codes, group, depth) for group in groups])
    counts = {name: np.bincount(codes[name], minlength=_size(coded, name)).astype(float) for name in names}
    ordered = frozenset(name for name, is_ordered in zip(coded.names, coded.ordered, strict=True) if is_ordered)
    rule = AttributeSplit(ordered).rule(scores, counts)
    if rule is None:
        return _product([_leaf(coded, codes, name) for name in names])
    part_of = rule.assign(codes)
    return Sum(
        rule,
        tuple(
            _grow_spn(coded, {name: c[part_of == part] for name, c in codes.items()}, names, depth - 1)
            for part in range(rule.parts)
        ),
    )


def refit_spn(node: Node, coded: EncodedTable) -> Node:
    """Return the same network with the counts of another table of the same codes."""
    return _refit_spn(node, coded, _columns(coded))


def _refit_spn(node: Node, coded: EncodedTable, codes: Mapping[str, Codes]) -> Node:
    if isinstance(node, Leaf):
        return _leaf(coded, codes, node.columns[0])
    if isinstance(node, Product):
        return Product(tuple(_refit_spn(part, coded, codes) for part in node.parts))
    part_of = node.rule.assign(codes)
    insides = ({name: c[part_of == part] for name, c in codes.items()} for part in range(len(node.parts)))
    return Sum(
        node.rule, tuple(_refit_spn(part, coded, inside) for part, inside in zip(node.parts, insides, strict=True))
    )


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
    predicates = [tuple((coded.names.index(name), codes) for name, codes in query.items()) for query in queries]
    return [float(count) / max(len(coded.codes), 1) for count in rows_satisfying(coded.codes, predicates)]


def random_queries(
    coded: EncodedTable, count: int, rng: np.random.Generator, columns: int = 3
) -> tuple[CodeQuery, ...]:
    """Return conjunctions of ranges (ordered columns) or sets of codes, each containing the codes of a random row."""
    found = []
    for _ in range(count if len(coded.codes) and coded.names else 0):
        row = coded.codes[int(rng.integers(len(coded.codes)))]
        chosen = np.sort(rng.choice(len(coded.names), min(columns, len(coded.names)), replace=False))
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


def _dependence(coded: EncodedTable, codes: Mapping[str, Codes], names: Sequence[str]) -> dict[tuple[str, str], float]:
    """Return R-scores as shares of rows: half the L1 distance of a pair's counts from the product of its marginals."""
    coarse = {name: _coarse(codes[name], _size(coded, name)) for name in names}
    scores = {}
    for a, b in combinations(names, 2):
        joint = np.bincount(coarse[a] * _MAX_CODES + coarse[b], minlength=_MAX_CODES**2).reshape(_MAX_CODES, _MAX_CODES)
        shares = joint / max(joint.sum(), 1)
        independent = np.outer(shares.sum(axis=1), shares.sum(axis=0))
        scores[a, b] = float(np.abs(shares - independent).sum() / 2)
    return scores


def _coarse(codes: Codes, size: int) -> NDArray[np.int64]:
    """Return codes merged into at most `_MAX_CODES` groups of about equal counts, in order."""
    counts = np.bincount(codes, minlength=size)
    before = np.cumsum(counts) - counts
    group = np.minimum(before * _MAX_CODES // max(int(counts.sum()), 1), _MAX_CODES - 1)
    return np.asarray(group[codes], dtype=np.int64)


def _leaf(coded: EncodedTable, codes: Mapping[str, Codes], name: str) -> Leaf:
    counts = np.bincount(codes[name], minlength=_size(coded, name)).astype(float)
    return Leaf(float(counts.sum()), {name: counts / max(counts.sum(), 1.0)})


def _product(parts: Sequence[Node]) -> Node:
    flat: list[Node] = []
    for part in parts:
        flat += part.parts if isinstance(part, Product) else (part,)
    return flat[0] if len(flat) == 1 else Product(tuple(flat))


def _columns(coded: EncodedTable) -> dict[str, Codes]:
    return {name: coded.codes[:, i].astype(np.int32, copy=False) for i, name in enumerate(coded.names)}


def _size(coded: EncodedTable, name: str) -> int:
    return coded.sizes[coded.names.index(name)]
