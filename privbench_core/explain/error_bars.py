"""Error bars: for each query over a bundle, an interval for its answer on the source.

How far the answers on the bundle's replicates are from the bundle's estimates how far that is from the source's (a
parametric bootstrap, see `pipeline.rehearsal`). Counts, and other answers of one sign, are off by factors, so their
errors are of logarithms; a count is a whole number, so one row is added to its error. Error / root mean square of n
replicates has Student's t distribution with n degrees of freedom, if errors are normal and without bias.

What the models leave out of the source, they cannot leave out again, so errors are widened by the distances of the
tables and joins that a query reads: released ones, from the source, to those of replicates, from the bundle. Errors are
multiplied by the largest ratio. Of joins, errors multiply, and what is far off is not so by a ratio: there, they are
widened by no more than what the distances differ by in squares adds to them. Models have pairs of columns of a table
and its owner; what several tables share beyond that is the same in all replicates, so their released distances are
added, in squares.

A value that too few units share is in neither bundle nor replicates. So where no row of the bundle meets a comparison,
the interval reaches to the answer without it: an inequality for queries that only combine comparisons by AND and OR.

All of it is computed from the bundle. Intervals hold one by one, not for all queries at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
import scipy
from sqlglot import exp

from privbench_core.backends.postgres import join_condition, quote_identifier
from privbench_core.guards import SHOWN_DEVIATIONS
from privbench_core.publishing import Bundle, Distances, read_replicates, read_rows
from privbench_core.publishing.verdicts import JOIN, SIZE
from privbench_core.schema.tables import Schema
from privbench_core.workload import Workload
from privbench_core.workload.engine import (
    TIMEOUT_SECONDS,
    Engine,
    ResolvedQuery,
    UnansweredError,
    aggregates_of_all,
    is_constant,
    is_regenerated,
)
from privbench_core.workload.parameters import operands

LEVEL = 0.95
"""Nominal coverage of the intervals."""
ROWS = "rows"


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
        widened: Factor of the replicates' error; None if noise hides all distances that were released.
        unmet: Whether a comparison meets no row of the bundle, so that the interval reaches to the answer without it.
    """

    query: int
    sql: str
    answers: str
    joins: int
    answer: float
    low: float
    high: float
    widened: float | None
    unmet: bool = False


