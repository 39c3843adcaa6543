"""Evaluate a bundle against its source: every figure of a report, without rendering it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privbench_core.errors import SourceError
from privbench_core.evaluate.comparison import Comparison, compare
from privbench_core.evaluate.generate import Recipe, generate_workload
from privbench_core.evaluate.membership import RunOnRows
from privbench_core.evaluate.privacy_figures import PrivacyFigures, privacy_figures
from privbench_core.evaluate.q_error import WorkloadResult, run_workload
from privbench_core.evaluate.queries import read_sam_workload
from privbench_core.evaluate.runtime import RunTimeResult
from privbench_core.evaluate.subjects import Subjects, read_both
from privbench_core.evaluate.table_figures import FULL, SEED, Scope
from privbench_core.evaluate.verdict import judge
from privbench_core.schema.tables import Schema
from privbench_core.spec.model import Spec
from privbench_core.workload.statements import Workload, read_workload

INTERNAL = "Internal: compares with private data. Do not publish."
"""Stands at the top of every report and in metrics.json."""


@dataclass(frozen=True)
class Evaluation:
    """Everything a report says.

    Attributes:
        subjects: Bundle and source.
        comparison: Fidelity of tables and joins.
        privacy: What was spent, and what attacks found.
        workload: Q-errors; None if no query could be made.
        run_time: Run times in PostgreSQL; None if they were not asked for.
    """

    subjects: Subjects
    comparison: Comparison
    privacy: PrivacyFigures
    workload: WorkloadResult | None = None
    run_time: RunTimeResult | None = None

    def to_dict(self) -> dict[str, Any]:
        """The content of metrics.json."""
        about = self.subjects.about
        verdict = judge(self.comparison, self.workload, self.run_time)
        return {
            "notice": INTERNAL,
            "database": about.database,
            "bundle": about.bundle,
            "guarantee": about.guarantee,
            "scale": about.scale,
            "verdict": {
                "level": str(verdict.level),
                "summary": verdict.summary,
                "remarks": [str(remark) for remark in verdict.remarks],
                "alarms": list(self.privacy.alarms),
            },
            **self.comparison.to_dict(),
            "workload": self.workload.to_dict() if self.workload else None,
            "run_time": self.run_time.to_dict() if self.run_time else None,
            "privacy": self.privacy.to_dict(),
        }


def evaluate_bundle(
    spec: Spec,
    bundle: Path,
    *,
    workload: Path | None = None,
    run_time: bool | str = False,
    rehearse: RunOnRows | None = None,
    scope: Scope = FULL,
) -> Evaluation:
    """Compare ``bundle`` with the source of ``spec``. Every figure is internal: it is about private rows.

    Args:
        spec: The spec that the bundle was made from.
        bundle: Its folder.
        workload: SQL queries, or a SAM workload (``.json``) on a database of one table; without it, a random workload
            is made from the source.
        run_time: Whether to measure run times too: on an own PostgreSQL, or on the one of this URL.
        rehearse: The synthesizer at the bundle's budget, to attack it (`pipeline.rehearsal`); without it, no attack.
        scope: How much is looked at.

    Raises:
        PublishError: The bundle is damaged or of another schema, or there is no PostgreSQL.
        SourceError: The source or the workload cannot be read.
    """
    given = _read_queries(workload, spec.schema) if workload else None
    subjects = read_both(spec, bundle)
    pair = subjects.pair
    queries = given or _generated(spec.schema, pair.source)
    times = None
    if run_time and queries is not None:
        # Imported here: it needs a driver and a server, which nothing else in a report does.
        from privbench_core.evaluate.side_by_side import compare_run_times

        url = run_time if isinstance(run_time, str) else None
        times = compare_run_times(spec.schema, pair.source, bundle, queries, url=url)
    return Evaluation(
        subjects,
        compare(pair, scope),
        privacy_figures(subjects, rehearse),
        run_workload(queries, pair.source, pair.synthetic, scale=subjects.about.scale) if queries else None,
        times,
    )


def _read_queries(path: Path, schema: Schema) -> Workload:
    if path.suffix != ".json":
        return read_workload(path)
    if len(schema.tables) != 1:
        raise SourceError(f"{path.name}: a SAM workload is on one table, but {schema.name} has several; write SQL")
    return read_sam_workload(path, schema.tables[0])


def _generated(schema: Schema, source: Mapping[str, Any]) -> Workload | None:
    """A workload made from the source, None where no query finds anything."""
    try:
        return generate_workload(schema, source, Recipe(seed=SEED))
    except SourceError:
        return None
