"""Run times of a workload in PostgreSQL, on the source and on the synthetic database side by side.

Every query is run warm, a few times, on both in turn; medians are compared. In each turn the source is measured a
second time, and its two medians are compared as well: that is the noise of the machine, the floor below which no
discrepancy means anything. One process per query and no just-in-time compilation, because both start when the optimiser
finds a query expensive, and would add jumps that say nothing about the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import psycopg

from privbench_core.evaluate.plans import QueryPlan, edit_distance
from privbench_core.workload.naming import Catalogue, UnansweredError, understand
from privbench_core.workload.statements import Workload

if TYPE_CHECKING:
    from collections.abc import Callable

Database = psycopg.Connection[Any]
"""A connection in autocommit mode whose search path leads to the tables of one of the databases."""

_NAMES_ONLY = ("42",)  # classes of SQLSTATE whose messages quote names of the query, never values of rows


@dataclass(frozen=True)
class RunTimeProtocol:
    """How run times are taken.

    Attributes:
        repetitions: Measurements per query and database; the median counts.
        warm_up: Runs before those, which are not measured.
        timeout: Seconds that a query may run.
        limit: Larger workloads are measured by a sample of this many queries.
        seed: Of that sample.
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
        sql: As it stands there.
        milliseconds: Median run times.
        again: Median run time of the source's second series, in milliseconds.
        plan_distance: Operators to edit to get from one plan to the other; 0 for plans of the same shape.
        operators: Operators of the plans.
        buffers: Pages touched, found in memory or not, of 8 kB each.
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
        """|synthetic - source| / source of the run times, in percent."""
        return _percent(*self.milliseconds)

    @property
    def noise(self) -> float:
        """The same between the two series of the source."""
        return _percent(self.milliseconds[0], self.again)

    @property
    def plan_similarity(self) -> float:
        """1 for plans of the same shape, towards 0 for plans that share nothing."""
        return 1 - self.plan_distance / sum(self.operators)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return asdict(self) | {"discrepancy_percent": self.discrepancy, "noise_percent": self.noise}


@dataclass(frozen=True)
class RunTimeResult:
    """A workload's run times. They are of private rows: internal.

    Attributes:
        times: The queries that were measured, in order.
        failed: (number in the workload from 1, reason) of those that could not be.
        queries: Number of queries of the workload.
        protocol: How it was measured.
        server: Version of PostgreSQL.
    """

    times: tuple[QueryTime, ...]
    failed: tuple[tuple[int, str], ...]
    queries: int
    protocol: RunTimeProtocol
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
        """The same of the source against itself: the floor."""
        return self._summary(lambda time: time.noise)

    @property
    def buffers(self) -> dict[str, float] | None:
        """The same for pages touched instead of time; it has no noise."""
        return self._summary(lambda time: _percent(*time.buffers))

    @property
    def same_plan(self) -> float | None:
        """Share of the queries whose plans have the same shape on both databases."""
        return float(np.mean([time.plan_distance == 0 for time in self.times])) if self.times else None

    @property
    def plan_similarity(self) -> float | None:
        """Mean similarity of the plans, in [0, 1]."""
        return float(np.mean([time.plan_similarity for time in self.times])) if self.times else None

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "server": self.server,
            "protocol": asdict(self.protocol),
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
    protocol: RunTimeProtocol | None = None,
) -> RunTimeResult:
    """Run a workload on two loaded databases of the same server.

    Nothing is changed: sessions are read-only. A query that fails or takes too long is reported, the rest goes on.

    Args:
        source: A connection to the source's tables.
        synthetic: A connection to the synthetic tables.
        workload: The queries.
        catalogue: Column names by table name.
        protocol: How to measure.
    """
    how = protocol or RunTimeProtocol()
    for database in (source, synthetic):
        _prepare(database, how)
    times, failed = [], []
    for position in _sample(len(workload.statements), how):
        sql = workload.statements[position].sql
        try:
            text = understand(sql, workload.dialect, catalogue).tree.sql(dialect="postgres")
            times.append(_measure(position + 1, sql, text, {"source": source, "bundle": synthetic}, how))
        except UnansweredError as reason:
            failed.append((position + 1, str(reason)))
    version = ".".join(str(source.info.server_version // part % 10_000) for part in (10_000, 1))
    return RunTimeResult(tuple(times), tuple(failed), len(workload.statements), how, version)


def _sample(size: int, how: RunTimeProtocol) -> Sequence[int]:
    if size <= how.limit:
        return range(size)
    return sorted(int(i) for i in np.random.default_rng(how.seed).choice(size, how.limit, replace=False))


def _prepare(database: Database, how: RunTimeProtocol) -> None:
    database.execute("SELECT set_config('statement_timeout', %s, false)", [str(round(how.timeout * 1000))])
    database.execute("SET default_transaction_read_only = on")
    database.execute("SET max_parallel_workers_per_gather = 0")
    database.execute("SET jit = off")


def _measure(number: int, sql: str, text: str, databases: Mapping[str, Database], how: RunTimeProtocol) -> QueryTime:
    """Measure in turns that start with another series each time, so that none is always the first or the last."""
    plans = {name: _explain(database, text, name) for name, database in databases.items()}
    for _ in range(how.warm_up - 1):
        for name, database in databases.items():
            _explain(database, text, name)
    series: dict[str, list[float]] = {"source": [], "bundle": [], "again": []}
    names = list(series)
    for turn in range(how.repetitions):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            on = "source" if name == "again" else name
            # The last run's plan is kept: the pages it touches are those of a warm run.
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
    """The query's plan with its run time; UnansweredError if it fails."""
    try:
        # Without TIMING the clock is read once per query and not once per row and operator.
        row = database.execute(f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {text}".encode()).fetchone()
    except psycopg.errors.QueryCanceled:
        raise UnansweredError(f"took longer than it may (on the {where})") from None
    except psycopg.Error as error:
        state = error.sqlstate or ""
        # Errors met while running can quote values, so only their kind is told.
        words = error.diag.message_primary if state.startswith(_NAMES_ONLY) else None
        raise UnansweredError(f"{words or f'failed ({type(error).__name__})'} (on the {where})") from None
    explained: dict[str, Any] = row[0][0] if row else {}
    return explained


def _pages(plan: Mapping[str, Any]) -> int:
    """Pages that a plan touched, those of temporary files included."""
    kinds = ("Shared Hit Blocks", "Shared Read Blocks", "Temp Read Blocks", "Temp Written Blocks")
    return sum(int(plan.get(kind, 0)) for kind in kinds)


def _percent(true: float, other: float) -> float:
    return 100 * abs(other - true) / true if true else 0.0 if not other else 100.0
