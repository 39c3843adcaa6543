"""What PostgreSQL plans for the queries of a workload, and how plans of two databases compare. Needs no source.

Here is what a recipient learns of plans on a bundle alone.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from privbench_core.errors import PublishError, SpecError
from privbench_core.explain.comparison import (
    PlanComparison,
    RunTimeSettings,
    compare_plans,
    explain_workload,
    ratio,
    summarize,
)
from privbench_core.explain.plan import Explained, loaded, server, server_version
from privbench_core.files import as_path
from privbench_core.publishing import Bundle, read_bundle
from privbench_core.workload import Workload, read_workload


@dataclass(frozen=True)
class ExplainedQuery:
    """One query on a bundle.

    Attributes:
        number: Position in the workload, from 1.
        sql: As written there.
        explained: Its plan, of a run.
    """

    number: int
    sql: str
    explained: Explained

    @property
    def q_error(self) -> float:
        """How far the planner's estimate of the rows is from the rows that there are, as a ratio."""
        return ratio(self.explained.rows, self.explained.actual_rows or 0, least=1)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan, its estimates and what they are worth."""
        return {"number": self.number, "sql": self.sql, **asdict(self.explained), "q_error": self.q_error}


@dataclass(frozen=True)
class Explanation:
    """The queries of a workload on a bundle.

    Attributes:
        bundle: It.
        queries: Those that ran.
        failed: "query" (number in the workload from 1) and "reason" of the others.
        server: Version of PostgreSQL.
        other: The bundle that it is compared with, and the comparison; or None.
    """

    bundle: Bundle
    queries: tuple[ExplainedQuery, ...]
    failed: tuple[dict[str, Any], ...]
    server: str
    other: tuple[Bundle, PlanComparison] | None = None

    def __repr__(self) -> str:
        """Return the bundle, the queries and what they are compared with in one line."""
        against = f", against {self.other[0].path.name}" if self.other else ""
        return f"<Explanation of {len(self.queries)} queries on {self.bundle.path.name}{against}>"

    @cached_property
    def q_errors(self) -> dict[str, float] | None:
        """Summary of the Q-errors of the planner's estimates."""
        return summarize([query.q_error for query in self.queries]) if self.queries else None

    def to_dict(self) -> dict[str, Any]:
        """Return the content of plans.json."""
        against = None
        if self.other is not None:
            against = {"bundle": self.other[0].path.name, **self.other[1].to_dict()}
        return {
            "database": self.bundle.manifest["database"],
            "bundle": self.bundle.path.name,
            "server": self.server,
            "estimates": self.q_errors,
            "queries": [query.to_dict() for query in self.queries],
            "failed": list(self.failed),
            "against": against,
        }


def explain_plans(
    bundle: str | Path,
    *,
    workload: str | Path | None = None,
    url: str | None = None,
    against: str | Path | None = None,
) -> Explanation:
    """Explain queries on a bundle in PostgreSQL: plans, estimates beside actual rows, run times. Needs no source.

    Args:
        bundle: Folder of the bundle.
        workload: File of SQL queries; None takes the bundle's own.
        url: A PostgreSQL server, into which the bundle is loaded for a while; by default one is started.
        against: Folder of another bundle of the same schema, such as the version before, to compare plans with.

    Returns:
        The queries with their plans, and the comparison.

    Raises:
        PublishError: A bundle is damaged, there are no queries, or there is no PostgreSQL.
        SourceError: The workload cannot be read.
    """
    file = None if workload is None else as_path(workload, "workload", SpecError)
    other = None if against is None else read_bundle(as_path(against, "against", PublishError))
    opened = read_bundle(bundle)
    queries, schema = queries_of(opened, file), opened.schema
    with ExitStack() as stack:
        place = stack.enter_context(server(url))
        here = stack.enter_context(loaded(opened.path, schema, place))
        if other is not None:
            there = stack.enter_context(loaded(other.path, other.schema, place))
            names = ("the other bundle", "the bundle")
            found = compare_plans(schema, (there, here), queries, RunTimeSettings(), names)
            both = tuple(ExplainedQuery(q.number, q.sql, q.explained[1]) for q in found.compared)
            return Explanation(opened, both, found.failed, found.server, (other, found))
        ran, failed = [], []
        explained = explain_workload(here, schema, queries, RunTimeSettings(repetitions=1))
        for number, (statement, each) in enumerate(zip(queries.statements, explained, strict=True), 1):
            if isinstance(each, Explained):
                ran.append(ExplainedQuery(number, statement.sql, each))
            else:
                failed.append({"query": number, "reason": str(each)})
        return Explanation(opened, tuple(ran), tuple(failed), server_version(here))


def queries_of(bundle: Bundle, workload: Path | None) -> Workload:
    """Return the queries of a file, or of the bundle, without statements that write; PublishError if it has none."""
    files = [workload] if workload else [bundle.path / "workload" / f"{name}.sql" for name in bundle.workload]
    read = [read_workload(file) for file in files]
    found = tuple(statement for each in read for statement in each.queries.statements)
    if not found:
        raise PublishError(f"{bundle.path.name}: has no queries of its own; name a file of queries with --workload")
    return Workload(found, read[0].dialect)
