"""Check what the session and the curator accept: exact types, down to the arrays inside, in the shapes of the proofs.

A subclass may override what a proof relies on, an array of another shape is broadcast so that rows count several times,
and a foreign key that the schema does not declare has no stability. These checks use public values only and run before
anything is charged or read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.discretizer import Binning, Discretizer
from privbench_core.columns.group_codes import AGREEMENTS, place_count
from privbench_core.columns.lags import coarser
from privbench_core.columns.registry import is_known
from privbench_core.columns.row_constraints import VERDICTS, can_hold
from privbench_core.errors import InternalError
from privbench_core.privacy.budget import Price
from privbench_core.privacy.clipping import LARGEST_SCALE
from privbench_core.privacy.features import (
    Along,
    AsStored,
    CoMember,
    Feature,
    GroupTypes,
    MemberPlace,
    OfParent,
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
)
from privbench_core.privacy.queries import (
    CentreSums,
    Distances,
    Marginal,
    ParentCounts,
    Query,
    RankSums,
    SignProducts,
)
from privbench_core.privacy.relations import WEIGHT_SCALE, is_set_null_across_units
from privbench_core.privacy.split_rules import ByValue, Centres, Rule
from privbench_core.privacy.views import BoundedReferences, ViewSpec
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.row_constraints import RowConstraint, is_well_formed
from privbench_core.schema.tables import Schema

# Closed lists, no subclasses: each entry has a proof of its sensitivity, or of its independence of other rows.
_QUERIES = (Marginal, Distances, SignProducts, CentreSums, ParentCounts, RankSums)
_FEATURES = (
    Own,
    AsStored,
    OfParent,
    OwnDifference,
    Satisfies,
    OwnerDifference,
    ParentRow,
    OwnerFanout,
    OwnFanout,
    CoMember,
    UnitRows,
    OwnType,
    OwnerType,
    MemberPlace,
    SiblingAgreement,
    SincePrevious,
    ParentFanout,
    SameReference,
)
Sizes = Mapping[str, int]


def admit_price(site: str, price: Price) -> None:
    """Refuse anything but an exact `Price`: a subclass could add up to less than it buys."""
    if type(price) is not Price:
        raise InternalError(f"{site}: a price must be a Price, not {type(price).__name__}")


def admit_queries(site: str, queries: Sequence[Query], sizes: Sizes) -> tuple[Query, ...]:
    """Return ``queries``, at least one, each of a proven kind and about the columns of a view.

    Raises:
        InternalError: A query or a part of one is of another type, shape or column.
    """
    asked = tuple(queries)
    if not asked or any(type(query) not in _QUERIES for query in asked):
        raise InternalError(f"{site}: only the queries of privacy.queries may be asked, and at least one")
    for query in asked:
        if type(query) is Marginal:
            _admit_marginal(site, query, sizes)
        elif type(query) is Distances:
            _admit_distances(site, query, sizes)
        elif type(query) is SignProducts:
            _admit_signs(site, query, sizes)
        elif type(query) is CentreSums:
            admit_rule(site, query.centres, sizes)
            _require(type(query.centres) is Centres, site, "the centres of privacy.split_rules to sum around")
        elif type(query) is ParentCounts:
            groups = query.group_of
            known = type(groups) is np.ndarray and np.issubdtype(groups.dtype, np.integer) and groups.ndim == 1
            _require(known and int(groups.min(initial=0)) >= 0, site, "a group, numbered from 0, for each parent")
            _require(type(query.clipped) is bool, site, "whether units are clipped")
            alone = not query.clipped or bool((groups == np.arange(len(groups))).all())
            _require(alone, site, "a group for each parent, where units are clipped")
        elif type(query) is RankSums:
            ends = query.ends
            known = type(ends) is tuple and all(type(end) is int and end >= 0 for end in ends)
            _require(known and list(ends) == sorted(ends), site, "ends of blocks of ranks in ascending order")
    return asked


def admit_rule(site: str, rule: Rule, sizes: Sizes) -> None:
    """Refuse a rule of another kind, and one that leaves a code of its columns without a part.

    Such a code would stop the run only if some row has it, which would reveal that row.
    """
    if type(rule) is ByValue:
        _admit_columns(site, (rule.column,), sizes)
        parts = rule.part_of
        _require(type(parts) is tuple and len(parts) == sizes[rule.column], site, "a part for each code")
        _require(all(type(part) is int and part >= 0 for part in parts), site, "parts that are numbered from 0")
    elif type(rule) is Centres:
        _require(type(rule.columns) is tuple and len(rule.columns) > 0, site, "at least one column")
        kinds = [pair[1] for pair in rule.columns if type(pair) is tuple and type(pair[1]) is str]
        known = len(kinds) == len(rule.columns) and set(kinds) <= {"ordered", "list"}
        _require(known, site, "columns that are ordered or a list of values")
        names = tuple(name for name, _ in rule.columns)
        _admit_columns(site, names, sizes)
        _require(type(rule.points) is tuple and len(rule.points) > 0, site, "at least one centre")
        for tables in rule.points:
            _require(type(tables) is tuple and len(tables) == len(names), site, "a table of distances per column")
            for name, table in zip(names, tables, strict=True):
                known = type(table) is tuple and all(type(value) is float for value in table)
                _require(known and len(table) == sizes[name], site, "a distance for each code")
    else:
        raise InternalError(f"{site}: rows are split by the rules of privacy.split_rules only")


def admit_view(schema: Schema, spec: ViewSpec) -> ViewSpec:
    """Return ``spec`` with the schema's own foreign keys in place of equal ones.

    Raises:
        InternalError: A feature, discretizer or key of an unknown type; a key that the schema does not declare exactly
            so; a column that is part of a key; a nullable column whose discretizer has no code for NULL. The proof of
            the view's stability covers none of these.
    """
    features = {name: _admitted(schema, spec.table, name, *how) for name, how in spec.features.items()}
    bounded = None if spec.bounded is None else admit_bounded(schema, spec.bounded)
    return ViewSpec(spec.table, features, tuple(spec.rows_per_unit), bounded)


def admit_bounded(schema: Schema, bounded: BoundedReferences) -> BoundedReferences:
    """Return ``bounded`` with the schema's own key, which becomes NULL across units, or raise InternalError."""
    if type(bounded) is not BoundedReferences or type(bounded.most) is not int or bounded.most < 1:
        raise InternalError("references are bounded by a whole number from 1")
    key = admit_key(schema, bounded.key)
    if not is_set_null_across_units(schema, key):
        raise InternalError(f"{key.name}: references are bounded along keys that become NULL where another unit goes")
    return replace(bounded, key=key)


