"""Constraints between the columns of a row that declared checks state in a form that can be computed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from privbench_core.columns.row_constraints import can_hold, rounding_of
from privbench_core.schema.checks import columns_of, parse_check
from privbench_core.schema.row_constraints import (
    DatePart,
    Formula,
    InOrder,
    MissingTogether,
    PartOfDate,
    RowConstraint,
    SameValue,
    is_well_formed,
)
from privbench_core.schema.tables import Table

if TYPE_CHECKING:
    from sqlglot.expressions import Expr

_PARTS = {
    "YEAR": DatePart.YEAR,
    "QUARTER": DatePart.QUARTER,
    "MONTH": DatePart.MONTH,
    "WEEK": DatePart.WEEK,
    "DAY": DatePart.DAY,
    "DOY": DatePart.DAY_OF_YEAR,
    "DAYOFYEAR": DatePart.DAY_OF_YEAR,
    "DOW": DatePart.WEEKDAY_FROM_SUNDAY,
    "ISODOW": DatePart.WEEKDAY_ISO,
    "HOUR": DatePart.HOUR,
}


@lru_cache(maxsize=256)
def declared_constraints(table: Table) -> tuple[RowConstraint, ...]:
    """Return the constraints between attributes of a table that its checks state.

    They are ``a = b``, ``a <= b``, ``a = b + c``, ``a = round(b * c, 2)``, ``a = extract(year from b)``, and
    ``(a IS NULL) = (b IS NULL)``, each by itself or joined by AND.
    """
    plain = {column.name: column for column in table.attributes if column.relative is None}
    trees = (parse_check(check.expression) for check in table.checks)
    stated = (
        found for tree in trees if tree is not None for part in _conjuncts(tree) for found in _stated(table, part)
    )
    return tuple(
        dict.fromkeys(
            each
            for each in stated
            if is_well_formed(each)
            and plain.keys() >= set(each.columns)
            and can_hold(each, [plain[name] for name in each.columns])
        )
    )


def _conjuncts(tree: Expr) -> Iterator[Expr]:
    """Yield the parts of a condition that must all hold."""
    from sqlglot import exp

    bare = tree.unnest()
    if isinstance(bare, exp.And):
        yield from _conjuncts(bare.left)
        yield from _conjuncts(bare.right)
    else:
        yield bare


def _stated(table: Table, tree: Expr) -> Iterator[RowConstraint]:
    """Yield the constraint that a condition is, if it is one."""
    from sqlglot import exp

    if not isinstance(tree, exp.EQ | exp.LTE | exp.GTE):
        return
    left, right = tree.left.unnest(), tree.right.unnest()
    if isinstance(tree, exp.EQ):
        if all(isinstance(side, exp.Is) and isinstance(side.expression, exp.Null) for side in (left, right)):
            if names := [name for side in (left, right) for name in _columns(side.this)]:
                yield MissingTogether(tuple(names))
            return
        for side, other in ((left, right), (right, left)):
            for name in _columns(side):
                yield from _computed(table, name, other)
                return
    elif len(names := [*_columns(left), *_columns(right)]) == len((left, right)):
        first, last = names if isinstance(tree, exp.LTE) else names[::-1]
        yield InOrder(first, last)


def _computed(table: Table, name: str, tree: Expr) -> Iterator[RowConstraint]:
    """Yield the constraint that a column is equal to an expression."""
    from sqlglot import exp

    bare = _bare(tree)
    if isinstance(bare, exp.Round):
        bare = _bare(bare.this)
    for other in _columns(bare):
        yield SameValue(name, other)
    if isinstance(bare, exp.Extract) and str(bare.this).upper() in _PARTS:
        for other in _columns(bare.expression):
            yield PartOfDate(name, other, _PARTS[str(bare.this).upper()])
    if isinstance(bare, exp.Add | exp.Mul):
        parts = [*bare.flatten()]
        names = tuple(other for part in parts for other in _columns(part))
        if len(names) == len(parts) and name in {column.name for column in table.attributes}:
            yield Formula(name, names, isinstance(bare, exp.Mul), rounding_of(table.column(name)))


def _columns(tree: Expr) -> Iterator[str]:
    """Yield the name of a column, of an expression that is one."""
    from sqlglot import exp

    bare = _bare(tree)
    if isinstance(bare, exp.Column):
        yield from columns_of(bare)


def _bare(tree: Expr) -> Expr:
    """Return an expression without brackets and casts around it: PostgreSQL casts numbers where types differ."""
    from sqlglot import exp

    while isinstance(tree, exp.Paren | exp.Cast):
        tree = tree.this
    return tree
