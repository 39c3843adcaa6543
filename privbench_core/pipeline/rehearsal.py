"""Rehearse the plan of a bundle, for the owner: nothing is released and nothing is entered.

`privbench evaluate` rehearses the plan of a bundle on half of the units, to attack it. The noise is the real one, so
what is attacked is what was published but for the number of units; the ledger is of the moment, because what never
leaves the owner's machine is no release. The result is not protected by any budget: it must not be published.

**Replicates**: the plan of a bundle, run again on the bundle's own rows, from which recipients get error bars.
A parametric bootstrap (Efron and Tibshirani 1993, chapter 6): how far a query's answers on replicates are from the
bundle's answer estimates how far the bundle's answer is from the source's. Noise, truncation, models and sampling are
those of the plan, at the same ε and δ. But rows that a model has drawn fit such a model better than the source's rows
did. So the fidelity steps run as well: their figures, of how far replicates are from the bundle, are put beside those
of how far the bundle is from the source, which its run released. `explain.error_bars` widens errors by both.

Only the spec and the bundle are read, so replicates are post-processing (``docs/privacy.md``). Their noise is real all
the same: with a seed, the function would lend a seeded generator to rows that might be private.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path

import pyarrow as pa

from privbench_core.errors import BudgetError, InternalError, PrivbenchError, PublishError, SpecError
from privbench_core.evaluation import summarize_bundle
from privbench_core.evaluation.attacks import RunOnRows
from privbench_core.pipeline import plan_for, run_name
from privbench_core.pipeline.executor import Executor, Progress
from privbench_core.pipeline.runner import Made, Run, Runner
from privbench_core.pipeline.snapshot import GivenRows
from privbench_core.pipeline.workspace import Scratch, Workspace, database_folder
from privbench_core.publishing import add_replicates, is_bundle, read_bundle
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Key, Plan, StepKind
from privbench_core.synthesizers.steps.sampled import SampledTable

_UNKNOWN = "It is not known here whether the source has changed since the bundle was made."


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


def rehearse(spec: Spec, plan: Plan, tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Synthetic rows by ``plan`` from the rows in ``tables``."""
    return sampled_rows(spec, plan, run_on_rows(spec, plan, tables, Run("rehearsal")))


def run_on_rows(
    spec: Spec,
    plan: Plan,
    tables: Mapping[str, pa.Table],
    run: Run,
    *,
    fidelity: bool = False,
    progress: Progress | None = None,
) -> dict[Key, Made]:
    """Run the steps of ``plan`` that draw rows on others in memory, and with ``fidelity`` those that measure them."""
    without = {StepKind.VALIDATE, StepKind.PUBLISH} | (set() if fidelity else {StepKind.FIDELITY})
    with closing(Scratch(spec.accepting_noise, plan.budget)) as here:
        runner = Runner(here, plan, run, snapshot=GivenRows(here, tables))
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


def make_replicates(spec: Spec, bundle: Path, number: int, progress: Progress | None = None) -> None:
    """Put replicates into a bundle. Arguments and errors are those of `privbench_core.replicate`."""
    fewest = 5  # the intervals of fewer are more than twice as wide as those of many (Student's t)
    if number < fewest:
        raise SpecError(f"number: {number} replicates are too few for error bars; make {fewest} or more")
    opened, plan = read_bundle(bundle), plan_of(spec, bundle)
    if plan is None or opened.manifest["database"] != spec.schema.name:
        raise SpecError(f"{bundle}: was not made from this spec as it is now; give the spec it was made from")
    if opened.manifest["privacy"].get("sampling", {}).get("scale", 1) != 1:
        raise PublishError(f"{bundle}: is not in the size of the source, so its errors are not; run at --scale 1")
    rows = {name: opened.table(name) for name in opened.tables}
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))

    def replicates() -> Iterator[Mapping[str, pa.Table]]:
        for seed in range(number):
            made = run_on_rows(spec, plan, rows, Run("replicate", seed), fidelity=True, progress=progress)
            for step in (step for step in plan.steps if step.kind is StepKind.FIDELITY):
                for figure in made[step.key].release.artifact.data["metrics"]:
                    sums[step.table][figure["metric"]] += figure["value"]
            yield sampled_rows(spec, plan, made)

    def distances() -> dict[str, dict[str, float]]:
        return {table: {metric: total / number for metric, total in found.items()} for table, found in sums.items()}

    add_replicates(opened, replicates(), distances)
