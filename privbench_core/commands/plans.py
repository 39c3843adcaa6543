"""What is said about plans: ``privbench certify``, an internal certificate, and ``privbench explain``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import shorten

import typer

from privbench_core.api import certify, explain_plans
from privbench_core.commands.terminal import console, print_json, say, show
from privbench_core.evaluation.certificate import Certificate
from privbench_core.evaluation.evaluation import INTERNAL
from privbench_core.evaluation.inputs import refuse_inside_bundle
from privbench_core.explain.comparison import PlanComparison
from privbench_core.explain.explanation import Explanation
from privbench_core.report.plans import threshold_rows, write_explanation

_WIDTH = 100  # characters of a query on the terminal; the page has all of it
_NAMED = 10  # queries with flips, and choices with another winner, that are named on the terminal


def show_certificate(
    spec: Path,
    bundle: Path,
    out: Path,
    workload: Path | None,
    urls: Sequence[str],
    thresholds: Path | None,
    *,
    choices: int,
    seed: int,
    as_json: bool,
) -> None:
    """Compare plans and decisions on source and bundle, and write certificate.json and certificate.html to ``out``.

    Raises:
        PublishError: ``out`` is inside a bundle: internal figures must not be given away with it.
        Exit: With code 1, if a threshold is missed.
    """
    refuse_inside_bundle(out)  # before the spec is read: the mistake that matters most is named first
    found = certify(
        spec, bundle, out=out, workload=workload, urls=urls, thresholds=thresholds, choices=choices, seed=seed
    )
    if as_json:
        print_json(found.to_dict())
    else:
        _show(found)
        say(f"Certificate: {out / 'certificate.html'} (figures: {out / 'certificate.json'})")
        say(INTERNAL, style="bold red")
    if found.missed:
        console(stderr=True).print(f"privbench: thresholds missed: {'; '.join(found.missed.values())}", soft_wrap=True)
        raise typer.Exit(1)


def _show(certificate: Certificate) -> None:
    plans, decisions = certificate.plans, certificate.decisions
    title = f"Plans of {len(plans.compared)} queries on source and bundle (PostgreSQL {plans.server}; internal)"
    rows = [[words, found, limit] for _, words, found, limit in threshold_rows(certificate)]
    noise = plans.figures["time_noise"]
    show(title, ["", ">found", ">limit"], [*rows, ["noise of run times", f"{noise:.2f}" if noise else "-", ""]])
    _show_flips(plans)
    if plans.emptied:
        say(f"{len(plans.emptied)} queries find rows on the source alone, say by values that the bundle lacks.")
    said = f"Choices: {len(decisions.made)} of {decisions.found} measured, {len(decisions.clear)} with a clear gap"
    say(said + (f"; same winner in {decisions.same_winner:.1%} of those" if decisions.clear else ""))
    differing = [decision for decision in decisions.clear if not decision.same_winner]
    if differing:
        turned = len(decisions.reversed)
        say(f"Of the others, {turned} of {len(differing)} have a clear gap in the other direction on the bundle.")
    for decision in differing[:_NAMED]:
        say(f"- another winner on the bundle: query {decision.choice.number}, {decision.choice.alternative}")


def _show_flips(plans: PlanComparison) -> None:
    flipped = [query for query in plans.compared if query.flips]
    if flipped:
        rows = [[str(query.number), "; ".join(query.flips)] for query in flipped[:_NAMED]]
        more = f" (the first {_NAMED} of {len(flipped)} queries)" if len(flipped) > _NAMED else ""
        show(f"Flipped choices{more}", [">query", "the bundle's choice"], rows)
    for failed in plans.failed[:_NAMED]:
        say(f"Left out: query {failed['query']}: {failed['reason']}")


def show_explanation(
    bundle: Path, workload: Path | None, *, url: str | None, against: Path | None, out: Path | None, as_json: bool
) -> None:
    """Explain the queries of a workload on a bundle; write plans.json and plans.html to ``out`` if it is given."""
    found = explain_plans(bundle, workload=workload, url=url, against=against)
    if out is not None:
        write_explanation(found, out)
    if as_json:
        print_json(found.to_dict())
        return
    _show_explanation(found)
    if out is not None:
        say(f"Page: {out / 'plans.html'} (figures: {out / 'plans.json'})")


def _show_explanation(found: Explanation) -> None:
    rows = [
        [
            str(query.number),
            f"{query.explained.rows:,.0f}",
            f"{query.explained.actual_rows or 0:,.0f}",
            f"{query.q_error:.2f}",
            f"{query.explained.milliseconds or 0:.2f}",
            shorten(query.sql, _WIDTH, placeholder=" …"),
        ]
        for query in found.queries
    ]
    headers = [">query", ">estimated rows", ">rows", ">Q-error", ">ms", "SQL"]
    show(f"Plans of {len(rows)} queries (PostgreSQL {found.server})", headers, rows)
    if found.other is None:
        for failed in found.failed[:_NAMED]:
            say(f"Left out: query {failed['query']}: {failed['reason']}")
        return
    bundle, plans = found.other
    same = plans.figures["same_plan"]
    say(f"Against {bundle.path.name}: {'-' if same is None else f'{same:.0%}'} of the queries have the same plan")
    _show_flips(plans)
