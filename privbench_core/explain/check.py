"""Check a database that holds a bundle: its row counts, and the plan and run time of each query of a workload.

The reference is a baseline: an earlier check, in a file, or the bundle itself in an embedded PostgreSQL. Shares and
the median ratio of run times are limited over all queries, each as often as it is called; costs and estimated rows for
each query. What got faster or cheaper passes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import cached_property
from math import isclose
from pathlib import Path
from typing import Any

import psycopg

from privbench_core.backends.postgres import qualified, quote_text
from privbench_core.errors import PublishError, SpecError
from privbench_core.explain import queries_of
from privbench_core.explain.comparison import (
    DEFAULTS,
    RunTimeSettings,
    explain_workload,
    missed_thresholds,
    ratio,
    read_thresholds,
    share_of,
    summary_of,
)
from privbench_core.explain.plan import (
    Database,
    Explained,
    Join,
    QueryPlan,
    Scan,
    connected,
    loaded,
    name_flips,
    server,
    server_version,
)
from privbench_core.files import as_path
from privbench_core.publishing import MANIFEST, Bundle, read_bundle
from privbench_core.spec.location import parse_url
from privbench_core.workload import Workload

LIMITS = {
    name: limit for name, limit in DEFAULTS.items() if name in {"answered", "same_plan", "cost_ratio", "rows_q_error"}
}
"""Thresholds where none are given; "time_ratio" has none, because run times of other machines or hours differ."""


@dataclass(frozen=True)
class TableSize:
    """A table of the bundle, in the database.

    Attributes:
        name: Of the table.
        rows: Its rows in the bundle.
        found: Its rows in the database; None if there is no such table.
        statistics_only: Whether the database has only statistics of these rows (``publish --statistics-only``).
        never_vacuumed: Whether no page is known to be visible to all, so that index-only scans seem expensive.
    """

    name: str
    rows: int
    found: int | None
    statistics_only: bool
    never_vacuumed: bool


@dataclass(frozen=True)
class Baseline:
    """What queries did on a database before.

    Attributes:
        queries: Plans by name of the query.
        server: Version of PostgreSQL.
        bundle: SHA-256 of the manifest of the bundle that was checked.
    """

    queries: Mapping[str, Explained]
    server: str
    bundle: str

    def to_json(self) -> str:
        """Return the text of a baseline file."""
        queries = {name: asdict(explained) for name, explained in self.queries.items()}
        stored = {"server": self.server, "bundle": self.bundle, "queries": queries}
        return json.dumps(stored, indent=1, ensure_ascii=False) + "\n"


@dataclass(frozen=True)
class CheckedQuery:
    """A query on the database and in the baseline.

    Attributes:
        name: As in the workload, or its number.
        sql: Its text.
        now: Its plan, with the median of its run times; None if it failed.
        failed: Why it failed, or "".
        before: Its plan in the baseline, if that has one.
        weight: Its number of calls, relative to those of others.
    """

    name: str
    sql: str
    now: Explained | None
    failed: str
    before: Explained | None
    weight: int = 1

    @cached_property
    def flips(self) -> tuple[str, ...]:
        """The choices in which its plan differs from the baseline's."""
        return name_flips(self.before, self.now) if self.before and self.now else ()

    @property
    def cost_before(self) -> float:
        """The cost in the baseline, of which a multiple is allowed."""
        # Costs below those of a few pages differ by chance; chosen by hand.
        return max(self.before.cost, 20.0) if self.before else 0.0

    def problems(self, limits: Mapping[str, float], missed: Mapping[str, str]) -> list[str]:
        """Return what is wrong with it, in words, given the limits and the figures over all queries that miss them."""
        before, now = self.before, self.now
        if now is None:
            return [self.failed] if "answered" in missed else []
        if before is None:
            return []
        found = [*self.flips] if "same_plan" in missed else []
        if now.cost > self.cost_before * limits["cost_ratio"]:
            found.append(f"cost {now.cost:.2f} > {self.cost_before:.2f} * {limits['cost_ratio']:.0%}")
        if ratio(before.rows, now.rows, least=1) > limits["rows_q_error"]:
            found.append(f"estimates {now.rows:,.0f} rows instead of {before.rows:,.0f}")
        both_ran = now.actual_rows is not None and before.actual_rows is not None
        if both_ran and not self.flips and now.actual_rows != before.actual_rows:
            found.append(f"reads {now.actual_rows:,.0f} rows instead of {before.actual_rows:,.0f}")
        return found


