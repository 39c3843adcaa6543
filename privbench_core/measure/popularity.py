"""Measure how often the parents along a key are referred to, over rows.

A unit has many references, and one noisy number per parent must bound them. Every row of a unit of s rows weighs
min(1/T, 1/s), so units of up to T rows count in full and larger ones as T rows, with a noise of T. Which T follows from
the released size of the table, by the error that it is expected to leave. Single rows of a public parent are counted
with two where that tells more: units with many rows may refer to others than those with few, and a large T is rough.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from privbench_core.estimate.fitting import combine
from privbench_core.estimate.popularity import (
    CloserLook,
    rank_ends,
    rank_sums,
    row_counts,
    some_of_all,
    stands_out,
)
from privbench_core.estimate.segmentation import ABSOLUTE
from privbench_core.models.popularity import ByRank, ByRow
from privbench_core.models.row_count import RowCount
from privbench_core.privacy.budget import Measure, Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.queries import Marginal, ParentCounts, RankSums
from privbench_core.privacy.session import PrivateSession
from privbench_core.schema.constraints import ForeignKey

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]
Noisy = tuple[Array, float]
"""Noisy numbers, and the standard deviation of the noise of each."""
_NOTHING = 1e-300
_RANKS_SHARE = 0.3  # of the price, where the parent is public: for the shape of all rows that noise hides
_GROUPS_SHARE = 0.2  # for groups of rows; single rows get the rest
_EARLY = 0.1  # of what single rows get, to see how many rows count where units are clipped
_CLOSER = 0.3  # of what single rows get, for a closer look; a third to a half differ little (flights, simulated)
_TOLD = 0.5  # of what stands out for sure: parents of that many references are hidden half of the time (simulated)
_SHAPE_NUMBERS = 25  # numbers that a shape comes down to
_OTHERWISE = 0.3  # how far units with more than T rows refer to other parents, as a rule
_WHOLLY = 1.0  # the same, at worst
_MOST_PARENTS = 1 << 20  # ranks that are looked at
_MOST_GROUPS = 256  # groups of parents by rank; chosen by hand
_WELL_KNOWN = 0.01  # of all references: error that is no reason to clip units, which takes time where rows are many
_CLEAR = 4  # standard deviations of noise that a group of average popularity has


def rank_popularity(session: PrivateSession, key: ForeignKey, size: RowCount, present: float, price: Price) -> ByRank:
    """References to the most popular row of a private parent, the next, and so on, for at most ``price``.

    Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or removing
    one privacy unit; ``docs/privacy.md``, section 5, mechanisms 4, 7 and 9.

    Args:
        session: Open for the step.
        key: Refers to a private table.
        size: Released, of the table that has the key.
        present: Released share of its rows that refer to some row.
        price: Of everything here.
    """
    references = max(1.0, size.rows * present)
    ends = rank_ends(min(math.ceil(references), _MOST_PARENTS))
    look = _for_shapes(_looks(session, key, size), price)
    noisy, sigma = look.ask("ranks", RankSums(tuple(ends.tolist())), price)
    return ByRank(ends, noisy * look.scale, sigma * look.scale, references)


@dataclass(frozen=True)
class ParentLooks:
    """What has been released of the references to the rows of a public parent.

    Attributes:
        size: Released, of the table that has the key.
        optional: Whether a row may refer to none.
        ends: Of the blocks of ranks.
        group_of: Group of each parent.
        of_ranks: How ranks and groups are looked at.
        of_single: How single parents are looked at: one look, or one and closer ones.
        found: Noisy references to blocks of ranks, to groups and to single parents, each with the standard deviation of
            its noise, in the units of the look's view.
    """

    size: RowCount
    optional: bool
    ends: Numbers
    group_of: Numbers
    of_ranks: _Look
    of_single: tuple[_Look, ...]
    found: tuple[Noisy, ...]

    def again(self, price: Price) -> ParentLooks:
        """The same at less noise, for ``price``: all is asked once more, and averaged.

        Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or
        removing one privacy unit; ``docs/privacy.md``, section 5, mechanisms 4, 7 and 9.
        """
        if price.amount <= 0:
            return self
        ranks = self.of_ranks.ask("ranks again", RankSums(tuple(self.ends.tolist())), price.share(_RANKS_SHARE))
        groups = self.of_ranks.ask("groups of parents again", ParentCounts(self.group_of), price.share(_GROUPS_SHARE))
        single = _single(self.of_single, len(self.group_of), price.share(1 - _RANKS_SHARE - _GROUPS_SHARE), " again")
        more = ranks, groups, *single
        better = [_averaged(one, other) for one, other in zip(self.found, more, strict=False)]
        return replace(self, found=(*better, *self.found[len(more) :]))

    @cached_property
    def popularity(self) -> tuple[ByRow, float]:
        """How often each row is referred to, and the share of rows that refer to none."""
        parents, (ranks, groups, fine, *closer) = len(self.group_of), self.found
        sizes = np.diff(self.ends, prepend=0).astype(np.float64)
        scale, of_groups = self.of_single[0].scale, self.of_ranks.scale
        single, coarse = (fine[1] * scale) ** 2, (groups[1] * of_groups) ** 2
        weight = single / (single + coarse)
        found = float(weight * groups[0][-1] * of_groups + (1 - weight) * fine[0][-1] * scale)
        none = some_of_all(found, math.sqrt(weight * coarse), self.size.rows)
        references = max(1.0, self.size.rows - none if self.optional else self.size.rows)
        noisy, sigma = ranks[0] * self.of_ranks.scale, ranks[1] * self.of_ranks.scale
        counts = row_counts(
            fine[0][:-1] * scale,
            fine[1] * scale,
            self.group_of,
            (groups[0][:-1] * of_groups, groups[1] * of_groups),
            (rank_sums(noisy, self.ends, sigma, references, parents) / sizes, sizes),
            references,
            [_closer(noisy[:-1], sigma, look) for (noisy, sigma), look in zip(closer, self.of_single[1:], strict=True)],
        )
        return ByRow(counts), none / max(none + float(counts.sum()), 1.0) if self.optional else 0.0


def row_popularity(
    session: PrivateSession, key: ForeignKey, size: RowCount, place: Numbers, price: Price
) -> ParentLooks:
    """References to each row of a public parent, and to none, for at most ``price``.

    Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or removing
    one privacy unit; ``docs/privacy.md``, section 5, mechanisms 4, 7 and 9.

    Args:
        session: Open for the step.
        key: Refers to a public table.
        size: Released, of the table that has the key.
        place: Of each of its rows, at least one, in an order in which neighbours are likely to be as popular, see
            `order_of_alike`.
        price: Of everything here.
    """
    looks, parents = _looks(session, key, size), len(place)
    ends = rank_ends(parents)
    sizes = np.diff(ends, prepend=0).astype(np.float64)
    of_ranks = _for_shapes(looks, price.share(_RANKS_SHARE))
    ranks = of_ranks.ask("ranks", RankSums(tuple(ends.tolist())), price.share(_RANKS_SHARE))
    shape = rank_sums(ranks[0] * of_ranks.scale, ends, ranks[1] * of_ranks.scale, max(1.0, size.rows), parents)
    likely = shape / sizes / max(size.rows, 1.0)
    single = price.share(1 - _RANKS_SHARE - _GROUPS_SHARE)

    def hidden(noise: float) -> float:
        """Of all references, what is wrong by noise: all of a parent that it hides."""
        return float(sizes @ np.where(likely > _TOLD * stands_out(parents) * noise, ABSOLUTE * noise, likely))

    plain, early = min(_error(look, single, _OTHERWISE, hidden) for look in looks), None
    if price.measure is Measure.ZCDP and len(looks) > 1 and plain > _WELL_KNOWN:
        looks, early = _clipped(looks, parents, float(sizes @ likely**2), single.share(_EARLY))
        single = single.share(1 - _EARLY)
    look, closer = _best(looks, single, _WHOLLY, hidden), _best(looks, single, _OTHERWISE, hidden)
    # One look tells as much, unless the closer one has half the noise.
    several = closer.noise(single) < look.noise(single) / 2
    of_single = [replace(look, share=1 - _CLOSER), replace(closer, share=_CLOSER)] if several else [closer]
    groups = min(parents, _MOST_GROUPS)
    noise = of_ranks.sigma(price.share(_GROUPS_SHARE))
    groups = max(1, min(groups, int(size.rows / (_CLEAR * noise))))
    group_of = place * groups // parents
    coarse = of_ranks.ask("groups of parents", ParentCounts(group_of), price.share(_GROUPS_SHARE))
    found = _single(of_single, parents, single, "")
    if early is not None and of_single[-1].most == looks[0].most:
        found[-1] = _averaged(found[-1], early)
    elif early is not None:
        of_single, found = [*of_single, replace(looks[0], share=0.0)], [*found, early]
    return ParentLooks(size, key.optional, ends, group_of, of_ranks, tuple(of_single), (ranks, coarse, *found))


def _clipped(looks: list[_Look], parents: int, alike: float, price: Price) -> tuple[list[_Look], Noisy]:
    """The same looks at single parents with units clipped in L2 norm, and what the first one, for ``price``, counts.

    What T = 1 counts says how often a unit refers to the same parent, and has the least noise; where that hides it, it
    is taken to be more often. It is no less often than two rows of any units do, which is how ``alike`` these are.
    """
    noisy, sigma = looks[0].ask("parents, early", ParentCounts(np.arange(parents), clipped=True), price)
    collisions = looks[0].size.collisions(looks[0].most, float(noisy.sum()) - sigma * math.sqrt(len(noisy)))
    collisions = min(max(collisions, alike), 1.0)
    return [replace(look, collisions=collisions) for look in looks], (noisy, sigma)


def _single(looks: Sequence[_Look], parents: int, price: Price, name: str) -> list[Noisy]:
    """References to single parents, by each look that has a share of the price: all but an early one, the last."""
    each = ParentCounts(np.arange(parents), clipped=looks[0].collisions is not None)
    return [
        look.ask(f"parents{name}{', closer' * place}", each, price.share(look.share))
        for place, look in enumerate(looks)
        if look.share
    ]


def _averaged(one: Noisy, other: Noisy) -> Noisy:
    """The same noisy numbers by two looks, by inverse variance."""
    values, sigmas = combine(*one, *other)
    return values, float(sigmas[0])


@dataclass(frozen=True)
class _Look:
    """A view in which units of up to T rows count in full.

    Attributes:
        view: Of references.
        most: T.
        size: Of the table that has the key.
        rows: Of all units.
        collisions: How likely two rows of a unit refer to the same parent, where units are clipped in L2 norm.
        share: Of what is paid for looks at single parents.
    """

    view: Curator
    most: int
    size: RowCount
    rows: float
    collisions: float | None = None
    share: float = 1.0

    @property
    def by_class(self) -> Array:
        """Number of rows of each class of sizes that count."""
        return self.size.counted(self.most, 1.0 if self.collisions is None else self.collisions)

    @property
    def counted(self) -> float:
        """Number of rows that count, at least one."""
        whole = max(float(self.size.rows_of.sum()), _NOTHING)
        return max(1.0, self.size.rows * float(self.by_class.sum()) / whole)

    @property
    def lost(self) -> float:
        """Share of the rows that do not count."""
        return 1 - self.counted / self.rows

    @property
    def scale(self) -> float:
        """Of answers to references: a unit beyond T is taken to refer to parents as the others do."""
        return self.most * self.rows / self.counted

    def sigma(self, price: Price) -> float:
        """Standard deviation of a number of references that is asked for at this price."""
        return self.view.sigma([Marginal(())], price) * self.scale

    def noise(self, price: Price) -> float:
        """The same, as a share of all references."""
        return self.sigma(price) / self.rows

    def ask(self, name: str, query: ParentCounts | RankSums, price: Price) -> Noisy:
        """Noisy answers, unscaled, and the standard deviation of their noise."""
        noisy = self.view.measure(name, [query], price)
        return noisy.values[0], noisy.sigma


def _looks(session: PrivateSession, key: ForeignKey, size: RowCount) -> list[_Look]:
    looks = [
        _Look(session.references(key, most, f"units of up to {most:,} rows"), most, size, size.rows)
        for most in size.classes
    ]
    return [replace(look, rows=max(size.rows, *(each.counted for each in looks))) for look in looks]


def _best(looks: list[_Look], price: Price, otherwise: float, hidden: Callable[[float], float]) -> _Look:
    """The look with the least expected error, as a share of all references.

    Args:
        looks: One per T.
        price: Of each.
        otherwise: How far references of the rows that do not count are taken to differ from the others.
        hidden: Noise of a parent's share of all references -> error by that.
    """
    return min(looks, key=lambda look: _error(look, price, otherwise, hidden))


def _error(look: _Look, price: Price, otherwise: float, hidden: Callable[[float], float]) -> float:
    return otherwise * look.lost + hidden(look.noise(price))


def _for_shapes(looks: list[_Look], price: Price) -> _Look:
    """The look with the least expected error of how references are spread over ranks, or over groups."""
    # No number is off by more than itself, as those that noise hides are not kept: as under Zipf's law.
    ranks = np.arange(1, _SHAPE_NUMBERS + 1)
    likely = 1 / (ranks * (1 / ranks).sum())
    return _best(looks, price, _OTHERWISE, lambda noise: float(np.minimum(ABSOLUTE * noise, likely).sum()))


def _closer(noisy: Array, sigma: float, look: _Look) -> CloserLook:
    """What was counted with T, in rows; of units with more rows, the share that counts is that of all of them."""
    size, counted = look.size, look.by_class
    larger = counted < size.rows_of
    least = float(counted[larger].sum()) / max(float(size.rows_of[larger].sum()), _NOTHING) if larger.any() else 1.0
    least = float(np.clip(least, 1 / size.classes[-1], 1.0))
    mean = float(counted.sum()) / max(float(size.rows_of.sum()), _NOTHING)
    return CloserLook(noisy * look.most, sigma * look.most, least, float(np.clip(mean, least, 1.0)))
