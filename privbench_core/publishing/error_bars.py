"""Error bars: for each query over a bundle, an interval for its answer on the source.

How far the answers on the bundle's replicates are from the bundle's estimates how far that is from the source's (a
parametric bootstrap, see `pipeline.replicates`), widened by the ratio of released to replicated fidelity figures of the
tables and joins that the query reads. Counts, and other answers of one sign, are off by factors, so their errors are of
logarithms; a count is a whole number, so one row is added to its error. With n replicates, error / root mean square has
Student's t distribution with n degrees of freedom, if errors are normal and without bias.

All of it is computed from the bundle. Intervals hold one by one, not for all queries at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import scipy
from sqlglot import exp

from privbench_core.backends.postgres.ddl import quote_identifier
from privbench_core.publishing.bundle import Bundle
from privbench_core.publishing.figures import JOIN
from privbench_core.publishing.replicates import Widening, read_replicates, read_rows
from privbench_core.schema.constraints import ForeignKey
from privbench_core.workload.engine import TIMEOUT_SECONDS, Engine, ResolvedQuery, UnansweredError, aggregates_of_all
from privbench_core.workload.statements import Statement, Workload, split_statements

LEVEL = 0.95
"""Nominal coverage of the intervals."""
ROWS = "rows"
_MOST = 100.0  # of an error, as a logarithm: beyond it a number says nothing


@dataclass(frozen=True)
class Interval:
    """An answer of a query on the bundle, and where it is on the source.

    Attributes:
        query: The query's number in the workload, from 1.
        sql: Its text.
        answers: What the answer is: an aggregate of the query, or its number of rows (`ROWS`).
        joins: Its number of joins.
        answer: On the bundle.
        low: Lower end of the interval.
        high: Upper end of the interval.
        widened: How many times the replicates' errors it covers, by fidelity figures; None if noise hides these.
    """

    query: int
    sql: str
    answers: str
    joins: int
    answer: float
    low: float
    high: float
    widened: float | None


@dataclass(frozen=True)
class ErrorBars:
    """The intervals of a workload.

    Attributes:
        replicates: Number of replicates.
        intervals: One for each answer, in the order of the queries.
        failed: Number and reason of each query without.
    """

    replicates: int
    intervals: tuple[Interval, ...]
    failed: tuple[tuple[int, str], ...]

    def to_dict(self) -> dict[str, Any]:
        """Return it JSON-able."""
        return {
            "level": LEVEL,
            "replicates": self.replicates,
            "intervals": [asdict(interval) for interval in self.intervals],
            "failed": [{"query": number, "reason": reason} for number, reason in self.failed],
        }


def intervals_of(bundle: Bundle, workload: Workload | None = None, timeout: float = TIMEOUT_SECONDS) -> ErrorBars:
    """Return an interval for each answer of a workload on the source.

    Args:
        bundle: A bundle with replicates.
        workload: The queries; those of the bundle if none are given, and if it has none the sizes of tables and joins.
        timeout: Maximum seconds of a query on one database.

    Raises:
        PublishError: The bundle has no replicates.
    """
    replicates, widening = read_replicates(bundle)
    queries = _default_workload(bundle) if workload is None else workload
    engine = Engine({name: bundle.table(name) for name in bundle.tables}, timeout)
    resolved: dict[int, ResolvedQuery] = {}
    answers: dict[int, list[dict[str, float]]] = {}
    failed: dict[int, str] = {}
    for number, statement in enumerate(queries.statements, start=1):
        try:
            resolved[number] = engine.resolve(statement.sql, queries.dialect)
            answers[number] = [_answers(engine, resolved[number])]
        except UnansweredError as reason:
            failed[number] = str(reason)
    for replicate in replicates:
        engine = Engine(read_rows(bundle, replicate), timeout)
        for number in set(answers) - set(failed):
            try:
                answers[number].append(_answers(engine, resolved[number]))
            except UnansweredError as reason:
                failed[number] = f"{reason} (on a replicate)"
    intervals = []
    for number in (number for number in answers if number not in failed):
        query, (on_bundle, *on_replicates) = resolved[number], answers[number]
        widened = _widened(query, widening)
        for what, answer in on_bundle.items():
            ends = _ends(answer, [each[what] for each in on_replicates], widened or 1.0, count=what == ROWS)
            text = queries.statements[number - 1].sql
            intervals.append(Interval(number, text, what, query.joins, answer, *ends, widened))
    return ErrorBars(len(replicates), tuple(intervals), tuple(sorted(failed.items())))


def _default_workload(bundle: Bundle) -> Workload:
    if bundle.workload:
        return Workload(tuple(Statement(sql) for text in bundle.workload.values() for sql in split_statements(text)))
    queries = []
    for table in bundle.schema.private_tables:
        queries.append(f"SELECT COUNT(*) FROM {quote_identifier(table.name)}")
        queries += [_count_joined(key) for key in table.foreign_keys if key.child != key.parent]
    return Workload.of(queries)


def _count_joined(key: ForeignKey) -> str:
    child, parent = quote_identifier(key.child), quote_identifier(key.parent)
    pairs = zip(map(quote_identifier, key.columns), map(quote_identifier, key.parent_columns), strict=True)
    matches = " AND ".join(f"{child}.{own} = {parent}.{theirs}" for own, theirs in pairs)
    return f"SELECT COUNT(*) FROM {child} JOIN {parent} ON {matches}"


def _answers(engine: Engine, query: ResolvedQuery) -> dict[str, float]:
    """Return the aggregates of a query by their text, or the number of its rows if it has others, or only a count."""
    aggregates = aggregates_of_all(query.tree)
    if not aggregates or (len(aggregates) == 1 and isinstance(aggregates[0], exp.Count)):
        return {ROWS: engine.cardinality(query)}
    if any(item.find(exp.Min, exp.Max) for item in aggregates):
        raise UnansweredError("MIN and MAX depend on single rows, so they have no error bars")
    found = engine.rows(query.tree, limit=1)[0]
    if not all(isinstance(value, int | float | Decimal) for value in found):
        raise UnansweredError("an aggregate is not a number")
    return {item.sql(dialect="postgres"): float(value) for item, value in zip(aggregates, found, strict=True)}


def _widened(query: ResolvedQuery, widening: Widening) -> float | None:
    """Return the largest ratio of the fidelity figures that say something about a query; None without one."""
    figures = [widening.get(table, {}) for table in query.tables]
    return max((ratio for each in figures for name, ratio in each.items() if query.joins or name != JOIN), default=None)


def _ends(answer: float, replicates: Sequence[float], widened: float, *, count: bool) -> tuple[float, float]:
    """Return the ends of an interval around ``answer``, by the answers on replicates."""
    deviations = widened * float(scipy.special.stdtrit(len(replicates), (1 + LEVEL) / 2))
    again, least = np.array(replicates), 1 if count else 0
    if not count and (again * answer <= 0).any():
        half = deviations * math.sqrt(((again - answer) ** 2).mean())
        return answer - half, answer + half
    squares = np.log((again + least) / (answer + least)) ** 2
    error = math.sqrt(squares.mean() + (least / (answer + least)) ** 2)
    factor = math.exp(min(deviations * error, _MOST))
    if count:
        return max(0, math.floor((answer + 1) / factor - 1)), math.ceil((answer + 1) * factor - 1)
    low, high = sorted((answer / factor, answer * factor))
    return low, high
