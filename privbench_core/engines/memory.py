"""Codes and weights of the kept rows in memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.columns.differences import differences, numbers_of
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.exact_sums import weighted_sums
from privbench_core.columns.group_codes import agreement_codes, place_codes
from privbench_core.columns.row_constraints import verdicts
from privbench_core.engines.memory_relations import Relations, Rows
from privbench_core.errors import InternalError
from privbench_core.guards import RANGE_ROWS
from privbench_core.privacy.clipping import UnitsOfRows
from privbench_core.privacy.features import (
    AsStored,
    CoMember,
    Feature,
    MemberPlace,
    Own,
    OwnDifference,
    OwnerDifference,
    OwnerFanout,
    OwnerType,
    OwnFanout,
    OwnType,
    ParentFanout,
    ParentRow,
    SameReference,
    Satisfies,
    SiblingAgreement,
    SincePrevious,
    UnitRows,
    feature_size,
)
from privbench_core.privacy.permutations import PERMUTATION_SCALE, Groups
from privbench_core.privacy.relations import WEIGHT_SCALE
from privbench_core.privacy.views import BoundedReferences, HeldRows, ReferenceRows, ReferenceSums, ViewSpec
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.row_constraints import RowConstraint

Index = NDArray[np.int64] | slice
OfRow = (
    Own
    | AsStored
    | CoMember
    | UnitRows
    | OwnFanout
    | OwnType
    | MemberPlace
    | SiblingAgreement
    | OwnDifference
    | OwnerDifference
    | SincePrevious
    | Satisfies
)


class PrivateDatabase(Relations):
    """All private rows of a database in memory: the engine that others agree with."""

    def coded(self, spec: ViewSpec) -> HeldRows:
        kept = self.kept(spec.table)
        if spec.bounded is not None:  # rows that refer to none weigh nothing
            kept = kept & (self.kept_parent_rows(spec.bounded.key) >= 0)
        rows: Index = slice(None) if kept.all() else np.flatnonzero(kept)
        members = {name: of.member for name, (of, _) in spec.features.items() if isinstance(of, CoMember)}
        groups = None
        if members:
            rows, groups = self._groups(spec, np.flatnonzero(kept))
        codes = {name: self._codes(spec.table, rows, *how) for name, how in spec.features.items()}
        sizes = {name: feature_size(*how) for name, how in spec.features.items()}
        weights = self._weights(spec, rows) if groups is None else groups.weights(1)
        units = cache(partial(self._units_of, spec.table, rows, spec.rows_per_unit[0]))
        return HeldRows(codes, sizes, weights, int(kept.sum()), members, groups, units=units)

    def _weights(self, spec: ViewSpec, rows: Index) -> NDArray[np.integer[Any]] | None:
        """Return the weights of some rows of a view, None where every row is a unit that counts."""
        owned = len(self.schema.ownership_path(spec.table)) > 0
        if spec.bounded is None:
            return self.weights(spec.table, spec.rows_per_unit)[rows] if owned else None
        if owned:
            return self._bounded(spec.bounded, spec.rows_per_unit[0])[rows]
        alone = self.kept(spec.table).astype(np.int32)
        return self.bounded_weights(spec.bounded.key, alone, spec.bounded.most)[rows]

    def _bounded(self, bounded: BoundedReferences, most: int) -> NDArray[np.int32]:
        weights = self.weights(bounded.key.child, (most,))
        return self.bounded_weights(bounded.key, weights, bounded.most * (WEIGHT_SCALE // most))

    def references(self, key: ForeignKey, most: int, bounded: int | None = None) -> ReferenceRows:
        rows = np.flatnonzero(self.kept(key.child))
        parents = self.rows(key.parent) if self.schema.table(key.parent).public else None
        referred = self.kept_parent_rows(key)[rows].astype(np.int64)
        if bounded is not None:
            weights = self._bounded(BoundedReferences(key, bounded), most)[rows]
            return ReferenceRows(cache(lambda: _sums(referred, parents, partial(weighted_sums, weights=weights))))
        weights = self.weights(key.child, (most,))[rows]
        summed = cache(lambda: _sums(referred, parents, partial(weighted_sums, weights=weights)))
        return ReferenceRows(summed, lambda: _sums(referred, parents, self._units_of(key.child, rows, most).counts))

    def _units_of(self, table: str, rows: Index, most: int) -> UnitsOfRows:
        return UnitsOfRows(most, self.unit_of(table)[rows], self.unit_rows(table)[rows])

    def values(self, table: str, column: str, named: tuple[str, ...], most: int) -> ReferenceRows:
        place = _unnamed(self._kept_texts(table, column), named)
        of_rows = self._weights(ViewSpec(table, {}, (most,)), np.flatnonzero(self.kept(table)))
        weights = np.ones(len(place), dtype=np.int64) if of_rows is None else of_rows
        return ReferenceRows(cache(lambda: _sums(place, None, partial(weighted_sums, weights=weights))))

    def texts(self, table: str, column: str, named: tuple[str, ...]) -> dict[str, dict[int, int]]:
        encoded = self._kept_texts(table, column)
        place = _unnamed(encoded, named)
        counted = place >= 0
        _, units = np.unique(self.unit_of(table)[self.kept(table)][counted], return_inverse=True)
        size = max(len(encoded.dictionary), 1)
        pairs = np.unique(units * size + place[counted])  # a unit and a text, each pair once
        of_unit, of_text = pairs // size, pairs % size
        held = np.bincount(of_unit)[of_unit] if len(pairs) else pairs
        found, numbers = np.unique(np.stack([of_text, held]), axis=1, return_counts=True)
        result: dict[str, dict[int, int]] = {}
        for (text, k), number in zip(found.T.tolist(), numbers.tolist(), strict=True):
            result.setdefault(encoded.dictionary[text].as_py(), {})[k] = number
        return result

    def end_step(self) -> None:
        """See `Engine.end_step`: views end with who holds them."""

    def _kept_texts(self, table: str, column: str) -> pa.DictionaryArray:
        """Return the texts of a column in the kept rows of a table, each once, and which of them each row has."""
        rows = np.flatnonzero(self.kept(table))
        kept = self.column(table, column).take(pa.array(rows))  # first: truncated rows must not name a value
        return kept.combine_chunks().cast(pa.string()).dictionary_encode()

    def _groups(self, spec: ViewSpec, rows: Rows) -> tuple[Rows, Groups]:
        """Return the rows, siblings along the owner key side by side, and who is whose sibling."""
        key = self.schema.table(spec.table).owner_key
        if key is None:
            raise InternalError(f"{spec.table}: co-members along an owner key only")
        parents = self.parent_rows(key)[rows]
        owners = np.where(parents < 0, self.rows(key.parent) + np.arange(len(rows)), parents)
        order = np.argsort(owners, kind="stable")
        sizes = np.append(self.group_sizes(key), 1)[parents[order]]
        of_row = PERMUTATION_SCALE // self.divisors(spec.table, spec.rows_per_unit)[rows[order]]
        return rows[order], Groups(owners[order], sizes, sizes * of_row)

    def _codes(self, table: str, rows: Index, feature: Feature, discretizer: Discretizer) -> Codes:
        """Return the codes of a column of a view in some rows of its table."""
        if isinstance(feature, OfRow):
            return self._codes_of_all(table, feature, discretizer)[rows]
        parents = self.kept_parent_rows(feature.key)[rows]
        if isinstance(feature, ParentRow):
            public = self.schema.table(feature.key.parent).public
            return _encoded_numbers(parents if public else np.minimum(parents, 0), discretizer)
        if isinstance(feature, SameReference):
            return self._same_references(feature, rows)
        if isinstance(feature, OwnerFanout):
            return _encoded_numbers(np.append(self.group_sizes(feature.key), 1), discretizer)[parents]
        if isinstance(feature, OwnerType):
            return np.append(self._latent_values(feature), discretizer.size)[parents]
        if isinstance(feature, ParentFanout):
            encoded = _encoded_numbers(self.group_sizes(feature.of), discretizer)
        else:
            encoded = _encoded(self.column(feature.key.parent, feature.column), discretizer)
        none = np.array([discretizer.size], dtype=np.min_scalar_type(discretizer.size))
        return np.concatenate([encoded, none])[parents]  # position -1, no parent, takes the last entry

    def _same_references(self, feature: SameReference, rows: Index) -> Codes:
        """Return whether two ways lead from some rows to the same one."""
        theirs, mine = self.kept_parent_rows(feature.key)[rows], self.parent_rows(feature.mine)
        if feature.theirs is not None:
            theirs = np.append(self.parent_rows(feature.theirs), -1)[theirs]
        mine = mine[rows] if feature.of is None else np.append(mine, -1)[self.kept_parent_rows(feature.of)[rows]]
        return agreement_codes(theirs, np.where(theirs < 0, -1, mine)).astype(np.uint8)

    def _codes_of_all(self, table: str, feature: OfRow, discretizer: Discretizer) -> Codes:
        """Return the codes of a column of a view in all rows of its table."""
        if isinstance(feature, Own | AsStored | CoMember):  # which rows are whose co-members is for the tuples to say
            values = self.values_of if isinstance(feature, AsStored) else self.column
            return _encoded(values(table, feature.column), discretizer)
        if isinstance(feature, UnitRows):
            return _encoded_numbers(self.unit_rows(table), discretizer)
        if isinstance(feature, OwnFanout):
            return _encoded_numbers(self.group_sizes(feature.key), discretizer)
        if isinstance(feature, OwnType):
            return self._latent_values(feature)
        if isinstance(feature, MemberPlace):
            return self._places(feature)
        if isinstance(feature, SiblingAgreement):
            codes = _encoded(self.column(table, feature.column), feature.coder)
            others = self.next_siblings(feature.key)
            return agreement_codes(codes, np.where(others < 0, -1, codes.astype(np.int64)[others]))
        if isinstance(feature, Satisfies):
            return self._verdicts(table, feature.constraint)
        return self._differences(table, feature, discretizer)

    def _verdicts(self, table: str, constraint: RowConstraint) -> Codes:
        """Return whether each row of a table keeps a constraint, shape (rows,)."""
        values = {name: self.column(table, name) for name in constraint.columns}
        codes = np.empty(self.rows(table), dtype=np.uint8)
        for start in range(0, len(codes), RANGE_ROWS):
            block = {name: each.slice(start, RANGE_ROWS) for name, each in values.items()}
            codes[start : start + RANGE_ROWS] = verdicts(self.schema.table(table), constraint, block)
        return codes

    def _places(self, feature: MemberPlace) -> Codes:
        """Return the place of each row of the key's child, shape (children,)."""
        key = feature.key
        scores = feature.order[_encoded(self.column(key.child, feature.column), feature.coder)]
        sizes = np.append(self.group_sizes(key), 1)[self.parent_rows(key)]
        return place_codes(self.ranks(key, scores), np.maximum(sizes, 1), feature.most)

    def _differences(
        self, table: str, feature: OwnDifference | OwnerDifference | SincePrevious, discretizer: Discretizer
    ) -> Codes:
        """Return a column of each row of a table minus another one, its owner's, or a sibling's, shape (rows,)."""
        of_base = feature.key.parent if isinstance(feature, OwnerDifference) else table
        to = feature.column if isinstance(feature, SincePrevious) else feature.base
        own, base = (self.schema.table(t).column(c) for t, c in ((table, feature.column), (of_base, to)))
        values, bases = self.values_of(table, feature.column), self.values_of(of_base, to)
        if not isinstance(feature, OwnDifference):
            if isinstance(feature, SincePrevious):
                from_rows = self.previous_siblings(feature.key, *numbers_of(own, values))
            else:
                from_rows = self.kept_parent_rows(feature.key)
            bases = bases.take(pa.array(from_rows, mask=from_rows < 0))
        codes = np.empty(len(values), dtype=np.min_scalar_type(discretizer.size))
        for start in range(0, len(values), RANGE_ROWS):
            found = differences(own, base, values.slice(start, RANGE_ROWS), bases.slice(start, RANGE_ROWS))
            codes[start : start + RANGE_ROWS] = discretizer.encode(pa.chunked_array([found]))
        return codes

    def _latent_values(self, feature: OwnType | OwnerType) -> Codes:
        """Return the latent value of each row of the key's parent, shape (parents,)."""
        key, types = feature.key, feature.types
        parents = np.where(self.kept(key.child), self.parent_rows(key), -1)
        rows = np.flatnonzero(parents >= 0)
        rows = rows[np.argsort(parents[rows], kind="stable")]
        columns = [self._codes(key.child, rows, of, coder) for of, coder, _ in types.columns]
        return types.latent_values(feature.latent, self.group_sizes(key), columns).astype(np.int32)


