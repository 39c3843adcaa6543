"""Figures of this checkout on all databases of `compare`: means over seeds and their spread, beside shuffled columns.

python -m benchmarks figures [--databases NAME ...] [--synthesizer NAME ...] [--epsilon E ...] [--dry] ...

What has run is kept as `compare` keeps it, so a stopped command goes on, and `compare --report` reads the file too.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.compare import Results, add_what_runs, groups_of, make_runs, side_of, tell
from benchmarks.compare_figures import Prepared
from benchmarks.compare_runs import SHUFFLED, Checkout, Group
from benchmarks.paired import FIGURES, Cell, Side
from benchmarks.report import RESULTS, Row, machine, markdown, spread, write
from privbench_core.errors import PrivbenchError

_OF_SHUFFLED = 0.0  # ε of what is drawn from the rows themselves
_Found = Mapping[str, Sequence[float]]


def main(arguments: Sequence[str]) -> int:
    """Run what is missing and write the table; 0 if all runs succeeded, 1 with a line on stderr if not."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks figures", description=(__doc__ or "").splitlines()[0])
    add_what_runs(parser, Path("figures.jsonl"))
    parser.add_argument("--synthesizer", nargs="+", default=["privbench"])
    parser.add_argument("--dry", action="store_true", help="print the table, leave benchmarks/results as it is")
    given = parser.parse_args(arguments)
    results = Results.read(given.results)
    try:
        with TemporaryDirectory(prefix="privbench-figures-") as place:
            checkout = Checkout.of(None, Path(place) / "code")
            side = side_of(checkout.fingerprint)

            def groups(prepared: Prepared) -> Iterable[Group]:
                for seed in range(1, given.seeds + 1):
                    cell = Cell(prepared.name, prepared.fingerprint, _OF_SHUFFLED, 0.0, seed, SHUFFLED.code)
                    if not results.has(SHUFFLED, cell):
                        yield Group(prepared.spec, cell, (SHUFFLED,))
                for name in given.synthesizer:
                    yield from groups_of(prepared, [side], results, given.seeds, given.epsilon, given.delta, name)

            failed = make_runs(results, groups, {checkout.fingerprint: checkout}, given, Path(place))
    except PrivbenchError as error:
        tell(str(error))
        return 1
    for line in failed:
        tell(line)
    found = figures_of(results, side)
    text = f"{machine(given.seeds).replace('Medians', 'Means')}\n\n{table(found)}"
    print(text)
    if not given.dry:
        (RESULTS / "figures.json").write_text(json.dumps(_as_data(found), separators=(",", ":")) + "\n")
        write("figures", text)
    return 1 if failed else 0


def figures_of(results: Results, side: Side) -> dict[tuple[str, str, float], _Found]:
    """Figures of all seeds by database, synthesizer and ε, those of shuffled columns of these databases among them."""
    databases = {cell.case for cell in results.runs.get(side, {})}
    found: dict[tuple[str, str, float], dict[str, list[float]]] = {}
    for each in (SHUFFLED, side):
        for cell, of_run in results.runs.get(each, {}).items():
            if cell.case in databases:
                by_name = found.setdefault((cell.database, cell.synthesizer, cell.epsilon), {})
                for name, value in of_run.items():
                    by_name.setdefault(name, []).append(value)
    return dict(sorted(found.items(), key=lambda item: (item[0][0], item[0][1] != SHUFFLED.code, *item[0][1:])))


def table(found: Mapping[tuple[str, str, float], _Found]) -> str:
    """Return the figures as a Markdown table: mean ± standard deviation over seeds."""
    rows: list[Row] = []
    for (database, synthesizer, epsilon), by_name in found.items():
        row: dict[str, str | float] = {"database": database, "method": synthesizer}
        row["ε"] = "" if synthesizer == SHUFFLED.code else f"{epsilon:g}"
        rows.append(row | {title: spread(by_name.get(name, ())) for name, title in FIGURES.items()})
    return markdown(rows)


def _as_data(found: Mapping[tuple[str, str, float], _Found]) -> list[dict[str, object]]:
    return [
        {
            "database": database,
            "synthesizer": synthesizer,
            "epsilon": epsilon,
            "figures": {name: [float(f"{value:.4g}") for value in values] for name, values in by_name.items()},
        }
        for (database, synthesizer, epsilon), by_name in found.items()
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
