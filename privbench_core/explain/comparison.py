"""Plans, estimates and run times of a workload on two databases side by side.

Every query runs a few times, on both databases in turn; medians are compared. Each measured run follows one on the
same database, so that caches hold its rows and not those of the other one. Each turn measures the first database a
second time: the difference of its two medians is the noise of the machine, below which a discrepancy means nothing.

Figures may be limited, in a YAML file such as ``{same_plan: 0.95, time_ratio: 1.2}``. Shares must reach their limit,
ratios (the larger figure divided by the smaller, 1 where they are equal) must not pass it; run times may differ by
their noise besides. A figure that is missing because nothing was measured misses nothing. Queries count as often as
they are called, where the workload says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privbench_core.errors import SpecError, did_you_mean
from privbench_core.explain.plan import (
    Database,
    Explained,
    as_postgres,
    edit_distance,
    explain_query,
    name_flips,
    prepare,
    server_version,
)
from privbench_core.files import as_path
from privbench_core.schema.tables import Schema
from privbench_core.spec.yaml_io import read_yaml
from privbench_core.workload import Workload
from privbench_core.workload.engine import UnansweredError

SHARES = {
    "answered": ("queries that ran", 1.0),
    "same_plan": ("queries with the same plan", 0.9),
    "same_winner": ("choices with the same winner", 0.95),
}
"""What each share is of, and its default limit. Chosen by hand."""
RATIOS = {
    "cost_ratio": ("estimated costs, median ratio", 1.2),
    "rows_q_error": ("estimated rows, median ratio", 1.5),
    "time_ratio": ("run times, median ratio", 1.2),
}
"""What each ratio is of, and its default limit. Chosen by hand."""
DEFAULTS = {name: limit for name, (_, limit) in (SHARES | RATIOS).items()}


def read_thresholds(
    given: Mapping[str, float] | str | Path | None, defaults: Mapping[str, float] = DEFAULTS
) -> dict[str, float]:
    """Return limits by name, given some of them or their file: those that are left out have their defaults, if any.

    Raises:
        SpecError: The file cannot be read, a name is unknown, or a limit out of range; all problems are named.
    """
    limits: object = given or {}
    where = ""
    if not isinstance(limits, Mapping):
        path = as_path(limits, "thresholds", SpecError)
        where = f"{path.name}: "
        try:
            limits, unread = read_yaml(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            raise SpecError(f"{where}cannot be read; check the path") from None
        if not isinstance(limits, Mapping) or unread:
            raise SpecError([f"{where}{p}" for p in unread] or f"{where}expected lines such as 'same_plan: 0.9'")
    problems, found = [], dict(defaults)
    for name, limit in limits.items():
        if name not in DEFAULTS:
            problems.append(f"{where}{name}: no such threshold; {did_you_mean(name, DEFAULTS)}")
        elif isinstance(limit, int | float) and (limit >= 1 if name in RATIOS else 0 <= limit <= 1):
            found[name] = float(limit)
        else:
            expected = "a share from 0 to 1" if name in SHARES else "a ratio of at least 1"
            problems.append(f"{where}{name}: expected {expected}")
    if problems:
        raise SpecError(problems)
    return found


def missed_thresholds(figures: Mapping[str, float | None], limits: Mapping[str, float] = DEFAULTS) -> dict[str, str]:
    """Return the figures beyond their limits, by name, each in words; "time_noise" is the noise of "time_ratio"."""
    missed = {}
    for name, stated in limits.items():
        figure = figures.get(name)
        limit = stated * (figures.get("time_noise") or 1) if name == "time_ratio" else stated
        if figure is None:
            continue
        if name in SHARES and figure < limit:
            missed[name] = f"{SHARES[name][0]}: {figure:.1%}; at least {limit:.1%} are required"
        elif name in RATIOS and figure > limit:
            missed[name] = f"{RATIOS[name][0]}: {figure:.2f}; at most {limit:.2f} is allowed"
    return missed


def summarize(values: NDArray[np.float64] | Sequence[float], weights: Sequence[int] | None = None) -> dict[str, float]:
    """Return the mean of some values, and their percentiles, by name; ``weights`` are numbers of calls, not all 0."""
    ranks = {"median": 50, "75th": 75, "95th": 95, "max": 100}
    if weights is None or len({*weights}) == 1:
        found = np.percentile(values, [*ranks.values()])
    else:
        found = np.percentile(values, [*ranks.values()], weights=weights, method="inverted_cdf")
    return {"mean": float(np.average(values, weights=weights))} | dict(zip(ranks, found.tolist(), strict=True))


def summary_of(values: Sequence[float], weights: Sequence[int]) -> dict[str, float] | None:
    """Return `summarize`, None if there are no values, or none that are called."""
    return summarize(values, weights) if any(weights) else None


def share_of(held: Sequence[bool], weights: Sequence[int]) -> float | None:
    """Return which share of some calls is of queries for which something held; None if there are no calls."""
    return float(np.average(held, weights=weights)) if any(weights) else None


def ratio(one: float, other: float, least: float = 1e-3) -> float:
    """Return the larger figure divided by the smaller, each at least ``least``: 1 where they are equal.

    >>> ratio(50, 100), ratio(100, 50), ratio(0, 3, least=1)
    (2.0, 2.0, 3.0)
    """
    one, other = max(one, least), max(other, least)
    return max(one / other, other / one)


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
        weights: Number of calls of each query of the workload, relative to the others; empty if all are called
            equally often.
    """

    compared: tuple[ComparedQuery, ...]
    failed: tuple[dict[str, Any], ...]
    queries: int
    settings: RunTimeSettings
    server: str
    weights: Sequence[int] = ()

    @cached_property
    def figures(self) -> dict[str, float | None]:
        """The figures that thresholds limit, None where no query was measured."""
        failed = self._calls([query["query"] for query in self.failed])
        return {
            "answered": share_of([True] * len(self._measured) + [False] * len(failed), [*self._measured, *failed]),
            "same_plan": share_of([not query.flips for query in self.compared], self._measured),
            **{name: None if summary is None else summary["median"] for name, summary in self.ratios.items()},
        }

    @property
    def emptied(self) -> list[int]:
        """Numbers of the queries that find rows on the first database alone: often by values that the second lacks."""
        rows = {query.number: [each.actual_rows for each in query.explained] for query in self.compared}
        return [number for number, (first, second) in rows.items() if first and not second]

    @property
    def rebound(self) -> list[int]:
        """Numbers of the queries that the second database is asked with other literals."""
        return [query.number for query in self.compared if query.texts[0] != query.texts[1]]

    @cached_property
    def ratios(self) -> dict[str, dict[str, float] | None]:
        """Summaries of `ComparedQuery.ratios`."""
        names = ("cost_ratio", "rows_q_error", "time_ratio", "time_noise")
        return {name: self._summary([query.ratios[name] for query in self.compared]) for name in names}

    @cached_property
    def _measured(self) -> list[int]:
        """The calls of `compared`."""
        return self._calls([query.number for query in self.compared])

    def _calls(self, numbers: Sequence[int]) -> list[int]:
        return [self.weights[number - 1] if self.weights else 1 for number in numbers]

    def _summary(self, values: Sequence[float]) -> dict[str, float] | None:
        return summary_of(values, self._measured)

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
            "discrepancy_percent": self._summary([time["discrepancy_percent"] for time in times]),
            "noise_percent": self._summary([time["noise_percent"] for time in times]),
            "buffers_discrepancy_percent": self._summary([percent(*time["buffers"]) for time in times]),
            "same_plan": self.figures["same_plan"],
            "plan_similarity": (self._summary(similar) or {}).get("mean"),
            "ratios": self.ratios,
            "failed": list(self.failed),
            "emptied": self.emptied,
            "rebound": self.rebound,
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
        databases: Connections, see `plan.loaded`; they are made read-only.
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
    version = server_version(databases[0])
    return PlanComparison(tuple(compared), tuple(failed), size, settings, version, workload.weights)


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


