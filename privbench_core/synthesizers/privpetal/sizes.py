"""Classes of group sizes: the merging interval of PrivPetal's Algorithm 3, chosen from released numbers.

Groups of different sizes are different relations, and as a size is a group's own, their marginals cost no more together
than one of them does. But each has the noise of a whole marginal, so that sizes with few groups are merged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privbench_core.linking.fanout import Fanout
from privbench_core.privacy.permutations import MOST_MEMBERS

Array = NDArray[np.float64]


@dataclass(frozen=True)
class GroupSizes:
    """Expected numbers of groups, from released counts.

    Attributes:
        groups: Groups with at least 1, 2, 3 members, which are what marginals of as many members count; by code of the
            size, shape (3, codes).
    """

    groups: Array

    @classmethod
    def of(cls, fanout: Fanout, owners: float) -> GroupSizes:
        """The sizes of the groups of so many owners, and of rows without an owner, each of which is a group."""
        coder = fanout.sizes
        cells = np.arange(coder.codec.size)
        code_of = cells if coder.binning is None else np.asarray(coder.binning.code_of)
        within = np.ones(len(cells)) if coder.binning is None else np.asarray(coder.binning.weights)
        expected = owners * fanout.counts[code_of] * within
        groups = np.stack(  # small sizes are cells of their own
            [
                np.bincount(code_of, weights=expected * (cells >= members), minlength=coder.size)
                for members in range(1, MOST_MEMBERS + 1)
            ]
        ).astype(np.float64)
        groups[0, coder.encode_numbers(np.ones(1, dtype=np.int64))] += fanout.ownerless
        return cls(groups)

    def shares(self, inside: NDArray[np.bool_]) -> Array:
        """Of the groups of some sizes, the share with at least 1, 2, 3 members, shape (3,)."""
        counts = self.groups[:, inside].sum(axis=1)
        return np.asarray(counts / max(counts[0], 1.0), dtype=float)

    def classes(self, least: float) -> tuple[int, ...]:
        """Class of each code: the shortest intervals of at least ``least`` groups, what is left over to the last."""
        class_of, current, held = [], 0, 0.0
        for number, groups in enumerate(self.groups[0]):
            class_of.append(current)
            held += float(groups)
            if held >= least and self.groups[0, number + 1 :].sum() >= least:
                current, held = current + 1, 0.0
        return tuple(class_of)
