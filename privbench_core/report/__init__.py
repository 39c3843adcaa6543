"""HTML pages: internal reports of evaluations and of certificates of plans, and what a recipient learns of a bundle.

Each page is a single file that loads nothing. What compares with private rows is never published, and shows a warning
at its top.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from privbench_core.errors import first_of
from privbench_core.evaluation import BundleSummary, refuse_inside_bundle, summarize_bundle
from privbench_core.evaluation.comparison import CELLS, FANOUT_METRICS, JOIN_METRICS
from privbench_core.evaluation.evaluation import INTERNAL, Certificate, Evaluation
from privbench_core.evaluation.marginals import DISTANCE_CAPTIONS, SEED, Figures
from privbench_core.explain import Explanation
from privbench_core.explain.comparison import RATIOS, SHARES, PlanComparison
from privbench_core.files import write_durably
from privbench_core.publishing.verdicts import Grade
from privbench_core.report import plots
from privbench_core.report.plots import worst_and_typical
from privbench_core.schema.columns import Learn
from privbench_core.version import __version__

if TYPE_CHECKING:
    from jinja2 import Template


def write_report(evaluation: Evaluation, out: Path) -> None:
    """Write metrics.json and report.html to the folder ``out``, which only its owner may read.

    Raises:
        PublishError: ``out`` is inside a bundle.
    """
    _write(out, ("metrics", "report"), evaluation.to_dict(), render(evaluation))


def render(evaluation: Evaluation) -> str:
    """Return the page."""
    overall, workload, run_time = evaluation.comparison.overall, evaluation.workload, evaluation.run_time
    means = {
        name + suffix: {order: getattr(found[cells], name, None) for order, found in overall.items()}
        for cells, suffix in CELLS.items()
        for name in DISTANCE_CAPTIONS
    }
    return template("report.html.j2").render(
        notice=INTERNAL,
        evaluation=evaluation,
        version=__version__,
        advice=list(advice_on(evaluation)),
        verdict=evaluation.verdict,
        join_labels=JOIN_METRICS,
        key_labels=JOIN_METRICS | FANOUT_METRICS,
        orders=list(overall),
        overall=_distances(means, ("cells of the declared domains", "distinct values")),
        tables=list(_tables(evaluation)),
        joins=list(_joins(evaluation)),
        q_plots=_workload_plots(workload.answers) if workload else (),
        worst=sorted(workload.answers, key=lambda answer: -answer["q_error"])[:20] if workload else [],
        time_plot=_time_plot(run_time["times"]) if run_time else "",
        slow=sorted(run_time["times"], key=lambda t: -t["discrepancy_percent"])[:20] if run_time else [],
        colours={"source": plots.SOURCE, "synthetic": plots.SYNTHETIC},
    )


def _distances(means: Figures, words: tuple[str, str]) -> list[tuple[str, list[float | None]]]:
    """Return captions and mean distances by λ for each kind of cells, without those that there are none of."""
    lines = [
        (f"{caption}, {said}", list(means[name + suffix].values()))
        for suffix, said in zip(CELLS.values(), words, strict=True)
        for name, caption in DISTANCE_CAPTIONS.items()
    ]
    return [(caption, values) for caption, values in lines if any(value is not None for value in values)]


def _tables(evaluation: Evaluation) -> Iterator[Figures]:
    """Yield the figures and plots of each table."""
    source, synthetic = evaluation.inputs.pair.encoded
    for name, figures in evaluation.comparison.tables.items():
        true, made = source[name], synthetic[name]
        tvd = {column: facts["tvd"] for column, facts in figures["columns"].items() if facts["tvd"] is not None}
        ranked = sorted(figures["pairs"], key=lambda pair: -pair["tvd"])
        ends = zip(("worst", "best"), (ranked[:1] + ranked[1:][-1:]), strict=False)
        heats = zip(("worst", "typical"), worst_and_typical(true, made, np.random.default_rng(SEED)), strict=False)
        yield {
            "name": name,
            "figures": figures,
            "distances": _distances(figures, ("cells", "values")),
            "columns": plots.marginals(true, made, tvd) if tvd else "",
            "pairs": [(kind, pair, plots.pair(true, made, pair["columns"])) for kind, pair in ends],
            "heats": [
                (kind, h, plots.tree(h.source, "source"), plots.tree(h.synthetic, "bundle")) for kind, h in heats
            ],
        }


def _joins(evaluation: Evaluation) -> Iterator[Figures]:
    """Yield the figures and plots of each foreign key."""
    pair = evaluation.inputs.pair
    for key in pair.foreign_keys:
        figures = evaluation.comparison.keys[key.name]
        source, synthetic = pair.linked(key)
        ranked = sorted((c for c in figures["between"] if c["source"] is not None), key=lambda c: -abs(c["source"]))
        yield {
            "name": key.name,
            "figures": figures,
            "fanout": plots.fanout(source.fanout, synthetic.fanout),
            "heat": plots.heat_map(figures["pairs"]) if figures["pairs"] else "",
            "strong": ranked[:8],  # shown at once
            "weak": ranked[8:],
        }


def _workload_plots(answers: Sequence[Figures]) -> tuple[str, ...]:
    if not answers:
        return ()
    source, synthetic, errors = (np.array([a[name] for a in answers]) for name in ("source", "synthetic", "q_error"))
    return plots.scatter(np.maximum(source, 1.0), np.maximum(synthetic, 1.0), "rows"), plots.q_error_curve(errors)


def _time_plot(times: Sequence[Figures]) -> str:
    if not times:
        return ""
    source, synthetic = np.maximum([time["milliseconds"] for time in times], 1e-3).T
    return plots.scatter(source, synthetic, "milliseconds")


def advice_on(evaluation: Evaluation) -> Iterator[str]:
    """Yield what an owner can do about a bundle that is not close, in order of effect: a sentence each."""
    if evaluation.verdict.grade is Grade.CLOSE:
        return
    schema = evaluation.inputs.pair.schema
    learned = [f"{t.name}.{c.name}" for t in schema.private_tables for c in t.modelled if isinstance(c.domain, Learn)]
    if learned:
        named = first_of(learned)
        yield f"Declare domains instead of learning them ({named}): this costs nothing and leaves more for the rest."
    worst = [v.subject for v in evaluation.verdict.verdicts if v.blocks and v.subject in evaluation.comparison.tables]
    if worst:
        named = first_of(worst)
        yield f"Leave out columns that nobody needs, first in {named}: the others then get more of the budget."
    guarantee = evaluation.inputs.summary.guarantee
    if guarantee:
        twice = f"ε={2 * guarantee[0]:g}"
        yield f"Release at a larger ε: at {twice} noise is about half. privbench plan shows it in rows."
    yield "If neither is possible, use the bundle for what holds: large groups, keys, types and row counts."


@cache
def template(name: str) -> Template:
    """Return one of the templates of pages."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("privbench_core.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["figure"] = _figure
    return environment.get_template(name)


