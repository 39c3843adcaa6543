"""Row splits whose parts do not depend on other rows: the sound replacements of PrivBench's RowSplit (Algorithm 3).

The published RowSplit compares each row with exact cluster centres, so replacing one row moves every row's distance,
and its noise hides only one of them. Both splits here release what their rule needs, and assign each row by its own
values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privbench_core.estimate.segmentation import SIGNIFICANT
from privbench_core.privacy.budget import Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.queries import CentreSums
from privbench_core.privacy.split_rules import Centres

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LloydSplit:
    """DPLloyd (Su et al. 2016): ``iterations`` noisy averages of two clusters, then nearest centre.

    Attributes:
        iterations: J of the paper.
        ordered: Names of columns whose codes are ordered; the others are compared as one-hot vectors.
    """

    ordered: frozenset[str]
    iterations: int = 2

    def rule(self, curator: Curator, columns: Sequence[str], price: Price, rng: np.random.Generator) -> Centres:
        """Release two centres for ``price``; the start is drawn without looking at any row.

        Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or
        removing one privacy unit; ``docs/privacy.md``, section 5, mechanisms 3, 4 and 7.
        """
        sizes = [curator.sizes[name] for name in columns]
        kinds = [(name, "ordered" if name in self.ordered else "list") for name in columns]
        points = [
            [_start(kind, size, side, rng) for (_, kind), size in zip(kinds, sizes, strict=True)] for side in (0, 1)
        ]
        centres = _centres(kinds, sizes, points)
        for iteration in range(self.iterations):
            query = CentreSums(centres)
            answer = curator.measure(f"centres {iteration}", [query], price.share(1 / self.iterations))
            for side, sums in enumerate(answer.values[0]):
                if sums[0] > max(1.0, SIGNIFICANT * answer.sigma):
                    points[side] = _averages(kinds, sizes, sums)
            centres = _centres(kinds, sizes, points)
        return centres


def _start(kind: str, size: int, side: int, rng: np.random.Generator) -> Array:
    """A data-independent starting centre: a position, or a distribution over values."""
    if kind == "ordered":
        return np.array([0.5 + (0.25 if side else -0.25) * rng.choice([-1.0, 1.0])])
    return rng.dirichlet(np.ones(size))


def _averages(kinds: Sequence[tuple[str, str]], sizes: Sequence[int], sums: Array) -> list[Array]:
    """New centre from a cluster's released count and sums."""
    count, at, points = sums[0], 1, []
    for (_, kind), size in zip(kinds, sizes, strict=True):
        width = 1 if kind == "ordered" else size
        mean = sums[at : at + width] / count
        points.append(np.clip(mean + 0.5 if kind == "ordered" else mean, 0.0, 1.0))
        at += width
    return points


def _centres(kinds: Sequence[tuple[str, str]], sizes: Sequence[int], points: Sequence[Sequence[Array]]) -> Centres:
    """Lookup tables of the L1 distance of each code to each centre."""
    tables = []
    for centre in points:
        row = []
        for (_, kind), size, point in zip(kinds, sizes, centre, strict=True):
            if kind == "ordered":
                distance = np.abs(np.arange(size) / max(size - 1, 1) - point[0])
            else:
                distance = (point.sum() + 1 - 2 * point) / 2
            row.append(tuple(float(v) for v in distance))
        tables.append(tuple(row))
    return Centres(tuple(kinds), tuple(sizes), tuple(tables))
