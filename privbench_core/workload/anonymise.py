"""Hide the constants of a query by its syntax tree, for owners who publish which queries run, and not their constants.

Those of statements that write are always hidden, see `writes`.

What may stay is listed; a query with anything else is left out. Nothing that replaces a constant depends on it.

==============================  =====================================================================================
part of the query               becomes
==============================  =====================================================================================
constant compared with a        placeholder, which `parameters` binds to values of synthetic rows; a list has three
column, list of constants
other constant                  1, or '1'; a date is 2000-01-01, an interval one day, a time zone UTC
LIMIT, OFFSET                   10, or 1 of a query that stands for a value; 0
length or precision of a type   removed
alias, name of a CTE or window  alias_1, alias_2, ..
comment, hint, statement name   removed
==============================  =====================================================================================

Tables, columns, functions of DuckDB, units of time such as MONTH, NULL, IS TRUE, positions in GROUP BY and ORDER BY,
and JSON paths that synthetic documents of the column have stay. Lists of rows, other JSON paths, and names that the
schema does not have cannot be hidden.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlglot import exp

from privbench_core.workload.engine import PLACEHOLDERS, ResolvedQuery, UnansweredError, is_constant
from privbench_core.workload.parameters import neutral, operands
from privbench_core.workload.values import STEPS, Documents

NOT_HIDDEN = (
    "does not run on the synthetic rows with its constants hidden, or holds some that cannot be hidden "
    "(a JSON path that the bundle does not have, a list of rows)"
)

_CONSTANTS = (exp.Literal, exp.Boolean, exp.Interval, exp.HexString, exp.BitString, exp.ByteString, exp.RawString,
              exp.UnicodeString, exp.National, exp.Heredoc)  # fmt: skip
_UNITS = {"MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR", "DECADE",
          "CENTURY", "EPOCH", "DOW", "DOY", "ISODOW", "DAYOFWEEK", "DAYOFYEAR"}  # fmt: skip
_WORDS = {*_UNITS, *(f"{unit}S" for unit in _UNITS), "LEFT", "RIGHT", "FULL", "INNER", "OUTER", "CROSS", "NATURAL",
          "ROWS", "RANGE", "GROUPS", "UNBOUNDED", "CURRENT ROW", "PRECEDING", "FOLLOWING", "OVER", "FIRST", "NEXT",
          "BOTH", "LEADING", "TRAILING", "BERNOULLI", "SYSTEM", "DEFAULT", "DO NOTHING", "DO UPDATE"}  # fmt: skip
_NEUTRAL = {"1", "10", "0", "2000-01-01", "UTC", "1 DAY", "MONTH"}


def hide_literals(query: ResolvedQuery, functions: Collection[str], documents: Documents) -> None:
    """Replace the constants and aliases of a query in place; see the module for the rule.

    Args:
        query: The query.
        functions: Names of functions that may stay.
        documents: Says which JSON paths may stay.

    Raises:
        UnansweredError: Something in it cannot be hidden. The message quotes nothing.
    """
    tree = query.tree
    for node in [*tree.walk()]:
        node.pop_comments()
        if isinstance(node, exp.Hint | exp.DataTypeParam):
            node.pop()
        elif isinstance(node, PLACEHOLDERS):
            node.replace(_placeholder())
    _hide_compared(tree)
    for node in [*tree.find_all(*_CONSTANTS)]:
        if node.root() is tree and not _stays(node):
            whole = _whole(node)
            whole.replace(neutral(whole))
    _rename(tree, query)
    _refuse_others(tree, query, functions, documents)


def _hide_compared(tree: exp.Expr) -> None:
    """Make placeholders of the constants that are compared, and of lists of them."""
    # What PostgreSQL reads as a JSON path in a function's argument is a lambda to sqlglot.
    values = [each for each in tree.find_all(exp.Values) if each is not tree.args.get("expression")]
    if values or tree.find(exp.Lambda):
        raise UnansweredError(NOT_HIDDEN)
    for found in [*tree.find_all(exp.In)]:
        items = found.expressions
        if items and (isinstance(found.this, exp.Tuple) or not all(map(is_constant, items))):
            raise UnansweredError(NOT_HIDDEN)
        if items:
            # Every list of constants is as long; chosen by hand.
            found.set("expressions", [_placeholder() for _ in range(3)])
    for operand, _ in [*operands(tree)]:
        held = [node for node in operand.find_all(*_CONSTANTS) if not isinstance(node.parent, PLACEHOLDERS)]
        if held and is_constant(operand):
            (operand.this if isinstance(operand, exp.Any) else operand).replace(_placeholder())


def _placeholder() -> exp.Parameter:
    return exp.Parameter(this=exp.Literal.number(1))


def _stays(node: exp.Expr) -> bool:
    parent = node.parent
    if isinstance(node, exp.Boolean):
        return isinstance(parent, exp.Is)
    return isinstance(parent, PLACEHOLDERS) or _is_position(node)


def _is_position(node: exp.Expr) -> bool:
    """Return whether a literal is the number of a column of the result, in GROUP BY or ORDER BY."""
    if not isinstance(node.parent, exp.Group | exp.Ordered) or node.is_string or not node.name.isdecimal():
        return False
    owner = node.find_ancestor(exp.Query)
    return owner is not None and str(int(node.name)) == node.name and int(node.name) <= len(owner.selects)


def _whole(node: exp.Expr) -> exp.Expr:
    """Return the largest constant expression around a literal, such as a sum, a cast or an interval."""
    parent = node.parent
    kinds = (exp.Binary, exp.Neg, exp.Paren, exp.Cast, exp.Interval, exp.Array, exp.National, exp.Collate)
    while isinstance(parent, kinds) and not isinstance(parent, exp.Predicate | exp.Connector) and is_constant(parent):
        node, parent = parent, parent.parent
    return node


def _rename(tree: exp.Expr, query: ResolvedQuery) -> None:
    """Rename everything that is not a table or column of the schema, the same name always in the same way."""
    renamed: dict[str, str] = {}
    for node in tree.find_all(exp.Identifier):
        if node.name not in query.names:
            key = node.name if node.quoted else node.name.lower()
            node.set("this", renamed.setdefault(key, f"alias_{len(renamed) + 1}"))


def _refuse_others(tree: exp.Expr, query: ResolvedQuery, functions: Collection[str], documents: Documents) -> None:
    """Raise UnansweredError if the tree holds any text but names, neutral constants and known words."""
    paths = {id(node.expression) for node in tree.find_all(*STEPS) if documents.has(query, node)}
    for node in tree.walk():
        for value in node.args.values():
            for text in value if isinstance(value, list) else [value]:
                if text is None or isinstance(text, exp.Expr | bool | exp.DType):
                    continue
                match node:
                    case exp.Identifier():
                        known = text in query.names or text.startswith("alias_")
                    case exp.Literal():
                        known = text in _NEUTRAL or _is_position(node)
                    case exp.JSONPathKey() | exp.JSONPathSubscript():
                        known = id(node.parent) in paths
                    case exp.Anonymous():
                        known = str(text).lower() in functions
                    case _:
                        known = str(text).upper() in _WORDS
                if not known:
                    raise UnansweredError(NOT_HIDDEN)
