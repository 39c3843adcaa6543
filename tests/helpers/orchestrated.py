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
from dagster._core.definitions.data_version import StaleStatus
from dagster._core.execution.plan.objects import StepFailureData
from dagster._utils.test.data_versions import get_stale_status_resolver

from privbench_assets import step_key
from privbench_assets.build import build_defs
from privbench_core.pipeline.workspace import Workspace
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import StepKind
from tests.helpers.fake_synthesizer import FakeSynthesizer

STATUS = "benchmark_status"
_TICKS = 6


@dataclass
class Orchestrated:
    """One database.

    Attributes:
        path: Its spec.
        fake: The synthesizer in place of every other; tests read what ran, and break it.
        instance: Event log and runs.
        said: Why the last tick asked for nothing, if so.
        requests: What it asked for, by ε.
        evaluated: The last evaluation of the automation conditions.
    """

    path: Path
    fake: FakeSynthesizer
    instance: dg.DagsterInstance
    defs: dg.Definitions = field(init=False)
    said: str = ""
    requests: dict[str, dg.RunRequest] = field(default_factory=dict)
    evaluated: dg.EvaluateAutomationConditionsResult | None = None

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

    def answer(self, epsilon: str) -> dg.ExecuteInProcessResult:
        """Run what the last tick requested at one ε, tagged as the daemon tags its runs."""
        request = self.requests.pop(epsilon)
        assert request.run_key
        steps = [step_of(key) for key in request.asset_selection or ()]
        return self.refresh(epsilon, steps, tags={**request.tags, "dagster/run_key": request.run_key})

    def reload(self) -> None:
        """Load the spec and the code again, as an operator does after an edit."""
        self.defs = build_defs(self.path)

    def settle(self) -> dict[str, dict[str, int]]:
        """Tick, and run what is requested, until nothing is: how often each step was made, by ε."""
        made: dict[str, Counter[str]] = {}
        for _ in range(_TICKS):
            if not self.tick():
                return {step: dict(counts) for step, counts in made.items()}
            for epsilon in sorted(self.requests):
                for step in versions(self.answer(epsilon)):
                    if step != STATUS:
                        made.setdefault(step, Counter())[epsilon] += 1
        raise AssertionError(f"still at work after {_TICKS} ticks: {self.requests}")

    def observe(self) -> None:
        """Observe the source."""
        job = self.defs.resolve_job_def("town_observe")
        result = job.execute_in_process(instance=self.instance, raise_on_error=False)
        assert result.success, errors(result)

    def tick(self) -> dict[str, list[str]]:
        """One evaluation of the sensor: the ε at which each step is requested."""
        (sensor,) = self.defs.sensors or []
        context = dg.build_sensor_context(self.instance, repository_def=self.defs.get_repository_def())
        tick = sensor.evaluate_tick(context)
        self.requests = {str(request.partition_key): request for request in tick.run_requests or ()}
        self.said = tick.skip_message or ""
        requested: dict[str, list[str]] = {}
        for epsilon, request in self.requests.items():
            for key in request.asset_selection or ():
                if step_of(key) != STATUS:
                    requested.setdefault(step_of(key), []).append(epsilon)
        return requested

    def follow(self, epsilon: str) -> list[str]:
        """Evaluate the automation conditions once, and run what they ask for at one ε."""
        self.evaluated = dg.evaluate_automation_conditions(
            self.defs, self.instance, cursor=self.evaluated.cursor if self.evaluated else None
        )
        asked = [r.key for r in self.evaluated.results if epsilon in self.evaluated.get_requested_partitions(r.key)]
        steps = [step_of(key) for key in asked]
        if steps:
            assert self.refresh(epsilon, steps, tags={"dagster/from_automation_condition": "true"}).success
        return steps

    def stale(self, epsilon: str) -> set[str]:
        """What Dagster itself shows as out of date at one ε, by data versions alone."""
        graph = self.defs.resolve_asset_graph()
        resolver = get_stale_status_resolver(self.instance, graph.assets_defs)
        partitions = {
            key: epsilon if graph.get(key).is_partitioned else None for key in graph.materializable_asset_keys
        }
        return {step_of(key) for key, at in partitions.items() if resolver.get_status(key, at) is StaleStatus.STALE}

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
        words = tuple(step.split("/"))
        return step_key("town", words) if words[0] in list(StepKind) else dg.AssetKey(["town", *words])


def step_of(key: dg.AssetKey) -> str:
    """The step of an asset: "model/person" of ``town/model/person_model``."""
    _, stage, *name = key.path
    return "/".join([stage, *name]).removesuffix(f"_{stage}")


def shown(result: dg.ExecuteInProcessResult) -> dict[str, dict[str, Any]]:
    """Metadata of what a run materialised, by step."""
    found = {}
    for event in result.all_events:
        if event.is_step_materialization:
            materialization = event.step_materialization_data.materialization
            values = {name: getattr(value, "records", value.value) for name, value in materialization.metadata.items()}
            found[step_of(materialization.asset_key)] = values
    return found


def versions(result: dg.ExecuteInProcessResult) -> dict[str, str]:
    """Data versions of what a run materialised, by step."""
    events = [e.step_materialization_data.materialization for e in result.all_events if e.is_step_materialization]
    return {step_of(m.asset_key): (m.tags or {})["dagster/data_version"] for m in events}


def failure_of(operated: Orchestrated, result: dg.ExecuteInProcessResult) -> StepFailureData:
    """The failure of the only step that failed, as it is kept and shown."""
    kept = [log.dagster_event for log in operated.instance.all_logs(result.run_id)]
    failed = [event.step_failure_data for event in kept if event is not None and event.is_step_failure]
    (ours,) = [failure for failure in failed if failure.user_failure_data]  # others were not executed because of it
    return ours


def errors(result: dg.ExecuteInProcessResult) -> str:
    """All that a run's event log says, errors with their causes included."""
    said = [event.message or "" for event in result.all_events]
    for event in result.all_events:
        error = getattr(event.event_specific_data, "error", None)
        said += [error.to_string()] if error is not None else []
        failure = getattr(event.event_specific_data, "user_failure_data", None)
        said += [f"{failure.metadata['error'].value}: {failure.description}"] if failure is not None else []
    return "\n".join(said)
