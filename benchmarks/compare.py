"""Compare two states of the code, or one with mechanisms left out, on the same rows, noise and samples.

python -m benchmarks compare [--before REV|DIR] [--after REV|DIR] [--without NAME ...] [--results FILE.jsonl] ...
python -m benchmarks compare --report FILE.jsonl

Each finished run is a line of the results; a run that is there is not made again, so a comparison can be stopped and
goes on where it was. The report is printed, and written to ``benchmarks/results`` for programs to read.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.compare_databases import sources
from benchmarks.compare_figures import Prepared
from benchmarks.compare_report import Comparison, report, write_json
from benchmarks.compare_runs import Checkout, Finished, Group, Workers
from benchmarks.mechanisms import MECHANISMS, named
from benchmarks.paired import Case, Cell, Side
from privbench_core.errors import PrivbenchError, SourceError
from privbench_core.spec.load import load_spec

EPSILONS = (0.2, 0.8, 3.2)
SEEDS = 8
_RESULTS = Path(__file__).resolve().parent / "results"


def main(arguments: Sequence[str]) -> int:
    """Run what was asked for; 0 if all runs succeeded, 1 with a line on stderr if not."""
    given = _parser().parse_args(arguments)
    try:
        if given.report is not None:
            results = Results.read(given.report)
            _report(results, results.comparisons(given.against or "", given.case), given.report)
            return 0
        return _compare(given)
    except PrivbenchError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"stopped; finished runs are in {given.results}, and the same command goes on", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks compare", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--before", metavar="REV|DIR", help="default: this checkout as it is")
    parser.add_argument("--after", metavar="REV|DIR", help="default: the same as --before")
    parser.add_argument(
        "--without",
        nargs="+",
        default=[],
        metavar="NAME",
        help=f"mechanisms to leave out, each by itself; A+B is both together: {', '.join(MECHANISMS)}",
    )
    parser.add_argument("--against", metavar="NAME", help="what --without is compared with lacks this already")
    parser.add_argument("--case", nargs="+", type=_case, default=[], metavar="DATABASE:FIGURE[@EPSILON]",
                        help="what the change was made for; :FIGURE is the mean of all databases")  # fmt: skip
    add_what_runs(parser, Path("compare.jsonl"))
    parser.add_argument("--synthesizer", default="privbench")
    parser.add_argument("--report", type=Path, metavar="FILE.jsonl", help="only print what is there")
    return parser


def add_what_runs(parser: argparse.ArgumentParser, results: Path) -> None:
    """Add the options that say which databases run, how often, and where finished runs are kept."""
    parser.add_argument("--databases", nargs="+", help="default: all that can be made here")
    parser.add_argument("--epsilon", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--delta", type=float, help="0 is pure (default: 1e-9)")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--data", type=Path, help="data folder (default: $PRIVBENCH_DATA, else ../shared/data)")
    parser.add_argument("--results", type=Path, default=results, metavar="FILE.jsonl")
    parser.add_argument("--workers", type=int, default=2, help="processes, each with one run at a time (default 2)")


def _case(text: str) -> Case:
    try:
        return Case.read(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


@dataclass
class Results:
    """A file of finished runs, one per line.

    Attributes:
        file: The file.
        runs: Figures and costs by side and cell, in the order of the file.
        labels: What codes were called when they ran, by fingerprint.
    """

    file: Path
    runs: dict[Side, dict[Cell, dict[str, float]]]
    labels: dict[str, str]

    @classmethod
    def read(cls, file: Path) -> Results:
        """Read a file; one that is not there has no runs. The half of a line that a killed process left is no run."""
        results = cls(file, {}, {})
        for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
            try:
                said = json.loads(line)
                side, cell = Side(**said["side"]), Cell(**said["cell"])
            except (ValueError, KeyError, TypeError):
                continue
            results._keep(side, cell, said["found"], said["label"])
        return results

    def add(self, finished: Finished, label: str) -> None:
        """Append a run to the file."""
        line = {"side": asdict(finished.side), "cell": asdict(finished.cell), "label": label}
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a+b") as file:
            if file.tell() and not _ends_a_line(file):
                file.write(b"\n")
            file.write((json.dumps({**line, "found": dict(finished.found)}) + "\n").encode())
        self._keep(finished.side, finished.cell, dict(finished.found), label)

    def has(self, side: Side, cell: Cell) -> bool:
        """Whether a run is there."""
        return cell in self.runs.get(side, {})

    def comparisons(self, against: str, cases: Sequence[Case]) -> list[Comparison]:
        """All that can be compared: codes with the first one, and what lacks a mechanism with the code ``against``."""
        found, plain = [], [side for side in self.runs if side.off == ""]
        found += [Comparison(plain[0], side, cases, self._title(plain[0], side)) for side in plain[1:]]
        for base in (side for side in self.runs if side.off == against):
            without = [side for side in self.runs if side.code == base.code and side not in plain and side != base]
            found += [
                Comparison(base, side, _cases_of(side.off, against), self._title(base, side))
                for side in without
                if set(filter(None, against.split("+"))) < set(side.off.split("+"))
            ]
        return found

    def _title(self, before: Side, after: Side) -> str:
        return " and ".join(
            f"{name} {self.labels[side.code]} ({side.code})" + (f" without {side.off}" if side.off else "")
            for name, side in (("before:", before), ("after:", after))
        )

    def _keep(self, side: Side, cell: Cell, found: dict[str, float], label: str) -> None:
        self.runs.setdefault(side, {})[cell] = found
        self.labels.setdefault(side.code, label)


def _ends_a_line(file: Any) -> bool:
    file.seek(-1, 2)
    return bool(file.read(1) == b"\n")


def _cases_of(off: str, against: str) -> tuple[Case, ...]:
    """What the mechanisms were made for that one side lacks and the other does not."""
    lacking = [name for name in off.split("+") if name not in against.split("+")]
    return tuple(dict.fromkeys(case for name in lacking for case in named(name).cases))


def side_of(code: str, off: str = "") -> Side:
    """A state of the code without some mechanisms; PrivbenchError if there is no such mechanism."""
    names = sorted(filter(None, off.split("+")))
    return Side(code, "+".join(names), "+".join(named(name).fingerprint for name in names))


def _compare(given: argparse.Namespace) -> int:
    if given.without and given.after is not None:
        raise PrivbenchError("--without compares one state with itself: give --before or nothing, and no --after")
    if not given.without and given.before is None and given.after is None:
        raise PrivbenchError("nothing to compare: give --before and --after, or --without")
    results = Results.read(given.results)
    with TemporaryDirectory(prefix="privbench-compare-") as place:
        before = Checkout.of(given.before, Path(place) / "before")
        after = before if given.without else Checkout.of(given.after, Path(place) / "after")
        first = side_of(before.fingerprint, given.against or "")
        sides = [side_of(before.fingerprint, name) for name in given.without] or [side_of(after.fingerprint)]
        if first in sides:
            raise PrivbenchError("before and after are the same: there is nothing to compare")
        checkouts = {each.fingerprint: each for each in (before, after)}
        delta, seeds, epsilons = given.delta, given.seeds, given.epsilon

        def groups(prepared: Prepared) -> Iterable[Group]:
            return groups_of(prepared, [first, *sides], results, seeds, epsilons, delta, given.synthesizer)

        failed = make_runs(results, groups, checkouts, given, Path(place))
        cases = given.case or ()
        comparisons = [
            Comparison(
                first,
                side,
                (*cases, *(_cases_of(side.off, given.against or "") if given.without else ())),
                results._title(first, side),
            )
            for side in sides
            if first.code in results.labels and side.code in results.labels
        ]
    for line in failed:
        tell(line)
    _report(results, comparisons, given.results)
    return 1 if failed else 0


def make_runs(
    results: Results,
    groups: Callable[[Prepared], Iterable[Group]],
    checkouts: dict[str, Checkout],
    given: argparse.Namespace,
    place: Path,
) -> list[str]:
    """Make all runs of some databases that are not there; returns a line for each that failed.

    Args:
        results: Takes what has run.
        groups: What is still to run of a database.
        checkouts: The states of the code, by fingerprint.
        given: `data`, `databases` and `workers`, as on the command line.
        place: An empty folder, for sources.
    """
    failed: list[str] = []
    done = 0

    def take(finished: Iterable[Finished]) -> None:
        nonlocal done
        for each in finished:
            done += 1
            label = checkouts[each.side.code].label if each.side.code in checkouts else each.side.code
            name = f"{each.cell.database}, {each.cell.synthesizer}, ε {each.cell.epsilon:g}, seed {each.cell.seed}"
            name += f", {label}" + (f" without {each.side.off}" if each.side.off else "")
            if each.error:
                # The first one in full: most fail for one reason.
                failed.append(f"{name}: {each.error if not failed else each.error.strip().splitlines()[-1]}")
            else:
                results.add(each, label)
            tell(f"{done}: {name}: " + ("failed" if each.error else f"{each.found.get('seconds', 0):.1f} s"))

    known = [source.name for source in sources(given.data)]
    unknown = set(given.databases or ()) - set(known)
    if unknown:
        raise PrivbenchError(f"{', '.join(sorted(unknown))}: no such database; there are {', '.join(known)}")
    with Workers(checkouts, given.workers) as workers:
        for source in sources(given.data):
            if given.databases and source.name not in given.databases:
                continue
            folder = place / source.name
            folder.mkdir()
            try:
                prepared = Prepared.of(source.name, source.spec(folder))
            except SourceError as missing:
                tell(f"{source.name} is left out: {missing}")
                continue
            for group in groups(prepared):
                workers.give(group)
            take(workers.finished(wait=False))
        take(workers.finished(wait=True))
    return failed


def groups_of(
    prepared: Prepared,
    sides: Sequence[Side],
    results: Results,
    seeds: int,
    epsilons: Sequence[float],
    delta: float | None,
    synthesizer: str,
) -> Iterable[Group]:
    """What is still to run of a database, seed by seed; δ is by default that of its spec."""
    delta = load_spec(prepared.spec).delta if delta is None else delta
    for seed, epsilon in product(range(1, seeds + 1), epsilons):
        cell = Cell(prepared.name, prepared.fingerprint, epsilon, delta, seed, synthesizer)
        missing = tuple(side for side in sides if not results.has(side, cell))
        if missing:
            yield Group(prepared.spec, cell, missing)


def _report(results: Results, comparisons: Sequence[Comparison], file: Path) -> None:
    if not comparisons:
        raise PrivbenchError(f"{file}: no two states of the code to compare")
    for comparison in comparisons:
        print(report(results.runs, comparison), flush=True)
    written = write_json(results.runs, comparisons, _RESULTS / f"{file.stem}.json")
    tell(f"written: {written}")


def tell(line: str) -> None:
    """Say how far it is, on stderr."""
    print(line, file=sys.stderr, flush=True)
