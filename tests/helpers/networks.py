"""Random schemas, rows that keep what they declare, and views of them: to look where nobody thought of looking."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations, permutations
from types import NoneType
from typing import Any

import numpy as np

from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.fanout_bins import FanoutCodec
from privbench_core.columns.group_codes import AGREEMENTS, index_coder
from privbench_core.columns.registry import codec_for
from privbench_core.columns.row_constraints import VERDICTS, can_be_equal, can_be_part, can_hold
from privbench_core.privacy.features import (
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
from privbench_core.privacy.relations import is_set_null_across_units, stability
from privbench_core.privacy.views import BoundedReferences, ViewSpec
from privbench_core.schema.columns import Column, ColumnType, Learn, Range, Relative, Values
from privbench_core.schema.constraints import ForeignKey, OnUnitRemoved
from privbench_core.schema.row_constraints import (
    DatePart,
    MissingTogether,
    MissingWhere,
    PartOfDate,
    RowConstraint,
    SameValue,
)
from privbench_core.schema.tables import Schema, Table
from tests.helpers.databases import Database
from tests.helpers.key_graphs import Ids, database_of, key, table, with_attributes

_NAMES = ("unit", "a", "b", "c", "d")
_MOST = 4  # children of an owner, and rows that refer to a row along other keys
PLACE = Discretizer(FanoutCodec(5))
TYPE = Discretizer(FanoutCodec(2))
AGREEMENT = index_coder("agreement", AGREEMENTS)
VERDICT = index_coder("verdict", VERDICTS)
X = Discretizer(codec_for(Column("x", ColumnType.INTEGER, Range(0, 3)), table="t"))
APART = Discretizer(codec_for(Column("x", ColumnType.INTEGER, Range(-2, 3), nullable=True), table="t"))


class SmallNumbers:
    """Numbers from 0 to 11 as they are, larger ones as 11, and -1 as 12."""

    size = 13

    def encode_numbers(self, numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Codes of group sizes and of row positions."""
        return np.where(numbers < 0, 12, np.minimum(numbers, 11)).astype(np.int32)


def network(rng: np.random.Generator) -> Database:
    """Up to five tables with an attribute each, every one owned by an earlier one, and with keys to any other parents.

    These cascade, become NULL, or should stay inside of the unit (and do in three cases of four); rows may have no
    owner; there are more children than τ; and all declared bounds on other keys hold. In half of the tables whose rows
    have owners, the attribute is relative to the owner's.
    """
    names = _NAMES[: int(rng.integers(2, len(_NAMES) + 1))]
    tables = [table("unit")]
    rows: dict[str, dict[str, Ids]] = {"unit": {"id": list(range(int(rng.integers(2, 6))))}}
    units: dict[str, list[object]] = {"unit": list(rows["unit"]["id"])}
    for place, name in enumerate(names[1:], start=1):
        up = names[int(rng.integers(place))]
        alone = bool(rng.random() < 0.2)
        owner = key(name, "up", up, int(rng.integers(1, _MOST)), owner=True, optional=alone)
        count = int(rng.integers(0, 14)) if rows[up]["id"] else 0
        # Few owners, so that some have more children than are kept.
        some = rng.choice(len(rows[up]["id"]), min(len(rows[up]["id"]), 3), replace=False) if count else []
        owners: Ids = [None if alone and rng.random() < 0.3 else int(rng.choice(some)) for _ in range(count)]
        columns: dict[str, Ids] = {"id": list(range(count)), "up": owners}
        units[name] = [(name, i) if o is None else units[up][o] for i, o in enumerate(owners)]
        keys = [owner]
        for number in range(int(rng.integers(0, 3))):
            parent = names[int(rng.integers(place))]
            made, columns[f"other{number}"] = _other_key(rng, (name, f"other{number}", parent), rows, units)
            keys.append(made)
        if rng.random() < 0.2:
            slots = rng.permutation(count)
            columns["before"] = [int(slots[i]) if rng.random() < 0.6 else None for i in range(count)]
            keys.append(key(name, "before", name, 1, removed=OnUnitRemoved.SET_NULL))
        tables.append(table(name, *keys))
        rows[name] = columns
    seed = int(rng.integers(2**31))
    found = with_attributes(database_of(Schema("network", tuple(tables), "unit"), rows), seed)
    return _with_relatives(found, np.random.default_rng([seed, 1]))


