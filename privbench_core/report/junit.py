"""A check as JUnit XML, which CI services show: a test case for the tables, each query, and the run times."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

from privbench_core.explain.check import CheckResult


def cases_of(result: CheckResult) -> list[tuple[str, list[str], float, str]]:
    """Return name, problems, run time in seconds, and remark of each test case."""
    rows = sum(found or 0 for _, found in result.tables.values())
    cases = [("tables", result.wrong_tables, 0.0, f"{len(result.tables)} tables, {rows:,} rows")]
    for query in result.queries:
        now, before = query.now, query.before
        remark = f"cost {now.cost:.2f}" if now else f"failed: {query.failed}"
        if now and before:
            limit = result.limits["cost_ratio"]
            remark += f" {'<=' if now.cost <= before.cost * limit else '>'} {before.cost:.2f} * {limit:.0%}"
        elif now and result.baseline:
            remark += ", not in the baseline"
        changed = [*query.flips] if not result.problems[query.name] else []  # else they are among the problems
        remark = "; ".join([remark, *(f"plan changed: {flip}" for flip in changed)])
        seconds = (now.milliseconds or 0) / 1000 if now else 0.0
        cases.append((query.name, result.problems[query.name], seconds, remark))
    figure, missed = result.figures["time_ratio"], result.missed.get("time_ratio")
    if figure is not None:
        remark = f"median ratio {figure:.2f} {'>' if missed else '<='} {result.limits['time_ratio']:.2f}"
        cases.append(("run times", [remark] if missed else [], 0.0, remark))
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
