"""A workload's cardinalities on the source and on the synthetic database, and their Q-errors.

A plan that is good for one cardinality is good for a similar one, so Q-errors measure how a query optimiser sees the
data. They are given for the whole workload, by number of joins, and by cardinality in three classes of about equal size
(PrivBench, Table 5).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.evaluation.verdict import Q_ERROR, Remark
from privbench_core.workload.engine import TIMEOUT_SECONDS, Engine, ResolvedQuery, UnansweredError
from privbench_core.workload.statements import Workload

CLASSES = ("low", "medium", "high")
WORSE = 1.02
"""Ratio to the Q-error of shuffled columns above which a Q-error is worse; below, it may be the chance of one shuffle.

Chosen by hand; not tuned."""


def summarize(values: NDArray[np.float64], ranks: Mapping[str, float]) -> dict[str, float]:
    """Return the mean of some values, and their percentiles by name."""
    return {"mean": float(values.mean())} | {name: float(np.percentile(values, r)) for name, r in ranks.items()}


@dataclass(frozen=True)
class QErrors:
    """Q-errors of a workload: how many times too large or too small each estimate is, at least 1.

    >>> print(q_errors(np.array([10, 0, 8]), np.array([5, 0, 8])))
    mean 1.33, median 1.00, 75th 1.50, 95th 1.90, max 2.00
    """

    errors: NDArray[np.float64]

    def percentile(self, rank: float) -> float:
        """Return a percentile of the errors."""
        return float(np.percentile(self.errors, rank))

    def summary(self) -> dict[str, float]:
        """Return mean, median, 75th and 95th percentile, and maximum."""
        return summarize(self.errors, {"median": 50, "75th": 75, "95th": 95, "max": 100})

    def __str__(self) -> str:
        """Return the summary in one line."""
        return ", ".join(f"{name} {value:.2f}" for name, value in self.summary().items())


def q_errors(true: NDArray[np.integer], estimated: NDArray[np.integer] | NDArray[np.floating]) -> QErrors:
    """Return the Q-error max(t/e, e/t) of each query, with both cardinalities at least 1 (0 counts as 1)."""
    t, e = np.maximum(true, 1).astype(np.float64), np.maximum(estimated, 1).astype(np.float64)
    return QErrors(np.maximum(t / e, e / t))


@dataclass(frozen=True)
class Answer:
    """One query's results.

    Attributes:
        sql: As written in the workload.
        true: Cardinality on the source.
        estimated: Cardinality on the synthetic database, divided by its scale.
        number: Position in the workload, from 1.
        joins: Number of joins.
        stated: Cardinality on the source that the workload states, if any.
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
        """Return it JSON-able."""
        counts = {"source": self.true, "synthetic": self.estimated, "q_error": self.q_error}
        return {"query": self.number, "sql": self.sql, "joins": self.joins, **counts}


