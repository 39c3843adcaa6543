"""Evaluate a bundle against its source, and certify its plans: all the figures of a report, before it is rendered.

A certificate says whether the bundle leads PostgreSQL, and those who tune it, to the choices of the source. Both are
internal: they compare with private rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import sqlglot

from privbench_core.errors import SourceError, first_of
from privbench_core.evaluation import BundleAndSource, BundleSummary, read_bundle_and_source, shuffled_reference
from privbench_core.evaluation.attacks import RunOnRows
from privbench_core.evaluation.comparison import Comparison, compare
from privbench_core.evaluation.marginals import SEED, Figures
from privbench_core.evaluation.privacy_figures import privacy_figures
from privbench_core.evaluation.q_error import QUERY_SECONDS, Recipe, WorkloadResult, generate_workload, run_workload
from privbench_core.explain import queries_of
from privbench_core.explain.comparison import (
    DEFAULTS,
    PlanComparison,
    RunTimeSettings,
    compare_plans,
    missed_thresholds,
)
from privbench_core.explain.decisions import Decisions, DecisionSettings, decide
from privbench_core.explain.plan import both_loaded, prepare
from privbench_core.files import file_name
from privbench_core.publishing import Bundle, read_bundle
from privbench_core.publishing.verdicts import MEANINGS, Grade, Verdict, worst_first
from privbench_core.schema.tables import Schema
from privbench_core.spec.model import FidelityPolicy, Spec
from privbench_core.workload import Workload, read_sam_workload, read_workload
from privbench_core.workload.engine import PLACEHOLDERS, TIMEOUT_SECONDS, Engine
from privbench_core.workload.rebind import bind_missing

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


@dataclass(frozen=True)
class Certificate:
    """Plans and decisions on source and bundle.

    Attributes:
        summary: What the manifest says about the bundle.
        plans: The queries on both.
        decisions: The choices between two ways to run them.
        limits: Thresholds by name.
        at: When it was made.
    """

    summary: BundleSummary
    plans: PlanComparison
    decisions: Decisions
    limits: Mapping[str, float] = field(default_factory=lambda: DEFAULTS)
    at: str = field(default_factory=lambda: datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"))

    def __repr__(self) -> str:
        """Return the result in one line."""
        found = f"{len(self.missed)} thresholds missed" if self.missed else "all thresholds kept"
        return f"<Certificate of {self.summary.bundle} against {self.summary.database}: {found}; internal>"

    @cached_property
    def figures(self) -> dict[str, float | None]:
        """The figures that thresholds limit; None where nothing was measured."""
        return {**self.plans.figures, "same_winner": self.decisions.same_winner}

    @cached_property
    def missed(self) -> dict[str, str]:
        """The figures beyond their limits, by name, each in words."""
        return missed_thresholds(self.figures, self.limits)

    def to_dict(self) -> dict[str, Any]:
        """Return the content of certificate.json."""
        return {
            "notice": INTERNAL,
            "database": self.summary.database,
            "bundle": self.summary.bundle,
            "guarantee": self.summary.guarantee_in_words,
            "scale": self.summary.scale,
            "figures": self.figures,
            "limits": dict(self.limits),
            "missed": self.missed,
            "plans": self.plans.to_dict(),
            "decisions": self.decisions.to_dict(),
        }


def certify_bundle(
    spec: Spec,
    bundle: Path,
    *,
    workload: Path | None = None,
    urls: Sequence[str] = (),
    limits: Mapping[str, float] = DEFAULTS,
    settings: tuple[RunTimeSettings, DecisionSettings] = (RunTimeSettings(), DecisionSettings()),
) -> Certificate:
    """Load source and bundle side by side, and compare plans, estimates, run times and decisions.

    Arguments and errors are those of `privbench_core.certify`; ``settings`` say how to measure run times and decisions.
    """
    inputs, opened = read_bundle_and_source(spec, bundle), read_bundle(bundle)
    source, synthetic = inputs.pair.source, inputs.pair.synthetic
    if opened.workload and not workload:
        bound = queries_of(opened, None)
        asked = _as_written(spec, opened, bound)
    else:
        recipe = Recipe(60, seed=SEED)
        asked = queries_of(opened, workload) if workload else generate_workload(spec.schema, source, recipe)
        bound = bind_missing(asked, spec.schema, source, synthetic)
    with ExitStack() as stack:
        servers = [stack.enter_context(both_loaded(spec.schema, source, bundle, url)) for url in urls or (None,)]
        for database in (database for server in servers for database in server):
            prepare(database, settings[0].timeout)
        plans = compare_plans(spec.schema, servers[0], asked, settings[0], second=bound)
        decisions = decide(spec.schema, servers, plans.compared, settings[1])
    return Certificate(inputs.summary, plans, decisions, limits)


def _as_written(spec: Spec, bundle: Bundle, bound: Workload) -> Workload:
    """Return the spec's workload as it is written, of which the bundle has the queries ``bound`` to its own values.

    A query with placeholders is that of the bundle; so are all if the file has changed since.
    """
    noted = bundle.manifest["privacy"].get("workload", {})
    if spec.workload is None or list(noted) != [file_name(spec.workload.stem)]:
        return bound
    written, (of_file,) = read_workload(spec.workload), noted.values()
    left_out = {each["query"] for each in of_file["left_out"]}
    kept = [each for number, each in enumerate(written.statements, 1) if number not in left_out and not each.writes]
    if len(kept) != len(bound.statements):
        return bound
    statements = []
    for own, statement in zip(kept, bound.statements, strict=True):
        tree = sqlglot.parse_one(own.sql, read=written.dialect)
        text = own.sql if written.dialect == bound.dialect else tree.sql(dialect=bound.dialect)
        statements.append(statement if tree.find(*PLACEHOLDERS) is not None else replace(own, sql=text))
    return replace(bound, statements=tuple(statements))
