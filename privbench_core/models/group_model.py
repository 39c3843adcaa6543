"""A model of groups: the children of one owner are drawn one after the other, each attribute given what is there.

PrivPetal (section 4, Algorithm 1). Released are, for each class of group sizes, pair tables of the permutation
relation: attributes of one child, of a child and its owner (the size of the group among them), and of two children of
one owner. An attribute of the m-th child is drawn from a small joint of itself and the few columns that tell most about
it: of the child, of its owner, of the first child and of one before it, for all groups of a class at once.

Who is first is chosen at random, so that the order of the rows says nothing; and as pair tables of two children are
symmetric, all members of a group have the same distribution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.estimate.fitting import mutual_information
from privbench_core.models.conditional import PairMarginal, draw_column
from privbench_core.models.rows import Rows

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]
Pair = tuple[str, str]
KIND = "members"
OWNER = "#owner"  # context column: which owner a row belongs to
FIRST, BEFORE = "first.", "before."  # context columns: of the first child of the group, and of one before this one
_BOTH = "first and before."  # of both of them, as one code
_NOTHING = 1e-12
_ALONE = 4  # members that are drawn one at a time; then twice as many at once, and so on


@dataclass(frozen=True)
class GroupClass:
    """Released pair tables of the groups of some sizes, all adding up to 1.

    Attributes:
        marginals: Column -> probabilities, shape (size,).
        within: (column, column) of one child -> joint.
        above: (column of the owner's context, column) -> joint.
        between: (column, column of another child) -> joint.
        triples: Column -> joint of it in three children.
    """

    marginals: Mapping[str, Array]
    within: Mapping[Pair, Array] = field(default_factory=dict)
    above: Mapping[Pair, Array] = field(default_factory=dict)
    between: Mapping[Pair, Array] = field(default_factory=dict)
    triples: Mapping[str, Array] = field(default_factory=dict)

    def pair_tables(self, column: str, rows: Rows, members: Sequence[str]) -> list[PairMarginal]:
        """Released joints of ``column`` and the columns of ``rows``; ``members``: prefixes of other children there."""
        above = {**rows.links, **self.above}
        pair_tables = [PairMarginal(a, joint.T) for (a, c), joint in above.items() if c == column and a in rows.codes]
        pair_tables += [
            PairMarginal(b, joint) for (a, b), joint in self.within.items() if a == column and b in rows.codes
        ]
        pair_tables += [
            PairMarginal(a, joint.T) for (a, b), joint in self.within.items() if b == column and a in rows.codes
        ]
        triple = self.triples.get(column) if _BOTH + column in rows.codes else None
        if triple is not None:
            pair_tables.append(PairMarginal(_BOTH + column, triple.reshape(len(triple), -1)))
        for prefix in members:
            for (a, b), joint in self.between.items():
                if a == b == column and triple is not None:
                    continue  # it says so too
                if a == b == column:
                    pair_tables.append(PairMarginal(f"{prefix}{a}", (joint + joint.T) / 2))
                elif a == column:
                    pair_tables.append(PairMarginal(f"{prefix}{b}", joint))
                elif b == column:
                    pair_tables.append(PairMarginal(f"{prefix}{a}", joint.T))
        return pair_tables

    def marginal(self, column: str, size: str, rows: Rows) -> Array:
        """Probabilities of ``column`` in groups of the sizes of ``rows``: later members are in larger groups only."""
        joint = self.above.get((size, column))
        if joint is None:
            return self.marginals[column]
        there = np.bincount(rows.codes[size], weights=rows.weights, minlength=len(joint))
        return np.asarray(
            there @ (joint / np.maximum(joint.sum(axis=1, keepdims=True), _NOTHING)) / max(there.sum(), _NOTHING)
        )

    def order(self) -> list[str]:
        """The columns, first those that tell most about the others."""
        tells = dict.fromkeys(self.marginals, 0.0)
        for (a, b), joint in self.within.items():
            information = mutual_information(joint)
            tells[a] += information
            tells[b] += information
        return sorted(tells, key=lambda name: -tells[name])


@dataclass(frozen=True)
class GroupModel:
    """A released model of the attributes of an owned table.

    Attributes:
        size: Name of the context column with the size of the group.
        class_of: Class of each code of it.
        classes: The classes of sizes.
    """

    size: str
    class_of: tuple[int, ...]
    classes: tuple[GroupClass, ...]

    def draw(self, rows: Rows, rng: np.random.Generator) -> None:
        """Draw all columns of all rows, class by class, member by member."""
        assigned = np.asarray(self.class_of)[rows.codes[self.size]]
        inside = [np.flatnonzero(assigned == number) for number in range(len(self.classes))]
        parts = [rows.take(index) for index in inside]  # all before any column is put back
        for index, part, group in zip(inside, parts, self.classes, strict=True):
            _draw_class(part, group, self.size, rng)
            rows.put(index, part)

    def to_dict(self) -> dict[str, Any]:
        """A description that `Artifact` can store."""
        tables = ("within", "above", "between")
        classes = [
            {
                "marginals": [[name, p] for name, p in group.marginals.items()],
                **{kind: [[a, b, joint] for (a, b), joint in getattr(group, kind).items()] for kind in tables},
                "triples": [[name, joint] for name, joint in group.triples.items()],
            }
            for group in self.classes
        ]
        return {"kind": KIND, "size": self.size, "class_of": list(self.class_of), "classes": classes}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> GroupModel:
        """The inverse of `to_dict`."""
        classes = tuple(
            GroupClass(
                dict(group["marginals"]),
                _by_pair(group["within"]),
                _by_pair(group["above"]),
                _by_pair(group["between"]),
                dict(group["triples"]),
            )
            for group in stored["classes"]
        )
        return cls(stored["size"], tuple(stored["class_of"]), classes)


def _by_pair(stored: Sequence[tuple[str, str, Array]]) -> dict[Pair, Array]:
    return {(a, b): joint for a, b, joint in stored}


def _draw_class(rows: Rows, group: GroupClass, size: str, rng: np.random.Generator) -> None:
    """Draw the members of groups of one class; ``rows`` gets the columns."""
    rank, first, siblings = _ranks(rows.codes[OWNER], rng)
    order = group.order()
    for name in order:
        rows.add(name, len(group.marginals[name]), np.zeros(rows.n, dtype=np.int32))
    place = np.empty(rows.n, dtype=np.int64)  # row of the member of rank r of the group that begins at f: place[f + r]
    place[first + rank] = np.arange(rows.n)
    context = [name for name in rows.codes if name not in group.marginals and name != OWNER]
    start, end = 0, 1
    while start < int(siblings.max(initial=0)):
        index = np.flatnonzero((rank >= start) & (rank < end))
        now = rows.take(index)
        now.codes = {name: now.codes[name] for name in context}
        # One row stands for its group, or for its share of those drawn now.
        alike = np.ones(now.n) if now.weights is None else now.weights
        now.weights = alike * siblings[index] / (np.minimum(siblings[index], end) - start)
        members = [(FIRST, place[first[index]])] if start > 0 else []
        if start > 1:
            members.append((BEFORE, place[first[index] + np.maximum(rank[index] - (end - start), 1)]))
        for prefix, others in members:
            for name in order:
                now.add(f"{prefix}{name}", rows.sizes[name], rows.codes[name][others])
        if len(members) > 1:
            for name in group.triples:
                of_first, of_other = (now.codes[f"{prefix}{name}"] for prefix, _ in members)
                now.add(f"{_BOTH}{name}", rows.sizes[name] ** 2, of_first * rows.sizes[name] + of_other)
        for name in order:
            pair_tables = group.pair_tables(name, now, [prefix for prefix, _ in members])
            drawn = draw_column(now, group.marginal(name, size, now), pair_tables, rng)
            now.add(name, rows.sizes[name], drawn)
            rows.codes[name][index] = drawn
        start, end = end, end + 1 if end < _ALONE else 2 * end


def _ranks(owner: Codes, rng: np.random.Generator) -> tuple[Numbers, Numbers, Numbers]:
    """For each row its place among its siblings, in random order, where these begin in that order, and how many."""
    n = len(owner)
    order = rng.permutation(n)
    order = order[np.argsort(owner[order], kind="stable")]
    begins = np.flatnonzero(np.r_[True, np.diff(owner[order]) != 0][:n])
    sizes = np.diff(np.append(begins, n))
    first, siblings = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    first[order] = np.repeat(begins, sizes)
    siblings[order] = np.repeat(sizes, sizes)
    place = np.empty(n, dtype=np.int64)
    place[order] = np.arange(n)
    return place - first, first, siblings
