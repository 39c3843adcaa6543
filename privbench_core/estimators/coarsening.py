"""Coarsenings: groups of a column's codes over which a joint with another column is measured.

Every cell gets noise, so the joint of a wide column is expensive, while most of its codes are too rare for their own
cells to be informative. Measured over groups of codes, each cell holds more rows under the same noise: that is better
than averaging over cells afterwards, as the noise of a group is drawn once. Within a group, rows are distributed by the
released one-way counts. Post-processing of these counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from privbench_core.errors import InternalError
from privbench_core.guards import MAX_PARTS
from privbench_core.tuning import TUNING

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Coarsening:
    """A partition of a column's codes into groups.

    Attributes:
        groups: Group of each code, shape (codes,); groups are dense, 0 to ``number - 1``.
        number: Number of groups, at least 2 unless there is only one code.
        lost: Expected share of a weak dependence that is lost within groups.
    """

    groups: Numbers
    number: int
    lost: float


def coarsenings(counts: Array, ordered: int = 0) -> list[Coarsening]:
    """Return coarsenings of a column, from few groups to one per code.

    Codes that hold less than some share of the rows are merged: neighbours among the first ``ordered`` codes, into
    groups of about that share; all others into one group. A share of 1 / parts is tried for parts in half octaves. The
    loss grows with the squares of the widths of groups along an ordered column, as for a dependence that grows evenly,
    and half as fast with the rows of the merged codes of a list.

    Args:
        counts: Clean one-way counts, shape (codes,).
        ordered: Number of leading codes that are intervals, in order.
    """
    shares = counts / max(float(counts.sum()), 1.0)
    found: dict[int, Coarsening] = {}
    for least in (*2.0 ** (-np.arange(2, 2 * math.log2(MAX_PARTS) + 1) / 2), 0.0):
        groups = _groups(shares, ordered, least)
        number = int(groups.max()) + 1
        if number not in found and number > min(len(counts) - 1, 1):
            found[number] = Coarsening(groups, number, _lost(shares, groups, ordered))
    return list(found.values())


def _groups(shares: Array, ordered: int, least: float) -> Numbers:
    """Return the group of each code if codes with less than the share ``least`` of the rows are merged."""
    single = shares >= least
    groups = np.zeros(len(shares), dtype=np.int64)
    number, start = 0, 0
    for end in range(ordered + 1):
        if end < ordered and not single[end]:
            continue
        if end > start:
            groups[start:end] = number + _equal_parts(shares[start:end], least)
            number = int(groups[end - 1]) + 1
        if end < ordered:
            groups[end] = number
            number += 1
        start = end + 1
    listed = np.arange(len(shares)) >= ordered
    own = np.flatnonzero(listed & single)
    groups[own] = number + np.arange(len(own))
    groups[listed & ~single] = number + len(own)
    return groups


def _equal_parts(shares: Array, least: float) -> Numbers:
    """Return groups of neighbours with about the share ``least`` of the rows each; one group if all hold less."""
    total = float(shares.sum())
    parts = max(1, int(total / least))
    middles = (np.cumsum(shares) - shares / 2) / max(total, np.finfo(float).tiny)
    part = np.minimum((middles * parts).astype(np.int64), parts - 1)
    return np.asarray(np.unique(part, return_inverse=True)[1], dtype=np.int64)


def _lost(shares: Array, groups: Numbers, ordered: int) -> float:
    held = np.bincount(groups, shares)
    merged = np.bincount(groups) > 1
    neighbours = np.bincount(groups[:ordered], minlength=len(held)) > 0
    evenly, listed = (held[merged & neighbours] ** 2).sum(), held[merged & ~neighbours].sum()
    return TUNING.coarsening_loss * float(evenly + listed / 2)


Number = TypeVar("Number", np.int64, np.float64)


def merge_codes(counts: NDArray[Number], groups: Sequence[NDArray[np.int64]]) -> NDArray[Number]:
    """Return counts over groups of codes. Integers must add up to less than 2⁶³.

    Args:
        counts: Any shape.
        groups: Per axis, the group of each code, dense from 0.

    Raises:
        InternalError: Not one group for each code of each axis.

    >>> merge_codes(np.array([[1, 2, 3], [4, 5, 6]]), [np.array([0, 1]), np.array([0, 1, 0])])
    array([[ 4,  2],
           [10,  5]])
    """
    if tuple(group_of.shape for group_of in groups) != tuple((size,) for size in counts.shape) or any(
        group_of.min() < 0 for group_of in groups
    ):
        raise InternalError("each code of each column is in one group")
    merged = counts
    for axis, group_of in enumerate(groups):
        merged = np.moveaxis(_first_axis_merged(np.moveaxis(merged, axis, 0), group_of), 0, axis)
    return merged


def _first_axis_merged(counts: NDArray[Number], group_of: NDArray[np.int64]) -> NDArray[Number]:
    merged = np.zeros((int(group_of.max()) + 1, *counts.shape[1:]), dtype=counts.dtype)
    np.add.at(merged, group_of, counts)
    return merged
