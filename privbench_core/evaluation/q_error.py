"""A workload's cardinalities on the source and on the synthetic database, and their Q-errors.

A plan that is good for one cardinality is good for a similar one, so Q-errors measure how a query optimiser sees the
data. They are given for the whole workload, by number of joins, and by cardinality in three classes of about equal size
(PrivBench, Table 5).

Random workloads follow the recipe of MSCN (Kipf et al., "Learned Cardinalities", CIDR 2019, section 3.5): a query joins
a random connected set of tables along foreign keys, with a random number of predicates each: =, < or > and the column's
value in a random row. Queries without result are redrawn, and none repeats. Literals are private, so such a workload is
internal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.backends.postgres import join_condition, quote_identifier
from privbench_core.errors import SourceError
from privbench_core.evaluation.marginals import Figures
from privbench_core.explain.comparison import summarize
from privbench_core.publishing.verdicts import Grade, Verdict
from privbench_core.schema.tables import Schema, Table
from privbench_core.workload import Statement, Workload
from privbench_core.workload.engine import TIMEOUT_SECONDS, Engine, ResolvedQuery, UnansweredError, literal

CLASSES = ("low", "medium", "high")
_OPERATORS = ("=", "<", ">")
QUERY_SECONDS = 5.0  # seconds to count a query; slower ones are dropped


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


@dataclass(frozen=True)
class Recipe:
    """Parameters of a random workload."""

    queries: int = 200
    max_joins: int = 2  # each query has ``min_joins`` to this many, as far as the keys allow
    max_predicates: int = 3  # each table has 0 to this many, as far as its columns allow
    seed: int = 0
    min_joins: int = 0


def generate_workload(
    schema: Schema, tables: Mapping[str, pa.Table], recipe: Recipe, *, engine: Engine | None = None
) -> Workload:
    """Draw at most ``recipe.queries`` different queries with a result; fewer where the database is too small.

    Equal rows in equal order give the same workload, unless a query times out on one machine and not on another. An
    ``engine`` that holds the tables already keeps the answers.

    Raises:
        SourceError: No table has a row.
    """
    filled = [table.name for table in schema.tables if tables[table.name].num_rows]
    if not filled:
        raise SourceError(f"{schema.name}: no table has rows, so no query can be generated; give a source with rows")
    engine, rng = engine or Engine(tables, QUERY_SECONDS), np.random.default_rng(recipe.seed)
    kept: dict[str, Statement] = {}
    for _ in range(20 * recipe.queries):  # small databases have few queries with a result
        sql = _query(schema, tables, filled, recipe, rng)
        if sql not in kept and _finds_rows(engine, sql):
            kept[sql] = Statement(sql)
        if len(kept) == recipe.queries:
            break
    return Workload(tuple(kept.values()), internal=True)


def _finds_rows(engine: Engine, sql: str) -> bool:
    try:
        return engine.cardinality(engine.resolve(sql)) > 0
    except UnansweredError:
        return False


def _query(
    schema: Schema, tables: Mapping[str, pa.Table], filled: Sequence[str], recipe: Recipe, rng: np.random.Generator
) -> str:
    # A self-join would need aliases, which the recipe does not have.
    keys = [key for table in schema.tables for key in table.foreign_keys if key.child != key.parent]
    linked = [name for name in filled if any(name in {key.child, key.parent} for key in keys)]
    joins = int(rng.integers(recipe.min_joins, recipe.max_joins + 1)) if linked else 0
    joined = [_one(linked if joins else filled, rng)]
    conditions: list[str] = []
    for _ in range(joins):
        edges = [key for key in keys if (key.child in joined) != (key.parent in joined)]
        edges = [key for key in edges if key.child in filled and key.parent in filled]
        if not edges:
            break
        edge = edges[int(rng.integers(len(edges)))]
        joined.append(edge.parent if edge.child in joined else edge.child)
        conditions.append(join_condition(edge))
    for name in joined:
        conditions += _predicates(schema.table(name), tables[name], recipe.max_predicates, rng)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT COUNT(*) FROM {', '.join(map(quote_identifier, joined))}{where}"


def _predicates(table: Table, rows: pa.Table, most: int, rng: np.random.Generator) -> Iterator[str]:
    usable = [c for c in table.attributes if not c.type.opaque and c.logical.compares_alike]
    count = int(rng.integers(min(most, len(usable)) + 1))
    for position in sorted(rng.choice(len(usable), count, replace=False)) if count else ():
        column = usable[position]
        operator = _one(_OPERATORS, rng) if column.type.ordered else "="
        text = literal(rows[column.name][int(rng.integers(rows.num_rows))].as_py())
        if text is not None:
            yield f"{quote_identifier(table.name)}.{quote_identifier(column.name)} {operator} {text}"


def _one(options: Sequence[str], rng: np.random.Generator) -> str:
    return options[int(rng.integers(len(options)))]
