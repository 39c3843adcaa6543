"""Seconds and memory as tables grow: rows, columns, sizes of domains, and two tables as large as JOB-light's.

Each figure is that of a process of its own, which makes its data (or reads it, for the two tables) and then runs the
profile, model, fanout and sample steps of a plan with real noise.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import subject
from benchmarks.measure import call_in_child, peak_mb
from benchmarks.report import Row, machine, markdown
from privbench_core.privacy.budget import Budget
from privbench_core.privacy.door import open_door
from privbench_core.privacy.ledger import Ledger
from privbench_core.privacy.noise import OpenDPNoise
from privbench_core.privacy.relations import PrivateDatabase
from privbench_core.schema.model.columns import Column, ColumnType, Range, Values
from privbench_core.schema.model.constraints import ForeignKey
from privbench_core.schema.model.tables import Schema, Table
from privbench_core.source.folder import FolderSource
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Key, StepContext, StepKind
from privbench_core.synthesizers.privbench import PrivBench

EPSILON, DELTA = 0.8, 1e-9
ROWS = (10_000, 100_000, 1_000_000, 10_000_000)
COLUMNS = (5, 15, 50, 200)
SIZES = (2, 10, 100, 1000)
TITLES, CASTS = 2_280_000, 35_800_000
_MAX_CASTS = 200
_LEARNING = (StepKind.PROFILE, StepKind.MODEL, StepKind.FANOUT)


def run(*, progress: Callable[[str], None] = print) -> str:
    """Measure and return the Markdown text for the README."""
    shapes = [(rows, 10, 20) for rows in ROWS] + [(100_000, columns, 20) for columns in COLUMNS]
    shapes += [(100_000, 10, size) for size in SIZES]
    grown: list[Row] = []
    for rows, columns, size in dict.fromkeys(shapes):
        progress(f"scale: {rows:,} rows, {columns} columns of {size} codes")
        arguments = {"rows": rows, "columns": columns, "size": size}
        (learn, sample), peak = call_in_child("benchmarks.scale:grow", arguments)
        figures = {"learn s": learn, "sample s": sample, "peak MB": peak}
        grown.append({"rows": f"{rows:,}", "columns": str(columns), "codes": str(size), **figures})
    progress(f"scale: two tables, {TITLES:,} and about {CASTS:,} rows")
    with TemporaryDirectory() as folder:
        call_in_child("benchmarks.scale:write_star", {"folder": folder, "titles": TITLES, "casts": CASTS})
        phases, peak = call_in_child("benchmarks.scale:star", {"folder": folder})
    steps = [name for name in phases if name != "read"]
    whole = {"phase": "learn and sample", "s": sum(phases[name]["s"] for name in steps), "peak MB so far": peak}
    table = markdown([*({"phase": name, **figures} for name, figures in phases.items()), whole])
    return f"{machine(1)}\n\n{markdown(grown)}\n\nTwo tables of the size of JOB-light's:\n\n{table}"


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


def write_star(folder: str, titles: int, casts: int) -> int:
    """Parquet files of `star_schema` with ``titles`` and about ``casts`` rows; returns the latter."""
    rng = np.random.default_rng(0)
    kind = rng.choice(7, titles, p=[0.4, 0.25, 0.15, 0.1, 0.05, 0.03, 0.02])
    year = np.clip(2019 - rng.exponential(20, titles), 1880, 2019).astype(np.int64)
    season = np.where(kind < 3, rng.integers(0, 50, titles), 0)
    films = {"id": np.arange(titles), "kind": kind, "year": year, "season": season}
    pq.write_table(pa.table(films), Path(folder) / "title.parquet")
    numbers = np.minimum(rng.geometric(1 / (casts / titles + 1), titles) - 1, _MAX_CASTS)
    owners = np.repeat(np.arange(titles), numbers)
    rows = len(owners)
    role = (kind[owners] + rng.geometric(0.4, rows)) % 12
    person = (year[owners] - 1880) // 4 + rng.integers(0, 5, rows)
    people = {"role": role, "nr": np.minimum(rng.geometric(0.05, rows), 1000), "person": person}
    pq.write_table(pa.table({"id": np.arange(rows), "title_id": owners, **people}), Path(folder) / "cast_info.parquet")
    return rows


def star(folder: str) -> dict[str, dict[str, float]]:
    """Phase -> seconds, and peak memory until its end, of learning and sampling the tables of a folder."""
    schema = star_schema()
    phases: dict[str, dict[str, float]] = {}
    start = perf_counter()

    def done_with(phase: str) -> None:
        nonlocal start
        phases[phase] = {"s": perf_counter() - start, "peak MB so far": peak_mb()}
        start = perf_counter()

    plan = PrivBench().plan(schema, Budget(EPSILON, DELTA), {})
    done: dict[Key, Artifact] = {}

    def learn() -> None:
        source = FolderSource(Path(folder))
        private = PrivateDatabase(schema, {table.name: source.read(table) for table in schema.tables}, bytes(16))
        done_with("read")
        ledger = Ledger(":memory:", schema.name, "one title", Budget(EPSILON, DELTA * 4))
        for step in plan.steps:
            if step.kind in _LEARNING:
                name = " ".join(step.key)
                door, _ = open_door(
                    private, ledger, OpenDPNoise(), release=name, step=name, run="benchmark", price=step.price
                )
                done[step.key] = step.run(StepContext({key: done[key] for key in step.inputs}, door, {}, 0))
                done_with(name)

    learn()  # the private rows go with it, as in a run
    for step in plan.steps:
        if step.kind is StepKind.SAMPLE:
            done[step.key] = step.run(StepContext({key: done[key] for key in step.inputs}, None, {}, 0))
            done_with(" ".join(step.key))
    return phases
