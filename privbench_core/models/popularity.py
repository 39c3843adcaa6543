"""How often the parents along a key are referred to: released, and what synthetic references are shared out by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privbench_core.estimate.popularity import rank_sums

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]
_SINGLES = 64  # most popular parents that are handed out one by one
_SWAPS = 4  # of degrees, per kind, in the end
_GROWTH = 1.1  # of the runs of ranks that are handed out together
_SPREADS = tuple(quarter / 4 for quarter in range(17))  # of the logarithms of weights inside of a group


@dataclass(frozen=True)
class ByRow:
    """Of a public parent: expected references to each of its rows, shape (parents,)."""

    counts: Array

    def at_scale(self, _scale: float) -> ByRow:
        """The same: a public table has as many rows at every scale."""
        return self

    def weights(self, _parents: Numbers, _wanted: Numbers, _rng: np.random.Generator) -> Array:
        """How often each parent is to be referred to, relative to the others."""
        return self.counts

    def to_dict(self) -> dict[str, Any]:
        """A description that `Artifact` can store."""
        return {"counts": self.counts}


@dataclass(frozen=True)
class ByRank:
    """Of a private parent, whose synthetic rows are nobody: references to the most popular one, the next, and so on.

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
        """For so many synthetic parents per parent."""
        return replace(self, scale=scale)

    def degrees(self, parents: int, references: int) -> Array:
        """References to each of so many synthetic parents, whole and in about descending order, shape (parents,)."""
        there = self.references if self.references > self.sigma else references / self.scale  # noise hides all
        sums = rank_sums(self.noisy, self.ends, self.sigma, max(1.0, there), max(1, round(parents / self.scale)))
        whole = np.interp(np.arange(parents + 1) / self.scale, np.append(0, self.ends), np.append(0.0, np.cumsum(sums)))
        shares = whole / whole[-1] if whole[-1] > 0 else np.arange(parents + 1) / max(parents, 1)
        return np.diff(np.rint(shares * references))

    def weights(self, parents: Numbers, wanted: Numbers, rng: np.random.Generator) -> Array:
        """How often each parent is to be referred to, relative to the others.

        The degrees are handed out from the largest down, each run of them to kinds of parents in proportion to the
        references that these still lack: so kinds get the references that rows ask for, and degrees stay as released.

        Args:
            parents: Kind of each parent.
            wanted: Kind that each row asks for.
            rng: Sampling only.
        """
        kinds = int(max(parents.max(initial=0), wanted.max(initial=0))) + 1
        room = np.bincount(parents, minlength=kinds)
        lacking: Array = np.where(room > 0, np.bincount(wanted, minlength=kinds), 0).astype(np.float64)
        degrees = self.degrees(len(parents), int(lacking.sum()))
        shuffled = rng.permutation(len(parents))
        of_kind = shuffled[np.argsort(parents[shuffled], kind="stable")]
        next_of = np.cumsum(room) - room
        result = np.zeros(len(parents))
        for start, end in _runs(len(parents)):
            given = _shared(end - start, lacking, room, rng)
            kind = np.repeat(np.arange(kinds), given)
            within = np.arange(end - start) - np.repeat(np.cumsum(given) - given, given)
            handed = rng.permutation(degrees[start:end])
            result[of_kind[next_of[kind] + within]] = handed
            lacking -= np.bincount(kind, handed, minlength=kinds)
            room, next_of = room - given, next_of + given
        _balance(result, parents, lacking)
        return result

    def weights_inside(self, of_parent: Numbers, of_row: Numbers, rng: np.random.Generator) -> Array:
        """How often each parent is to be referred to, where rows choose among the parents of their own group.

        How many rows a group has is given, so degrees cannot be handed out. Inside of groups weights are log-normal, of
        that spread with which the degrees come closest to those released.

        Args:
            of_parent: Group of each parent, -1 for one that is never chosen.
            of_row: Group of each row.
            rng: Sampling only.
        """
        possible = np.flatnonzero(of_parent >= 0)
        group = of_parent[possible]
        rows = np.bincount(of_row[np.isin(of_row, group)], minlength=int(group.max(initial=0)) + 1)
        wanted = np.sort(self.degrees(len(of_parent), int(rows.sum())))[::-1][: len(possible)]
        luck = rng.normal(size=len(possible))

        def shares(spread: float) -> Array:
            weights = np.exp(spread * luck)
            return np.asarray(weights / np.bincount(group, weights)[group])

        def misfit(spread: float) -> float:
            return float(np.abs(np.sort(np.rint(rows[group] * shares(spread)))[::-1] - wanted).sum())

        result = np.zeros(len(of_parent))
        result[possible] = shares(min(_SPREADS, key=misfit))
        return result

    def to_dict(self) -> dict[str, Any]:
        """A description that `Artifact` can store."""
        return {"ends": self.ends, "noisy": self.noisy, "sigma": self.sigma, "references": self.references}


Popularity = ByRow | ByRank


def popularity_from_dict(stored: Mapping[str, Any]) -> Popularity:
    """The inverse of their `to_dict`."""
    return ByRow(stored["counts"]) if "counts" in stored else ByRank(**stored)


def _runs(parents: int) -> list[tuple[int, int]]:
    starts = [0]
    while starts[-1] < parents:
        starts.append(min(parents, max(starts[-1] + 1, int(starts[-1] * _GROWTH) if starts[-1] > _SINGLES else 0)))
    return list(pairwise(starts))


def _balance(degrees: Array, kinds: Numbers, lacking: Array) -> None:
    """Swap degrees between kinds until each has about the references that it lacks; both arrays change."""
    order = np.argsort(kinds, kind="stable")
    places = np.split(order, np.searchsorted(kinds[order], np.arange(1, len(lacking))))
    for _ in range(_SWAPS * len(lacking)):
        poor, rich = int(np.argmax(lacking)), int(np.argmin(lacking))
        wanted = min(lacking[poor], -lacking[rich])
        if wanted < 1 or not len(places[poor]) or not len(places[rich]):
            return
        small = places[poor][np.argsort(degrees[places[poor]])]
        large = places[rich][np.argsort(degrees[places[rich]])]
        partner = np.searchsorted(degrees[large], degrees[small] + wanted, side="right") - 1
        gained = np.where(partner >= 0, degrees[large[partner]] - degrees[small], 0)
        best = int(np.argmax(gained))
        if gained[best] <= 0:
            return
        one, other = small[best], large[partner[best]]
        degrees[one], degrees[other] = degrees[other], degrees[one]
        lacking[poor] -= gained[best]
        lacking[rich] += gained[best]


def _shared(number: int, lacking: Array, room: Numbers, rng: np.random.Generator) -> Numbers:
    """So many parents, shared out to kinds as they lack references, no kind more than it has room for."""
    given = np.zeros(len(room), dtype=np.int64)
    while given.sum() < number:
        free = room - given
        need = np.where(free > 0, np.maximum(lacking, 0.0), 0.0)
        if need.sum() <= 0:
            need = free.astype(np.float64)
        left = number - int(given.sum())
        cumulated = np.cumsum(need) / need.sum() * left
        cumulated[-1] = left
        dealt = np.diff(np.floor(cumulated + rng.random()).astype(np.int64), prepend=0)
        dealt[-1] += left - dealt.sum()
        given += np.clip(dealt, 0, free)
    return given
