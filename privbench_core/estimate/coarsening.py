"""How finely the codes of a column are told apart where a joint with another column is measured.

Noise comes with every cell, so a wide column's joint costs much, while most of its codes are too rare for their own
cells to say anything. Measured over groups of codes, each cell holds more rows under the same noise: that is better
than averaging over cells afterwards, as the noise of a group is drawn once. Within a group, rows are spread by the
released one-way counts. Everything here is public arithmetic on those.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]
_LEAST = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # one over the share of rows that makes a code a group of its own
_LOST_ORDERED = 4.0  # of a dependence, per square of the share of rows in a group of neighbours
_LOST_LISTED = 2.0  # the same, per share of rows in the group of rare codes


@dataclass(frozen=True)
class Coarsening:
    """One way to merge the codes of a column.

    Attributes:
        groups: Group of each code, shape (codes,); groups are dense, 0 to ``number - 1``.
        number: Number of groups, at least 2 unless there is but one code.
        lost: Expected share of a weak dependence that groups do not show.
    """

    groups: Numbers
    number: int
    lost: float


def coarsenings(counts: Array, ordered: int = 0) -> list[Coarsening]:
    """Ways to merge codes, from few groups to none merged.

    Codes that hold less than some share of the rows are merged: neighbours among the first ``ordered`` codes, into
    groups of about that share; all others into one group. What that loses is a guess: a dependence that grows evenly
    along an ordered column is lost within a group in proportion to its width, and rare codes of a list depend on other
    columns about twice as much as common ones.

    Args:
        counts: Clean one-way counts, shape (codes,).
        ordered: How many leading codes are intervals, in order.
    """
    shares = counts / max(float(counts.sum()), 1.0)
    found: dict[int, Coarsening] = {}
    for least in (*(1 / parts for parts in _LEAST), 0.0):
        groups = _groups(shares, ordered, least)
        number = int(groups.max()) + 1
        if number not in found and number > min(len(counts) - 1, 1):
            found[number] = Coarsening(groups, number, _lost(shares, groups, ordered))
    return list(found.values())


def _groups(shares: Array, ordered: int, least: float) -> Numbers:
    """Groups of codes if those that hold less than ``least`` of the rows are merged."""
    alone = shares >= least
    groups = np.zeros(len(shares), dtype=np.int64)
    number, start = 0, 0
    for end in range(ordered + 1):
        if end < ordered and not alone[end]:
            continue
        if end > start:
            groups[start:end] = number + _cut(shares[start:end], least)
            number = int(groups[end - 1]) + 1
        if end < ordered:
            groups[end] = number
            number += 1
        start = end + 1
    rest = np.arange(len(shares)) >= ordered
    own = np.flatnonzero(rest & alone)
    groups[own] = number + np.arange(len(own))
    groups[rest & ~alone] = number + len(own)
    return groups


def _cut(shares: Array, least: float) -> Numbers:
    """Groups of a run of neighbours, of about ``least`` of the rows each, or one group if they hold less."""
    total = float(shares.sum())
    parts = max(1, int(total / least))
    middles = (np.cumsum(shares) - shares / 2) / max(total, np.finfo(float).tiny)
    part = np.minimum((middles * parts).astype(np.int64), parts - 1)
    return np.asarray(np.unique(part, return_inverse=True)[1], dtype=np.int64)


def _lost(shares: Array, groups: Numbers, ordered: int) -> float:
    held = np.bincount(groups, shares)
    merged = np.bincount(groups) > 1
    among = np.bincount(groups[:ordered], minlength=len(held)) > 0
    return float(_LOST_ORDERED * (held[merged & among] ** 2).sum() + _LOST_LISTED * held[merged & ~among].sum())