@dataclass(frozen=True)
class _LeftOut:
    """What the models leave out of the source, as a ratio of distances, and for joins as distances.

    Attributes:
        ratio: Largest of released distance / that of replicates.
        distance: By what released distances exceed those of replicates in squares; infinite without joins.
        released: The released distances, in squares; 0 without joins.
    """

    ratio: float
    distance: float
    released: float


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
        workload: The queries; the sizes of tables and joins if none are given.
        timeout: Maximum seconds of a query on one database.

    Raises:
        PublishError: The bundle has no replicates.
    """
    replicates, distances = read_replicates(bundle)
    compared = _compare(bundle, distances, len(replicates))
    queries = _sizes(bundle.schema) if workload is None else workload
    engine = Engine({name: bundle.table(name) for name in bundle.tables}, timeout)
    resolved: dict[int, ResolvedQuery] = {}
    answers: dict[int, list[list[float]]] = {}
    without: dict[int, list[float]] = {}
    failed: dict[int, str] = {}
    for number, statement in enumerate(queries.statements, start=1):
        try:
            resolved[number] = engine.resolve(statement.sql, queries.dialect)
            _refuse_regenerated(resolved[number], bundle.schema)
            answers[number] = [_answers(engine, resolved[number])]
            without[number] = _without_unmet(engine, resolved[number], bundle.schema)
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
        left_out = _left_out(query, compared)
        for position, (what, count) in enumerate(_asked(query)):
            answer = on_bundle[position]
            low, high, widened = _ends(answer, [each[position] for each in on_replicates], left_out, count=count)
            other = without[number][position] if without[number] else answer
            found = min(low, other), max(high, other), widened
            if all(bundle.schema.table(table).public for table in query.tables):
                found = answer, answer, 1.0  # of rows that are the source's
            text = queries.statements[number - 1].sql
            intervals.append(Interval(number, text, what, query.joins, answer, *found, bool(without[number])))
    return ErrorBars(len(replicates), tuple(intervals), tuple(sorted(failed.items())))


def _refuse_regenerated(query: ResolvedQuery, schema: Schema) -> None:
    """Raise UnansweredError if a query names a key or an opaque text of the bundle: on the source it names nothing."""
    for operand, side in operands(query.tree):
        for node in side.find_all(exp.Column) if is_constant(operand) else ():
            found = query.column(node, schema)
            if found is not None and is_regenerated(schema, *found):
                where = f"{found[0].name}.{found[1].name}"
                raise UnansweredError(f"{where}: compares with a key or text that the source does not have")


def _without_unmet(engine: Engine, query: ResolvedQuery, schema: Schema) -> list[float]:
    """Return the answers without the comparisons of a column with constants that no row meets; none if all are met."""
    tree = query.tree.copy()
    other = replace(query, tree=tree)
    for operand, side in [*operands(tree)]:
        columns = [*side.find_all(exp.Column)]
        found = other.column(columns[0], schema) if len(columns) == 1 and is_constant(operand) else None
        if found is None or found[0].public or (test := operand.parent) is None or test.root() is not tree:
            continue
        alone = exp.select("1").from_(exp.Table(this=exp.to_identifier(found[0].name, quoted=True))).where(test.copy())
        for node in alone.find_all(exp.Column):
            node.set("table", None)
        if not engine.rows(alone, limit=1):
            test.replace(exp.true())
    return _answers(engine, other) if tree != query.tree else []


def _sizes(schema: Schema) -> Workload:
    """Return queries for the sizes of private tables, and of joins along their keys."""
    queries = []
    for table in schema.private_tables:
        queries.append(f"SELECT COUNT(*) FROM {quote_identifier(table.name)}")
        for key in (key for key in table.foreign_keys if key.child != key.parent):
            both = " JOIN ".join(map(quote_identifier, (key.child, key.parent)))
            queries.append(f"SELECT COUNT(*) FROM {both} ON {join_condition(key)}")
    return Workload.of(queries)


def _asked(query: ResolvedQuery) -> list[tuple[str, bool]]:
    """Return what the answers of a query are, see `Interval.answers`, and whether each is a count."""
    aggregates = aggregates_of_all(query.tree)
    if not aggregates or (len(aggregates) == 1 and isinstance(aggregates[0], exp.Count)):
        return [(ROWS, True)]
    return [(item.sql(dialect="postgres"), isinstance(item, exp.Count)) for item in aggregates]


def _answers(engine: Engine, query: ResolvedQuery) -> list[float]:
    """Return the aggregates of a query, or the number of its rows if it has others, or only a count."""
    if [what for what, _ in _asked(query)] == [ROWS]:
        return [engine.cardinality(query)]
    if any(item.find(exp.Min, exp.Max) for item in aggregates_of_all(query.tree)):
        raise UnansweredError("MIN and MAX depend on single rows")
    found = engine.rows(query.tree, limit=1)[0]
    if not all(isinstance(value, int | float | Decimal) for value in found):
        raise UnansweredError("an aggregate is not a number")
    return [float(value) for value in found]


def _compare(bundle: Bundle, replicated: Distances, number: int) -> dict[str, dict[str, tuple[float, float]]]:
    """Return the replicates' distance by table and metric, and how many times it the released one is.

    Where noise hides the released distance, it is taken to be as many times larger as the others are, in the median.
    Empty if noise hides all of them.
    """
    released = {
        (table, figure["metric"]): (figure["value"], figure["plus_minus"] / SHOWN_DEVIATIONS / math.sqrt(number))
        for table, figures in bundle.manifest["privacy"].get("fidelity_paid_for", {}).items()
        for figure in figures
        if figure["metric"] != SIZE
    }
    again = {place: max(replicated[place[0]][place[1]], least) for place, (_, least) in released.items()}
    ratios = {place: max(1.0, value / again[place]) for place, (value, _) in released.items() if value is not None}
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for (table, metric), distance in again.items() if ratios else ():
        ratio = ratios.get((table, metric), float(np.median(list(ratios.values()))))
        found.setdefault(table, {})[metric] = distance, ratio
    return found


def _left_out(query: ResolvedQuery, compared: Mapping[str, Mapping[str, tuple[float, float]]]) -> _LeftOut | None:
    """Return what the models leave out of the tables and joins that a query reads; None if it is unknown."""
    largest, squares, released = 0.0, 0.0, 0.0
    for table in query.tables:
        metrics = [each for name, each in compared.get(table, {}).items() if query.joins or name != JOIN]
        largest = max([largest, *(ratio for _, ratio in metrics)])
        squares += max((distance**2 * (ratio**2 - 1) for distance, ratio in metrics), default=0.0)
        released += max(((distance * ratio) ** 2 for distance, ratio in metrics), default=0.0)
    distances = (math.sqrt(squares), math.sqrt(released)) if query.joins else (math.inf, 0.0)
    return _LeftOut(largest, *distances) if largest else None


def _ends(
    answer: float, replicates: Sequence[float], left_out: _LeftOut | None, *, count: bool
) -> tuple[float, float, float | None]:
    """Return the ends of an interval around ``answer``, by the answers on replicates, and how much it is widened."""
    t = float(scipy.special.stdtrit(len(replicates), (1 + LEVEL) / 2))
    again, least = np.array(replicates), 1 if count else 0
    factors = bool(count or (again * answer > 0).all())
    errors = np.log((again + least) / (answer + least)) if factors else again - answer
    error = math.sqrt((errors**2).mean() + (least / (answer + least)) ** 2 if factors else (errors**2).mean())
    widened = None
    if left_out is not None:
        # The error of a logarithm per distance is 2 in the mean, and tails are heavy; 3 was chosen on *stats*.
        at_most = math.hypot(error, 3 * left_out.distance) / error if factors and error else math.inf
        widened = min(left_out.ratio, at_most)
    # What a released distance adds: queries sum over cells. Half was chosen on football and epidemic.
    unshared = 0.5 * left_out.released if factors and left_out is not None else 0.0
    half = t * math.hypot((widened or 1.0) * error, unshared)
    if not factors:
        return answer - half, answer + half, widened
    factor = math.exp(min(half, 100.0))  # beyond it a number says nothing
    low, high = sorted(((answer + least) / factor - least, (answer + least) * factor - least))
    return (max(0, math.floor(low)), math.ceil(high), widened) if count else (low, high, widened)