def _with_relatives(database: Database, rng: np.random.Generator) -> Database:
    """The same rows, with the attribute of some tables relative to their owner's."""

    def drawn(t: Table) -> Table:
        owner = t.owner_key
        if owner is None or owner.optional or rng.random() < 0.5:
            return t
        x = replace(t.column("x"), domain=None, relative=Relative(f"{owner.parent}.x", Range(0, 3)))
        return replace(t, columns=tuple(x if column.name == "x" else column for column in t.columns))

    return replace(database, schema=replace(database.schema, tables=tuple(map(drawn, database.schema.tables))))


def _other_key(
    rng: np.random.Generator,
    place: tuple[str, str, str],
    rows: dict[str, dict[str, Ids]],
    units: dict[str, list[object]],
) -> tuple[ForeignKey, Ids]:
    """A key off the ownership path, and the references of all rows of its table."""
    name, column, parent = place
    removed = OnUnitRemoved.CASCADE if rng.random() < 0.5 else OnUnitRemoved.SET_NULL
    there = len(rows[parent]["id"])
    references: Ids
    if rng.random() < 0.35:
        inside = [[row for row in range(there) if units[parent][row] == unit] for unit in units[name]]
        references = [
            None if not there or rng.random() < 0.2 else int(rng.choice(own if own and rng.random() < 0.75 else there))
            for own in inside
        ]
        return key(name, column, parent, None, removed=removed, same_unit=True), references
    most = int(rng.integers(1, _MOST))
    slots = rng.permutation([row for row in range(there) for _ in range(most)]).tolist()
    references = [int(slots.pop()) if slots and rng.random() < 0.7 else None for _ in units[name]]
    made = key(name, column, parent, most, removed=removed)
    if parent != "unit" and rng.random() < 0.5:
        of_units = Counter(units[parent][row] for row in references if row is not None)
        made = replace(made, max_children_per_unit=max(of_units.values(), default=1))
    return made, references


def random_scale(rng: np.random.Generator, codes: int) -> tuple[int, ...]:
    """By what the counts of so many codes are multiplied before units are clipped."""
    return tuple(int(scale) for scale in rng.choice([1, 2, 3, 8, 64], codes, p=[0.4, 0.2, 0.2, 0.15, 0.05]))


def random_view(rng: np.random.Generator, schema: Schema) -> ViewSpec:
    """A view of any table, with up to four columns of any kind, counting one or several rows per unit."""
    private = schema.private_tables
    here = private[int(rng.integers(len(private)))]
    possible = [*_features(rng, schema, here)]
    chosen = rng.choice(len(possible), min(len(possible), int(rng.integers(1, 5))), replace=False)
    features = {f"f{number}": possible[number] for number in chosen}
    owned = here.owner_key is not None
    per_unit = [(1,), (2,), (8,), (1, 4), (1, 2, 16)][int(rng.integers(5))] if owned else (1,)
    bounded = random_bound(rng, schema, here) if len(per_unit) == 1 and rng.random() < 0.5 else None
    if bounded:  # siblings are not looked at then
        siblings = CoMember | MemberPlace | SiblingAgreement | SincePrevious
        features = {name: of for name, of in features.items() if not isinstance(of[0], siblings)}
    return ViewSpec(here.name, features, per_unit, bounded)


def random_bound(rng: np.random.Generator, schema: Schema, here: Table) -> BoundedReferences | None:
    """Bounded references along one of the table's keys, if it has one that lets go."""
    keys = [key for key in here.foreign_keys if is_set_null_across_units(schema, key)]
    return BoundedReferences(keys[int(rng.integers(len(keys)))], int(rng.integers(1, 4))) if keys else None


def coded(table: Table) -> list[tuple[str, Discretizer]]:
    """The attributes of a table that have a coder before anything is learned."""
    learned = (Learn, NoneType)
    declared = (
        c for c in table.attributes if c.type is ColumnType.BOOLEAN or not isinstance(c.modelled.domain, learned)
    )
    return [(column.name, Discretizer(codec_for(column, table=table.name))) for column in declared]


