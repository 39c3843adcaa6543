"""CHECK constraints: what of them we understand, and what of an expression may be trusted to stay inside its brackets.

Expressions are SQL in PostgreSQL's dialect, read with sqlglot. One that it cannot read, or that asks for more than
sampling evaluates, is no mistake: it is kept in the DDL, where the database enforces it, and reported as not enforced
while sampling.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from privbench_core.schema.tables import Schema

if TYPE_CHECKING:
    from sqlglot.expressions import Expr

_DIALECT = "postgres"
# Strings, quoted names and whatever could end a statement or hide the rest of it.
_LEXEME = re.compile(
    r"""[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|[()]|;|--|/\*|\$\w*\$|['"\\\0]""", re.DOTALL
)
# What a check may consist of to be enforced while sampling: comparisons, arithmetic, logic, NULL tests, lists, ranges,
# and functions that mean the same in PostgreSQL and DuckDB. The time is that at which rows are drawn.
# fmt: off
_ENFORCEABLE = frozenset(
    {
        "Column", "Identifier", "Literal", "Boolean", "Null", "Paren", "And", "Or", "Not", "EQ", "NEQ", "GT", "GTE",
        "LT", "LTE", "NullSafeEQ", "NullSafeNEQ", "Is", "In", "Between", "Add", "Sub", "Mul", "Div", "Mod", "Neg",
        "Cast", "DataType", "DataTypeParam", "Array", "Any", "Tuple", "Interval", "Var", "Case", "If", "Coalesce",
        "Nullif", "Abs", "Length", "Lower", "Upper", "Trim", "Like", "ILike", "Concat", "DPipe", "Greatest", "Least",
        "Round", "Floor", "Ceil", "RegexpLike", "Left", "Right", "Substring", "StrPosition", "Replace", "StartsWith",
        "Extract", "CurrentDate", "CurrentTimestamp", "Localtimestamp",
    }
)
# fmt: on


def is_contained(expression: str) -> bool:
    """Return whether an expression ends where its text ends, so that ``(expression)`` is one term and nothing more.

    >>> is_contained("a <= b"), is_contained("true); DROP TABLE person; --"), is_contained("a IN ('x; y')")
    (True, False, True)
    """
    depth = 0
    for lexeme in _LEXEME.finditer(expression):
        match lexeme[0]:
            case "(":
                depth += 1
            case ")":
                depth -= 1
            case text if len(text) == 1 or text[0] not in "\"'eE":
                return False
        if depth < 0:
            return False
    return depth == 0 and bool(expression.strip())


@lru_cache(maxsize=4096)
def parse_check(expression: str) -> Expr | None:
    """Return the expression as a tree, None if it is no single condition that sqlglot understands.

    The tree is shared between callers: copy it before changing it.
    """
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    if not is_contained(expression):
        return None
    try:
        tree = sqlglot.parse_one(expression, dialect=_DIALECT)
    except (SqlglotError, RecursionError):
        return None
    odd = (exp.Alias, exp.Query, exp.Command, exp.Star, exp.Placeholder, exp.Parameter, exp.AggFunc, exp.Window)
    understood = isinstance(tree, exp.Condition) and not any(isinstance(node, odd) for node in tree.walk())
    return tree if understood else None


def columns_of(expression: Expr) -> frozenset[str]:
    """Return the columns that a tree of `parse_check` refers to; as in SQL, unquoted names are in lower case.

    >>> tree = parse_check('"Low" <= HIGH')
    >>> sorted(columns_of(tree)) if tree else None
    ['Low', 'high']
    """
    from sqlglot import exp

    return frozenset(
        column.name if column.this.quoted else column.name.lower() for column in expression.find_all(exp.Column)
    )


def enforceable_check(expression: str) -> Expr | None:
    """Return the tree of a check that sampling can evaluate, None of any other.

    >>> [enforceable_check(text) is not None for text in ("born <= now() - '18 years'::interval", "is_iban(a)")]
    [True, False]
    """
    tree = parse_check(expression)
    return None if tree is None or {type(node).__name__ for node in tree.walk()} - _ENFORCEABLE else tree


def unenforced_checks(schema: Schema) -> tuple[str, ...]:
    """Names, as ``table.check``, of the checks that are kept in the DDL but not enforced while sampling."""
    return tuple(
        f"{table.name}.{check.name}"
        for table in schema.tables
        for check in table.checks
        if enforceable_check(check.expression) is None
    )
