"""Jobs and schedules: refresh a whole database, observe its source; and when a bundle counts as too old.

The schedules are off until they are turned on.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

import dagster as dg
from dagster._utils.schedules import cron_string_iterator, is_valid_cron_string  # no public name for either

from privbench_assets.failures import nothing_private
from privbench_assets.keys import identifier
from privbench_core.errors import SpecError
from privbench_core.pipeline.status import staleness
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Plan

WEEKLY = "0 3 * * 1"
HOURLY = "0 * * * *"
_TICKS = 40  # of the schedule that are looked at, for its longest pause
_GRACE = 1.25  # a refresh takes time, and may wait for others


def refresh_job(spec: Spec, assets: dg.AssetSelection) -> dg.UnresolvedAssetJobDefinition:
    """Everything from profile to bundle, for one ε or several."""
    description = (
        f"The whole pipeline of {spec.schema.name} at one ε: profile, model, sample, validate, publish. Steps whose"
        " inputs did not change are reused and cost nothing. Launched for several ε (a backfill), each has a run of"
        " its own, and their costs add up."
    )
    name, executor = f"{identifier(spec.schema.name)}_refresh", dg.in_process_executor
    return dg.define_asset_job(name, selection=assets, description=description, executor_def=executor)


def observe_job(spec: Spec, sources: dg.AssetSelection) -> dg.UnresolvedAssetJobDefinition:
    """A look at the fingerprints of the source."""
    description = f"Takes the fingerprints of the source tables of {spec.schema.name}. Costs no budget."
    name, executor = f"{identifier(spec.schema.name)}_observe", dg.in_process_executor
    return dg.define_asset_job(name, selection=sources, description=description, executor_def=executor)


def refresh_schedule(
    spec: Spec, plans: Mapping[str, Plan], job: dg.UnresolvedAssetJobDefinition
) -> dg.ScheduleDefinition:
    """Refresh every ε that was released before, when the spec says so, weekly if it says nothing."""
    name = spec.schema.name

    @dg.schedule(
        name=f"{identifier(name)}_refresh_schedule",
        cron_schedule=spec.schedule or WEEKLY,
        job=job,
        description=(
            f"Runs {job.name} for every ε that was released before. If the source changed since, each ε is paid for"
            f" again, and their costs add up; benchmark_status of {name} says how often that can be paid."
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
    """Observe the source when the spec says so, every hour if it says nothing."""
    return dg.ScheduleDefinition(
        name=f"{identifier(spec.schema.name)}_observe_schedule",
        cron_schedule=spec.observe or HOURLY,
        job=job,
        description=f"Runs {job.name}, so that the refresh_on_change sensor notices a change.",
    )


def freshness_policy(spec: Spec) -> dg.FreshnessPolicy | None:
    """A warning when one scheduled refresh did not make a bundle, a failure when two in a row did not.

    A spec without a schedule has none: its owner refreshes when there is a reason to.

    Raises:
        SpecError: The schedule is no cron expression.
    """
    if spec.schedule is None:
        return None
    pause = longest_pause(spec.schedule)
    return dg.FreshnessPolicy.time_window(fail_window=pause + pause * _GRACE, warn_window=pause * _GRACE)


def longest_pause(cron: str) -> timedelta:
    """The longest time between two ticks of a schedule, of the next few dozen.

    Raises:
        SpecError: It is no cron expression.

    >>> longest_pause("0 3 * * 1,4")
    datetime.timedelta(days=4)
    """
    if not is_valid_cron_string(cron):
        raise SpecError(f"spec: schedule is {cron!r}, which is no cron expression; write one like '0 3 * * 1'")
    start = datetime(2024, 1, 1, tzinfo=UTC).timestamp()
    ticks = islice(cron_string_iterator(start, cron, "UTC"), _TICKS)
    return max(later - earlier for earlier, later in pairwise(ticks))
