"""Classes of group sizes: the merging interval of PrivPetal's Algorithm 3, chosen from released numbers.

Groups of different sizes are different relations, and as a size is a group's own, their marginals cost no more together
than one of them does. But each has the noise of a whole marginal, so that sizes with few groups are merged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privbench_core.linking.fanout import Fanout

Array = NDArray[np.float64]
_PAIR = 2


@dataclass(frozen=True)
class GroupSizes:
    """Expected numbers of groups, from released counts.

    Attributes:
        groups: By code of the size: groups with any members, shape (codes,).
        several: Groups with at least two members, which have pairs, shape (codes,).
    """

    groups: Array
    several: Array

    @classmethod
    def of(cls, fanout: Fanout, owners: float) -> GroupSizes:
        """The sizes of the groups of so many owners, and of rows without an owner, each of which is a group."""
        coder = fanout.sizes
        cells = np.arange(coder.codec.size)
        code_of = cells if coder.binning is None else np.asarray(coder.binning.code_of)
        within = np.ones(len(cells)) if coder.binning is None else np.asarray(coder.binning.weights)
        expected = owners * fanout.counts[code_of] * within
        # Sizes below two are cells of their own.
        alone = _sums(code_of, expected * (cells == 1), coder.size)
        several = _sums(code_of, expected * (cells >= _PAIR), coder.size)
        alone[coder.encode_numbers(np.ones(1, dtype=np.int64))] += fanout.ownerless
        return cls(alone + several, several)

    def classes(self, least: float) -> tuple[int, ...]:
        """Class of each code: the shortest intervals of at least ``least`` groups, what is left over to the last."""
        class_of, current, held = [], 0, 0.0
        for number, groups in enumerate(self.groups):
            class_of.append(current)
            held += float(groups)
            if held >= least and self.groups[number + 1 :].sum() >= least:
                current, held = current + 1, 0.0
        return tuple(class_of)


def _sums(code_of: NDArray[np.int64], weights: Array, size: int) -> Array:
    return np.bincount(code_of, weights=weights, minlength=size).astype(np.float64)
