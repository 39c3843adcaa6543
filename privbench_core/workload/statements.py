"""Workload files: SQL statements, with the cardinalities that benchmark files state.

Statements are in PostgreSQL's dialect unless the first line is ``-- dialect: duckdb``. Besides plain SQL, two formats
are read. The cardinality benchmarks have one query per line, followed by ``||table id||true cardinality``. SAM's files
have conjunctions of comparisons on one table: ``{"query_list": [[columns], [operators], [values]], "card_list":
[...]}``, with columns as positions and values as text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import sqlglot
from numpy.typing import NDArray
from sqlglot import TokenType

from privbench_core.backends.postgres.ddl import quote_identifier
from privbench_core.errors import SourceError, did_you_mean
from privbench_core.schema.tables import Table

DIALECTS = ("postgres", "duckdb")
_OPERATORS = ("=", "<", ">", "<=", ">=", "!=")  # of SAM's files
_DIALECT = re.compile(r"\s*--\s*dialect:\s*(\w+)", re.IGNORECASE)
_STATED = re.compile(r"(?P<sql>.+?)\s*;?\s*\|\|\d+\|\|(?P<cardinality>\d+)")


@dataclass(frozen=True)
class Statement:
    """One query of a workload.

    Attributes:
        sql: Its text, without a semicolon.
        stated: The cardinality on the source that the file states, if any.
    """

    sql: str
    stated: int | None = None


@dataclass(frozen=True)
class Workload:
    """Queries, in order.

    Attributes:
        statements: The queries.
        dialect: Their SQL dialect, one of `DIALECTS`.
        internal: Whether they are generated from private rows: then neither they nor anything derived may be published.
    """

    statements: tuple[Statement, ...]
    dialect: str = "postgres"
    internal: bool = False

    @classmethod
    def of(cls, queries: Iterable[str], *, internal: bool = False) -> Workload:
        """Return a workload of queries in PostgreSQL's dialect."""
        return cls(tuple(Statement(sql) for sql in queries), internal=internal)

    def to_sql(self) -> str:
        """Return the workload in the format of `read_workload`."""
        head = "" if self.dialect == "postgres" else f"-- dialect: {self.dialect}\n"
        return head + "".join(f"{statement.sql};\n" for statement in self.statements)


def read_workload(path: Path) -> Workload:
    """Read the queries of a file.

    Raises:
        SourceError: The file cannot be read or split into statements, holds none, or names an unknown dialect.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise SourceError(f"{path.name}: not UTF-8 text; save it as UTF-8") from None
    except OSError as error:
        raise SourceError(f"{path.name}: cannot be read ({error.strerror}); check the path") from None
    declared = _DIALECT.match(text)
    dialect = declared[1].lower() if declared else "postgres"
    if dialect not in DIALECTS:
        raise SourceError(f"{path.name}: the dialect {dialect} is unknown; {did_you_mean(dialect, DIALECTS)}")
    statements = _with_cardinalities(text)
    if statements is None:
        try:
            statements = tuple(Statement(sql) for sql in split_statements(text, dialect))
        except sqlglot.errors.SqlglotError:
            raise SourceError(f"{path.name}: not SQL (is a quote or a comment left open?); correct it") from None
    if not statements:
        raise SourceError(f"{path.name}: holds no query; write SELECT statements, separated by semicolons")
    return Workload(statements, dialect)


def split_statements(text: str, dialect: str = "postgres") -> list[str]:
    """Return the statements of a script, without comments before and semicolons after them."""
    queries: list[str] = []
    start: int | None = None
    end = 0
    for token in sqlglot.tokenize(text, read=dialect):
        if token.token_type is not TokenType.SEMICOLON:
            start = token.start if start is None else start
            end = token.end
        elif start is not None:
            queries.append(text[start : end + 1])
            start = None
    if start is not None:
        queries.append(text[start : end + 1])
    return queries


def _with_cardinalities(text: str) -> tuple[Statement, ...] | None:
    """Return the statements if every line states its cardinality, else None: in SQL, ``||`` concatenates texts."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("--")]
    found = [_STATED.fullmatch(line) for line in lines]
    if not found or None in found:
        return None
    return tuple(Statement(line["sql"], int(line["cardinality"])) for line in found if line)


@dataclass(frozen=True)
class Condition:
    """``column operator value``; the value is text, read in the column's type."""

    column: str
    operator: str
    value: str


Query = tuple[Condition, ...]
"""A conjunction: SELECT COUNT(*) ... WHERE all conditions hold."""


def load_sam_workload(path: Path, columns: Sequence[str]) -> tuple[tuple[Query, ...], NDArray[np.int64]]:
    """Read a SAM workload.

    Returns:
        The queries, and the cardinalities that the file states.

    Raises:
        SourceError: The file is not a workload, or refers to an unknown column or operator.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        queries = tuple(
            tuple(_condition(columns, *parts) for parts in zip(*query, strict=True)) for query in content["query_list"]
        )
        cardinalities = np.array([int(c) for c in content["card_list"]], np.int64)
    except (OSError, UnicodeDecodeError, KeyError, IndexError, TypeError, ValueError) as error:
        raise SourceError(
            f"{path.name}: not a workload for these {len(columns)} columns ({error}); correct the file, or give SQL"
        ) from error
    if len(queries) != len(cardinalities):
        raise SourceError(f"{path.name}: {len(queries)} queries but {len(cardinalities)} cardinalities; give one each")
    return queries, cardinalities


def read_sam_workload(path: Path, table: Table) -> Workload:
    """Read a SAM workload as SQL; its positions are those of the columns in the spec.

    Raises:
        SourceError: As `load_sam_workload`, or a numeric column is compared with something else.
    """
    queries, stated = load_sam_workload(path, [column.name for column in table.columns])
    head = f"SELECT COUNT(*) FROM {quote_identifier(table.name)}"
    statements = []
    for query, cardinality in zip(queries, stated.tolist(), strict=True):
        conditions = " AND ".join(_sql(table, condition, path) for condition in query)
        statements.append(Statement(f"{head} WHERE {conditions}" if conditions else head, cardinality))
    return Workload(tuple(statements))


def _sql(table: Table, condition: Condition, path: Path) -> str:
    column = table.column(condition.column)
    value = condition.value
    if column.logical.numeric:
        try:
            float(value)
        except ValueError:
            raise SourceError(
                f"{path.name}: compares {table.name}.{column.name} with '{value}', not a number; correct the file"
            ) from None
    else:
        escaped = value.replace("'", "''")
        value = f"'{escaped}'"
    operator = "<>" if condition.operator == "!=" else condition.operator
    return f"{quote_identifier(column.name)} {operator} {value}"


def _condition(columns: Sequence[str], column: object, operator: object, value: object) -> Condition:
    if not isinstance(column, int) or column < 0:
        raise ValueError("columns must be positions from 0")
    if operator not in _OPERATORS:
        raise ValueError(f"operators must be among {' '.join(_OPERATORS)}")
    return Condition(columns[column], str(operator), str(value))
