"""The functions of the public API: what the command line does, for programs. Import them from `privbench_core`."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from types import UnionType

from privbench_core.backends.loading import Loaded
from privbench_core.errors import PublishError, SpecError
from privbench_core.evaluation.evaluation import Evaluation, evaluate_bundle
from privbench_core.evaluation.inputs import refuse_inside_bundle
from privbench_core.files import as_path
from privbench_core.pipeline.executor import Progress
from privbench_core.pipeline.plans import plan_for
from privbench_core.pipeline.rehearsal import rehearsal_of, source_state
from privbench_core.pipeline.run import RunResult, run_spec
from privbench_core.publishing.bundle import load_bundle, refuse_taken_folder
from privbench_core.report.page import write_report
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Plan

_TYPES: dict[str, tuple[type | UnionType, str]] = {
    "epsilon": (Real, "a number"),
    "delta": (Real | None, "a number"),
    "scale": (Real, "a number"),
    "seed": (Integral, "a whole number"),
    "workers": (Integral | None, "a whole number"),
    "synthesizer": (str | None, "the name of a synthesizer"),
}


def plan(
    spec: Spec | str | Path, epsilon: float, *, delta: float | None = None, synthesizer: str | None = None
) -> Plan:
    """Return the steps of a run at ``epsilon`` and their prices, without reading a row.

    Args:
        spec: The spec, or its file.
        epsilon: Budget of the run.
        delta: Overrides the spec's δ.
        synthesizer: Overrides the spec's synthesizer; the spec's options then do not apply.

    Raises:
        SpecError: The budget, the synthesizer or its options are wrong.
        UnsupportedBudgetError: The synthesizer has no form for this budget.
    """
    _refuse_other_types(epsilon=epsilon, delta=delta, synthesizer=synthesizer)
    return plan_for(_loaded(spec), epsilon, delta=delta, synthesizer=synthesizer)


def run(
    spec: Spec | str | Path,
    epsilon: float,
    *,
    out: str | Path,
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
        spec: The spec, or its file.
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
    _refuse_other_types(epsilon=epsilon, delta=delta, synthesizer=synthesizer, seed=seed, scale=scale, workers=workers)
    given, folder = _loaded(spec), as_path(out, "out", SpecError)
    refuse_taken_folder(folder, given.schema.name)  # now, not after everything has been paid for
    return run_spec(
        given.accepting_noise if accept_noise else given,
        epsilon,
        out=folder,
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
    spec: Spec | str | Path,
    bundle: str | Path,
    *,
    out: str | Path | None = None,
    workload: str | Path | None = None,
    run_time: bool | str = False,
) -> Evaluation:
    """Compare a bundle with the source of ``spec``, and attack the plan that made it.

    Every figure is about private rows and no budget pays for it: do not publish any of them.

    Args:
        spec: The spec that the bundle was made from, or its file.
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
    given, folder = _loaded(spec), as_path(bundle, "bundle", PublishError)
    report = None if out is None else as_path(out, "out", SpecError)
    queries = None if workload is None else as_path(workload, "workload", SpecError)
    if report is not None:
        refuse_inside_bundle(report)  # before the work: internal figures must not be given away with a bundle
    attacked = rehearsal_of(given, folder)
    evaluation = evaluate_bundle(given, folder, workload=queries, run_time=run_time, rehearse=attacked)
    evaluation = replace(evaluation, source_state=source_state(given, folder))
    if report is not None:
        write_report(evaluation, report)
    return evaluation


def publish(
    bundle: str | Path, target_url: str | Path, *, replace: bool = False, statistics_only: bool = False
) -> Loaded:
    """Load a bundle into a database: tables, rows, keys, indexes, statistics; all of it or nothing.

    Args:
        bundle: Folder of the bundle; its checksums are verified first.
        target_url: ``postgresql://…`` (``?schema=name`` chooses a schema), or a path that ends in ``.duckdb``.
        replace: Whether to drop tables of the same names first; nothing else is dropped.
        statistics_only: Whether to load no rows, but what the planner of PostgreSQL 18 would know of them.

    Returns:
        Rows by table that were loaded, or that the statistics are about; and what the target cannot hold.

    Raises:
        PublishError: The bundle is damaged, or the target is unknown, refuses, or is not empty. It is then unchanged.
    """
    target = target_url if isinstance(target_url, str) else str(as_path(target_url, "target_url", PublishError))
    folder = as_path(bundle, "bundle", PublishError)
    return load_bundle(folder, target, replace=replace, statistics_only=statistics_only)


def _loaded(spec: object) -> Spec:
    """Return a spec that a program gave, or read its file."""
    if isinstance(spec, str | PathLike):
        return load_spec(Path(spec))
    if isinstance(spec, Spec):
        return spec
    raise SpecError(f"spec: expected what load_spec returns, or the path of a spec file, not {type(spec).__name__}")


def _refuse_other_types(**given: object) -> None:
    """SpecError for arguments of other types; their values are not repeated, because they may be private rows."""
    if problems := [
        f"{name}: expected {_TYPES[name][1]}, not {type(value).__name__}"
        for name, value in given.items()
        if not isinstance(value, _TYPES[name][0])
    ]:
        raise SpecError(problems)
