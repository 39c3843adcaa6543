"""A database under Dagster without its daemon: definitions, an instance, and the few things an operator does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq

from privbench_assets.build import build_defs
from privbench_core.pipeline.workspace import Workspace
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Spec
from tests.helpers.fake_synthesizer import FakeSynthesizer

_TICKS = 6


@dataclass
class Orchestrated:
    """One database.

    Attributes:
        path: Its spec.
        fake: The synthesizer in place of every other; tests read what ran, and break it.
        instance: Event log, runs and cursors.
    """

    path: Path
    fake: FakeSynthesizer
    instance: dg.DagsterInstance
    defs: dg.Definitions = field(init=False)
    cursor: Any = None

    def __post_init__(self) -> None:
        self.defs = build_defs(self.path)

    @property
    def spec(self) -> Spec:
        return load_spec(self.path)

    def refresh(
        self,
        epsilon: str,
        steps: Sequence[str] | None = None,
        config: Mapping[str, Any] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> dg.ExecuteInProcessResult:
        """Run the refresh job at one ε, or some of its steps ("model/person")."""
        self.fake.runs.clear()
        chosen = None if steps is None else [self.key(step) for step in steps]
        job = self.defs.resolve_job_def("town_refresh")
        return job.execute_in_process(
            run_config=config,
            tags=tags,
            partition_key=epsilon,
            instance=self.instance,
            asset_selection=chosen,
            raise_on_error=False,
        )

    def answer(self, epsilon: str, steps: Sequence[str]) -> dg.ExecuteInProcessResult:
        """Run what a tick requested, marked as the daemon marks its runs."""
        return self.refresh(epsilon, steps, tags={"dagster/from_automation_condition": "true"})

    def reload(self) -> None:
        """Load the spec and the code again, as an operator does after an edit; what the sensor remembers stays."""
        self.defs = build_defs(self.path)

    def settle(self, requested: Mapping[str, Sequence[str]] | None = None) -> dict[str, dict[str, int]]:
        """Tick, and run what is requested in one run per ε, until nothing is: how often each step was made, by ε.

        Args:
            requested: By a tick whose answer is still to be run.
        """
        made: dict[str, Counter[str]] = {}
        for _ in range(_TICKS):
            requested = requested or self.tick()
            if not requested:
                return {step: dict(counts) for step, counts in made.items()}
            for epsilon in sorted({epsilon for found in requested.values() for epsilon in found}):
                result = self.answer(epsilon, [step for step, found in requested.items() if epsilon in found])
                for step in versions(result):
                    made.setdefault(step, Counter())[epsilon] += 1
            whole = [self.key(step) for step, found in requested.items() if not found]
            if whole:
                job = self.defs.resolve_implicit_global_asset_job_def()
                assert job.execute_in_process(instance=self.instance, asset_selection=whole).success
            requested = None
        raise AssertionError(f"still at work after {_TICKS} ticks: {requested}")

    def observe(self) -> None:
        """Observe the source."""
        job = self.defs.resolve_job_def("town_observe")
        result = job.execute_in_process(instance=self.instance, raise_on_error=False)
        assert result.success, errors(result)

    def tick(self) -> dict[str, list[str]]:
        """One evaluation of all automation conditions: the requested partitions by step."""
        result = dg.evaluate_automation_conditions(self.defs, self.instance, cursor=self.cursor)
        self.cursor = result.cursor
        wanted = {"/".join(r.key.path[1:]): r.true_subset for r in result.results if not r.true_subset.is_empty}
        return {
            name: sorted(subset.expensively_compute_partition_keys()) if subset.is_partitioned else []
            for name, subset in wanted.items()
        }

    def change(self, table: str) -> None:
        """Change one value of a table of the source, inside of its domain."""
        column = {"household": "rooms", "person": "age"}[table]
        path = self.path.parent / f"{table}.parquet"
        rows: pa.Table = pq.read_table(path)
        values = rows[column].to_pylist()
        values[0] = values[0] % 8 + 1
        pq.write_table(rows.set_column(rows.column_names.index(column), column, pa.array(values)), path)

    def spent(self) -> float:
        """ρ that the ledger holds as spent."""
        workspace = Workspace(self.spec)
        try:
            return sum(entry.price.rho for entry in workspace.ledger.entries())
        finally:
            workspace.close()

    @staticmethod
    def key(step: str) -> dg.AssetKey:
        return dg.AssetKey(["town", *step.split("/")])


def shown(result: dg.ExecuteInProcessResult) -> dict[str, dict[str, Any]]:
    """Metadata of what a run materialised, by step."""
    found = {}
    for event in result.all_events:
        if event.is_step_materialization:
            materialization = event.step_materialization_data.materialization
            values = {name: getattr(value, "records", value.value) for name, value in materialization.metadata.items()}
            found["/".join(materialization.asset_key.path[1:])] = values
    return found


def versions(result: dg.ExecuteInProcessResult) -> dict[str, str]:
    """Data versions of what a run materialised, by step."""
    events = [e.step_materialization_data.materialization for e in result.all_events if e.is_step_materialization]
    return {"/".join(m.asset_key.path[1:]): (m.tags or {})["dagster/data_version"] for m in events}


def errors(result: dg.ExecuteInProcessResult) -> str:
    """All that a run's event log says, errors with their causes included."""
    said = [event.message or "" for event in result.all_events]
    for event in result.all_events:
        error = getattr(event.event_specific_data, "error", None)
        said += [error.to_string()] if error is not None else []
    return "\n".join(said)
