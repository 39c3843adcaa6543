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
from privbench_core.pipeline import plans_for
from privbench_core.pipeline.record import Manifest, definition_of, last_observed, step_name, write_manifests
from privbench_core.pipeline.workspace import epsilon_name
from privbench_core.schema.columns import Column, ColumnType, Range
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Key

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
    for name in ("example", "wide", "widest"):
        progress(f"orchestration: {name}")
        result, peak = call_in_child(f"benchmarks.orchestration:{name}", {})
        found = [{**row, "peak MB": peak} for row in medians(result, ["database", "changed"])]
        progress(markdown(found))
        rows += found
    return f"{machine(_ROUNDS)}\n\n{markdown(rows)}"


def wide() -> list[Row]:
    """One unit with 49 tables below it, at six ε: observation and decision with and without a change."""
    return _wide(_TABLES)


def widest() -> list[Row]:
    """The same with ten times as many tables: there is no other code path for them."""
    return _wide(10 * _TABLES)


def _wide(tables: int) -> list[Row]:
    """One unit with many tables below it.

    That all steps were made before is written into the state folder without making them, because what is decided
    depends on that alone.
    """
    with TemporaryDirectory() as place:
        folder = Path(place)
        columns = (Column("id", ColumnType.INTEGER), Column("value", ColumnType.INTEGER, Range(0, 9)))
        names = [f"part_{number:03}" for number in range(1, tables)]
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
        spec = Spec(schema, str(folder), folder / "spec.yaml", _EPSILONS, 1e-9, 1000.0, 1e-6, state=folder / "state")
        label = f"{tables} tables x {len(_EPSILONS)} ε"
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

    logging.getLogger("dagster").setLevel(logging.ERROR)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    home.mkdir()
    defs = build_defs(spec)
    with dg.DagsterInstance.local_temp(str(home)) as instance:
        operator = _Operator(defs, instance, spec)
        with _not_waiting_for_the_disk():
            operator.observe()
            for epsilon in spec.epsilons:
                make(operator, epsilon_name(epsilon))
            operator.observe()
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

    def __init__(self, defs: dg.Definitions, instance: dg.DagsterInstance, spec: Spec) -> None:
        self._defs = defs
        self._instance = instance
        self._spec = spec

    def observe(self) -> None:
        """Run the job that observes."""
        job = self._defs.resolve_job_def(f"{self._spec.schema.name}_observe")
        job.execute_in_process(instance=self._instance)

    def tick(self) -> Mapping[str, dg.RunRequest]:
        """Evaluate the sensor: the runs it asks for, by ε."""
        import dagster as dg

        (sensor,) = self._defs.sensors or []
        context = dg.build_sensor_context(self._instance, repository_def=self._defs.get_repository_def())
        requests = sensor.evaluate_tick(context).run_requests or []
        return {str(request.partition_key): request for request in requests}

    def refresh(self, epsilon: str, request: dg.RunRequest | None = None) -> None:
        """Run the job that refreshes, or what was asked for."""
        job = self._defs.resolve_job_def(f"{self._spec.schema.name}_refresh")
        steps = None if request is None else request.asset_selection
        tags = None if request is None else request.tags
        job.execute_in_process(partition_key=epsilon, instance=self._instance, asset_selection=steps, tags=tags)

    def report(self, epsilon: str) -> None:
        """Write manifests of all steps, made from the source as it was observed."""
        plan = plans_for(self._spec)[epsilon]
        seen = last_observed(self._spec)
        digests = {step.key: f"{step_name(step.key)} {epsilon}" for step in plan.steps}
        sources: dict[Key, dict[str, str]] = {}
        manifests: dict[Key, Manifest] = {}
        for step in plan.steps:
            sources[step.key] = {table: seen[table] for table in step.reads}
            for before in step.inputs:
                sources[step.key] |= sources[before]
            inputs = {step_name(key): digests[key] for key in step.inputs}
            definition = definition_of(plan, step)
            made = Manifest(digests[step.key], digests[step.key], sources[step.key], inputs, definition)
            manifests[step.key] = replace(made, at="2026-11-22T00:00:00+00:00")
        write_manifests(self._spec, epsilon, manifests)

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
            "steps asked for": sum(len(request.asset_selection or ()) - 1 for request in requested.values()),
        }
        if refreshes:
            for epsilon, request in requested.items():
                self.refresh(epsilon, request)
            row["refresh s"] = time.perf_counter() - decided
        return row
