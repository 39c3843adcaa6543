"""The HTML page: one file, nothing loaded from anywhere, the warning on its face."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from privbench_core.evaluate.evaluation import INTERNAL, Evaluation
from privbench_core.evaluate.heatmap import worst_and_typical
from privbench_core.evaluate.q_error import WorkloadResult
from privbench_core.evaluate.runtime import RunTimeResult
from privbench_core.evaluate.subjects import keep_apart
from privbench_core.evaluate.table_figures import SEED
from privbench_core.evaluate.verdict import judge
from privbench_core.report import plots, tree

if TYPE_CHECKING:
    from jinja2 import Template

_WORST = 20  # queries shown
_STRONG = 8  # correlations shown at once


def write_report(evaluation: Evaluation, out: Path) -> None:
    """Write metrics.json and report.html to the folder ``out``, which only its owner may read.

    Raises:
        PublishError: ``out`` is inside of a bundle.
    """
    keep_apart(out)
    out.mkdir(parents=True, exist_ok=True, mode=0o700)
    text = json.dumps(evaluation.to_dict(), indent=2, ensure_ascii=False)
    (out / "metrics.json").write_text(text + "\n", encoding="utf-8")
    (out / "report.html").write_text(render(evaluation), encoding="utf-8")


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
