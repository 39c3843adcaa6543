"""Decisions between two ways to run a query: do both databases name the same winner?

Each choice sets a query as it is against one alternative: without an index that its plan uses, under another setting of
the planner, as another version that the workload marks with a comment ``/* choice: name */`` after SELECT, or on
another server. Alternatives that change the plan on neither database are no choice and are left out.

Every run is in a transaction that is rolled back, so an index is missing only there, and only in the schema or
database that was made for the comparison. Both ways run in turn; a gap exceeds noise where the slowest run of one is
faster than the fastest of the other, by at least 5%.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import psycopg

from privbench_core.explain.comparison import ComparedQuery, ratio
from privbench_core.explain.plan import Database, Explained, TookTooLongError, explain_query, name_flips, server_version
from privbench_core.schema.tables import Schema
from privbench_core.workload.engine import UnansweredError

_SETTINGS = (
    ("enable_nestloop", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("random_page_cost", "1.1"),
    ("work_mem", "64kB"),  # the least there is
    ("work_mem", "64MB"),
)
_MARK = re.compile(r"/\*\s*choice:\s*(.+?)\s*\*/")
_FIND_INDEX = """
    SELECT format('%%I.%%I', home.nspname, index.relname), quote_ident(made.conname), made.conrelid::regclass::text
    FROM pg_class index JOIN pg_namespace home ON home.oid = index.relnamespace
    JOIN pg_index kept ON kept.indexrelid = index.oid JOIN pg_class read ON read.oid = kept.indrelid
    LEFT JOIN pg_constraint made ON made.conindid = index.oid AND made.contype IN ('p', 'u', 'x')
    WHERE index.relname = %s AND read.relname = %s AND (%s OR home.nspname = current_schema())
