"""Conditions and defaults in PostgreSQL's words, as a person would write them.

Other databases have words of their own. PostgreSQL stores ``kind IN ('a', 'b')`` as ``((kind)::text = ANY
((ARRAY['a'::character varying, ..])::text[]))``, and stores what it prints as something else again. A spec is read by
people, and must not change with every round trip.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

import sqlglot
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ErrorLevel, SqlglotError
from sqlglot.expressions import Expr

from privbench_core.backends.catalogue import FoundColumn, FoundTable, exact_name
from privbench_core.schema.checks import parse_check
from privbench_core.schema.columns import ColumnType
from privbench_core.schema.constraints import Check, Index

_DIALECTS = {"mssql": "tsql", "mariadb": "mysql"}  # what sqlglot calls them, where SQLAlchemy has another name
_PASSED_ON = frozenset({"Anonymous", "Glob", "Introducer", "Typeof"})  # functions that it does not know, among others
_DIALECT = "postgres"
_TEXT = r"'(?:[^']|'')*'"
_VARYING = re.compile(r"(?<=')::character varying(?=,|$)")
_CAST_LIST = re.compile(rf"\(ARRAY\[((?:{_TEXT}::character varying(?:, )?)+)\]\)::text\[\]")
_CAST_TWICE = re.compile(rf"\(({_TEXT})::character varying\)::text")


def declared_table(
    table: FoundTable,
    indexes: Iterable[tuple[str, bool, tuple[str, ...] | None]],
    conditions: Iterable[tuple[str, str]],
    dialect: str,
) -> FoundTable:
    """Return a table with its indexes and with its CHECK constraints in PostgreSQL's words.

    Args:
        table: What else the source declares of it.
        indexes: Name, whether it is unique, and columns of each; None for one on an expression.
        conditions: Name and condition of each CHECK constraint.
        dialect: Of the conditions, as SQLAlchemy calls it.
    """
    unique, plain, notes = list(table.unique), [], []
    for name, is_unique, columns in indexes:
        if columns is None:
            notes.append(f"the index {name}, which is on an expression")
        elif is_unique:
            unique.append(columns)
        else:
            plain.append(Index(name, columns))
    checks, strange = checks_in_postgres(conditions, dialect, table.columns)
    return replace(
        table,
        unique=tuple(dict.fromkeys(unique)),
        checks=checks,
        indexes=tuple(plain),
        notes=(*table.notes, *notes, *strange),
    )


def checks_in_postgres(
    found: Iterable[tuple[str, str]], dialect: str, columns: Sequence[FoundColumn]
) -> tuple[tuple[Check, ...], tuple[str, ...]]:
    """Return CHECK constraints, those of one name numbered, and notes on those that PostgreSQL has no words for.

    With these no table could be made.
    """
    textual = [column.name for column in columns if column.type is ColumnType.CATEGORY]
    checks: list[Check] = []
    notes: list[str] = []
    names: list[str] = []
    for name, condition in found:
        names.append(name)
        translated = in_postgres(condition, dialect, columns)
        if translated is None or not _in_common_words(translated):
            notes.append(f"the check {name}, which cannot be written for PostgreSQL")
        else:
            numbered = name if names.count(name) == 1 else f"{name}{names.count(name)}"
            checks.append(Check(numbered, readable(translated, textual)))
    return tuple(checks), tuple(notes)


def _in_common_words(condition: str) -> bool:
    """Return whether a translated condition has no functions or operators that sqlglot passes on as they are."""
    tree = parse_check(condition)
    return tree is not None and not _PASSED_ON.intersection(type(node).__name__ for node in tree.walk())


def in_postgres(expression: str, dialect: str, columns: Sequence[FoundColumn]) -> str | None:
    """Return a default or a condition over one row in PostgreSQL's words, None if sqlglot does not know them."""
    booleans = {column.name for column in columns if column.type is ColumnType.BOOLEAN}
    known = [column.name for column in columns]
    try:
        tree = sqlglot.parse_one(expression, dialect=Dialect.get(_DIALECTS.get(dialect, dialect)))
        tree = tree.transform(without_enums).transform(_named_exactly, known).transform(_of_booleans, booleans)
        return tree.sql(dialect=_DIALECT, unsupported_level=ErrorLevel.RAISE)
    except SqlglotError:
        return None


def without_enums(node: Expr) -> Expr:
    """Return text without a cast to an enum, whose quotes sqlglot forgets; the column's own type says as much."""
    is_cast = isinstance(node, exp.Cast) and node.to.this is exp.DataType.Type.USERDEFINED
    return node.this if is_cast and isinstance(node.this, exp.Literal) else node


def _named_exactly(node: Expr, known: Sequence[str]) -> Expr:
    if not isinstance(node, exp.Column):
        return node
    name = exact_name(node.name, known)
    return exp.column(exp.to_identifier(name, quoted=node.this.quoted or name != name.lower()))


