"""Queries as public text: parsing, name resolution, counting on given tables, and rebinding of literals.

Here are workload files: SQL statements, with the cardinalities that benchmark files state.

Statements are in PostgreSQL's dialect unless the first line is ``-- dialect: duckdb``. Besides plain SQL, two formats
are read. The cardinality benchmarks have one query per line, followed by ``||table id||true cardinality``. SAM's files
have conjunctions of comparisons on one table: ``{"query_list": [[columns], [operators], [values]], "card_list":
[...]}``, with columns as positions and values as text.

Comments before a statement say how it is used: ``-- name: top customers``, ``-- weight: 40`` (calls, relative to those
of the others) and ``-- think: 200 ms`` (the pause after it). BEGIN ... COMMIT is one transaction, which has the weight
of its first statement. A CSV export of pg_stat_statements has a query and its number of calls in each line (columns
``query`` and ``calls``).
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np
import sqlglot
from numpy.typing import NDArray
from sqlglot import TokenType

from privbench_core.backends.postgres import quote_identifier, quote_text
from privbench_core.errors import SourceError, did_you_mean
from privbench_core.schema.tables import Table

DIALECTS = ("postgres", "duckdb")
_OPERATORS = ("=", "<", ">", "<=", ">=", "!=")  # of SAM's files
_ANNOTATION = re.compile(r"--[ \t]*(name|weight|think):[ \t]*(.*?)[ \t\r]*$", re.IGNORECASE | re.MULTILINE)
_THINK = re.compile(r"(\d+)\s*(ms|s)", re.IGNORECASE)
_BEGIN = re.compile(r"(BEGIN|START)(\s+(TRANSACTION|WORK))?", re.IGNORECASE)
_COMMIT = re.compile(r"(COMMIT|END|ROLLBACK)(\s+(TRANSACTION|WORK))?", re.IGNORECASE)
_DIALECT = re.compile(r"\s*--\s*dialect:\s*(\w+)", re.IGNORECASE)
_WRITE = re.compile(r"(\s|--.*\n|/\*(.|\n)*?\*/)*(INSERT|UPDATE|DELETE|MERGE)\b", re.IGNORECASE)
_STATED = re.compile(r"(?P<sql>.+?)\s*;?\s*\|\|\d+\|\|(?P<cardinality>\d+)")


@dataclass(frozen=True)
class Statement:
    """One statement of a workload.

    Attributes:
        sql: Its text, without a semicolon.
        stated: The cardinality on the source that the file states, if any.
        name: As in the file, or "".
        weight: Number of calls, relative to those of other statements; of a transaction, that of its first statement.
        think: Pause after the statement, in milliseconds.
        transaction: Number of its transaction in the file, from 1; 0 for a statement by itself.
    """

    sql: str
    stated: int | None = None
    name: str = ""
    weight: int = 1
    think: int = 0
    transaction: int = 0

    @property
    def writes(self) -> bool:
        """Whether it changes rows."""
        return _WRITE.match(self.sql) is not None

    @property
    def annotations(self) -> str:
        """The comments that say how it is used, each on a line of its own."""
        name = f"-- name: {self.name}\n" if self.name else ""
        weight = f"-- weight: {self.weight}\n" if self.weight != 1 else ""
        return name + weight + (f"-- think: {self.think} ms\n" if self.think else "")


@dataclass(frozen=True)
class Workload:
    """Queries, in order.

    Attributes:
        statements: The queries.
        dialect: Their SQL dialect, one of `DIALECTS`.
        internal: Whether they are generated from private rows: then neither they nor anything derived may be published.
        hide_literals: Whether nothing of the constants, names and comments in their text may be published.
    """

    statements: tuple[Statement, ...]
    dialect: str = "postgres"
    internal: bool = False
    hide_literals: bool = False

    @classmethod
    def of(cls, queries: Iterable[str], *, internal: bool = False) -> Workload:
        """Return a workload of queries in PostgreSQL's dialect."""
        return cls(tuple(Statement(sql) for sql in queries), internal=internal)

    def to_sql(self) -> str:
        """Return the workload in the format of `read_workload`."""
        head = "" if self.dialect == "postgres" else f"-- dialect: {self.dialect}\n"
        return head + self.script([statement.annotations for statement in self.statements])

    @property
    def transactions(self) -> tuple[range, ...]:
        """Positions of the statements of each transaction; a statement by itself is a transaction."""
        numbered = ((s.transaction, 0 if s.transaction else i) for i, s in enumerate(self.statements))
        ends = np.cumsum([len(list(group)) for _, group in groupby(numbered)], dtype=int).tolist()
        return tuple(map(range, [0, *ends], ends))

    @property
    def weights(self) -> list[int]:
        """How often each statement is called, relative to the others: as often as its transaction."""
        return [self.statements[group[0]].weight for group in self.transactions for _ in group]

    def script(self, heads: Sequence[str]) -> str:
        """Return SQL with BEGIN and COMMIT around transactions and a comment before each statement.

        What is written is rolled back.
        """
        parts = []
        for group in self.transactions:
            body = [f"{heads[i]}{self.statements[i].sql};\n" for i in group]
            end = "ROLLBACK;\n" if self.writes(group) else "COMMIT;\n"
            parts += ["BEGIN;\n", *body, end] if self.is_block(group) else body
        return "".join(parts)

    def writes(self, group: Iterable[int]) -> bool:
        """Return whether some of the statements at these positions write."""
        return any(self.statements[i].writes for i in group)

    def is_block(self, group: Sequence[int]) -> bool:
        """Return whether a transaction begins and ends by statements of its own: those that write always do."""
        return self.statements[group[0]].transaction > 0 or self.writes(group)

    @property
    def queries(self) -> Workload:
        """The statements that only read."""
        return replace(self, statements=tuple(each for each in self.statements if not each.writes))


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
    if path.suffix.lower() == ".csv":
        return _of_statistics(text, path.name)
    declared = _DIALECT.match(text)
    dialect = declared[1].lower() if declared else "postgres"
    if dialect not in DIALECTS:
        raise SourceError(f"{path.name}: the dialect {dialect} is unknown; {did_you_mean(dialect, DIALECTS)}")
    statements = _with_cardinalities(text)
    if statements is None:
        try:
            statements = tuple(_annotated(text, dialect, path.name))
        except sqlglot.errors.SqlglotError:
            raise SourceError(f"{path.name}: not SQL (is a quote or a comment left open?); correct it") from None
    if not statements:
        raise SourceError(f"{path.name}: holds no query; write SELECT statements, separated by semicolons")
    return Workload(statements, dialect)


