"""Columns of views: what of a row, of what it refers to, or of its group a view may show. The list is closed.

Which of them a view of a table may have, and its stability then, is in `view_building`; proofs are in
``docs/privacy.md``, section 4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.columns.discretizer import Discretizer
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.row_constraints import RowConstraint

Numbers = NDArray[np.int64]
_HELD = 4_000_000  # scores of groups that are held at once: 32 MB


@dataclass(frozen=True)
class Own:
    """A column of the row itself."""

    column: str


@dataclass(frozen=True)
class AsStored:
    """A column of the row as it stands, whatever it is modelled relative to."""

    column: str


@dataclass(frozen=True)
class OfParent:
    """A column of the row that ``key`` refers to; one that may be empty adds a code, the last, for "refers to none"."""

    key: ForeignKey
    column: str


@dataclass(frozen=True)
class OwnDifference:
    """A column of the row minus another one of it; NULL where either is.

    Both have the same type, or are points in time that are compared in the coarser type (`columns.lags`).
    """

    column: str
    base: str


@dataclass(frozen=True)
class Satisfies:
    """Whether the row keeps a constraint between columns of it: see `columns.row_constraints`.

    None of them is relative to another column.
    """

    constraint: RowConstraint


@dataclass(frozen=True)
class OwnerDifference:
    """A column of the row minus one of its owner; NULL where either is, or without an owner.

    ``key`` is the owner key. Types are as in `OwnDifference`. Both are values as they stand, whatever they are modelled
    relative to.
    """

    key: ForeignKey
    column: str
    base: str


@dataclass(frozen=True)
class SincePrevious:
    """A column of the row minus that of the kept sibling before it, in the order of the column and then a keyed hash.

    Siblings are children of one owner along ``key``, the owner key; those where the column is NULL are passed over. It
    is NULL of the first of them, of rows where the column is NULL, and of rows without an owner. Values are as they
    stand, whatever they are modelled relative to.
    """

    key: ForeignKey
    column: str


@dataclass(frozen=True)
class ParentRow:
    """Which row the key refers to: its position in a public table; of a private one, 0 for any row and -1 for none.

    Where a private row stands depends on the rows before it, which another unit may take away.
    """

    key: ForeignKey


@dataclass(frozen=True)
class SameReference:
    """Whether two ways lead to the same row (`columns.group_codes`): by ``key``, and by the row itself or its owner.

    A row is alone where one of the ways leads nowhere.

    Attributes:
        key: Of the row.
        theirs: A key of the row that ``key`` refers to; None where that row itself is where both ways lead.
        of: The owner key, where the other way is the owner's.
        mine: A key of the row, or of its owner.
    """

    key: ForeignKey
    theirs: ForeignKey | None
    of: ForeignKey | None
    mine: ForeignKey


@dataclass(frozen=True)
class OwnerFanout:
    """Size of the row's group along its owner key (itself included); 1 for a row without an owner."""

    key: ForeignKey


@dataclass(frozen=True)
class OwnFanout:
    """Number of kept children of the row along an owner key of another table."""

    key: ForeignKey


@dataclass(frozen=True)
class ParentFanout:
    """Number of kept children that the row that ``key`` refers to has along ``of``, an owner key to the same table.

    Along the row's owner key these are its owner's other children. A key that may be empty adds one code, the last, for
    "refers to none".
    """

    key: ForeignKey
    of: ForeignKey


