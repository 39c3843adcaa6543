"""Query plans of PostgreSQL as trees of operators, and their tree edit distance.

If the optimiser sees two databases alike, queries have the same plans on both. Otherwise the tree edit distance is the
number of operators to insert, delete or rename to turn one plan into the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class QueryPlan:
    """An operator and its inputs.

    Attributes:
        label: The operator with its details: the table it reads, the kind of join.
        inputs: The operators below it.
    """

    label: str
    inputs: tuple[QueryPlan, ...] = ()

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> QueryPlan:
        """Return the plan under ``Plan`` in the output of EXPLAIN (FORMAT JSON), without generated names of indexes."""
        details = [str(node[detail]) for detail in ("Strategy", "Join Type", "Scan Direction") if detail in node]
        usual = {"Plain", "Inner", "Forward", "NoMovement"}
        words = [str(node["Node Type"]), *(detail.lower() for detail in details if detail not in usual)]
        if "Relation Name" in node:
            words.append(f"on {node['Relation Name']}")
        if node.get("Parent Relationship") in {"InitPlan", "SubPlan"}:
            words.append(f"as {node['Parent Relationship']}")
        return cls(" ".join(words), tuple(cls.of(child) for child in node.get("Plans", ())))

    @cached_property
    def size(self) -> int:
        """Number of operators."""
        return 1 + sum(child.size for child in self.inputs)

    def __str__(self) -> str:
        """Return the plan as an indented list of operators."""
        return "\n".join([self.label, *(f"  {line}" for child in self.inputs for line in str(child).splitlines())])


def edit_distance(one: QueryPlan, other: QueryPlan) -> int:
    """Return the fewest operators to insert, delete or rename to turn ``one`` into ``other``; inputs are ordered.

    Zhang and Shasha, "Simple fast algorithms for the editing distance between trees", SIAM J. Comput. 18 (1989).

    >>> scan = QueryPlan("Seq Scan on a")
    >>> edit_distance(QueryPlan("Sort", (scan,)), QueryPlan("Hash Join", (scan, QueryPlan("Hash", (scan,)))))
    3
    """
    if one == other:
        return 0
    a, b = _Postorder.of(one), _Postorder.of(other)
    trees = [[0] * len(b.labels) for _ in a.labels]
    for i in a.keyroots:
        for j in b.keyroots:
            _between_subtrees(a, b, i, j, trees)
    return trees[-1][-1]


@dataclass(frozen=True)
class _Postorder:
    """A tree in postorder, children before parents.

    Attributes:
        labels: Label of each node.
        leftmost: Leftmost leaf below each node (the node itself for a leaf).
        keyroots: For each leftmost leaf its last node, ascending.
    """

    labels: tuple[str, ...]
    leftmost: tuple[int, ...]
    keyroots: tuple[int, ...]

    @classmethod
    def of(cls, plan: QueryPlan) -> _Postorder:
        labels: list[str] = []
        leftmost: list[int] = []

        def walk(node: QueryPlan) -> int:
            first = [walk(child) for child in node.inputs]
            labels.append(node.label)
            leftmost.append(first[0] if first else len(labels) - 1)
            return leftmost[-1]

        walk(plan)
        last = {leaf: node for node, leaf in enumerate(leftmost)}
        return cls(tuple(labels), tuple(leftmost), tuple(sorted(last.values())))


def _between_subtrees(a: _Postorder, b: _Postorder, i: int, j: int, trees: list[list[int]]) -> None:
    """Fill in the distances between all subtrees whose leftmost leaves are those of ``i`` and ``j``."""
    low_a, low_b = a.leftmost[i], b.leftmost[j]
    rows, columns = i - low_a + 2, j - low_b + 2
    forest = [[0] * columns for _ in range(rows)]
    for x in range(1, rows):
        forest[x][0] = x
    for y in range(1, columns):
        forest[0][y] = y
    for x in range(1, rows):
        for y in range(1, columns):
            node_a, node_b = low_a + x - 1, low_b + y - 1
            cheapest = min(forest[x - 1][y], forest[x][y - 1]) + 1
            if a.leftmost[node_a] == low_a and b.leftmost[node_b] == low_b:
                renamed = forest[x - 1][y - 1] + (a.labels[node_a] != b.labels[node_b])
                forest[x][y] = trees[node_a][node_b] = min(cheapest, renamed)
            else:
                before = forest[a.leftmost[node_a] - low_a][b.leftmost[node_b] - low_b]
                forest[x][y] = min(cheapest, before + trees[node_a][node_b])
