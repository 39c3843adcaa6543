"""Build: from one spec to the definitions of one database. Nothing is opened or read before a run starts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from privbench_assets import source_key, step_key
from privbench_assets.assets import report_asset, source_assets, step_asset
from privbench_assets.automation import (
    observe_job,
    observe_schedule,
    refresh_job,
    refresh_schedule,
    refresh_sensor,
)
from privbench_assets.resources import session_key, session_resource
from privbench_assets.status import benchmark_status, report_status
from privbench_core.errors import InternalError
from privbench_core.pipeline import plans_for
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Plan


def build_defs(spec: Spec | str | Path, *, resource_overrides: Mapping[str, Any] | None = None) -> dg.Definitions:
    """Return all definitions of one database.

    Args:
        spec: A validated spec, or the file of one.
        resource_overrides: Resources to use instead of the database's own, by resource key (``<database>__session``).

    Raises:
        SpecError: The spec, or the synthesizer's options in it, are wrong.
        UnsupportedBudgetError: The synthesizer has no form for the spec's δ.
    """
    spec = spec if isinstance(spec, Spec) else load_spec(spec)
    plans = plans_for(spec)
    plan = _common_steps(plans)
    name, partitions = spec.schema.name, dg.StaticPartitionsDefinition([*plans])  # ε is the only dimension
    first = plan.first_reads([table.name for table in spec.schema.public_tables])
    sources = source_assets(spec)
    keys = {step_key(name, step.key): step.key for step in plan.steps}
    steps = []
    for step in plan.steps:
        nearest = [step_key(name, key) for key in plan.nearest[step.key]]
        deps = [*nearest, *(source_key(name, table) for table in sorted(first[step.key]))]
        steps.append(step_asset(spec, plans, step, partitions, deps, keys))
    status = benchmark_status(spec, plans)
    refresh = refresh_job(spec, dg.AssetSelection.assets(*steps, status))
    observe = observe_job(spec, dg.AssetSelection.assets(*sources.keys))
    return dg.Definitions(
        assets=[sources, *steps, status, report_asset(spec, plans, partitions)],
        jobs=[refresh, observe],
        schedules=[refresh_schedule(spec, plans, refresh), observe_schedule(spec, observe)],
        sensors=[refresh_sensor(spec, plans, refresh)],
        resources={session_key(spec): session_resource(spec, plans, report_status), **(resource_overrides or {})},
        executor=dg.in_process_executor,
    )


def _common_steps(plans: Mapping[str, Plan]) -> Plan:
    """Return the plan of the first ε, whose steps stand for all; InternalError if another ε has other steps."""
    first, *others = plans.values()
    shape = [(step.key, step.kind, step.inputs, step.reads) for step in first.steps]
    if any([(step.key, step.kind, step.inputs, step.reads) for step in plan.steps] != shape for plan in others):
        raise InternalError(
            f"synthesizer {first.synthesizer}: its plan has other steps at another ε, but only their prices may differ"
        )
    return first
