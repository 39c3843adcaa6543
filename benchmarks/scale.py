"""Seconds and memory as tables grow: rows, columns, sizes of domains; and the whole pipeline on JOB-light's sizes.

Each figure is that of a process of its own. Single tables are made in it, learned and sampled with real noise. Two
tables are written as Parquet, and then run as `privbench run` runs them: read, fingerprints, integrity of the source,
all steps of the plan, stored results, validation, bundle. Engines count the same two tables, and TPC-H in PostgreSQL.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import subject, tpch
from benchmarks.measure import call_in_child, children, disk_growth, peak_mb, reset_peak
from benchmarks.report import Row, machine, markdown
from privbench_core.backends.postgres.temporary import temporary_postgres
from privbench_core.pipeline.executor import Executor
from privbench_core.pipeline.plans import plan_for
from privbench_core.pipeline.run import run_spec
from privbench_core.pipeline.runner import Run, Runner
from privbench_core.pipeline.workspace import Workspace
from privbench_core.schema.columns import Column, ColumnType, Range, Values
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.spec.model import DEFAULT_ENGINE, ENGINES, Spec, VersionQuery
from privbench_core.synthesizers.contract import Key, Plan, Step, StepKind

EPSILON, DELTA = 0.8, 1e-9
ROWS = (10_000, 100_000, 1_000_000, 10_000_000)
COLUMNS = (5, 15, 50, 200)
SIZES = (2, 10, 100, 1000)
TITLES, CASTS = 2_280_000, 35_800_000
_MAX_CASTS = 200
_MAX_REVIEWS = 2  # of a film
_MAX_CITED = 20  # rows that refer to one review
SHARES = (0.01, 0.1, 1.0)  # of these two
ROWS_OUT = (1_000_000, 10_000_000, 36_000_000, 100_000_000)
ROWS_OUT_OF = ("star", "two parents")
WHOLE_ROWS = (36_000_000,)
WHOLE_ENGINES = ("memory", "duckdb")
COUNTING = tuple(engine for engine in ENGINES if engine != DEFAULT_ENGINE)  # that is one of the others
ENGINE_ROWS = (1_000_000, 10_000_000, 36_000_000)
CLUSTER = "PRIVBENCH_CLUSTER"  # environment variable with the URL of a Spark Connect, see deploy/spark
_ROWS_A_BLOCK = 1 << 21  # of the larger table, made at a time
_LOADED = 1 << 20  # rows loaded at a time
_READ = "read, fingerprint"
_ROWS_OUT = ("sample", "validate", "publish")
_PEAKS = {"the process": "peak MB", "a child": "peak MB of a child"}
_LEARN_AND_SAMPLE = ("count", "profile", "model", "fanout", "sample")


def run(*, progress: Callable[[str], None] = print) -> str:
    """Measure and return Markdown text."""
    shapes = [(rows, 10, 20) for rows in ROWS] + [(100_000, columns, 20) for columns in COLUMNS]
    shapes += [(100_000, 10, size) for size in SIZES]
    grown: list[Row] = []
    for rows, columns, size in dict.fromkeys(shapes):
        progress(f"scale: {rows:,} rows, {columns} columns of {size} codes")
        arguments = {"rows": rows, "columns": columns, "size": size}
        (learn, sample), peak = call_in_child("benchmarks.scale:grow", arguments)
        figures = {"learn s": learn, "sample s": sample, "peak MB": peak}
        grown.append({"rows": f"{rows:,}", "columns": str(columns), "codes": str(size), **figures})
    whole: list[Row] = []
    for share in SHARES:
        titles, casts = round(TITLES * share), round(CASTS * share)
        progress(f"scale: the whole pipeline on two tables, {titles:,} and about {casts:,.0f} rows")
        stages = measure_pipeline(titles, casts)
        learn_and_sample = sum(of["s"] for stage, of in stages.items() if stage.startswith(_LEARN_AND_SAMPLE))
        figures = {name: sum(of[name] for of in stages.values()) for name in ("s", "CPU s")}
        peak = max(of["peak MB"] for of in stages.values())
        sizes = {"parents": f"{titles:,}", "children": f"{casts:,.0f}", "learn and sample s": learn_and_sample}
        whole.append({**sizes, "whole pipeline s": figures["s"], "CPU s": figures["CPU s"], "peak MB": peak})
    by_stage = markdown([{"stage": stage, **figures} for stage, figures in stages.items()])
    return (
        f"{machine(1)}\n\n{markdown(grown)}\n\nThe whole pipeline, two tables:\n\n{markdown(whole)}\n\n"
        f"The largest of them by stage:\n\n{by_stage}"
    )


def run_rows_out(
    rows: Sequence[float] = ROWS_OUT,
    databases: Sequence[str] = ROWS_OUT_OF,
    *,
    csv: bool = True,
    publish: bool = True,
    progress: Callable[[str], None] = print,
) -> str:
    """Measure how drawing, checking and writing grow with the rows of the synthetic database; text for the README.

    A hundredth of the tables is learned; ``scale`` makes as many rows of it as asked for.

    Args:
        rows: Of the largest synthetic table.
        databases: Names for `schema_of`.
        csv: Whether bundles have their rows as CSV, too.
        publish: Whether rows are checked and published at all, or drawn only.
        progress: Told what is going on.
    """
    found: list[Row] = []
    titles, casts = round(TITLES * SHARES[0]), round(CASTS * SHARES[0])
    for wanted, database in product(rows, databases):
        progress(f"scale: {wanted:,.0f} rows out of {database}")
        stages = measure_pipeline(titles, casts, wanted / casts, database, csv=csv, publish=publish)
        out = [of for stage, of in stages.items() if stage.startswith(_ROWS_OUT)]
        peaks = {f"peak MB, {which}": max(of[name] for of in out) for which, name in _PEAKS.items()}
        found.append(
            {
                "database": database,
                "rows": f"{wanted:,.0f}",
                **_seconds_out(stages),
                "CPU s": sum(of["CPU s"] for of in out),
                **peaks,
            }
        )
    return f"{machine(1)}\n\n{markdown(found)}"


def run_engines(
    rows: Sequence[float] = ENGINE_ROWS,
    engines: Sequence[str] = COUNTING,
    tpch_scales: Sequence[float] = (),
    *,
    progress: Callable[[str], None] = print,
) -> str:
    """Count with some engines, and TPC-H with the source's own; return Markdown text."""
    found: list[Row] = []

    def counted(database: str, size: str, folder: str, source: str, engine: str) -> None:
        where = {"folder": folder, "source": source, "engine": engine, "database": database}
        with disk_growth(Path(folder), server.folder) as growth:
            (wall, cores), peak = call_in_child("benchmarks.scale:count", where)
        disk = growth() / 1e9
        progress(f"engines: {size}, engine {engine}: {wall:.0f} s, {cores:.0f} CPU s, {peak:,.0f} MB, {disk:.1f} GB")
        figures = {"s": wall, "CPU s of the client": cores, "peak MB of the client": peak, "peak GB on disk": disk}
        found.append({"rows": size, "engine": engine, **figures})

    with temporary_postgres() as server:
        for casts in rows:
            with TemporaryDirectory() as folder:
                sizes = {"folder": folder, "titles": round(casts * TITLES / CASTS), "casts": round(casts)}
                call_in_child("benchmarks.scale:write_star", sizes)
                if "source" in engines:
                    call_in_child("benchmarks.scale:load", {"folder": folder, "url": server.url, "database": "star"})
                for engine in (each for each in engines if each != "spark" or CLUSTER in os.environ):
                    counted("star", f"{casts:,.0f}", folder, server.url if engine == "source" else folder, engine)
        for scale in tpch_scales:
            with TemporaryDirectory() as folder:
                tpch.generate_plain(Path(folder), scale)
                call_in_child("benchmarks.scale:load", {"folder": folder, "url": server.url, "database": "tpch"})
                counted("tpch", f"TPC-H {scale:g}", folder, server.url, "source")
    return f"{machine(1)}\n\n{markdown(found)}"


