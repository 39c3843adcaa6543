"""Views as queries over the tables of kept rows: the twin of `engines.memory`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.group_codes import ALONE, DIFFERENT, SAME
from privbench_core.engines.sql import Expr, column, is_null, number, text
from privbench_core.engines.sql.codes import code_of, difference_of, verdict_of
from privbench_core.engines.sql.relations import Tables, weight
from privbench_core.errors import InternalError
from privbench_core.privacy.features import (
    AsStored,
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
    SameReference,
    Satisfies,
    SiblingAgreement,
    SincePrevious,
    UnitRows,
    feature_size,
)
from privbench_core.privacy.relations import WEIGHT_SCALE
from privbench_core.privacy.views import ViewSpec
from privbench_core.schema.columns import ColumnType
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Table

WEIGHT, UNIT, ROWS_OF_UNIT, OWNER_ROW, ORDER = "w", "u", "s", "v", "o"
_UNITS = f"r.u AS {UNIT}", f"r.s AS {ROWS_OF_UNIT}"  # the unit of a row, and how many rows it has
ValueOf = (
    Own
    | AsStored
    | CoMember
    | OwnDifference
    | OwnerDifference
    | SincePrevious
    | OwnFanout
    | OwnerFanout
    | UnitRows
    | ParentRow
)
_SMALL = ("tinyint", 1 << 7), ("smallint", 1 << 15)  # types, and how many codes fit them


@dataclass(frozen=True)
class StoredNumber:
    """A column of the row as the number that is stored, for who compares rows where they come in their order."""

    column: str


class Views:
    """Makes the queries of views over tables of kept rows.

    Args:
        tables: They.
        types: Makes a table of the latent values of groups: the parent's ``n``, and ``latent``.
    """

    def __init__(self, tables: Tables, types: Callable[[OwnType | OwnerType], str]) -> None:
        self._tables = tables
        self._schema = tables.schema
        self._types = types

    def coded(self, spec: ViewSpec, *, weighed: bool = True, units: bool = False) -> tuple[exp.Select, dict[str, str]]:
        """Return a query for codes and weights, and what it calls each column of the view.

        Args:
            spec: The view.
            weighed: Whether weights are wanted, and not the numbers of rows of units that they follow from.
            units: Whether the units of rows are wanted whose counts may be clipped.
        """
        called = {name: f"f{place}" for place, name in enumerate(spec.features)}
        rows = _Rows(self._tables, spec.table, self._types, {called[name]: how for name, how in spec.features.items()})
        features: Mapping[str, tuple[Any, Discretizer]] = spec.features
        for name, (feature, discretizer) in features.items():
            if isinstance(feature, StoredNumber):
                stored = column(self._tables.column(spec.table, feature.column), "r")
                rows.select(exp.alias_(stored, called[name], copy=False))
                continue
            code = rows.code(called[name], feature, discretizer)
            kind = next((kind for kind, most in _SMALL if feature_size(feature, discretizer) <= most), "int")
            rows.select(exp.alias_(exp.cast(code, kind, copy=False), called[name], copy=False))
        owned = self._schema.ownership_path(spec.table)
        if spec.bounded is not None:
            most = spec.rows_per_unit[0]
            of_row, whole = (weight((most,)), WEIGHT_SCALE // most) if owned else (number(1), 1)
            weighed_row = rows.bounded(spec.bounded.key, of_row, spec.bounded.most * whole)
            rows.select(exp.alias_(weighed_row, WEIGHT))
        elif owned:
            rows.select(exp.alias_(weight(spec.rows_per_unit) if weighed else column("s", "r"), WEIGHT))
            rows.select(*_UNITS * units)
            rows.select(*(f"r.{name} AS {name}" for name in (OWNER_ROW, ORDER) if units and self._tables.database.near))
        return rows.query, called

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
        """Return the query of `coded` with ``owner`` (its ``n``, or NULL), ``g`` and ``s`` of each row."""
        key = self._schema.table(spec.table).owner_key
        if key is None:
            raise InternalError(f"{spec.table}: co-members along an owner key only")
        found, called = self.coded(spec)
        owner, on = f"{self._tables.kept(key.parent)} AS owner", self._tables.matches(key, "r", "owner")
        return found.join(owner, on=on, join_type="left").select("owner.n AS owner", "r.g", "r.s"), called

    def references(self, key: ForeignKey, most: int, bounded: int | None = None) -> exp.Select:
        """Return a query for the weight of the rows that refer to each parent; NULL for those that refer to none."""
        rows = _Rows(self._tables, key.child, self._types)
        parent, of_row = rows.join(key), weight((most,))
        if bounded is not None:
            of_row = rows.bounded(key, of_row, bounded * (WEIGHT_SCALE // most))
        return _sums(rows.query, column("n", parent), of_row)

    def clipped_references(self, key: ForeignKey, most: int) -> exp.Select:
        """Return the same query where each unit's counts of references are clipped in L2 norm."""
        rows = _Rows(self._tables, key.child, self._types)
        rows.select(f"{rows.join(key)}.n AS key", exp.alias_(weight((most,)), WEIGHT), *_UNITS)
        return self.clipped(rows.query, {"key": None}, most)

    def values(self, table: str, name: str, named: tuple[str, ...], most: int) -> exp.Select:
        """Return a query for the weight of the rows with each text of a column; NULL for those that are ``named``.

        Which text has which weight is not asked for.
        """
        value = self._text(table, name)
        if named:
            value = exp.case().when(self._among(value.copy(), named), exp.Null()).else_(value)
        of_row = weight((most,)) if self._schema.ownership_path(table) else number(1)
        summed = _sums(exp.select().from_(f"{self._tables.kept(table)} AS r"), value, of_row)
        return exp.select("CASE WHEN NOT key IS NULL THEN 0 END AS key", "total").from_(summed.subquery("summed"))

    def texts(self, table: str, name: str, named: tuple[str, ...]) -> exp.Select:
        """Return a query for the units with each text of a column that is not ``named``, by how many they have."""
        value = self._text(table, name)
        pairs = exp.select("r.u", exp.alias_(value, "key")).distinct().from_(f"{self._tables.kept(table)} AS r")
        pairs = pairs.where(exp.Not(this=is_null(value.copy())))
        if named:
            pairs = pairs.where(exp.Not(this=self._among(value.copy(), named)))
        counted = exp.select("key", "COUNT(*) OVER (PARTITION BY u) AS held").from_(pairs.subquery("pairs"))
        found = exp.select("key", "held", "COUNT(*) AS number").from_(counted.subquery("counted"))
        return found.group_by("key", "held")

    def _text(self, table: str, name: str) -> Expr:
        """Return a column as text; whole numbers in digits."""
        value: Expr = column(self._tables.modelled(table, name), "r")
        numbers = self._schema.table(table).column(name).type is ColumnType.INTEGER
        return exp.cast(value, exp.DataType.Type.TEXT) if numbers else value

    def _among(self, value: Expr, named: tuple[str, ...]) -> Expr:
        """Return the condition that a text is one of some."""
        listed = [text(each) for each in named if self._tables.database.zeros or "\0" not in each]
        return exp.In(this=value, expressions=listed) if listed else exp.false()


