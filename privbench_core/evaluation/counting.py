"""PrivLava's counting queries: count parents with a given fanout that satisfy a predicate and own children that do too.

They are about whole groups, so unlike parent-child marginals they measure the dependence among children of one parent.

A workload has thousands of queries, so 64 are answered at a time: each parent and child row carries one bit per query,
and the bits of one parent's children are combined in a binary tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privbench_core.errors import InternalError
from privbench_core.evaluation.joins import LinkedTables
from privbench_core.evaluation.marginals import CodeTable

Predicate = tuple[tuple[int, NDArray[np.bool_]], ...]
"""A conjunction: (column, which of its codes satisfy it)."""

_Bits = NDArray[np.uint64]  # one bit per query
_BITS = 64
_ALL = ~np.uint64(0)


@dataclass(frozen=True)
class CountingQuery:
    """Counts parents that satisfy ``parent``, have ``fanout`` children, and distinct children for all of ``children``.

    Attributes:
        fanout: Required number of children; None requires at least one.
        parent: Predicate on the parent's row.
        children: One or two predicates, of a required child each; a child counts for one of them only.
    """

    fanout: int | None
    parent: Predicate
    children: tuple[Predicate, ...]


@dataclass(frozen=True)
class CountingShape:
    """Parameters of a random workload of counting queries (PrivLava, section 7.2).

    Attributes:
        children: c, predicates on distinct children per query, 1 or 2.
        attributes: k, attributes per predicate.
        selectivity: Product of the domain shares of all attributes of a query.
        max_fanout: Fanouts are drawn from 1 to this; None requires at least one child.
    """

    children: int = 1
    attributes: int = 1
    selectivity: float = 0.2
    max_fanout: int | None = 7


def counting_queries(
    linked: LinkedTables,
    ordered: tuple[Sequence[bool], Sequence[bool]],
    shape: CountingShape,
    count: int,
    rng: np.random.Generator,
) -> tuple[CountingQuery, ...]:
    """Draw a workload from the domains, without reading rows.

    All predicates on children use the same attributes. Each attribute admits an equal share of its domain: a range of
    codes if it is ordered, a random set of codes otherwise.

    Args:
        linked: Only its domain sizes are used.
        ordered: Whether codes are ordered, per parent column and per child column.
        shape: Kind of queries.
        count: Number of queries.
        rng: Draws the queries.
    """
    share = shape.selectivity ** (1 / (shape.attributes * (1 + shape.children)))

    def predicate(columns: NDArray[np.int64], sizes: Sequence[int], is_ordered: Sequence[bool]) -> Predicate:
        return tuple((int(c), _admitted(int(sizes[c]), share, is_ordered[c], rng)) for c in columns)

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
    grouped = _GroupedChildren.of(linked)
    answers = np.zeros(len(queries), np.int64)
    # Queries on the same columns follow each other, so each batch reads few columns.
    order = sorted(range(len(queries)), key=lambda number: _columns(queries[number]))
    for start in range(0, len(order), _BITS):
        batch = order[start : start + _BITS]
        answers[batch] = _answer(linked, grouped, [queries[number] for number in batch])
    return answers


def _columns(query: CountingQuery) -> tuple[int, list[int], list[int]]:
    first = query.children[0] if query.children else ()
    return len(query.children), sorted(c for c, _ in first), sorted(c for c, _ in query.parent)


def _answer(linked: LinkedTables, grouped: _GroupedChildren, queries: Sequence[CountingQuery]) -> NDArray[np.int64]:
    holds = _satisfied(linked.parent, [query.parent for query in queries])
    holds &= _fanout_matches(grouped.fanout, [query.fanout for query in queries])
    first, second = (
        _satisfied(grouped.child, [query.children[place] if place < len(query.children) else () for query in queries])
        for place in (0, 1)
    )
    holds &= grouped.at_least(first)[0]
    pairs = sum(1 << number for number, query in enumerate(queries) if len(query.children) > 1)
    if pairs:  # Hall's theorem: each predicate has a child, and both together have two
        holds &= (grouped.at_least(second)[0] & grouped.at_least(first | second)[1]) | ~np.uint64(pairs)
    return _count_bits(holds)[: len(queries)]


def rows_satisfying(codes: CodeTable, predicates: Sequence[Predicate]) -> NDArray[np.int64]:
    """Return the number of rows that satisfy each predicate, shape (predicates,)."""
    batches = [predicates[start : start + _BITS] for start in range(0, len(predicates), _BITS)]
    counts = [_count_bits(_satisfied(codes, batch))[: len(batch)] for batch in batches]
    return np.concatenate(counts) if counts else np.zeros(0, np.int64)


def _count_bits(holds: _Bits) -> NDArray[np.int64]:
    """Return the number of rows that have each bit, shape (64,)."""
    parts = holds[holds != 0].astype("<u8", copy=False).view(np.uint8).reshape(-1, 8)
    values = np.array([np.bincount(part, minlength=256) for part in parts.T])  # how often each byte has each value
    set_bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    return (values @ set_bits.astype(np.int64)).reshape(_BITS)


def _satisfied(codes: CodeTable, predicates: Sequence[Predicate]) -> _Bits:
    """Return one bit per row and predicate."""
    tables: dict[int, _Bits] = {}
    for number, predicate in enumerate(predicates):
        for column, admitted in predicate:
            if column not in tables:
                tables[column] = np.full(len(admitted), _ALL)
            tables[column][~admitted] &= ~np.uint64(1 << number)
    holds = np.full(len(codes), _ALL)
    for column, table in tables.items():
        holds &= table[codes[:, column]]
    return holds


def _fanout_matches(fanout: NDArray[np.int64], required: Sequence[int | None]) -> _Bits:
    """Return one bit per parent and query: whether the parent has the required fanout."""
    table = np.zeros(int(fanout.max(initial=0)) + 1, np.uint64)
    for number, size in enumerate(required):
        if size is None:
            table[1:] |= np.uint64(1 << number)
        elif size < len(table):
            table[size] |= np.uint64(1 << number)
    return table[fanout]


@dataclass(frozen=True)
class _GroupedChildren:
    """Children sorted by parent, and the pairs to merge, level by level, until each parent has one entry.

    Attributes:
        child: Codes of the children that have a parent.
        fanout: Fanout of each parent.
        levels: Per level, the entries that stay and those merged into the entry before them.
    """

    child: CodeTable
    fanout: NDArray[np.int64]
    levels: tuple[tuple[NDArray[np.int64], NDArray[np.int64]], ...]

    @classmethod
    def of(cls, linked: LinkedTables) -> _GroupedChildren:
        fanout = linked.fanout
        order = np.argsort(linked.links, kind="stable")[len(linked.links) - int(fanout.sum()) :]
        sizes, levels = fanout[fanout > 0], []
        while sizes.size and sizes.max() > 1:
            rank = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            levels.append((np.flatnonzero(rank % 2 == 0), np.flatnonzero(rank % 2 == 1)))
            sizes = (sizes + 1) // 2
        return cls(np.asfortranarray(linked.child[order]), fanout, tuple(levels))

    def at_least(self, bits: _Bits) -> tuple[_Bits, _Bits]:
        """Return the queries that at least one, and at least two, children of each parent satisfy; shape (parents,)."""
        one, two = bits.copy(), np.zeros_like(bits)
        for stay, merged in self.levels:
            two[merged - 1] |= two[merged] | (one[merged - 1] & one[merged])
            one[merged - 1] |= one[merged]
            one, two = one[stay], two[stay]
        whole = np.zeros((2, len(self.fanout)), np.uint64)
        whole[:, self.fanout > 0] = one, two
        return whole[0], whole[1]


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