def run_whole(
    rows: Sequence[float] = WHOLE_ROWS,
    engines: Sequence[str] = WHOLE_ENGINES,
    *,
    csv: bool = True,
    progress: Callable[[str], None] = print,
) -> str:
    """Measure from Parquet files to a bundle of as many rows, with some engines; return the Markdown text.

    Args:
        rows: Of the larger table.
        engines: Names.
        csv: Whether bundles have their rows as CSV, too.
        progress: Told what is going on.
    """
    found: list[Row] = []
    for casts, engine in product(rows, engines):
        progress(f"scale: {casts:,.0f} rows, from Parquet to a bundle, engine {engine}")
        stages = measure_pipeline(round(casts * TITLES / CASTS), round(casts), csv=csv, engine=engine)
        out = _seconds_out(stages)
        figures = {name: sum(of[name] for of in stages.values()) for name in ("s", "CPU s")}
        figures |= {"count and learn s": figures["s"] - sum(out.values())} | out
        figures |= {f"peak MB, {which}": max(of[name] for of in stages.values()) for which, name in _PEAKS.items()}
        found.append({"rows": f"{casts:,.0f}", "engine": engine, "CSV": "yes" if csv else "no", **figures})
    return f"{machine(1)}\n\n{markdown(found)}"


def _seconds_out(stages: dict[str, dict[str, float]]) -> dict[str, float]:
    """Seconds of drawing, checking and writing rows."""
    return {f"{kind} s": sum(of["s"] for name, of in stages.items() if name.startswith(kind)) for kind in _ROWS_OUT}