def _encoded(values: pa.ChunkedArray, discretizer: Discretizer) -> Codes:
    """Return codes of a column in the smallest type, block by block, so that nothing wider is held for all rows."""
    codes = np.empty(len(values), dtype=np.min_scalar_type(max(discretizer.size - 1, 0)))
    for start in range(0, max(len(values), 1), RANGE_ROWS):
        codes[start : start + RANGE_ROWS] = discretizer.encode(values.slice(start, RANGE_ROWS))
    return codes


def _encoded_numbers(numbers: NDArray[np.integer[Any]], discretizer: Discretizer) -> Codes:
    """Return `_encoded` for integers that never were a column (group sizes, row positions)."""
    codes = np.empty(len(numbers), dtype=np.min_scalar_type(max(discretizer.size - 1, 0)))
    for start in range(0, len(numbers), RANGE_ROWS):
        part = slice(start, start + RANGE_ROWS)
        codes[part] = discretizer.encode_numbers(numbers[part].astype(np.int64))
    return codes


def _sums(referred: NDArray[np.int64], parents: int | None, summed: Callable[..., NDArray[np.int64]]) -> ReferenceSums:
    """Return what rows weigh by the parent that each refers to, -1 for none; ``summed`` adds up cells of a ``size``."""
    size = int(referred.max(initial=-1)) + 1
    totals = summed(np.where(referred < 0, size, referred), size=size + 1)
    return ReferenceSums(np.arange(size), totals[:-1], int(totals[-1]), parents)


def _unnamed(encoded: pa.DictionaryArray, named: tuple[str, ...]) -> NDArray[np.int64]:
    """Return which text each row has, -1 for NULL and for those that are ``named``; shape (rows,)."""
    known = pc.is_in(encoded.dictionary, value_set=pa.array(named, pa.string())).to_numpy(zero_copy_only=False)
    place = np.append(np.where(known, -1, np.arange(len(known))), -1)  # NULL takes the last entry
    return np.asarray(place[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)])
