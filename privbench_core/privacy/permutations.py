"""Marginals of permutation relations: ordered tuples of distinct children of one owner, counted without making them.

PrivPetal (section 3.1) joins an owner with every ordered choice of ``k`` of its children. A tuple of a group of ``s``
children here weighs ⌊⌊⌊U/a⌋/s⌋/(s-1)⌋.. = ⌊U / (a · s!/(s-k)!)⌋ weight units, where ``a`` is the product of the group
sizes above the group, so that the tuples of a group weigh at most U/a together, and those of a unit at most U. These
are the normalised marginals of the paper (its W_s), for chains too, and with s!/(s-k)! for the k members that a
marginal *names* rather than for a fixed order. A group of fewer than ``k`` children has no tuples.

Counting is exact, in 64-bit integers. Pairs are gone through one by one, as row numbers; triples of larger groups
would be too many, and are counted from pairs: with P the matrix of (groups, codes of the first two members) counts over
pairs, C that of the third and W the diagonal of weights, they are Pᵀ W C less the pairs joined with one of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from privbench_core.columns.codec import Codes
from privbench_core.errors import InternalError

PERMUTATION_SCALE = 1 << 36  # a triple out of 100 children still weighs 70,000 units
MOST_MEMBERS = 3
_LOW = 18  # bits: sums of the lower and of the upper part of a weight are each exact in a float
_MOST = 2.0**62  # weight that may be added up
_CHUNK = 4_000_000  # pairs that are made at once
_HELD = 25_000_000  # pairs that are kept for the next marginal of the same view
Numbers = NDArray[np.int64]
Places = NDArray[np.int32]


@dataclass(frozen=True)
class Groups:
    """Which rows have the same owner; rows of a group stand together. Private.

    Attributes:
        owner: Group of each row, shape (n,), not descending; a row without an owner is a group of its own.
        size: Number of kept children in the row's group, whether or not all of them are among these rows, shape (n,).
        share: ⌊U/a⌋: what the tuples of the row's group may weigh together, in multiples of 1/U, shape (n,).
    """

    owner: Numbers
    size: Numbers
    share: Numbers

    def take(self, mask: NDArray[np.bool_]) -> Groups:
        """The rows where ``mask`` holds; their tuples keep their weights."""
        return Groups(self.owner[mask], self.size[mask], self.share[mask])

    def weights(self, members: int) -> Numbers:
        """Weight of the tuples that each row is in, shape (n,); rows of smaller groups are in none: 0."""
        weights = self.share
        for taken in range(members):
            weights = np.where(self.size > taken, weights // np.maximum(self.size - taken, 1), 0)
        return weights

    @cached_property
    def ends(self) -> Numbers:
        """Where groups begin, and the number of rows, shape (groups + 1,)."""
        n = len(self.owner)
        return np.append(np.flatnonzero(np.r_[True, self.owner[1:] != self.owner[:-1]][:n]), n)

    def pairs(self) -> Iterator[tuple[Places, Places]]:
        """All ordered pairs of distinct rows of a group, as row numbers, in parts of bounded size."""
        if self._few is not None:
            yield self._few
            return
        for start, end in pairwise(_cuts(np.diff(self.ends) ** 2)):
            yield _pairs_within(self.ends[start : end + 1])

    @cached_property
    def _few(self) -> tuple[Places, Places] | None:
        """All pairs, where they are few enough to be kept."""
        return _pairs_within(self.ends) if (np.diff(self.ends) ** 2).sum() <= _HELD else None


def tuple_counts(members: Sequence[tuple[Codes, int]], groups: Groups) -> Numbers:
    """Weighted counts of ordered tuples of distinct children of one owner, shape (codes of each member).

    Args:
        members: For each member of a tuple, the code of every row (n,) in its role, and the number of codes.
        groups: The groups.

    Raises:
        InternalError: More members than there is a kernel for, or too many groups for 64 bits.
    """
    if not 1 <= len(members) <= MOST_MEMBERS:
        raise InternalError(f"tuples of {len(members)} children")
    if len(groups.ends) * float(groups.share.max(initial=0)) >= _MOST:
        raise InternalError("too many groups for exact accumulation")
    wide = [(codes.astype(np.int64), size) for codes, size in members]  # products of sizes pass 32 bits
    weights = groups.weights(len(members))
    if len(members) == 1:
        return _weighted(*wide[0], weights)
    if len(members) == MOST_MEMBERS:
        return _triples(wide, groups, weights)
    return _pairs(wide[0], wide[1], groups, weights)


def _pairs(first: tuple[Numbers, int], second: tuple[Numbers, int], groups: Groups, weights: Numbers) -> Numbers:
    """Σ of weights over ordered pairs of distinct rows of a group, shape (codes of the first, of the second)."""
    total = np.zeros(first[1] * second[1], dtype=np.int64)
    left = first[0] * second[1]
    for one, other in groups.pairs():
        total += _weighted(left[one] + second[0][other], len(total), weights[one])
    return total.reshape(first[1], second[1])


def _triples(members: Sequence[tuple[Numbers, int]], groups: Groups, weights: Numbers) -> Numbers:
    """Σ over ordered triples of distinct rows: (distinct pairs) x rows, less the rows that are in the pair already."""
    one, two, three = members
    sizes = one[1], two[1], three[1]
    ends, per_group = groups.ends, weights[groups.ends[:-1]]
    left, right = _counts(one, ends), _counts(two, ends)
    third, itself = _counts(three, ends), _counts(_joined(one, two), ends)
    total = np.zeros((sizes[0] * sizes[1], sizes[2]), dtype=np.int64)
    held = np.diff(left.indptr).astype(np.int64) * np.diff(right.indptr)
    for start, end in pairwise(_cuts(held)):
        part = slice(start, end)
        pairs = (_outer(left[part], right[part]) - itself[part]).tocsr()
        pairs.data *= np.repeat(per_group[part], np.diff(pairs.indptr))
        total += (pairs.T.tocsr() @ third[part]).toarray()
    with_first = _pairs(_joined(one, three), two, groups, weights).reshape(sizes[0], sizes[2], sizes[1])
    with_second = _pairs(one, _joined(two, three), groups, weights).reshape(sizes)
    return total.reshape(sizes) - with_first.transpose(0, 2, 1) - with_second


def _cuts(amounts: Numbers) -> list[int]:
    """Where to cut groups so that the amounts of a part add up to about `_CHUNK` (or are a single group's)."""
    sums = np.cumsum(amounts)
    marks = np.arange(_CHUNK, sums[-1] if len(sums) else 0, _CHUNK)
    return [int(cut) for cut in np.unique(np.r_[0, np.searchsorted(sums, marks), len(sums)])]


def _pairs_within(ends: Numbers) -> tuple[Places, Places]:
    """Ordered pairs of distinct rows between the same two ends."""
    sizes = np.diff(ends)
    rows = np.arange(ends[0], ends[-1])
    others = np.repeat(sizes - 1, sizes)
    one = np.repeat(rows, others)
    rank = np.arange(len(one)) - np.repeat(np.cumsum(others) - others, others)
    other = np.repeat(np.repeat(ends[:-1], sizes), others) + rank
    other += other >= one  # not the row itself
    return one.astype(np.int32), other.astype(np.int32)


def _counts(member: tuple[Numbers, int], ends: Numbers) -> csr_array:
    """How often each code occurs in each group, shape (groups, codes)."""
    codes, size = member
    counts = csr_array((np.ones(len(codes), dtype=np.int64), codes, ends), shape=(len(ends) - 1, size), copy=True)
    counts.sum_duplicates()  # in place: hence the copy
    return counts


def _outer(left: csr_array, right: csr_array) -> csr_array:
    """The outer product of the rows of two matrices, shape (rows, columns left · columns right)."""
    of_left, of_right = np.diff(left.indptr), np.diff(right.indptr)
    ends = np.r_[0, np.cumsum(of_left.astype(np.int64) * of_right)]
    each = np.repeat(of_right, of_left)  # entries that an entry of the left is multiplied with
    place = np.repeat(np.arange(len(left.data)), each)
    row_start = np.repeat(right.indptr[:-1], of_left)
    offset = np.arange(ends[-1]) - np.repeat(np.cumsum(each) - each, each)
    other = row_start[place] + offset
    columns = left.indices[place].astype(np.int64) * right.shape[1] + right.indices[other]
    shape = (left.shape[0], left.shape[1] * right.shape[1])
    return csr_array((left.data[place] * right.data[other], columns, ends), shape=shape)


def _joined(first: tuple[Numbers, int], second: tuple[Numbers, int]) -> tuple[Numbers, int]:
    return first[0] * second[1] + second[0], first[1] * second[1]


def _weighted(cells: Numbers, size: int, weights: Numbers) -> Numbers:
    """Σ of integer weights per cell, shape (size,), exact beyond what a float holds."""
    if len(cells) >= 1 << (53 - _LOW):
        raise InternalError("too many rows for exact accumulation")
    low = np.bincount(cells, weights=weights & ((1 << _LOW) - 1), minlength=size).astype(np.int64)
    high = np.bincount(cells, weights=weights >> _LOW, minlength=size).astype(np.int64)
    return low + (high << _LOW)