def admit_key(schema: Schema, key: ForeignKey) -> ForeignKey:
    """Return the schema's own key that equals ``key`` in every field, or raise InternalError."""
    declared = (k for table in schema.tables for k in table.foreign_keys if type(key) is ForeignKey and k == key)
    found = next(declared, None)
    if found is None:
        raise InternalError(f"{getattr(key, 'name', key)}: not a foreign key as the schema declares it")
    return found


def admit_discovery(schema: Schema, table: str, column: str, named: tuple[str, ...]) -> None:
    """Refuse any column that has no list to learn, or is part of a key, and released names that are not plain texts."""
    found = _attribute(schema, table, column)
    if found.type is not ColumnType.CATEGORY and not found.learns_list:
        raise InternalError(f"{table}.{column}: a list of values is learned for categories, and codes that are numbers")
    if type(named) is not tuple or any(type(name) is not str for name in named):
        raise InternalError(f"{table}.{column}: the named values are a tuple of texts")


def _attribute(schema: Schema, table: str, name: str) -> Column:
    """Return a column that is not part of a key, or of keys to public tables alone and modelled.

    Other key columns are refused: when a unit is removed, a key may become NULL in rows that stay.
    """
    here = schema.table(table)
    leaf = here.leaf(name)  # of a column that is not part of a key, as all documents
    found = leaf.column if leaf else next((column for column in here.attributes if column.name == name), None)
    if found is None or not schema.is_stable(table, leaf.document.name if leaf else name):
        raise InternalError(f"{table}.{name}: only columns that are not part of a key may be measured")
    return found


