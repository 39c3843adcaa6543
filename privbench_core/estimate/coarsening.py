"""Coarsenings: groups of a column's codes over which a joint with another column is measured.

Every cell gets noise, so the joint of a wide column is expensive, while most of its codes are too rare for their own
cells to be informative. Measured over groups of codes, each cell holds more rows under the same noise: that is better
than averaging over cells afterwards, as the noise of a group is drawn once. Within a group, rows are distributed by the
released one-way counts. Post-processing of these counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]
# Chosen by hand: a code with 1/parts of the rows is a group of its own, for each of these parts; about half octaves.
_PARTS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
# A model of what coarsening loses of a weak dependence, see `coarsenings`; chosen by hand.
_LOST_ORDERED = 4.0  # per square of the share of rows in a group of neighbours
_LOST_LISTED = 2.0  # per share of rows in the group of rare codes


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
    groups of about that share; all others into one group. The loss is a rough model: a dependence that grows evenly
    along an ordered column is lost within a group in proportion to its width, and rare codes of a list depend on other
    columns about twice as much as common ones.

    Args:
        counts: Clean one-way counts, shape (codes,).
        ordered: Number of leading codes that are intervals, in order.
    """
    shares = counts / max(float(counts.sum()), 1.0)
    found: dict[int, Coarsening] = {}
    for least in (*(1 / parts for parts in _PARTS), 0.0):
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
    return float(
        _LOST_ORDERED * (held[merged & neighbours] ** 2).sum() + _LOST_LISTED * held[merged & ~neighbours].sum()
    )