class _Rows:
    """A query of the kept rows ``r`` of a table, which grows by what is looked at.

    Attributes:
        query: So far.
    """

    def __init__(
        self,
        tables: Tables,
        table: str,
        types: Callable[[OwnType | OwnerType], str],
        features: Mapping[str, tuple[Feature, Discretizer]] = MappingProxyType({}),
    ) -> None:
        self.query = exp.select().from_(f"{tables.kept(table)} AS r")
        self._tables = tables
        self._table = table
        self._types = types
        self._aliases: dict[ForeignKey, str] = {}
        self._coded: dict[ForeignKey, dict[str, Expr]] = {}  # of parents: there are fewer of them than of children
        self._others: dict[ForeignKey, list[str]] = {}  # columns of parents that their other children refer to
        for name, (feature, discretizer) in features.items():
            if isinstance(feature, OfParent):
                value = column(tables.modelled(feature.key.parent, feature.column), "q")
                self._coded.setdefault(feature.key, {})[name] = code_of(tables.database, value, discretizer)
            elif isinstance(feature, ParentFanout):
                referred = tables.columns(feature.of.parent, feature.of.parent_columns)
                self._others.setdefault(feature.key, []).extend(referred)
            elif isinstance(feature, OwnerDifference):
                self._others.setdefault(feature.key, []).append(tables.column(feature.key.parent, feature.base))
            elif isinstance(feature, SameReference):
                for key, way in ((feature.key, feature.theirs), (feature.of, feature.mine)):
                    if key is not None and way is not None:
                        self._others.setdefault(key, []).extend(tables.columns(way.child, way.columns))

    def select(self, *shown: str | Expr) -> None:
        """Show something of each row."""
        self.query = self.query.select(*shown, copy=False)  # each copy would be of all columns so far

    def code(self, called: str, feature: Feature, discretizer: Discretizer) -> Expr:
        """Return the code of a column of the view, which is ``called`` so, as an expression."""
        if isinstance(feature, MemberPlace):
            return _place(self._tables, self._tables.schema.table(self._table), feature)
        if isinstance(feature, SiblingAgreement):
            return _agreement(self._tables, self._tables.schema.table(self._table), feature)
        if isinstance(feature, SameReference):
            return self._same_reference(feature)
        if isinstance(feature, OwnType):
            return self._latent(feature, "r")
        if isinstance(feature, Satisfies):
            constraint, here = feature.constraint, self._tables.schema.table(self._table)
            values = {name: column(self._tables.column(self._table, name), "r") for name in constraint.columns}
            return verdict_of(self._tables.database, here, constraint, values)
        if isinstance(feature, OfParent | ParentFanout | OwnerType):
            parent = self.join(feature.key)
            if isinstance(feature, OwnerType):
                shown = self._latent(feature, parent)
            elif isinstance(feature, ParentFanout):
                shown = code_of(self._tables.database, self._children(feature.of, parent), discretizer)
            else:
                shown = column(called, parent)
            return exp.case().when(f"{parent}.n IS NULL", number(discretizer.size)).else_(shown)
        return code_of(self._tables.database, self._value(feature), discretizer)

    def _same_reference(self, feature: SameReference) -> Expr:
        """Return whether two ways lead from a row to the same one."""
        key, theirs, of, mine = feature.key, feature.theirs, feature.of, feature.mine
        parent, start = self.join(key), "r" if of is None else self.join(of)
        there = self._tables.columns(key.parent, key.parent_columns if theirs is None else theirs.columns)
        here = self._tables.columns(mine.child, mine.columns)
        ends = [(column(one, parent), column(other, start)) for one, other in zip(there, here, strict=True)]
        lost = exp.or_(*(is_null(end.copy()) for pair in ends for end in pair))
        same = exp.and_(*(one.eq(other) for one, other in ends))
        return exp.case().when(lost, number(ALONE)).when(same, number(SAME)).else_(number(DIFFERENT))

    def _value(self, feature: ValueOf) -> Expr:
        """Return what is coded of a row, its children or its parent."""
        tables = self._tables
        if isinstance(feature, Own | CoMember):
            return column(tables.modelled(self._table, feature.column), "r")
        if isinstance(feature, AsStored):
            return column(tables.column(self._table, feature.column), "r")
        if isinstance(feature, OwnFanout):
            return self._children(feature.key, "r")
        if isinstance(feature, OwnDifference):
            own, base = (column(tables.column(self._table, name), "r") for name in (feature.column, feature.base))
            here = tables.schema.table(self._table)
            return difference_of(own, base, (here.column(feature.column), here.column(feature.base)))
        if isinstance(feature, OwnerDifference):
            base = column(tables.column(feature.key.parent, feature.base), self.join(feature.key))
            schema, parent = tables.schema, feature.key.parent
            of = schema.table(self._table).column(feature.column), schema.table(parent).column(feature.base)
            return difference_of(column(tables.column(self._table, feature.column), "r"), base, of)
        if isinstance(feature, SincePrevious):
            here, value = tables.schema.table(self._table), column(tables.column(self._table, feature.column), "r")
            owners = tables.columns(self._table, feature.key.columns)
            before = _window(exp.Lag(this=value.copy()), owners, value, tables.order_of_kept(self._table))
            owned = exp.case().when(exp.Not(this=_ownerless(owners)), before)
            return difference_of(value, owned, (here.column(feature.column),) * 2)
        if isinstance(feature, ParentRow):
            parent, public = self.join(feature.key), tables.schema.table(feature.key.parent).public
            there = f"{parent}.n" if public else "0"
            return exp.maybe_parse(f"(CASE WHEN {parent}.n IS NULL THEN -1 ELSE {there} END)")
        return column("s" if isinstance(feature, UnitRows) else "g", "r")

    def join(self, key: ForeignKey) -> str:
        """Join the rows that a key refers to, and return their alias; see `Relations.kept_parent_rows`."""
        if key in self._aliases:
            return self._aliases[key]
        tables, alias = self._tables, self._aliases.setdefault(key, f"p{len(self._aliases)}")
        on = tables.matches(key, "r", alias)
        referred = (*tables.columns(key.parent, key.parent_columns), *self._others.get(key, ()))
        stored = ["n", *dict.fromkeys(referred)]
        private = not tables.schema.table(key.parent).public
        stored += ["u"] * private
        if key.same_unit and private:
            on = exp.and_(on, f"{alias}.u = r.u")
        codes = (exp.alias_(code, name) for name, code in self._coded.get(key, {}).items())
        parent = exp.select(*(f"q.{name}" for name in stored), *codes).from_(f"{tables.kept(key.parent)} AS q")
        self.query = self.query.join(parent.subquery(alias), on=on, join_type="left")
        return alias

    def bounded(self, key: ForeignKey, of_row: Expr, most: int) -> Expr:
        """Leave only rows that refer to others along a key, and return what they weigh: `Relations.bounded_weights`.

        Args:
            key: The key.
            of_row: The weight of a row.
            most: Of the rows that refer to rows of one unit, together.
        """
        parent = self.join(key)
        order = exp.Order(expressions=[self._tables.keyed_hash(key.child, "r")])
        frame = exp.WindowSpec(kind="ROWS", start="UNBOUNDED", start_side="PRECEDING", end="CURRENT ROW")
        summed = exp.Sum(this=exp.cast(of_row.copy(), exp.DataType.Type.BIGINT))
        so_far = exp.Window(this=summed, partition_by=[column("u", parent)], order=order, spec=frame)
        whole, known = (exp.cast(each, exp.DataType.Type.BIGINT) for each in (number(most), so_far))
        capped = exp.Least(this=whole + of_row.copy() - known, expressions=[of_row.copy()], ignore_nulls=True)
        weighed = exp.Greatest(this=number(0), expressions=[capped], ignore_nulls=True)
        self.query = self.query.where(f"{parent}.n IS NOT NULL")
        return exp.cast(weighed, exp.DataType.Type.INT)

    def _latent(self, feature: OwnType | OwnerType, row: str) -> Expr:
        """Join a table of latent values, and return that of the row called ``row``: 0 without children."""
        alias = self._next("t")
        on = column("n", alias).eq(column("n", row))
        self.query = self.query.join(f"{self._types(feature)} AS {alias}", on=on, join_type="left")
        return exp.func("COALESCE", column("latent", alias), number(0))

    def _children(self, key: ForeignKey, parent: str) -> Expr:
        """Join the numbers of children along an owner key, and return that of the row called ``parent``."""
        alias = self._next("k")
        referring = self._tables.columns(key.child, key.columns)
        grouped = exp.select(*referring, "COUNT(*) AS number").from_(self._tables.kept(key.child)).group_by(*referring)
        on = self._tables.matches(key, alias, parent)
        self.query = self.query.join(grouped.subquery(alias), on=on, join_type="left")
        return exp.func("COALESCE", column("number", alias), number(0))

    def _next(self, kind: str) -> str:
        return f"{kind}{len(self.query.args.get('joins') or [])}"


