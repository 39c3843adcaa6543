"""Plans without rows: of queries on a bundle's statistics alone, on the loaded bundle, and on its source.

All are databases of one embedded PostgreSQL 18; those with rows are vacuumed and analyzed. A plan is the same if its
operators, the order of its joins and its indexes are. ANALYZE samples larger tables, so the loaded bundle is also
compared with itself, analyzed once more. "No heights" is what a server with checksums of pages allows, "no sizes" a
login that may not run programs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from unittest.mock import patch

import psycopg
from sqlalchemy import make_url

from benchmarks import stats, tpch
from benchmarks.data import data_folder
from benchmarks.measure import call_in_child
from benchmarks.operational import DATABASES as OPERATIONAL
from benchmarks.operational import SQL, execute, go_through
from benchmarks.report import Row, machine, markdown
from benchmarks.tpch_queries import QUERIES
from benchmarks.tpch_schema import SCHEMA
from benchmarks.workloads import Case
from privbench_core.backends.postgres import load
from privbench_core.backends.postgres.temporary import PostgresServer, temporary_postgres
from privbench_core.errors import PrivbenchError
from privbench_core.evaluation.q_error import Recipe, generate_workload
from privbench_core.explain.plan import Explained, as_postgres, explain_query, prepare
from privbench_core.publishing import load_bundle, read_bundle, write_bundle
from privbench_core.publishing.statistics import statistics_sql
from privbench_core.spec.model import Spec
from privbench_core.workload import Workload

EPSILON, DELTA = 3.2, 1e-9
STATISTICS_ONLY, LOADED, AGAIN, SOURCE = "statistics_only", "loaded", "again", "source"
NO_HEIGHTS, NO_SIZES = "no_heights", "no_sizes"


@dataclass(frozen=True)
class Prepared:
    """A database to compare.

    Attributes:
        source: URL of the source, in the server.
        bundle: Made from it.
        queries: In PostgreSQL's words.
    """

    source: str
    bundle: Path
    queries: Sequence[str]


def run(data: Path | None, databases: Collection[str], progress: Callable[[str], None]) -> str:
    """Return Markdown: a row per database, and per setting of parallel plans."""
    rows: list[Row] = []
    for name in databases:
        progress(name)
        with TemporaryDirectory() as place, temporary_postgres() as server:
            rows += measure(server, name, DATABASES[name](server, Path(place), data))
    return f"{markdown(rows)}\n\n{machine(1)}"


def measure(server: PostgresServer, name: str, prepared: Prepared) -> list[Row]:
    """Load a bundle with and without rows, and compare plans."""
    urls = {SOURCE: prepared.source}
    seconds = {}
    lacking = {NO_HEIGHTS: {"tree_height": 0}, NO_SIZES: {"tree_height": 0, "_truncations": ()}}
    for what in (LOADED, STATISTICS_ONLY, *lacking):
        urls[what] = new_database(server, f"{name}_{what}")
        start = perf_counter()
        with ExitStack() as without:
            for part, found in lacking.get(what, {}).items():
                without.enter_context(patch.object(load, part, lambda *_, found=found: found))
            load_bundle(prepared.bundle, urls[what], statistics_only=what != LOADED)
        seconds[what] = perf_counter() - start
    bundle = read_bundle(prepared.bundle)
    start = perf_counter()
    text = statistics_sql(bundle.schema, {table: bundle.files(table) for table in bundle.tables})
    made = perf_counter() - start
    for what in (SOURCE, LOADED):
        execute(urls[what], "VACUUM (ANALYZE)")
    rows: list[Row] = []
    for parallel in (False, True):
        plans = {what: explained(url, prepared.queries, parallel=parallel) for what, url in urls.items()}
        execute(urls[LOADED], "ANALYZE")
        plans[AGAIN] = explained(urls[LOADED], prepared.queries, parallel=parallel)
        rows.append(
            {
                "database": name,
                "parallel plans, JIT": "on" if parallel else "off",
                "queries": sum(None not in each for each in zip(*plans.values(), strict=True)),
                "without rows = loaded": same(plans[STATISTICS_ONLY], plans[LOADED]),
                "loaded = analyzed again": same(plans[LOADED], plans[AGAIN]),
                "no heights = loaded": same(plans[NO_HEIGHTS], plans[LOADED]),
                "no sizes = loaded": same(plans[NO_SIZES], plans[LOADED]),
                "without rows = source": same(plans[STATISTICS_ONLY], plans[SOURCE]),
                "loaded = source": same(plans[LOADED], plans[SOURCE]),
                "rows": f"{sum(entry['rows'] for entry in bundle.manifest['tables'].values()):,}",
                "statistics.sql kB": len(text.encode()) / 1000,
                "computed s": made,
                "published s": seconds[STATISTICS_ONLY],
                "loaded s": seconds[LOADED],
            }
        )
    return rows


def explained(url: str, queries: Sequence[str], *, parallel: bool) -> list[Explained | None]:
    """Return the plan of each query; None if it fails."""
    found: list[Explained | None] = []
    with psycopg.connect(url, autocommit=True) as connection:
        prepare(connection)
        if parallel:
            connection.execute("RESET max_parallel_workers_per_gather; RESET jit")
        for query in queries:
            try:
                found.append(explain_query(connection, query))
            except PrivbenchError:
                found.append(None)
    return found


def same(one: Sequence[Explained | None], other: Sequence[Explained | None]) -> str:
    """Return the share of the queries with the same plan on both: operators, join order, indexes."""
    pairs = [(a, b) for a, b in zip(one, other, strict=True) if a is not None and b is not None]
    equal = sum((a.plan, a.scans, a.joins) == (b.plan, b.scans, b.joins) for a, b in pairs)
    return f"{equal / len(pairs):.1%}"


def new_database(server: PostgresServer, name: str) -> str:
    """Make a database and return its URL."""
    execute(server.url, f'CREATE DATABASE "{name}"')
    return make_url(server.url).set(database=name).render_as_string(hide_password=False)


def _of_case(server: PostgresServer, place: Path, case: Case) -> Prepared:
    """Run a spec, and load its source."""
    schema = case.spec.schema
    given = {"spec": str(case.spec.path), "epsilon": EPSILON, "delta": DELTA, "seed": 0, "out": str(place)}
    call_in_child("benchmarks.workloads:run_pipeline", given)
    url = new_database(server, SOURCE)
    load_bundle(write_bundle(place / "original", schema, case.source, {}), url)
    texts = [
        as_postgres(statement.sql, workload.dialect, schema)
        for workload in case.workloads.values()
        for statement in workload.statements
    ]
    return Prepared(url, place / "bundle", texts)


def _stats(server: PostgresServer, place: Path, data: Path | None) -> Prepared:
    source = place / "source"
    source.mkdir()
    published = stats.published_queries(
        data_folder(data) / "stats" / "single_table_queries.sql", stats.prepare(data_folder(data) / "stats", source)
    )
    case = Case.of(
        stats.spec(source, place),
        lambda given, rows: {"published": published, "joins": stats.multi_join(given, rows)},
    )
    return _of_case(server, place, case)


def _tpch(server: PostgresServer, place: Path, data: Path | None) -> Prepared:
    del data
    source = place / "source"
    source.mkdir()
    tpch.generate(source)
    spec = Spec(SCHEMA, str(source), place / "tpch.yaml", (EPSILON,), DELTA, 20.0, 1e-7, state=place / "state")
    case = Case.of(
        spec,
        lambda given, rows: {
            "queries": Workload.of(QUERIES.values()),
            "joins": generate_workload(given.schema, rows, Recipe(queries=100, max_joins=4, max_predicates=3, seed=1)),
        },
    )
    return _of_case(server, place, case)


def _saas(server: PostgresServer, place: Path, data: Path | None) -> Prepared:
    del data
    database, source, others = OPERATIONAL["saas"], new_database(server, SOURCE), ("copy", "plain")
    database.make(server, source)
    copy, plain = (new_database(server, each) for each in others)
    hour = go_through(database, place, source, copy, server.programs / "psql", plain)
    if not hour.went_through:
        raise PrivbenchError(f"saas: {hour.refused}")
    queries = (SQL / "saas_queries.sql").read_text(encoding="utf-8").split(";\n")
    return Prepared(source, place / "bundle", [query for query in queries if query.strip()])


DATABASES: dict[str, Callable[[PostgresServer, Path, Path | None], Prepared]] = {
    "stats": _stats,
    "tpch": _tpch,
    "saas": _saas,
}
