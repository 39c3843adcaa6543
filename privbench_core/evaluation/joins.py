"""Joins along foreign keys, along chains of them, and between the two parents of a junction table's rows.

Every join becomes a `LinkedTables`: rows of two tables, and which rows join. The baseline is `with_shuffled_links`:
every parent keeps its fanout, but its children are random, so nothing about a child depends on its parent.

Pearson correlations (PrivPetal, section 6) are over values, not codes. One number says whether old parents still have
old children, and whether siblings are still similar. For columns without an order, how often two siblings have the same
code says that.

PrivLava's counting queries count parents with a given fanout that satisfy a predicate and own children that do too.
They are about whole groups, so unlike parent-child marginals they measure the dependence among children of one parent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, combinations, product
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.errors import InternalError
from privbench_core.evaluation.marginals import SEED, CodeTable, EncodedTable, Figures, as_numbers, marginal
from privbench_core.sampling.keys import parent_rows
from privbench_core.schema.columns import Values
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table

Chain = tuple[ForeignKey, ...]
"""Foreign keys from a table upwards: each refers to the table of the next."""
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class LinkedTables:
    """A parent table, a child table and the links between them, as codes."""

    parent: CodeTable  # shape (parents, columns)
    parent_sizes: tuple[int, ...]  # domain size per column
    child: CodeTable  # shape (children, columns)
    child_sizes: tuple[int, ...]
    links: NDArray[np.int64]  # parent row of each child, -1 where there is none, shape (children,)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Domain size per column of `joined`."""
        return self.parent_sizes + self.child_sizes

    @property
    def fanout(self) -> NDArray[np.int64]:
        """Number of children of each parent, shape (parents,)."""
        return np.bincount(self.links[self.links >= 0], minlength=len(self.parent)).astype(np.int64)

    @cached_property
    def joined(self) -> CodeTable:
        """The inner join: the parent's and the child's columns for every child that has a parent."""
        has_parent = self.links >= 0
        rows = np.empty((int(has_parent.sum()), len(self.sizes)), np.int32, order="F")
        parents = (column[self.links[has_parent]] for column in self.parent.T)
        children = (column[has_parent] for column in self.child.T)
        for position, column in enumerate(chain(parents, children)):  # one by one, as they are stored
            rows[:, position] = column
        return rows

    def with_shuffled_links(self, rng: np.random.Generator) -> LinkedTables:
        """Return the same rows with the links in random order; every parent keeps its fanout."""
        return replace(self, links=rng.permutation(self.links))


def chains(schema: Schema, longest: int = 3) -> tuple[Chain, ...]:
    """Return all chains of two to ``longest`` keys from private tables upwards, without repeated tables."""
    found: list[Chain] = []
    frontier: list[Chain] = [(key,) for table in schema.private_tables for key in table.foreign_keys]
    for _ in range(longest - 1):
        frontier = [
            (*keys, key)
            for keys in frontier
            for key in schema.table(keys[-1].parent).foreign_keys
            if key.parent not in {keys[0].child, *(step.parent for step in keys)}
        ]
        found += frontier
    return tuple(found)


def junctions(schema: Schema) -> tuple[tuple[ForeignKey, ForeignKey], ...]:
    """Return pairs of keys of one private table, whose rows relate the two parents n to m."""
    return tuple(pair for table in schema.private_tables for pair in combinations(table.foreign_keys, 2))


def chain_links(keys: Chain, tables: Mapping[str, pa.Table]) -> NDArray[np.int64]:
    """Return the row of the last key's parent of each row of the first key's table, or -1; shape (rows,)."""
    links = np.arange(tables[keys[0].child].num_rows, dtype=np.int64)
    for key in keys:
        links = np.append(parent_rows(tables[key.parent], tables[key.child], key), -1)[links]
    return links


def link_tables(keys: Chain, tables: Mapping[str, pa.Table], coded: Mapping[str, EncodedTable]) -> LinkedTables:
    """Return the join of the first key's table with the last key's parent; of a single key with its parent."""
    child, parent = coded[keys[0].child], coded[keys[-1].parent]
    return LinkedTables(parent.codes, parent.sizes, child.codes, child.sizes, chain_links(keys, tables))


def link_junction(
    first: ForeignKey, second: ForeignKey, tables: Mapping[str, pa.Table], coded: Mapping[str, EncodedTable]
) -> LinkedTables:
    """Return the n to m join of two parents of one table: each of its rows stands for its parent by ``second``."""
    left, right = (chain_links((key,), tables) for key in (first, second))
    both = (left >= 0) & (right >= 0)
    a, b = coded[first.parent], coded[second.parent]
    return LinkedTables(a.codes, a.sizes, b.codes[right[both]], b.sizes, left[both])