def schema_of(database: str) -> Schema:
    """The tables that are counted or drawn, by a name: ``star``, ``two parents`` or ``tpch``."""
    return {"star": star_schema, "two parents": two_parents_schema}.get(database, lambda: tpch.SCHEMA)()


def load(folder: str, url: str, database: str) -> None:
    """Load the Parquet files of a folder into a PostgreSQL, in place of those that are there."""
    import adbc_driver_postgresql.dbapi as adbc

    with adbc.connect(url) as connection, connection.cursor() as cursor:
        for table in schema_of(database).tables:
            with pq.ParquetFile(Path(folder) / f"{table.name}.parquet") as file:
                plain = tpch.without_views(file.schema_arrow)
                parts = (batch.cast(plain) for batch in file.iter_batches(_LOADED))
                cursor.adbc_ingest(table.name, pa.RecordBatchReader.from_batches(plain, parts), mode="replace")
        connection.commit()


def count(folder: str, source: str, engine: str, database: str) -> tuple[float, float]:
    """Seconds, and those of all cores of this process, until the last paid step of a plan has released its numbers.

    Whether a table has changed is found by the number of its rows where the rows are in PostgreSQL, by its content in
    files: what an owner of large tables would choose.
    """
    schema, state = schema_of(database), Path(folder) / f"state-{engine}"
    changes = {}
    if engine == "source":
        changes = {t.name: VersionQuery(f"SELECT count(*) FROM {t.name}") for t in schema.private_tables}
    spec = Spec(
        *(schema, source, Path(folder) / "spec.yaml", (EPSILON,), DELTA, 20.0, 1e-7),
        state=state,
        changes=changes,
        engine=engine,
        cluster=f"${{{CLUSTER}}}" if engine == "spark" else None,
    )
    plan = plan_for(spec, EPSILON)
    workspace = Workspace(spec)
    runner = Runner(workspace, plan, Run("scale"))
    needed = _with_inputs(plan)
    start, cores = perf_counter(), process_time()
    Executor(runner, needed).run()
    figures = perf_counter() - start, process_time() - cores
    runner.snapshot.forget()
    workspace.close()
    return figures


