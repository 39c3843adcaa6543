"""Coded views of private rows: the only form in which a synthesizer's queries meet them.

A view is described in public words (`ViewSpec`): which table, and for each of its columns where the value comes from
and by which released `Discretizer` it becomes a code. Each of these sources is a function of rows that come and go with
the row, so a view has the stability of its table; only what a key that becomes NULL refers to can change while the row
stays, and a view that looks along one moves more (`relations.reference_moves`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.columns.contingency import cell_index, contingency
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.exact_sums import LARGEST, total, weighted_sums
from privbench_core.columns.places import place_codes
from privbench_core.errors import InternalError
from privbench_core.privacy.group_types import best_types
from privbench_core.privacy.permutations import MOST_MEMBERS, PERMUTATION_SCALE, Groups, tuple_counts
from privbench_core.privacy.relations import (
    WEIGHT_SCALE,
    PrivateDatabase,
    Rows,
    lost_references,
    reference_moves,
    stability,
)
from privbench_core.schema.constraints import ForeignKey


@dataclass(frozen=True)
class Own:
    """A column of the row itself."""

    column: str


@dataclass(frozen=True)
class OfParent:
    """A column of the row that ``key`` refers to; an optional key adds one code, the last, for "refers to none"."""

    key: ForeignKey
    column: str


@dataclass(frozen=True)
class ParentRow:
    """Which row the key refers to: its position in a public table; of a private one, 0 for any row and -1 for none.

    Where a private row stands depends on the rows before it, which another unit may take away.
    """

    key: ForeignKey


@dataclass(frozen=True)
class OwnerFanout:
    """Size of the row's group along its owner key (itself included); 1 for a row without an owner."""

    key: ForeignKey


@dataclass(frozen=True)
class OwnFanout:
    """Number of kept children of the row along an owner key of another table."""

    key: ForeignKey


@dataclass(frozen=True, eq=False)
class GroupTypes:
    """Released parameters that give each group of children a type: the E-step of PrivLava (section 4.2, Algorithm 1).

    The type of a group is the combination of latent values with the largest sum of scores, the first of equal ones: of
    the number of its kept children, and of every column of each of them. It is a function of the group and of these
    parameters alone, in whole numbers, so that no order of summation matters. A parent without kept children has type
    0; others have latent values from 1.

    Attributes:
        shape: Number of values of each latent attribute, the 0 of a parent without children included.
        sizes: Coder of the numbers of children.
        size_scores: log p(number, latent values), shape (codes of ``sizes``, combinations), 64-bit integers.
        columns: Of the children: source, discretizer, and log p(code | latent values), shape (codes, combinations).
    """

    shape: tuple[int, ...]
    sizes: Discretizer
    size_scores: NDArray[np.int64]
    columns: tuple[tuple[Own | OwnType, Discretizer, NDArray[np.int64]], ...]

    @property
    def combinations(self) -> int:
        """Number of combinations of latent values that a group with children may have."""
        return math.prod(size - 1 for size in self.shape)


@dataclass(frozen=True)
class OwnType:
    """A latent value, by its position, of the row's group of children along an owner key of another table."""

    key: ForeignKey
    types: GroupTypes
    latent: int


@dataclass(frozen=True)
class OwnerType:
    """The same of the row's own group; an optional key adds one code, the last, for a row without an owner."""

    key: ForeignKey
    types: GroupTypes
    latent: int


