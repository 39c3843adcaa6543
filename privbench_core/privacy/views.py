"""Coded views of private rows: the only form in which a synthesizer's queries meet them.

A view is described in public words (`ViewSpec`); what builds it is in `privacy.view_building`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.exact_sums import LARGEST, cell_index, contingency, total
from privbench_core.errors import InternalError
from privbench_core.privacy.clipping import UnitsOfRows, lengths_of_cells
from privbench_core.privacy.features import Feature
from privbench_core.privacy.permutations import Groups, tuple_counts
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema

Groupings = tuple[NDArray[np.int64], ...]
Scales = tuple[tuple[int, ...], ...]
"""Of each column the group of each code, dense from 0, shape (size,); none: every code by itself."""


@dataclass(frozen=True)
class BoundedReferences:
    """Which rows of a view count: those that refer to a row along a key, and to the rows of one unit only so many.

    Attributes:
        key: Refers to a private table, becomes NULL where a unit goes, and may leave the unit of the referring row.
        most: Released: how many rows that weigh 1/T count in full, T as in `ViewSpec`. In the order of the keyed hash
            of their own keys, rows that refer to rows of one unit count until they weigh as much; the row that goes
            beyond that counts in part.
    """

    key: ForeignKey
    most: int


@dataclass(frozen=True)
class ViewSpec:
    """A public description of a view.

    Attributes:
        table: Whose rows it shows.
        features: Column name -> (source, discretizer).
        rows_per_unit: Released numbers up to 1,024, or powers of two, ascending. With one, T, counts are of rows, those
            of a unit with more than T as T of them; for T = 1 every unit counts 1. Answers have T times the noise. With
            several, a row counts as often as its unit's own T, the first that is at least the number of the unit's
            rows, goes into the last one, so that units with few rows have little noise. A table without owner has one
            row per unit.
        bounded: Where only rows count that refer to others along a key; then there is one T.
    """

    table: str
    features: dict[str, tuple[Feature, Discretizer]]
    rows_per_unit: tuple[int, ...] = (1,)
    bounded: BoundedReferences | None = None


@dataclass(frozen=True)
class ReferenceSums:
    """The total weight of the rows that refer to each parent: private.

    Attributes:
        rows: Row numbers of parents, each once, without a meaning for a private one; some to which no row refers may be
            left out.
        totals: Total weights, shape (len(rows),).
        none: Total weight of the rows that refer to none.
        parents: Number of rows of a public parent; None of a private one.
    """

    rows: NDArray[np.int64]
    totals: NDArray[np.int64]
    none: int
    parents: int | None


class CodedRows:
    """The kept rows of a view with their codes and weights, or references, wherever an engine keeps them: private.

    Raises:
        InternalError: What is asked for is not in this view.
    """

    def prepare(self, marginals: Sequence[tuple[str, ...]]) -> None:
        """Hear which `counts` will be asked for, to find them together."""

    def counts(self, columns: Sequence[str]) -> NDArray[np.int64]:
        """Return weighted counts over ``columns`` (none: the total), at most `LARGEST`; see `CodedView.counts`."""
        raise NotImplementedError

    def clipped_counts(self, columns: Sequence[str], groups: Groupings, scales: Scales = ()) -> NDArray[np.int64]:
        """Return counts over (groups of the codes of) ``columns``, each unit's clipped in L2: see `UnitsOfRows.counts`.

        A row in a cell makes the vector as long as the product of the ``scales`` of its (groups of) codes; none: 1.
        Only of a view with one number of rows per unit, of its own rows and without co-members.
        """
        raise InternalError("a view of references has no codes")

    def reference_sums(self) -> ReferenceSums:
        """Return the total weights by parent, of a view of references."""
        raise InternalError("only a view of references can count references to parents")

    def clipped_references(self) -> ReferenceSums:
        """Return `reference_sums`, each unit's counts of references clipped in L2 norm; of a public parent."""
        raise InternalError("the counts of units cannot be clipped in this view")

    def held(self) -> HeldRows:
        """Return the codes themselves in memory, for what is not a sum over groups of rows."""
        raise InternalError("a view of references has no codes")


class Engine(Protocol):
    """What finds the kept rows of views, which `privacy.relations` defines: all engines find the same counts."""

    schema: Schema

    def coded(self, spec: ViewSpec) -> CodedRows:
        """Return the kept rows of a table, coded as ``spec`` says, weighted where the table has an owner."""
        ...

    def references(self, key: ForeignKey, most: int, bounded: int | None = None) -> CodedRows:
        """Return the kept rows of the key's child, and the parent of each; ``bounded`` as in `BoundedReferences`."""
        ...

    def values(self, table: str, column: str, named: tuple[str, ...], most: int) -> CodedRows:
        """Return the kept rows of a table, and which text of a column that is not ``named`` each has, as its parent."""
        ...

    def texts(self, table: str, column: str, named: tuple[str, ...]) -> dict[str, dict[int, int]]:
        """Return how many units have each text of a column in kept rows, by the number k of texts that they have.

        Texts that are ``named`` are left out, and are not among the k.
        """
        ...

    def end_step(self) -> None:
        """Delete what was kept for the views of a step."""
        ...


