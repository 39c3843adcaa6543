"""Building coded views: how far one unit moves what is asked of them, worked out from what they look at.

Each source of a column is a function of rows that come and go with the row, so a view has the stability of its table;
only what a key that becomes NULL refers to can change while the row stays (`relations.reference_moves`).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from privbench_core.errors import InternalError
from privbench_core.privacy.features import (
    Along,
    CoMember,
    MemberPlace,
    OwnerDifference,
    OwnerFanout,
    OwnerType,
    OwnFanout,
    OwnType,
    ParentFanout,
    SiblingAgreement,
    SincePrevious,
    feature_size,
)
from privbench_core.privacy.permutations import MOST_MEMBERS, PERMUTATION_SCALE
from privbench_core.privacy.relations import (
    WEIGHT_SCALE,
    bounded_moves,
    lost_references,
    reference_moves,
    stability,
)
from privbench_core.privacy.views import CodedRows, CodedView, Engine, ViewSpec
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema

_SMALL = 1 << 10  # rounding shares of up to so many rows to whole weights changes them by a thousandth at most
_ROWS_PER_UNIT = (
    *range(1, _SMALL),
    *(1 << power for power in range(_SMALL.bit_length() - 1, WEIGHT_SCALE.bit_length())),
)
_OF_OWNERS = (OwnerFanout, OwnerType, MemberPlace, OwnerDifference, SiblingAgreement, SincePrevious)  # owner keys
_SIBLINGS = (CoMember, MemberPlace, SiblingAgreement, SincePrevious)  # which look at other rows of the table


def build_view(engine: Engine, spec: ViewSpec) -> CodedView:
    """Encode the kept rows of a table as ``spec`` says.

    Raises:
        InternalError: A column that is about other rows, or counts children along a key that is not their owner key; a
            number of rows per unit that weights cannot stand for exactly; co-members along another key; bounded
            references together with co-members, or places among siblings.
    """
    schema = engine.schema
    along = [feature for feature, _ in spec.features.values() if isinstance(feature, Along)]
    for feature in along:
        if not _of_its_rows(schema, spec.table, feature):
            raise InternalError(f"{feature.key.name}: not what a view of {spec.table} can look along")
    owned = len(schema.ownership_path(spec.table)) > 0
    possible = _ROWS_PER_UNIT[: None if owned else 1]
    most = [possible.index(most) if type(most) is int and most in possible else -1 for most in spec.rows_per_unit]
    if not most or most[0] < 0 or most != sorted(set(most)):
        raise InternalError(f"{spec.table}: no view can count {spec.rows_per_unit!r} rows per unit")
    co_members = [feature for feature in along if isinstance(feature, CoMember)]
    owner = schema.table(spec.table).owner_key
    if any(co_member.key != owner or not 0 < co_member.member < MOST_MEMBERS for co_member in co_members):
        raise InternalError(f"{spec.table}: co-members along its owner key only, of members 1 to {MOST_MEMBERS - 1}")
    siblings = any(isinstance(feature, _SIBLINGS) for feature in along)  # who may refer to none
    if spec.bounded is not None and (siblings or len(most) > 1 or spec.bounded.key.child != spec.table):
        raise InternalError(f"{spec.table}: references of its own rows are bounded, with one number of rows per unit")
    sizes = {name: feature_size(*how) for name, how in spec.features.items()}
    whole = PERMUTATION_SCALE if co_members else WEIGHT_SCALE if owned else 1
    bounded = None if spec.bounded is None else spec.bounded.key
    looked_along = dict.fromkeys(feature.key for feature in along if feature.key != bounded)
    of_children = (table for feature in along for table in _children_seen(feature))
    here = stability(schema, spec.table, *of_children)
    moved = here + sum(reference_moves(schema, key, spec.rows_per_unit[0]) for key in looked_along)
    changed = here + sum(reference_moves(schema, key) for key in looked_along)
    touched = int(schema.max_rows_per_unit(spec.table) * changed)
    unit = whole // spec.rows_per_unit[-1]
    if spec.bounded is not None:
        lost, gained = bounded_moves(schema, spec.bounded.key, spec.bounded.most / spec.rows_per_unit[0], moved)
        return _of_shifts(engine.coded(spec), sizes, unit, whole, touched, lost, gained)
    clipped = 0 if co_members or len(most) > 1 else int(np.ceil(changed * whole))
    bound = int(np.ceil(moved * whole))
    return CodedView(engine.coded(spec), sizes, unit, bound, touched, own=whole, clipped=clipped)


def _of_shifts(
    data: CodedRows, sizes: dict[str, int], unit: int, whole: int, touched: int, lost: float, gained: float
) -> CodedView:
    """Return a view in which cells lose and gain so many times what a unit weighs in total."""
    bounds = [int(np.ceil(each * whole)) for each in (lost, gained)]
    return CodedView(data, sizes, unit, sum(bounds), touched, own=bounds[0] - bounds[1])


def build_references(engine: Engine, key: ForeignKey, most: int, bounded: int | None = None) -> CodedView:
    """Return the kept rows of the referring table, and the parent of each; a unit of up to ``most`` counts in full.

    A row of a unit of s weighs min(1/most, 1/s). The view has the stability of the table and what the key moves:
    other units change in no more places than in a view of the table that looks along the key, by at most 2 each.
    Where references are bounded, see `relations.bounded_moves`.
    """
    schema, data = engine.schema, engine.references(key, most, bounded)
    here = stability(schema, key.child)
    touched = schema.max_rows_per_unit(key.child)
    if bounded is not None:
        lost, gained = bounded_moves(schema, key, bounded / most, here)
        return _of_shifts(data, {}, WEIGHT_SCALE, WEIGHT_SCALE, int(touched * (lost + gained)), lost, gained)
    moved = here + reference_moves(schema, key, most)
    touched = int(touched * (here + reference_moves(schema, key)))
    bound, lost = int(np.ceil(moved * WEIGHT_SCALE)), lost_references(schema, key, most) * WEIGHT_SCALE
    public = schema.table(key.parent).public
    clipped = int(np.ceil(here * WEIGHT_SCALE)) if public and most in _ROWS_PER_UNIT else 0
    return CodedView(data, {}, WEIGHT_SCALE, bound, touched, own=WEIGHT_SCALE, lost=lost, clipped=clipped)


def build_values(engine: Engine, table: str, column: str, named: tuple[str, ...], most: int) -> CodedView:
    """Return the kept rows of a table, and which value of a column that is not ``named`` each has; -1 for none.

    Which value a row has, and whether it is named, is a function of the row alone, and no row changes its value: the
    view has the stability of the table (``docs/privacy.md``, section 5, mechanism 9).
    """
    view = build_view(engine, ViewSpec(table, {}, (most,)))
    return replace(view, data=engine.values(table, column, named, most), clipped=0)


def distinct_weights(
    engine: Engine, table: str, column: str, named: tuple[str, ...]
) -> tuple[dict[str, int], CodedView]:
    """Return the weight of every distinct text of a column that is not ``named``, and an empty view of the stability.

    A unit with k such texts in its kept rows weighs 1/√k in each of them, so that the squares of its weights add up to
    at most 1; how many rows have the text does not matter (``docs/privacy.md``, section 5, mechanism 6).
    """
    view = build_view(engine, ViewSpec(table, {}))
    units = engine.texts(table, column, named)
    exact = {
        text: sum(number * math.isqrt(view.weight_scale**2 // k) for k, number in by_k.items())
        for text, by_k in units.items()
    }
    return exact, view


def _of_its_rows(schema: Schema, table: str, feature: Along) -> bool:
    """Return whether a column is what the stability of a view of ``table`` was worked out for."""
    if isinstance(feature, OwnFanout | OwnType):
        return feature.key.owner and feature.key.parent == table
    if isinstance(feature, ParentFanout):
        if not (feature.of.owner and feature.of.parent == feature.key.parent):
            return False
        # Any number of rows of other units may refer to a row, so which children it has must be its own unit's matter.
        if not feature.key.owner and stability(schema, feature.of.child) > 1:
            return False
    return feature.key.child == table and (feature.key.owner or not isinstance(feature, _OF_OWNERS))


def _children_seen(feature: Along) -> tuple[str, ...]:
    """Return the tables of children whose kept rows decide the values of a column: see `relations.stability`."""
    if isinstance(feature, OwnFanout):
        return (feature.key.child,)
    if isinstance(feature, ParentFanout):
        return (feature.of.child,)
    if isinstance(feature, OwnType | OwnerType):
        below = (of for of, _, _ in feature.types.columns if isinstance(of, OwnType))
        return (feature.key.child, *(table for of in below for table in _children_seen(of)))
    return ()