@dataclass(frozen=True, eq=False)
class MemberPlace:
    """How many kept children of the row's owner stand before it, and how many there are: see `columns.places`.

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
    order: NDArray[np.int64]
    most: int


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


_BLOCK = 1 << 20  # rows encoded at a time
_SMALL = 1 << 10  # rounding shares of up to so many rows to whole weights changes them by a thousandth at most
_ROWS_PER_UNIT = (
    *range(1, _SMALL),
    *(1 << power for power in range(_SMALL.bit_length() - 1, WEIGHT_SCALE.bit_length())),
)
Index = NDArray[np.int64] | slice
Along = OfParent | ParentRow | OwnerFanout | OwnFanout | CoMember | OwnType | OwnerType | MemberPlace
Feature = Own | UnitRows | Along
_OF_GROUPS = (OwnerFanout, OwnerType, MemberPlace)  # of the rows of one owner: along owner keys only


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
    """

    table: str
    features: dict[str, tuple[Feature, Discretizer]]
    rows_per_unit: tuple[int, ...] = (1,)


@dataclass(frozen=True)
class References:
    """Which parent row each row of a view refers to along a key.

    Attributes:
        rows: Row number of the parent, -1 for none, shape (n,): private, and where the parent is private meaningless
            beyond being the same for rows that refer to the same parent.
        parents: Number of rows of a public parent; None of a private one.
    """

    rows: NDArray[np.signedinteger[Any]]
    parents: int | None


@dataclass(frozen=True)
class CodedView:
    """Coded private rows with integer weights.

    Attributes:
        codes: Column name -> codes in the smallest unsigned type that holds them, each of shape (n,).
        sizes: Column name -> number of codes.
        weights: Integer weights, shape (n,), or None where every row counts 1.
        unit: The weight that stands for a count of 1: one row, of a unit with up to T rows.
        stability: Largest total weight that one unit moves.
        touched: Largest number of rows of one unit.
        rows: Exact number of rows: private.
        members: Columns of a permutation view that are not of member 0 -> their member.
        groups: Of a permutation view: which rows have the same owner, and what their tuples weigh.
        references: Of a view of references: the parent row that each row refers to.
        own: Largest total weight of the rows of one unit; 0 if only ``stability`` is known.
        lost: Of a view of references: largest total weight of rows that only lose their reference with a unit.
    """

    codes: dict[str, Codes]
    sizes: dict[str, int]
    weights: NDArray[np.integer[Any]] | None
    unit: int
    stability: int
    touched: int
    rows: int
    members: Mapping[str, int] = field(default_factory=dict)
    groups: Groups | None = None
    references: References | None = None
    own: int = 0
    lost: float = 0.0

    @property
    def shifts(self) -> tuple[float, float]:
        """Largest total weight in cells that loses it, and that gains it, when one unit is removed.

        Other units that change, and rows that change a value, may have as much weight after as before; the removed unit
        has none after.
        """
        own = self.own or self.stability
        return (self.stability + own) / 2, (self.stability - own) / 2

    def take(self, mask: NDArray[np.bool_]) -> CodedView:
        """The rows where ``mask`` holds."""
        codes = {name: values[mask] for name, values in self.codes.items()}
        weights = None if self.weights is None else self.weights[mask]
        groups = None if self.groups is None else self.groups.take(mask)
        references = None if self.references is None else replace(self.references, rows=self.references.rows[mask])
        rows = int(mask.sum())
        return replace(self, codes=codes, weights=weights, rows=rows, groups=groups, references=references)

    def counts(self, columns: Sequence[str]) -> NDArray[np.int64]:
        """Weighted counts over ``columns`` (none: the total), shape (size, ...), at most `LARGEST`: private."""
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


def feature_size(feature: Feature, discretizer: Discretizer) -> int:
    """Number of codes of a view's column."""
    return discretizer.size + int(isinstance(feature, OfParent | OwnerType) and feature.key.optional)


