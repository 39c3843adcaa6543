"""A workload's cardinalities on the source and on the synthetic database, and their Q-errors.

PrivBench takes the Q-error for the database's own view of a query: a plan that is good for one cardinality is good for
a similar one. Figures stand for the whole workload, by number of joins, and by cardinality in three classes of about
equal size, as in PrivBench's Table 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from privbench_core.errors import InternalError
from privbench_core.evaluate.queries import QErrors, q_errors
from privbench_core.workload.engine import TIMEOUT_SECONDS, Engine
from privbench_core.workload.naming import UnansweredError, Understood
from privbench_core.workload.statements import Workload

CLASSES = ("low", "medium", "high")


@dataclass(frozen=True)
class Answer:
    """One query's results.

    Attributes:
        sql: As it stands in the workload.
        true: Cardinality on the source.
        estimated: Cardinality on the synthetic database, divided by its scale.
        number: Position in the workload, from 1.
        joins: Number of joins.
        stated: What the workload says that the cardinality on the source is, if it says so.
    """

    sql: str
    true: int
    estimated: float
    number: int = 0
    joins: int = 0
    stated: int | None = None

    @property
    def q_error(self) -> float:
        """max(t/e, e/t), both at least 1."""
        return float(q_errors(np.array([self.true]), np.array([self.estimated])).errors[0])

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        counts = {"source": self.true, "synthetic": self.estimated, "q_error": self.q_error}
        return {"query": self.number, "sql": self.sql, "joins": self.joins, **counts}


@dataclass(frozen=True)
class WorkloadResult:
    """A workload's results. They are of private rows: internal.

    Attributes:
        answers: The queries that could be answered, in order.
        failed: (number in the workload from 1, reason) of those that could not.
        made_from_private_rows: Whether the workload itself, literals and all, is private.
    """

    answers: tuple[Answer, ...]
    failed: tuple[tuple[int, str], ...] = field(default=())
    made_from_private_rows: bool = False

    @cached_property
    def errors(self) -> QErrors | None:
        """Q-errors of the answered queries, None if there are none."""
        return _errors(self.answers) if self.answers else None

    @property
    def empty(self) -> tuple[int, ...]:
        """Numbers of the queries that find nothing in the source: they say little, for 0 is taken as 1."""
        return tuple(answer.number for answer in self.answers if answer.true == 0)

    @property
    def misstated(self) -> tuple[int, ...]:
        """Numbers of the queries whose cardinality is not what the workload states: made for other data."""
        return tuple(a.number for a in self.answers if a.stated is not None and a.stated != a.true)

    @cached_property
    def by_joins(self) -> dict[int, QErrors]:
        """Q-errors by number of joins."""
        numbers = sorted({answer.joins for answer in self.answers})
        return {joins: _errors([a for a in self.answers if a.joins == joins]) for joins in numbers}

    @cached_property
    def cardinality_classes(self) -> dict[str, tuple[int, int]]:
        """Smallest and largest cardinality on the source by class; equal cardinalities share a class."""
        found = {}
        for name, members in self._classes.items():
            counts = [answer.true for answer in members]
            found[name] = (min(counts), max(counts))
        return found

    @cached_property
    def by_cardinality(self) -> dict[str, QErrors]:
        """Q-errors by class of the cardinality on the source; a class that is empty is left out."""
        return {name: _errors(members) for name, members in self._classes.items()}

    @cached_property
    def _classes(self) -> dict[str, list[Answer]]:
        if not self.answers:
            return {}
        counts = [answer.true for answer in self.answers]
        limits = np.quantile(counts, np.arange(1, len(CLASSES)) / len(CLASSES), method="inverted_cdf")
        of_answer = np.searchsorted(limits, counts, side="left")
        classes = {name: [a for a, c in zip(self.answers, of_answer, strict=True) if c == i]
                   for i, name in enumerate(CLASSES)}  # fmt: skip
        return {name: members for name, members in classes.items() if members}

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "answered": len(self.answers),
            "made_from_private_rows": self.made_from_private_rows,
            "q_error": self.errors.summary() if self.errors else None,
            "by_joins": [{"joins": j, "queries": len(e.errors), **e.summary()} for j, e in self.by_joins.items()],
            "by_cardinality": [
                {"class": name, "from": low, "to": high, "queries": len(errors.errors), **errors.summary()}
                for (name, errors), (low, high) in zip(
                    self.by_cardinality.items(), self.cardinality_classes.values(), strict=True
                )
            ],
            "empty_on_source": list(self.empty),
            "misstated": list(self.misstated),
            "failed": [{"query": number, "reason": reason} for number, reason in self.failed],
            "queries": [answer.to_dict() for answer in self.answers],
        }


def run_workload(
    workload: Workload,
    source: Mapping[str, pa.Table],
    synthetic: Mapping[str, pa.Table],
    *,
    scale: float = 1.0,
    rebound: Workload | None = None,
    timeout: float = TIMEOUT_SECONDS,
) -> WorkloadResult:
    """Count every query on both databases; those that fail are kept apart, with the reason.

    Args:
        workload: The queries.
        source: Rows by table.
        synthetic: Rows of the synthetic database.
        scale: Its size relative to the source.
        rebound: What to ask the synthetic database instead, query by query; by default the same.
        timeout: Seconds that a query may take on one database.
    """
    theirs = rebound or workload
    if len(theirs.statements) != len(workload.statements):
        raise InternalError("the workload for the synthetic database must have as many queries as that for the source")
    left, right = Engine(source, timeout), Engine(synthetic, timeout)
    answers, failed = [], []
    for number, (statement, other) in enumerate(zip(workload.statements, theirs.statements, strict=True), start=1):
        try:
            query = left.understand(statement.sql, workload.dialect)
            true = _count(left, query, "source")
            estimated = _count(right, right.understand(other.sql, theirs.dialect), "bundle") / scale
            answers.append(Answer(statement.sql, true, estimated, number, query.joins, statement.stated))
        except UnansweredError as reason:
            failed.append((number, str(reason)))
    return WorkloadResult(tuple(answers), tuple(failed), workload.internal)


def _count(engine: Engine, query: Understood, where: str) -> int:
    try:
        return engine.cardinality(query)
    except UnansweredError as reason:
        raise UnansweredError(f"{reason} (on the {where})") from None


def _errors(answers: Sequence[Answer]) -> QErrors:
    return q_errors(np.array([a.true for a in answers]), np.array([a.estimated for a in answers]))
