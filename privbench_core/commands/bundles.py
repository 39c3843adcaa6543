"""What is done with a bundle: ``privbench evaluate``, an internal report on it, and ``privbench publish``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from privbench_core.api import append, evaluate
from privbench_core.commands.terminal import NAMED, print_json, say, show
from privbench_core.evaluation.comparison import Comparison
from privbench_core.evaluation.evaluation import INTERNAL, Evaluation
from privbench_core.evaluation.inputs import refuse_inside_bundle
from privbench_core.evaluation.marginals import Figures
from privbench_core.evaluation.q_error import WorkloadResult, in_words
from privbench_core.publishing.bundle import load_bundle
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
