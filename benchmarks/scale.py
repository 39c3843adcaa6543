"""Seconds and memory of large databases: JOB-light's sizes, slopes, a small table, engines, and rows drawn.

Each figure is that of a process of its own. Tables are written as Parquet, and then run as `privbench run` runs them:
read, fingerprints, integrity of the source, all steps of the plan, stored results, validation, bundle. Engines count
JOB-light's two tables, and TPC-H in PostgreSQL.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import tpch
from benchmarks.measure import call_in_child, children, disk_growth, peak_mb, reset_peak
from benchmarks.report import Row, machine, markdown, medians
from benchmarks.scale_tables import schema_of
from privbench_core.backends.postgres.temporary import temporary_postgres
from privbench_core.pipeline import plan_for
from privbench_core.pipeline.executor import Executor, run_spec
from privbench_core.pipeline.runner import Run, Runner
from privbench_core.pipeline.workspace import Workspace
from privbench_core.spec.model import DEFAULT_ENGINE, ENGINES, FidelityPolicy, Spec, VersionQuery
from privbench_core.synthesizers.contract import Key, Plan, Step, StepKind

EPSILON, DELTA = 0.8, 1e-9
SEEDS = 3
TITLES, CASTS = 2_280_000, 35_800_000
SHARE, SMALLEST = 0.1, 0.01  # of these two
GRID = {
    "rows": (400_000, 200_000, 800_000),
    "columns": (5, 10, 20),
    "tables": (1, 2, 4),
    "keys": (0, 1, 2),
    "units": (40_000, 10_000, 80_000),
}  # sizes of `scale_tables.grid_schema`: the base first
SMALL = {"rows": 0, "columns": 4, "tables": 0, "keys": 0, "units": 60}
DRAWN = (4_000_000, 16_000_000)
ROWS_OUT = (1_000_000, 10_000_000, 36_000_000, 100_000_000)
ROWS_OUT_OF = ("star", "two parents")
WHOLE_ROWS = (36_000_000,)
WHOLE_ENGINES = ("memory", "duckdb")
COUNTING = tuple(engine for engine in ENGINES if engine != DEFAULT_ENGINE)  # that is one of the others
COUNTED = ("memory", "duckdb", "spark")
ENGINE_ROWS = (1_000_000, 10_000_000, 36_000_000)
CLUSTER = "PRIVBENCH_CLUSTER"  # environment variable with the URL of a Spark Connect, see deploy/spark
_LOADED = 1 << 20  # rows loaded at a time
_READ = "read, fingerprint"
_ROWS_OUT = ("sample", "validate", "publish")
_PEAKS = {"the process": "peak MB", "a child": "peak MB of a child"}
_PAID = ("read", "count", "profile", "model", "fanout", "fidelity")
_UNIT = {"rows": 1_000_000, "units": 1000}


def run(seeds: int = SEEDS, *, progress: Callable[[str], None] = print) -> str:
    """Measure all of it at sizes that take a few minutes, and return Markdown text.

    Args:
        seeds: Runs whose medians are shown.
        progress: Told what is going on.
    """
    grid, names = [(engine, shape) for shape in _shapes() for engine in WHOLE_ENGINES], list(GRID)
    measured = [_measure_grid(engine, shape, progress) for engine, shape in grid]
    slopes = []
    for engine in WHOLE_ENGINES:
        of = [(shape, found) for (each, shape), found in zip(grid, measured, strict=True) if each == engine]
        design = np.array([[1.0, *(shape[name] / _UNIT.get(name, 1) for name in names)] for shape, _ in of])
        fitted = {name: np.linalg.lstsq(design, [found[name] for _, found in of])[0] for name in of[0][1]}
        labels = ["at zero", *(f"{_UNIT[name]:,} {name}" if name in _UNIT else name for name in names)]
        slopes += [
            {"engine": engine, "per": label, **{name: line[place] for name, line in fitted.items()}}
            for place, label in enumerate(labels)
        ]
    small: list[Row] = [{"tables": "1", **_measure_grid(DEFAULT_ENGINE, SMALL, progress)} for _ in range(seeds)]
    stages = _job_light(seeds, progress)
    paid = sum(float(of["s"]) for of in stages if str(of["stage"]).startswith(_PAID))
    drawn = [_draw(rows, progress) for rows in DRAWN]
    (least, first), (most, second) = ((rows, found["s"]) for rows, found in zip(DRAWN, drawn, strict=True))
    per_row = (second - first) / (most - least)
    counted = run_engines((CASTS * SHARE,), COUNTED, progress=progress).splitlines()[2:]
    return f"""{machine(seeds)} Memory is that of the process, and of the largest of those that it starts.

