"""Marginals of permutation relations: ordered tuples of distinct children of one owner, counted without making them.

PrivPetal (section 3.1) joins an owner with every ordered choice of ``k`` of its children. A tuple of a group of ``s``
children here weighs ⌊w / ((s-1)!/(s-k)!)⌋ weight units, where ``w`` is the weight of a row of the group's unit
(`relations`): the weight of a row is shared by the tuples that it leads, so that the tuples of a unit weigh no more
together than its rows. These are the normalised marginals of the paper (its W_s) for one row per unit, for chains too,
and for the k members that a marginal *names* rather than for a fixed order. A group of fewer than ``k`` children has no
tuples.

Counting is exact, in 64-bit integers; what would not fit stops at `LARGEST`. Pairs of small groups are gone through one
by one, as row numbers; those of a large group are counted from the codes of its rows, so that memory is bounded however
large a group is. Triples are counted from pairs: with P the matrix of (groups, codes of the first two members) counts
over pairs, C that of the third and W the diagonal of weights, they are Pᵀ W C less the pairs joined with one of their
own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.columns.exact_sums import LARGEST, joined, weighted_sums, words
from privbench_core.errors import InternalError

PERMUTATION_SCALE = 1 << 36  # a triple out of 100 children still weighs 70,000 units
MOST_MEMBERS = 3  # children in a tuple: the triples of PrivPetal's groups are the largest that are used
_CHUNK = 4_000_000  # pairs that are made at once; a group with more of them is large
_HELD = 25_000_000  # pairs that are kept for the next marginal of the same view
_LOW = 12  # bits: of fewer than 2^33 rows, tuples of both words of a weight add up to less than 2^62
_MOST_32 = 1 << 31
Numbers = NDArray[np.int64]
Places = NDArray[np.signedinteger[Any]]


@dataclass(frozen=True)
class Groups:
    """Which rows have the same owner; rows of a group stand together. Private.

    Attributes:
        owner: Group of each row, shape (n,), not descending; a row without an owner is a group of its own.
        size: Number of kept children in the row's group, whether or not all of them are among these rows, shape (n,).
        share: s·w: what the tuples of the row's group may weigh together, in multiples of 1/U, shape (n,).
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

    @cached_property
    def large(self) -> list[slice]:
        """The rows of each group that has more pairs than are made at once."""
        sizes = np.diff(self.ends)
        return [slice(self.ends[group], self.ends[group + 1]) for group in np.flatnonzero(sizes > math.isqrt(_CHUNK))]

    def pairs(self) -> Iterator[tuple[Places, Places]]:
        """All ordered pairs of distinct rows of a group that is not large, as row numbers, in parts of bounded size."""
        if self._few is not None:
            yield self._few
            return
        for start, end in pairwise(_cuts(self._numbers_of_pairs)):
            yield _pairs_within(*self._small(start, end))

    @cached_property
    def _few(self) -> tuple[Places, Places] | None:
        """All these pairs, where they are few enough to be kept."""
        few = self._numbers_of_pairs.sum() <= _HELD
        return _pairs_within(*self._small(0, len(self._numbers_of_pairs))) if few else None

    @cached_property
    def _numbers_of_pairs(self) -> Numbers:
        """Pairs of each group, a row's pair with itself included; none of large groups."""
        sizes = np.diff(self.ends)
        return np.where(sizes > math.isqrt(_CHUNK), 0, sizes**2)

    def _small(self, start: int, end: int) -> tuple[Numbers, Numbers]:
        """First rows and sizes of the groups from ``start`` to ``end``, large ones taken for empty."""
        sizes = np.diff(self.ends[start : end + 1])
        return self.ends[start:end], np.where(sizes > math.isqrt(_CHUNK), 0, sizes)


def tuple_counts(members: Sequence[tuple[Codes, int]], groups: Groups) -> Numbers:
    """Weighted counts of ordered tuples of distinct children of one owner, shape (codes of each member).

    Args:
        members: For each member of a tuple, the code of every row (n,) in its role, and the number of codes.
        groups: The groups.

    Raises:
        InternalError: More members than there is a kernel for.
    """
    if not 1 <= len(members) <= MOST_MEMBERS:
        raise InternalError(f"tuples of {len(members)} children")
    wide = [(codes.astype(np.int64), size) for codes, size in members]  # products of sizes pass 32 bits
    weights = groups.weights(len(members))
    if len(groups.ends) * float(groups.share.max(initial=0)) < LARGEST / 4:  # triples: 3 s³/s! in between
        return _counted(wide, groups, weights)
    low, high = (_counted(wide, groups, word) for word in words(weights, _LOW))
    return joined(low, high, _LOW)


def _counted(members: Sequence[tuple[Numbers, int]], groups: Groups, weights: Numbers) -> Numbers:
    if len(members) == 1:
        return weighted_sums(members[0][0], weights, members[0][1])
    if len(members) == MOST_MEMBERS:
        return _triples(members, groups, weights)
    return _pairs(members[0], members[1], groups, weights)


def _pairs(first: tuple[Numbers, int], second: tuple[Numbers, int], groups: Groups, weights: Numbers) -> Numbers:
    """Σ of weights over ordered pairs of distinct rows of a group, shape (codes of the first, of the second)."""
    total = np.zeros(first[1] * second[1], dtype=np.int64)
    left = first[0] * second[1]
    for one, other in groups.pairs():
        total += weighted_sums(left[one] + second[0][other], weights[one], len(total))
    for rows in groups.large:  # all pairs, less those of a row with itself
        every = np.multiply.outer(*(np.bincount(codes[rows], minlength=size) for codes, size in (first, second)))
        every = every.ravel() - np.bincount(left[rows] + second[0][rows], minlength=len(total))
        total += every * weights[rows.start]
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


def _pairs_within(starts: Numbers, sizes: Numbers) -> tuple[Places, Places]:
    """Ordered pairs of distinct rows of the same group, given the first row and the size of each."""
    first = np.repeat(starts, sizes)
    rows = first + np.arange(len(first)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    others = np.repeat(sizes - 1, sizes)
    one = np.repeat(rows, others)
    rank = np.arange(len(one)) - np.repeat(np.cumsum(others) - others, others)
    other = np.repeat(first, others) + rank
    other += other >= one  # not the row itself
    narrow = np.int32 if one.max(initial=0) < _MOST_32 else np.int64
    return one.astype(narrow), other.astype(narrow)


def _counts(member: tuple[Numbers, int], ends: Numbers) -> scipy.sparse.csr_array:
    """How often each code occurs in each group, shape (groups, codes)."""
    codes, size = member
    counts = scipy.sparse.csr_array(
        (np.ones(len(codes), dtype=np.int64), codes, ends), shape=(len(ends) - 1, size), copy=True
    )
    counts.sum_duplicates()  # in place: hence the copy
    return counts


def _outer(left: scipy.sparse.csr_array, right: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
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
    return scipy.sparse.csr_array((left.data[place] * right.data[other], columns, ends), shape=shape)


def _joined(first: tuple[Numbers, int], second: tuple[Numbers, int]) -> tuple[Numbers, int]:
    return first[0] * second[1] + second[0], first[1] * second[1]