@dataclass(frozen=True)
class CheckResult:
    """A database, checked.

    Attributes:
        bundle: The bundle that it should hold.
        server: Version of PostgreSQL.
        tables: The tables of the bundle.
        queries: The queries of the workload.
        baseline: What they are compared with; None if nothing.
        limits: Thresholds by name.
    """

    bundle: Bundle
    server: str
    tables: tuple[TableSize, ...]
    queries: tuple[CheckedQuery, ...]
    baseline: Baseline | None
    limits: Mapping[str, float]

    def __repr__(self) -> str:
        """Return the bundle, the number of queries and the verdict in one line."""
        verdict = "passed" if self.passed else "not passed"
        return f"<Check of {self.bundle.path.name} in PostgreSQL {self.server}: {len(self.queries)} queries, {verdict}>"

    @cached_property
    def wrong_tables(self) -> list[str]:
        """The tables that are not those of the bundle, in words."""
        return [
            f"{t.name}: {'there is no such table' if t.found is None else f'{t.found:,} rows instead of {t.rows:,}'}"
            for t in self.tables
            if t.found != t.rows and not t.statistics_only
        ]

    @cached_property
    def figures(self) -> dict[str, float | None]:
        """The figures over all calls that thresholds limit; None where nothing was measured."""
        both = [query for query in self.queries if query.before and query.now]
        times = [
            (max(now, 1.0) / max(before, 1.0), query.weight)  # run times below 1 ms differ by noise alone
            for query in self.queries
            if query.before and query.now
            for before, now in [(query.before.milliseconds, query.now.milliseconds)]
            if before is not None and now is not None
        ]
        summary = summary_of([time for time, _ in times], [weight for _, weight in times])
        answered = [query.now is not None for query in self.queries]
        return {
            "answered": share_of(answered, [query.weight for query in self.queries]),
            "same_plan": share_of([not query.flips for query in both], [query.weight for query in both]),
            "time_ratio": summary["median"] if summary else None,
        }

    @cached_property
    def missed(self) -> dict[str, str]:
        """The thresholds over all queries that are missed, in words."""
        return missed_thresholds(self.figures, self.limits)

    @cached_property
    def problems(self) -> dict[str, list[str]]:
        """What is wrong with each query, by its name; empty for those that pass."""
        return {query.name: query.problems(self.limits, self.missed) for query in self.queries}

    @property
    def passed(self) -> bool:
        """Whether the database holds the bundle, and every threshold is kept."""
        return not (self.wrong_tables or self.missed or any(self.problems.values()))

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON can hold it."""
        return {
            "database": self.bundle.manifest["database"],
            "server": self.server,
            "passed": self.passed,
            "tables": [asdict(table) for table in self.tables],
            "figures": self.figures,
            "thresholds": dict(self.limits),
            "missed": self.missed,
            "queries": [
                {
                    "name": query.name,
                    "sql": query.sql,
                    "weight": query.weight,
                    "problems": self.problems[query.name],
                    "failed": query.failed or None,
                    "flips": list(query.flips),
                    "now": asdict(query.now) if query.now else None,
                    "before": asdict(query.before) if query.before else None,
                }
                for query in self.queries
            ],
        }

    def as_baseline(self) -> Baseline:
        """Return what the queries did now, as the baseline of later checks."""
        ran = {query.name: query.now for query in self.queries if query.now}
        return Baseline(ran, self.server, _digest(self.bundle))


def check(
    bundle: str | Path,
    url: str,
    *,
    workload: str | Path | None = None,
    baseline: str | Path | bool = True,
    thresholds: Mapping[str, float] | str | Path | None = None,
) -> CheckResult:
    """Check a PostgreSQL database that holds a bundle, and a workload on it. The database is only read.

    Args:
        bundle: Folder of the bundle.
        url: ``postgresql://…`` (``?schema=name`` chooses a schema). It may have further tables and indexes.
        workload: File of SQL queries, which run as they are; None takes the bundle's own.
        baseline: File of an earlier check to compare with (`CheckResult.as_baseline`); True loads the bundle into an
            embedded PostgreSQL for that, False compares with nothing.
        thresholds: Limits by name, or their YAML file; the rest are `explain.check.LIMITS`.

    Returns:
        What was found; ``passed`` says whether the database holds the bundle and no threshold is missed.

    Raises:
        PublishError: The bundle or the baseline is damaged, there are no queries, or a server cannot be reached.
        SourceError: The workload cannot be read, or the URL is none.
        SpecError: The thresholds are wrong.
    """
    file = None if workload is None else as_path(workload, "workload", SpecError)
    earlier = None if isinstance(baseline, bool) else as_path(baseline, "baseline", PublishError)
    limits, opened = read_thresholds(thresholds, LIMITS), read_bundle(bundle)
    schema, queries = opened.schema, queries_of(opened, file)
    place = parse_url(url, "URL")
    if place.get_backend_name() != "postgresql":
        raise PublishError("URL: not PostgreSQL, whose plans are checked; give postgresql://user@host/database")
    before, names = read_baseline(earlier) if earlier else None, _names(queries)
    written = queries.dialect == "postgres"
    with connected(place) as database:
        tables = tuple(_count(database, opened))
        run = not any(table.statistics_only for table in tables)
        now = explain_workload(database, schema, queries, RunTimeSettings(), run=run, as_written=written)
        version = server_version(database)
    if baseline is True:
        with ExitStack() as stack:
            there = stack.enter_context(loaded(opened.path, schema, stack.enter_context(server())))
            found = explain_workload(there, schema, queries, RunTimeSettings(), run=run, as_written=written)
            ran = {name: each for name, each in zip(names, found, strict=True) if isinstance(each, Explained)}
            before = Baseline(ran, server_version(there), _digest(opened))
    old, compared = before.queries if before else {}, []
    for name, statement, each, weight in zip(names, queries.statements, now, queries.weights, strict=True):
        answered, failed = (each, "") if isinstance(each, Explained) else (None, str(each))
        compared.append(CheckedQuery(name, statement.sql, answered, failed, old.get(name), weight))
    return CheckResult(opened, version, tables, tuple(compared), before, limits)


def read_baseline(path: Path) -> Baseline:
    """Read the file of an earlier check; PublishError if it is none."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        queries = {name: _explained(each) for name, each in stored["queries"].items()}
        return Baseline(queries, stored["server"], stored["bundle"])
    except OSError as error:
        raise PublishError(
            f"{path.name}: cannot be read ({error.strerror}); check the path, or make it with --write-baseline"
        ) from None
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        raise PublishError(f"{path.name}: not a baseline; make it again with --write-baseline") from None


