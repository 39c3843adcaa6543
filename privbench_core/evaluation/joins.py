"""Joins along one foreign key, along chains of them, and between the two parents of a junction table's rows.

Every join becomes a `LinkedTables`: rows of two tables, and which rows join. The baseline is `shuffle_links`: every
parent keeps its fanout, but its children are random, so nothing about a child depends on its parent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.evaluation.correlations import sibling_agreement
from privbench_core.evaluation.encode import EncodedTable
from privbench_core.evaluation.marginals import (
    CodeTable,
    MarginalDistances,
    marginal_distances,
    mean_distances,
    subset_distances,
)
from privbench_core.evaluation.subsets import ColumnSubsets
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema
from privbench_core.validate.references import NO_PARENT, parent_rows


@dataclass(frozen=True)
class LinkedTables:
    """A parent table, a child table and the links between them, as codes.

    Attributes:
        parent: Codes of the parent's attributes, shape (parents, columns).
        parent_sizes: Domain size per parent column.
        child: Codes of the child's attributes, shape (children, columns).
        child_sizes: Domain size per child column.
        links: Parent row of each child, `NO_PARENT` where there is none, shape (children,).
    """

    parent: CodeTable
    parent_sizes: tuple[int, ...]
    child: CodeTable
    child_sizes: tuple[int, ...]
    links: NDArray[np.int64]

    @property
    def fanout(self) -> NDArray[np.int64]:
        """Number of children of each parent, shape (parents,)."""
        return np.bincount(self.links[self.links != NO_PARENT], minlength=len(self.parent)).astype(np.int64)

    @cached_property
    def joined(self) -> CodeTable:
        """The inner join: the parent's and the child's columns for every child that has a parent."""
        has_parent = self.links != NO_PARENT
        parents, own = self.links[has_parent], self.parent.shape[1]
        shape = len(parents), own + self.child.shape[1]
        rows = np.empty(shape, np.promote_types(self.parent.dtype, self.child.dtype), order="F")
        for position in range(shape[1]):  # column by column: the tables are stored so, too
            of_parent = position < own
            rows[:, position] = self.parent[parents, position] if of_parent else self.child[has_parent, position - own]
        return rows

    def with_shuffled_links(self, rng: np.random.Generator) -> LinkedTables:
        """Return the same rows and fanouts with shuffled links."""
        return replace(self, links=shuffle_links(self.links, rng))


def sibling_agreements(source: LinkedTables, synthetic: LinkedTables) -> dict[int, tuple[float, float]]:
    """Return `sibling_agreement` in both databases, by position of the child's column.

    Left out where no child has siblings in the source; 0 where none has any in the synthetic database.
    """
    found = {}
    for place in range(len(source.child_sizes)):
        true, made = (sibling_agreement(linked.links, linked.child[:, place]) for linked in (source, synthetic))
        if true is not None:
            found[place] = true, made or 0.0
    return found


def link_tables(key: ForeignKey, tables: Mapping[str, pa.Table], coded: Mapping[str, EncodedTable]) -> LinkedTables:
    """Return the join along a foreign key."""
    parent, child = coded[key.parent], coded[key.child]
    links = parent_rows(tables[key.parent], tables[key.child], key)
    return LinkedTables(parent.codes, parent.sizes, child.codes, child.sizes, links)


Chain = tuple[ForeignKey, ...]
"""Foreign keys from a table upwards: each refers to the table of the next."""


def chains(schema: Schema, longest: int = 3) -> tuple[Chain, ...]:
    """Return all chains of two to ``longest`` keys from private tables upwards, without repeated tables."""
    found: list[Chain] = []
    frontier: list[Chain] = [(key,) for table in schema.private_tables for key in table.foreign_keys]
    for _ in range(longest - 1):
        frontier = [
            (*chain, key)
            for chain in frontier
            for key in schema.table(chain[-1].parent).foreign_keys
            if key.parent not in {chain[0].child, *(step.parent for step in chain)}
        ]
        found += frontier
    return tuple(found)


def junctions(schema: Schema) -> tuple[tuple[ForeignKey, ForeignKey], ...]:
    """Return pairs of keys of one private table, whose rows relate the two parents n to m."""
    return tuple(pair for table in schema.private_tables for pair in combinations(table.foreign_keys, 2))


def link_chain(chain: Chain, tables: Mapping[str, pa.Table], coded: Mapping[str, EncodedTable]) -> LinkedTables:
    """Return the join of the first key's table with the last key's parent."""
    first, *others = chain
    links = parent_rows(tables[first.parent], tables[first.child], first)
    for key in others:
        links = _composed(links, parent_rows(tables[key.parent], tables[key.child], key))
    child, parent = coded[first.child], coded[chain[-1].parent]
    return LinkedTables(parent.codes, parent.sizes, child.codes, child.sizes, links)


def link_junction(
    first: ForeignKey, second: ForeignKey, tables: Mapping[str, pa.Table], coded: Mapping[str, EncodedTable]
) -> LinkedTables:
    """Return the n to m join of two parents of one table: each of its rows stands for its parent by ``second``."""
    own = tables[first.child]
    left, right = (parent_rows(tables[key.parent], own, key) for key in (first, second))
    both = (left != NO_PARENT) & (right != NO_PARENT)
    a, b = coded[first.parent], coded[second.parent]
    return LinkedTables(a.codes, a.sizes, b.codes[right[both]], b.sizes, left[both])


def _composed(links: NDArray[np.int64], step: NDArray[np.int64]) -> NDArray[np.int64]:
    linked = links != NO_PARENT
    result = np.full(len(links), NO_PARENT, np.int64)
    result[linked] = step[links[linked]]
    return result


def shuffle_links(child_links: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the links in random order; every parent keeps its fanout."""
    return rng.permutation(child_links)


def joint_tvd(true: LinkedTables, synthetic: LinkedTables) -> NDArray[np.float64]:
    """Return the TVD of each joint marginal (one parent attribute, one child attribute) over the inner join.

    Returns:
        Shape (parent columns, child columns).
    """
    parents, children = len(true.parent_sizes), len(true.child_sizes)
    pairs = [(i, parents + j) for i in range(parents) for j in range(children)]
    each = subset_distances(true.joined, synthetic.joined, true.parent_sizes + true.child_sizes, pairs)
    return np.array([distances.tvd for distances in each]).reshape(parents, children)


def cross_distances(true: LinkedTables, synthetic: LinkedTables, subsets: ColumnSubsets) -> MarginalDistances:
    """Return mean distances over the inner join of marginals with columns of both tables (`crossing_subsets`)."""
    sizes = true.parent_sizes + true.child_sizes
    return mean_distances(true.joined, synthetic.joined, sizes, subsets)


@dataclass(frozen=True)
class FanoutDistance:
    """Distances between two distributions of fanouts.

    Attributes:
        tvd: Total variation, in [0, 1].
        wasserstein: Earth mover's distance, in children.
    """

    tvd: float
    wasserstein: float


def fanout_distance(true: NDArray[np.integer], synthetic: NDArray[np.integer]) -> FanoutDistance:
    """Return distances of fanouts (one per parent, zeros included); the numbers of parents may differ."""
    size = int(max(true.max(initial=0), synthetic.max(initial=0))) + 1
    distance = marginal_distances(true[:, None], synthetic[:, None], (0,), (size,)).tvd
    shares = [np.bincount(x, minlength=size) / max(len(x), 1) for x in (true, synthetic)]
    return FanoutDistance(distance, float(np.abs(np.cumsum(shares[0] - shares[1])).sum()))
