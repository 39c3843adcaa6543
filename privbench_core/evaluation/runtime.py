"""Run times of a workload in PostgreSQL, on the source and on the synthetic database side by side.

Every query runs a few times, on both databases in turn; medians are compared. Each measured run follows one on the
same database, so that caches hold its rows and not those of the other one. Each turn measures the source a second time:
the difference of its two medians is the noise of the machine, below which a discrepancy means nothing. Parallel workers
and just-in-time compilation are off: they start when the optimiser expects a query to be expensive, and would add jumps
that say nothing about the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import psycopg

from privbench_core.evaluation.query_plans import QueryPlan, edit_distance
from privbench_core.evaluation.verdict import Remark
from privbench_core.workload.resolve import Catalogue, UnansweredError, resolve
from privbench_core.workload.statements import Workload

if TYPE_CHECKING:
    from collections.abc import Callable

Database = psycopg.Connection[Any]
"""An autocommit connection whose search path leads to the tables of one of the databases."""

_NAMES_ONLY = ("42",)  # classes of SQLSTATE whose messages quote names in the query, never values of rows


@dataclass(frozen=True)
class RunTimeSettings:
    """How to measure run times. The defaults are chosen by hand, not tuned.

    Attributes:
        repetitions: Measurements per query and database, of which the median is taken.
        warm_up: Runs right before each measurement.
        timeout: Maximum seconds of a query.
        limit: Of a larger workload, only a sample of this many queries is measured.
        seed: Seed of that sample.
    """

    repetitions: int = 3
    warm_up: int = 1
    timeout: float = 30.0
    limit: int = 200
    seed: int = 0


@dataclass(frozen=True)
class QueryTime:
    """One query's measurements, (source, synthetic) where there are two.

    Attributes:
        number: Position in the workload, from 1.
        sql: As written there.
        milliseconds: Median run times.
        again: Median run time of the second series on the source, in milliseconds.
        plan_distance: Edit distance of the two plans, in operators; 0 for plans of the same shape.
        operators: Operators of the plans.
        buffers: Pages of 8 kB read or written, cached or not.
    """

    number: int
    sql: str
    milliseconds: tuple[float, float]
    again: float
    plan_distance: int
    operators: tuple[int, int]
    buffers: tuple[int, int]

    @property
    def discrepancy(self) -> float:
        """Relative difference of the run times, |synthetic - source| / source, in percent."""
        return _percent(*self.milliseconds)

    @property
    def noise(self) -> float:
        """The same between the two series on the source."""
        return _percent(self.milliseconds[0], self.again)

    @property
    def plan_similarity(self) -> float:
        """1 for plans of the same shape, towards 0 for plans that share nothing."""
        return 1 - self.plan_distance / sum(self.operators)

    def to_dict(self) -> dict[str, Any]:
        """Return it JSON-able."""
        return asdict(self) | {"discrepancy_percent": self.discrepancy, "noise_percent": self.noise}


@dataclass(frozen=True)
class RunTimeResult:
    """A workload's run times, a `Section` of a report. Internal: they are times on private rows.

    Attributes:
        times: The measured queries, in order.
        failed: (number in the workload from 1, reason) of the others.
        queries: Number of queries of the workload.
        settings: How they were measured.
        server: Version of PostgreSQL.
    """

    times: tuple[QueryTime, ...]
    failed: tuple[tuple[int, str], ...]
    queries: int
    settings: RunTimeSettings
    server: str

    @property
    def sampled(self) -> bool:
        """Whether only a sample of the workload was measured."""
        return self.queries > len(self.times) + len(self.failed)

    @property
    def discrepancy(self) -> dict[str, float] | None:
        """Mean, median, 75th percentile and maximum over the queries, in percent; None if none was measured."""
        return self._summary(lambda time: time.discrepancy)

    @property
    def noise(self) -> dict[str, float] | None:
        """The same between two series on the source: the noise of the machine."""
        return self._summary(lambda time: time.noise)

    @property
    def buffers(self) -> dict[str, float] | None:
        """The same for pages instead of time; it has no noise."""
        return self._summary(lambda time: _percent(*time.buffers))

    @property
    def same_plan(self) -> float | None:
        """Share of the queries whose plans have the same shape on both databases."""
        return float(np.mean([time.plan_distance == 0 for time in self.times])) if self.times else None

    @property
    def plan_similarity(self) -> float | None:
        """Mean similarity of the plans, in [0, 1]."""
        return float(np.mean([time.plan_similarity for time in self.times])) if self.times else None

    def remarks(self) -> Iterable[Remark]:
        """Return the remark for the verdict, which only informs; none if no query was measured."""
        if self.discrepancy is not None and self.noise is not None:
            text = (
                f"differs by {self.discrepancy['median']:.1f}% in the median; the source differs from itself by"
                f" {self.noise['median']:.1f}%. {self.same_plan:.0%} of the queries have the same plan."
            )
            yield Remark(None, "Run time", text)

    def to_dict(self) -> dict[str, Any]:
        """Return it JSON-able."""
        return {
            "server": self.server,
            "protocol": asdict(self.settings),
            "queries": self.queries,
            "measured": len(self.times),
            "discrepancy_percent": self.discrepancy,
            "noise_percent": self.noise,
            "buffers_discrepancy_percent": self.buffers,
            "same_plan": self.same_plan,
            "plan_similarity": self.plan_similarity,
            "failed": [{"query": number, "reason": reason} for number, reason in self.failed],
            "times": [time.to_dict() for time in self.times],
        }

    def _summary(self, figure: Callable[[QueryTime], float]) -> dict[str, float] | None:
        if not self.times:
            return None
        values = np.array([figure(time) for time in self.times])
        ranks = {"median": 50, "75th": 75, "max": 100}
        return {"mean": float(values.mean())} | {n: float(np.percentile(values, r)) for n, r in ranks.items()}


def measure_run_times(
    source: Database,
    synthetic: Database,
    workload: Workload,
    catalogue: Catalogue,
    settings: RunTimeSettings | None = None,
) -> RunTimeResult:
    """Run a workload on two loaded databases of the same server.

    Sessions are read-only. A query that fails or takes too long is listed as failed; the others still run.

    Args:
        source: A connection to the source's tables.
        synthetic: A connection to the synthetic tables.
        workload: The queries.
        catalogue: Column names by table name.
        settings: How to measure.
    """
    settings = settings or RunTimeSettings()
    for database in (source, synthetic):
        _prepare(database, settings)
    times, failed = [], []
    for position in _sample(len(workload.statements), settings):
        sql = workload.statements[position].sql
        try:
            text = resolve(sql, workload.dialect, catalogue).tree.sql(dialect="postgres")
            times.append(_measure(position + 1, sql, text, {"source": source, "bundle": synthetic}, settings))
        except UnansweredError as reason:
            failed.append((position + 1, str(reason)))
    version = ".".join(str(source.info.server_version // part % 10_000) for part in (10_000, 1))
    return RunTimeResult(tuple(times), tuple(failed), len(workload.statements), settings, version)


def _sample(size: int, settings: RunTimeSettings) -> Sequence[int]:
    if size <= settings.limit:
        return range(size)
    return sorted(int(i) for i in np.random.default_rng(settings.seed).choice(size, settings.limit, replace=False))


def _prepare(database: Database, settings: RunTimeSettings) -> None:
    database.execute("SELECT set_config('statement_timeout', %s, false)", [str(round(settings.timeout * 1000))])
    database.execute("SET default_transaction_read_only = on")
    database.execute("SET max_parallel_workers_per_gather = 0")
    database.execute("SET jit = off")


def _measure(
    number: int, sql: str, text: str, databases: Mapping[str, Database], settings: RunTimeSettings
) -> QueryTime:
    """Measure in turns, each starting with the next series, so that none is always first or last."""
    plans: dict[str, dict[str, Any]] = {}
    series: dict[str, list[float]] = {"source": [], "bundle": [], "again": []}
    names = list(series)
    for turn in range(settings.repetitions):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            on = "source" if name == "again" else name
            for _ in range(settings.warm_up):
                _explain(databases[on], text, on)
            # Keep the last plan: its page counts are those of a warm run.
            plans[on] = _explain(databases[on], text, on)
            series[name].append(float(plans[on]["Execution Time"]))
    trees = [QueryPlan.of(plans[name]["Plan"]) for name in databases]
    buffers = [_pages(plans[name]["Plan"]) for name in databases]
    return QueryTime(
        number=number,
        sql=sql,
        milliseconds=(median(series["source"]), median(series["bundle"])),
        again=median(series["again"]),
        plan_distance=edit_distance(*trees),
        operators=(trees[0].size, trees[1].size),
        buffers=(buffers[0], buffers[1]),
    )


def _explain(database: Database, text: str, where: str) -> dict[str, Any]:
    """Return the query's plan with its run time; raise UnansweredError if it fails."""
    try:
        # TIMING OFF reads the clock once per query, not once per row and operator.
        row = database.execute(f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {text}".encode()).fetchone()
    except psycopg.errors.QueryCanceled:
        raise UnansweredError(f"took longer than it may (on the {where})") from None
    except psycopg.Error as error:
        state = error.sqlstate or ""
        # Errors at run time can quote values, so only their kind is shown.
        words = error.diag.message_primary if state.startswith(_NAMES_ONLY) else None
        raise UnansweredError(f"{words or f'failed ({type(error).__name__})'} (on the {where})") from None
    explained: dict[str, Any] = row[0][0] if row else {}
    return explained


def _pages(plan: Mapping[str, Any]) -> int:
    """Return the pages that a plan used, including those of temporary files."""
    kinds = ("Shared Hit Blocks", "Shared Read Blocks", "Temp Read Blocks", "Temp Written Blocks")
    return sum(int(plan.get(kind, 0)) for kind in kinds)


def _percent(true: float, other: float) -> float:
    return 100 * abs(other - true) / true if true else 0.0 if not other else 100.0