def _names(queries: Workload) -> list[str]:
    """Return a name for each query: its own if no other query has it, else one with its number."""
    given = [statement.name for statement in queries.statements]
    return [
        name if name and given.count(name) == 1 else f"{name or 'query'} {number}"
        for number, name in enumerate(given, start=1)
    ]


def _count(database: Database, bundle: Bundle) -> Iterator[TableSize]:
    """Yield the size of each table in the bundle and in the database."""
    for table in bundle.schema.tables:
        name, rows = qualified(table.name, bundle.schema.schemas), bundle.manifest["tables"][table.name]["rows"]
        known = "SELECT reltuples, relpages > 0 AND relallvisible = 0 FROM pg_class WHERE oid = "
        known += f"{quote_text(name)}::regclass"
        sql = f"SELECT (SELECT count(*) FROM {name}), known.* FROM ({known}) known"
        try:
            counted = database.execute(sql.encode()).fetchone()
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            counted = None
        found, stated, never_vacuumed = counted or (None, 0, False)
        yield TableSize(
            table.name, rows, found, found == 0 < rows and isclose(stated, rows, rel_tol=1e-5), never_vacuumed
        )


def _explained(stored: Mapping[str, Any]) -> Explained:
    scans = tuple(Scan(alias, table, method, tuple(used)) for alias, table, method, used in stored["scans"])
    joins = tuple(Join(method, tuple(outer), tuple(inner)) for method, outer, inner in stored["joins"])
    numbers = {name: stored[name] for name in ("cost", "rows", "actual_rows", "milliseconds", "pages")}
    return Explained(plan=_plan(stored["plan"]), scans=scans, joins=joins, **numbers)


def _plan(stored: Any) -> QueryPlan:
    label, inputs = stored
    return QueryPlan(label, tuple(map(_plan, inputs)))


def _digest(bundle: Bundle) -> str:
    return hashlib.sha256((bundle.path / MANIFEST).read_bytes()).hexdigest()