def _sums(rows: exp.Select, key: Expr, of: Expr) -> exp.Select:
    listed = rows.select(exp.alias_(key, "key"), exp.alias_(of, WEIGHT)).subquery("listed")
    return exp.select("key", f"CAST(SUM({WEIGHT}) AS BIGINT) AS total").from_(listed).group_by("key")


def _grouped(code: Expr, group_of: NDArray[np.int64]) -> Expr:
    """Return the group of a code."""
    found = exp.case()
    for group in np.unique(group_of).tolist():
        codes = [number(each) for each in np.flatnonzero(group_of == group).tolist()]
        found = found.when(exp.In(this=code.copy(), expressions=codes), number(group))
    return found


def _place(tables: Tables, table: Table, feature: MemberPlace) -> Expr:
    """Return the place of a row ``r`` of a table of kept rows among its siblings: see `group_codes.place_codes`."""
    value = column(tables.modelled(table.name, feature.column), "r")
    labels = np.unique(feature.order, return_inverse=True)[1].tolist()  # only the order of scores matters
    score = code_of(tables.database, value, feature.coder, labels)
    owners = tables.columns(table.name, feature.key.columns)
    before = _window(exp.RowNumber(), owners, score, tables.order_of_kept(table.name))
    size = f"LEAST(r.g, {feature.most})"
    first = exp.case().when(_ownerless(owners), number(0)).else_(before - 1)
    rank = exp.Least(this=first, expressions=[exp.maybe_parse(f"{size} - 1")], ignore_nulls=True)
    # rank * most - rank * (rank - 1) / 2 + size - 1 - rank, in halves, as one of two neighbours is even
    starts = exp.case()
    for each in range(min(feature.most, (table.owner_key or feature.key).max_children or 1)):
        start = each * feature.most - each * (each - 1) // 2 - 1 - each
        starts = starts.when(rank.eq(each), number(start))
    return starts.else_(number(0)) + exp.maybe_parse(size)


def _agreement(tables: Tables, table: Table, feature: SiblingAgreement) -> Expr:
    """Return whether a row ``r`` agrees with the next of its siblings, see `Relations.next_siblings`."""
    code = code_of(tables.database, column(tables.modelled(table.name, feature.column), "r"), feature.coder)
    owners = tables.columns(table.name, feature.key.columns)
    order = tables.order_of_kept(table.name)
    following, first = (_window(of(this=code.copy()), owners, order) for of in (exp.Lead, exp.FirstValue))
    found = exp.case().when(exp.or_(_ownerless(owners), "r.g = 1"), number(ALONE))
    return found.when(code.eq(exp.func("COALESCE", following, first)), number(SAME)).else_(number(DIFFERENT))


def _window(of: exp.Expression, owners: list[str], *order: Expr) -> exp.Window:
    """Return a function of the siblings of a row, in an order."""
    ordered = exp.Order(expressions=[each.copy() for each in order])
    return exp.Window(this=of, partition_by=[column(name, "r") for name in owners], order=ordered)


def _ownerless(owners: list[str]) -> Expr:
    return exp.or_(*(f"r.{name} IS NULL" for name in owners))