def _admitted(
    schema: Schema, table: str, name: str, feature: Feature, discretizer: Discretizer
) -> tuple[Feature, Discretizer]:
    site = f"{table}/{name}"
    if type(feature) not in _FEATURES:
        raise InternalError(f"{site}: a view has the features of privacy.views only")
    _admit_discretizer(site, discretizer)
    if isinstance(feature, Along):
        feature = _with_admitted_keys(schema, table, site, feature)
    if isinstance(feature, OwnType | OwnerType):
        known = type(feature.types) is GroupTypes and type(feature.latent) is int
        _require(known and 0 <= feature.latent < len(feature.types.shape), site, "the types of privacy.views")
        _require(discretizer.size == feature.types.shape[feature.latent], site, "a code for each latent value")
        feature = replace(feature, types=_admitted_types(schema, feature.key, site, feature.types))
    if isinstance(feature, MemberPlace | SiblingAgreement):
        _admit_sibling(schema, site, table, feature, discretizer)
    if isinstance(feature, SameReference):
        _require(discretizer.size == AGREEMENTS, site, "a code for each way to agree")
    if isinstance(feature, Satisfies):
        _require(discretizer.size == VERDICTS, site, "a code for each verdict")
        _admit_constraint(schema, site, table, feature.constraint)
    if isinstance(feature, OwnDifference | OwnerDifference | SincePrevious):
        _admit_difference(schema, site, table, feature, discretizer)
    if isinstance(feature, AsStored):
        stored = _attribute(schema, table, feature.column)
        _require(schema.table(table).leaf(feature.column) is None, site, "columns that are stored")
        _require(getattr(discretizer.codec, "nullable", False) or not stored.nullable, site, "a code for NULL")
    if isinstance(feature, Own | CoMember | OfParent):
        of = feature.key.parent if isinstance(feature, OfParent) else table
        _require_null(schema, site, of, feature.column, discretizer)
    return feature, discretizer


def _admit_sibling(
    schema: Schema, site: str, table: str, feature: MemberPlace | SiblingAgreement, discretizer: Discretizer
) -> None:
    """Refuse places and agreements of columns that are no attributes, and coders of another size."""
    _admit_discretizer(site, feature.coder)
    _require_null(schema, site, table, feature.column, feature.coder)
    if isinstance(feature, MemberPlace):
        order = feature.order
        known = type(order) is np.ndarray and order.dtype == np.int64 and order.shape == (feature.coder.size,)
        _require(known, site, "a number for each code")
        _require(type(feature.most) is int and discretizer.size == place_count(feature.most), site, "a code per place")
    if isinstance(feature, SiblingAgreement):
        _require(discretizer.size == AGREEMENTS, site, "a code for each way to agree")


def _with_admitted_keys(schema: Schema, table: str, site: str, feature: Along) -> Along:
    """Return ``feature`` with the schema's own keys."""
    feature = replace(feature, key=admit_key(schema, feature.key))
    if isinstance(feature, ParentFanout):
        return replace(feature, of=admit_key(schema, feature.of))
    return _admitted_ways(schema, table, site, feature) if isinstance(feature, SameReference) else feature


def _admitted_ways(schema: Schema, table: str, site: str, feature: SameReference) -> SameReference:
    """Return ``feature`` with the schema's own keys: both ways lead to the same columns, and no key of them is lost."""
    theirs = None if feature.theirs is None else admit_key(schema, feature.theirs)
    of, mine = None if feature.of is None else admit_key(schema, feature.of), admit_key(schema, feature.mine)
    starts = feature.key.parent, table if of is None else of.parent
    end = feature.key if theirs is None else theirs
    _require(of is None or (of.owner and of.child == table), site, "ways from a row or its owner")
    _require(mine.child == starts[1] and (theirs is None or theirs.child == starts[0]), site, "ways that meet")
    _require((end.parent, end.parent_columns) == (mine.parent, mine.parent_columns), site, "ways to the same columns")
    _require(all(schema.keeps(key) for key in (theirs, mine) if key is not None), site, "keys that do not become NULL")
    return replace(feature, theirs=theirs, of=of, mine=mine)


