"""Jobs, schedules and the sensor of one database, all off until somebody turns them on, and when a bundle is too old.

The sensor compares what should be there with what is, and asks for exactly the difference. It remembers nothing: what
is out of date follows from the state folder (`staleness`), what was asked for from the runs that Dagster has. So it
does not matter what changed while nobody looked, while a run was at work, or while a daemon was down.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import Any

import dagster as dg
from dagster._utils.schedules import cron_string_iterator, is_valid_cron_string  # no public name for either

from privbench_assets import identifier, status_key, step_key
from privbench_assets.resources import nothing_private
from privbench_core.errors import SpecError
from privbench_core.files import max_wait
from privbench_core.pipeline.record import last_observed
from privbench_core.pipeline.status import ReleaseState, staleness
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Plan

WEEKLY = "0 3 * * 1"
HOURLY = "0 * * * *"
ATTEMPTS = 2
"""How often the same refresh is asked for, before it waits for a person: each failed attempt is paid for."""
_PARTITION = "dagster/partition"
_BY_CONDITION = "dagster/from_automation_condition"
_DATABASE = "privbench/database"
_SOURCE = "privbench/source"  # hash of the observed source that a run was asked for
_ATTEMPT = "privbench/attempt"
_AT_WORK = (
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
)


def refresh_job(spec: Spec, assets: dg.AssetSelection) -> dg.UnresolvedAssetJobDefinition:
    """Return the job that makes everything from profile to bundle, for one ε or several."""
    return _job(
        spec,
        "refresh",
        assets,
        f"The whole pipeline of {spec.schema.name} at one ε: profile, model, sample, validate, publish. Steps whose"
        " inputs did not change are reused and cost nothing. A backfill of several ε has one run for each, and their"
        " costs add up.",
    )


def observe_job(spec: Spec, sources: dg.AssetSelection) -> dg.UnresolvedAssetJobDefinition:
    """Return the job that takes the fingerprints of the source."""
    said = f"Takes the fingerprints of the source tables of {spec.schema.name}. Costs no budget."
    return _job(spec, "observe", sources, said)


def _job(spec: Spec, name: str, assets: dg.AssetSelection, said: str) -> dg.UnresolvedAssetJobDefinition:
    named = f"{identifier(spec.schema.name)}_{name}"
    return dg.define_asset_job(named, selection=assets, description=said, executor_def=dg.in_process_executor)


def refresh_schedule(
    spec: Spec, plans: Mapping[str, Plan], job: dg.UnresolvedAssetJobDefinition
) -> dg.ScheduleDefinition:
    """Return the schedule that refreshes every ε that was released before, weekly if the spec does not say when."""
    name = spec.schema.name

    @dg.schedule(
        name=f"{identifier(name)}_refresh_schedule",
        cron_schedule=spec.schedule or WEEKLY,
        job=job,
        description=(
            f"Runs {job.name} for every ε that was released before. If the source has changed since then, each ε"
            f" is paid for again, and the costs add up. benchmark_status of {name} says how often that is possible."
        ),
    )
    def refresh(context: dg.ScheduleEvaluationContext) -> list[dg.RunRequest] | dg.SkipReason:
        tick = context.scheduled_execution_time.isoformat()
        with nothing_private(spec, f"{name}/refresh_schedule"):
            states = staleness(spec, plans, {})
        skipped = [f"ε={epsilon}: {state.why()}" for epsilon, state in states.items() if not state.released]
        due = [epsilon for epsilon, state in states.items() if state.released]
        if not due:
            return dg.SkipReason("; ".join(skipped))
        for line in skipped:
            context.log.info(line)
        return [dg.RunRequest(run_key=f"{tick} ε={epsilon}", partition_key=epsilon) for epsilon in due]

    return refresh


def observe_schedule(spec: Spec, job: dg.UnresolvedAssetJobDefinition) -> dg.ScheduleDefinition:
    """Return the schedule that observes the source, hourly if the spec does not say when."""
    return dg.ScheduleDefinition(
        name=f"{identifier(spec.schema.name)}_observe_schedule",
        cron_schedule=spec.observe or HOURLY,
        job=job,
        description=f"Runs {job.name}, so that the refresh_on_change sensor notices a change.",
    )


def freshness_policy(spec: Spec) -> dg.FreshnessPolicy | None:
    """Return a policy that warns when one scheduled refresh made no bundle, and fails when two in a row did not.

    A spec without a schedule has none: its owner refreshes when there is a reason to.

    Raises:
        SpecError: The schedule is no cron expression.
    """
    if spec.schedule is None:
        return None
    pause = longest_pause(spec.schedule)
    return dg.FreshnessPolicy.time_window(fail_window=pause * 2.25, warn_window=pause * 1.25)


def when_inputs_are_made() -> dg.AutomationCondition[Any]:
    """Return when what is free is made by itself: an input was made again, and no input waits to be.

    It cannot start spending: it is a condition of steps that read no private row. An edit of the code starts nothing,
    because models that go with it may not have been bought yet.
    """
    condition = dg.AutomationCondition
    outdated = condition.any_deps_updated().since(condition.newly_updated())
    return (
        condition.any_deps_updated().since_last_handled()
        & ~condition.any_deps_missing()
        & ~condition.any_deps_in_progress()
        & ~condition.any_deps_match(outdated)
        & ~condition.in_progress()
    ).with_label("its inputs were made")


def longest_pause(cron: str) -> timedelta:
    """Return the longest time between two ticks of a schedule, of the next few dozen.

    Raises:
        SpecError: It is no cron expression.

    >>> longest_pause("0 3 * * 1,4")
    datetime.timedelta(days=4)
    """
    if not is_valid_cron_string(cron):
        raise SpecError(f"spec: schedule is {cron!r}, which is not a cron expression; write one like '0 3 * * 1'")
    start = datetime(2024, 1, 1, tzinfo=UTC).timestamp()
    ticks = islice(cron_string_iterator(start, cron, "UTC"), 40)
    return max(later - earlier for earlier, later in pairwise(ticks))


def refresh_sensor(spec: Spec, plans: Mapping[str, Plan], job: dg.UnresolvedAssetJobDefinition) -> dg.SensorDefinition:
    """Return the sensor of one database. It is off until somebody turns it on, because a refresh spends budget."""
    name = spec.schema.name

    @dg.sensor(
        name=f"{identifier(name)}_refresh_on_change",
        job=job,
        minimum_interval_seconds=30,
        description=(
            f"Refreshes the benchmark of {name} at every ε that was released before, when an observation shows a"
            " change of the source. Each refresh costs lifetime budget. Turn on the schedule that observes it, too."
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
        return dg.SensorResult(
            requests, skip_reason=None if requests else "; ".join(said) or "everything is up to date"
        )

    return refresh_on_change


def _request(runs: _Runs, state: ReleaseState) -> dg.RunRequest | str:
    """Return the run that brings one ε up to date, or why none is asked for."""
    epsilon = state.epsilon
    if runs.at_work(epsilon):
        return f"ε={epsilon}: a run is in progress"
    asked, last = runs.attempts(epsilon, state.source)
    if asked >= ATTEMPTS:
        return f"ε={epsilon}: failed {asked} times; not tried again before the source changes or a person starts it"
    steps = [step_key(runs.database, step.key) for step in state.pending]
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
        """Return whether a run of an ε is waiting, or at work and not lost with the process it was in."""
        queued = dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED], tags={_PARTITION: epsilon})
        working = dg.RunsFilter(statuses=list(_AT_WORK), tags={_PARTITION: epsilon})
        return any(self._ours(queued)) or any(self._alive(record) for record in self._ours(working))

    def attempts(self, epsilon: str, source: str) -> tuple[int, str]:
        """Return how often the state ``source`` was asked for in a row, and the id of the last run asked for.

        Whatever a person made successfully in between begins a new row, as does another state of the source.
        """
        tags = {_PARTITION: epsilon, _DATABASE: self.database}
        asked = self._instance.get_run_records(dg.RunsFilter(tags=tags), limit=ATTEMPTS)
        if not asked:
            return 0, "none"
        success, first = [dg.DagsterRunStatus.SUCCESS], asked[-1].create_timestamp
        since = dg.RunsFilter(statuses=success, tags={_PARTITION: epsilon}, created_after=first)
        by_hand = [r for r in self._ours(since) if not {_SOURCE, _BY_CONDITION} & r.dagster_run.tags.keys()]
        number = 0
        for record in asked:
            made_since = any(other.create_timestamp > record.create_timestamp for other in by_hand)
            if record.dagster_run.tags.get(_SOURCE) != source or made_since:
                break
            number += 1
        newest = max([*asked, *by_hand], key=lambda record: record.create_timestamp)
        return number, newest.dagster_run.run_id[:8]

    def _ours(self, wanted: dg.RunsFilter) -> Iterator[dg.RunRecord]:
        """Yield the runs of this database's refresh job, or of some of its assets."""
        job, first = f"{identifier(self.database)}_refresh", status_key(self.database).path[0]
        for record in self._instance.get_run_records(wanted):
            run = record.dagster_run
            if run.job_name == job or any(key.path[0] == first for key in run.asset_selection or ()):
                yield record

    def _alive(self, record: dg.RunRecord) -> bool:
        """Return whether anything was heard of a run for as long as others would wait for it."""
        found = self._instance.get_records_for_run(record.dagster_run.run_id, limit=1, ascending=False).records
        heard = found[0].timestamp if found else record.create_timestamp.timestamp()
        return time.time() - heard < max_wait()
