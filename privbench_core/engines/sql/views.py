"""Views as queries over the tables of kept rows: the twin of `engines.memory.database`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from privbench_core.columns.discretizer import Discretizer
from privbench_core.engines.sql.codes import code_of, difference_of
from privbench_core.engines.sql.database import Database
from privbench_core.engines.sql.literals import Expr, is_null, number, text
from privbench_core.engines.sql.relations import Names, column, keyed_hash, matches, weight
from privbench_core.engines.sql.siblings import agreement, place
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
from privbench_core.privacy.views import BoundedReferences, ViewSpec
from privbench_core.schema.columns import ColumnType
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema

WEIGHT, UNIT, ROWS_OF_UNIT = "w", "u", "s"
_UNITS = f"r.u AS {UNIT}", f"r.s AS {ROWS_OF_UNIT}"  # the unit of a row, and how many rows it has
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
        self._secret = secret
        self._types = types

    def coded(self, spec: ViewSpec, *, weighed: bool = True, units: bool = False) -> tuple[exp.Select, dict[str, str]]:
        """Return a query for codes and weights, and what it calls each column of the view.

        Args:
            spec: The view.
            weighed: Whether weights are wanted, and not the numbers of rows of units that they follow from.
            units: Whether the units of rows are wanted whose counts may be clipped.
        """
        found = exp.select().from_(f"{self._names.kept(spec.table)} AS r")
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
            found, bounded = self._bounded(found, spec.bounded, spec.rows_per_unit[0], joined)
            return found.select(exp.alias_(bounded, WEIGHT)), called
        if self._schema.ownership_path(spec.table):
            shown = weight(spec.rows_per_unit) if weighed else column("s", "r")
            found = found.select(exp.alias_(shown, WEIGHT))
            found = found.select(*_UNITS) if units else found
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
        # No vector is longer than its number of rows, each as long as any.
        many = f"{ROWS_OF_UNIT} > {most // math.prod(map(max, scales.values()))}"
        listed = exp.select(f"CASE WHEN {many} THEN {UNIT} END AS {UNIT}", *grouped).from_(coded.subquery("coded"))
        listed = listed.where(f"{WEIGHT} > 0")  # only rows of units with more than U rows weigh nothing
        numbers = exp.select(UNIT, *cells, "CAST(COUNT(*) AS DOUBLE) AS number").from_(listed.subquery("listed"))
        length: Expr = column("number")
        for name, scale in scales.items():
            length = exp.Mul(this=length, expression=exp.cast(_grouped(column(name), np.array(scale)), "double"))
        squared = exp.Mul(this=length, expression=length.copy())
        squares = exp.Window(this=exp.Sum(this=squared), partition_by=[column(UNIT)])
        vectors = exp.select(UNIT, *cells, "number", exp.alias_(squares, "squares"))
        vectors = vectors.from_(numbers.group_by(UNIT, *cells).subquery("numbers"))
        in_full = WEIGHT_SCALE // most
        longest = f"FLOOR(SQRT(FLOOR(CAST({WEIGHT_SCALE**2} AS DOUBLE) / squares)))"
        of_row = f"CASE WHEN {UNIT} IS NULL THEN {in_full} ELSE LEAST({in_full}, {longest}) END"
        total = f"CAST(SUM(CAST(number AS BIGINT) * CAST({of_row} AS BIGINT)) AS BIGINT) AS total"
        return exp.select(*cells, total).from_(vectors.subquery("vectors")).group_by(*cells)

    def groups(self, spec: ViewSpec) -> tuple[exp.Select, dict[str, str]]:
        """Return the same with the groups of the rows: ``owner`` (its ``n``, or NULL), their size, rows of the unit."""
        key = self._schema.table(spec.table).owner_key
        if key is None:
            raise InternalError(f"{spec.table}: co-members along an owner key only")
        found, called = self.coded(spec)
        owner, on = f"{self._names.kept(key.parent)} AS owner", matches(self._names, key, "r", "owner")
        return found.join(owner, on=on, join_type="left").select("owner.n AS owner", "r.g", "r.s"), called

    def references(self, key: ForeignKey, most: int, bounded: int | None = None) -> exp.Select:
        """Return a query for the weight of the rows that refer to each parent; NULL for those that refer to none."""
        found, joined = exp.select().from_(f"{self._names.kept(key.child)} AS r"), _Joined()
        found, parent = self._join(found, key, joined)
        of_row: Expr = weight((most,))
        if bounded is not None:
            found, of_row = self._bounded(found, BoundedReferences(key, bounded), most, joined)
        return self._sums(found, column("n", parent), of_row)

    def _bounded(
        self, found: exp.Select, bounded: BoundedReferences, rows_per_unit: int, joined: _Joined
    ) -> tuple[exp.Select, Expr]:
        """Return the query of rows that refer to others, and what they weigh, see `Relations.bounded_weights`."""
        key, owned = bounded.key, self._schema.ownership_path(bounded.key.child)
        of_row = weight((rows_per_unit,)) if owned else number(1)
        most = bounded.most * (WEIGHT_SCALE // rows_per_unit if owned else 1)
        found, parent = self._join(found, key, joined)
        order = exp.Order(expressions=[self._keyed_hash(key.child)])
        frame = exp.WindowSpec(kind="ROWS", start="UNBOUNDED", start_side="PRECEDING", end="CURRENT ROW")
        summed = exp.Sum(this=exp.cast(of_row.copy(), exp.DataType.Type.BIGINT))
        so_far = exp.Window(this=summed, partition_by=[column("u", parent)], order=order, spec=frame)
        left = _whole(number(most)) + of_row.copy() - _whole(so_far)
        capped = exp.Least(this=left, expressions=[of_row.copy()], ignore_nulls=True)
        weighed = exp.Greatest(this=number(0), expressions=[capped], ignore_nulls=True)
        return found.where(f"{parent}.n IS NOT NULL"), exp.cast(weighed, exp.DataType.Type.INT)

    def clipped_references(self, key: ForeignKey, most: int) -> exp.Select:
        """Return the same query where each unit's counts of references are clipped in L2 norm."""
        found = exp.select().from_(f"{self._names.kept(key.child)} AS r")
        found, parent = self._join(found, key, _Joined())
        coded = found.select(f"{parent}.n AS key", exp.alias_(weight((most,)), WEIGHT), *_UNITS)
        return self.clipped(coded, {"key": None}, most)

    def values(self, table: str, name: str, named: tuple[str, ...], most: int) -> exp.Select:
        """Return a query for the weight of the rows with each text of a column; NULL for those that are ``named``.

        Which text has which weight is not asked for.
        """
        found = exp.select().from_(f"{self._names.kept(table)} AS r")
        value = self._text(table, name)
        if named:
            value = exp.case().when(self._among(value.copy(), named), exp.Null()).else_(value)
        owned = self._schema.ownership_path(table)
        summed = self._sums(found, value, weight((most,)) if owned else number(1))
        return exp.select("CASE WHEN NOT key IS NULL THEN 0 END AS key", "total").from_(summed.subquery("summed"))

    def texts(self, table: str, name: str, named: tuple[str, ...]) -> exp.Select:
        """Return a query for the units with each text of a column that is not ``named``, by how many they have."""
        value = self._text(table, name)
        pairs = exp.select("r.u", exp.alias_(value, "key")).distinct().from_(f"{self._names.kept(table)} AS r")
        pairs = pairs.where(exp.Not(this=is_null(value.copy())))
        if named:
            pairs = pairs.where(exp.Not(this=self._among(value.copy(), named)))
        counted = exp.select("key", "COUNT(*) OVER (PARTITION BY u) AS held").from_(pairs.subquery("pairs"))
        found = exp.select("key", "held", "COUNT(*) AS number").from_(counted.subquery("counted"))
        return found.group_by("key", "held")

    def _sums(self, rows: exp.Select, key: Expr, of: Expr) -> exp.Select:
        listed = rows.select(exp.alias_(key, "key"), exp.alias_(of, WEIGHT)).subquery("listed")
        return exp.select("key", f"CAST(SUM({WEIGHT}) AS BIGINT) AS total").from_(listed).group_by("key")

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
        here = self._schema.table(table)
        if isinstance(feature, Own | CoMember | OwnDifference | UnitRows | OwnerFanout):
            return found, self._code(self._kept_with(table, feature), discretizer)
        if isinstance(feature, OwnFanout):
            found, size = self._children(found, feature.key, "r")
            return found, self._code(size, discretizer)
        if isinstance(feature, MemberPlace):
            return found, place(self._names, self._database, here, feature, self._keyed_hash(table))
        if isinstance(feature, SiblingAgreement):
            return found, agreement(self._names, self._database, here, feature, self._keyed_hash(table))
        if isinstance(feature, OwnType):
            return self._latent(found, column("n", "r"), self._types(feature))
        if isinstance(feature, OwnerType):
            found, owner = self._join(found, feature.key, joined)
            found, value = self._latent(found, column("n", owner), self._types(feature))
            return found, exp.case().when(f"{owner}.n IS NULL", number(discretizer.size)).else_(value)
        found, parent = self._join(found, feature.key, joined)
        if isinstance(feature, ParentRow | OwnerDifference):
            return found, self._code(self._looked_at(table, feature, parent), discretizer)
        shown: Expr = column(called, parent)
        if isinstance(feature, ParentFanout):
            found, size = self._children(found, feature.of, parent)
            shown = self._code(size, discretizer)
        return found, exp.case().when(f"{parent}.n IS NULL", number(discretizer.size)).else_(shown)

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
        there = f"{parent}.n" if public else "0"
        return exp.maybe_parse(f"(CASE WHEN {parent}.n IS NULL THEN -1 ELSE {there} END)")

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
        private = not self._schema.table(key.parent).public
        stored += ["u"] * private
        if key.same_unit and private:
            on = exp.and_(on, f"{alias}.u = r.u")
        codes = (exp.alias_(code, name) for name, code in joined.codes.get(key, {}).items())
        parent = exp.select(*(f"q.{name}" for name in stored), *codes).from_(f"{self._names.kept(key.parent)} AS q")
        return found.join(parent.subquery(alias), on=on, join_type="left"), alias

    def _latent(self, found: exp.Select, row: Expr, types: str) -> tuple[exp.Select, Expr]:
        """Return the query with a table of latent values joined to it, and the value of a row: 0 without children."""
        alias = f"t{len(found.args.get('joins') or [])}"
        found = found.join(f"{types} AS {alias}", on=column("n", alias).eq(row), join_type="left")
        return found, exp.func("COALESCE", column("latent", alias), number(0))

    def _children(self, found: exp.Select, key: ForeignKey, parent: str) -> tuple[exp.Select, Expr]:
        """Return the query with the numbers of children along an owner key, and that of the row called ``parent``."""
        alias = f"k{len(found.args.get('joins') or [])}"
        referring = self._names.columns(key.child, key.columns)
        grouped = exp.select(*referring, "COUNT(*) AS number").from_(self._names.kept(key.child)).group_by(*referring)
        on = matches(self._names, key, alias, parent)
        found = found.join(grouped.subquery(alias), on=on, join_type="left")
        return found, exp.func("COALESCE", column("number", alias), number(0))

    def _code(self, value: Expr, discretizer: Discretizer) -> Expr:
        return code_of(self._database, value, discretizer)

    def _keyed_hash(self, table: str) -> Expr:
        return keyed_hash(self._names, self._database, self._secret, self._schema.table(table), "r")

    def _text(self, table: str, name: str) -> Expr:
        """Return a column as text; whole numbers in digits."""
        value: Expr = column(self._names.modelled(table, name), "r")
        numbers = self._schema.table(table).column(name).type is ColumnType.INTEGER
        return exp.cast(value, exp.DataType.Type.TEXT) if numbers else value

    def _among(self, value: Expr, named: tuple[str, ...]) -> Expr:
        """Return the condition that a text is one of some."""
        listed = [text(each) for each in named if self._database.zeros or "\0" not in each]
        return exp.In(this=value, expressions=listed) if listed else exp.false()


def _grouped(code: Expr, group_of: NDArray[np.int64]) -> Expr:
    """Return the group of a code."""
    found = exp.case()
    for group in np.unique(group_of).tolist():
        codes = [number(each) for each in np.flatnonzero(group_of == group).tolist()]
        found = found.when(exp.In(this=code.copy(), expressions=codes), number(group))
    return found


def _whole(value: Expr) -> Expr:
    return exp.cast(value, exp.DataType.Type.BIGINT)
