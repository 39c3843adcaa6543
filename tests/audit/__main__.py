"""Run the audit: ``python -m tests.audit --seconds 3600 --seed 1``. Exits with 1 if any claim does not hold."""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.audit.compare import Tally
from tests.audit.databases import audit, audit_one

_SHOWN = 50  # claims that did not hold


def main(arguments: list[str] | None = None) -> int:
    """Audit, print the table, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.audit", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (default: 60)")
    parser.add_argument("--seed", type=int, default=0, help="of all databases (default: 0)")
    parser.add_argument("--processes", type=int, default=2, help="at once (default: 2)")
    parser.add_argument("--only", type=int, help="one database, by the number that a line names")
    asked = parser.parse_args(arguments)
    found = Tally()
    if asked.only is not None:
        audit_one(asked.seed, asked.only, found)
    else:
        with ProcessPoolExecutor(asked.processes, mp_context=get_context("spawn")) as pool:
            work = [
                pool.submit(audit, asked.seed, first, asked.processes, asked.seconds)
                for first in range(asked.processes)
            ]
            for each in work:
                found.add(each.result())
    sys.stdout.write(report(found))
    return 1 if found.broken else 0


def report(tally: Tally) -> str:
    """Return what was compared, the largest ratio of moved to claimed per mechanism, and what did not hold."""
    lines = [f"{number:>10,} {what}" for what, number in tally.counts.items()]
    lines += ["", "  compared  largest moved / claimed", ""]
    lines += [f"{tally.compared[name]:>10,}  {tally.largest[name]:.4f}  {name}" for name in sorted(tally.largest)]
    lines += [
        "",
        f"{len(tally.broken)} claims that did not hold" + ("" if not tally.broken else ":"),
        *tally.broken[:50],
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
