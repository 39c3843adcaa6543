"""How long `privbench evaluate` takes and how much memory: Adult with the SAM workload, stats with random joins."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import stats
from benchmarks.data import ADULT, Bins, data_folder, read_table
from benchmarks.measure import call_in_child
from benchmarks.report import machine, markdown
from privbench_core.schema.columns import Column, ColumnType, Range, Values
from privbench_core.schema.tables import Schema, Table
from privbench_core.spec.model import Spec

_EPSILON = 3.2


def run(data: Path | None = None, *, progress: Callable[[str], None] = print) -> str:
    """Evaluate one bundle of each database, whole: marginals of 1 to 4 columns, workload, attack, report."""
    folder = data_folder(data)
    rows: list[dict[str, str | float]] = []
    for name in ("adult", "stats"):
        progress(f"evaluation: {name}")
        (seconds, cpu), peak = call_in_child(f"benchmarks.evaluation:{name}_seconds", {"data": str(folder)})
        rows.append({"database": name, "evaluate s": seconds, "CPU s": cpu, "peak MB": peak})
    return f"{machine(1)}\n\n{markdown(rows)}"


def adult_seconds(data: str) -> list[float]:
    """Seconds, and CPU seconds, to evaluate a bundle of Adult with the 1,000 queries of the SAM workload."""
    with TemporaryDirectory() as place:
        spec = adult_spec(read_table(Path(data) / "adult", "adult_clean"), Path(place))
        return _seconds(spec, Path(place), Path(data) / "adult" / "sam_census_test.json")


def adult_spec(rows: pa.Table, here: Path) -> Spec:
    """Write rows of Adult below ``here``, each a unit; returns the spec."""
    source = here / "source"
    source.mkdir()
    numbered = rows.append_column("id", [np.arange(rows.num_rows)])  # last: the workload names columns by position
    pq.write_table(numbered, source / "adult.parquet")
    columns = (*map(_column, ADULT), Column("id", ColumnType.INTEGER))
    schema = Schema("adult", (Table("adult", columns, ("id",)),), "adult")
    return Spec(
        schema=schema,
        source=str(source),
        path=here / "spec.yaml",
        epsilons=(_EPSILON,),
        delta=1e-9,
        lifetime_epsilon=100,
        lifetime_delta=1e-6,
        state=here / "state",
    )


def stats_seconds(data: str) -> list[float]:
    """Seconds, and CPU seconds, to evaluate a bundle of stats with 200 random queries."""
    with TemporaryDirectory() as place:
        here, source = Path(place), Path(place) / "source"
        source.mkdir()
        stats.prepare(Path(data) / "stats", source)
        return _seconds(stats.spec(source, here), here, None)


def _seconds(spec: Spec, here: Path, workload: Path | None) -> list[float]:
    from privbench_core.evaluation.evaluation import evaluate_bundle
    from privbench_core.pipeline.executor import run_spec
    from privbench_core.pipeline.rehearsal import rehearsal_of  # the parent only starts processes
    from privbench_core.report import write_report

    run_spec(spec, _EPSILON, out=here / "bundle")
    start, before = time.perf_counter(), _cpu()
    rehearsal = rehearsal_of(spec, here / "bundle")
    write_report(evaluate_bundle(spec, here / "bundle", workload=workload, rehearse=rehearsal), here / "report")
    return [time.perf_counter() - start, _cpu() - before]


def _cpu() -> float:
    """CPU seconds of this process and of those that it has waited for."""
    return sum(os.times()[:4])


def _column(name: str) -> Column:
    kind = ADULT[name]
    if isinstance(kind, Bins):
        domain = Range(kind.low, kind.low + kind.width * kind.size - 1, kind.size)
        return Column(name, ColumnType.INTEGER, domain)
    return Column(name, ColumnType.CATEGORY, Values(kind.values))
