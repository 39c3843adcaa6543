"""Released models of groups (the children of one owner), and how members are drawn from them, one after the other.

PrivPetal (section 4, Algorithm 1). Per class of fanouts, pair tables of the permutation relation are released:
attributes of one child, of a child and its owner (the fanout included), and of two children of one owner. An attribute
of the m-th member is drawn from a small joint of itself and the few most informative columns: of the member, of its
owner, of the first member and of an earlier one, for all groups of a class at once.

The first member is chosen at random, so that the order of rows carries no information; and as pair tables of two
children are symmetric, all members of a group have the same distribution.

PrivLava (sections 4.1 and 4.6): each group has latent attributes Z1, Z2, columns of the owner, which say what kind of
group it is; given these, its size and its children are independent of each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from privbench_core.arrays import Array, Numbers, runs
from privbench_core.columns.codec import Codes
from privbench_core.estimators.fitting import mutual_information
from privbench_core.guards import TINY
from privbench_core.marginals.one_way import OneWay
from privbench_core.marginals.sampler import PairMarginal, Rows, draw_column
from privbench_core.profiles.profile import parent_column
from privbench_core.stored import Storable
from privbench_core.units.row_count import UNIT_SIZE

Pair = tuple[str, str]
OWNER = "#owner"  # context column: number of the row's owner
FIRST, BEFORE = "first.", "before."  # prefixes of context columns: of the first member, and of an earlier one
_BOTH = "first and before."  # prefix of both of them, as one code
_TYPE = "#type "  # no column of a database is called that


def latent_names(key: str, number: int) -> tuple[str, ...]:
    """Return the names of the latent attributes of the groups along an owner key."""
    return tuple(f"{_TYPE}{position} of {key}" for position in range(1, number + 1))


def is_latent(name: str) -> bool:
    """Return whether a column, of the rows themselves or of their owners, is a latent attribute.

    >>> is_latent("parent.#type 1 of order.user_id"), is_latent("parent.kind")
    (True, False)
    """
    return name.removeprefix(parent_column("")).startswith(_TYPE)


@dataclass(frozen=True)
class Latents(Storable):
    """Released: the latent attributes of the groups along one owner key.

    Attributes:
        names: Their names.
        one_way: How many parents have each value, 0 for parents without children.
        size_scores: log p(size, latent values), shape (codes of sizes, combinations), see
            `privacy.features.GroupTypes`.
        scores: Column of the children -> log p(code | latent values), shape (codes, combinations).
    """

    names: tuple[str, ...]
    one_way: OneWay
    size_scores: Numbers
    scores: Mapping[str, Numbers]

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of values of each latent attribute."""
        return tuple(len(self.one_way.counts[name]) for name in self.names)


@dataclass(frozen=True)
class GroupClass(Storable):
    """Released pair tables of the groups of a class of fanouts, all adding up to 1.

    Attributes:
        marginals: Column -> probabilities, shape (size,).
        within: (column, column) of one child -> joint.
        above: (column of the owner's context, column) -> joint.
        between: (column, column of another child) -> joint.
        triples: Column -> joint of its values in three children.
    """

    marginals: Mapping[str, Array]
    within: Mapping[Pair, Array] = field(default_factory=dict)
    above: Mapping[Pair, Array] = field(default_factory=dict)
    between: Mapping[Pair, Array] = field(default_factory=dict)
    triples: Mapping[str, Array] = field(default_factory=dict)

    def pair_tables(self, column: str, rows: Rows, members: Sequence[str]) -> list[PairMarginal]:
        """Return released joints of ``column`` and columns of ``rows``; ``members`` are prefixes of other children."""
        above = {**rows.links, **self.above}
        tables = [PairMarginal(a, joint.T, latent=is_latent(a)) for (a, b), joint in above.items() if b == column]
        tables += [PairMarginal(b, joint) for (a, b), joint in self.within.items() if a == column]
        tables += [PairMarginal(a, joint.T) for (a, b), joint in self.within.items() if b == column]
        triple = self.triples.get(column) if _BOTH + column in rows.codes else None
        if triple is not None:
            tables.append(PairMarginal(_BOTH + column, triple.reshape(len(triple), -1)))
        for prefix in members:
            for (a, b), joint in self.between.items():
                if a == b == column:
                    if triple is None:  # it includes this pair
                        tables.append(PairMarginal(f"{prefix}{a}", (joint + joint.T) / 2))
                elif a == column:
                    tables.append(PairMarginal(f"{prefix}{b}", joint))
                elif b == column:
                    tables.append(PairMarginal(f"{prefix}{a}", joint.T))
        return [table for table in tables if table.column in rows.codes]

    def marginal(self, column: str, size: str, rows: Rows) -> Array:
        """Return the probabilities of ``column`` given the fanouts of ``rows``: only large groups have late members."""
        joint = self.above.get((size, column))
        if joint is None:
            return self.marginals[column]
        fanouts = np.bincount(rows.codes[size], weights=rows.weights, minlength=len(joint))
        conditionals = joint / np.maximum(joint.sum(axis=1, keepdims=True), TINY)
        return np.asarray(fanouts @ conditionals / max(fanouts.sum(), TINY))

    def order(self) -> list[str]:
        """Return the columns, the most informative about others first."""
        information = dict.fromkeys(self.marginals, 0.0)
        for (a, b), joint in self.within.items():
            shared = mutual_information(joint)
            information[a] += shared
            information[b] += shared
        return sorted(information, key=lambda name: -information[name])


