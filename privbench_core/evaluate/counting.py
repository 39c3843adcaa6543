"""PrivLava's counting queries: parents of a given fanout and kind that own children of given kinds.

They look at whole groups, so they notice what parent-child marginals cannot: whether siblings belong together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from privbench_core.errors import InternalError
from privbench_core.evaluate.joins import NO_PARENT, Linked
from privbench_core.evaluate.marginals import CodeTable

Predicate = tuple[tuple[int, NDArray[np.bool_]], ...]
"""A conjunction: (column, which of its codes satisfy)."""


@dataclass(frozen=True)
class CountingQuery:
    """How many parents satisfy ``parent``, have ``fanout`` children, and own distinct ones for all of ``children``.

    Attributes:
        fanout: Required number of children; None asks for at least one.
        parent: What the parent's row must satisfy.
        children: One predicate per required child; a child can stand for one of them only.
    """

    fanout: int | None
    parent: Predicate
    children: tuple[Predicate, ...]


@dataclass(frozen=True)
class CountingShape:
    """What a random workload of counting queries looks like (PrivLava, section on experiments).

    Attributes:
        children: c, predicates on distinct children per query.
        attributes: k, attributes per predicate.
        selectivity: Product of the domain shares of all attributes of a query.
        max_fanout: Fanouts are drawn from 1 to this; None asks only for children to exist.
    """

    children: int = 1
    attributes: int = 1
    selectivity: float = 0.2
    max_fanout: int | None = 7


def counting_queries(
    linked: Linked,
    ordered: tuple[Sequence[bool], Sequence[bool]],
    shape: CountingShape,
    count: int,
    rng: np.random.Generator,
) -> tuple[CountingQuery, ...]:
    """Draw a workload from the domains alone (no row is looked at).

    All predicates on children use the same attributes. Each attribute admits an equal share of its domain: a run of
    neighbouring codes if it is ordered, a random set of codes otherwise.

    Args:
        linked: Only its domain sizes are used.
        ordered: Whether neighbouring codes belong together, per parent column and per child column.
        shape: Kind of queries.
        count: How many queries.
        rng: Source of the draw.
    """
    share = shape.selectivity ** (1 / (shape.attributes * (1 + shape.children)))

    def predicate(columns: NDArray[np.int64], sizes: Sequence[int], runs: Sequence[bool]) -> Predicate:
        return tuple((int(c), _admitted(int(sizes[c]), share, runs[c], rng)) for c in columns)

    def attributes(sizes: Sequence[int]) -> NDArray[np.int64]:
        return rng.choice(len(sizes), min(shape.attributes, len(sizes)), replace=False)

    queries = []
    for _ in range(count):
        fanout = None if shape.max_fanout is None else int(rng.integers(1, shape.max_fanout + 1))
        parent = predicate(attributes(linked.parent_sizes), linked.parent_sizes, ordered[0])
        of_child = attributes(linked.child_sizes)
        children = tuple(predicate(of_child, linked.child_sizes, ordered[1]) for _ in range(shape.children))
        queries.append(CountingQuery(fanout, parent, children))
    return tuple(queries)


def _admitted(size: int, share: float, run: bool, rng: np.random.Generator) -> NDArray[np.bool_]:
    width = max(1, int(size * share))
    admitted = np.zeros(size, bool)
    if run:
        start = int(rng.integers(size - width + 1))
        admitted[start : start + width] = True
    else:
        admitted[rng.choice(size, width, replace=False)] = True
    return admitted


def answer_counting(linked: Linked, queries: Sequence[CountingQuery]) -> NDArray[np.int64]:
    """Number of parents that satisfy each query, shape (queries,)."""
    fanout = linked.fanout
    has_parent = linked.links != NO_PARENT
    links, child = linked.links[has_parent], np.asfortranarray(linked.child[has_parent])
    parent = np.asfortranarray(linked.parent)
    answers = np.empty(len(queries), np.int64)
    for number, query in enumerate(queries):
        holds = _satisfied(parent, query.parent) & (fanout > 0 if query.fanout is None else fanout == query.fanout)
        matching = [_satisfied(child, predicate) for predicate in query.children]
        # Hall's theorem: distinct children can be found for all predicates exactly if every set of predicates is
        # satisfied by at least as many children as it has members.
        for members in range(1, len(matching) + 1):
            for chosen in combinations(matching, members):
                either = np.logical_or.reduce(chosen)
                holds &= np.bincount(links[either], minlength=len(parent)) >= members
        answers[number] = holds.sum()
    return answers


def _satisfied(codes: CodeTable, predicate: Predicate) -> NDArray[np.bool_]:
    holds = np.ones(len(codes), bool)
    for column, admitted in predicate:
        holds &= admitted[codes[:, column]]
    return holds


def counting_errors(
    true: Linked, synthetic: Linked, queries: Sequence[CountingQuery], floor: float = 0.01
) -> NDArray[np.float64]:
    """Relative error per query: |true - scaled synthetic| / max(floor x parents, true).

    Synthetic answers are scaled by the ratio of the numbers of parents, so a database of another size is not punished.

    Raises:
        InternalError: One of the databases has no parents.
    """
    if not len(true.parent) or not len(synthetic.parent):
        raise InternalError("counting queries need at least one parent in both databases")
    expected = answer_counting(true, queries)
    scaled = answer_counting(synthetic, queries) * (len(true.parent) / len(synthetic.parent))
    return np.abs(expected - scaled) / np.maximum(floor * len(true.parent), expected)