"""


@dataclass(frozen=True)
class DecisionSettings:
    """How many choices to measure, and how. The defaults are chosen by hand."""

    limit: int = 200  # of more choices, a sample
    seed: int = 0  # of that sample
    repetitions: int = 5  # runs of each way on each database, after one to warm up
    seconds: float = 600.0  # after which no further choice is begun


@dataclass(frozen=True)
class Way:
    """A way to run a query.

    Attributes:
        texts: The query for the source, and for the bundle.
        setting: Name and value of a setting of the planner, None for none.
        without: Name of an index and its table, None for none.
        server: Position of the server, from 0.
    """

    texts: tuple[str, str]
    setting: tuple[str, str] | None = None
    without: tuple[str, str] | None = None
    server: int = 0


@dataclass(frozen=True)
class Choice:
    """Two ways to run a query of the workload, by its number, and how they differ."""

    number: int
    alternative: str
    ways: tuple[Way, Way]


@dataclass(frozen=True)
class Decision:
    """A choice with its run times in milliseconds on the source and on the bundle, of the usual and the other way."""

    choice: Choice
    source: tuple[Sequence[float], Sequence[float]]
    bundle: tuple[Sequence[float], Sequence[float]]

    @property
    def clear(self) -> bool:
        """Whether the gap on the source exceeds the noise of its repeated runs."""
        return exceeds_noise(*self.source)

    @property
    def same_winner(self) -> bool:
        """Whether the same way has the smaller median on the bundle."""
        (a, b), (c, d) = (tuple(map(median, times)) for times in (self.source, self.bundle))
        return (a < b) == (c < d)

    def to_dict(self) -> dict[str, Any]:
        """Return the choice, its medians and what they say."""
        medians = {
            name: tuple(None if math.isinf(m) else m for m in map(median, times))
            for name, times in (("source", self.source), ("bundle", self.bundle))
        }
        said = {"clear": self.clear, "clear_on_bundle": exceeds_noise(*self.bundle), "same_winner": self.same_winner}
        return {"query": self.choice.number, "alternative": self.choice.alternative, **medians, **said}


@dataclass(frozen=True)
class Decisions:
    """All measured choices.

    Attributes:
        made: The choices with run times.
        found: Number of choices that the workload offers.
        failed: "query", "alternative" and "reason" of those that could not be measured.
        settings: How they were measured.
    """

    made: tuple[Decision, ...]
    found: int
    failed: tuple[dict[str, Any], ...]
    settings: DecisionSettings

    @cached_property
    def clear(self) -> tuple[Decision, ...]:
        """The decisions whose gap on the source exceeds noise."""
        return tuple(decision for decision in self.made if decision.clear)

    @property
    def same_winner(self) -> float | None:
        """Share of the clear decisions with the same winner on the bundle; None if none is clear."""
        return sum(decision.same_winner for decision in self.clear) / len(self.clear) if self.clear else None

    @property
    def reversed(self) -> tuple[Decision, ...]:
        """The decisions that a bundle gets wrong: clear on both databases, with another winner."""
        return tuple(d for d in self.clear if not d.same_winner and exceeds_noise(*d.bundle))

    def to_dict(self) -> dict[str, Any]:
        """Return the shares and every choice."""
        return {
            "found": self.found,
            "measured": len(self.made),
            "clear": len(self.clear),
            "same_winner": self.same_winner,
            "reversed": len(self.reversed),
            "choices": [decision.to_dict() for decision in self.made],
            "failed": list(self.failed),
        }


def exceeds_noise(usual: Sequence[float], other: Sequence[float], worth: float = 1.05) -> bool:
    """Return whether every run of one way is faster than every run of the other, by at least ``worth`` in the median.

    Nobody would decide by a smaller ratio of run times (chosen by hand).

    >>> exceeds_noise([1, 2, 3], [4, 5, 6]), exceeds_noise([1, 2, 4], [3, 5, 6])
    (True, False)
    """
    apart = max(usual) < min(other) or max(other) < min(usual)
    return apart and ratio(median(usual), median(other)) >= worth


def decide(
    schema: Schema,
    servers: Sequence[tuple[Database, Database]],
    compared: Sequence[ComparedQuery],
    settings: DecisionSettings | None = None,
) -> Decisions:
    """Measure choices between two ways to run the queries of a workload, on the source and on the bundle.

    Args:
        schema: Of all databases.
        servers: Connections to source and bundle on each server, see `plan.loaded`, prepared.
        compared: The queries with their plans on the first server.
        settings: How many choices to measure, and how.
    """
    settings = settings or DecisionSettings()
    started = perf_counter()
    by_number = {query.number: query for query in compared}
    choices = list(_choices(schema, servers, compared))
    made, failed = [], []
    for position in np.random.default_rng(settings.seed).permutation(len(choices)).tolist()[: settings.limit]:
        if perf_counter() - started > settings.seconds:
            break
        choice = choices[position]
        usual = by_number[choice.number].milliseconds
        try:
            source, bundle = _measure(schema, servers, choice, usual[:2], settings.repetitions)
            made.append(Decision(choice, source, bundle))
        except UnansweredError as reason:
            failed.append({"query": choice.number, "alternative": choice.alternative, "reason": str(reason)})
    order = sorted(made, key=lambda decision: (decision.choice.number, decision.choice.alternative))
    return Decisions(tuple(order), len(choices), tuple(failed), settings)


def _choices(
    schema: Schema, servers: Sequence[tuple[Database, Database]], compared: Sequence[ComparedQuery]
) -> Iterator[Choice]:
    versions: dict[str, list[ComparedQuery]] = {}
    for query in compared:
        usual = Way(query.texts)
        for way, alternative in _alternatives(query):
            if _changes(schema, servers[0], query, way):
                yield Choice(query.number, alternative, (usual, way))
        for position, server in enumerate(servers[1:], 1):
            name = f"PostgreSQL {server_version(server[0])}"
            yield Choice(query.number, name, (usual, Way(query.texts, server=position)))
        if mark := _MARK.search(query.sql):
            versions.setdefault(mark[1], []).append(query)
    for name, queries in versions.items():
        for one, other in combinations(queries, 2):
            yield Choice(one.number, f"query {other.number} ({name})", (Way(one.texts), Way(other.texts)))


def _alternatives(query: ComparedQuery) -> Iterator[tuple[Way, str]]:
    used = {(index, scan.table) for each in query.explained for scan in each.scans for index in scan.indexes}
    for index, table in sorted(used):
        yield Way(query.texts, without=(index, table)), f"without {index}"
    for setting in _SETTINGS:
        yield Way(query.texts, setting), " = ".join(setting)


def _changes(schema: Schema, databases: tuple[Database, Database], query: ComparedQuery, way: Way) -> bool:
    """Return whether a way changes the plan on one of the databases, or, by its memory, the pages that a run uses."""
    run = way.setting is not None and way.setting[0] == "work_mem"
    try:
        found = [_explain(schema, databases, number, way, run=run) for number in range(len(databases))]
    except UnansweredError:
        return False
    pairs = list(zip(query.explained, found, strict=True))
    return any(name_flips(usual, other) or (run and usual.pages != other.pages) for usual, other in pairs)


def _measure(
    schema: Schema, servers: Sequence[tuple[Database, Database]], choice: Choice, usual: Sequence[float], runs: int
) -> list[tuple[list[float], list[float]]]:
    """Return run times in milliseconds on source and bundle, of both ways; infinite where one takes too long.

    Args:
        schema: Of all databases.
        servers: Source and bundle on each server.
        choice: The two ways.
        usual: Run times of the usual way on source and bundle, in milliseconds.
        runs: Of each way on each database.
    """
    times: list[tuple[list[float], list[float]]] = [([], []), ([], [])]
    for turn in range(-1, runs):  # the first one warms up
        for database, way in product((0, 1), (0, 1) if turn % 2 else (1, 0)):
            kept, used = times[database][way], choice.ways[way]
            if kept and math.isinf(kept[0]):
                continue
            limit = max(1000.0, 10 * usual[database])  # ms: a way that takes longer loses
            try:
                found = _explain(schema, servers[used.server], database, used, run=True, timeout=limit)
            except TookTooLongError:
                kept[:] = [math.inf]
            else:
                kept.extend([found.milliseconds or 0.0] * (turn >= 0))
    return times


def _explain(
    schema: Schema, databases: tuple[Database, Database], number: int, way: Way, *, run: bool, timeout: float = 0.0
) -> Explained:
    """Return the plan of a way to run a query; nothing of it outlives the call.

    Args:
        schema: Of the databases.
        databases: Connections to source and bundle.
        number: Which of them, from 0.
        way: The query, and what is changed for it.
        run: Whether to run it.
        timeout: In milliseconds; 0 for that of the session.

    Raises:
        UnansweredError: The query fails, or the index cannot be left out, because another one needs it.
    """
    database = databases[number]
    with database.transaction(force_rollback=True):
        try:
            database.execute("SET TRANSACTION READ WRITE")
            if way.without is not None:
                _drop_index(schema, database, *way.without)
            limit = [("statement_timeout", str(round(timeout)))] if timeout else []
            for name, value in [*([way.setting] if way.setting else []), *limit]:
                database.execute("SELECT set_config(%s, %s, true)", (name, value))
            database.execute("SET TRANSACTION READ ONLY")
        except psycopg.Error as error:
            raise UnansweredError(f"cannot be tried ({type(error).__name__})") from None
        return explain_query(database, way.texts[number], run=run)


def _drop_index(schema: Schema, database: Database, index: str, table: str) -> None:
    """Drop an index, or the constraint that it is made for, among the objects that were made for the comparison."""
    # A database with several schemas is one that was made whole for the comparison.
    found = database.execute(_FIND_INDEX, (index, table, bool(schema.schemas))).fetchone()
    if found is None:
        raise UnansweredError(f"there is no index {index}")
    name, constraint, owner = found
    drop = f"ALTER TABLE {owner} DROP CONSTRAINT {constraint} CASCADE" if constraint else f"DROP INDEX {name}"
    database.execute(drop.encode())