def _require_null(schema: Schema, site: str, of: str, column: str, discretizer: Discretizer) -> None:
    """Refuse a column of a key, and a discretizer without a code for the NULL that a column may have."""
    own = _attribute(schema, of, column)
    # A difference reads its base as well, and is NULL where that is.
    bases = [] if own.relative is None else [_base(schema, of, own.relative.to)]
    nullable = any(each.nullable for each in (own, *bases))
    if nullable and not getattr(discretizer.codec, "nullable", False):
        raise InternalError(f"{site}: {of}.{column} may be NULL, and the discretizer has no code for it")


def _admit_difference(
    schema: Schema,
    site: str,
    table: str,
    feature: OwnDifference | OwnerDifference | SincePrevious,
    discretizer: Discretizer,
) -> None:
    """Refuse columns without exact differences, and a discretizer without NULL."""
    of_base = feature.key.parent if isinstance(feature, OwnerDifference) else table
    to = feature.column if isinstance(feature, SincePrevious) else feature.base
    own, base = _attribute(schema, table, feature.column), _attribute(schema, of_base, to)
    common, same = coarser(own.type, base.type), (own.precision, own.scale) == (base.precision, base.scale)
    known = common is not None and common.difference is not None and (same or own.type is not base.type)
    _require(known, site, "two columns of one type that has differences, or two points in time")
    _require(getattr(discretizer.codec, "nullable", False) is True, site, "a code for a row without a difference")


def _admit_constraint(schema: Schema, site: str, table: str, constraint: RowConstraint) -> None:
    """Refuse a constraint that is not exactly of a known form, or whose columns have no values to compare."""
    _require(is_well_formed(constraint), site, "a constraint of schema.row_constraints between columns, each once")
    columns = [_attribute(schema, table, name) for name in constraint.columns]
    _require(all(column.relative is None for column in columns), site, "columns that are not relative to another one")
    _require(can_hold(constraint, columns), site, "columns of types that the constraint is about")


def _base(schema: Schema, table: str, to: str) -> Column:
    """Return the column that another one is relative to, of the same table or of its owner's."""
    here = schema.table(table)
    if here.owner_key is not None and to in here.owner_bases:
        if here.owner_key.optional:
            raise InternalError(f"{table}: {to} is not there in rows without an owner")
        return _attribute(schema, here.owner_key.parent, here.owner_bases[to])
    return _attribute(schema, table, to)


def _admitted_types(schema: Schema, key: ForeignKey, site: str, types: GroupTypes) -> GroupTypes:
    """Return ``types`` with admitted columns of the key's child: scores of every code, and of each combination."""
    shape = types.shape
    _require(type(shape) is tuple and all(type(n) is int and n > 1 for n in shape), site, "numbers of latent values")
    _admit_discretizer(site, types.sizes)
    _admit_scores(site, types.size_scores, (types.sizes.size, types.combinations))
    _require(type(types.columns) is tuple, site, "columns as a tuple")
    columns: list[tuple[Own | OwnType, Discretizer, NDArray[np.int64]]] = []
    for source, discretizer, scores in types.columns:
        _require(type(source) in {Own, OwnType}, site, "the children's own columns")
        feature, coder = _admitted(schema, key.child, site, source, discretizer)
        _admit_scores(site, scores, (coder.size, types.combinations))
        if isinstance(feature, OwnType):
            _require(feature.key.owner and feature.key.parent == key.child, site, "types along owner keys")
        if isinstance(feature, Own | OwnType):
            columns.append((feature, coder, scores))
    return replace(types, columns=tuple(columns))


def _admit_scores(site: str, scores: object, shape: tuple[int, int]) -> None:
    known = type(scores) is np.ndarray and scores.dtype == np.int64 and scores.shape == shape
    _require(known, site, f"whole numbers of shape {shape} as scores")


def _admit_discretizer(site: str, discretizer: Discretizer) -> None:
    known = type(discretizer) is Discretizer and is_known(discretizer.codec)
    if not known or type(discretizer.binning) not in {Binning, type(None)}:
        raise InternalError(f"{site}: rows are coded by the discretizers of columns.discretizer only")
    if discretizer.binning is not None and len(discretizer.binning.code_of) != discretizer.codec.size:
        raise InternalError(f"{site}: a binning needs a code for each of the {discretizer.codec.size} cells")


