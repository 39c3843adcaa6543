"""SQL count queries, answered on the source and on the synthetic database, and their Q-errors.

Queries are read in PostgreSQL's dialect, because that is where the bundle is published, and answered by DuckDB, which
is kept away from files and network: a workload can look at the two databases and at nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import sqlglot
from sqlglot import TokenType, exp

from privbench_core.errors import SourceError
from privbench_core.evaluate.queries import QErrors, q_errors


@dataclass(frozen=True)
class Answer:
    """One query's results.

    Attributes:
        sql: As it stands in the workload.
        true: Count on the source.
        estimated: Count on the synthetic database, divided by its scale.
    """

    sql: str
    true: int
    estimated: float

    @property
    def q_error(self) -> float:
        """max(t/e, e/t), both at least 1."""
        return float(q_errors(np.array([self.true]), np.array([self.estimated])).errors[0])


@dataclass(frozen=True)
class WorkloadFigures:
    """A workload's results.

    Attributes:
        answers: The queries that could be answered, in file order.
        failed: (number in the file from 1, reason) of those that could not.
    """

    answers: tuple[Answer, ...]
    failed: tuple[tuple[int, str], ...]

    @property
    def errors(self) -> QErrors | None:
        """Q-errors of the answered queries, None if there are none."""
        if not self.answers:
            return None
        return q_errors(np.array([a.true for a in self.answers]), np.array([a.estimated for a in self.answers]))

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "answered": len(self.answers),
            "q_error": self.errors.summary() if self.errors else None,
            "failed": [{"query": number, "reason": reason} for number, reason in self.failed],
            "queries": [
                {"sql": a.sql, "source": a.true, "synthetic": a.estimated, "q_error": a.q_error} for a in self.answers
            ],
        }


def read_queries(path: Path) -> list[str]:
    """The statements of a SQL file, without comments before them and semicolons behind them.

    Raises:
        SourceError: The file cannot be read or split into statements.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        tokens = sqlglot.tokenize(text, read="postgres")
    except UnicodeDecodeError:
        raise SourceError(f"{path.name}: not UTF-8 text; save it as UTF-8") from None
    except OSError as error:
        raise SourceError(f"{path.name}: cannot be read ({error.strerror}); check the path") from None
    except sqlglot.errors.SqlglotError:
        raise SourceError(f"{path.name}: not SQL (is a quote or a comment left open?); correct it") from None
    queries: list[str] = []
    start: int | None = None
    for token in tokens:
        if token.token_type is not TokenType.SEMICOLON:
            start = token.start if start is None else start
            end = token.end
        elif start is not None:
            queries.append(text[start : end + 1])
            start = None
    if start is not None:
        queries.append(text[start : end + 1])
    if not queries:
        raise SourceError(f"{path.name}: holds no query; write SELECT COUNT(*) statements, separated by semicolons")
    return queries


def run_workload(
    queries: Sequence[str], source: Mapping[str, pa.Table], synthetic: Mapping[str, pa.Table], scale: float = 1.0
) -> WorkloadFigures:
    """Answer ``queries`` on both databases; those that fail are kept apart, with the reason."""
    left, right = _Database(source), _Database(synthetic)
    answers, failed = [], []
    for number, sql in enumerate(queries, start=1):
        try:
            translated = _select(sql)
            answers.append(Answer(sql, left.count(translated), right.count(translated) / scale))
        except _UnansweredError as reason:
            failed.append((number, str(reason)))
    return WorkloadFigures(tuple(answers), tuple(failed))


class _UnansweredError(Exception):
    """Why a query has no answer."""


def _select(sql: str) -> str:
    """``sql`` in DuckDB's dialect, if it is a query."""
    try:
        parsed = sqlglot.parse_one(sql, read="postgres")
    except sqlglot.errors.SqlglotError:
        raise _UnansweredError("not understood as PostgreSQL") from None
    if not isinstance(parsed, exp.Query):
        raise _UnansweredError("not a SELECT")
    return parsed.sql(dialect="duckdb")


class _Database:
    """Arrow tables under their names, and no way out to files or network."""

    def __init__(self, tables: Mapping[str, pa.Table]) -> None:
        self._connection = duckdb.connect(config={"enable_external_access": False})
        for name, rows in tables.items():
            self._connection.register(name, rows)

    def count(self, sql: str) -> int:
        """The one number that ``sql`` returns."""
        try:
            rows = self._connection.execute(sql).fetchmany(2)
        except (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException) as error:
            raise _UnansweredError(str(error).splitlines()[0]) from None
        except duckdb.Error as error:
            # Errors met while running can quote values, so only their kind is told.
            raise _UnansweredError(f"failed while running ({type(error).__name__})") from None
        if len(rows) != 1 or len(rows[0]) != 1 or isinstance(rows[0][0], bool) or not isinstance(rows[0][0], int):
            raise _UnansweredError("does not return one whole number; write SELECT COUNT(*)")
        return rows[0][0]
