"""The functions of the public API: what the command line does, for programs. Import them from `privbench_core`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from privbench_core.backends.loading import Loaded
from privbench_core.evaluation.evaluation import Evaluation, evaluate_bundle
from privbench_core.evaluation.inputs import refuse_inside_bundle
from privbench_core.pipeline.executor import Progress
from privbench_core.pipeline.plans import plan_for
from privbench_core.pipeline.rehearsal import rehearsal_of, source_state
from privbench_core.pipeline.run import RunResult, run_spec
from privbench_core.publishing.bundle import load_bundle
from privbench_core.report.page import write_report
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Plan


def plan(spec: Spec, epsilon: float, *, delta: float | None = None, synthesizer: str | None = None) -> Plan:
    """Return the steps of a run at ``epsilon`` and their prices, without reading a row.

    Args:
        spec: The spec.
        epsilon: Budget of the run.
        delta: Overrides the spec's δ.
        synthesizer: Overrides the spec's synthesizer; the spec's options then do not apply.

    Raises:
        SpecError: The budget, the synthesizer or its options are wrong.
        UnsupportedBudgetError: The synthesizer has no form for this budget.
    """
    return plan_for(spec, epsilon, delta=delta, synthesizer=synthesizer)


def run(
    spec: Spec,
    epsilon: float,
    *,
    out: Path,
    delta: float | None = None,
    synthesizer: str | None = None,
    seed: int = 0,
    scale: float = 1.0,
    workers: int | None = None,
    csv: bool = True,
    accept_noise: bool = False,
    undeclared_epsilon: bool = False,
    progress: Progress | None = None,
) -> RunResult:
    """Run the whole plan at ``epsilon`` and write the bundle to ``out``. Steps released before are not paid for again.

    Args:
        spec: The spec.
        epsilon: Budget of the run.
        out: Folder of the bundle; replaced if it holds one.
        delta: Overrides the spec's δ.
        synthesizer: Overrides the spec's synthesizer; the spec's options then do not apply.
        seed: Of sampling; the same releases and seed give the same bundle. Privacy noise has no seed.
        scale: Size of the synthetic database relative to the source; costs nothing.
        workers: Most processes that make large tables; as many as there are processors if None. Any number makes the
            same bytes.
        csv: Whether the bundle has its rows once more, as CSV for psql, which takes as long as the rest of writing.
        accept_noise: Whether to buy the rest of a run even if released numbers show that it will be noise.
        undeclared_epsilon: Whether ``epsilon`` may be one that the spec does not list; recipients rely on its list.
        progress: Called before each step with its number, the number of steps and the step.

    Raises:
        SpecError: The spec does not list ``epsilon``; nothing was opened.
        BudgetExhaustedError: The lifetime budget cannot pay for the run; no row was read.
        NoiseOnlyError: The rest of the run would be noise, and ``accept_noise`` is false; it was not bought.
        PrivbenchError: Of any other kind; steps that were released stay paid for.
    """
    given = spec.accepting_noise if accept_noise else spec
    return run_spec(
        given,
        epsilon,
        out=out,
        delta=delta,
        synthesizer=synthesizer,
        seed=seed,
        scale=scale,
        workers=workers,
        csv=csv,
        undeclared_epsilon=undeclared_epsilon,
        progress=progress,
    )


def evaluate(
    spec: Spec,
    bundle: Path,
    *,
    out: Path | None = None,
    workload: Path | None = None,
    run_time: bool | str = False,
) -> Evaluation:
    """Compare a bundle with the source of ``spec``, and attack the plan that made it.

    Every figure is about private rows and no budget pays for it: do not publish any of them.

    Args:
        spec: The spec that the bundle was made from.
        bundle: Folder of the bundle.
        out: Folder for metrics.json and report.html; None writes no file.
        workload: File of SQL queries; None generates some from the source.
        run_time: Whether to measure run times as well: in an embedded PostgreSQL, or in the one of this URL.

    Returns:
        Everything that the report says.

    Raises:
        PublishError: The bundle is damaged or of another schema, there is no PostgreSQL, or ``out`` is inside a bundle.
        SourceError: The source or the workload cannot be read.
    """
    if out is not None:
        refuse_inside_bundle(out)  # before the work: internal figures must not be given away with a bundle
    attacked = rehearsal_of(spec, bundle)
    evaluation = evaluate_bundle(spec, bundle, workload=workload, run_time=run_time, rehearse=attacked)
    evaluation = replace(evaluation, source_state=source_state(spec, bundle))
    if out is not None:
        write_report(evaluation, out)
    return evaluation


def publish(bundle: Path, target_url: str, *, replace: bool = False) -> Loaded:
    """Load a bundle into a database: tables, rows, keys, indexes, statistics; all of it or nothing.

    Args:
        bundle: Folder of the bundle; its checksums are verified first.
        target_url: ``postgresql://…`` (``?schema=name`` chooses a schema), or a path that ends in ``.duckdb``.
        replace: Whether to drop tables of the same names first; nothing else is dropped.

    Returns:
        Rows loaded by table, and what the target cannot hold.

    Raises:
        PublishError: The bundle is damaged, or the target is unknown, refuses, or is not empty. It is then unchanged.
    """
    return load_bundle(bundle, target_url, replace=replace)
