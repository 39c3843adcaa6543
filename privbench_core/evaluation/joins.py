"""Joins along foreign keys, along chains of them, and between the two parents of a junction table's rows.

Every join becomes a `LinkedTables`: rows of two tables, and which rows join. The baseline is `with_shuffled_links`:
every parent keeps its fanout, but its children are random, so nothing about a child depends on its parent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, combinations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.evaluation.encode import EncodedTable
from privbench_core.evaluation.marginals import CodeTable, MarginalDistances, mean_distances, subset_distances
from privbench_core.evaluation.subsets import ColumnSubsets
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema
from privbench_core.validate.references import NO_PARENT, parent_rows

Chain = tuple[ForeignKey, ...]
"""Foreign keys from a table upwards: each refers to the table of the next."""


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
    def sizes(self) -> tuple[int, ...]:
        """Domain size per column of `joined`."""
        return self.parent_sizes + self.child_sizes

    @property
    def fanout(self) -> NDArray[np.int64]:
        """Number of children of each parent, shape (parents,)."""
        return np.bincount(self.links[self.links != NO_PARENT], minlength=len(self.parent)).astype(np.int64)

    @cached_property
    def joined(self) -> CodeTable:
        """The inner join: the parent's and the child's columns for every child that has a parent."""
        has_parent = self.links != NO_PARENT
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
    """Return the row of the last key's parent of each row of the first key's table, or `NO_PARENT`; shape (rows,)."""
    links = np.arange(tables[keys[0].child].num_rows, dtype=np.int64)
    for key in keys:
        links = np.append(parent_rows(tables[key.parent], tables[key.child], key), NO_PARENT)[links]
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
    both = (left != NO_PARENT) & (right != NO_PARENT)
    a, b = coded[first.parent], coded[second.parent]
    return LinkedTables(a.codes, a.sizes, b.codes[right[both]], b.sizes, left[both])


def joint_tvd(true: LinkedTables, synthetic: LinkedTables) -> NDArray[np.float64]:
    """Return the TVD of each joint marginal (one parent attribute, one child attribute) over the inner join.

    Returns:
        Shape (parent columns, child columns).
    """
    parents, children = len(true.parent_sizes), len(true.child_sizes)
    pairs = [(i, parents + j) for i in range(parents) for j in range(children)]
    each = subset_distances(true.joined, synthetic.joined, true.sizes, pairs)
    return np.array([distances.tvd for distances in each]).reshape(parents, children)


def cross_distances(true: LinkedTables, synthetic: LinkedTables, subsets: ColumnSubsets) -> MarginalDistances:
    """Return mean distances over the inner join of marginals with columns of both tables (`crossing_subsets`)."""
    return mean_distances(true.joined, synthetic.joined, true.sizes, subsets)


def fanout_wasserstein(true: NDArray[np.integer], synthetic: NDArray[np.integer]) -> float:
    """Return the earth mover's distance, in children, of fanouts: one per parent, zeros included."""
    size = int(max(true.max(initial=0), synthetic.max(initial=0))) + 1
    shares = [np.bincount(x, minlength=size) / max(len(x), 1) for x in (true, synthetic)]
    return float(np.abs(np.cumsum(shares[0] - shares[1])).sum())
