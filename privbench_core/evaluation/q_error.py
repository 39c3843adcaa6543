"""A workload's cardinalities on the source and on the synthetic database, and their Q-errors.

A plan that is good for one cardinality is good for a similar one, so Q-errors measure how a query optimiser sees the
data. They are given for the whole workload, by number of joins, and by cardinality in three classes of about equal size
(PrivBench, Table 5).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.evaluation.marginals import Figures
from privbench_core.explain.comparison import summarize
from privbench_core.publishing.verdicts import Grade, Verdict
from privbench_core.workload.engine import TIMEOUT_SECONDS, Engine, ResolvedQuery, UnansweredError
from privbench_core.workload.statements import Workload

CLASSES = ("low", "medium", "high")


def q_errors(true: NDArray[np.integer], estimated: NDArray[np.integer] | NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the Q-error max(t/e, e/t) of each query, with both cardinalities at least 1 (0 counts as 1)."""
    t, e = np.maximum(true, 1).astype(np.float64), np.maximum(estimated, 1).astype(np.float64)
    return np.asarray(np.maximum(t / e, e / t))


def grade_of_q_error(median: float, *, lost: bool = False) -> Grade:
    """Return the grade of a median Q-error; ``lost`` says that shuffled columns answer better, which is never close."""
    close, rough = 2.0, 5.0  # the largest that are; chosen by hand; docs/evaluation.md
    if median <= close and not lost:
        return Grade.CLOSE
    return Grade.ROUGH if median <= rough else Grade.FAR


@dataclass(frozen=True)
class WorkloadResult:
    """A workload's results. Internal: they are counts of private rows.

    Attributes:
        answers: Of each answered query, as in metrics.json: its number in the workload from 1 ("query"), "sql",
            "joins", its cardinalities on "source" and "synthetic" (divided by the scale), and "q_error".
        failed: "query" and "reason" of the others.
        misstated: Numbers of the queries whose cardinality is not the stated one: the workload is for other data.
        made_from_private_rows: Whether the workload itself is private, because its literals are values of rows.
        shuffled: `by_joins` of the source with every column shuffled; empty if not measured.
    """

    answers: tuple[Figures, ...]
    failed: tuple[Figures, ...] = ()
    misstated: tuple[int, ...] = ()
    made_from_private_rows: bool = False
    shuffled: tuple[Figures, ...] = ()

    @cached_property
    def errors(self) -> NDArray[np.float64]:
        """Q-errors of the answered queries, shape (answers,)."""
        return np.array([answer["q_error"] for answer in self.answers])

    @property
    def summary(self) -> dict[str, float] | None:
        """Mean, median, 75th and 95th percentile, and maximum of the Q-errors; None if no query was answered."""
        return summarize(self.errors) if self.answers else None

    @property
    def empty(self) -> tuple[int, ...]:
        """Numbers of the queries without result in the source; they say little, because 0 counts as 1."""
        return tuple(answer["query"] for answer in self.answers if answer["source"] == 0)

    @cached_property
    def by_joins(self) -> tuple[Figures, ...]:
        """Q-errors by number of "joins"."""
        joins = np.array([answer["joins"] for answer in self.answers])
        return tuple({"joins": int(n), **self._summary_where(joins == n)} for n in np.unique(joins))

    @cached_property
    def by_cardinality(self) -> tuple[Figures, ...]:
        """Q-errors by "class" of the cardinality on the source and its limits; equal cardinalities share a class."""
        counts = np.array([answer["source"] for answer in self.answers])
        if not counts.size:
            return ()
        limits = np.quantile(counts, np.arange(1, len(CLASSES)) / len(CLASSES), method="inverted_cdf")
        class_of = np.searchsorted(limits, counts, side="left")
        found = []
        for n in np.unique(class_of):
            inside = counts[class_of == n]
            ends = {"class": CLASSES[n], "from": int(inside.min()), "to": int(inside.max())}
            found.append(ends | self._summary_where(class_of == n))
        return tuple(found)

    def _summary_where(self, chosen: NDArray[np.bool_]) -> Figures:
        return {"queries": int(chosen.sum()), **summarize(self.errors[chosen])}

    @property
    def worse_than_shuffled(self) -> tuple[int, ...]:
        """Numbers of joins whose median Q-error is worse than that of the source with shuffled columns.

        A factor of up to 1.02 may be the chance of one shuffle (chosen by hand).
        """
        medians = {each["joins"]: each["median"] for each in self.shuffled}
        return tuple(
            each["joins"] for each in self.by_joins if each["median"] > 1.02 * medians.get(each["joins"], np.inf)
        )

    def verdicts(self) -> Iterator[Verdict]:
        """Yield the verdict on the workload; none if no query was answered."""
        if self.summary is None:
            return
        worse = self.worse_than_shuffled
        generated = ", generated" if self.made_from_private_rows else ""
        text = f"Q-errors of {len(self.answers):,} queries{generated}: {in_words(self.summary)}"
        if worse:
            text += f". With {', '.join(map(str, worse))} joins, the source with its columns shuffled answers better"
        yield Verdict("Workload", grade_of_q_error(self.summary["median"], lost=bool(worse)), text)

    def to_dict(self) -> Figures:
        """Return it JSON-able."""
        return {
            "answered": len(self.answers),
            "made_from_private_rows": self.made_from_private_rows,
            "q_error": self.summary,
            "by_joins": self.by_joins,
            "shuffled_by_joins": [{k: v for k, v in each.items() if k != "queries"} for each in self.shuffled],
            "by_cardinality": self.by_cardinality,
            "empty_on_source": self.empty,
            "misstated": self.misstated,
            "failed": self.failed,
            "queries": self.answers,
        }


def in_words(summary: Mapping[str, float]) -> str:
    """Return a summary in one line."""
    return ", ".join(f"{name} {value:.2f}" for name, value in summary.items())


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
    answers, failed, misstated = [], [], []
    for number, statement in enumerate(workload.statements, start=1):
        try:
            query = on_source.resolve(statement.sql, workload.dialect)
            true, made = _count(on_source, query, "source"), _count(on_synthetic, query, "bundle") / scale
        except UnansweredError as reason:
            failed.append({"query": number, "reason": str(reason)})
            continue
        counts = {"source": true, "synthetic": made, "q_error": float(q_errors(np.array(true), np.array(made)))}
        answers.append({"query": number, "sql": statement.sql, "joins": query.joins, **counts})
        if statement.stated not in {None, true}:
            misstated.append(number)
    return WorkloadResult(tuple(answers), tuple(failed), tuple(misstated), workload.internal)


def _count(engine: Engine, query: ResolvedQuery, where: str) -> int:
    try:
        return engine.cardinality(query)
    except UnansweredError as reason:
        raise UnansweredError(f"{reason} (on the {where})") from None
