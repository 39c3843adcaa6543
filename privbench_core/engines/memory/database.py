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
from privbench_core.columns.differences import differences
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.exact_sums import weighted_sums
from privbench_core.columns.group_codes import agreement_codes, place_codes
from privbench_core.engines.memory.relations import Relations, Rows
from privbench_core.errors import InternalError
from privbench_core.privacy.clipping import UnitsOfRows
from privbench_core.privacy.features import (
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
    SiblingAgreement,
    UnitRows,
    feature_size,
)
from privbench_core.privacy.group_types import best_types
from privbench_core.privacy.permutations import PERMUTATION_SCALE, Groups
from privbench_core.privacy.relations import WEIGHT_SCALE
from privbench_core.privacy.views import HeldRows, ReferenceRows, ReferenceSums, ViewSpec
from privbench_core.schema.constraints import ForeignKey

_BLOCK = 1 << 20  # rows encoded at a time
Index = NDArray[np.int64] | slice


class PrivateDatabase(Relations):
    """All private rows of a database in memory: the engine that others agree with."""

    def coded(self, spec: ViewSpec) -> HeldRows:
        """See `Engine.coded`."""
        kept = self.kept(spec.table)
        if spec.bounded is not None:  # rows that refer to none weigh nothing
            kept = kept & (self.kept_parent_rows(spec.bounded.key) >= 0)
        rows: Index = slice(None) if kept.all() else np.flatnonzero(kept)
        members = {name: of.member for name, (of, _) in spec.features.items() if isinstance(of, CoMember)}
        groups = None
        if members:
            rows, groups = _groups(self, spec, np.flatnonzero(kept))
        codes = {name: _feature(self, spec.table, rows, *how) for name, how in spec.features.items()}
        sizes = {name: feature_size(*how) for name, how in spec.features.items()}
        weights = self._weights(spec, rows) if groups is None else groups.weights(1)
        units = cache(partial(self._units_of, spec.table, rows, spec.rows_per_unit[0]))
        return HeldRows(codes, sizes, weights, int(kept.sum()), members, groups, units=units)

    def _weights(self, spec: ViewSpec, rows: Index) -> NDArray[np.integer[Any]] | None:
        """Weights of some rows of a view, None where every row is a unit that counts."""
        owned = len(self.schema.ownership_path(spec.table)) > 0
        if spec.bounded is None:
            return self.weights(spec.table, spec.rows_per_unit)[rows] if owned else None
        if not owned:
            alone = self.kept(spec.table).astype(np.int32)
            return self.bounded_weights(spec.bounded.key, alone, spec.bounded.most)[rows]
        return self._bounded(spec.bounded.key, spec.bounded.most, spec.rows_per_unit[0])[rows]

    def _bounded(self, key: ForeignKey, most: int, rows_per_unit: int) -> NDArray[np.int32]:
        return self.bounded_weights(
            key, self.weights(key.child, (rows_per_unit,)), most * (WEIGHT_SCALE // rows_per_unit)
        )

    def references(self, key: ForeignKey, most: int, bounded: int | None = None) -> ReferenceRows:
        """See `Engine.references`."""
        rows = np.flatnonzero(self.kept(key.child))
        parents = self.rows(key.parent) if self.schema.table(key.parent).public else None
        referred = self.kept_parent_rows(key)[rows].astype(np.int64)
        weights = self.weights(key.child, (most,)) if bounded is None else self._bounded(key, bounded, most)
        summed = cache(lambda: _sums(referred, parents, partial(weighted_sums, weights=weights[rows])))
        if bounded is not None:
            return ReferenceRows(summed)
        return ReferenceRows(summed, lambda: _sums(referred, parents, self._units_of(key.child, rows, most).counts))

    def _units_of(self, table: str, rows: Index, most: int) -> UnitsOfRows:
        return UnitsOfRows(most, self.unit_of(table)[rows], self.unit_rows(table)[rows])

    def values(self, table: str, column: str, named: tuple[str, ...], most: int) -> ReferenceRows:
        """See `Engine.values`."""
        place = _unnamed(_kept_texts(self, table, column), named)
        of_rows = self._weights(ViewSpec(table, {}, (most,)), np.flatnonzero(self.kept(table)))
        weights = np.ones(len(place), dtype=np.int64) if of_rows is None else of_rows
        return ReferenceRows(cache(lambda: _sums(place, None, partial(weighted_sums, weights=weights))))

    def texts(self, table: str, column: str, named: tuple[str, ...]) -> dict[str, dict[int, int]]:
        """See `Engine.texts`."""
        encoded = _kept_texts(self, table, column)
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


def _groups(database: Relations, spec: ViewSpec, rows: Rows) -> tuple[Rows, Groups]:
    """The rows, siblings along the owner key side by side, and who is whose sibling."""
    key = database.schema.table(spec.table).owner_key
    if key is None:
        raise InternalError(f"{spec.table}: co-members along an owner key only")
    parents = database.parent_rows(key)[rows]
    owners = np.where(parents < 0, database.rows(key.parent) + np.arange(len(rows)), parents)
    order = np.argsort(owners, kind="stable")
    parents = parents[order]
    sizes = np.append(database.group_sizes(key), 1)[parents]
    of_row = PERMUTATION_SCALE // database.divisors(spec.table, spec.rows_per_unit)[rows[order]]
    return rows[order], Groups(owners[order], sizes, sizes * of_row)


def _feature(database: Relations, table: str, rows: Index, feature: Feature, discretizer: Discretizer) -> Codes:
    if isinstance(feature, Own | CoMember):  # which rows are whose co-members is for the tuples to say
        return _encoded(database.column(table, feature.column), discretizer)[rows]
    if isinstance(feature, UnitRows):
        return _encoded_numbers(database.unit_rows(table)[rows], discretizer)
    if isinstance(feature, OwnFanout):
        return _encoded_numbers(database.group_sizes(feature.key), discretizer)[rows]
    if isinstance(feature, OwnType | MemberPlace | SiblingAgreement | OwnDifference | OwnerDifference):
        return _of_all_rows(database, table, feature, discretizer)[rows]
    parents = database.kept_parent_rows(feature.key)[rows]
    if isinstance(feature, ParentRow):
        public = database.schema.table(feature.key.parent).public
        return _encoded_numbers(parents if public else np.minimum(parents, 0), discretizer)
    if isinstance(feature, OwnerFanout):
        return _encoded_numbers(np.append(database.group_sizes(feature.key), 1), discretizer)[parents]
    if isinstance(feature, OwnerType):
        return np.append(_latent_values(database, feature), discretizer.size)[parents]
    if isinstance(feature, ParentFanout):
        encoded = _encoded_numbers(database.group_sizes(feature.of), discretizer)
    else:
        encoded = _encoded(database.column(feature.key.parent, feature.column), discretizer)
    none = np.array([discretizer.size], dtype=np.min_scalar_type(discretizer.size))
    return np.concatenate([encoded, none])[parents]  # position -1, no parent, takes the last entry


def _of_all_rows(
    database: Relations,
    table: str,
    feature: OwnType | MemberPlace | SiblingAgreement | OwnDifference | OwnerDifference,
    discretizer: Discretizer,
) -> Codes:
    if isinstance(feature, OwnType):
        return _latent_values(database, feature)
    if isinstance(feature, MemberPlace):
        return _places(database, feature)
    if isinstance(feature, SiblingAgreement):
        codes = _encoded(database.column(table, feature.column), feature.coder)
        others = database.next_siblings(feature.key)
        return agreement_codes(codes, np.where(others < 0, -1, codes.astype(np.int64)[others]))
    return _differences(database, table, feature, discretizer)


def _places(database: Relations, feature: MemberPlace) -> Codes:
    """The place of each row of the key's child, shape (children,)."""
    key = feature.key
    scores = feature.order[_encoded(database.column(key.child, feature.column), feature.coder)]
    sizes = np.append(database.group_sizes(key), 1)[database.parent_rows(key)]
    return place_codes(database.ranks(key, scores), np.maximum(sizes, 1), feature.most)


def _differences(
    database: Relations, table: str, feature: OwnDifference | OwnerDifference, discretizer: Discretizer
) -> Codes:
    """How far a column of each row of a table lies above another one, or its owner's, shape (rows,)."""
    key = feature.key if isinstance(feature, OwnerDifference) else None
    of_base = table if key is None else key.parent
    own, base = (database.schema.table(t).column(c) for t, c in ((table, feature.column), (of_base, feature.base)))
    values, above = database.column(table, feature.column), database.column(of_base, feature.base)
    parents = None if key is None else database.kept_parent_rows(key)
    codes = np.empty(len(values), dtype=np.min_scalar_type(discretizer.size))
    for start in range(0, len(values), _BLOCK):
        if parents is None:
            bases = above.slice(start, _BLOCK)
        else:
            places = parents[start : start + _BLOCK]
            bases = above.take(pa.array(places, mask=places < 0))
        found = differences(own, base, values.slice(start, _BLOCK), bases)
        codes[start : start + _BLOCK] = discretizer.encode(pa.chunked_array([found]))
    return codes


def _latent_values(database: Relations, feature: OwnType | OwnerType) -> Codes:
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


def _sums(referred: NDArray[np.int64], parents: int | None, summed: Callable[..., NDArray[np.int64]]) -> ReferenceSums:
    """What rows weigh by the parent that each refers to, -1 for none, as ``summed`` adds up cells of some ``size``."""
    size = int(referred.max(initial=-1)) + 1
    totals = summed(np.where(referred < 0, size, referred), size=size + 1)
    return ReferenceSums(np.arange(size), totals[:-1], int(totals[-1]), parents)


def _kept_texts(database: Relations, table: str, column: str) -> pa.DictionaryArray:
    """The texts of a column in the kept rows of a table, each once, and which of them each row has."""
    rows = np.flatnonzero(database.kept(table))
    kept = database.column(table, column).take(pa.array(rows))  # first: truncated rows must not name a value
    return kept.combine_chunks().cast(pa.string()).dictionary_encode()


def _unnamed(encoded: pa.DictionaryArray, named: tuple[str, ...]) -> NDArray[np.int64]:
    """Which text each row has, -1 for NULL and for those that are ``named``; shape (rows,)."""
    known = pc.is_in(encoded.dictionary, value_set=pa.array(named, pa.string())).to_numpy(zero_copy_only=False)
    place = np.append(np.where(known, -1, np.arange(len(known))), -1)  # NULL takes the last entry
    return np.asarray(place[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)])
