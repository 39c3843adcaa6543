"""Marginals of permutation relations: ordered tuples of distinct children of one owner, counted without making them.

PrivPetal (section 3.1) joins an owner with every ordered choice of ``k`` of its children. A tuple of a group of ``s``
children here weighs ⌊w / ((s-1)!/(s-k)!)⌋ weight units, where ``w`` is the weight of a row of the group's unit
(`relations`): the weight of a row is shared by the tuples that it leads, so that the tuples of a unit weigh no more
together than its rows. These are the normalised marginals of the paper (its W_s) for one row per unit, for chains too,
and for the k members that a marginal *names* rather than for a fixed order. A group of fewer than ``k`` children has no
tuples.

With A and B the matrices of (groups, codes) counts of two members and W the diagonal of weights, pairs are Aᵀ W B less
the pairs of a row with itself; triples are pairs weighted by how often the group has each code of the third, less those
whose third is the first or the second. Products are of 64-bit integers, so they are exact where the result fits; what
would not fit stops at `LARGEST`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.columns.exact_sums import LARGEST, joined, weighted_sums, words
from privbench_core.errors import InternalError

PERMUTATION_SCALE = 1 << 36  # a triple out of 100 children still weighs 70,000 units
MOST_MEMBERS = 3  # children in a tuple: the triples of PrivPetal's groups are the largest that are used
_LOW = 12  # bits: of fewer than 2^33 rows, tuples of both words of a weight add up to less than 2^62
Numbers = NDArray[np.int64]
Member = tuple[Numbers, int]
"""Code of each row, and the number of codes."""


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
        """Return the rows where ``mask`` holds; their tuples keep their weights."""
        return Groups(self.owner[mask], self.size[mask], self.share[mask])

    def weights(self, members: int) -> Numbers:
        """Return the weight of the tuples that each row is in, shape (n,); rows of smaller groups are in none: 0."""
        weights = self.share
        for taken in range(members):
            weights = np.where(self.size > taken, weights // np.maximum(self.size - taken, 1), 0)
        return weights

    @cached_property
    def ends(self) -> Numbers:
        """Return where groups begin, and the number of rows, shape (groups + 1,)."""
        n = len(self.owner)
        return np.append(np.flatnonzero(np.r_[True, self.owner[1:] != self.owner[:-1]][:n]), n)


def tuple_counts(members: Sequence[tuple[Codes, int]], groups: Groups) -> Numbers:
    """Return weighted counts of ordered tuples of distinct children of one owner, shape (codes of each member).

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
    if len(groups.ends) * float(groups.share.max(initial=0)) < LARGEST:  # what is in between may wrap around, and back
        return _counted(wide, groups, weights)
    low, high = (_counted(wide, groups, word) for word in words(weights, _LOW))
    return joined(low, high, _LOW)


def _counted(members: Sequence[Member], groups: Groups, weights: Numbers) -> Numbers:
    if len(members) == 1:
        return weighted_sums(members[0][0], weights, members[0][1])
    of_groups = weights[groups.ends[:-1]]
    if len(members) == MOST_MEMBERS:
        return _triples(members, groups.ends, of_groups)
    return _pairs(members[0], members[1], groups.ends, of_groups)


def _pairs(first: Member, second: Member, ends: Numbers, weights: Numbers) -> Numbers:
    """Return Σ of weights over ordered pairs of distinct rows of a group, shape (codes of the first, of the second)."""
    left, right, itself = (_counts(member, ends) for member in (first, second, _joined(first, second)))
    return _distinct(left, right, itself, weights)


def _triples(members: Sequence[Member], ends: Numbers, weights: Numbers) -> Numbers:
    """Return Σ over ordered triples of distinct rows: (distinct pairs) x rows, less the rows of the pair itself."""
    one, two, three = members
    left, right, itself = (_counts(member, ends) for member in (one, two, _joined(one, two)))
    third = _counts(three, ends).tocsc()
    total = np.zeros((one[1], two[1], three[1]), dtype=np.int64)
    for code in range(three[1]):
        part = slice(third.indptr[code], third.indptr[code + 1])
        held, numbers = third.indices[part], third.data[part]
        total[:, :, code] = _distinct(left[held], right[held], itself[held], weights[held] * numbers)
    with_first = _pairs(_joined(one, three), two, ends, weights).reshape(one[1], three[1], two[1])
    with_second = _pairs(one, _joined(two, three), ends, weights).reshape(total.shape)
    return total - with_first.transpose(0, 2, 1) - with_second


def _distinct(
    left: scipy.sparse.csr_array, right: scipy.sparse.csr_array, itself: scipy.sparse.csr_array, weights: Numbers
) -> Numbers:
    """Return weighted pairs of the rows of each group, less those of a row with itself, from counts by group."""
    weighted = right.copy()
    weighted.data *= np.repeat(weights, np.diff(right.indptr))
    every = (left.T @ weighted).toarray()
    return np.asarray(every - (itself.T @ weights).reshape(every.shape))


def _counts(member: Member, ends: Numbers) -> scipy.sparse.csr_array:
    """Return how often each code occurs in each group, shape (groups, codes)."""
    codes, size = member
    counts = scipy.sparse.csr_array(
        (np.ones(len(codes), dtype=np.int64), codes, ends), shape=(len(ends) - 1, size), copy=True
    )
    counts.sum_duplicates()  # in place: hence the copy
    return counts


def _joined(first: Member, second: Member) -> Member:
    return first[0] * second[1] + second[0], first[1] * second[1]