def _figure(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def write_certificate(certificate: Certificate, out: Path) -> None:
    """Write certificate.json and certificate.html to the folder ``out``, which only its owner may read.

    Raises:
        PublishError: ``out`` is inside a bundle.
    """
    summary, decisions = certificate.summary, certificate.decisions
    differing = [d for d in decisions.clear if not d.same_winner]
    page = _render(
        f"{summary.database}: does the benchmark lead to the same plans?",
        _facts(summary),
        certificate.plans,
        names=("the source", "the bundle"),
        at=certificate.at,
        notice=INTERNAL,
        missed=certificate.missed,
        figures=threshold_rows(certificate),
        decisions=decisions,
        differing=[d.to_dict() for d in differing],
        others=[d.to_dict() for d in decisions.made if d not in differing],
    )
    _write(out, ("certificate", "certificate"), certificate.to_dict(), page)


def write_explanation(explanation: Explanation, out: Path) -> None:
    """Write plans.json and plans.html to the folder ``out``; PublishError if it is inside a bundle."""
    bundle, other = explanation.bundle, explanation.other
    summary = summarize_bundle(bundle.path.resolve().name, bundle.manifest)
    page = _render(
        f"{summary.database}: plans of the benchmark",
        _facts(summary, f"compared with {other[0].path.resolve().name}" if other else ""),
        other[1] if other else None,
        names=("the other bundle", "the bundle"),
        at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        server=explanation.server,
        explained=explanation.queries,
        failed=explanation.failed,
    )
    _write(out, ("plans", "plans"), explanation.to_dict(), page)


def threshold_rows(certificate: Certificate) -> list[tuple[str, str, str, str]]:
    """Return name, meaning, figure and limit of each threshold."""
    rows = []
    for name, limit in certificate.limits.items():
        figure = certificate.figures[name]
        share = name in SHARES
        by = " × noise" if name == "time_ratio" else ""
        words = (SHARES if share else RATIOS)[name][0]
        found = "-" if figure is None else f"{figure:.1%}" if share else f"{figure:.2f}"
        rows.append((name, words, found, f"at least {limit:.0%}" if share else f"at most {limit:.2f}{by}"))
    return rows


def _render(title: str, facts: str, plans: PlanComparison | None, **more: Any) -> str:
    nothing = dict.fromkeys(("notice", "missed", "figures", "decisions", "differing", "others", "explained", "failed"))
    words = {name: words.replace(", median ratio", "") for name, (words, _) in RATIOS.items()}
    compared = plans.compared if plans else ()
    times = np.maximum([query.milliseconds[:2] for query in compared], 1e-3).reshape(-1, 2).T
    return template("plans.html.j2").render(
        nothing
        | {
            "title": title,
            "facts": facts,
            "version": __version__,
            "plans": plans,
            "server": plans.server if plans else "",
            "flipped": [query for query in compared if query.flips],
            "ratio_words": words | {"time_noise": "noise of run times"},
            "time_plot": plots.scatter(times[0], times[1], "milliseconds") if compared else "",
        }
        | more
    )


def _write(out: Path, stems: tuple[str, str], data: Mapping[str, Any], page: str) -> None:
    """Write JSON and a page, both made before there is one of them."""
    refuse_inside_bundle(out)
    out.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_durably(out / f"{stems[0]}.json", (json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode())
    write_durably(out / f"{stems[1]}.html", page.encode())


def _facts(summary: BundleSummary, more: str = "") -> str:
    scale = f"scale {summary.scale:g}" if summary.scale != 1 else ""
    return ", ".join(filter(None, [f"Bundle {summary.bundle}", summary.guarantee_in_words, scale, more])) + "."