def _of_statistics(text: str, file: str) -> Workload:
    """Return the queries of an export of pg_stat_statements, one for each of its rows."""
    reader = csv.DictReader(text.splitlines(keepends=True))
    if missing := {"query", "calls"} - {*(reader.fieldnames or ())}:
        raise SourceError(
            f"{file}: no column {' and '.join(sorted(missing))}; export it with \\copy (SELECT query, calls FROM "
            f"pg_stat_statements) TO '{file}' CSV HEADER"
        )
    statements = []
    for row in reader:
        if not (row["calls"] or "").isdecimal():
            raise SourceError(f"{file}: line {reader.line_num}: calls is not a whole number; export it again")
        statements.append(Statement(row["query"].strip().rstrip(";"), weight=int(row["calls"])))
    if not statements:
        raise SourceError(f"{file}: holds no query; export it again when the application has run")
    return Workload(tuple(statements))


def split_statements(text: str, dialect: str = "postgres") -> list[tuple[str, str]]:
    """Return the statements of a script without semicolons, each with the text before it, which has only comments."""
    queries: list[tuple[str, str]] = []
    start: int | None = None
    before = end = 0
    for token in (*sqlglot.tokenize(text, read=dialect), None):
        if token is not None and token.token_type is not TokenType.SEMICOLON:
            start = token.start if start is None else start
            end = token.end
        elif start is not None:
            queries.append((text[start : end + 1], text[before:start]))
            start, before = None, end + 1
    return queries


def _annotated(text: str, dialect: str, file: str) -> Iterator[Statement]:
    """Yield the statements of a script with what comments say on them, and without BEGIN and COMMIT."""
    number = transaction = 0
    inside, carried = False, ""
    for sql, comments in split_statements(text, dialect):
        if _BEGIN.fullmatch(sql):
            if inside:
                raise SourceError(f"{file}: BEGIN inside a transaction, after query {number}; write COMMIT before it")
            transaction, inside, carried = transaction + 1, True, comments
        elif _COMMIT.fullmatch(sql):
            inside = False
        else:
            number += 1
            said = {key.lower(): value for key, value in _ANNOTATION.findall(f"{carried}\n{comments}")}
            carried, weight, think = "", said.get("weight", "1"), _THINK.fullmatch(said.get("think", "0 ms"))
            if not weight.isdecimal() or think is None:
                wrong = f"weight {weight}" if think else f"think {said['think']}"
                raise SourceError(f"{file}: query {number}: {wrong}; write weight: 40 and think: 200 ms, whole numbers")
            pause = int(think[1]) * (1000 if think[2].lower() == "s" else 1)
            yield Statement(sql, None, said.get("name", ""), int(weight), pause, transaction if inside else 0)
    if inside:
        raise SourceError(f"{file}: BEGIN without COMMIT, before query {number}; close the transaction")


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
        value = quote_text(value)
    operator = "<>" if condition.operator == "!=" else condition.operator
    return f"{quote_identifier(column.name)} {operator} {value}"


def _condition(columns: Sequence[str], column: object, operator: object, value: object) -> Condition:
    if not isinstance(column, int) or column < 0:
        raise ValueError("columns must be positions from 0")
    if operator not in _OPERATORS:
        raise ValueError(f"operators must be among {' '.join(_OPERATORS)}")
    return Condition(columns[column], str(operator), str(value))
