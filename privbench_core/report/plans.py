"""The pages about plans: the owner's certificate, and what a recipient learns from a bundle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from privbench_core.evaluation.certificate import Certificate
from privbench_core.evaluation.evaluation import INTERNAL
from privbench_core.evaluation.inputs import BundleSummary, refuse_inside_bundle, summarize_bundle
from privbench_core.explain.comparison import PlanComparison
from privbench_core.explain.explanation import Explanation
from privbench_core.explain.thresholds import RATIOS, SHARES
from privbench_core.files import write_durably
from privbench_core.report import plots
from privbench_core.report.page import template
from privbench_core.version import __version__


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
    _write(out, "certificate", certificate.to_dict(), page)


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
    _write(out, "plans", explanation.to_dict(), page)


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


def _write(out: Path, stem: str, data: Mapping[str, Any], page: str) -> None:
    refuse_inside_bundle(out)
    out.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_durably(out / f"{stem}.json", (json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode())
    write_durably(out / f"{stem}.html", page.encode())


def _facts(summary: BundleSummary, more: str = "") -> str:
    scale = f"scale {summary.scale:g}" if summary.scale != 1 else ""
    return ", ".join(filter(None, [f"Bundle {summary.bundle}", summary.guarantee_in_words, scale, more])) + "."