def measure_pipeline(
    titles: int, casts: int, scale: float = 1.0, database: str = "star", **how: bool | str
) -> dict[str, dict[str, float]]:
    """`pipeline` of new tables of that size, in a process of its own; ``how`` are arguments of it."""
    with TemporaryDirectory() as folder:
        call_in_child("benchmarks.scale:write_star", {"folder": folder, "titles": titles, "casts": casts})
        arguments = {"folder": folder, "scale": scale, "database": database, **how}
        stages: dict[str, dict[str, float]] = call_in_child("benchmarks.scale:pipeline", arguments)[0]
    return stages


def grow(rows: int, columns: int, size: int) -> tuple[float, float]:
    """Seconds to learn and to sample a table in which each column depends on the one before it."""
    rng = np.random.default_rng(0)
    codes = np.empty((rows, columns), dtype=np.int16)
    codes[:, 0] = rng.integers(0, size, rows)
    for column in range(1, columns):
        codes[:, column] = (codes[:, column - 1] + rng.binomial(max(1, size // 4), 0.3, rows)) % size
    ordered = [column % 2 == 0 for column in range(columns)]
    return subject.fit_sample(codes, [size] * columns, ordered, EPSILON, DELTA, 0)[1:]


def star_schema() -> Schema:
    """Films and who took part in them: each row of the second table belongs to one of the first."""
    whole = ColumnType.INTEGER
    title = Table(
        "title",
        (
            Column("id", whole),
            Column("kind", whole, Values(tuple(range(7)))),
            Column("year", whole, Range(1880, 2019)),
            Column("season", whole, Range(0, 49)),
        ),
        ("id",),
    )
    key = ForeignKey("cast_info", ("title_id",), "title", ("id",), owner=True, max_children=_MAX_CASTS)
    cast = Table(
        "cast_info",
        (
            Column("id", whole),
            Column("title_id", whole),
            Column("role", whole, Values(tuple(range(12)))),
            Column("nr", whole, Range(1, 1000, 100)),
            Column("person", whole, Range(0, 39)),
        ),
        ("id",),
        (key,),
    )
    return Schema("star", (title, cast), "title")


def two_parents_schema() -> Schema:
    """The same, where each row of the second table refers to a review as well, which belongs to a film, too."""
    whole, star = ColumnType.INTEGER, star_schema()
    owner = ForeignKey("review", ("title_id",), "title", ("id",), owner=True, max_children=_MAX_REVIEWS)
    columns = (Column("id", whole), Column("title_id", whole), Column("stars", whole, Values(tuple(range(5)))))
    review = Table("review", columns, ("id",), (owner,))
    cast = star.table("cast_info")
    key = ForeignKey("cast_info", ("review_id",), "review", ("id",), max_children=_MAX_CITED)
    cast = replace(cast, columns=(*cast.columns, Column("review_id", whole)), foreign_keys=(*cast.foreign_keys, key))
    return Schema("two parents", (star.table("title"), review, cast), "title")


def write_star(folder: str, titles: int, casts: int) -> int:
    """Parquet files of `two_parents_schema`, and so of `star_schema`, made in blocks.

    Args:
        folder: For the files.
        titles: Rows of the first table.
        casts: About as many of the larger one.

    Returns:
        As many as there are.
    """
    rng, rows = np.random.default_rng(0), 0
    block = max(1, round(_ROWS_A_BLOCK * titles / casts))
    with ExitStack() as files:
        writers: dict[str, pq.ParquetWriter] = {}
        for first in range(0, titles, block):
            made = _star_block(rng, first, min(block, titles - first), casts / titles, rows)
            for name, table in made.items():
                if name not in writers:
                    path = Path(folder) / f"{name}.parquet"
                    writers[name] = files.enter_context(pq.ParquetWriter(path, table.schema))
                writers[name].write_table(table)
            rows += made["cast_info"].num_rows
    return rows


def _star_block(rng: np.random.Generator, first: int, titles: int, mean: float, first_cast: int) -> dict[str, pa.Table]:
    """Some titles and their casts, ``mean`` each, with numbers from ``first`` and ``first_cast`` on."""
    kind = rng.choice(7, titles, p=[0.4, 0.25, 0.15, 0.1, 0.05, 0.03, 0.02])
    year = np.clip(2019 - rng.exponential(20, titles), 1880, 2019).astype(np.int64)
    season = np.where(kind < 3, rng.integers(0, 50, titles), 0)
    films = {"id": first + np.arange(titles), "kind": kind, "year": year, "season": season}
    numbers = np.minimum(rng.geometric(1 / (mean + 1), titles) - 1, _MAX_CASTS)
    owners = np.repeat(np.arange(titles), numbers)
    rows = len(owners)
    role = (kind[owners] + rng.geometric(0.4, rows)) % 12
    person = (year[owners] - 1880) // 4 + rng.integers(0, 5, rows)
    people = {"role": role, "nr": np.minimum(rng.geometric(0.05, rows), 1000), "person": person}
    wide = titles * _MAX_REVIEWS
    stars = np.arange(wide) % 5
    cited = (wide * rng.random(rows) ** 1.1).astype(np.int64)  # some of them more often, by roles of their stars
    cited = np.minimum(cited - cited % 5 + role % 5, wide - 1)
    reviews = {"id": first * _MAX_REVIEWS + np.arange(wide), "title_id": first + np.arange(wide) // _MAX_REVIEWS}
    casts = {"id": first_cast + np.arange(rows), "title_id": first + owners, **people}
    casts["review_id"] = first * _MAX_REVIEWS + cited
    return {"title": pa.table(films), "review": pa.table({**reviews, "stars": stars}), "cast_info": pa.table(casts)}


def pipeline(
    folder: str,
    scale: float = 1.0,
    database: str = "star",
    *,
    csv: bool = True,
    publish: bool = True,
    engine: str = DEFAULT_ENGINE,
) -> dict[str, dict[str, float]]:
    """Stage -> seconds, those of all cores together, and peak memory, of a whole run on the tables of a folder.

    Memory is that of the process, and of the largest of those that it starts. Without ``publish``, the run ends when
    all rows are drawn.
    """
    place = Path(folder)
    accounts = (EPSILON,), DELTA, 20.0, 1e-7
    spec = Spec(schema_of(database), folder, place / "spec.yaml", *accounts, state=place / "state", engine=engine)
    stages: dict[str, dict[str, float]] = {}
    stage, start = _READ, (perf_counter(), _cpu_time())

    def done() -> None:
        wall, cores = start
        figures = {"s": perf_counter() - wall, "CPU s": _cpu_time() - cores, "peak MB": peak_mb()}
        stages[stage] = figures | {"peak MB of a child": max((mb for _, mb in children().values()), default=0.0)}

    def next_stage(_number: int, _steps: int, step: Step) -> None:
        nonlocal stage, start
        done()
        reset_peak()
        stage, start = " ".join(step.key), (perf_counter(), _cpu_time())

    if publish:
        run_spec(spec, EPSILON, out=place / "bundle", scale=scale, csv=csv, progress=next_stage)
    else:
        plan = plan_for(spec, EPSILON)
        workspace = Workspace(spec)
        runner = Runner(workspace, plan, Run("scale", scale=scale))
        Executor(runner, _with_inputs(plan, StepKind.SAMPLE)).run(progress=next_stage)
        workspace.close()
    done()
    return stages


def _with_inputs(plan: Plan, kind: StepKind | None = None) -> set[Key]:
    """The steps of a kind, or those that read, and what these are made from."""
    needed = {step.key for step in plan.steps if (step.reads if kind is None else step.kind == kind)}
    for step in reversed(plan.steps):
        needed |= set(step.inputs) if step.key in needed else set()
    return needed


def _cpu_time() -> float:
    """Seconds of CPU time of this process and of its children, which stay."""
    return process_time() + sum(seconds for seconds, _ in children().values())