def _constraints(here: Table) -> list[RowConstraint]:
    """Constraints that rows of a table may keep or not."""
    plain = [column for column in here.attributes if column.relative is None]
    found: list[RowConstraint] = [MissingTogether((a.name, b.name)) for a, b in combinations(plain, 2)]
    found += [SameValue(a.name, b.name) for a, b in combinations(plain, 2) if can_be_equal(a, b)]
    named = {b: str(b.domain.values[0]) if isinstance(b.domain, Values) else "true" for b in plain}
    where = [MissingWhere(a.name, b.name, (named[b],), True) for a, b in permutations(plain, 2)]
    found += [each for each in where if can_hold(each, [here.column(name) for name in each.columns])]
    return found + [PartOfDate(a.name, b.name, DatePart.YEAR) for a, b in permutations(plain, 2) if can_be_part(a, b)]


def _features(rng: np.random.Generator, schema: Schema, here: Table) -> list[tuple[Feature, Any]]:
    own = coded(here)
    found: list[tuple[Feature, Any]] = [*((Own(name), coder) for name, coder in own), (UnitRows(), SmallNumbers())]
    found += [(AsStored(c.name), APART) for c in here.attributes if c.type is ColumnType.INTEGER]
    found += [(OwnDifference(name, base), APART) for name, base in _apart(here, here) if name != base]
    found += [(Satisfies(each), VERDICT) for each in _constraints(here)]
    for k in here.foreign_keys:
        parent = schema.table(k.parent)
        found += [*((OfParent(k, name), coder) for name, coder in coded(parent)), (ParentRow(k), SmallNumbers())]
        if k.owner:
            found.append((OwnerFanout(k), SmallNumbers()))
            for name, coder in own:
                found += [(CoMember(k, 1, name), coder), (CoMember(k, 2, name), coder)]
                found.append((MemberPlace(k, name, coder, rng.integers(0, 3, coder.size), 3), PLACE))
                found.append((SiblingAgreement(k, name, coder), AGREEMENT))
            found.append((OwnerType(k, random_types(rng, schema, k), 0), TYPE))
            found += [(OwnerDifference(k, name, base), APART) for name, base in _apart(here, parent)]
            found += [(SincePrevious(k, name), APART) for name, base in _apart(here, here) if name == base]
        found += [(way, AGREEMENT) for way in _ways(schema, here, k)]
        found += [
            (ParentFanout(k, of), SmallNumbers())
            for of in (other.owner_key for other in schema.tables)
            if of is not None and of.parent == k.parent and of != k and (k.owner or stability(schema, of.child) == 1)
        ]
    for other in schema.tables:
        if other.owner_key is not None and other.owner_key.parent == here.name:
            found.append((OwnFanout(other.owner_key), SmallNumbers()))
            found.append((OwnType(other.owner_key, random_types(rng, schema, other.owner_key), 1), TYPE))
    return found


def _ways(schema: Schema, here: Table, k: ForeignKey) -> list[SameReference]:
    """All pairs of ways that lead to the same columns, the first of them along a key of a table."""
    owner = here.owner_key
    mine = [(None, key) for key in here.foreign_keys]
    mine += [] if owner is None else [(owner, key) for key in schema.table(owner.parent).foreign_keys]
    return [
        SameReference(k, theirs, of, own)
        for theirs in (None, *schema.table(k.parent).foreign_keys)
        for of, own in mine
        if all(schema.keeps(key) for key in (theirs, own) if key is not None)
        and (own.parent, own.parent_columns) == ((theirs or k).parent, (theirs or k).parent_columns)
    ]


def _apart(here: Table, there: Table) -> list[tuple[str, str]]:
    """Attributes of two tables whose difference is a whole number, as they are stored."""
    kinds = {ColumnType.INTEGER, ColumnType.DATE}  # of the two, years are compared
    of_each = [[c for c in table.attributes if c.type in kinds] for table in (here, there)]
    return [(own.name, base.name) for own in of_each[0] for base in of_each[1]]


def random_types(rng: np.random.Generator, schema: Schema, along: ForeignKey) -> GroupTypes:
    """Parameters of types of the groups along an owner key, from the types of what the children own too."""

    def scores(codes: int) -> np.ndarray[Any, Any]:
        return rng.integers(-9, 1, (codes, 4))

    columns: list[Any] = [(Own(name), coder, scores(coder.size)) for name, coder in coded(schema.table(along.child))]
    for other in schema.tables:
        if other.owner_key is not None and other.owner_key.parent == along.child:
            below = OwnType(other.owner_key, random_types(rng, schema, other.owner_key), 0)
            columns.append((below, TYPE, scores(TYPE.size)))
    sizes: Any = SmallNumbers()
    return GroupTypes((3, 3), sizes, scores(sizes.size), tuple(columns))
