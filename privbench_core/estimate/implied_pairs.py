"""Implied pairs: the joint of two columns that follows from measured joints with a common third column."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from privbench_core.estimate.fitting import EMPTY, mutual_information

Array = NDArray[np.float64]
Pair = tuple[str, str]


class JointGraph:
    """A graph of columns whose edges are measured joints."""

    def __init__(self, joints: Mapping[Pair, Array], marginals: Mapping[str, Array]) -> None:
        """Index the joints of some pairs; ``marginals`` are of all columns, with the same total."""
        self._joints: dict[str, dict[str, Array]] = {}
        self._marginals = marginals
        for (a, b), joint in joints.items():
            self._joints.setdefault(a, {})[b] = joint
            self._joints.setdefault(b, {})[a] = joint.T

    def common_neighbours(self, first: str, second: str) -> list[str]:
        """Return the columns that both have a joint with."""
        others = self._joints.get(second, {})
        return [name for name in self._joints.get(first, {}) if name in others]

    def implied(self, third: str, first: str, second: str) -> Array:
        """Return the joint of ``first`` and ``second`` if they are independent given ``third``."""
        known = np.maximum(self._marginals[third], EMPTY)
        return np.asarray(self._joints[first][third] @ (self._joints[third][second] / known[:, None]))


def implied_pairs(joints: Mapping[Pair, Array], marginals: Mapping[str, Array], limit: int) -> dict[Pair, Array]:
    """Return joints of at most ``limit`` pairs that were not measured, the strongest first.

    The third column maximizes the smaller of its two informations, which bounds that of the pair (the data processing
    inequality). Without a third column, the joint is the product of the marginals.

    Args:
        joints: Probabilities of the measured pairs.
        marginals: Probabilities of all columns.
        limit: The most pairs to return.
    """
    graph = JointGraph(joints, marginals)
    information = {frozenset(pair): mutual_information(joint) for pair, joint in joints.items()}
    best: dict[Pair, tuple[float, str | None]] = {}
    for a, b in combinations(marginals, 2):
        if frozenset((a, b)) not in information:
            thirds = graph.common_neighbours(a, b)
            bounds = [(min(information[frozenset((a, c))], information[frozenset((c, b))]), c) for c in thirds]
            best[a, b] = max(bounds, default=(0.0, None))
    implied = {}
    for a, b in sorted(best, key=lambda pair: -best[pair][0])[:limit]:
        third = best[a, b][1]
        implied[a, b] = np.outer(marginals[a], marginals[b]) if third is None else graph.implied(third, a, b)
    return implied
