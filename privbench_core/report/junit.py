"""A check as JUnit XML, which CI services show: a test case for the tables, each query, and limited run times."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

from privbench_core.explain.check import CheckResult


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
