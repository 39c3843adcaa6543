"""What is done with a bundle: evaluate, certify (both internal), publish, explain, replicate and check.

A check is printed in the Test Anything Protocol, and written as JUnit XML, which CI services show: a test case for the
tables, each query, and limited run times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from textwrap import shorten
from typing import Any
from xml.etree import ElementTree as ET

import typer

from privbench_core.api import append, certify, error_bars, evaluate, replicate
from privbench_core.commands import NAMED, console, print_json, say, show
from privbench_core.commands.run import progress_bar
from privbench_core.evaluation import refuse_inside_bundle
from privbench_core.evaluation.comparison import Comparison
from privbench_core.evaluation.evaluation import INTERNAL, Certificate, Evaluation
from privbench_core.evaluation.marginals import Figures
from privbench_core.evaluation.q_error import WorkloadResult, in_words
from privbench_core.explain import Explanation, explain_plans
from privbench_core.explain.check import CheckResult, check
from privbench_core.explain.comparison import PlanComparison
from privbench_core.explain.error_bars import LEVEL, ROWS, Interval
from privbench_core.publishing import load_bundle
from privbench_core.report import threshold_rows, write_explanation
from privbench_core.spec.load import load_spec


def report(
    path: Path, bundle: Path, out: Path, workload: Path | None, *, run_time: bool | str = False, as_json: bool = False
) -> None:
    """Compare ``bundle`` with the source of the spec and write metrics.json and report.html to ``out``.

    Raises:
        PublishError: ``out`` is inside a bundle: internal figures must not be given away with it.
    """
    refuse_inside_bundle(out)  # before the spec is read: the mistake that matters most is named first
    evaluation = evaluate(load_spec(path), bundle, out=out, workload=workload, run_time=run_time)
    if as_json:
        print_json(evaluation.to_dict())
        return
    _report_evaluation(evaluation)
    say(f"Report: {out / 'report.html'} (figures: {out / 'metrics.json'})")
    say(INTERNAL, style="bold red")


def load(bundle: Path, target: str, *, replace: bool, statistics_only: bool, as_json: bool) -> None:
    """Load ``bundle`` into ``target``, with or without its rows, and print the rows per table.

    Raises:
        PublishError: The bundle is damaged, or the target refuses; the target is unchanged.
    """
    loaded = load_bundle(bundle, target, replace=replace, statistics_only=statistics_only)
    if as_json:
        print_json({"bundle": str(bundle), "rows": loaded.rows, "left_out": list(loaded.left_out)})
        return
    title = "What the planner expects in the empty tables" if statistics_only else "Loaded"
    show(title, ["table", ">rows"], [[name, f"{count:,}"] for name, count in loaded.rows.items()])
    say("Keys, indexes and statistics are in place.")
    if statistics_only:
        say("Autovacuum is off for these tables, and ANALYZE would replace their statistics by those of empty tables.")
    lacking = "Lacking" if statistics_only else "Not loaded, because the target does not support it"
    for part in loaded.left_out:
        say(f"{lacking}: {part}")


def load_next(bundle: Path, target: str, days: int, after: int | None, seed: int, *, as_json: bool) -> None:
    """Append the next days to ``target`` and print the rows per table.

    Raises:
        PublishError: See `append`; the target is unchanged.
    """
    appended = append(bundle, target, days, after=after, seed=seed)
    if as_json:
        print_json({"bundle": str(bundle), **asdict(appended)})
        return
    show("Appended", ["table", ">new rows"], [[name, f"{count:,}"] for name, count in appended.rows.items()])
    say(f"Window {appended.window}: {appended.first} to {appended.last}. No row that was there has changed.")
    if appended.left_out:
        listed = ", ".join(f"{count:,} of {name}" for name, count in appended.left_out.items())
        say(f"Left out, because they would break a reference, a check or a unique key: {listed}.")
    say(f"The same command appends the next {days} days.")


def show_verdict(evaluation: Evaluation) -> None:
    """Print a grade per table, worst first, beside the one that the run gave by its noisy figures."""
    verdict, by_run = evaluation.verdict, evaluation.graded_by_run
    say(verdict.summary, style="bold")
    rows = [[v.subject, v.grade or "", by_run.get(v.subject, ""), v.reason] for v in verdict.verdicts]
    show("How close each table is (internal; worst first)", ["table", "grade", "grade of the run", "why"], rows)


def show_fidelity(comparison: Comparison) -> None:
    """Print the distances, beside what shuffling would give."""
    orders = [order for order in comparison.overall if any(t.tvd(order) for t in comparison.tables.values())]
    rows = [
        [name, *(_figure(table.tvd(order)) for order in orders), _figure(table["shuffled"])]
        for name, table in comparison.tables.items()
    ]
    headers = ["table", *(f">{order}-way" for order in orders), ">2-way if shuffled"]
    show("Total variation distance from the source (0: identical; internal, for the owner only)", headers, rows)
    shown = ("joint", "shuffled", "fanout_tvd")
    lines = [[name, *(_figure(join.get(metric)) for metric in shown)] for name, join in comparison.keys.items()]
    if lines:
        more = f"; {len(comparison.joins)} longer joins are in the report" if comparison.joins else ""
        show(f"Joins (internal{more})", ["join", ">joined pairs", ">if shuffled", ">children per parent"], lines)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _report_evaluation(evaluation: Evaluation) -> None:
    for alarm in evaluation.privacy["alarms"]:
        say(f"ALARM: {alarm}", style="bold red")
    show_verdict(evaluation)
    show_fidelity(evaluation.comparison)
    if evaluation.workload is not None:
        _report_workload(evaluation.workload)
    if evaluation.run_time is not None:
        _report_run_time(evaluation.run_time)
    for attack in evaluation.privacy["membership_attacks"]:
        say(
            f"Membership attack by {attack['name']}: {attack['right']} of {attack['guesses']} surest guesses were right"
            f" (proves ε ≥ {attack['epsilon']:.2f})"
        )


def _report_workload(answers: WorkloadResult) -> None:
    summary = in_words(answers.summary) if answers.summary else "none"
    made = " generated" if answers.made_from_private_rows else ""
    say(f"Q-error of {len(answers.answers)}{made} queries: {summary}")
    if answers.failed:
        numbers = ", ".join(f"query {failed['query']}" for failed in answers.failed[:NAMED])
        more = ", ..." if len(answers.failed) > NAMED else ""
        say(f"Queries that could not be answered: {numbers}{more} (the report says why)")


def _report_run_time(found: Figures) -> None:
    if not found["measured"]:
        say("Run time: no query could be measured (the report says why)")
        return
    differs, noise = (found[name]["median"] for name in ("discrepancy_percent", "noise_percent"))
    say(
        f"Run time of {found['measured']} queries: differs from the source by {differs:.1f}% in the median"
        f" (two runs on the source: by {noise:.1f}%); same plan: {found['same_plan']:.0%}"
    )


def show_certificate(spec: Path, bundle: Path, out: Path, *, as_json: bool, **options: Any) -> None:
    """Compare plans and decisions on source and bundle, and write certificate.json and certificate.html to ``out``.

    ``options`` are others of `privbench_core.certify`.

    Raises:
        PublishError: ``out`` is inside a bundle: internal figures must not be given away with it.
        Exit: With code 1, if a threshold is missed.
    """
    refuse_inside_bundle(out)  # before the spec is read: the mistake that matters most is named first
    found = certify(spec, bundle, out=out, **options)
    if as_json:
        print_json(found.to_dict())
    else:
        _show_certificate(found)
        say(f"Certificate: {out / 'certificate.html'} (figures: {out / 'certificate.json'})")
        say(INTERNAL, style="bold red")
    if found.missed:
        console(stderr=True).print(f"privbench: thresholds missed: {'; '.join(found.missed.values())}", soft_wrap=True)
        raise typer.Exit(1)


def _show_certificate(certificate: Certificate) -> None:
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
    for decision in differing[:NAMED]:
        say(f"- another winner on the bundle: query {decision.choice.number}, {decision.choice.alternative}")


def _show_flips(plans: PlanComparison) -> None:
    flipped = [query for query in plans.compared if query.flips]
    if flipped:
        rows = [[str(query.number), "; ".join(query.flips)] for query in flipped[:NAMED]]
        more = f" (the first {NAMED} of {len(flipped)} queries)" if len(flipped) > NAMED else ""
        show(f"Flipped choices{more}", [">query", "the bundle's choice"], rows)
    for failed in plans.failed[:NAMED]:
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
            shorten(query.sql, 100, placeholder=" …"),  # the page has all of it
        ]
        for query in found.queries
    ]
    headers = [">query", ">estimated rows", ">rows", ">Q-error", ">ms", "SQL"]
    show(f"Plans of {len(rows)} queries (PostgreSQL {found.server})", headers, rows)
    if found.other is None:
        for failed in found.failed[:NAMED]:
            say(f"Left out: query {failed['query']}: {failed['reason']}")
        return
    bundle, plans = found.other
    same = plans.figures["same_plan"]
    say(f"Against {bundle.path.name}: {'-' if same is None else f'{same:.0%}'} of the queries have the same plan")
    _show_flips(plans)


def add_replicates(spec: Path, bundle: Path, number: int) -> None:
    """Add replicates to a bundle, with a progress bar on a terminal."""
    with progress_bar() as progress:
        replicate(spec, bundle, number, progress=progress)
    say(f"{number} replicates are in {bundle}. They cost no budget, and may be given away with it.")
    say(f"Error bars: privbench explain {bundle} --workload queries.sql --error-bars")


def show_error_bars(bundle: Path, workload: Path | None, *, as_json: bool) -> None:
    """Print an interval for each answer of a workload on the source."""
    found = error_bars(bundle, workload)
    if as_json:
        print_json(found.to_dict())
        return
    title = f"Answers on the bundle, and {LEVEL:.0%} intervals for the answers on the source"
    headers = [">query", "text", ">bundle", ">from", ">to"]
    show(title, headers, [_row(each) for each in found.intervals])
    if any(each.widened is None for each in found.intervals):
        numbers = ", ".join(dict.fromkeys(str(each.query) for each in found.intervals if each.widened is None))
        say(f"Without what the models leave out, because noise hides the fidelity figures: queries {numbers}")
    if unmet := ", ".join(dict.fromkeys(str(each.query) for each in found.intervals if each.unmet)):
        say(f"Up to the answer without a comparison that no row of the bundle meets: queries {unmet}")
    for number, reason in found.failed:
        say(f"Query {number} has no error bars: {reason}")


def _row(each: Interval) -> list[str]:
    text = " ".join(each.sql.split())
    text = text if each.answers == ROWS else f"{each.answers} of {text}"
    shown = text if len(text) <= 60 else f"{text[:59]}…"  # noqa: PLR2004 - characters that fit beside the numbers
    return [str(each.query), shown, *(f"{number:,.6g}" for number in (each.answer, each.low, each.high))]


def cases_of(result: CheckResult) -> list[tuple[str, list[str], float, str]]:
    """Return name, problems, run time in seconds, and remark of each test case."""
    only = any(table.statistics_only for table in result.tables)
    rows = sum(table.rows if only else table.found or 0 for table in result.tables)
    held = f"statistics of {rows:,} rows: queries are planned and not run" if only else f"{rows:,} rows"
    cases = [("tables", result.wrong_tables, 0.0, f"{len(result.tables)} tables, {held}")]
    for query in result.queries:
        now, before = query.now, query.before
        remark = f"cost {now.cost:.2f}" if now else f"failed: {query.failed}"
        if now and before:
            limit = result.limits["cost_ratio"]
            sign = "<=" if now.cost <= query.cost_before * limit else ">"
            remark += f" {sign} {query.cost_before:.2f} * {limit:.0%}"
        elif now and result.baseline:
            remark += ", not in the baseline"
        problems = result.problems[query.name]
        remark = "; ".join([remark, *(f"plan changed: {flip}" for flip in query.flips if flip not in problems)])
        seconds = (now.milliseconds or 0) / 1000 if now else 0.0
        cases.append((query.name, problems, seconds, remark))
    figure, allowed = result.figures["time_ratio"], result.limits.get("time_ratio")
    if figure is not None and allowed is not None:
        remark = f"median ratio {figure:.2f} {'>' if figure > allowed else '<='} {allowed:.2f}"
        cases.append(("run times", [remark] if figure > allowed else [], 0.0, remark))
    return cases


def write_junit(result: CheckResult, path: Path) -> None:
    """Write the test cases to a file."""
    cases = cases_of(result)
    failures = sum(bool(problems) for _, problems, _, _ in cases)
    name = f"privbench check {result.bundle.manifest['database']}"
    suite = ET.Element("testsuite", name=name, tests=str(len(cases)), failures=str(failures), errors="0")
    for title, problems, seconds, remark in cases:
        case = ET.SubElement(suite, "testcase", classname=name, name=title, time=f"{seconds:.4f}")
        if problems:
            ET.SubElement(case, "failure", message=problems[0]).text = "\n".join(dict.fromkeys([remark, *problems]))
        else:
            ET.SubElement(case, "system-out").text = remark
    path.write_bytes(ET.tostring(suite, encoding="utf-8", xml_declaration=True) + b"\n")


def report_check(
    bundle: Path,
    url: str,
    *,
    baseline: Path | None,
    write_baseline: Path | None,
    junit: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Check a database and print a line per query; exit with code 1 where a threshold is missed.

    With ``write_baseline`` and no ``baseline``, queries only run, and are compared with nothing. ``options`` are others
    of `privbench_core.check`.
    """
    found = check(bundle, url, baseline=baseline or write_baseline is None, **options)
    if junit is not None:
        write_junit(found, junit)
    if write_baseline is not None:
        write_baseline.write_text(found.as_baseline().to_json(), encoding="utf-8")
    if as_json:
        print_json(found.to_dict())
    else:
        _show_check(found)
        if write_baseline is not None:
            say(f"# Baseline: {write_baseline}")
    if not found.passed:
        raise typer.Exit(1)


