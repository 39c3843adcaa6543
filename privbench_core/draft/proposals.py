"""Propose domains from the ranges and lists of a source's CHECK constraints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.expressions import Expr

from privbench_core.schema.checks import columns_of, parse_check
from privbench_core.schema.columns import ColumnType, Range, Scalar, Values
from privbench_core.schema.constraints import Check
from privbench_core.schema.types.base import OrderedType

_MIRRORED = {exp.GT: exp.LT, exp.GTE: exp.LTE, exp.LT: exp.GT, exp.LTE: exp.GTE}


@dataclass(frozen=True)
class Proposal:
    """The domain of one column as far as checks imply it."""

    low: Scalar | None = None
    high: Scalar | None = None
    values: tuple[Scalar, ...] = ()
    checks: tuple[str, ...] = ()  # names of those that it follows from

    @property
    def domain(self) -> Range | Values | None:
        """Return the domain, None if the checks leave an end open."""
        if self.values:
            return Values(self.values)
        return None if self.low is None or self.high is None else Range(self.low, self.high)


_NOTHING = Proposal()


def propose_domain(column: str, kind: ColumnType, checks: Iterable[Check]) -> Proposal:
    """Return the domain of a column that the checks of its table imply; conditions on several columns are ignored.

    >>> checks = [Check("stars", "rating >= 1 AND rating < 6")]
    >>> propose_domain("rating", ColumnType.INTEGER, checks).domain
    Range(low=1, high=5, cells=None, step=None)
    >>> checks = [Check("kinds", "kind = 'a' OR kind IN ('b', 'c') OR kind IS NULL")]
    >>> propose_domain("kind", ColumnType.CATEGORY, checks).domain
    Values(values=('a', 'b', 'c'))
    """
    found: list[tuple[str, Proposal]] = []
    for check in checks:
        tree = parse_check(check.expression)
        parts = [] if tree is None else [part for part in _parts(tree, exp.And) if columns_of(part) == {column}]
        found += [(check.name, implied) for part in parts if (implied := _implied(part, kind)) != _NOTHING]
    checked = tuple(dict.fromkeys(name for name, _ in found))
    values = next((implied.values for _, implied in found if implied.values), ())
    if not isinstance(kind.logical, OrderedType):
        return Proposal(values=values, checks=checked)
    lows = [implied.low for _, implied in found if implied.low is not None]
    highs = [implied.high for _, implied in found if implied.high is not None]
    by = kind.logical.sort_key
    return Proposal(max(lows, key=by, default=None), min(highs, key=by, default=None), values, checked)


def _parts(tree: Expr, joined_by: type[exp.Connector]) -> Iterator[Expr]:
    """Yield what AND, or OR, joins."""
    bare = tree.unnest()
    if isinstance(bare, joined_by):
        yield from (part for side in (bare.left, bare.right) for part in _parts(side, joined_by))
    else:
        yield bare


def _implied(part: Expr, kind: ColumnType) -> Proposal:
    """Return what follows from a condition, which may allow NULL besides."""
    parts = _parts(part, exp.Or)
    cases = [
        _compared(case, kind) for case in parts if not (isinstance(case, exp.Is) and isinstance(case.right, exp.Null))
    ]
    if len(cases) == 1:
        return cases[0]
    listed = all(case.values for case in cases)
    return Proposal(values=tuple(dict.fromkeys(v for case in cases for v in case.values))) if listed else _NOTHING


def _compared(part: Expr, kind: ColumnType) -> Proposal:
    """Return what follows from one comparison of a bare column."""
    left = part.this.unnest() if isinstance(part, exp.Binary | exp.Between | exp.In) else None
    if isinstance(part, exp.In | exp.EQ) and isinstance(left, exp.Column):
        items = part.expressions if isinstance(part, exp.In) else [part.expression]
        values = [_scalar(item, kind) for item in items]
        known = [value for value in values if value is not None]
        is_list = kind.logical.listable and len(known) == len(values)
        return Proposal(values=tuple(dict.fromkeys(known))) if is_list else _NOTHING
    if isinstance(part, exp.Between) and isinstance(left, exp.Column) and kind.ordered:
        return Proposal(_scalar(part.args["low"], kind), _scalar(part.args["high"], kind))
    operator = type(part)
    if operator not in _MIRRORED or not kind.ordered:
        return _NOTHING
    right = part.expression.unnest()
    if isinstance(right, exp.Column):
        left, right, operator = right, left, _MIRRORED[operator]
    value = _scalar(right, kind) if isinstance(left, exp.Column) and right is not None else None
    if value is None:
        return _NOTHING
    if kind is ColumnType.INTEGER and operator in {exp.GT, exp.LT}:  # the only type with a next value
        value = int(value) + (1 if operator is exp.GT else -1)
    return Proposal(low=value) if operator in {exp.GT, exp.GTE} else Proposal(high=value)


def _scalar(node: Expr, kind: ColumnType) -> Scalar | None:
    """Return the value of a literal, with or without a cast."""
    bare = node.unnest()
    while isinstance(bare, exp.Cast):
        bare = bare.this.unnest()
    sign, literal = ("-", bare.this.unnest()) if isinstance(bare, exp.Neg) else ("", bare)
    return kind.logical.parse(f"{sign}{literal.this}") if isinstance(literal, exp.Literal) else None
