"""Plans of PostgreSQL as trees of operators, with the planner's choices and estimates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

_JOINS = {"Nested Loop": "nested loop", "Hash Join": "hash join", "Merge Join": "merge join"}


class QueryPlan(NamedTuple):
    """An operator with its details (the table it reads, the kind of join), and the operators below it."""

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

    @property
    def size(self) -> int:
        """Number of operators."""
        return 1 + sum(child.size for child in self.inputs)

    def __str__(self) -> str:
        """Return the operators, one a line, each below and to the right of what it feeds."""
        return "\n".join([self.label, *(f"  {line}" for child in self.inputs for line in str(child).split("\n"))])


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


class Scan(NamedTuple):
    """How a table is read.

    Attributes:
        alias: The table's name in the query.
        table: Its name.
        method: The operator, such as "Index Scan".
        indexes: The indexes used.
    """

    alias: str
    table: str
    method: str
    indexes: tuple[str, ...]


class Join(NamedTuple):
    """How two inputs are joined.

    Attributes:
        method: "nested loop", "hash join" or "merge join".
        outer: Aliases of the tables below the first input, in the order of the plan.
        inner: Those below the second, on which a hash table is built.
    """

    method: str
    outer: tuple[str, ...]
    inner: tuple[str, ...]


@dataclass(frozen=True)
class Explained:
    """What PostgreSQL says about a query.

    Attributes:
        plan: The operators.
        cost: Total cost, in the planner's units.
        rows: Estimated rows of the topmost scan, join or set operation: those that aggregates and limits work on.
        scans: How each table is read, in the order of the plan.
        joins: The joins, topmost first.
        actual_rows: The rows that were estimated by ``rows``; None if the query was not run.
        milliseconds: Its run time, or None.
        pages: Pages of 8 kB read or written, cached or not, temporary ones included; or None.
    """

    plan: QueryPlan
    cost: float
    rows: float
    scans: tuple[Scan, ...]
    joins: tuple[Join, ...]
    actual_rows: float | None = None
    milliseconds: float | None = None
    pages: int | None = None

    @classmethod
    def of(cls, output: Mapping[str, Any]) -> Explained:
        """Return the content of one entry of the output of EXPLAIN (FORMAT JSON), with or without ANALYZE, BUFFERS."""
        root = output["Plan"]
        topmost = root
        while len(topmost.get("Plans", ())) == 1 and "Relation Name" not in topmost:
            (topmost,) = topmost["Plans"]
        run = "Execution Time" in output
        kinds = ("Shared Hit", "Shared Read", "Temp Read", "Temp Written")
        return cls(
            QueryPlan.of(root),
            float(root["Total Cost"]),
            float(topmost["Plan Rows"]),
            tuple(_scans(root)),
            tuple(_joins(root)),
            float(topmost["Actual Rows"]) * topmost["Actual Loops"] if run else None,
            float(output["Execution Time"]) if run else None,
            sum(int(root.get(f"{kind} Blocks", 0)) for kind in kinds) if run else None,
        )

    @property
    def order(self) -> tuple[str, ...]:
        """The tables' aliases in the order in which the plan reads them."""
        return tuple(scan.alias for scan in self.scans)


def _scans(node: Mapping[str, Any]) -> Iterator[Scan]:
    if "Relation Name" in node:
        indexes = tuple(str(below["Index Name"]) for below in _nodes(node) if "Index Name" in below)
        yield Scan(str(node["Alias"]), str(node["Relation Name"]), str(node["Node Type"]), indexes)
    else:
        for child in node.get("Plans", ()):
            yield from _scans(child)


def _joins(node: Mapping[str, Any]) -> Iterator[Join]:
    for each in _nodes(node):
        if each["Node Type"] in _JOINS:
            outer, inner = (tuple(scan.alias for scan in _scans(child)) for child in each["Plans"][:2])
            yield Join(_JOINS[each["Node Type"]], outer, inner)


def _nodes(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _nodes(child)
