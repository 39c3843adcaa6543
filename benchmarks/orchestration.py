"""How long Dagster takes to notice a change, to decide what follows from it, and to do it.

One process does what daemon and run workers do: the schedule's observation, the sensor's evaluation, and the runs it
asks for, on Dagster's own SQLite files. Starting processes, which another executor may do, is not in it.
"""

from __future__ import annotations

import logging
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measure import call_in_child
from benchmarks.report import Row, machine, markdown, medians
from privbench_core.schema.columns import Column, ColumnType, Range
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Spec

if TYPE_CHECKING:
    import dagster as dg

_EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "households"
_TABLES = 50
_ROWS = 200
_EPSILONS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
_ROUNDS = 3


def run(*, progress: Callable[[str], None] = print) -> str:
    """A wide database with many ε, then the example: seconds to observe, to decide and to refresh."""
    rows: list[Row] = []
    for name in ("wide", "example"):
        progress(f"orchestration: {name}")
        result, peak = call_in_child(f"benchmarks.orchestration:{name}", {})
        rows += [{**row, "peak MB": peak} for row in medians(result, ["database", "changed"])]
    return f"{machine(_ROUNDS)}\n\n{markdown(rows)}"


def wide() -> list[Row]:
    """One unit with 49 tables below it, at six ε: observation and decision with and without a change.

    That all steps were made before is written into the event log without making them, because what is decided depends
    on the log alone.
    """
    with TemporaryDirectory() as place:
        folder = Path(place)
        columns = (Column("id", ColumnType.INTEGER), Column("value", ColumnType.INTEGER, Range(0, 9)))
        names = [f"part_{number:02}" for number in range(1, _TABLES)]
        key = Column("owner", ColumnType.INTEGER)
        parts = [
            Table(name, (*columns, key), ("id",), (ForeignKey(name, ("owner",), "unit", ("id",), _ROWS, owner=True),))
            for name in names
        ]
        rng = np.random.default_rng(0)
        for table in ("unit", *names):
            rows = pa.table({name: rng.permutation(_ROWS) % 10 for name in ("value", "owner")})
            pq.write_table(rows.append_column("id", pa.array(range(_ROWS))), folder / f"{table}.parquet")
        schema = Schema("wide", (Table("unit", columns, ("id",)), *parts), "unit")
        spec = Spec(schema, str(folder), folder / "spec.yaml", _EPSILONS, 1e-9, 100.0, 1e-6, state=folder / "state")
        label = f"{_TABLES} tables x {len(_EPSILONS)} ε"
        return _timed(label, spec, folder / names[-1], folder / "home", _Operator.report)


def example() -> list[Row]:
    """The example at one ε: a change of the persons, from the observation to the bundle."""
    with TemporaryDirectory() as place:
        folder = Path(place) / "households"
        shutil.copytree(_EXAMPLE, folder, ignore=shutil.ignore_patterns(".privbench"))
        spec = replace(load_spec(folder / "spec.yaml"), epsilons=(0.8,))
        return _timed("the example x 1 ε", spec, folder / "person", folder / "home", _Operator.refresh)


def _timed(label: str, spec: Spec, table: Path, home: Path, make: Callable[[_Operator, str], None]) -> list[Row]:
    """Seconds of each thing that happens when nothing has changed, and when a row of ``table`` is gone, in some rounds.

    Args:
        label: Of the rows.
        spec: The database.
        table: File of a table of the source, without its suffix.
        home: Folder of Dagster.
        make: Makes everything at one ε, or says so.
    """
    import dagster as dg

    from privbench_assets.build import build_defs
    from privbench_assets.partitions import epsilon_name

    logging.getLogger("dagster").setLevel(logging.ERROR)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    home.mkdir()
    name = spec.schema.name
    defs = build_defs(spec)
    with dg.DagsterInstance.local_temp(str(home)) as instance:
        operator = _Operator(defs, instance, name)
        with _not_waiting_for_the_disk():
            operator.observe()
            operator.tick()
            for epsilon in spec.epsilons:
                make(operator, epsilon_name(epsilon))
            while operator.tick():
                pass
        refreshes = make is _Operator.refresh
        rows = [operator.round(label, "nothing", refreshes=refreshes) for _ in range(_ROUNDS)]
        file = table.with_suffix(".parquet")
        for _ in range(_ROUNDS):
            pq.write_table(pq.read_table(file).slice(1), file)
            rows.append(operator.round(label, "one table", refreshes=refreshes))
        return rows


