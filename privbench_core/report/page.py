"""The HTML page: one file, nothing loaded from anywhere, the warning on its face."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from privbench_core.report import plots
from privbench_core.report.comparison import Comparison, Pair
from privbench_core.report.verdict import judge
from privbench_core.report.workload import WorkloadFigures

if TYPE_CHECKING:
    from jinja2 import Template

INTERNAL = "Internal: compares with private data. Do not publish."
"""Stands at the top of every report and in metrics.json."""

_WORST = 20  # queries shown


@dataclass(frozen=True)
class Subject:
    """What a report is about.

    Attributes:
        database: Name of the database.
        bundle: Name of the bundle's folder.
        guarantee: What the bundle's manifest promises, in words; empty if it does not say.
        scale: Size of the bundle relative to the source.
    """

    database: str
    bundle: str
    guarantee: str
    scale: float = 1.0


def subject_of(bundle: str, manifest: Mapping[str, Any]) -> Subject:
    """Read from a bundle's manifest what the report is about."""
    privacy: Mapping[str, Any] = manifest.get("privacy", {})
    promise = privacy.get("guarantee", {}).get("add_or_remove_one_unit")
    words = f"ε={promise['epsilon']:g}, δ={promise['delta']:g} for adding or removing one unit" if promise else ""
    scale = float(privacy.get("sampling", {}).get("scale", 1.0))
    return Subject(str(manifest.get("database", "")), bundle, words, scale)


def metrics(subject: Subject, comparison: Comparison, workload: WorkloadFigures | None) -> dict[str, Any]:
    """The content of metrics.json."""
    verdict = judge(comparison, workload)
    return {
        "notice": INTERNAL,
        "database": subject.database,
        "bundle": subject.bundle,
        "guarantee": subject.guarantee,
        "scale": subject.scale,
        "verdict": {"level": str(verdict.level), "summary": verdict.summary, "remarks": list(verdict.remarks)},
        **comparison.to_dict(),
        "workload": workload.to_dict() if workload else None,
    }


def render(subject: Subject, pair: Pair, comparison: Comparison, workload: WorkloadFigures | None) -> str:
    """The page."""
    true, synthetic = pair.coded
    keys = {key.name: key for key in pair.foreign_keys}
    tables = [
        (name, figures, plots.marginals(true[name], synthetic[name], figures.columns) if figures.columns else "")
        for name, figures in comparison.tables.items()
    ]
    joins = []
    for name, figures in comparison.keys.items():
        left, right = pair.linked(keys[name])
        heat = plots.heat_map(figures) if figures.pairs else ""
        joins.append((name, figures, plots.fanout(left.fanout, right.fanout), heat))
    errors = workload.errors if workload else None
    return _template().render(
        notice=INTERNAL,
        subject=subject,
        verdict=judge(comparison, workload),
        tables=tables,
        joins=joins,
        public=[table.name for table in pair.schema.tables if table.public],
        workload=workload,
        q_errors=errors.summary() if errors else None,
        q_plot=plots.q_error_curve(errors.errors) if errors else "",
        worst=sorted(workload.answers, key=lambda a: -a.q_error)[:_WORST] if workload else [],
        colours={"source": plots.SOURCE, "synthetic": plots.SYNTHETIC},
    )


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
