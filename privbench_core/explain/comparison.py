"""Plans, estimates and run times of a workload on two databases side by side.

Every query runs a few times, on both databases in turn; medians are compared. Each measured run follows one on the
same database, so that caches hold its rows and not those of the other one. Each turn measures the first database a
second time: the difference of its two medians is the noise of the machine, below which a discrepancy means nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from statistics import median
from typing import Any

import numpy as np

from privbench_core.explain.flips import name_flips
from privbench_core.explain.plan import Explained, edit_distance
from privbench_core.explain.session import Database, as_postgres, explain_query, prepare, server_version
from privbench_core.explain.summaries import ratio, summarize
from privbench_core.schema.tables import Schema
from privbench_core.workload.engine import UnansweredError
from privbench_core.workload.statements import Workload


@dataclass(frozen=True)
class RunTimeSettings:
    """How to measure run times. The defaults are chosen by hand, not tuned."""

    repetitions: int = 3  # measurements per query and database, of which the median is taken
    warm_up: int = 1  # runs right before each measurement
    timeout: float = 30.0  # maximum seconds of a query
    limit: int = 200  # of a larger workload, a sample of this many queries is measured
    seed: int = 0  # of that sample


@dataclass(frozen=True)
class ComparedQuery:
    """One query on two databases, of which the first is the reference.

    Attributes:
        number: Position in the workload, from 1.
        sql: As written there.
        texts: As PostgreSQL ran it on each.
        times: Run times of the first database, the second, and the first's second series, in milliseconds.
        explained: Both plans, of warm runs.
    """

    number: int
    sql: str
    texts: tuple[str, str]
    times: tuple[Sequence[float], Sequence[float], Sequence[float]]
    explained: tuple[Explained, Explained]

    @cached_property
    def milliseconds(self) -> tuple[float, float, float]:
        """The medians of ``times``."""
        first, second, again = map(median, self.times)
        return first, second, again

    @cached_property
    def flips(self) -> tuple[str, ...]:
        """The choices that differ, see `name_flips`."""
        return name_flips(*self.explained)

    @cached_property
    def ratios(self) -> dict[str, float]:
        """Costs, estimated rows, and run times with their noise, as ratios of at least 1."""
        one, other = self.explained
        first, second, again = self.milliseconds
        return {
            "cost_ratio": ratio(one.cost, other.cost),
            "rows_q_error": ratio(one.rows, other.rows, least=1),
            "time_ratio": ratio(first, second),
            "time_noise": ratio(first, again),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the measurements, (first, second database) where there are two."""
        first, second, again = self.milliseconds
        return {
            "number": self.number,
            "sql": self.sql,
            "milliseconds": (first, second),
            "again": again,
            "plan_distance": edit_distance(*(each.plan for each in self.explained)),
            "operators": tuple(each.plan.size for each in self.explained),
            "buffers": tuple(each.pages for each in self.explained),
            "discrepancy_percent": percent(first, second),
            "noise_percent": percent(first, again),
            "cost": tuple(each.cost for each in self.explained),
            "estimated_rows": tuple(each.rows for each in self.explained),
            "rows": tuple(each.actual_rows for each in self.explained),
            **self.ratios,
            "flips": self.flips,
        }


