"""``privbench check``: a test of a database that holds a bundle, in the Test Anything Protocol, as CI runs it."""

from __future__ import annotations

from pathlib import Path

import typer

from privbench_core.api import check
from privbench_core.commands.terminal import print_json, say
from privbench_core.explain.check import CheckResult
from privbench_core.report.junit import cases_of, write_junit


def report_check(
    bundle: Path,
    url: str,
    *,
    workload: Path | None,
    baseline: Path | None,
    write_baseline: Path | None,
    thresholds: Path | None,
    junit: Path | None,
    as_json: bool,
) -> None:
    """Check a database and print a line per query; exit with code 1 where a threshold is missed.

    With ``write_baseline`` and no ``baseline``, queries only run, and are compared with nothing.
    """
    before = baseline or write_baseline is None
    found = check(bundle, url, workload=workload, baseline=before, thresholds=thresholds)
    if junit is not None:
        write_junit(found, junit)
    if write_baseline is not None:
        write_baseline.write_text(found.as_baseline().to_json(), encoding="utf-8")
    if as_json:
        print_json(found.to_dict())
    else:
        _show(found)
        if write_baseline is not None:
            say(f"# Baseline: {write_baseline}")
    if not found.passed:
        raise typer.Exit(1)


def _show(found: CheckResult) -> None:
    cases = cases_of(found)
    say(f"1..{len(cases)}")
    for number, (name, problems, seconds, remark) in enumerate(cases, start=1):
        time = f" ({1000 * seconds:.2f} ms)" if seconds else ""
        say(f"{'not ok' if problems else 'ok'} {number} - {name}: {remark}{time}", style="red" if problems else None)
        for problem in problems:
            if problem not in remark:
                say(f"  # {problem}")
    failed = sum(bool(problems) for _, problems, _, _ in cases)
    for missed in found.missed.values():
        say(f"# Threshold missed: {missed}")
    if listed := ", ".join(table.name for table in found.tables if table.never_vacuumed):
        say(
            f"# Never vacuumed, so that index-only scans seem expensive: {listed}. Run VACUUM ANALYZE before the check."
        )
    if (ratio := found.figures["time_ratio"]) is not None:
        say(f"# Run times: {ratio:.2f} times those of the baseline in the median")
    if found.baseline is not None:
        say(f"# PostgreSQL {found.server}; baseline: PostgreSQL {found.baseline.server}")
        if found.baseline.bundle != found.as_baseline().bundle:
            say("# The baseline is that of another bundle.")
        gone = found.baseline.queries.keys() - {query.name for query in found.queries}
        if gone:
            say(f"# Only in the baseline: {', '.join(sorted(gone))}")
    say(f"# Results: {len(cases) - failed} passed{f', {failed} failed' if failed else ''}")
