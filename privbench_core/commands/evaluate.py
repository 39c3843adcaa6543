"""``privbench evaluate``: an internal report on how close a bundle is to its source."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from privbench_core.commands.terminal import print_json, say, show
from privbench_core.errors import PublishError
from privbench_core.publish.bundle import is_bundle, read_bundle
from privbench_core.report.comparison import ORDERS, Comparison, Pair, compare
from privbench_core.report.page import INTERNAL, Subject, metrics, render, subject_of
from privbench_core.report.verdict import judge
from privbench_core.report.workload import WorkloadFigures, read_queries, run_workload
from privbench_core.schema.spec import Spec, load_spec
from privbench_core.source import open_source
from privbench_core.source.integrity import check_rows

_NAMED = 10  # failed queries named on the terminal


@dataclass(frozen=True)
class Subjects:
    """A bundle beside its source: what it says of itself, and both sets of rows."""

    about: Subject
    pair: Pair


def write_report(path: Path, bundle: Path, out: Path, workload: Path | None, *, as_json: bool) -> None:
    """Compare ``bundle`` with the source of the spec and write metrics.json and report.html to ``out``.

    Raises:
        PublishError: ``out`` is inside a bundle: internal figures must not be given away with it.
    """
    _keep_apart(out)
    queries = read_queries(workload) if workload else None
    spec = load_spec(path)
    subjects = read_both(spec, bundle)
    comparison = compare(subjects.pair)
    answers = None
    if queries is not None:
        answers = run_workload(queries, subjects.pair.source, subjects.pair.synthetic, subjects.about.scale)
    content = metrics(subjects.about, comparison, answers)
    page = render(subjects.about, subjects.pair, comparison, answers)
    out.mkdir(parents=True, exist_ok=True, mode=0o700)
    (out / "metrics.json").write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (out / "report.html").write_text(page, encoding="utf-8")
    if as_json:
        print_json(content)
        return
    verdict = judge(comparison, answers)
    say(verdict.summary, style="bold")
    show_fidelity(comparison)
    if answers is not None:
        _tell_workload(answers)
    say(f"Report: {out / 'report.html'} (figures: {out / 'metrics.json'})")
    say(INTERNAL, style="bold red")


def read_both(spec: Spec, folder: Path) -> Subjects:
    """The rows of the source, checked as a run checks them, and those of the bundle.

    Raises:
        PublishError: The bundle is damaged, or lacks a table or column of the spec.
        SourceError: The source cannot be read or breaks what the spec declares.
    """
    bundle = read_bundle(folder)
    synthetic = {}
    for table in spec.schema.tables:
        if table.name not in bundle.manifest["tables"]:
            raise PublishError(f"{folder}: has no table {table.name}; use the spec it was made from")
        synthetic[table.name] = bundle.table(table.name)
        missing = [c.name for c in table.columns if c.name not in synthetic[table.name].column_names]
        if missing:
            raise PublishError(f"{folder}: {table.name}.{missing[0]} is missing; use the spec it was made from")
    source = open_source(spec)
    rows = check_rows(spec.schema, {t.name: source.read(t) for t in spec.schema.tables}, spec.orphans)
    return Subjects(subject_of(folder.resolve().name, bundle.manifest), Pair(spec.schema, rows, synthetic))


def show_fidelity(comparison: Comparison) -> None:
    """Print the distances, beside what shuffling would give."""
    orders = [order for order in ORDERS if any(order in table.tvd for table in comparison.tables.values())]
    rows = [
        [name, *(_figure(table.tvd.get(order)) for order in orders), _figure(table.shuffled)]
        for name, table in comparison.tables.items()
    ]
    headers = ["table", *(f">{order}-way" for order in orders), ">2-way if shuffled"]
    show("Distance from the source (internal; total variation, 0 is the same)", headers, rows)
    keys = [
        [name, _figure(key.joint), _figure(key.shuffled), _figure(key.fanout_tvd)]
        for name, key in comparison.keys.items()
    ]
    if keys:
        show("Joins", ["key", ">joined pairs", ">if shuffled", ">children per parent"], keys)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _tell_workload(answers: WorkloadFigures) -> None:
    summary = str(answers.errors) if answers.errors else "none"
    say(f"Q-error of {len(answers.answers)} queries: {summary}")
    if answers.failed:
        numbers = ", ".join(f"query {number}" for number, _ in answers.failed[:_NAMED])
        more = ", ..." if len(answers.failed) > _NAMED else ""
        say(f"Left out, because they could not be answered: {numbers}{more} (the report says why)")


def _keep_apart(out: Path) -> None:
    place = out.resolve()
    for folder in (place, *place.parents):
        if is_bundle(folder):
            raise PublishError(
                f"{out}: is inside the bundle {folder.name}, but the report is internal; choose another --out"
            )
