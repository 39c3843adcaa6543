"""How fast is a database reflected, read, sampled and loaded? TPC-H, into PostgreSQL, through the pipeline, and back.

Every step is a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import psycopg
from sqlalchemy import make_url

from benchmarks.measure import call_in_child
from benchmarks.report import Row
from benchmarks.tpch import generate_plain
from benchmarks.tpch_schema import SCHEMA
from privbench_core.backends.postgres.temporary import temporary_postgres
from privbench_core.backends.registry import open_stored
from privbench_core.draft.draft import reflect
from privbench_core.pipeline.executor import run_spec
from privbench_core.publishing import load_bundle, read_bundle, write_bundle
from privbench_core.spec.load import dump_spec, load_spec
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Step

EPSILON = 3.2
DELTA = 1e-9


def tpch_spec(folder: Path, scale: float) -> Spec:
    """A spec in a new folder ``folder``, with TPC-H of that scale as its source.

    Raises:
        SourceError: TPC-H cannot be generated.
    """
    data = folder / "tpch"
    data.mkdir(parents=True)
    generate_plain(data, scale)
    path, state = folder / "tpch.yaml", folder / "state"
    spec = Spec(SCHEMA, str(data), path, (EPSILON,), DELTA, 20.0, 1e-7, state=state)
    path.write_text(dump_spec(spec), encoding="utf-8")
    return spec


def measure_speed(scale: float) -> list[Row]:
    """A row per step; rows per second are those of the step's own work."""
    with TemporaryDirectory() as name:
        spec = str(tpch_spec(Path(name), scale).path)
        call_in_child("benchmarks.speed:bundle_of_the_source", {"spec": spec})
        with _databases("source", "target") as (source, target):
            steps = (
                ("load the source", "load", {"url": source, "bundle": "original"}),
                ("reflect (catalogue only)", "draft", {"url": source}),
                ("read from PostgreSQL", "read", {"url": source}),
                ("sample (private tables)", "sample", {"url": source}),
                ("load the bundle, keys and indexes included", "load", {"url": target, "bundle": "bundle"}),
            )
            return [
                _row(step, *call_in_child(f"benchmarks.speed:{what}", {"spec": spec, **g})) for step, what, g in steps
            ]


def _row(step: str, found: tuple[int, float, float], peak: float) -> Row:
    rows, seconds, whole = found
    per_second = f"{rows / seconds:,.0f}" if rows else "-"
    more = {"seconds": seconds, "rows per second": per_second, "whole process s": whole, "peak MB": peak}
    return {"step": step, "rows": f"{rows:,}" if rows else "-", **more}


def bundle_of_the_source(spec: str) -> None:
    """The source's own rows as a bundle, to be loaded into PostgreSQL."""
    given = load_spec(spec)
    files = open_stored(given)
    rows = {table.name: files.read(table) for table in given.schema.tables}
    write_bundle(given.path.parent / "original", given.schema, rows, {})


def load(spec: str, url: str, bundle: str) -> tuple[int, float, float]:
    """Rows, seconds of the load, and the same of all that was done, which other steps tell apart."""
    return _timed(lambda: sum(load_bundle(Path(spec).parent / bundle, url).rows.values()))


def draft(spec: str, url: str) -> tuple[int, float, float]:
    """Seconds of `reflect`, which looks at no row."""
    name = load_spec(spec).schema.name

    def work() -> int:
        reflect(url, name)
        return 0

    return _timed(work)


def read(spec: str, url: str) -> tuple[int, float, float]:
    """Rows and seconds of reading all tables, one after the other."""
    given = replace(load_spec(spec), source=url)
    opened = open_stored(given)
    return _timed(lambda: sum(opened.read(table).num_rows for table in given.schema.tables))


def sample(spec: str, url: str) -> tuple[int, float, float]:
    """Rows of private tables, seconds of the sample steps, and seconds of the whole run."""
    given = replace(load_spec(spec), source=url)
    marks: list[tuple[str, float]] = [("start", perf_counter())]

    def note(_number: int, _of: int, step: Step) -> None:
        marks.append((step.kind.value, perf_counter()))

    out = given.path.parent / "bundle"
    result = run_spec(given, EPSILON, delta=DELTA, out=out, undeclared_epsilon=True, progress=note)
    marks.append(("end", perf_counter()))
    tables = read_bundle(result.out).manifest["tables"]
    rows = sum(int(tables[table.name]["rows"]) for table in given.schema.private_tables)
    sampling = sum(after - before for (kind, before), (_, after) in pairwise(marks) if kind == "sample")
    return rows, sampling, marks[-1][1] - marks[0][1]


def _timed(work: Callable[[], int]) -> tuple[int, float, float]:
    start = perf_counter()
    rows = work()
    seconds = perf_counter() - start
    return rows, seconds, seconds


@contextmanager
def _databases(*names: str) -> Iterator[tuple[str, ...]]:
    """URLs of new, empty databases on a PostgreSQL of our own."""
    with temporary_postgres() as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            for name in names:
                connection.execute(f"CREATE DATABASE {name}".encode())
        yield tuple(make_url(server.url).set(database=name).render_as_string() for name in names)