def _admit_marginal(site: str, query: Marginal, sizes: Sizes) -> None:
    _admit_columns(site, query.columns, sizes)
    _require(type(query.groups) is tuple, site, "groups of codes as a tuple")
    _require(type(query.clipped) is bool, site, "whether units are clipped")
    once = len(set(query.columns)) == len(query.columns) > 0
    _require(not query.clipped or once, site, "columns, each once, to clip")
    numbers = [sizes[name] for name in query.columns]
    if query.groups:
        _require(len(query.groups) == len(query.columns), site, "groups of codes for each column")
        for place, group_of in enumerate(query.groups):
            known = type(group_of) is np.ndarray and np.issubdtype(group_of.dtype, np.integer)
            _require(known and group_of.shape == (numbers[place],), site, "one group for each code")
            _require(int(group_of.min(initial=0)) >= 0, site, "groups numbered from 0")
            numbers[place] = int(group_of.max(initial=-1)) + 1
    _admit_scales(site, query, numbers)


def _admit_scales(site: str, query: Marginal, numbers: Sequence[int]) -> None:
    _require(type(query.scales) is tuple, site, "scales as a tuple")
    if not query.scales:
        return
    _require(query.clipped, site, "scales only where units are clipped")
    _require(len(query.scales) == len(query.columns), site, "scales for each column")
    for scale, number in zip(query.scales, numbers, strict=True):
        whole = type(scale) is tuple and all(type(each) is int and 1 <= each <= LARGEST_SCALE for each in scale)
        _require(whole and len(scale) == number, site, f"a scale from 1 to {LARGEST_SCALE} for each (group of) codes")
    # Rows of a unit that weighs anything are as many at most: their product is exact in 64 bits.
    longest = math.prod(max(scale, default=1) for scale in query.scales)
    _require(longest <= WEIGHT_SCALE, site, f"cells that are scaled by at most {WEIGHT_SCALE}")


def _admit_distances(site: str, query: Distances, sizes: Sizes) -> None:
    _require(type(query.groups) is tuple, site, "groups as a tuple")
    for group in query.groups:
        _require(type(group) is tuple, site, "groups as tuples")
        for marginal in group:
            _require(type(marginal) is tuple and len(marginal) == 2, site, "(columns, reference)")  # noqa: PLR2004
            columns, reference = marginal
            _admit_columns(site, columns, sizes)
            shape = tuple(sizes[name] for name in columns)
            known = type(reference) is np.ndarray and np.issubdtype(reference.dtype, np.number)
            _require(known and reference.shape == shape, site, f"a reference of shape {shape}")
            _require(not np.isnan(reference).any(), site, "a reference of numbers")


def _admit_signs(site: str, query: SignProducts, sizes: Sizes) -> None:
    _require(type(query.signs) is dict, site, "signs by column")
    for name, signs in query.signs.items():
        _admit_columns(site, (name,), sizes)
        known = type(signs) is np.ndarray and np.issubdtype(signs.dtype, np.signedinteger)
        _require(known and signs.shape == (sizes[name],), site, "a sign for each code")
        _require(bool(np.isin(signs, (-1, 0, 1)).all()), site, "signs of -1, 0 and 1")
    _require(type(query.subsets) is tuple and len(query.subsets) > 0, site, "at least one subset of columns")
    for columns in query.subsets:
        _admit_columns(site, columns, sizes)
        _require(set(columns) <= query.signs.keys(), site, "signs of each column")
        _require(len(set(columns)) == len(columns), site, "each column of a subset once")


def _admit_columns(site: str, columns: tuple[str, ...], sizes: Sizes) -> None:
    _require(type(columns) is tuple and all(type(name) is str for name in columns), site, "columns as a tuple of names")
    unknown = [name for name in columns if name not in sizes]
    if unknown:
        raise InternalError(f"{site}: no such column in the view: {', '.join(unknown)}")


def _require(holds: bool, site: str, what: str) -> None:
    if not holds:
        raise InternalError(f"{site}: needs {what}")
