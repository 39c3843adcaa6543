"""Split rows by one attribute into two halves, chosen on released numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privbench_core.privacy.split_rules import ByValue

Array = NDArray[np.float64]


@dataclass(frozen=True)
class AttributeSplit:
    """Split by the attribute with the strongest dependence on others, by released scores.

    Attributes:
        ordered: Columns with ordered codes, which are cut at their median; lists of values are halved by count.
    """

    ordered: frozenset[str]

    def rule(self, scores: Mapping[tuple[str, str], float], clean: Mapping[str, Array]) -> ByValue | None:
        """Return the rule, from released scores and one-way counts; None if no attribute can be split in two."""
        strength = {name: sum(max(v, 0.0) for pair, v in scores.items() if name in pair) for name in clean}
        for name in sorted(clean, key=lambda n: -strength[n]):
            part_of = self._halves(name, clean[name])
            if len(set(part_of)) == 2:  # noqa: PLR2004 - two parts
                return ByValue(name, part_of)
        return None

    def _halves(self, name: str, counts: Array) -> tuple[int, ...]:
        if name in self.ordered:
            cut = int(np.searchsorted(np.cumsum(counts), counts.sum() / 2)) + 1
            if cut >= len(counts):
                cut = len(counts) - 1
            return tuple(int(code >= cut) for code in range(len(counts)))
        part_of = np.zeros(len(counts), dtype=int)
        totals = [0.0, 0.0]
        for code in np.argsort(-counts):
            side = int(totals[1] < totals[0])
            part_of[code] = side
            totals[side] += counts[code]
        return tuple(int(side) for side in part_of)