def _of_booleans(node: Expr, booleans: set[str]) -> Expr:
    """Return a comparison of a boolean with 0 or 1, in databases without booleans, as one with FALSE or TRUE."""
    compared = isinstance(node, exp.EQ | exp.NEQ | exp.In) and node.this.unnest()
    if not isinstance(compared, exp.Column) or compared.name not in booleans:
        return node

    def plain(inner: Expr) -> Expr:
        is_flag = isinstance(inner, exp.Literal) and inner.is_number and inner.name in {"0", "1"}
        return exp.Boolean(this=inner.name == "1") if is_flag else inner

    return node.transform(plain)


def readable(expression: str, textual: Collection[str] = ()) -> str:
    """Return a condition without the casts and brackets that say nothing; as it stands if it is not a simple one.

    Args:
        expression: A condition over one row, in PostgreSQL's dialect.
        textual: Names of the columns that hold text, so that casting them to text says nothing.

    >>> readable("(((rating >= 1) AND (rating <= 5)))")
    'rating >= 1 AND rating <= 5'
    >>> readable("((kind)::text = ANY ((ARRAY['a'::character varying, 'b'::character varying])::text[]))", ["kind"])
    "kind IN ('a', 'b')"
    """
    # PostgreSQL casts the texts of a list twice: what it stores of the one form is printed as the other.
    expression = _CAST_LIST.sub(lambda found: f"ARRAY[{_VARYING.sub('::text', found[1])}]", expression)
    expression = _CAST_TWICE.sub(r"\1::text", expression)
    tree = parse_check(expression)
    if tree is None or not _is_simple(tree):
        return expression
    plain, before = tree.copy(), ""
    while (now := plain.sql(dialect=_DIALECT)) != before:  # one replacement may lay bare another
        before = now
        plain = plain.transform(_without_text_casts, textual).transform(_membership)
        plain = plain.transform(_without_number_casts).transform(_without_brackets)
    return before


def _is_simple(tree: Expr) -> bool:
    """Return whether a tree holds only what the steps below, and sqlglot's own spelling, keep the meaning of."""
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
    return isinstance(node, exp.Anonymous) and node.name.upper() == "ALL" and len(node.expressions) == 1


def _listed(node: Expr) -> list[Expr] | None:
    """Return the items of ``ANY (ARRAY[..])`` or ``ALL (ARRAY[..])``, None for anything else in there."""
    array = (node.expressions[0] if isinstance(node, exp.Anonymous) else node.this).unnest()
    while isinstance(array, exp.Cast):
        array = array.this.unnest()
    return [item.unnest() for item in array.expressions] if isinstance(array, exp.Array) else None


def _without_text_casts(node: Expr, textual: Collection[str]) -> Expr:
    """Return text without a cast to text, or to a type of the user's own, which is an enum."""
    if not isinstance(node, exp.Cast):
        return node
    target = node.to
    while target.is_type("array") and target.expressions:
        target = target.expressions[0]
    to_text = target.is_type(*exp.DataType.TEXT_TYPES) or target.this is exp.DataType.Type.USERDEFINED
    value = node.this.unnest()
    is_text = value.is_string or isinstance(value, exp.Array)
    if isinstance(value, exp.Column):
        is_text = value.name in textual and target.this is not exp.DataType.Type.USERDEFINED
    return value if is_text and to_text and not target.find(exp.DataTypeParam) else node


def _membership(node: Expr) -> Expr:
    """Return ``x = ANY (ARRAY[..])`` and ``x <> ALL (ARRAY[..])`` as IN and NOT IN."""
    right = node.expression if isinstance(node, exp.EQ | exp.NEQ) else None
    if right is None or not (isinstance(right, exp.Any) if isinstance(node, exp.EQ) else _is_all(right)):
        return node
    listed = exp.In(this=node.this.unnest(), expressions=_listed(right))
    return exp.Not(this=listed) if isinstance(node, exp.NEQ) else listed


def _without_number_casts(node: Expr) -> Expr:
    """Return a literal number that is only compared without its cast, which elsewhere may decide how it is divided."""
    if not isinstance(node, exp.Cast) or not node.to.is_type(*exp.DataType.NUMERIC_TYPES):
        return node
    value, user = node.this.unnest(), node.parent
    while isinstance(user, exp.Paren):
        user = user.parent
    return value if value.is_number and isinstance(user, exp.Predicate) else node


def _without_brackets(node: Expr) -> Expr:
    if not isinstance(node, exp.Paren):
        return node
    inside, outside = node.unnest(), node.parent
    while isinstance(outside, exp.Paren):
        outside = outside.parent
    single = isinstance(inside, exp.Column | exp.Literal | exp.Cast | exp.Boolean | exp.Null)
    sums = isinstance(inside, exp.Add | exp.Sub | exp.Mul | exp.Div | exp.Neg) and isinstance(outside, exp.Predicate)
    joined = isinstance(outside, exp.Or) or (isinstance(outside, exp.And) and not isinstance(inside, exp.Or))
    needless = outside is None or single or sums or joined
    return inside.transform(_without_brackets) if needless else node