def fanout_wasserstein(true: NDArray[np.integer], synthetic: NDArray[np.integer]) -> float:
    """Return the earth mover's distance, in children, of fanouts: one per parent, zeros included."""
    size = int(max(true.max(initial=0), synthetic.max(initial=0))) + 1
    return float(np.abs(np.cumsum(marginal(true, size) - marginal(synthetic, size))).sum())


def ordered_values(table: Table, rows: pa.Table) -> dict[str, Numbers]:
    """Return the ordered attributes of a table as numbers, NaN for NULL; lists of values are left out."""
    return {
        column.name: as_numbers(rows[column.name])
        for column in table.attributes
        if column.type.ordered and not isinstance(column.domain, Values)
    }


JoinValues = tuple[Mapping[str, Numbers], Mapping[str, Numbers], NDArray[np.int64]]
"""`ordered_values` of parents and of children, and the row of the parent of each child, -1 where none."""


def correlations(true: JoinValues, synthetic: JoinValues) -> tuple[list[Figures], list[Figures]]:
    """Return Pearson coefficients of a join in both databases.

    Returns:
        Between each column of the parent and each of the child, over the joined rows, and of each column of the child
        with itself, over all pairs of children of one parent: the "columns", and the coefficients in "source" and
        "synthetic", None where undefined.
    """
    between, among = (
        [{"columns": columns, "source": value, "synthetic": made[columns]} for columns, value in source.items()]
        for source, made in zip(_coefficients(*true), _coefficients(*synthetic), strict=True)
    )
    return between, among


def _coefficients(
    parent: Mapping[str, Numbers], child: Mapping[str, Numbers], links: NDArray[np.int64]
) -> list[dict[tuple[str, str], float | None]]:
    linked = links >= 0
    return [
        {(p, c): pearson(parent[p][links[linked]], child[c][linked]) for p, c in product(parent, child)},
        {(c, c): sibling_pearson(links, child[c]) for c in child},
    ]


def sibling_pearson(links: NDArray[np.int64], values: Numbers) -> float | None:
    """Return the Pearson coefficient of a column with itself over all pairs (i, j), i ≠ j, of children of one parent.

    Sums per group give the moments without a self-join.
    """
    known = (links >= 0) & np.isfinite(values)
    of, x = links[known], values[known]
    if not x.size:
        return None
    x = x - x.mean()  # keeps sums of squares small
    parents = int(links.max()) + 1
    size, total, squares = (np.bincount(of, w, parents) for w in (np.ones(len(x)), x, x**2))
    pairs = float((size * (size - 1)).sum())
    if not pairs:
        return None
    mean = float(((size - 1) * total).sum()) / pairs
    variance = float(((size - 1) * squares).sum()) / pairs - mean**2
    covariance = float((total**2 - squares).sum()) / pairs - mean**2
    return _ratio(covariance, variance, float((x**2).mean()))


def pearson(x: Numbers, y: Numbers) -> float | None:
    """Return the Pearson coefficient over the rows where neither is NULL or infinite; None where undefined."""
    known = np.isfinite(x) & np.isfinite(y)
    x, y = x[known], y[known]
    if not x.size:
        return None
    x, y = x - x.mean(), y - y.mean()
    spread = float(np.sqrt((x**2).mean() * (y**2).mean()))
    return _ratio(float((x * y).mean()), spread, spread)


def _ratio(covariance: float, variance: float, scale: float) -> float | None:
    """Return the ratio; None where the variance is only a rounding error of float64."""
    if not np.isfinite(variance) or variance <= 1e-12 * scale or scale == 0:
        return None
    return float(np.clip(covariance / variance, -1.0, 1.0))


def sibling_agreements(source: LinkedTables, synthetic: LinkedTables) -> dict[int, tuple[float, float]]:
    """Return `sibling_agreement` in both databases, by position of the child's column.

    Left out where no child has siblings in the source; 0 where none has any in the synthetic database.
    """
    found = {}
    for position in range(len(source.child_sizes)):
        true, made = (sibling_agreement(linked.links, linked.child[:, position]) for linked in (source, synthetic))
        if true is not None:
            found[position] = true, made or 0.0
    return found


def sibling_agreement(links: NDArray[np.int64], codes: NDArray[np.integer[Any]]) -> float | None:
    """Return how likely a row with siblings has the code of another child of its parent; None where none has any.

    >>> sibling_agreement(np.array([0, 0, 1, 1, -1]), np.array([5, 5, 2, 3, 2]))
    0.5
    """
    linked = links >= 0
    groups, codes = links[linked].astype(np.int64), codes[linked].astype(np.int64)
    sizes = np.bincount(groups)
    with_siblings = int(sizes[sizes > 1].sum())
    if not with_siblings:
        return None
    cells, counts = np.unique(groups * (int(codes.max()) + 1) + codes, return_counts=True)
    others = sizes[cells // (int(codes.max()) + 1)] - 1
    return float((counts * (counts - 1) / np.maximum(others, 1)).sum() / with_siblings)


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
