"""Cross-table marginals that may be measured: two columns, or three, of both sides, at as many codes as noise bears."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.columns.discretizer import Discretizer
from privbench_core.estimate.coarsening import coarsenings
from privbench_core.measure.linked_rows import Reference
from privbench_core.privacy.features import Feature, OfParent, feature_size

Numbers = NDArray[np.int64]
Features = Mapping[str, tuple[Feature, Discretizer]]


@dataclass(frozen=True)
class Candidate:
    """A cross-table marginal that may be measured, and the columns of the view that it is of."""

    left: tuple[str, ...]
    right: tuple[str, ...]
    groups: tuple[Numbers, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns of the view."""
        return tuple(
            f"{name}/{int(group_of.max()) + 1}"
            for name, group_of in zip(self.left + self.right, self.groups, strict=True)
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of groups of each column."""
        return tuple(int(group_of.max()) + 1 for group_of in self.groups)

    @property
    def pairs(self) -> frozenset[tuple[str, str]]:
        """Pairs of columns, one of either side."""
        return frozenset((a, b) for a in self.left for b in self.right)


def candidates_of(
    pairs: Sequence[tuple[str, str]], features: Features, reference: Reference, cells: float
) -> Iterator[Candidate]:
    """Yield each pair of columns, and each pair with one more column of either side, at the finest codes that fit."""
    sizes = {name: feature_size(*how) for name, how in features.items()}
    codes = {**reference.rows.codes, **reference.others}
    finest = {name: _ways(features[name], codes[name], sizes[name]) for pair in pairs for name in pair}
    for a, b in pairs:
        yield Candidate((a,), (b,), _within(cells, [finest[a], finest[b]]))
    left, right = (list(dict.fromkeys(pair[side] for pair in pairs)) for side in (0, 1))
    wider: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
        ((a, c), (b,)) for a, c in combinations(left, 2) for b in right
    ]
    wider += [((a,), (b, c)) for a in left for b, c in combinations(right, 2)]
    for some, others in wider:
        yield Candidate(some, others, _within(cells, [finest[name] for name in some + others]))


def _ways(how: tuple[Feature, Discretizer], codes: Codes, size: int) -> list[Numbers]:
    """Return groupings of a column's codes, coarsest first; a code for "refers to none" stays apart."""
    feature, discretizer = how
    proper = discretizer.size if isinstance(feature, OfParent) else size
    counts = np.bincount(codes, minlength=size)[:proper].astype(np.float64) + 1
    none = np.arange(size - proper)
    found = [
        np.append(way.groups, way.number + none)
        for way in (coarsenings(counts, discretizer.ordered) if proper > 1 else ())
    ]
    return found or [np.arange(size)]


def _within(cells: float, ways: Sequence[Sequence[Numbers]]) -> tuple[Numbers, ...]:
    """Return the finest groupings with so many cells, the widest column being merged first; else the coarsest."""
    chosen = [len(options) - 1 for options in ways]

    def numbers() -> list[int]:
        return [int(options[k].max()) + 1 for options, k in zip(ways, chosen, strict=True)]

    while math.prod(numbers()) > cells and any(chosen):
        widest = max((i for i in range(len(ways)) if chosen[i]), key=lambda i: numbers()[i])
        chosen[widest] -= 1
    return tuple(options[k] for options, k in zip(ways, chosen, strict=True))


def merged(features: Features, name: str, groups: Numbers) -> tuple[Feature, Discretizer]:
    """Return a column of the view over groups of its codes."""
    return grouped(features[name.rpartition("/")[0]], groups)


def grouped(column: tuple[Feature, Discretizer], groups: Numbers) -> tuple[Feature, Discretizer]:
    """Return a column over groups of its codes, shape (codes,), as dense numbers."""
    feature, discretizer = column
    return feature, discretizer.grouped(groups)  # "refers to none" is none of the codec's cells
