"""What measured pairs imply of others: the joint of two columns that have a third one in common."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from privbench_core.estimate.fitting import mutual_information

Array = NDArray[np.float64]
Pair = tuple[str, str]
_NOTHING = 1e-300


class Ways:
    """Joints of pairs, found from either column of a pair."""

    def __init__(self, joints: Mapping[Pair, Array], marginals: Mapping[str, Array]) -> None:
        """Joints of some pairs, and the marginals of all columns, in the same measure."""
        self._joints: dict[str, dict[str, Array]] = {}
        self._marginals = marginals
        for (a, b), joint in joints.items():
            self._joints.setdefault(a, {})[b] = joint
            self._joints.setdefault(b, {})[a] = joint.T

    def thirds(self, first: str, second: str) -> list[str]:
        """The columns that both have a joint with."""
        beside = self._joints.get(second, {})
        return [name for name in self._joints.get(first, {}) if name in beside]

    def by_way_of(self, third: str, first: str, second: str) -> Array:
        """The joint of ``first`` and ``second`` if they depend on each other through ``third`` alone."""
        known = np.maximum(self._marginals[third], _NOTHING)
        return np.asarray(self._joints[first][third] @ (self._joints[third][second] / known[:, None]))


def implied_pairs(joints: Mapping[Pair, Array], marginals: Mapping[str, Array], limit: int) -> dict[Pair, Array]:
    """Joints of at most ``limit`` pairs that have none, the strongest first; the product where nothing links them.

    Two columns can tell no more about each other than either tells about the third: so the third is chosen for which
    the lesser of both is most.

    Args:
        joints: Probabilities of some pairs.
        marginals: Of all columns.
        limit: Most pairs.
    """
    ways = Ways(joints, marginals)
    tells = {frozenset(pair): mutual_information(joint) for pair, joint in joints.items()}
    best: dict[Pair, tuple[float, str | None]] = {}
    for a, b in combinations(marginals, 2):
        if frozenset((a, b)) not in tells:
            bounds = [(min(tells[frozenset((a, c))], tells[frozenset((c, b))]), c) for c in ways.thirds(a, b)]
            best[a, b] = max(bounds, default=(0.0, None))
    implied = {}
    for a, b in sorted(best, key=lambda pair: -best[pair][0])[:limit]:
        third = best[a, b][1]
        implied[a, b] = np.outer(marginals[a], marginals[b]) if third is None else ways.by_way_of(third, a, b)
    return implied