@dataclass(frozen=True)
class GroupModel(Storable):
    """A released model of the attributes of an owned table.

    Attributes:
        size: Name of the context column with the fanout (size of the group).
        class_of: Class of each of its codes.
        classes: The classes of fanouts.
        rows_per_unit: The T that tables were measured with, where a group is all that its unit has; none where rows
            count as the rest of their table.
    """

    size: str
    class_of: tuple[int, ...]
    classes: tuple[GroupClass, ...]
    rows_per_unit: tuple[int, ...] = ()

    def draw(self, rows: Rows, rng: np.random.Generator) -> None:
        """Draw all columns of all rows, class by class, member by member."""
        assigned = np.asarray(self.class_of)[rows.codes[self.size]]
        inside = [np.flatnonzero(assigned == number) for number in range(len(self.classes))]
        counted = self._of_groups(rows) if self.rows_per_unit else rows
        parts = [counted.take(index) for index in inside]  # all before any column is put back
        for index, part, group in zip(inside, parts, self.classes, strict=True):
            _draw_class(part, group, self.size, rng)
            rows.put(index, part)

    def _of_groups(self, rows: Rows) -> Rows:
        """Return ``rows`` in the measure of the tables, whose classes and sizes of groups are those of units."""
        fanout = _ranks(rows.codes[OWNER], np.random.default_rng(0))[2]
        rank = np.searchsorted(self.rows_per_unit, fanout)
        weights = 1 / np.where(rank < len(self.rows_per_unit), np.append(self.rows_per_unit, 1)[rank], fanout)
        links = {(context, name): joint for (context, name), joint in rows.links.items() if context != UNIT_SIZE}
        return replace(rows, weights=weights, links=links)


def _draw_class(rows: Rows, group: GroupClass, size: str, rng: np.random.Generator) -> None:
    """Draw the members of groups of one class and add the columns to ``rows``."""
    rank, first, fanout = _ranks(rows.codes[OWNER], rng)
    order = group.order()
    for name in order:
        rows.add(name, len(group.marginals[name]), np.zeros(rows.n, dtype=np.int32))
    row_of = np.empty(rows.n, dtype=np.int64)  # of the member of rank r of the group that begins at f: row_of[f + r]
    row_of[first + rank] = np.arange(rows.n)
    context = [name for name in rows.codes if name not in group.marginals and name != OWNER]
    start, end = 0, 1
    while start < int(fanout.max(initial=0)):
        index = np.flatnonzero((rank >= start) & (rank < end))
        now = rows.take(index)
        now.codes = {name: now.codes[name] for name in context}
        # The rows of a group that are drawn now share its whole weight.
        weights = np.ones(now.n) if now.weights is None else now.weights
        now.weights = weights * fanout[index] / (np.minimum(fanout[index], end) - start)
        members = {FIRST: row_of[first[index]]} if start > 0 else {}
        if start > 1:
            members[BEFORE] = row_of[first[index] + np.maximum(rank[index] - (end - start), 1)]
        for prefix, others in members.items():
            for name in order:
                now.add(f"{prefix}{name}", rows.sizes[name], rows.codes[name][others])
        if len(members) > 1:
            for name in group.triples:
                of_first, of_other = (now.codes[f"{prefix}{name}"] for prefix in members)
                now.add(f"{_BOTH}{name}", rows.sizes[name] ** 2, of_first * rows.sizes[name] + of_other)
        for name in order:
            tables = group.pair_tables(name, now, list(members))
            drawn = draw_column(now, group.marginal(name, size, now), tables, rng)
            now.add(name, rows.sizes[name], drawn)
            rows.codes[name][index] = drawn
        # The first members are drawn one by one, then twice as many at once, and so on.
        start, end = end, end + 1 if end < 4 else 2 * end  # noqa: PLR2004


def _ranks(owner: Codes, rng: np.random.Generator) -> tuple[Numbers, Numbers, Numbers]:
    """Return, per row, its random rank in its group, where the group begins in the order by group, and its fanout."""
    n = len(owner)
    order = rng.permutation(n)
    order = order[np.argsort(owner[order], kind="stable")]
    begins, sizes = runs(owner[order])
    first, fanout, position = (np.empty(n, dtype=np.int64) for _ in range(3))
    first[order], fanout[order] = np.repeat(begins, sizes), np.repeat(sizes, sizes)
    position[order] = np.arange(n)
    return position - first, first, fanout
