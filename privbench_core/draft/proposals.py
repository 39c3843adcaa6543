"""Propose domains from the ranges and lists of a source's CHECK constraints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from privbench_core.schema.checks import columns_of, parse_check
from privbench_core.schema.columns import ColumnType, Range, Scalar, Values
from privbench_core.schema.constraints import Check
from privbench_core.schema.types.base import OrderedType

if TYPE_CHECKING:
    from sqlglot.expressions import Expr


@dataclass(frozen=True)
class Proposal:
    """The domain of one column as far as checks imply it.

    Attributes:
        low, high: Ends of the range, None if no check gives one.
        values: A list of values, empty if no check gives one.
        checks: Names of the checks it follows from.
    """

    low: Scalar | None = None
    high: Scalar | None = None
    values: tuple[Scalar, ...] = ()
    checks: tuple[str, ...] = ()

    @property
    def domain(self) -> Range | Values | None:
        """Return the domain, None if the checks leave an end open."""
        if self.values:
            return Values(self.values)
        return None if self.low is None or self.high is None else Range(self.low, self.high)


def propose_domain(column: str, kind: ColumnType, checks: Iterable[Check]) -> Proposal:
    """Return the domain of a column that the checks of its table imply; conditions on several columns are ignored.

    >>> checks = [Check("stars", "rating >= 1 AND rating < 6")]
    >>> propose_domain("rating", ColumnType.INTEGER, checks).domain
    Range(low=1, high=5, cells=None, step=None)
    >>> checks = [Check("kinds", "kind = 'a' OR kind IN ('b', 'c') OR kind IS NULL")]
    >>> propose_domain("kind", ColumnType.CATEGORY, checks).domain
    Values(values=('a', 'b', 'c'))
    """
    lows: list[Scalar] = []
    highs: list[Scalar] = []
    values: tuple[Scalar, ...] = ()
    names: list[str] = []
    for check in checks:
        tree = parse_check(check.expression)
        for part in _conjuncts(tree) if tree is not None else ():
            if columns_of(part) != {column}:
                continue
            below, above, listed = _implied(part, kind)
            lows += [] if below is None else [below]
            highs += [] if above is None else [above]
            values = values or listed
            if (below, above, listed) != (None, None, ()):
                names.append(check.name)
    checked = tuple(dict.fromkeys(names))
    if not isinstance(kind.logical, OrderedType):
        return Proposal(values=values, checks=checked)
    by = kind.logical.sort_key
    return Proposal(max(lows, key=by, default=None), min(highs, key=by, default=None), values, checked)


def _conjuncts(tree: Expr) -> Iterator[Expr]:
    from sqlglot import exp

    bare = tree.unnest()
    if isinstance(bare, exp.And):
        yield from _conjuncts(bare.left)
        yield from _conjuncts(bare.right)
    else:
        yield bare


def _implied(part: Expr, kind: ColumnType) -> tuple[Scalar | None, Scalar | None, tuple[Scalar, ...]]:
    """Return the lowest value, highest value and list of values of a condition, which may allow NULL besides."""
    from sqlglot import exp

    cases = [case for case in _disjuncts(part) if not (isinstance(case, exp.Is) and isinstance(case.right, exp.Null))]
    if len(cases) == 1:
        return _bounds(cases[0], kind)
    listed = [_bounds(case, kind)[2] for case in cases]
    return None, None, tuple(dict.fromkeys(value for values in listed for value in values)) if all(listed) else ()


def _disjuncts(tree: Expr) -> Iterator[Expr]:
    from sqlglot import exp

    bare = tree.unnest()
    if isinstance(bare, exp.Or):
        yield from _disjuncts(bare.left)
        yield from _disjuncts(bare.right)
    else:
        yield bare


def _bounds(part: Expr, kind: ColumnType) -> tuple[Scalar | None, Scalar | None, tuple[Scalar, ...]]:
    """Return the lowest value, highest value and list of values that one comparison of a bare column gives."""
    from sqlglot import exp

    left = part.this.unnest() if isinstance(part, exp.Binary | exp.Between | exp.In) else None
    if isinstance(part, exp.In) and isinstance(left, exp.Column):
        return None, None, _listed(part.expressions, kind) if kind.logical.listable else ()
    if isinstance(part, exp.EQ) and isinstance(left, exp.Column):
        return None, None, _listed([part.expression], kind) if kind.logical.listable else ()
    if not kind.ordered:
        return None, None, ()
    if isinstance(part, exp.Between) and isinstance(left, exp.Column):
        return _scalar(part.args["low"], kind), _scalar(part.args["high"], kind), ()
    mirrored = {exp.GT: exp.LT, exp.GTE: exp.LTE, exp.LT: exp.GT, exp.LTE: exp.GTE}
    operator = type(part)
    if operator not in mirrored:
        return None, None, ()
    right = part.expression.unnest()
    if isinstance(right, exp.Column):
        left, right, operator = right, left, mirrored[operator]
    value = _scalar(right, kind) if isinstance(left, exp.Column) and right is not None else None
    if value is None:
        return None, None, ()
    if kind is ColumnType.INTEGER and operator in {exp.GT, exp.LT}:  # the only type with a next value
        value = int(value) + (1 if operator is exp.GT else -1)
    return (value, None, ()) if operator in {exp.GT, exp.GTE} else (None, value, ())


def _listed(items: Iterable[Expr], kind: ColumnType) -> tuple[Scalar, ...]:
    found = [_scalar(item, kind) for item in items]
    values = [value for value in found if value is not None]
    return tuple(dict.fromkeys(values)) if values and len(values) == len(found) else ()


def _scalar(node: Expr, kind: ColumnType) -> Scalar | None:
    """Return the value of a literal, with or without a cast."""
    from sqlglot import exp

    bare = node.unnest()
    while isinstance(bare, exp.Cast):
        bare = bare.this.unnest()
    if isinstance(bare, exp.Neg):
        inner = bare.this.unnest()
        return kind.logical.parse(f"-{inner.this}") if isinstance(inner, exp.Literal) else None
    return kind.logical.parse(bare.this) if isinstance(bare, exp.Literal) else None
