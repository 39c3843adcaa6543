"""Jobs and schedules: refresh a whole database, observe its source. The schedules are off until they are turned on."""

from __future__ import annotations

from collections.abc import Mapping

import dagster as dg

from privbench_assets.failures import nothing_private
from privbench_assets.keys import identifier
from privbench_core.pipeline.status import staleness
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Plan

WEEKLY = "0 3 * * 1"
HOURLY = "0 * * * *"


def refresh_job(spec: Spec, assets: dg.AssetSelection) -> dg.UnresolvedAssetJobDefinition:
    """Everything from profile to bundle, for one ε or several."""
    return dg.define_asset_job(
        f"{identifier(spec.schema.name)}_refresh",
        selection=assets,
        description=(
            f"The whole pipeline of {spec.schema.name} at one ε: profile, model, sample, validate, publish. Steps whose"
            " inputs did not change are reused and cost nothing. Launched for several ε (a backfill), each has a run of"
            " its own, and their costs add up."
        ),
        executor_def=dg.in_process_executor,
    )


def observe_job(spec: Spec, sources: dg.AssetSelection) -> dg.UnresolvedAssetJobDefinition:
    """A look at the fingerprints of the source."""
    return dg.define_asset_job(
        f"{identifier(spec.schema.name)}_observe",
        selection=sources,
        description=f"Takes the fingerprints of the source tables of {spec.schema.name}. Costs no budget.",
        executor_def=dg.in_process_executor,
    )


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
        default_status=dg.DefaultScheduleStatus.STOPPED,
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
        default_status=dg.DefaultScheduleStatus.STOPPED,
    )
