"""The HTML page: a single file that loads nothing and shows the warning at its top."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from privbench_core.evaluation.comparison import FANOUT_METRICS, JOIN_METRICS
from privbench_core.evaluation.evaluation import INTERNAL, Evaluation
from privbench_core.evaluation.heatmap import worst_and_typical
from privbench_core.evaluation.inputs import refuse_inside_bundle
from privbench_core.evaluation.marginals import SEED, MarginalDistances
from privbench_core.evaluation.q_error import WorkloadResult
from privbench_core.evaluation.runtime import RunTimeResult
from privbench_core.evaluation.verdict import Level
from privbench_core.files import write_durably
from privbench_core.report import plots
from privbench_core.schema.columns import Learn
from privbench_core.version import __version__

if TYPE_CHECKING:
    from jinja2 import Template

_MAX_WORST = 20  # queries in the lists of the worst
_MAX_STRONG = 8  # correlations in the open list


def write_report(evaluation: Evaluation, out: Path) -> None:
    """Write metrics.json and report.html to the folder ``out``, which only its owner may read.

    Raises:
        PublishError: ``out`` is inside a bundle.
    """
    refuse_inside_bundle(out)
    out.mkdir(parents=True, exist_ok=True, mode=0o700)
    text = json.dumps(evaluation.to_dict(), indent=2, ensure_ascii=False) + "\n"
    written = {"metrics.json": text, "report.html": render(evaluation)}  # both, before there is one of them
    for name, content in written.items():
        write_durably(out / name, content.encode())


def render(evaluation: Evaluation) -> str:
    """Return the page."""
    pair, comparison = evaluation.inputs.pair, evaluation.comparison
    workload, run_time = evaluation.workload, evaluation.run_time
    errors = workload.errors if workload else None
    return _template().render(
        notice=INTERNAL,
        summary=evaluation.inputs.summary,
        made={
            "date": evaluation.at,
            "version": __version__,
            "bundle_version": evaluation.inputs.summary.receipt.get("software", {}).get("version"),
            "source": evaluation.source_state,
        },
        advice=advice_on(evaluation),
        verdict=evaluation.verdict,
        distance_labels={f.name: f.metadata["label"] for f in fields(MarginalDistances)},
        join_labels=JOIN_METRICS,
        key_labels=JOIN_METRICS | FANOUT_METRICS,
        comparison=comparison,
        overall={order: comparison.overall(order) for order in comparison.orders},
        tables=_tables(evaluation),
        joins=_joins(evaluation),
        public=[table.name for table in pair.schema.tables if table.public],
        privacy=evaluation.privacy,
        workload=workload,
        q_errors=errors.summary() if errors else None,
        q_plots=_workload_plots(workload) if workload and errors else (),
        worst=sorted(workload.answers, key=lambda a: -a.q_error)[:_MAX_WORST] if workload else [],
        run_time=run_time,
        time_plot=_time_plot(run_time) if run_time and run_time.times else "",
        slow=sorted(run_time.times, key=lambda t: -t.discrepancy)[:_MAX_WORST] if run_time else [],
        colours={"source": plots.SOURCE, "synthetic": plots.SYNTHETIC},
    )


def _tables(evaluation: Evaluation) -> list[dict[str, Any]]:
    """Return the figures and plots of each table."""
    source, synthetic = evaluation.inputs.pair.encoded
    shown = []
    for name, figures in evaluation.comparison.tables.items():
        distances = {column: f.tvd for column, f in figures.columns.items() if f.tvd is not None}
        ranked = sorted(figures.pairs.items(), key=lambda item: -item[1])
        ends = list(zip(("worst", "best"), (ranked[:1] + ranked[1:][-1:]), strict=False))
        heats = worst_and_typical(source[name], synthetic[name], np.random.default_rng(SEED))
        shown.append({
            "name": name,
            "figures": figures,
            "columns": plots.marginals(source[name], synthetic[name], distances) if distances else "",
            "pairs": [(kind, pair, far, plots.pair(source[name], synthetic[name], pair)) for kind, (pair, far) in ends],
            "heats": [
                (kind, h, plots.tree(h.source, "source"), plots.tree(h.synthetic, "bundle"))
                for kind, h in zip(("worst", "typical"), heats, strict=False)
            ],
        })  # fmt: skip
    return shown


def _joins(evaluation: Evaluation) -> list[dict[str, Any]]:
    """Return the figures and plots of each foreign key."""
    pair = evaluation.inputs.pair
    keys = {key.name: key for key in pair.foreign_keys}
    shown = []
    for name, figures in evaluation.comparison.keys.items():
        source, synthetic = pair.linked(keys[name])
        ranked = sorted((c for c in figures.inter_table if c.source is not None), key=lambda c: -abs(c.source or 0.0))
        shown.append({
            "name": name,
            "figures": figures,
            "fanout": plots.fanout(source.fanout, synthetic.fanout),
            "heat": plots.heat_map(figures) if figures.pairs else "",
            "strong": ranked[:_MAX_STRONG],
            "weak": ranked[_MAX_STRONG:],
        })  # fmt: skip
    return shown


def _workload_plots(workload: WorkloadResult) -> tuple[str, ...]:
    counts = np.maximum([[a.true, a.estimated] for a in workload.answers], 1.0)
    errors = np.array([answer.q_error for answer in workload.answers])
    return plots.scatter(counts[:, 0], counts[:, 1], "rows"), plots.q_error_curve(errors)


def _time_plot(run_time: RunTimeResult) -> str:
    times = np.maximum([time.milliseconds for time in run_time.times], 1e-3)
    return plots.scatter(times[:, 0], times[:, 1], "milliseconds")


def advice_on(evaluation: Evaluation) -> tuple[str, ...]:
    """Return what an owner can do about a bundle that is not close, in order of effect: a sentence each."""
    return () if evaluation.verdict.level is Level.CLOSE else tuple(_lines(evaluation))


def _lines(evaluation: Evaluation) -> Iterator[str]:
    schema = evaluation.inputs.pair.schema
    learned = [f"{t.name}.{c.name}" for t in schema.private_tables for c in t.modelled if isinstance(c.domain, Learn)]
    if learned:
        more = f" and {len(learned) - 6} more" if len(learned) > 6 else ""  # noqa: PLR2004 - six are named
        named = ", ".join(learned[:6]) + more
        yield f"Declare domains instead of learning them ({named}): this costs nothing and leaves more for the rest."
    far = [r.subject for r in evaluation.verdict.remarks if r.level is not None and r.level is not Level.CLOSE]
    if far:
        yield f"Leave out columns that nobody needs, first in {', '.join(far)}: those that stay get their share."
    guarantee = evaluation.inputs.summary.guarantee
    if guarantee:
        twice = f"ε={2 * guarantee[0]:g}"
        yield f"Release at a larger ε: at {twice} noise is about half. privbench plan shows it in rows."
    yield "If neither is possible, use the bundle for what holds: large groups, keys, types and row counts."


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