JOB-light's sizes ({TITLES:,} parents, {CASTS:,} children), from Parquet to a bundle without CSV, default engine:

{markdown(stages)}

Until the last paid step {paid:,.0f} s; in proportion {paid * 3.6e8 / CASTS:,.0f} s for 360 million children
(extrapolated; `engines --rows 3.6e8` measures).

Least squares over runs of the whole pipeline, one number changed at a time from {GRID}:

{markdown(slopes)}

A table of 60 rows, the whole process:

{markdown(medians(small, ["tables"]))}

Counting by the engines (the paid steps alone):

{chr(10).join(counted)}

Rows drawn from the models of a hundredth of these tables:

{markdown(drawn)}

By these two, 10^9 rows would take {second + per_row * (1e9 - most):,.0f} s (extrapolated; `rows_out --rows 1e9
--no-bundle` measures).
"""


def _shapes() -> list[dict[str, int]]:
    """Return the sizes of the grid: the base, and others that differ from it in one number."""
    changed = [{name: value} for name, values in GRID.items() for value in values[1:]]
    return [{name: values[0] for name, values in GRID.items()} | change for change in ({}, *changed)]


def _measure_grid(engine: str, shape: dict[str, int], progress: Callable[[str], None]) -> dict[str, float]:
    """Return seconds and memory of a process that runs the whole pipeline on tables of a shape."""
    progress(f"scale: engine {engine}, {', '.join(f'{number:,} {name}' for name, number in shape.items())}")
    with TemporaryDirectory() as folder:
        call_in_child("benchmarks.scale_tables:write_grid", {"folder": folder, **shape})
        database = f"grid {shape['columns']} {shape['tables']} {shape['keys']}"
        start = perf_counter()
        arguments = {"folder": folder, "database": database, "engine": engine, "csv": False}
        stages: dict[str, dict[str, float]] = call_in_child("benchmarks.scale:pipeline", arguments)[0]
        return _totals(stages) | {"s": perf_counter() - start}


def _job_light(seeds: int, progress: Callable[[str], None]) -> Sequence[Row]:
    """Return the medians of the stages of some runs, and those of the whole runs last."""
    found: list[Row] = []
    with TemporaryDirectory() as folder:
        call_in_child("benchmarks.scale_tables:write_star", {"folder": folder, "titles": TITLES, "casts": CASTS})
        for run in range(seeds):
            progress(f"scale: JOB-light's sizes, run {run + 1}")
            stages = call_in_child("benchmarks.scale:pipeline", {"folder": folder, "csv": False})[0]
            found += [{"stage": stage, **figures} for stage, figures in stages.items()]
            found.append({"stage": "all", **_totals(stages)})
            for made in ("state", "bundle"):
                rmtree(Path(folder) / made)
    return medians(found, ["stage"])


def _draw(rows: float, progress: Callable[[str], None]) -> dict[str, float]:
    """Return seconds and memory of drawing rows."""
    progress(f"scale: {rows:,.0f} rows drawn")
    titles, casts = round(TITLES * SMALLEST), round(CASTS * SMALLEST)
    stages = measure_pipeline(titles, casts, rows / casts, publish=False)
    out = {name: of for name, of in stages.items() if name.startswith("sample")}
    return {"rows": rows, **_totals(out)}


def _totals(stages: dict[str, dict[str, float]]) -> dict[str, float]:
    """Return the seconds of all stages, and the peaks of memory."""
    seconds = {name: sum(of[name] for of in stages.values()) for name in ("s", "CPU s")}
    return seconds | {name: max(of[name] for of in stages.values()) for name in _PEAKS.values()}


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
    titles, casts = round(TITLES * SMALLEST), round(CASTS * SMALLEST)
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
                call_in_child("benchmarks.scale_tables:write_star", sizes)
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
        call_in_child("benchmarks.scale_tables:write_star", {"folder": folder, "titles": titles, "casts": casts})
        arguments = {"folder": folder, "scale": scale, "database": database, **how}
        stages: dict[str, dict[str, float]] = call_in_child("benchmarks.scale:pipeline", arguments)[0]
    return stages


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
    spec = Spec(
        *(schema_of(database), folder, place / "spec.yaml", (EPSILON,), DELTA, 20.0, 1e-7),
        state=place / "state",
        fidelity=FidelityPolicy(accept_noise=True),  # of small tables much is noise
        engine=engine,
    )
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
