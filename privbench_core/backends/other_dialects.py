"""What other databases say of themselves, in PostgreSQL's words and with names as their tables have them.

To most of them ``users`` and ``[Users]`` are the table ``Users``. To PostgreSQL, and to a spec, they are not: a key to
``users`` would lead nowhere, and rows that belong to units would look like rows of nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from privbench_core.backends.catalogue import FoundColumn, FoundTable
from privbench_core.backends.postgres.readable import readable
from privbench_core.schema.checks import parse_check
from privbench_core.schema.columns import ColumnType
from privbench_core.schema.constraints import Check

if TYPE_CHECKING:
    from sqlglot.expressions import Expr

_DIALECTS = {"mssql": "tsql", "mariadb": "mysql"}  # what sqlglot calls them, where SQLAlchemy has another name
_PASSED_ON = frozenset({"Anonymous", "Glob", "Introducer", "Typeof"})  # functions that it does not know, among others
_FALSE_AND_TRUE = {"0": False, "1": True}


def exact_name(name: str, known: Iterable[str]) -> str:
    """Return the one of the known names that differs in case at most; the name itself if there is none or several.

    >>> exact_name("userid", ["UserId", "id"]), exact_name("a", ["A", "a"]), exact_name("b", ["A", "a"])
    ('UserId', 'a', 'b')
    """
    alike = [other for other in known if other.casefold() == name.casefold()]
    return alike[0] if len(alike) == 1 else name


def with_exact_names(tables: Sequence[FoundTable]) -> tuple[FoundTable, ...]:
    """Return the tables with keys whose names are those of the tables and columns that they mean.

    A key that names no columns of its parent, as in ``REFERENCES users``, means the primary key.
    """
    columns = {table.name: [column.name for column in table.columns] for table in tables}
    primary = {table.name: table.primary_key for table in tables}

    def of(table: FoundTable) -> FoundTable:
        def here(names: Sequence[str]) -> tuple[str, ...]:
            return tuple(exact_name(name, columns[table.name]) for name in names)

        keys = []
        for key in table.foreign_keys:
            parent = exact_name(key.parent, columns)
            named = key.parent_columns or primary.get(parent, ())
            there = tuple(exact_name(name, columns.get(parent, ())) for name in named)
            keys.append(replace(key, columns=here(key.columns), parent=parent, parent_columns=there))
        unique = tuple(here(names) for names in table.unique)
        return replace(table, primary_key=here(table.primary_key), foreign_keys=tuple(keys), unique=unique)

    return tuple(map(of, tables))


def checks_in_postgres(
    found: Sequence[tuple[str, str]], dialect: str, columns: Sequence[FoundColumn]
) -> tuple[tuple[Check, ...], tuple[str, ...]]:
    """Return CHECK constraints, and notes on those that PostgreSQL has no words for: with them no table can be made.

    Args:
        found: Name and condition of each. Several of one name are numbered.
        dialect: Of the conditions, as SQLAlchemy calls it.
        columns: Of the table.
    """
    textual = [column.name for column in columns if column.type is ColumnType.CATEGORY]
    checks: list[Check] = []
    notes: list[str] = []
    names: list[str] = []
    for name, condition in found:
        names.append(name)
        translated = in_postgres(condition, dialect, columns)
        if translated is None or not _in_common_words(translated):
            notes.append(f"the check {name}, which has no words in PostgreSQL")
        else:
            numbered = name if names.count(name) == 1 else f"{name}{names.count(name)}"
            checks.append(Check(numbered, readable(translated, textual)))
    return tuple(checks), tuple(notes)


def _in_common_words(condition: str) -> bool:
    """Return whether a translated condition has no functions or operators that sqlglot passes on as they are."""
    tree = parse_check(condition)
    return tree is not None and not _PASSED_ON.intersection(type(node).__name__ for node in tree.walk())


def in_postgres(expression: str, dialect: str, columns: Sequence[FoundColumn]) -> str | None:
    """Return a default or a condition over one row in PostgreSQL's words, None if sqlglot does not know them.

    Args:
        expression: In the words of ``dialect``.
        dialect: As SQLAlchemy calls it.
        columns: Of the table.
    """
    import sqlglot
    from sqlglot.dialects.dialect import Dialect
    from sqlglot.errors import ErrorLevel, SqlglotError

    booleans = {column.name for column in columns if column.type is ColumnType.BOOLEAN}
    known = [column.name for column in columns]
    language = Dialect.get(_DIALECTS.get(dialect, dialect))
    try:
        tree = sqlglot.parse_one(expression, dialect=language).transform(_without_enums)
        tree = tree.transform(lambda node: _named_exactly(node, known))
        tree = tree.transform(lambda node: _of_booleans(node, booleans))
        return tree.sql(dialect="postgres", unsupported_level=ErrorLevel.RAISE)
    except SqlglotError:
        return None


def _without_enums(node: Expr) -> Expr:
    """Text without a cast to an enum, whose quotes sqlglot forgets; the column's own type says as much."""
    from sqlglot import exp

    is_cast = isinstance(node, exp.Cast) and node.to.this is exp.DataType.Type.USERDEFINED
    return node.this if is_cast and isinstance(node.this, exp.Literal) else node


def _named_exactly(node: Expr, known: Sequence[str]) -> Expr:
    from sqlglot import exp

    if not isinstance(node, exp.Column):
        return node
    name = exact_name(node.name, known)
    return exp.column(exp.to_identifier(name, quoted=node.this.quoted or name != name.lower()))


def _of_booleans(node: Expr, booleans: set[str]) -> Expr:
    """Return a comparison of a boolean with 0 or 1, in databases without booleans, as one with FALSE or TRUE."""
    from sqlglot import exp

    compared = isinstance(node, exp.EQ | exp.NEQ | exp.In) and node.this.unnest()
    if not isinstance(compared, exp.Column) or compared.name not in booleans:
        return node

    def plain(inner: Expr) -> Expr:
        is_number = isinstance(inner, exp.Literal) and not inner.is_string and inner.name in _FALSE_AND_TRUE
        return exp.Boolean(this=_FALSE_AND_TRUE[inner.name]) if is_number else inner

    return node.transform(plain)
