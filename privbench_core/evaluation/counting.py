"""PrivLava's counting queries: count parents with a given fanout that satisfy a predicate and own children that do too.

They are about whole groups, so unlike parent-child marginals they measure the dependence among children of one parent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations, product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privbench_core.errors import InternalError
from privbench_core.evaluation.joins import LinkedTables
from privbench_core.evaluation.marginals import SEED, CodeTable, Figures

Predicate = tuple[tuple[int, NDArray[np.bool_]], ...]
"""A conjunction: (column, which of its codes satisfy it)."""


class CountingQuery(NamedTuple):
    """Counts parents that satisfy ``parent``, and have ``fanout`` children: distinct ones for all of ``children``."""

    fanout: int
    parent: Predicate
    children: tuple[Predicate, ...]


class CountingShape(NamedTuple):
    """Parameters of a random workload of counting queries (PrivLava, section 7.2)."""

    children: int = 1  # c, predicates on distinct children per query, 1 or 2
    attributes: int = 1  # k, attributes per predicate
    selectivity: float = 0.2  # product of the domain shares of all attributes of a query
    max_fanout: int = 7  # fanouts are drawn from 1 to this


def counting_figures(
    source: LinkedTables,
    synthetic: LinkedTables,
    ordered: tuple[Sequence[bool], Sequence[bool]],
    selectivity: float,
    most: int,
) -> list[Figures]:
    """Return "mean" (the papers' figure) and "median" errors of ``most`` queries of a join, fewer of large tables.

    By kind: 1 and 2 "children", 1 and 2 "attributes"; fanouts are drawn up to their 99th percentile. Empty where no
    queries can be asked.
    """
    parents, children = len(source.parent), len(source.child)
    each = min(most, 2_000_000_000 // max(parents + children, 1)) // 4  # so many rows are read, at most
    if not each or not parents or not len(synthetic.parent) or not (source.parent_sizes and source.child_sizes):
        return []
    fanouts = source.fanout[source.fanout > 0]
    largest = int(np.percentile(fanouts, 99, method="inverted_cdf")) if fanouts.size else 1
    kinds = list(product((1, 2), (1, 2)))
    queries: list[CountingQuery] = []
    for kind in kinds:
        shape = CountingShape(*kind, selectivity, largest)
        queries += counting_queries(source, ordered, shape, each, np.random.default_rng((SEED, *kind)))
    errors = np.split(counting_errors(source, synthetic, queries), len(kinds))
    return [
        {"children": c, "attributes": k, "queries": each, "mean": float(e.mean()), "median": float(np.median(e))}
        for (c, k), e in zip(kinds, errors, strict=True)
    ]


def counting_queries(
    linked: LinkedTables,
    ordered: tuple[Sequence[bool], Sequence[bool]],
    shape: CountingShape,
    count: int,
    rng: np.random.Generator,
) -> tuple[CountingQuery, ...]:
    """Draw ``count`` queries from the domains, without reading rows.

    All predicates on children use the same attributes. Each attribute admits an equal share of its domain: a range of
    codes if it is ``ordered`` (per parent column and per child column), a random set of codes otherwise.
    """
    share = shape.selectivity ** (1 / (shape.attributes * (1 + shape.children)))

    def attributes(sizes: Sequence[int]) -> NDArray[np.int64]:
        return rng.choice(len(sizes), min(shape.attributes, len(sizes)), replace=False)

    def predicate(columns: NDArray[np.int64], sizes: Sequence[int], is_ordered: Sequence[bool]) -> Predicate:
        return tuple((int(c), _admitted(int(sizes[c]), share, is_ordered[c], rng)) for c in columns)

    queries = []
    for _ in range(count):
        fanout = int(rng.integers(1, shape.max_fanout + 1))
        parent = predicate(attributes(linked.parent_sizes), linked.parent_sizes, ordered[0])
        of_child = attributes(linked.child_sizes)
        children = tuple(predicate(of_child, linked.child_sizes, ordered[1]) for _ in range(shape.children))
        queries.append(CountingQuery(fanout, parent, children))
    return tuple(queries)


def _admitted(size: int, share: float, ordered: bool, rng: np.random.Generator) -> NDArray[np.bool_]:
    width = max(1, int(size * share))
    admitted = np.zeros(size, bool)
    if ordered:
        start = int(rng.integers(size - width + 1))
        admitted[start : start + width] = True
    else:
        admitted[rng.choice(size, width, replace=False)] = True
    return admitted


def answer_counting(linked: LinkedTables, queries: Sequence[CountingQuery]) -> NDArray[np.int64]:
    """Return the number of parents that satisfy each query, shape (queries,)."""
    numbers: dict[int, list[int]] = defaultdict(list)
    for number, query in enumerate(queries):
        numbers[query.fanout].append(number)
    fanout = linked.fanout
    by_parent = np.argsort(linked.links, kind="stable")[len(linked.links) - int(fanout.sum()) :]
    first = np.cumsum(fanout) - fanout
    answers = np.zeros(len(queries), np.int64)
    for size, asked in numbers.items():  # each query reads only the parents that have its fanout
        parents = np.flatnonzero(fanout == size)
        parent = linked.parent[parents]
        child = linked.child[by_parent[first[parents, None] + np.arange(size)]]
        for number in asked:
            holds = satisfying(parent, queries[number].parent)
            found = [satisfying(child, predicate) for predicate in queries[number].children]
            # Hall's theorem: there are distinct children for all predicates if any n of these have n children.
            for n in range(1, len(found) + 1):
                for chosen in combinations(found, n):
                    holds &= np.logical_or.reduce(chosen).sum(axis=1) >= n
            answers[number] = holds.sum()
    return answers


def satisfying(codes: CodeTable, predicate: Predicate) -> NDArray[np.bool_]:
    """Return which rows satisfy a predicate, given codes of shape (..., columns); of shape (...)."""
    holds = np.ones(codes.shape[:-1], bool)
    for column, admitted in predicate:
        holds &= admitted[codes[..., column]]
    return holds


def counting_errors(
    true: LinkedTables, synthetic: LinkedTables, queries: Sequence[CountingQuery], floor: float = 0.01
) -> NDArray[np.float64]:
    """Return the relative error per query, |true - scaled synthetic| / max(floor x parents, true).

    Synthetic answers are scaled by the ratio of the numbers of parents, so another size of the database is no error.
    The papers' ``floor`` is 0.01 (PrivPetal, eq. 8).

    Raises:
        InternalError: One of the databases has no parents.
    """
    if not len(true.parent) or not len(synthetic.parent):
        raise InternalError("counting queries need at least one parent in both databases")
    expected = answer_counting(true, queries)
    scaled = answer_counting(synthetic, queries) * (len(true.parent) / len(synthetic.parent))
    return np.abs(expected - scaled) / np.maximum(floor * len(true.parent), expected)
