"""Popularity of parents: how often the parents along a key are referred to, as released, to draw references by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from privbench_core.arrays import Array, Numbers
from privbench_core.guards import (
    FEW,
    FITTING_ROUNDS,
    NEGLIGIBLE,
    REDRAWING_ROUNDS,
    TINY,
    TOLERANCE,
)
from privbench_core.links.popularity_shapes import rank_sums
from privbench_core.stored import Storable
from privbench_core.tuning import TUNING

Margin = tuple[Numbers, Array]
"""Code of each parent in a column, shape (parents,), and how often codes are to be referred to, of any total."""
_SPREADS: tuple[float, ...] = tuple(np.linspace(0.0, 4.0, 17).tolist())
"""Standard deviations of the logarithm of popularity that are tried: even, to a factor of e⁴."""


@dataclass(frozen=True)
class ByRow(Storable):
    """Popularity of given parents, public ones or those of a range of rows: expected references, shape (parents,)."""

    counts: Array

    def at_scale(self, _scale: float) -> ByRow:
        """Return the same: there are as many of them at every scale."""
        return self


@dataclass(frozen=True)
class ByRank(Storable):
    """Popularity of a private parent's rows by rank, as synthetic rows correspond to no real ones.

    Attributes:
        ends: One past the last rank of each block, ascending.
        noisy: Noisy references to the parents of each block.
        sigma: Standard deviation of their noise.
        references: Noisy number of all references.
        scale: Synthetic parents per parent.
    """

    ends: Numbers
    noisy: Array
    sigma: float
    references: float
    scale: float = 1.0

    def at_scale(self, scale: float) -> ByRank:
        """Return the popularity for ``scale`` synthetic parents per parent."""
        return replace(self, scale=scale)

    def degrees(self, parents: int, references: int, ranks: Numbers | None = None) -> Array:
        """Return the references to the synthetic parents of some ranks, whole, shape (ranks,).

        In about descending order where ``ranks`` are ascending; all ranks if None.
        """
        significant = self.references > self.sigma
        total = max(1.0, self.references if significant else references / self.scale)
        sums = rank_sums(self.noisy, self.ends, self.sigma, total, max(1, round(parents / self.scale)))
        ends, cumulated = np.append(0, self.ends), np.append(0.0, np.cumsum(sums))
        everything = float(np.interp(parents / self.scale, ends, cumulated))

        def before(rank: Numbers) -> Array:
            share = np.interp(rank / self.scale, ends, cumulated) / everything if everything > 0 else rank / parents
            return np.asarray(np.rint(share * references))

        if ranks is None:
            return np.diff(before(np.arange(parents + 1)))
        return before(ranks + 1) - before(ranks)

    def weights(
        self, parents: Numbers, wanted: Numbers, rng: np.random.Generator, margins: Sequence[Margin] = ()
    ) -> Array:
        """Return the relative frequency with which each parent is to be referred to.

        Degrees are `allocated_degrees`: so kinds get the references that rows ask for, and degrees stay as released.

        Args:
            parents: Kind of each parent.
            wanted: Kind that each row asks for.
            rng: Sampling only.
            margins: Of further columns of popular parents, which rows do not ask for.
        """
        kinds = int(max(parents.max(initial=0), wanted.max(initial=0))) + 1
        room = np.bincount(parents, minlength=kinds)
        lacking: Array = np.where(room > 0, np.bincount(wanted, minlength=kinds), 0).astype(np.float64)
        return allocated_degrees(self.degrees(len(parents), int(lacking.sum())), parents, lacking, rng, margins)

    def weights_inside(self, of_parent: Numbers, of_row: Numbers, rng: np.random.Generator) -> Array:
        """Return the relative frequency of each parent, if rows choose among the parents of their own group.

        The number of rows of a group is given, so degrees cannot be allocated. Within groups weights are log-normal at
        first, of the spread with which degrees come closest to the released ones. Then each parent gets the released
        degree of its rank, and groups are scaled to their rows again, in turn, as in iterative proportional fitting.

        Args:
            of_parent: Group of each parent, -1 for one that is never chosen.
            of_row: Group of each row.
            rng: Sampling only.
        """
        possible = np.flatnonzero(of_parent >= 0)
        group = of_parent[possible]
        rows = np.bincount(of_row[np.isin(of_row, group)], minlength=int(group.max(initial=0)) + 1)
        wanted = np.sort(self.degrees(len(of_parent), int(rows.sum())))[::-1][: len(possible)]
        luck, rounding = rng.normal(size=len(possible)), rng.random(len(possible))

        def shares(spread: float) -> Array:
            weights = np.exp(spread * luck)
            return np.asarray(weights / np.bincount(group, weights)[group])

        def misfit(expected: Array) -> float:
            return float(np.abs(np.sort(np.floor(expected + rounding))[::-1] - wanted).sum())

        best = found = min((rows[group] * shares(spread) for spread in _SPREADS), key=misfit)
        for _ in range(FITTING_ROUNDS):
            ranked = np.empty(len(possible))
            ranked[np.argsort(-(found + TOLERANCE * rounding))] = wanted
            mixed = (found + ranked) / 2
            held = np.bincount(group, mixed)
            found = mixed * np.divide(rows, held, out=np.zeros(len(held)), where=held > 0)[group]
            best = min(best, found, key=misfit)
        result = np.zeros(len(of_parent))
        result[possible] = best
        return result


Popularity = ByRow | ByRank


def allocated_degrees(
    degrees: Array, kinds: Numbers, lacking: Array, rng: np.random.Generator, margins: Sequence[Margin] = ()
) -> Array:
    """Return a degree for each parent, such that the parents of a kind have about the references it lacks.

    Degrees are allocated from the largest down, to parents in the order of the logarithm of the references that kind
    and margins together imply for a parent, plus normal luck of that spread with which all of them come closest to what
    they lack. Then kinds exchange degrees until each has what it lacks. Where no exchange of two degrees helps, it is
    tried again with other luck, and in the end without margins.

    Args:
        degrees: In any order, shape (parents,).
        kinds: Kind of each parent, shape (parents,).
        lacking: References that rows of each kind are to get, shape (kinds,).
        rng: Sampling only.
        margins: Of further columns of popular parents, which rows do not ask for.
    """
    total, best, least = float(lacking.sum()), degrees, np.inf
    wanted = [(codes, shares * (total / max(float(shares.sum()), NEGLIGIBLE))) for codes, shares in margins]
    for attempt in range(REDRAWING_ROUNDS if margins else 1):
        if least <= TUNING.clear * total:
            break
        known = wanted if attempt < REDRAWING_ROUNDS - 1 else []
        found = _allocated(degrees, [*known, (kinds, lacking)], rng)
        if known and degrees.any():
            _exchange_best(found, [*known, (kinds, lacking)], rng)
        _balance(found, kinds, lacking)
        apart = _misfit(found, [(kinds, lacking)])
        if apart < least:
            best, least = found, apart
    return best


def _allocated(degrees: Array, margins: Sequence[Margin], rng: np.random.Generator) -> Array:
    """Return `allocated_degrees` before any exchange."""
    luck, descending = rng.normal(size=len(degrees)), np.sort(degrees)[::-1]
    usual = np.log(np.maximum(raked(np.ones(len(degrees)), margins), NEGLIGIBLE))

    def allocated(spread: float) -> Array:
        result = np.empty(len(degrees))
        result[np.argsort(-usual - max(spread, NEGLIGIBLE) * luck)] = descending
        return result

    return min(map(allocated, _SPREADS), key=lambda found: _misfit(found, margins))


def _exchange_best(degrees: Array, margins: Sequence[Margin], rng: np.random.Generator) -> None:
    """Exchange degrees of two parents, in place, that bring codes of margins closest to the references they lack.

    Of some pairs at random the best one is taken, again and again. Large degrees are proposed as often as they are
    large: small ones are right on average.
    """
    gaps = [references - np.bincount(codes, degrees, len(references)) for codes, references in margins]
    enough, failed = FEW * float(degrees.sum()) * len(margins), 0
    tried = 256  # exchanges, of which the best one is made; proposals follow the degrees after as many
    patience = 50  # exchanges in a row that failed
    for turn in range(2000):  # exchanges at most
        if failed == patience or sum(float(np.abs(gap).sum()) for gap in gaps) <= enough:
            return
        if turn % tried == 0:
            cumulated = np.cumsum(degrees)
        one = np.searchsorted(cumulated, rng.random(tried) * cumulated[-1])
        other = rng.integers(0, len(degrees), tried)
        moved = degrees[one] - degrees[other]
        change = np.zeros(tried)
        for gap, (codes, _) in zip(gaps, margins, strict=True):
            less, more = codes[one], codes[other]
            before = np.abs(gap[less]) + np.abs(gap[more])
            after = np.abs(gap[less] + moved) + np.abs(gap[more] - moved)
            change += (after - before) * (less != more)
        best = int(np.argmin(change))
        failed = 0 if change[best] < 0 else failed + 1
        if change[best] < 0:
            pair = [one[best], other[best]]
            for gap, (codes, _) in zip(gaps, margins, strict=True):
                np.add.at(gap, codes[pair], [moved[best], -moved[best]])
            degrees[pair] = degrees[pair[::-1]]


def _misfit(degrees: Array, margins: Sequence[Margin]) -> float:
    """Return how many references codes have too many, or too few."""
    return sum(
        float(np.abs(references - np.bincount(codes, degrees, len(references))).sum()) for codes, references in margins
    )


def _balance(degrees: Array, kinds: Numbers, wanted: Array) -> None:
    """Exchange degrees between kinds, in place, until each has about the references that it is to get."""
    lacking = wanted - np.bincount(kinds, degrees, minlength=len(wanted))
    order = np.argsort(kinds, kind="stable")
    members = np.split(order, np.searchsorted(kinds[order], np.arange(1, len(lacking))))
    different: dict[int, Array] = {}  # degrees of each kind, in order

    def exchange(poor: int, rich: int, *, beyond: bool) -> bool:
        """Exchange degrees of a kind that lacks references and one that has too many; False if no exchange helps.

        Most parents have one of few small degrees, so all exchanges of the two that help most are made at once. One of
        both kinds may be off by the rest then if it may go ``beyond``, as a single degree may be too large.
        """
        both = lacking[poor], -lacking[rich]
        if min(both) < 1 or not len(members[poor]) or not len(members[rich]):
            return False
        for kind in (poor, rich):
            if kind not in different:
                different[kind] = np.unique(degrees[members[kind]])
        small, large = different[poor], different[rich]
        partner = np.searchsorted(large, small + (max(both) if beyond else min(both)), side="right") - 1
        gained = np.where(partner >= 0, large[partner] - small, 0)
        best = int(np.argmax(gained))
        if gained[best] <= 0:
            return False
        less, more = small[best], large[partner[best]]
        one, other = (members[k][degrees[members[k]] == degree] for k, degree in ((poor, less), (rich, more)))
        number = min(len(one), len(other), max(1, int(min(both) // gained[best])))
        degrees[one[:number]], degrees[other[:number]] = more, less
        lacking[poor] -= number * gained[best]
        lacking[rich] += number * gained[best]
        del different[poor], different[rich]
        return True

    stuck = np.zeros(len(lacking), dtype=bool)
    for _ in range(FITTING_ROUNDS * len(lacking)):
        poor = int(np.argmax(np.where(stuck, 0.0, lacking)))
        if stuck[poor] or lacking[poor] < 1:
            return
        others = np.argsort(lacking, kind="stable")[:24].tolist()  # the partners with the most first
        stuck[poor] = not any(exchange(poor, rich, beyond=beyond) for beyond in (False, True) for rich in others)


def raked(room: Array, margins: Sequence[Margin]) -> Array:
    """Return how often kinds of parents are to be referred to, from how many parents there are of each.

    Args:
        room: Parents of each kind, shape (kinds,).
        margins: Code of each kind in a column, shape (kinds,), and how often codes are to be referred to, of any total.
    """
    wanted = room.copy()
    for _ in range(FITTING_ROUNDS):
        for codes, marginal in margins:
            current = np.bincount(codes, wanted, len(marginal))
            wanted *= np.divide(marginal, current, out=np.zeros_like(marginal), where=current > TINY)[codes]
    return wanted
