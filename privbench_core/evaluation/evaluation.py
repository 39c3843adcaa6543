"""Evaluate a bundle against its source: all the figures of a report, before it is rendered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from privbench_core.errors import SourceError, first_of
from privbench_core.evaluation.attacks import RunOnRows
from privbench_core.evaluation.comparison import Comparison, compare
from privbench_core.evaluation.inputs import BundleAndSource, read_bundle_and_source, shuffled_reference
from privbench_core.evaluation.marginals import SEED, Figures
from privbench_core.evaluation.privacy_figures import privacy_figures
from privbench_core.evaluation.q_error import QUERY_SECONDS, Recipe, WorkloadResult, generate_workload, run_workload
from privbench_core.explain.comparison import compare_plans
from privbench_core.explain.session import both_loaded
from privbench_core.publishing.verdicts import MEANINGS, Grade, Verdict, worst_first
from privbench_core.schema.tables import Schema
from privbench_core.spec.model import FidelityPolicy, Spec
from privbench_core.workload.engine import TIMEOUT_SECONDS, Engine
from privbench_core.workload.statements import Workload, read_sam_workload, read_workload

INTERNAL = "Internal: compares with private data. Do not publish."
"""The notice at the top of every report and in metrics.json."""


@dataclass(frozen=True)
class Evaluation:
    """The content of a report."""

    inputs: BundleAndSource
    comparison: Comparison
    privacy: Figures  # `privacy_figures`
    workload: WorkloadResult | None = None  # None if no query could be generated
    run_time: Figures | None = None  # `PlanComparison.to_dict`, None if not requested
    policy: FidelityPolicy = field(default_factory=FidelityPolicy)  # the spec's
    source_state: str = ""  # whether the source has changed since the bundle was made, in words; "" if not compared
    at: str = field(default_factory=lambda: datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"))

    def __repr__(self) -> str:
        """Return the verdict in one line."""
        about, queries = self.inputs.summary, "" if self.workload is None else ", with queries"
        return f"<Evaluation of {about.bundle} against {about.database}{queries}: {self.verdict.grade}; internal>"

    @property
    def verdict(self) -> OverallVerdict:
        """The verdict on everything but privacy."""
        found = [*self.comparison.verdicts(self.policy), *(self.workload.verdicts() if self.workload else ())]
        return judge([*found, *(run_time_verdicts(self.run_time) if self.run_time else ())])

    @property
    def graded_by_run(self) -> dict[str, str]:
        """The grade of each table by the figures that the run has paid for, which have noise."""
        stored = self.inputs.summary.receipt.get("fidelity_verdicts", ())
        return {verdict["table"]: verdict["grade"] or "" for verdict in stored}

    def to_dict(self) -> Figures:
        """Return the content of metrics.json."""
        summary, verdict = self.inputs.summary, self.verdict
        return {
            "notice": INTERNAL,
            "database": summary.database,
            "bundle": summary.bundle,
            "guarantee": summary.guarantee_in_words,
            "scale": summary.scale,
            "source_state": self.source_state,
            "verdict": {
                "grade": str(verdict.grade),
                "summary": verdict.summary,
                "tables": [each.to_dict() for each in verdict.verdicts],
                "graded_by_run": self.graded_by_run,
                "alarms": self.privacy["alarms"],
            },
            **self.comparison.to_dict(),
            "workload": self.workload.to_dict() if self.workload else None,
            "run_time": self.run_time,
            "privacy": self.privacy,
        }


def evaluate_bundle(
    spec: Spec,
    bundle: Path,
    *,
    workload: Path | None = None,
    run_time: bool | str = False,
    rehearse: RunOnRows | None = None,
) -> Evaluation:
    """Compare ``bundle`` with the source of ``spec``. All figures are internal: they are about private rows.

    Arguments and errors are those of `privbench_core.evaluate`. A SAM workload (``.json``) is read, too, on a database
    of one table. ``rehearse`` is the synthesizer at the bundle's budget, to attack it (`pipeline.rehearsal`), or None.
    """
    queries = _read_queries(workload, spec.schema) if workload else None
    inputs = read_bundle_and_source(spec, bundle)
    pair = inputs.pair
    engine = Engine(pair.source, QUERY_SECONDS)
    if queries is None and any(rows.num_rows for rows in pair.source.values()):
        queries = generate_workload(spec.schema, pair.source, Recipe(seed=SEED), engine=engine)
    times = None
    if run_time and queries is not None:
        url = run_time if isinstance(run_time, str) else None
        with both_loaded(spec.schema, pair.source, bundle, url) as databases:
            times = compare_plans(spec.schema, databases, queries).to_dict()
    answers = _q_errors(queries, inputs, engine) if queries is not None else None
    private = privacy_figures(inputs, rehearse)
    return Evaluation(inputs, compare(pair), private, answers, times, spec.fidelity)


def _q_errors(queries: Workload, inputs: BundleAndSource, engine: Engine) -> WorkloadResult:
    """Return the Q-errors of the bundle, with those of the source with every column shuffled as the baseline."""
    pair = inputs.pair
    engine.timeout = TIMEOUT_SECONDS
    reference = run_workload(queries, engine, shuffled_reference(pair.schema, pair.source, SEED))
    found = run_workload(queries, engine, pair.synthetic, scale=inputs.summary.scale)
    return replace(found, shuffled=reference.by_joins)


def _read_queries(path: Path, schema: Schema) -> Workload:
    if path.suffix != ".json":
        return read_workload(path)
    if len(schema.tables) != 1:
        raise SourceError(f"{path.name}: a SAM workload queries one table, but {schema.name} has several; write SQL")
    return read_sam_workload(path, schema.tables[0])


@dataclass(frozen=True)
class OverallVerdict:
    """The worst grade of all verdicts, who has it and what it means, and the verdicts, worst first."""

    grade: Grade
    summary: str
    verdicts: tuple[Verdict, ...]


def judge(verdicts: Iterable[Verdict]) -> OverallVerdict:
    """Return the verdict on everything: the worst grade of all."""
    ordered = tuple(worst_first(verdicts))
    worst = next((v.grade for v in ordered if v.grade is not None), Grade.CLOSE)
    graded = [v for v in ordered if v.grade is not None]
    theirs = [v.subject for v in graded if v.grade is worst]
    who = "everything" if len(theirs) == len(graded) else first_of(theirs)
    return OverallVerdict(worst, f"{worst.capitalize()}: {who}. {MEANINGS[worst]}", ordered)


def run_time_verdicts(figures: Figures) -> Iterator[Verdict]:
    """Yield what is said about run times, without a grade; nothing if no query was measured."""
    if figures["measured"]:
        text = (
            f"differs by {figures['discrepancy_percent']['median']:.1f}% in the median; the source differs from itself"
            f" by {figures['noise_percent']['median']:.1f}%. {figures['same_plan']:.0%} of the queries have the same"
            " plan"
        )
        yield Verdict("Run time", None, text)
