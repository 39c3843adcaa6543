"""Rehearse the plan of a bundle, for the owner: nothing is released and nothing is entered.

`privbench evaluate` rehearses the plan of a bundle on half of the units, to attack it. The noise is the real one, so
what is attacked is what was published but for the number of units; the ledger is of the moment, because what never
leaves the owner's machine is no release. The result is not protected by any budget: it must not be published.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path

import pyarrow as pa

from privbench_core.errors import BudgetError, InternalError, PrivbenchError, SpecError
from privbench_core.evaluation.attacks import RunOnRows
from privbench_core.evaluation.inputs import summarize_bundle
from privbench_core.pipeline.executor import Executor, Progress
from privbench_core.pipeline.plans import plan_for, run_name
from privbench_core.pipeline.runner import Made, Run, Runner
from privbench_core.pipeline.snapshot import GivenRows
from privbench_core.pipeline.workspace import Scratch, Workspace, database_folder
from privbench_core.privacy.noise import NoiseSource
from privbench_core.publishing.bundle import is_bundle, read_bundle
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Key, Plan, StepKind
from privbench_core.synthesizers.steps.sampled import SampledTable

_UNKNOWN = "It is not known here whether the source has changed since the bundle was made."
_NOT_NEEDED = {StepKind.FIDELITY, StepKind.VALIDATE, StepKind.PUBLISH}


def rehearsal_of(spec: Spec, bundle: Path) -> RunOnRows | None:
    """Return the plan that a bundle was made by, to be run on other rows in memory.

    None where the manifest does not say which it was, or where it cannot be made any more (a synthesizer that is not
    installed, options that have changed): then there is nothing to attack, and the report says so.
    """
    plan = plan_of(spec, bundle)
    return None if plan is None else partial(rehearse, spec, plan)


def plan_of(spec: Spec, bundle: Path) -> Plan | None:
    """Return the plan that a bundle was made by; None if its manifest does not say, or it cannot be made any more."""
    if not is_bundle(bundle):
        return None
    summary = summarize_bundle(bundle.name, read_bundle(bundle).manifest)
    if summary.guarantee is None or summary.synthesizer is None:
        return None
    epsilon, delta = summary.guarantee
    try:
        return plan_for(spec, epsilon, delta=delta, synthesizer=summary.synthesizer)
    except (SpecError, BudgetError):
        return None


def rehearse(
    spec: Spec, plan: Plan, tables: Mapping[str, pa.Table], *, seed: int = 0, noise: NoiseSource | None = None
) -> dict[str, pa.Table]:
    """Synthetic rows by ``plan`` from the rows in ``tables``."""
    return sampled_rows(spec, plan, run_on_rows(spec, plan, tables, Run("rehearsal", seed), _NOT_NEEDED, noise=noise))


def run_on_rows(
    spec: Spec,
    plan: Plan,
    tables: Mapping[str, pa.Table],
    run: Run,
    without: Collection[StepKind],
    *,
    noise: NoiseSource | None = None,
    progress: Progress | None = None,
) -> dict[Key, Made]:
    """Run the steps of ``plan``, except those of the kinds in ``without``, on rows in memory."""
    with closing(Scratch(spec.accepting_noise, plan.budget)) as here:
        runner = Runner(here, plan, run, noise, GivenRows(here, tables))
        return Executor(runner, {step.key for step in plan.steps if step.kind not in without}).run(progress)


def sampled_rows(spec: Spec, plan: Plan, made: Mapping[Key, Made]) -> dict[str, pa.Table]:
    """Return the rows of every table that the sample steps of ``plan`` have drawn."""
    sampled = {step.table: made[step.key] for step in plan.steps if step.kind is StepKind.SAMPLE}
    rows = {name: SampledTable(step.release.artifact).whole_rows() for name, step in sampled.items()}
    missing = [table.name for table in spec.schema.tables if table.name not in rows]
    if missing:
        raise InternalError(f"{', '.join(missing)}: the plan of {plan.synthesizer} has no sample step for it")
    return rows


def source_state(spec: Spec, bundle: Path) -> str:
    """Return in words whether the source has changed since a bundle was made: whether its plan would buy anything.

    For the owner only: fingerprints are of private rows.
    """
    plan = plan_of(spec, bundle)
    if plan is None or not (database_folder(spec) / "releases").exists():
        return _UNKNOWN
    try:
        workspace = Workspace(spec)
    except PrivbenchError:
        return _UNKNOWN
    with closing(workspace):
        unpaid = Runner(workspace, plan, Run(run_name(plan.budget.epsilon))).unpaid()
    changed = sorted({step.table for step in unpaid if step.kind is StepKind.PROFILE})
    if changed:
        return f"The source or the spec has changed since the bundle was made: {', '.join(changed)}."
    return "The source is as it was when the bundle was made."