@dataclass(frozen=True)
class WorkloadResult:
    """A workload's results. Internal: they are counts of private rows.

    Attributes:
        answers: The answered queries, in order.
        failed: (number in the workload from 1, reason) of the others.
        made_from_private_rows: Whether the workload itself is private, because its literals are values of rows.
        shuffled: Q-errors of the source with every column shuffled, by number of joins; empty if not measured.
    """

    answers: tuple[Answer, ...]
    failed: tuple[tuple[int, str], ...] = ()
    made_from_private_rows: bool = False
    shuffled: Mapping[int, QErrors] = field(default_factory=dict)

    @cached_property
    def errors(self) -> QErrors | None:
        """Q-errors of the answered queries, None if there are none."""
        return _errors(self.answers) if self.answers else None

    @property
    def empty(self) -> tuple[int, ...]:
        """Numbers of the queries without result in the source; they say little, because 0 counts as 1."""
        return tuple(answer.number for answer in self.answers if answer.true == 0)

    @property
    def misstated(self) -> tuple[int, ...]:
        """Numbers of the queries whose cardinality is not the stated one: the workload is for other data."""
        return tuple(a.number for a in self.answers if a.stated is not None and a.stated != a.true)

    @cached_property
    def by_joins(self) -> dict[int, QErrors]:
        """Q-errors by number of joins."""
        numbers = sorted({answer.joins for answer in self.answers})
        return {joins: _errors([a for a in self.answers if a.joins == joins]) for joins in numbers}

    @property
    def worse_than_shuffled(self) -> tuple[int, ...]:
        """Numbers of joins whose median Q-error is worse than that of the source with shuffled columns, see `WORSE`."""
        return tuple(
            joins
            for joins, errors in self.by_joins.items()
            if joins in self.shuffled and errors.percentile(50) > WORSE * self.shuffled[joins].percentile(50)
        )

    @cached_property
    def cardinality_classes(self) -> dict[str, tuple[int, int]]:
        """Smallest and largest cardinality on the source, by class; equal cardinalities share a class."""
        counts = {name: [answer.true for answer in members] for name, members in self._classes.items()}
        return {name: (min(found), max(found)) for name, found in counts.items()}

    @cached_property
    def by_cardinality(self) -> dict[str, QErrors]:
        """Q-errors by class of the cardinality on the source, without empty classes."""
        return {name: _errors(members) for name, members in self._classes.items()}

    @cached_property
    def _classes(self) -> dict[str, list[Answer]]:
        if not self.answers:
            return {}
        counts = [answer.true for answer in self.answers]
        limits = np.quantile(counts, np.arange(1, len(CLASSES)) / len(CLASSES), method="inverted_cdf")
        classes: dict[str, list[Answer]] = {name: [] for name in CLASSES}
        for answer, place in zip(self.answers, np.searchsorted(limits, counts, side="left"), strict=True):
            classes[CLASSES[place]].append(answer)
        return {name: members for name, members in classes.items() if members}

    def remarks(self) -> Iterable[Remark]:
        """Return the remark for the verdict; none if no query was answered."""
        if self.errors is None:
            return
        worse = self.worse_than_shuffled
        level = Q_ERROR.level(self.errors.percentile(50), lost=bool(worse))
        generated = ", generated" if self.made_from_private_rows else ""
        text = f"Q-errors of {len(self.answers):,} queries{generated}: {self.errors}."
        if worse:
            text += f" With {' and '.join(map(str, worse))} joins the source with every column shuffled is closer."
        yield Remark(level, "Workload", text)

    def to_dict(self) -> dict[str, Any]:
        """Return it JSON-able."""
        return {
            "answered": len(self.answers),
            "made_from_private_rows": self.made_from_private_rows,
            "q_error": self.errors.summary() if self.errors else None,
            "by_joins": [{"joins": j, "queries": len(e.errors), **e.summary()} for j, e in self.by_joins.items()],
            "shuffled_by_joins": [{"joins": j, **errors.summary()} for j, errors in self.shuffled.items()],
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
    source: Mapping[str, pa.Table] | Engine,
    synthetic: Mapping[str, pa.Table],
    *,
    scale: float = 1.0,
    timeout: float = TIMEOUT_SECONDS,
) -> WorkloadResult:
    """Count every query on both databases; failed ones are listed with the reason.

    Args:
        workload: The queries.
        source: Rows by table, or an engine that holds them and may know answers already.
        synthetic: Rows of the synthetic database, by table.
        scale: Its size relative to the source.
        timeout: Maximum seconds of a query on one database.
    """
    on_source = source if isinstance(source, Engine) else Engine(source, timeout)
    on_synthetic = Engine(synthetic, timeout)
    answers, failed = [], []
    for number, statement in enumerate(workload.statements, start=1):
        try:
            query = on_source.resolve(statement.sql, workload.dialect)
            true = _count(on_source, query, "source")
            estimated = _count(on_synthetic, on_synthetic.resolve(statement.sql, workload.dialect), "bundle") / scale
            answers.append(Answer(statement.sql, true, estimated, number, query.joins, statement.stated))
        except UnansweredError as reason:
            failed.append((number, str(reason)))
    return WorkloadResult(tuple(answers), tuple(failed), workload.internal)


def _count(engine: Engine, query: ResolvedQuery, where: str) -> int:
    try:
        return engine.cardinality(query)
    except UnansweredError as reason:
        raise UnansweredError(f"{reason} (on the {where})") from None


def _errors(answers: Sequence[Answer]) -> QErrors:
    return q_errors(np.array([a.true for a in answers]), np.array([a.estimated for a in answers]))
