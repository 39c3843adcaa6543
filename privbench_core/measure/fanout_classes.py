"""Classes of group sizes: the merging interval of PrivPetal's Algorithm 3, chosen from released numbers.

Groups of different sizes are different relations, and as a size is a group's own, their marginals cost no more together
than one of them does. But each has the noise of a whole marginal, so that sizes with few rows are merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.fanout_bins import FanoutCodec
from privbench_core.errors import InternalError
from privbench_core.guards import LARGEST_ANY, SMOOTHING
from privbench_core.models.fanout import Fanout
from privbench_core.models.one_way import OneWay
from privbench_core.privacy.permutations import MOST_MEMBERS

Array = NDArray[np.float64]


@dataclass(frozen=True)
class FanoutClasses:
    """Expected numbers of rows by the size of their group, from released counts.

    Attributes:
        rows: In groups with at least 1, 2, 3 members, which are what marginals of as many members count; by code of the
            size, shape (3, codes).
        limits: T by code of the size: up to how many rows of a unit such groups may be counted in full, shape (codes,).
        ends: Whether a class may end after a code: all groups up to it may have a T of their own; shape (codes,).
    """

    rows: Array
    limits: NDArray[np.int64]
    ends: NDArray[np.bool_]

    @classmethod
    def of(cls, fanout: Fanout, owners: float, rows_per_unit: int, *, of_units: bool) -> FanoutClasses:
        """Rows in the groups of so many owners, and rows without an owner, each of which is a group.

        Args:
            fanout: Released sizes.
            owners: Number of owners.
            rows_per_unit: T: as how many rows larger groups count.
            of_units: Whether a group is all that a unit has, so that groups may have a T of their own.
        """
        discretizer = fanout.sizes
        if not isinstance(discretizer.codec, FanoutCodec):
            raise InternalError("numbers of children have a codec of their own")
        cells = np.arange(discretizer.codec.size)
        code_of = cells if discretizer.binning is None else np.asarray(discretizer.binning.code_of)
        within = np.ones(len(cells)) if discretizer.binning is None else np.asarray(discretizer.binning.weights)
        expected = owners * fanout.counts[code_of] * within * discretizer.codec.means(rows_per_unit)
        rows = np.stack(  # small sizes are cells of their own
            [
                np.bincount(code_of, weights=expected * (cells >= members), minlength=discretizer.size)
                for members in range(1, MOST_MEMBERS + 1)
            ]
        ).astype(np.float64)
        rows[0, discretizer.encode_numbers(np.ones(1, dtype=np.int64))] += fanout.ownerless
        largest = np.zeros(discretizer.size, dtype=np.int64)
        np.maximum.at(largest, code_of, np.append(discretizer.codec.starts[1:], discretizer.codec.bound + 1) - 1)
        if not of_units:
            return cls(rows, np.full(discretizer.size, rows_per_unit), np.ones(discretizer.size, dtype=bool))
        power = 1 << np.ceil(np.log2(np.maximum(largest, 1))).astype(np.int64)
        least = np.where(largest <= LARGEST_ANY, np.maximum(largest, 1), power)
        return cls(rows, np.minimum(least, rows_per_unit), (largest >= rows_per_unit) | (power == largest))

    def shares(self, inside: NDArray[np.bool_]) -> Array:
        """Of the rows in groups of some sizes, the share in those with at least 1, 2, 3 members, shape (3,)."""
        counts = self.rows[:, inside].sum(axis=1)
        return np.asarray(counts / max(counts[0], 1.0), dtype=float)

    def classes(self, least: float) -> tuple[int, ...]:
        """Class of each code: the shortest intervals of at least ``least`` rows, the rest in the last.

        ``least`` is for the noise of the largest T, and less for less.
        """
        class_of, current, held = [], 0, 0.0
        needed = least * self.limits / self.limits[-1]
        for number, rows in enumerate(self.rows[0]):
            class_of.append(current)
            held += float(rows)
            if self.ends[number] and held >= needed[number] and self.rows[0, number + 1 :].sum() >= least:
                current, held = current + 1, 0.0
        return tuple(class_of)


def counted_by_class(classes: FanoutClasses, class_of: Sequence[int]) -> NDArray[np.int64]:
    """T by code of the size, shape (codes,): all rows of a class count alike, as its largest groups do."""
    largest = np.zeros(max(class_of) + 1, dtype=np.int64)
    np.maximum.at(largest, np.asarray(class_of), classes.limits)
    return np.asarray(largest[np.asarray(class_of)])


def agreeing(looks: Sequence[OneWay], whole: OneWay) -> list[OneWay]:
    """Counts of the parts of a split, by least squares with independent counts of the whole that they add up to.

    Post-processing. With one part it is the average by variances.

    Args:
        looks: Of the parts, all of the same columns.
        whole: Of all parts together, with these columns.
    """
    better: list[OneWay] = []
    missing = {name: whole.counts[name] - sum(look.counts[name] for look in looks) for name in looks[0].counts}
    variance = {name: whole.sigmas[name] ** 2 + sum(look.sigmas[name] ** 2 for look in looks) for name in missing}
    for look in looks:
        counts, sigmas = {}, {}
        for name, noisy in look.counts.items():
            share = look.sigmas[name] ** 2 / np.maximum(variance[name], SMOOTHING)
            counts[name] = noisy + share * missing[name]
            sigmas[name] = look.sigmas[name] * np.sqrt(1 - share)
        better.append(replace(look, counts=counts, sigmas=sigmas))
    return better