@contextmanager
def _not_waiting_for_the_disk() -> Iterator[None]:
    """What is written meanwhile is on the disk whenever it likes: thousands of events would take minutes else."""
    from sqlalchemy import Engine, event

    def do_not_wait(connection: Any, _: Any) -> None:
        connection.execute("PRAGMA synchronous=OFF")

    event.listen(Engine, "connect", do_not_wait)
    try:
        yield
    finally:
        event.remove(Engine, "connect", do_not_wait)


class _Operator:
    """Daemon and run worker of one database in one."""

    def __init__(self, defs: dg.Definitions, instance: dg.DagsterInstance, name: str) -> None:
        self._defs = defs
        self._instance = instance
        self._name = name
        self._cursor: Any = None

    def observe(self) -> None:
        """Run the job that observes."""
        job = self._defs.resolve_job_def(f"{self._name}_observe")
        job.execute_in_process(instance=self._instance)

    def tick(self) -> Mapping[str, list[dg.AssetKey]]:
        """Evaluate all conditions: the steps requested, by ε."""
        import dagster as dg

        result = dg.evaluate_automation_conditions(self._defs, self._instance, cursor=self._cursor)
        self._cursor = result.cursor
        requested: dict[str, list[dg.AssetKey]] = {}
        for found in result.results:
            if found.true_subset.is_partitioned and not found.true_subset.is_empty:
                for epsilon in found.true_subset.expensively_compute_partition_keys():
                    requested.setdefault(epsilon, []).append(found.key)
        return requested

    def refresh(self, epsilon: str, steps: list[dg.AssetKey] | None = None) -> None:
        """Run the job that refreshes, or some steps of it."""
        job = self._defs.resolve_job_def(f"{self._name}_refresh")
        job.execute_in_process(partition_key=epsilon, instance=self._instance, asset_selection=steps)

    def report(self, epsilon: str) -> None:
        """Write into the event log that all steps were made, and that their checks passed."""
        import dagster as dg

        graph = self._defs.resolve_asset_graph()
        for key in graph.materializable_asset_keys:
            if graph.get(key).is_partitioned:
                tags = {"dagster/data_version": f"{key.to_user_string()} {epsilon}"}
                made = dg.AssetMaterialization(key, partition=epsilon, tags=tags)
                self._instance.report_runless_asset_event(made)
        for check in graph.asset_check_keys:
            passed = dg.AssetCheckEvaluation(check.asset_key, check.name, passed=True, metadata={}, partition=epsilon)
            self._instance.report_runless_asset_event(passed)

    def round(self, label: str, changed: str, *, refreshes: bool) -> Row:
        """Observe and decide, and do what was decided."""
        start, cpu = time.perf_counter(), time.process_time()
        self.observe()
        observed = time.perf_counter()
        requested = self.tick()
        decided, cpu = time.perf_counter(), time.process_time() - cpu
        row: dict[str, str | float] = {
            "database": label,
            "changed": changed,
            "observe s": observed - start,
            "decide s": decided - observed,
            "both s": decided - start,
            "both CPU s": cpu,
            "steps asked for": sum(len(steps) for steps in requested.values()),
        }
        if refreshes:
            for epsilon, steps in requested.items():
                self.refresh(epsilon, steps)
            row["refresh s"] = time.perf_counter() - decided
        return row
