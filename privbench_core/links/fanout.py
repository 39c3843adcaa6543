"""Fanout along an ownership key, as released: how many children parents have, and how children follow them.

Rows that two ways lead to are among it: of two keys of a row, or of a key and one of its owner's, both ways may lead to
the same table (the project of a ticket, and that of its label), and mostly to the same row of it. How often they do is
one number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from privbench_core.arrays import Array
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.fanout_bins import FanoutCodec
from privbench_core.errors import InternalError
from privbench_core.guards import MAX_SHARING, SHOWN_DEVIATIONS, TINY
from privbench_core.links.linking import CrossMarginal
from privbench_core.links.parent_choice import Level, ParentChoice
from privbench_core.privacy.features import SameReference
from privbench_core.privacy.relations import is_set_null_across_units
from privbench_core.profiles.lags import Lag
from privbench_core.profiles.profile import parent_column
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema
from privbench_core.stored import Storable


@dataclass(frozen=True)
class Agreement(Storable):
    """Released: how often rows have the same code as a sibling.

    Attributes:
        column: Of the children.
        groups: Of each of its codes, those that count as the same, shape (codes,).
        share: Of the rows that have siblings, those that agree with one of them.
        sigma: Standard deviation of its noise.
    """

    column: str
    groups: NDArray[np.int64]
    share: float
    sigma: float

    def wanted(self, now: float) -> float:
        """Return the share to reach from ``now``: as far as noise does not explain the distance."""
        gap = self.share - now
        return now + gap * max(0.0, 1 - (self.sigma / gap) ** 2) if gap else now


@dataclass(frozen=True)
class Fanout(Storable):
    """Released: the link along one ownership key.

    Attributes:
        sizes: Coder of the numbers of children.
        counts: Probabilities of the number of children, shape (codes of ``sizes``,).
        fanout_tables: Parent's column -> joint (parent's column, number of children); `children_column` is one as well.
        pair_tables: (context column, child's column) -> joint; context is "parent.<column>", `OWNER_FANOUT`, `PLACE`.
        owned: Number of children that have an owner.
        ownerless: Number of children whose owner key is NULL; each is a unit of its own.
        cross_marginals: Where children are drawn by themselves: what links to owners are learned from; else None.
        places: Up to how many members the places of children in their group are distinguished; 0 if none are.
        lags: How long after their owner children are dated.
        agreements: How often children of one owner agree.
    """

    sizes: Discretizer
    counts: Array
    fanout_tables: Mapping[str, Array]
    pair_tables: Mapping[tuple[str, str], Array]
    owned: float
    ownerless: float = 0.0
    cross_marginals: tuple[CrossMarginal, ...] | None = None
    places: int = 0
    lags: tuple[Lag, ...] = ()
    agreements: tuple[Agreement, ...] = ()

    @property
    def codec(self) -> FanoutCodec:
        """Codec of the numbers of children; raises InternalError if these have none of their own."""
        if not isinstance(self.sizes.codec, FanoutCodec):
            raise InternalError("numbers of children have a codec of their own")
        return self.sizes.codec

    def numbers(self, parents: int, rng: np.random.Generator, stratum: tuple[int, int] = (0, 1)) -> NDArray[np.int64]:
        """Numbers of children of so many parents in ascending order: evenly spaced quantiles, shape (parents,).

        There is one parent of 900 children where one is expected, neither none nor three.

        Args:
            parents: Number of parents.
            rng: Sampling only.
            stratum: Which of how many equally large ranges of parents these are: each has the quantiles between those
                of the others, so that all of them together are as evenly spaced.

        Raises:
            InternalError: Numbers of children have no codec of their own.
        """
        codec, (code_of, weights) = self.codec, self.sizes.shares
        ends = np.cumsum(self.counts[code_of] * weights)
        if not ends[-1] > 0:
            return np.zeros(parents, dtype=np.int64)
        number, strata = stratum
        places = (np.arange(parents) + (number + rng.random()) / strata) * (ends[-1] / max(parents, 1))
        cells = np.minimum(np.searchsorted(ends, places, side="right"), np.flatnonzero(np.diff(ends, prepend=0.0))[-1])
        begins = np.append(0.0, ends[:-1])[cells]
        return codec.within(cells, np.clip((places - begins) / (ends[cells] - begins), 0.0, 1.0))

    def looks_at(self, name: str) -> bool:
        """Whether numbers of children, or their columns, depend on a column of their parents."""
        return name in self.fanout_tables or any(context == parent_column(name) for context, _ in self.pair_tables)

    @property
    def at_bound(self) -> float:
        """Share of the children whose parents have as many as the declared bound lets them have, and may have more.

        Numbers beyond the bound are counted as the bound, in the last cell: what it holds beyond the numbers of the
        octave below. Bounds up to which each number has a cell are rules that people know (two parents, five cards),
        and have none.
        """
        codec = self.sizes.codec
        if not isinstance(codec, FanoutCodec) or codec.in_singles:
            return 0.0
        code_of, weights = self.sizes.shares
        parents = self.counts[code_of] * weights
        widths = np.diff(codec.starts, append=codec.bound + 1)
        below = np.flatnonzero(2 * codec.starts[:-1] >= codec.bound)
        expected = float(parents[below].sum() / max(widths[below].sum(), 1)) * widths[-1]
        beyond = max(0.0, float(parents[-1]) - expected) * codec.bound
        return float(beyond / max(float(parents @ codec.means()), TINY))


@dataclass(frozen=True)
class CommonReference(Storable):
    """Released: how often what a row refers to refers to the same row as the row itself does, or its owner.

    Attributes:
        theirs: Columns of the parent that name the row that both lead to.
        mine: Columns of the row, or of its owner, that do.
        of_owner: Whether they are the owner's.
        share: Of the rows that both ways lead somewhere from.
        sigma: Standard deviation of its noise.
    """

    theirs: tuple[str, ...]
    mine: tuple[str, ...]
    of_owner: bool
    share: float
    sigma: float

    def forced(self, chance: float) -> float:
        """Return the share of rows that have to agree where a share ``chance`` of the others does: 0 within noise."""
        gap = self.share - chance
        if gap <= SHOWN_DEVIATIONS * self.sigma or chance >= 1:
            return 0.0
        always = 1 - self.share < SHOWN_DEVIATIONS * self.sigma
        return 1.0 if always else gap / (1 - chance)


def common_references(schema: Schema, key: ForeignKey) -> tuple[SameReference, ...]:
    """Return the pairs of ways by which rows may refer to one row along ``key``: public.

    Not along keys that become NULL with another unit, whose noise would hide it.
    """
    table, parent = schema.table(key.child), schema.table(key.parent)
    if key.owner or key.name in schema.deferred_keys or is_set_null_across_units(schema, key):
        return ()
    drawn = [other for other in table.foreign_keys if other.name not in schema.deferred_keys]
    drawn.sort(key=lambda other: (not other.owner, not other.same_unit, other.optional, -len(other.columns)))
    owner, before = table.owner_key, drawn[: drawn.index(key)]
    mine: list[tuple[ForeignKey | None, ForeignKey]]
    mine = [(None, other) for other in before if set(key.columns).isdisjoint(other.columns)]
    mine += [(owner, other) for other in (schema.table(owner.parent).foreign_keys if owner else ())]
    ends: list[tuple[ForeignKey | None, tuple[str, tuple[str, ...]]]] = [(None, (key.parent, key.parent_columns))]
    ends += [(theirs, (theirs.parent, theirs.parent_columns)) for theirs in parent.foreign_keys]
    found = (
        SameReference(key, theirs, of, own)
        for theirs, end in ends
        for of, own in mine
        if end == (own.parent, own.parent_columns)
        and not (key.same_unit and own.parent == schema.unit)  # which is the same anyway
        and all(schema.keeps(way) for way in (theirs, own) if way is not None)
    )
    return tuple(found)[:MAX_SHARING]


def wanting_common(
    choice: ParentChoice, common: CommonReference, ends: Level, weights: NDArray[np.float64], rng: np.random.Generator
) -> ParentChoice:
    """Return a choice in which as many rows as was measured want a parent that leads to the same row as they do.

    Args:
        choice: What rows may choose from.
        common: Released.
        ends: Number of the row that each parent leads to, and of that which each row does; -1 for none.
        weights: How often each parent is referred to, relative to the others.
        rng: Sampling only.
    """
    of_parent, of_row = ends
    none = int(max(of_parent.max(initial=-1), of_row.max(initial=-1))) + 1
    there = np.where(of_parent < 0, none, of_parent)
    shares = np.bincount(there, weights, none + 1) / max(float(weights.sum()), TINY)
    known = of_row >= 0
    chance = float(shares[of_row[known]].mean()) if known.any() else 1.0
    forced = known & (rng.random(len(of_row)) < common.forced(chance))
    if not forced.any():
        return choice
    return replace(choice, common=(there, np.where(forced, of_row, none + 1)))