def build_view(database: PrivateDatabase, spec: ViewSpec) -> CodedView:
    """Encode the kept rows of a table as ``spec`` says.

    Raises:
        InternalError: A column that is about other rows, or counts children along a key that is not their owner key; a
            number of rows per unit that weights cannot stand for exactly.
    """
    schema = database.schema
    along = [feature for feature, _ in spec.features.values() if isinstance(feature, Along)]
    for feature in along:
        if not _of_its_rows(spec.table, feature):
            raise InternalError(f"{feature.key.name}: not what a view of {spec.table} can look along")
    owned = len(schema.ownership_path(spec.table)) > 0
    possible = _ROWS_PER_UNIT[: None if owned else 1]
    most = [possible.index(most) if type(most) is int and most in possible else -1 for most in spec.rows_per_unit]
    if not most or most[0] < 0 or most != sorted(set(most)):
        raise InternalError(f"{spec.table}: no view can count {spec.rows_per_unit!r} rows per unit")
    kept = database.kept(spec.table)
    rows: Index = slice(None) if kept.all() else np.flatnonzero(kept)
    members = {name: feature.member for name, (feature, _) in spec.features.items() if isinstance(feature, CoMember)}
    groups = None
    if members:
        rows, groups = _groups(database, spec, np.flatnonzero(kept))
    codes = {name: _feature(database, spec.table, rows, *how) for name, how in spec.features.items()}
    sizes = {name: feature_size(*how) for name, how in spec.features.items()}
    weights: NDArray[np.integer[Any]] | None
    if groups is None:
        whole = WEIGHT_SCALE if owned else 1
        weights = database.weights(spec.table, spec.rows_per_unit)[rows] if owned else None
    else:
        whole, weights = PERMUTATION_SCALE, groups.weights(1)
    looked_along = dict.fromkeys(feature.key for feature in along)
    of_children = (table for feature in along for table in _children_seen(feature))
    here = stability(schema, spec.table, *of_children)
    moved = here + sum(reference_moves(schema, key, spec.rows_per_unit[0]) for key in looked_along)
    changed = here + sum(reference_moves(schema, key) for key in looked_along)
    touched = int(schema.max_rows_per_unit(spec.table) * changed)
    unit = whole // spec.rows_per_unit[-1]
    return CodedView(
        codes,
        sizes,
        weights,
        unit,
        int(np.ceil(moved * whole)),
        touched,
        int(kept.sum()),
        members,
        groups,
        own=whole,
    )


def build_references(database: PrivateDatabase, key: ForeignKey, most: int) -> CodedView:
    """The kept rows of the referring table, and which parent each refers to; a unit of up to ``most`` counts in full.

    A row of a unit of s weighs min(1/most, 1/s). The view has the stability of the table and what the key moves:
    other units change in no more places than in a view of the table that looks along the key, by at most 2 each.
    """
    if most < 1:
        raise InternalError(f"{key.name}: rows of a unit count in full up to at least 1, not {most}")
    schema = database.schema
    rows = np.flatnonzero(database.kept(key.child))
    parents = database.rows(key.parent) if schema.table(key.parent).public else None
    references = References(database.kept_parent_rows(key)[rows], parents)
    here = stability(schema, key.child)
    moved = here + reference_moves(schema, key, most)
    touched = int(schema.max_rows_per_unit(key.child) * (here + reference_moves(schema, key)))
    weights = database.weights(key.child, (most,))[rows]
    bound = int(np.ceil(moved * WEIGHT_SCALE))
    lost = lost_references(schema, key, most) * WEIGHT_SCALE
    return CodedView(
        {}, {}, weights, WEIGHT_SCALE, bound, touched, len(rows), references=references, own=WEIGHT_SCALE, lost=lost
    )


def _groups(database: PrivateDatabase, spec: ViewSpec, rows: Rows) -> tuple[Rows, Groups]:
    """The rows, siblings along the owner key side by side, and who is whose sibling."""
    key = database.schema.table(spec.table).owner_key
    fellows = [feature for feature, _ in spec.features.values() if isinstance(feature, CoMember)]
    if key is None or any(co_member.key != key or not 0 < co_member.member < MOST_MEMBERS for co_member in fellows):
        raise InternalError(f"{spec.table}: co-members along its owner key only, of members 1 to {MOST_MEMBERS - 1}")
    parents = database.parent_rows(key)[rows]
    owners = np.where(parents < 0, database.rows(key.parent) + np.arange(len(rows)), parents)
    order = np.argsort(owners, kind="stable")
    parents = parents[order]
    sizes = np.append(database.group_sizes(key), 1)[parents]
    of_row = PERMUTATION_SCALE // database.divisors(spec.table, spec.rows_per_unit)[rows[order]]
    return rows[order], Groups(owners[order], sizes, sizes * of_row)


