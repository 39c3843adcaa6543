"""Write a workload for pgbench: a script for each transaction, and a shell script that runs them by their weights."""

from __future__ import annotations

import re
import shlex

from privbench_core.workload.rebind import ReboundWorkload

MOST_SCRIPTS = 128
"""Scripts that pgbench takes at a time."""

_LARGEST_WEIGHT = 1_000_000  # pgbench reads weights as int


def pgbench_files(rebound: ReboundWorkload) -> dict[str, str]:
    """Return the files of a workload's replay by name: ``run.sh``, and the scripts that it runs.

    The transactions of largest weight are kept, as many as pgbench takes. Those that write are rolled back, unless
    the variable ``finish`` is COMMIT.
    """
    statements, groups = rebound.workload.statements, rebound.workload.transactions
    kept = sorted(groups, key=lambda group: -statements[group[0]].weight)[:MOST_SCRIPTS]
    largest = max(statements[group[0]].weight for group in kept)
    files: dict[str, str] = {}
    options = []
    for group in sorted(kept, key=lambda group: group[0]):
        first = statements[group[0]]
        weight = first.weight
        if largest > _LARGEST_WEIGHT and weight:
            weight = max(1, weight * _LARGEST_WEIGHT // largest)
        name = re.sub(r"[^\w-]+", "-", f"{rebound.kept[group[0]]:03} {first.name}".strip()) + ".sql"
        body = []
        for i in group:
            body += [rebound.pgbench[i], *([f"\\sleep {statements[i].think} ms"] if statements[i].think else [])]
        end = ":finish;" if rebound.workload.writes(group) else "COMMIT;"
        files[name] = "\n".join([*(["BEGIN;", *body, end] if rebound.workload.is_block(group) else body), ""])
        options.append(f"  -f {shlex.quote(f'{name}@{weight}')}")
    head = "#!/bin/sh\n# Runs the workload with pgbench, which also reads the options given here.\n"
    if left_out := len(groups) - len(kept):
        head += f"# {left_out} transactions of least weight are left out: pgbench takes {MOST_SCRIPTS} scripts.\n"
    if any(statement.writes for statement in statements):
        head += "# What it writes is rolled back. On a copy of the database, -D finish=COMMIT keeps it.\n"
        options += ["  -D finish=ROLLBACK -D written=0"]
    head += 'cd "$(dirname "$0")" && exec pgbench --no-vacuum \\\n'
    return {"run.sh": head + " \\\n".join([*options, '  "$@"']) + "\n", **files}