@dataclass(frozen=True)
class HeldRows(CodedRows):
    """Coded rows in memory.

    Attributes:
        codes: Column name -> codes in the smallest unsigned type that holds them, each of shape (n,).
        sizes: Column name -> number of codes.
        weights: Integer weights, shape (n,), or None where every row counts 1.
        rows: Exact number of rows: private.
        members: Columns of a permutation view that are not of member 0 -> their member.
        groups: Of a permutation view: which rows have the same owner, and what their tuples weigh.
        units: Finds whose rows these are, where their counts may be clipped.
    """

    codes: dict[str, Codes]
    sizes: Mapping[str, int]
    weights: NDArray[np.integer[Any]] | None
    rows: int
    members: Mapping[str, int] = field(default_factory=dict)
    groups: Groups | None = None
    units: Callable[[], UnitsOfRows] | None = None

    def held(self) -> HeldRows:
        """See `CodedRows.held`."""
        return self

    def take(self, mask: NDArray[np.bool_]) -> HeldRows:
        """Return the rows where ``mask`` holds."""
        codes = {name: values[mask] for name, values in self.codes.items()}
        weights = None if self.weights is None else self.weights[mask]
        groups = None if self.groups is None else self.groups.take(mask)
        return replace(self, codes=codes, weights=weights, rows=int(mask.sum()), groups=groups, units=None)

    def counts(self, columns: Sequence[str]) -> NDArray[np.int64]:
        """See `CodedRows.counts`."""
        if not columns:
            return np.array(self.rows if self.weights is None else min(total(self.weights), LARGEST), dtype=np.int64)
        if self.groups is None:
            return contingency(self.codes, self.sizes, columns, self.weights)
        members = sorted({self.members.get(name, 0) for name in columns})
        named = [[name for name in columns if self.members.get(name, 0) == member] for member in members]
        cells = [cell_index(self.codes, self.sizes, names) for names in named]
        counted = tuple_counts(
            [(c, math.prod(self.sizes[name] for name in names)) for c, names in zip(cells, named, strict=True)],
            self.groups,
        )
        order = [name for names in named for name in names]
        shaped = counted.reshape([self.sizes[name] for name in order])
        return shaped.transpose([order.index(name) for name in columns])

    def clipped_counts(self, columns: Sequence[str], groups: Groupings, scales: Scales = ()) -> NDArray[np.int64]:
        """See `CodedRows.clipped_counts`."""
        codes = {name: self.codes[name] for name in columns}
        sizes = {name: self.sizes[name] for name in columns}
        for name, group_of in zip(columns, groups, strict=bool(groups)):
            codes[name], sizes[name] = group_of[codes[name]], int(group_of.max(initial=-1)) + 1
        if self.weights is None:  # every row is a unit
            return contingency(codes, sizes, columns)
        shape = tuple(sizes[name] for name in columns)
        cells, lengths = cell_index(codes, sizes, columns), lengths_of_cells(scales).ravel()
        if self.units is None:
            raise InternalError("the counts of units cannot be clipped in this view")
        return self.units().counts(cells, math.prod(shape), lengths).reshape(shape)


@dataclass(frozen=True)
class ReferenceRows(CodedRows):
    """A view of references, of which only the total weight of the rows that refer to each parent is known.

    Attributes:
        summed: Finds the total weights.
        clipped: Finds them with each unit's counts clipped in L2 norm; None where they cannot be.
    """

    summed: Callable[[], ReferenceSums]
    clipped: Callable[[], ReferenceSums] | None = None

    def counts(self, columns: Sequence[str]) -> NDArray[np.int64]:
        """See `CodedRows.counts`: there are no columns, so this is the total."""
        sums = self.summed()
        return np.array(min(int(sums.totals.sum()) + sums.none, LARGEST), dtype=np.int64)

    def reference_sums(self) -> ReferenceSums:
        """See `CodedRows.reference_sums`."""
        return self.summed()

    def clipped_references(self) -> ReferenceSums:
        """See `CodedRows.clipped_references`."""
        return super().clipped_references() if self.clipped is None else self.clipped()


@dataclass(frozen=True)
class CodedView:
    """Coded private rows with integer weights.

    Attributes:
        data: The rows: private.
        sizes: Column name -> number of codes.
        weight_scale: The weight that stands for a count of 1: one row, of a unit with up to T rows.
        stability: Largest total weight that one unit moves.
        touched: Largest number of rows of one unit.
        own: Largest total weight of the rows of one unit; 0 if only ``stability`` is known.
        lost: Of a view of references: largest total weight of rows that only lose their reference with a unit.
        clipped: The same as ``stability`` where each unit's counts are clipped in L2 norm: the sum of the norms of what
            one unit moves; 0 where they cannot be.
    """

    data: CodedRows
    sizes: dict[str, int]
    weight_scale: int
    stability: int
    touched: int
    own: int = 0
    lost: float = 0.0
    clipped: int = 0

    @property
    def shifts(self) -> tuple[float, float]:
        """Return the largest total weight in cells that loses it, and that gains it, when one unit is removed.

        Other units that change, and rows that change a value, may have as much weight after as before; the removed unit
        has none after.
        """
        own = self.own or self.stability
        return (self.stability + own) / 2, (self.stability - own) / 2

    @property
    def clipped_shifts(self) -> tuple[float, float]:
        """Return `shifts` of clipped counts, in L2 norm.

        Raises:
            InternalError: Counts of units cannot be clipped in this view.
        """
        if not self.clipped:
            raise InternalError("the counts of units cannot be clipped in this view")
        return (self.clipped + self.own) / 2, (self.clipped - self.own) / 2

    @property
    def codes(self) -> dict[str, Codes]:
        """Return the codes in memory by column, each of shape (n,): private."""
        return self.data.held().codes

    def take(self, mask: NDArray[np.bool_]) -> CodedView:
        """Return the rows where ``mask`` holds."""
        return replace(self, data=self.data.held().take(mask), clipped=0)

    def counts(self, columns: Sequence[str]) -> NDArray[np.int64]:
        """Return weighted counts over ``columns`` (none: the total), shape (size, ...), at most `LARGEST`: private."""
        return self.data.counts(columns)
