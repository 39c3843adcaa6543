"""Evaluate a bundle as its owner: every figure, the plan attacked in memory, and the report on disk."""

from __future__ import annotations

from pathlib import Path

from privbench_core.evaluate.evaluation import Evaluation, evaluate_bundle
from privbench_core.evaluate.subjects import keep_apart
from privbench_core.pipeline.rehearsal import rehearsal_of
from privbench_core.report.page import write_report
from privbench_core.spec.model import Spec


def evaluate_and_report(
    spec: Spec,
    bundle: Path,
    *,
    out: Path | None = None,
    workload: Path | None = None,
    run_time: bool | str = False,
) -> Evaluation:
    """Compare ``bundle`` with the source of ``spec``, and attack the plan that made it.

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
        keep_apart(out)  # before the work: internal figures must not be given away with a bundle
    evaluation = evaluate_bundle(
        spec, bundle, workload=workload, run_time=run_time, rehearse=rehearsal_of(spec, bundle)
    )
    if out is not None:
        write_report(evaluation, out)
    return evaluation