@dataclass(frozen=True)
class PlanComparison:
    """A workload on two databases.

    Attributes:
        compared: The measured queries.
        failed: "query" (number in the workload from 1) and "reason" of the others.
        queries: Number of queries of the workload.
        settings: How they were measured.
        server: Version of PostgreSQL.
    """

    compared: tuple[ComparedQuery, ...]
    failed: tuple[dict[str, Any], ...]
    queries: int
    settings: RunTimeSettings
    server: str

    @cached_property
    def figures(self) -> dict[str, float | None]:
        """The figures that thresholds limit, None where no query was measured."""
        tried = len(self.compared) + len(self.failed)
        same = [not query.flips for query in self.compared]
        return {
            "answered": len(self.compared) / tried if tried else None,
            "same_plan": sum(same) / len(same) if same else None,
            **{name: None if summary is None else summary["median"] for name, summary in self.ratios.items()},
        }

    @property
    def emptied(self) -> list[int]:
        """Numbers of the queries that find rows on the first database alone: often by values that the second lacks."""
        rows = {query.number: [each.actual_rows for each in query.explained] for query in self.compared}
        return [number for number, (first, second) in rows.items() if first and not second]

    @cached_property
    def ratios(self) -> dict[str, dict[str, float] | None]:
        """Summaries of `ComparedQuery.ratios`."""
        names = ("cost_ratio", "rows_q_error", "time_ratio", "time_noise")
        return {name: _summary([query.ratios[name] for query in self.compared]) for name in names}

    def to_dict(self) -> dict[str, Any]:
        """Return all of it, with summaries of the discrepancies of run times, of their noise, and of the pages.

        "plan_similarity" goes from 0 (no operator shared) to 1. Figures are None if no query was measured.
        """
        times = [query.to_dict() for query in self.compared]
        similar = [1 - time["plan_distance"] / sum(time["operators"]) for time in times]
        return {
            "server": self.server,
            "protocol": asdict(self.settings),
            "queries": self.queries,
            "measured": len(times),
            "discrepancy_percent": _summary([time["discrepancy_percent"] for time in times]),
            "noise_percent": _summary([time["noise_percent"] for time in times]),
            "buffers_discrepancy_percent": _summary([percent(*time["buffers"]) for time in times]),
            "same_plan": self.figures["same_plan"],
            "plan_similarity": float(np.mean(similar)) if times else None,
            "ratios": self.ratios,
            "failed": list(self.failed),
            "emptied": self.emptied,
            "times": times,
        }


def compare_plans(
    schema: Schema,
    databases: tuple[Database, Database],
    workload: Workload,
    settings: RunTimeSettings | None = None,
    names: tuple[str, str] = ("the source", "the bundle"),
    second: Workload | None = None,
) -> PlanComparison:
    """Run a workload on two databases, and compare plans, estimates and run times.

    A query that fails or takes too long is listed as failed; the others still run.

    Args:
        schema: Of both databases.
        databases: Connections, see `session.loaded`; they are made read-only.
        workload: The queries.
        settings: How to measure.
        names: What the databases are, for messages.
        second: What the second database is asked instead of each query, with literals of its own; None for the same.
    """
    settings = settings or RunTimeSettings()
    size = len(workload.statements)
    chosen = np.arange(size)
    if size > settings.limit:
        chosen = np.sort(np.random.default_rng(settings.seed).choice(size, settings.limit, replace=False))
    for database in databases:
        prepare(database, settings.timeout)
    compared, failed = [], []
    for position in chosen.tolist():
        sql = workload.statements[position].sql
        try:
            asked, bound = (
                as_postgres(each.statements[position].sql, each.dialect, schema)
                for each in (workload, second or workload)
            )
            texts = dict(zip(names, (asked, bound), strict=True))
            measured = _measure(texts, dict(zip(names, databases, strict=True)), settings)
            compared.append(ComparedQuery(position + 1, sql, (asked, bound), *measured))
        except UnansweredError as reason:
            failed.append({"query": position + 1, "reason": str(reason)})
    return PlanComparison(tuple(compared), tuple(failed), size, settings, server_version(databases[0]))


def _measure(
    texts: dict[str, str], databases: dict[str, Database], settings: RunTimeSettings
) -> tuple[tuple[list[float], list[float], list[float]], tuple[Explained, Explained]]:
    """Return run times in milliseconds of three series (first database, second, first), and both plans of a warm run.

    Measured in turns, each starting with the next series, so that none is always first or last.
    """
    first, second = databases
    series = (first, second, first)
    times: tuple[list[float], list[float], list[float]] = ([], [], [])
    explained: dict[str, Explained] = {}
    for turn in range(settings.repetitions):
        for which in ((turn + i) % len(series) for i in range(len(series))):
            where = series[which]
            for _ in range(settings.warm_up):
                explain_query(databases[where], texts[where], run=True, where=where)
            explained[where] = explain_query(databases[where], texts[where], run=True, where=where)
            times[which].append(explained[where].milliseconds or 0.0)
    return times, (explained[first], explained[second])


def percent(true: float, other: float) -> float:
    """Return a difference in percent of the true figure."""
    return 100 * abs(other - true) / true if true else 0.0 if not other else 100.0


def _summary(values: Sequence[float]) -> dict[str, float] | None:
    return summarize(values) if values else None