def _of_its_rows(table: str, feature: Along) -> bool:
    """Whether a column is what the stability of a view of ``table`` was worked out for."""
    if isinstance(feature, OwnFanout | OwnType):
        return feature.key.owner and feature.key.parent == table
    return feature.key.child == table and (feature.key.owner or not isinstance(feature, _OF_GROUPS))


def _children_seen(feature: Along) -> tuple[str, ...]:
    """The tables whose kept rows decide the values of a column, where these are children: see `relations.stability`."""
    if isinstance(feature, OwnFanout):
        return (feature.key.child,)
    if isinstance(feature, OwnType | OwnerType):
        below = (of for of, _, _ in feature.types.columns if isinstance(of, OwnType))
        return (feature.key.child, *(table for of in below for table in _children_seen(of)))
    return ()


def _feature(database: PrivateDatabase, table: str, rows: Index, feature: Feature, discretizer: Discretizer) -> Codes:
    if isinstance(feature, Own | CoMember):  # which rows are whose co-members is for the tuples to say
        return _encoded(database.values(table, feature.column), discretizer)[rows]
    if isinstance(feature, UnitRows):
        return _encoded_numbers(database.unit_rows(table)[rows], discretizer)
    if isinstance(feature, OwnFanout):
        return _encoded_numbers(database.group_sizes(feature.key), discretizer)[rows]
    if isinstance(feature, OwnType | MemberPlace):
        of_rows = _latent_values(database, feature) if isinstance(feature, OwnType) else _places(database, feature)
        return of_rows[rows]
    parents = database.kept_parent_rows(feature.key)[rows]
    if isinstance(feature, ParentRow):
        public = database.schema.table(feature.key.parent).public
        return _encoded_numbers(parents if public else np.minimum(parents, 0), discretizer)
    if isinstance(feature, OwnerFanout):
        return _encoded_numbers(np.append(database.group_sizes(feature.key), 1), discretizer)[parents]
    if isinstance(feature, OwnerType):
        return np.append(_latent_values(database, feature), discretizer.size)[parents]
    encoded = _encoded(database.values(feature.key.parent, feature.column), discretizer)
    none = np.array([discretizer.size], dtype=np.min_scalar_type(discretizer.size))
    return np.concatenate([encoded, none])[parents]  # position -1, no parent, takes the last entry


def _places(database: PrivateDatabase, feature: MemberPlace) -> Codes:
    """The place of each row of the key's child, shape (children,)."""
    key = feature.key
    scores = feature.order[_encoded(database.values(key.child, feature.column), feature.coder)]
    sizes = np.append(database.group_sizes(key), 1)[database.parent_rows(key)]
    return place_codes(database.ranks(key, scores), np.maximum(sizes, 1), feature.most)


def _latent_values(database: PrivateDatabase, feature: OwnType | OwnerType) -> Codes:
    """The latent value of each row of the key's parent, shape (parents,)."""
    key, types = feature.key, feature.types
    parents = np.where(database.kept(key.child), database.parent_rows(key), -1)
    rows = np.flatnonzero(parents >= 0)
    rows = rows[np.argsort(parents[rows], kind="stable")]
    columns = [(_feature(database, key.child, rows, of, coder), scores) for of, coder, scores in types.columns]
    sizes = database.group_sizes(key)
    found = best_types(sizes, (_encoded_numbers(sizes, types.sizes), types.size_scores), columns)
    values = np.zeros(len(sizes), dtype=np.int32)
    held = sizes > 0
    values[held] = np.unravel_index(found[held], [size - 1 for size in types.shape])[feature.latent] + 1
    return values


