"""Conditions as a person would write them, from the form a database stores them in.

PostgreSQL stores ``kind IN ('a', 'b')`` as ``((kind)::text = ANY ((ARRAY['a'::character varying, ..])::text[]))``, and
stores what it prints as something else again. A spec is read by people, and must not change with every round trip.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING

from privbench_core.schema.checks import parse_check

if TYPE_CHECKING:
    from sqlglot.expressions import Expr

_DIALECT = "postgres"
_TEXT = r"'(?:[^']|'')*'"
_VARYING = re.compile(r"(?<=')::character varying(?=,|$)")
_CAST_LIST = re.compile(rf"\(ARRAY\[((?:{_TEXT}::character varying(?:, )?)+)\]\)::text\[\]")
_CAST_TWICE = re.compile(rf"\(({_TEXT})::character varying\)::text")


def readable(expression: str, textual: Collection[str] = ()) -> str:
    """The same condition without the casts and brackets that say nothing; as it stands if it is not a simple one.

    Args:
        expression: A condition over one row, in PostgreSQL's dialect.
        textual: Names of the columns that hold text, so that casting them to text says nothing.

    >>> readable("(((rating >= 1) AND (rating <= 5)))")
    'rating >= 1 AND rating <= 5'
    >>> readable("((kind)::text = ANY ((ARRAY['a'::character varying, 'b'::character varying])::text[]))", ["kind"])
    "kind IN ('a', 'b')"
    """
    expression = _with_one_cast(expression)
    tree = parse_check(expression)
    if tree is None or not _is_simple(tree):
        return expression
    plain, before = tree.copy(), ""
    while (now := plain.sql(dialect=_DIALECT)) != before:  # one replacement may lay bare another
        before = now
        for step in (
            partial(_without_text_casts, textual=textual),
            _membership,
            _without_number_casts,
            _without_brackets,
        ):
            plain = plain.transform(step)
    return before


def _with_one_cast(expression: str) -> str:
    """Texts of a list, which PostgreSQL casts twice: what it stores of the one form is printed as the other."""
    inside = _CAST_LIST.sub(lambda found: f"ARRAY[{_VARYING.sub('::text', found[1])}]", expression)
    return _CAST_TWICE.sub(r"\1::text", inside)


def _is_simple(tree: Expr) -> bool:
    """Return whether a tree holds only what the steps below, and sqlglot's own spelling, keep the meaning of."""
    from sqlglot import exp

    known = (
        exp.And, exp.Or, exp.Not, exp.Paren, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between, exp.In,
        exp.Is, exp.Null, exp.Boolean, exp.Literal, exp.Column, exp.Identifier, exp.Cast, exp.DataType, exp.Array,
        exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg, exp.Like, exp.ILike,
    )  # fmt: skip

    def fits(node: Expr) -> bool:
        if isinstance(node, exp.Any) or _is_all(node):
            return _listed(node) is not None
        return isinstance(node, known)

    return all(fits(node) for node in tree.walk(prune=lambda node: isinstance(node, exp.DataType)))


def _is_all(node: Expr) -> bool:
    from sqlglot import exp

    return isinstance(node, exp.Anonymous) and node.name.upper() == "ALL" and len(node.expressions) == 1


def _listed(node: Expr) -> list[Expr] | None:
    """Return the items of ``ANY (ARRAY[..])`` or ``ALL (ARRAY[..])``, None for anything else in there."""
    from sqlglot import exp

    array = _inner(node.expressions[0] if isinstance(node, exp.Anonymous) else node.this)
    while isinstance(array, exp.Cast):
        array = _inner(array.this)
    return [_inner(item) for item in array.expressions] if isinstance(array, exp.Array) else None


def _inner(node: Expr) -> Expr:
    """Return the node inside of brackets."""
    return node.unnest()


def _without_text_casts(node: Expr, textual: Collection[str]) -> Expr:
    """Text cast to text, or to a type of the user's own, which is an enum."""
    from sqlglot import exp

    if not isinstance(node, exp.Cast):
        return node
    target = node.to
    while target.is_type("array") and target.expressions:
        target = target.expressions[0]
    to_text = target.is_type(*exp.DataType.TEXT_TYPES) or target.this is exp.DataType.Type.USERDEFINED
    value = _inner(node.this)
    is_text = (isinstance(value, exp.Literal) and value.is_string) or isinstance(value, exp.Array)
    if isinstance(value, exp.Column):
        is_text = value.name in textual and target.this is not exp.DataType.Type.USERDEFINED
    return value if is_text and to_text and not target.find(exp.DataTypeParam) else node


def _membership(node: Expr) -> Expr:
    """``x = ANY (ARRAY[..])`` and ``x <> ALL (ARRAY[..])`` as IN and NOT IN."""
    from sqlglot import exp

    right = node.expression if isinstance(node, exp.EQ | exp.NEQ) else None
    if right is None or not (isinstance(right, exp.Any) if isinstance(node, exp.EQ) else _is_all(right)):
        return node
    listed = exp.In(this=_inner(node.this), expressions=_listed(right))
    return exp.Not(this=listed) if isinstance(node, exp.NEQ) else listed


def _without_number_casts(node: Expr) -> Expr:
    """Casts of a literal number that is only compared: elsewhere they may decide between two kinds of division."""
    from sqlglot import exp

    if not isinstance(node, exp.Cast) or not node.to.is_type(*exp.DataType.NUMERIC_TYPES):
        return node
    value, user = _inner(node.this), node.parent
    while isinstance(user, exp.Paren):
        user = user.parent
    number = value.this if isinstance(value, exp.Neg) else value
    is_number = isinstance(number, exp.Literal) and not number.is_string
    return value if is_number and isinstance(user, exp.Predicate) else node


def _without_brackets(node: Expr) -> Expr:
    from sqlglot import exp

    if not isinstance(node, exp.Paren):
        return node
    inside, outside = _inner(node), node.parent
    while isinstance(outside, exp.Paren):
        outside = outside.parent
    single = isinstance(inside, exp.Column | exp.Literal | exp.Cast | exp.Boolean | exp.Null)
    sums = isinstance(inside, exp.Add | exp.Sub | exp.Mul | exp.Div | exp.Neg) and isinstance(outside, exp.Predicate)
    joined = isinstance(outside, exp.And | exp.Or) and not isinstance(inside, exp.And | exp.Or)
    same = (isinstance(outside, exp.And) and isinstance(inside, exp.And)) or (
        isinstance(outside, exp.Or) and isinstance(inside, exp.Or | exp.And)
    )
    needless = outside is None or single or sums or joined or same
    return inside.transform(_without_brackets) if needless else node
