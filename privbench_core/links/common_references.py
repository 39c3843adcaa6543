"""Rows that two ways lead to: the project of a ticket, and that of the label that it is given.

Of two keys of a row, or of a key and one of its owner's, both ways may lead to the same table, and mostly to the same
row of it. How often they do is one number.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from privbench_core.guards import MAX_SHARING, SHOWN_DEVIATIONS, TINY
from privbench_core.links.parent_choice import Level, ParentChoice
from privbench_core.privacy.features import SameReference
from privbench_core.privacy.relations import is_set_null_across_units
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema
from privbench_core.stored import Storable


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