def _encoded(values: pa.ChunkedArray, discretizer: Discretizer) -> Codes:
    """Codes of a column in the smallest type, block by block, so that nothing wider is held for all rows."""
    codes = np.empty(len(values), dtype=np.min_scalar_type(max(discretizer.size - 1, 0)))
    for start in range(0, max(len(values), 1), _BLOCK):
        codes[start : start + _BLOCK] = discretizer.encode(values.slice(start, _BLOCK))
    return codes


def _encoded_numbers(numbers: NDArray[np.integer[Any]], discretizer: Discretizer) -> Codes:
    """`_encoded` for integers that never were a column (group sizes, row positions)."""
    codes = np.empty(len(numbers), dtype=np.min_scalar_type(max(discretizer.size - 1, 0)))
    for start in range(0, len(numbers), _BLOCK):
        codes[start : start + _BLOCK] = discretizer.encode_numbers(numbers[start : start + _BLOCK].astype(np.int64))
    return codes


def build_values(database: PrivateDatabase, table: str, column: str, named: tuple[str, ...], most: int) -> CodedView:
    """The kept rows of a table, and which of the values of a column that are not ``named`` each has; -1 for none.

    Which value a row has, and whether it is named, is a function of the row alone, and no row changes its value: the
    view has the stability of the table (``docs/privacy.md``, section 5, mechanism 9).
    """
    view = build_view(database, ViewSpec(table, {}, (most,)))
    encoded = _kept_texts(database, table, column)
    known = pc.is_in(encoded.dictionary, value_set=pa.array(named, pa.string())).to_numpy(zero_copy_only=False)
    place = np.append(np.where(known, -1, np.arange(len(known))), -1)  # NULL takes the last entry
    rows = place[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
    return replace(view, references=References(rows, None))


def _kept_texts(database: PrivateDatabase, table: str, column: str) -> pa.DictionaryArray:
    """The texts of a column in the kept rows of a table, each once, and which of them each row has."""
    rows = np.flatnonzero(database.kept(table))
    kept = database.values(table, column).take(pa.array(rows))  # first: truncated rows must not name a value
    return kept.combine_chunks().cast(pa.string()).dictionary_encode()


def distinct_weights(
    database: PrivateDatabase, table: str, column: str, named: tuple[str, ...]
) -> tuple[dict[str, int], CodedView]:
    """Total weight of every distinct text in a column that is not ``named``, and the empty view that has the stability.

    A unit with k such texts in its kept rows weighs 1/√k in each of them, so that the squares of its weights add up to
    at most 1; how many rows have the text does not matter (``docs/privacy.md``, section 5, mechanism 6).
    """
    view = build_view(database, ViewSpec(table, {}))
    encoded = _kept_texts(database, table, column)
    known = pc.is_in(encoded.dictionary, value_set=pa.array(named, pa.string())).to_numpy(zero_copy_only=False)
    place = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    counted = encoded.is_valid().to_numpy(zero_copy_only=False) & ~np.append(known, True)[place]
    texts = max(len(encoded.dictionary), 1)
    units = database.unit_of(table)[database.kept(table)].astype(np.int64)
    each = np.unique(units[counted] * texts + place[counted])  # a unit and a text
    number = np.unique(each // texts, return_inverse=True, return_counts=True)
    of_number = np.array([0] + [math.isqrt(view.unit**2 // k) for k in range(1, int(number[2].max(initial=0)) + 1)])
    totals = weighted_sums(each % texts, of_number[number[2]][number[1]], texts)
    present = np.unique(each % texts).tolist()
    names = encoded.dictionary.to_pylist()
    return {names[text]: int(totals[text]) for text in present}, view
