"""Views as queries over the tables of kept rows: the twin of `engines.memory.database`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from privbench_core.columns.discretizer import Discretizer
from privbench_core.engines.sql.codes import code_of, difference_of
from privbench_core.engines.sql.database import Database
from privbench_core.engines.sql.literals import Expr, is_null, number, text
from privbench_core.engines.sql.relations import Names, both, column, count, equal, matches, weight
from privbench_core.engines.sql.siblings import Siblings
from privbench_core.errors import InternalError
from privbench_core.privacy.features import (
    CoMember,
    Feature,
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
    SiblingAgreement,
    UnitRows,
    feature_size,
)
from privbench_core.privacy.relations import WEIGHT_SCALE
from privbench_core.privacy.views import ViewSpec
from privbench_core.schema.columns import ColumnType
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema

WEIGHT, UNIT, ROWS_OF_UNIT = "w", "u", "s"
_SMALL = ("tinyint", 1 << 7), ("smallint", 1 << 15)  # types, and how many codes fit them


@dataclass
class _Joined:
    """The parents that a query looks at.

    Attributes:
        aliases: By key, of those that are joined.
        codes: By key: the code of each column of a parent, called as in the view.
        others: By key: columns of a parent that its other children refer to.
    """

    aliases: dict[ForeignKey, str] = field(default_factory=dict)
    codes: dict[ForeignKey, dict[str, Expr]] = field(default_factory=dict)
    others: dict[ForeignKey, list[str]] = field(default_factory=dict)


class Views:
    """Makes the queries of views.

    Args:
        schema: The database.
        names: Of its tables of kept rows.
        database: Where they are.
        secret: Keys the order of siblings.
        types: Makes a table of the latent values of groups: the parent's ``n``, and ``latent``.
    """

    def __init__(
        self,
        schema: Schema,
        names: Names,
        database: Database,
        secret: bytes,
        types: Callable[[OwnType | OwnerType], str],
    ) -> None:
        self._schema = schema
        self._names = names
        self._database = database
        self._siblings = Siblings(schema, names, database, secret)
        self._types = types

    def coded(self, spec: ViewSpec, *, weighed: bool = True, units: bool = False) -> tuple[exp.Select, dict[str, str]]:
        """Return a query for codes and weights, and what it calls each column of the view.

        Args:
            spec: The view.
            weighed: Whether weights are wanted, and not the numbers of rows of units that they follow from.
            units: Whether the units of rows are wanted whose counts may be clipped.
        """
        found = exp.select().from_(exp.to_table(self._names.kept(spec.table), alias="r"))
        called = {name: f"f{place}" for place, name in enumerate(spec.features)}
        joined = _Joined()
        for name, (feature, discretizer) in spec.features.items():
            if isinstance(feature, OfParent):
                value = column(self._names.modelled(feature.key.parent, feature.column), "q")
                joined.codes.setdefault(feature.key, {})[called[name]] = self._code(value, discretizer)
            elif isinstance(feature, ParentFanout):
                referred = self._names.columns(feature.of.parent, feature.of.parent_columns)
                joined.others.setdefault(feature.key, []).extend(referred)
            elif isinstance(feature, OwnerDifference):
                base = self._names.column(feature.key.parent, feature.base)
                joined.others.setdefault(feature.key, []).append(base)
        for name, (feature, discretizer) in spec.features.items():
            found, code = self._feature(found, spec.table, called[name], feature, discretizer, joined)
            kind = next((kind for kind, most in _SMALL if feature_size(feature, discretizer) <= most), "int")
            of_column = exp.alias_(exp.cast(code, kind, copy=False), called[name], copy=False)
            found = found.select(of_column, copy=False)  # each copy would be of all columns so far
        if spec.bounded is not None:
            most = spec.bounded.most * self._of_row(spec.table, spec.rows_per_unit[0])
            found, bounded = self._bounded(found, spec.bounded.key, self._weight(spec), most, joined)
            return found.select(exp.alias_(bounded, WEIGHT)), called
        if self._schema.ownership_path(spec.table):
            shown = weight(spec.rows_per_unit) if weighed else column("s", "r")
            found = found.select(exp.alias_(shown, WEIGHT))
            found = found.select(*_units()) if units else found
        return found, called

    def clipped(
        self,
        coded: exp.Select,
        cells: Mapping[str, NDArray[np.int64] | None],
        most: int,
        scales: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    ) -> exp.Select:
        """Return a query for counts in which each unit's are clipped in L2 norm, see `UnitsOfRows.counts`.

        Args:
            coded: A query for the columns, for `UNIT`, `ROWS_OF_UNIT` and for `WEIGHT`.
            cells: Column -> group of each of its codes; None for each value by itself.
            most: T.
            scales: Column -> how long a row in each of these groups makes the vector, where that is not 1.
        """
        grouped = [
            exp.alias_(column(name) if group_of is None else _grouped(column(name), group_of), name)
            for name, group_of in cells.items()
        ]
        # Only rows of units with more than U rows weigh nothing.
        counted = exp.GT(this=column(WEIGHT), expression=number(0))
        # No vector is longer than its number of rows, each as long as any.
        many = exp.GT(this=column(ROWS_OF_UNIT), expression=number(most // math.prod(map(max, scales.values()))))
        unit = exp.alias_(exp.case().when(many, column(UNIT)).else_(exp.Null()), UNIT)
        listed = exp.select(unit, *grouped).from_(coded.subquery("coded")).where(counted)
        names = [column(name) for name in cells]
        numbers = exp.select(column(UNIT), *names, exp.alias_(exp.cast(count(), "double"), "number"))
        numbers = numbers.from_(listed.subquery("listed")).group_by(column(UNIT), *names)
        length: Expr = column("number")
        for name, scale in scales.items():
            length = exp.Mul(this=length, expression=exp.cast(_grouped(column(name), np.array(scale)), "double"))
        squared = exp.Mul(this=length, expression=length.copy())
        squares = exp.Window(this=exp.Sum(this=squared), partition_by=[column(UNIT)])
        vectors = exp.select(column(UNIT), *names, "number", exp.alias_(squares, "squares"))
        vectors = vectors.from_(numbers.subquery("numbers"))
        squared_share = exp.Div(this=exp.cast(number(WEIGHT_SCALE**2), "double"), expression=column("squares"))
        longest = exp.Floor(this=exp.Sqrt(this=exp.Floor(this=squared_share)))
        share = exp.Least(this=number(WEIGHT_SCALE // most), expressions=[longest])
        in_full = is_null(column(UNIT))
        of_row = exp.case().when(in_full, number(WEIGHT_SCALE // most)).else_(share)
        weighed = exp.Mul(this=_whole(column("number")), expression=_whole(of_row))
        total = exp.alias_(_whole(exp.Sum(this=weighed)), "total")
        return exp.select(*names, total).from_(vectors.subquery("vectors")).group_by(*names)

    def groups(self, spec: ViewSpec) -> tuple[exp.Select, dict[str, str]]:
        """Return the same with the groups of the rows: ``owner`` (its ``n``, or NULL), their size, rows of the unit."""
        key = self._schema.table(spec.table).owner_key
        if key is None:
            raise InternalError(f"{spec.table}: co-members along an owner key only")
        found, called = self.coded(spec)
        owner = exp.to_table(self._names.kept(key.parent), alias="owner")
        found = found.join(owner, on=matches(self._names, key, "r", "owner"), join_type="left")
        shown = (exp.alias_(column("n", "owner"), "owner"), column("g", "r"), column("s", "r"))
        return found.select(*shown), called

    def references(self, key: ForeignKey, most: int, bounded: int | None = None) -> exp.Select:
        """Return a query for the weight of the rows that refer to each parent; NULL for those that refer to none."""
        found, joined = exp.select().from_(exp.to_table(self._names.kept(key.child), alias="r")), _Joined()
        found, parent = self._join(found, key, joined)
        of_row: Expr = weight((most,))
        if bounded is not None:
            found, of_row = self._bounded(found, key, of_row, bounded * (WEIGHT_SCALE // most), joined)
        return self._sums(found, column("n", parent), of_row)

    def _bounded(
        self, found: exp.Select, key: ForeignKey, of_row: Expr, most: int, joined: _Joined
    ) -> tuple[exp.Select, Expr]:
        """Return the query of rows that refer to others, and what they weigh, see `Relations.bounded_weights`."""
        found, parent = self._join(found, key, joined)
        found = found.where(exp.Not(this=is_null(column("n", parent))))
        order = exp.Order(expressions=[self._siblings.keyed_order(key.child)])
        frame = exp.WindowSpec(kind="ROWS", start="UNBOUNDED", start_side="PRECEDING", end="CURRENT ROW")
        summed = exp.Sum(this=exp.cast(of_row.copy(), exp.DataType.Type.BIGINT))
        so_far = exp.Window(this=summed, partition_by=[column("u", parent)], order=order, spec=frame)
        left = exp.Sub(this=exp.Add(this=_whole(number(most)), expression=of_row.copy()), expression=_whole(so_far))
        capped = exp.Least(this=left, expressions=[of_row.copy()])
        bounded = exp.Greatest(this=number(0), expressions=[capped], ignore_nulls=True)
        return found, exp.cast(bounded, exp.DataType.Type.INT)

    def _weight(self, spec: ViewSpec) -> Expr:
        return weight(spec.rows_per_unit) if self._schema.ownership_path(spec.table) else number(1)

    def _of_row(self, table: str, most: int) -> int:
        """What a row of a unit that counts in full weighs."""
        return WEIGHT_SCALE // most if self._schema.ownership_path(table) else 1

    def clipped_references(self, key: ForeignKey, most: int) -> exp.Select:
        """Return the same query where each unit's counts of references are clipped in L2 norm."""
        found = exp.select().from_(exp.to_table(self._names.kept(key.child), alias="r"))
        found, parent = self._join(found, key, _Joined())
        shown = (column("n", parent), "key"), (weight((most,)), WEIGHT)
        coded = found.select(*(exp.alias_(each, called) for each, called in shown), *_units())
        return self.clipped(coded, {"key": None}, most)

    def values(self, table: str, name: str, named: tuple[str, ...], most: int) -> exp.Select:
        """Return a query for the weight of the rows with each text of a column; NULL for those that are ``named``.

        Which text has which weight is not asked for.
        """
        found = exp.select().from_(exp.to_table(self._names.kept(table), alias="r"))
        value = self._text(table, name)
        if named:
            value = exp.case().when(self._among(value.copy(), named), exp.Null()).else_(value)
        owned = self._schema.ownership_path(table)
        summed = self._sums(found, value, weight((most,)) if owned else number(1))
        some = exp.case().when(is_null(column("key")), exp.Null()).else_(number(0))
        return exp.select(exp.alias_(some, "key"), "total").from_(summed.subquery("summed"))

    def texts(self, table: str, name: str, named: tuple[str, ...]) -> exp.Select:
        """Return a query for the units with each text of a column that is not ``named``, by how many they have."""
        value = self._text(table, name)
        pairs = exp.select(column("u", "r"), exp.alias_(value, "key")).distinct()
        pairs = pairs.from_(exp.to_table(self._names.kept(table), alias="r")).where(exp.Not(this=is_null(value.copy())))
        if named:
            pairs = pairs.where(exp.Not(this=self._among(value.copy(), named)))
        held = exp.Window(this=count(), partition_by=[column("u")])
        counted = exp.select("key", exp.alias_(held, "held")).from_(pairs.subquery("pairs"))
        found = exp.select("key", "held", exp.alias_(count(), "number")).from_(counted.subquery("counted"))
        return found.group_by("key", "held")

    def _sums(self, rows: exp.Select, key: Expr, of: Expr) -> exp.Select:
        listed = rows.select(exp.alias_(key, "key"), exp.alias_(of, WEIGHT)).subquery("listed")
        summed = exp.cast(exp.Sum(this=column(WEIGHT)), exp.DataType.Type.BIGINT)
        return exp.select("key", exp.alias_(summed, "total")).from_(listed).group_by("key")

    def _feature(
        self,
        found: exp.Select,
        table: str,
        called: str,
        feature: Feature,
        discretizer: Discretizer,
        joined: _Joined,
    ) -> tuple[exp.Select, Expr]:
        """Return the query with what the column ``called`` so looks at joined to it, and the code as an expression."""
        if isinstance(feature, Own | CoMember | OwnDifference | UnitRows | OwnerFanout):
            return found, self._code(self._kept_with(table, feature), discretizer)
        if isinstance(feature, OwnFanout):
            found, size = self._children(found, feature.key, "r")
            return found, self._code(size, discretizer)
        if isinstance(feature, MemberPlace):
            return found, self._siblings.place(table, feature)
        if isinstance(feature, SiblingAgreement):
            return found, self._siblings.agreement(table, feature)
        if isinstance(feature, OwnType):
            return self._latent(found, column("n", "r"), self._types(feature))
        if isinstance(feature, OwnerType):
            found, owner = self._join(found, feature.key, joined)
            found, value = self._latent(found, column("n", owner), self._types(feature))
            return found, exp.case().when(is_null(column("n", owner)), number(discretizer.size)).else_(value)
        found, parent = self._join(found, feature.key, joined)
        none = is_null(column("n", parent))
        if isinstance(feature, ParentRow | OwnerDifference):
            return found, self._code(self._looked_at(table, feature, parent), discretizer)
        shown: Expr = column(called, parent)
        if isinstance(feature, ParentFanout):
            found, size = self._children(found, feature.of, parent)
            shown = self._code(size, discretizer)
        return found, exp.case().when(none, number(discretizer.size)).else_(shown)

    def _kept_with(self, table: str, feature: Own | CoMember | OwnDifference | UnitRows | OwnerFanout) -> Expr:
        """Return what is coded of a row and kept with it."""
        if isinstance(feature, OwnDifference):
            own, base = (column(self._names.column(table, name), "r") for name in (feature.column, feature.base))
            return difference_of(own, base)
        if isinstance(feature, Own | CoMember):
            return column(self._names.modelled(table, feature.column), "r")
        return column("s" if isinstance(feature, UnitRows) else "g", "r")

    def _looked_at(self, table: str, feature: ParentRow | OwnerDifference, parent: str) -> Expr:
        """Return what is coded of a row and of the one that it refers to, which is called ``parent``."""
        if isinstance(feature, OwnerDifference):
            own = column(self._names.column(table, feature.column), "r")
            return difference_of(own, column(self._names.column(feature.key.parent, feature.base), parent))
        public = self._schema.table(feature.key.parent).public
        there = column("n", parent) if public else number(0)
        return exp.Paren(this=exp.case().when(is_null(column("n", parent)), number(-1)).else_(there))

    def _join(self, found: exp.Select, key: ForeignKey, joined: _Joined) -> tuple[exp.Select, str]:
        """Return the query with the rows that a key refers to, and their alias; see `Relations.kept_parent_rows`.

        What is coded of them is coded before: there are fewer parents than children.
        """
        if key in joined.aliases:
            return found, joined.aliases[key]
        alias = joined.aliases.setdefault(key, f"p{len(joined.aliases)}")
        on = matches(self._names, key, "r", alias)
        referred = (*self._names.columns(key.parent, key.parent_columns), *joined.others.get(key, ()))
        stored = ["n", *dict.fromkeys(referred)]
        if not self._schema.table(key.parent).public:
            stored.append("u")
        if key.same_unit and not self._schema.table(key.parent).public:
            on = both(on, equal(column("u", alias), column("u", "r")))
        codes = (exp.alias_(code, name) for name, code in joined.codes.get(key, {}).items())
        parent = exp.select(*(column(name, "q") for name in stored), *codes)
        parent = parent.from_(exp.to_table(self._names.kept(key.parent), alias="q"))
        return found.join(parent.subquery(alias), on=on, join_type="left"), alias

    def _latent(self, found: exp.Select, row: Expr, types: str) -> tuple[exp.Select, Expr]:
        """Return the query with a table of latent values joined to it, and the value of a row: 0 without children."""
        alias = f"t{len(found.args.get('joins') or [])}"
        on = equal(column("n", alias), row)
        found = found.join(exp.to_table(types, alias=alias), on=on, join_type="left")
        return found, exp.func("COALESCE", column("latent", alias), number(0))

    def _children(self, found: exp.Select, key: ForeignKey, parent: str) -> tuple[exp.Select, Expr]:
        """Return the query with the numbers of children along an owner key, and that of the row called ``parent``."""
        alias = f"k{len(found.args.get('joins') or [])}"
        referring = self._names.columns(key.child, key.columns)
        grouped = exp.select(*map(column, referring), exp.alias_(count(), "number")).from_(self._names.kept(key.child))
        grouped = grouped.group_by(*map(column, referring))
        pairs = zip(referring, self._names.columns(key.parent, key.parent_columns), strict=True)
        on = both(*(equal(column(its, alias), column(mine, parent)) for its, mine in pairs))
        found = found.join(grouped.subquery(alias), on=on, join_type="left")
        return found, exp.func("COALESCE", column("number", alias), number(0))

    def _code(self, value: Expr, discretizer: Discretizer, labels: Sequence[int] | None = None) -> Expr:
        return code_of(self._database, value, discretizer, labels)

    def _text(self, table: str, name: str) -> Expr:
        """Return a column as text; whole numbers in digits."""
        value: Expr = column(self._names.modelled(table, name), "r")
        numbers = self._schema.table(table).column(name).type is ColumnType.INTEGER
        return exp.cast(value, exp.DataType.Type.TEXT) if numbers else value

    def _among(self, value: Expr, named: tuple[str, ...]) -> Expr:
        """Return the condition that a text is one of some."""
        listed = [text(each) for each in named if self._database.zeros or "\0" not in each]
        return exp.In(this=value, expressions=listed) if listed else exp.false()


def _units() -> tuple[Expr, Expr]:
    """Return the unit of a row, and how many rows it has."""
    return exp.alias_(column("u", "r"), UNIT), exp.alias_(column("s", "r"), ROWS_OF_UNIT)


def _grouped(code: Expr, group_of: NDArray[np.int64]) -> Expr:
    """Return the group of a code."""
    found = exp.case()
    for group in np.unique(group_of).tolist():
        codes = [number(each) for each in np.flatnonzero(group_of == group).tolist()]
        found = found.when(exp.In(this=code.copy(), expressions=codes), number(group))
    return found


def _whole(value: Expr) -> Expr:
    return exp.cast(value, exp.DataType.Type.BIGINT)