@dataclass(frozen=True, eq=False)
class GroupTypes:
    """Released parameters that give each group of children a type: the E-step of PrivLava (section 4.2, Algorithm 1).

    The type of a group is the combination of latent values with the largest sum of scores, the first of equal ones: of
    the number of its kept children, and of every column of each of them. It is a function of the group's own rows and
    of these parameters alone, so removing another group does not change it; in whole numbers, so that no order of
    summation matters. A parent without kept children has type 0; others have latent values from 1.

    Attributes:
        shape: Number of values of each latent attribute, the 0 of a parent without children included.
        sizes: Coder of the numbers of children.
        size_scores: log p(number, latent values), shape (codes of ``sizes``, combinations), 64-bit integers.
        columns: Of the children: source, discretizer, and log p(code | latent values), shape (codes, combinations).
    """

    shape: tuple[int, ...]
    sizes: Discretizer
    size_scores: Numbers
    columns: tuple[tuple[Own | OwnType, Discretizer, Numbers], ...]

    @property
    def combinations(self) -> int:
        """Return the number of combinations of latent values that a group with children may have."""
        return math.prod(size - 1 for size in self.shape)

    def latent_values(self, latent: int, sizes: Numbers, columns: Sequence[Codes]) -> Numbers:
        """Return a latent value of each group, shape (groups,).

        Args:
            latent: Its position.
            sizes: Number of rows of each group, shape (groups,).
            columns: Code of each row in each of ``self.columns``, groups in order, shape (rows,).
        """
        of_sizes = self.sizes.encode_numbers(sizes)
        ends = np.append(0, np.cumsum(sizes))
        best = np.zeros(len(sizes), dtype=np.int64)
        step = max(1, _HELD // self.combinations)
        for start in range(0, len(sizes), step):
            part = slice(start, start + step)
            total = self.size_scores[of_sizes[part]]
            begin = ends[part.start : min(part.stop, len(sizes)) + 1]
            for codes, (_, _, scores) in zip(columns, self.columns, strict=True):
                inside = codes[begin[0] : begin[-1]]
                ones = np.ones(len(inside), dtype=np.int64)
                counts = scipy.sparse.csr_array((ones, inside, begin - begin[0]), shape=(len(begin) - 1, len(scores)))
                total += counts @ scores
            best[part] = np.argmax(total, axis=1)
        values = np.unravel_index(best, [size - 1 for size in self.shape])[latent] + 1
        return np.where(sizes > 0, values, 0)


@dataclass(frozen=True)
class OwnType:
    """A latent value, by its position, of the row's group of children along an owner key of another table."""

    key: ForeignKey
    types: GroupTypes
    latent: int


@dataclass(frozen=True)
class OwnerType:
    """`OwnType` of the row's own group; an optional key adds one code, the last, for a row without an owner."""

    key: ForeignKey
    types: GroupTypes
    latent: int


@dataclass(frozen=True, eq=False)
class MemberPlace:
    """How many kept children of the row's owner stand before it, and how many there are: see `columns.group_codes`.

    Attributes:
        key: The owner key.
        column: They stand in an order by this column of theirs; equal ones by a keyed hash of their own keys.
        coder: Its discretizer.
        order: Released: those whose code has a smaller number stand before, 64-bit integers of shape (codes,).
        most: Up to how many members places are distinguished.
    """

    key: ForeignKey
    column: str
    coder: Discretizer
    order: Numbers
    most: int


@dataclass(frozen=True)
class SiblingAgreement:
    """Whether another kept child of the row's owner has the same code of a column: see `columns.group_codes`.

    It is the next one in an order by a keyed hash of their own keys, and the first one for the last. A row without an
    owner, or alone with it, has none to agree with.
    """

    key: ForeignKey
    column: str
    coder: Discretizer


@dataclass(frozen=True)
class UnitRows:
    """Number of kept rows of the row's unit in the view's table, itself included."""


@dataclass(frozen=True)
class CoMember:
    """A column of another child of the row's owner, the ``member``-th of an ordered tuple; the row is member 0.

    A view with such a column is one of a *permutation relation* (PrivPetal, section 3.1; `permutations`): a marginal
    looks at tuples of as many distinct children as it names, where columns of no co-member are of member 0.
    """

    key: ForeignKey
    member: int
    column: str


Along = (
    OfParent
    | OwnerDifference
    | SincePrevious
    | ParentRow
    | SameReference
    | OwnerFanout
    | OwnFanout
    | ParentFanout
    | CoMember
    | OwnType
    | OwnerType
    | MemberPlace
    | SiblingAgreement
)
Feature = Own | AsStored | OwnDifference | Satisfies | UnitRows | Along


def feature_size(feature: Feature, discretizer: Discretizer) -> int:
    """Return the number of codes of a view's column."""
    of_another = isinstance(feature, OfParent | ParentFanout | OwnerType) and feature.key.may_be_empty
    return discretizer.size + int(of_another)