def explain_workload(
    database: Database,
    schema: Schema,
    workload: Workload,
    settings: RunTimeSettings,
    *,
    run: bool = True,
    as_written: bool = False,
) -> list[Explained | UnansweredError]:
    """Return the plan of each query of a workload on one database, or why it has none.

    Args:
        database: A connection, which is made read-only.
        schema: Of the database.
        workload: The queries.
        settings: How to measure.
        run: Whether to run them, for their rows, pages and the median of their run times.
        as_written: Whether they run as they are, because the database may have tables that the schema lacks.
    """
    prepare(database, settings.timeout)
    found: list[Explained | UnansweredError] = []
    for statement in workload.statements:
        try:
            sql = statement.sql if as_written else as_postgres(statement.sql, workload.dialect, schema)
            turns = settings.warm_up + settings.repetitions if run else 1
            runs = [explain_query(database, sql, run=run) for _ in range(turns)]
            times = [each.milliseconds or 0.0 for each in runs[settings.warm_up :]]
            found.append(replace(runs[-1], milliseconds=median(times)) if run else runs[-1])
        except UnansweredError as reason:
            found.append(reason)
    return found


def percent(true: float, other: float) -> float:
    """Return a difference in percent of the true figure."""
    return 100 * abs(other - true) / true if true else 0.0 if not other else 100.0