def _show_check(found: CheckResult) -> None:
    cases = cases_of(found)
    say(f"1..{len(cases)}")
    for number, (name, problems, seconds, remark) in enumerate(cases, start=1):
        time = f" ({1000 * seconds:.2f} ms)" if seconds else ""
        say(f"{'not ok' if problems else 'ok'} {number} - {name}: {remark}{time}", style="red" if problems else None)
        for problem in problems:
            if problem not in remark:
                say(f"  # {problem}")
    failed = sum(bool(problems) for _, problems, _, _ in cases)
    for remark in _remarks(found):
        say(f"# {remark}")
    say(f"# Results: {len(cases) - failed} passed{f', {failed} failed' if failed else ''}")


def _remarks(found: CheckResult) -> Iterator[str]:
    for missed in found.missed.values():
        yield f"Threshold missed: {missed}"
    if listed := ", ".join(table.name for table in found.tables if table.never_vacuumed):
        yield f"Never vacuumed, so that index-only scans seem expensive: {listed}. Run VACUUM ANALYZE before the check."
    if len({query.weight for query in found.queries}) > 1:
        yield "Figures over all queries count each query as often as the workload calls it."
    if (ratio := found.figures["time_ratio"]) is not None:
        yield f"Run times: {ratio:.2f} times those of the baseline in the median"
    if found.baseline is not None:
        yield f"PostgreSQL {found.server}; baseline: PostgreSQL {found.baseline.server}"
        if found.baseline.bundle != found.as_baseline().bundle:
            yield "The baseline is that of another bundle."
        gone = found.baseline.queries.keys() - {query.name for query in found.queries}
        if gone:
            yield f"Only in the baseline: {', '.join(sorted(gone))}"
