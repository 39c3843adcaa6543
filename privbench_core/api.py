"""The functions of the public API: what the command line does, for programs. Import them from `privbench_core`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from types import UnionType

from privbench_core.backends import Loaded
from privbench_core.continuation.append import Appended, append_bundle
from privbench_core.errors import PublishError, SpecError
from privbench_core.evaluation import refuse_inside_bundle
from privbench_core.evaluation.evaluation import Certificate, Evaluation, certify_bundle, evaluate_bundle
from privbench_core.explain import queries_of
from privbench_core.explain.comparison import RunTimeSettings, read_thresholds
from privbench_core.explain.decisions import DecisionSettings
from privbench_core.explain.error_bars import ErrorBars, intervals_of
from privbench_core.files import as_path
from privbench_core.pipeline import plan_for
from privbench_core.pipeline.executor import Progress, RunResult, run_spec
from privbench_core.pipeline.rehearsal import make_replicates, rehearsal_of, source_state
from privbench_core.publishing import load_bundle, read_bundle, refuse_taken_folder
from privbench_core.report import write_certificate, write_report
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Plan

_TYPES: dict[str, tuple[type | UnionType, str]] = {
    "epsilon": (Real, "a number"),
    "delta": (Real | None, "a number"),
    "scale": (Real, "a number"),
    "seed": (Integral, "a whole number"),
    "workers": (Integral | None, "a whole number"),
    "days": (Integral, "a whole number"),
    "after": (Integral | None, "a whole number"),
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


def replicate(
    spec: Spec | str | Path, bundle: str | Path, number: int = 10, *, progress: Progress | None = None
) -> None:
    """Run the plan of a bundle again on the bundle's own rows, and put the replicates into it, for `error_bars`.

    Neither the source nor the ledger is opened, and no budget is spent: everything comes from the spec and the bundle.

    Args:
        spec: The spec that the bundle was made from, or its file.
        bundle: Folder of the bundle. Replicates that it has are replaced.
        number: Number of replicates, 5 or more; each takes as long as a run, and as much disk as the bundle.
        progress: Called before each step of each replicate with its number, the number of steps and the step.

    Raises:
        SpecError: The bundle was made from another spec, or ``number`` is too small.
        PublishError: The bundle is damaged, or not in the size of the source.
    """
    make_replicates(_loaded(spec), as_path(bundle, "bundle", PublishError), number, progress)


def error_bars(bundle: str | Path, workload: str | Path | None = None) -> ErrorBars:
    """Return for each query over a bundle an interval for its answer on the source, at a nominal coverage of 95%.

    Args:
        bundle: Folder of a bundle with replicates, see `replicate`.
        workload: File of SQL queries; None takes the bundle's, or without one the sizes of its tables and joins.

    Raises:
        PublishError: The bundle is damaged, or has no replicates.
        SourceError: The workload cannot be read.
    """
    opened = read_bundle(as_path(bundle, "bundle", PublishError))
    file = None if workload is None else as_path(workload, "workload", SpecError)
    return intervals_of(opened, queries_of(opened, file) if file or opened.workload else None)


def certify(
    spec: Spec | str | Path,
    bundle: str | Path,
    *,
    out: str | Path | None = None,
    workload: str | Path | None = None,
    urls: Sequence[str] = (),
    thresholds: Mapping[str, float] | str | Path | None = None,
    choices: int = 200,
    seed: int = 0,
) -> Certificate:
    """Compare PostgreSQL's plans, and decisions between ways to run queries, on source and bundle.

    Every figure is about private rows and no budget pays for it: do not publish any of them.

    Args:
        spec: The spec that the bundle was made from, or its file.
        bundle: Folder of the bundle.
        out: Folder for certificate.json and certificate.html; None writes no file.
        workload: File of SQL queries; None takes the bundle's own, on the source with the literals of the spec's
            workload, or random ones on the source if it has none.
        urls: PostgreSQL servers; by default one is started. Each after the first is an alternative to decide about.
        thresholds: Limits by name, or their YAML file; the rest are `explain.comparison.DEFAULTS`.
        choices: Most choices to measure.
        seed: Of the sample of choices, where there are more.

    Returns:
        Everything that the certificate says; ``missed`` names the thresholds that are missed.

    Raises:
        PublishError: The bundle is damaged or of another schema, there is no PostgreSQL, or ``out`` is inside a bundle.
        SourceError: The source or the workload cannot be read.
        SpecError: The thresholds are wrong.
    """
    given, folder = _loaded(spec), as_path(bundle, "bundle", PublishError)
    page = None if out is None else as_path(out, "out", SpecError)
    queries = None if workload is None else as_path(workload, "workload", SpecError)
    if page is not None:
        refuse_inside_bundle(page)  # before the work: internal figures must not be given away with a bundle
    limits = read_thresholds(thresholds)
    settings = RunTimeSettings(seed=seed), DecisionSettings(limit=choices, seed=seed)
    certificate = certify_bundle(given, folder, workload=queries, urls=urls, limits=limits, settings=settings)
    if page is not None:
        write_certificate(certificate, page)
    return certificate


def publish(
    bundle: str | Path, target_url: str | Path, *, replace: bool = False, statistics_only: bool = False
) -> Loaded:
    """Load a bundle into a database: tables, rows, keys, indexes, statistics; all of it or nothing.

    Args:
        bundle: Folder of the bundle; its checksums are verified first.
        target_url: ``postgresql://…`` (optionally with a SQLAlchemy driver such as ``+psycopg``; ``?schema=name``
            chooses a schema), ``duckdb:///path``, or a path that ends in ``.duckdb``.
        replace: Whether to drop tables and enums of the same names first. Nothing that depends on them is dropped, and
            no other table changes.
        statistics_only: Whether to load no rows, but what the planner of PostgreSQL 18 would know of them.

    Returns:
        Rows by table that were loaded, or that the statistics are about; and what the target cannot hold.

    Raises:
        PublishError: The bundle is damaged, or the target is unknown, refuses, or is not empty. It is then unchanged.
            No message contains a password.
    """
    target = target_url if isinstance(target_url, str) else str(as_path(target_url, "target_url", PublishError))
    folder = as_path(bundle, "bundle", PublishError)
    return load_bundle(folder, target, replace=replace, statistics_only=statistics_only)


def append(
    bundle: str | Path, target_url: str | Path, days: int = 7, *, after: int | None = None, seed: int = 0
) -> Appended:
    """Append the next days of a bundle's world to a database that holds it, or to a file of INSERT statements.

    Each call appends the days after those of the last one; no row is appended twice. All of it is made from the bundle,
    so it is as private as that.

    Args:
        bundle: Folder of the bundle; its checksums are verified first.
        target_url: As of `publish`; or a path that ends in ``.sql``, made if it is not there.
        days: How many; the same each time.
        after: How often this was done before, where that must be so; None for any number.
        seed: Of the choices; the same each time.

    Returns:
        The days, and new rows by table.

    Raises:
        PublishError: The bundle is damaged or has no dates, or the target does not hold it, refuses, or holds days that
            other arguments have made. It is then unchanged. No message contains a password.
    """
    _refuse_other_types(days=days, after=after, seed=seed)
    target = target_url if isinstance(target_url, str) else str(as_path(target_url, "target_url", PublishError))
    return append_bundle(as_path(bundle, "bundle", PublishError), target, days=days, after=after, seed=seed)


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
