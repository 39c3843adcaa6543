"""The sensor that reconciles: it compares what should be there with what is, and asks for exactly the difference.

It remembers nothing. What is out of date follows from the state folder (`staleness`), what was asked for from the runs
that Dagster has. So it does not matter what changed while nobody looked, while a run was at work, or while a daemon was
down.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import dagster as dg

from privbench_assets.failures import nothing_private
from privbench_assets.keys import identifier, status_key, step_key
from privbench_core.locks import max_wait
from privbench_core.pipeline.record import last_observed
from privbench_core.pipeline.status import ReleaseState, staleness
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Plan, StepKind

ATTEMPTS = 2
"""How often the same refresh is asked for, before it waits for a person: each failed look is paid for."""
_PARTITION = "dagster/partition"
_DATABASE = "privbench/database"
_SOURCE = "privbench/source"  # hash of the observed source that a run was asked for
_ATTEMPT = "privbench/attempt"
_AT_WORK = (
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
)


def refresh_sensor(spec: Spec, plans: Mapping[str, Plan], job: dg.UnresolvedAssetJobDefinition) -> dg.SensorDefinition:
    """The sensor of one database. Off until somebody turns it on, because a refresh spends budget."""
    name = spec.schema.name

    @dg.sensor(
        name=f"{identifier(name)}_refresh_on_change",
        job=job,
        minimum_interval_seconds=30,
        description=(
            f"Refreshes the benchmark of {name} at every ε that was released before, when an observation shows a"
            " change of the source. Each refresh costs lifetime budget. Turn on the schedule that observes, too."
        ),
        default_status=dg.DefaultSensorStatus.STOPPED,
    )
    def refresh_on_change(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        with nothing_private(spec, f"{name}/refresh_on_change"):
            states = staleness(spec, plans, last_observed(spec))
        runs = _Runs(context.instance, name)
        said = [f"ε={epsilon}: {state.why()}" for epsilon, state in states.items() if state.stale and not state.pending]
        found = [_request(runs, state) for state in states.values() if state.pending]
        requests = [each for each in found if isinstance(each, dg.RunRequest)]
        said += [each for each in found if isinstance(each, str)]
        return dg.SensorResult(requests, skip_reason=None if requests else "; ".join(said) or "all is up to date")

    return refresh_on_change


def _request(runs: _Runs, state: ReleaseState) -> dg.RunRequest | str:
    """The run that brings one ε up to date, or why none is asked for."""
    epsilon = state.epsilon
    if runs.at_work(epsilon):
        return f"ε={epsilon}: waits for a run that is at work"
    asked, last = runs.attempts(epsilon, state.source)
    if asked >= ATTEMPTS:
        return f"ε={epsilon}: failed {asked} times; waits for a person, or for another change"
    steps = [step_key(runs.database, step.key) for step in state.pending]
    if any(step.kind is StepKind.PUBLISH for step in state.pending):
        steps.append(status_key(runs.database))
    return dg.RunRequest(
        run_key=f"ε={epsilon} source={state.source} attempt={asked + 1} after={last}",
        partition_key=epsilon,
        asset_selection=steps,
        tags={_DATABASE: runs.database, _SOURCE: state.source, _ATTEMPT: str(asked + 1)},
    )


class _Runs:
    """The runs of one database, as Dagster has them."""

    def __init__(self, instance: dg.DagsterInstance, database: str) -> None:
        self.database = database
        self._instance = instance

    def at_work(self, epsilon: str) -> bool:
        """Whether a run of an ε is waiting, or at work and not lost with the process it was in."""
        queued = dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED], tags={_PARTITION: epsilon})
        working = dg.RunsFilter(statuses=list(_AT_WORK), tags={_PARTITION: epsilon})
        return any(self._ours(queued)) or any(self._alive(record) for record in self._ours(working))

    def attempts(self, epsilon: str, source: str) -> tuple[int, str]:
        """How often the state ``source`` was asked for in a row, and the id of the last run that was asked for.

        Whatever a person made successfully in between begins a new row, as does another state of the source.
        """
        tags = {_PARTITION: epsilon, _DATABASE: self.database}
        asked = self._instance.get_run_records(dg.RunsFilter(tags=tags), limit=ATTEMPTS)
        if not asked:
            return 0, "none"
        success, first = [dg.DagsterRunStatus.SUCCESS], asked[-1].create_timestamp
        since = dg.RunsFilter(statuses=success, tags={_PARTITION: epsilon}, created_after=first)
        by_hand = [r for r in self._ours(since) if _SOURCE not in r.dagster_run.tags]
        number = 0
        for record in asked:
            made_since = any(other.create_timestamp > record.create_timestamp for other in by_hand)
            if record.dagster_run.tags.get(_SOURCE) != source or made_since:
                break
            number += 1
        newest = max([*asked, *by_hand], key=lambda record: record.create_timestamp)
        return number, newest.dagster_run.run_id[:8]

    def _ours(self, wanted: dg.RunsFilter) -> Iterator[dg.RunRecord]:
        """Runs of this database's refresh job, or of some of its assets."""
        job, first = f"{identifier(self.database)}_refresh", status_key(self.database).path[0]
        for record in self._instance.get_run_records(wanted):
            run = record.dagster_run
            if run.job_name == job or any(key.path[0] == first for key in run.asset_selection or ()):
                yield record

    def _alive(self, record: dg.RunRecord) -> bool:
        """Whether anything was heard of a run for as long as others would wait for it."""
        found = self._instance.get_records_for_run(record.dagster_run.run_id, limit=1, ascending=False).records
        heard = found[0].timestamp if found else record.create_timestamp.timestamp()
        return time.time() - heard < max_wait()
