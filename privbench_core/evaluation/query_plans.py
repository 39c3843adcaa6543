"""Query plans of PostgreSQL as trees of operators, and their tree edit distance.

If the optimiser sees two databases alike, queries have the same plans on both. Otherwise the tree edit distance is the
number of operators to insert, delete or rename to turn one plan into the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
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

    The recursion of Zhang and Shasha, "Simple fast algorithms for the editing distance between trees", SIAM J. Comput.
    18 (1989), lemma 5: of the last trees of two forests one root is deleted or inserted, or each becomes the other.

    >>> scan = QueryPlan("Seq Scan on a")
    >>> edit_distance(QueryPlan("Sort", (scan,)), QueryPlan("Hash Join", (scan, QueryPlan("Hash", (scan,)))))
    3
    """

    @cache
    def between(a: tuple[QueryPlan, ...], b: tuple[QueryPlan, ...]) -> int:
        if a == b:
            return 0
        if not a or not b:
            return sum(tree.size for tree in a + b)
        x, y = a[-1], b[-1]
        return min(
            between(a[:-1] + x.inputs, b) + 1,
            between(a, b[:-1] + y.inputs) + 1,
            between(a[:-1], b[:-1]) + between(x.inputs, y.inputs) + (x.label != y.label),
        )

    return between((one,), (other,))
