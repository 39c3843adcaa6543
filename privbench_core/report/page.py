"""The HTML page: one file, nothing loaded from anywhere, the warning on its face."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from privbench_core.errors import SourceError
from privbench_core.evaluate.generate import Recipe, generate_workload
from privbench_core.evaluate.heatmap import worst_and_typical
from privbench_core.evaluate.membership import Rehearsal
from privbench_core.evaluate.queries import read_sam_workload
from privbench_core.evaluate.runtime import RunTimeResult
from privbench_core.evaluate.statements import Workload, read_workload
from privbench_core.evaluate.workload import WorkloadResult, run_workload
from privbench_core.report import plots, tree
from privbench_core.report.comparison import Comparison, compare
from privbench_core.report.privacy import PrivacyFigures, privacy_figures
from privbench_core.report.reading import Subjects, keep_apart, read_both
from privbench_core.report.tables import FULL, SEED, Scope
from privbench_core.report.verdict import judge
from privbench_core.schema.model.tables import Schema
from privbench_core.schema.spec import Spec

if TYPE_CHECKING:
    from jinja2 import Template

INTERNAL = "Internal: compares with private data. Do not publish."
"""Stands at the top of every report and in metrics.json."""

_WORST = 20  # queries shown
_STRONG = 8  # correlations shown at once


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
    out: Path,
    *,
    workload: Path | None = None,
    run_time: bool | str = False,
    rehearse: Rehearsal | None = None,
    scope: Scope = FULL,
) -> Evaluation:
    """Compare ``bundle`` with the source of ``spec`` and write metrics.json and report.html to ``out``: internal.

    Args:
        spec: The spec that the bundle was made from.
        bundle: Its folder.
        out: Where the report goes: not inside of a bundle.
        workload: SQL queries, or a SAM workload (``.json``) on a database of one table; without it, a random workload
            is made from the source.
        run_time: Whether to measure run times too: on an own PostgreSQL, or on the one of this URL.
        rehearse: The synthesizer at the bundle's budget, to attack it (`pipeline.rehearsal`); without it, no attack.
        scope: How much is looked at.

    Raises:
        PublishError: The bundle is damaged or of another schema, ``out`` is inside a bundle, or there is no PostgreSQL.
        SourceError: The source or the workload cannot be read.
    """
    keep_apart(out)
    given = _read_queries(workload, spec.schema) if workload else None
    subjects = read_both(spec, bundle)
    pair = subjects.pair
    queries = given or _generated(spec.schema, pair.source)
    times = None
    if run_time and queries is not None:
        # Imported here: it needs a driver and a server, which nothing else in a report does.
        from privbench_core.report.side_by_side import compare_run_times

        url = run_time if isinstance(run_time, str) else None
        times = compare_run_times(spec.schema, pair.source, bundle, queries, url=url)
    evaluation = Evaluation(
        subjects,
        compare(pair, scope),
        privacy_figures(subjects, rehearse),
        run_workload(queries, pair.source, pair.synthetic, scale=subjects.about.scale) if queries else None,
        times,
    )
    out.mkdir(parents=True, exist_ok=True, mode=0o700)
    text = json.dumps(evaluation.to_dict(), indent=2, ensure_ascii=False)
    (out / "metrics.json").write_text(text + "\n", encoding="utf-8")
    (out / "report.html").write_text(render(evaluation), encoding="utf-8")
    return evaluation


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


def render(evaluation: Evaluation) -> str:
    """The page."""
    pair, comparison, privacy = evaluation.subjects.pair, evaluation.comparison, evaluation.privacy
    workload, run_time = evaluation.workload, evaluation.run_time
    errors = workload.errors if workload else None
    return _template().render(
        notice=INTERNAL,
        subject=evaluation.subjects.about,
        verdict=judge(comparison, workload, run_time),
        comparison=comparison,
        overall={order: comparison.overall(order) for order in comparison.orders},
        tables=_tables(evaluation),
        joins=_joins(evaluation),
        public=[table.name for table in pair.schema.tables if table.public],
        privacy=privacy,
        workload=workload,
        q_errors=errors.summary() if errors else None,
        q_plots=_workload_plots(workload) if workload and errors else (),
        worst=sorted(workload.answers, key=lambda a: -a.q_error)[:_WORST] if workload else [],
        run_time=run_time,
        time_plot=_time_plot(run_time) if run_time and run_time.times else "",
        slow=sorted(run_time.times, key=lambda t: -t.discrepancy)[:_WORST] if run_time else [],
        colours={"source": plots.SOURCE, "synthetic": plots.SYNTHETIC},
    )


def _tables(evaluation: Evaluation) -> list[dict[str, Any]]:
    """Per table its figures and plots."""
    true, made = evaluation.subjects.pair.coded
    shown = []
    for name, figures in evaluation.comparison.tables.items():
        distances = {column: f.tvd for column, f in figures.columns.items() if f.tvd is not None}
        ranked = sorted(figures.pairs.items(), key=lambda item: -item[1])
        ends = list(zip(("worst", "best"), (ranked[:1] + ranked[1:][-1:]), strict=False))
        heats = worst_and_typical(true[name], made[name], np.random.default_rng(SEED))
        shown.append({
            "name": name,
            "figures": figures,
            "columns": plots.marginals(true[name], made[name], distances) if distances else "",
            "pairs": [(kind, pair, far, plots.pair(true[name], made[name], pair)) for kind, (pair, far) in ends],
            "heats": [
                (kind, h, tree.draw(h.source, "source"), tree.draw(h.synthetic, "bundle"))
                for kind, h in zip(("worst", "typical"), heats, strict=False)
            ],
        })  # fmt: skip
    return shown


def _joins(evaluation: Evaluation) -> list[dict[str, Any]]:
    """Per foreign key its figures and plots."""
    pair = evaluation.subjects.pair
    keys = {key.name: key for key in pair.foreign_keys}
    shown = []
    for name, figures in evaluation.comparison.keys.items():
        left, right = pair.linked(keys[name])
        heat = plots.heat_map(figures) if figures.pairs else ""
        ranked = sorted((c for c in figures.between if c.source is not None), key=lambda c: -abs(c.source or 0.0))
        shown.append({
            "name": name,
            "figures": figures,
            "fanout": plots.fanout(left.fanout, right.fanout),
            "heat": heat,
            "strong": ranked[:_STRONG],
            "weak": ranked[_STRONG:],
        })  # fmt: skip
    return shown


def _workload_plots(workload: WorkloadResult) -> tuple[str, ...]:
    counts = np.maximum([[a.true, a.estimated] for a in workload.answers], 1.0)
    errors = np.array([answer.q_error for answer in workload.answers])
    return plots.scatter(counts[:, 0], counts[:, 1], "rows"), plots.q_error_curve(errors)


def _time_plot(run_time: RunTimeResult) -> str:
    times = np.maximum([time.milliseconds for time in run_time.times], 1e-3)
    return plots.scatter(times[:, 0], times[:, 1], "milliseconds")


@cache
def _template() -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("privbench_core.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["figure"] = lambda value, digits=3: "–" if value is None else f"{value:.{digits}f}"
    return environment.get_template("report.html.j2")
