"""Databases that nobody here has seen, drafted by `init` as it comes, with only the choices of an owner filled in.

python -m benchmarks strangers [--databases NAME ...] [--epsilon E] [--seeds N] [--verify] ...

Each stands beside its source with the columns of each table shuffled, which is not private, and judged alike by raw
values (`strangers_judge`). ``--rows`` prints rows of each table beside the source's: look at them.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from time import process_time

import numpy as np
import pyarrow as pa

from benchmarks.compare_maker import sample_tables
from benchmarks.report import RESULTS, machine, markdown, write
from benchmarks.strangers_data import STRANGERS, Stranger, make_database
from benchmarks.strangers_judge import Distances, StrangerJudge
from privbench_core.backends.integrity import check_rows
from privbench_core.backends.registry import open_source
from privbench_core.draft.draft import Decisions, reflect, survey
from privbench_core.errors import PrivbenchError
from privbench_core.evaluation import shuffled_reference
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Spec

_MANY = 1000  # units from which rows of tables are promised
_WIDTH = 260  # characters of a line of rows


def main(arguments: Sequence[str]) -> int:
    """Run what was asked for; 0 if all of it succeeded, 1 with a line on stderr if not."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks strangers", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--databases", nargs="+", choices=STRANGERS, help="default: all but those kept for a last look")
    parser.add_argument("--epsilon", type=float, default=3.2)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--verify", action="store_true", help="those kept for a last look alone")
    parser.add_argument("--worst", type=int, default=0, help="print so many columns that are furthest off")
    parser.add_argument("--rows", type=int, default=0, help="print so many rows of each table beside the source's")
    parser.add_argument("--dry", action="store_true", help="print the table, leave benchmarks/results as it is")
    given = parser.parse_args(arguments)
    chosen = given.databases or [name for name, each in STRANGERS.items() if each.verify is given.verify]
    found: list[dict[str, str | float]] = []
    failed = False
    for name in chosen:
        with TemporaryDirectory(prefix="privbench-strangers-") as folder:
            try:
                found.append(_judged(STRANGERS[name], Path(folder), given))
            except PrivbenchError as error:
                failed = True
                print(f"{name}: {error}", file=sys.stderr)
    text = f"{machine(given.seeds).replace('Medians', 'Means')} ε = {given.epsilon:g}.\n\n{markdown(found)}"
    print(text)
    if not given.dry:
        name = "strangers_verify" if given.verify else "strangers"
        (RESULTS / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        write(name, text, command=f"strangers{' --verify' * given.verify} --seeds {given.seeds}")
    return 1 if failed else 0


def draft_spec(stranger: Stranger, folder: Path) -> Spec:
    """Make the database in a folder, draft its spec, fill in the owner's choices and nothing else.

    Rows stay without their reference where the draft asks, and bounds are the stranger's.

    Raises:
        SourceError: Its data is not there.
    """
    file = folder / f"{stranger.name}.duckdb"
    make_database(stranger, file)
    promises = survey(str(file)).promises(stranger.unit)
    staying = {place for place, role in promises.items() if role.may_stay}
    bounds = dict.fromkeys(promises, stranger.bounds)
    decided = Decisions(stranger.unit, stranger.public, bounds=bounds, staying=staying)
    path = folder / "spec.yaml"
    text = reflect(str(file), stranger.name, decisions=decided)
    path.write_text(text.replace("    - CHOOSE", "    # CHOOSE"), encoding="utf-8")  # every table is decided about
    return load_spec(path)


def _judged(stranger: Stranger, folder: Path, given: argparse.Namespace) -> dict[str, str | float]:
    """Return the row of a database, means over seeds."""
    spec = draft_spec(stranger, folder)
    opened = open_source(spec, b"")
    rows = check_rows(spec.schema, {table.name: opened.read(table) for table in spec.schema.tables}, spec.orphans)
    judge = StrangerJudge(spec.schema, rows)
    shuffled = shuffled_reference(spec.schema, rows, 1)
    beside, errors_beside = judge.distances(shuffled), judge.q_errors(shuffled)
    distances: list[Distances] = []
    errors: list[np.ndarray] = []
    sizes: list[dict[str, float]] = []
    begun = process_time()
    for seed in range(1, given.seeds + 1):
        made = sample_tables(spec, rows, given.epsilon, spec.delta, seed, "privbench")
        distances.append(judge.distances(made))
        errors.append(judge.q_errors(made))
        sizes.append({n: abs(made[n].num_rows / max(1, rows[n].num_rows) - 1) for n in made})
    seconds = (process_time() - begun) / given.seeds
    columns = {name: fmean(each.one[name] for each in distances) for name in distances[0].one}
    _print_worst(stranger.name, columns, given.worst)
    _print_rows(rows, made, given.rows)
    off = {name: fmean(each[name] for each in sizes) for name in sizes[0]}
    units = rows[stranger.unit].num_rows
    q = np.concatenate(errors)
    return {
        "database": stranger.name,
        "tables": len(spec.schema.tables),
        "units": units,
        "rows": sum(rows[table.name].num_rows for table in spec.schema.private_tables),
        "one column": fmean(columns.values()),
        "top 10 kept": fmean(fmean(each.top.values()) for each in distances if each.top),
        "values": fmean(fmean(each.values.values()) for each in distances),
        "two columns": fmean(fmean(each.two) for each in distances),
        "(shuffled)": fmean(beside.two),
        "joined": fmean(fmean(each.joined) for each in distances),
        "(shuffled) ": fmean(beside.joined),
        "same values off": fmean(fmean(each.ties.values()) for each in distances) if distances[0].ties else math.nan,
        "(shuffled)  ": fmean(beside.ties.values()) if beside.ties else math.nan,
        "Q-error": float(np.median(q)),
        "95th": float(np.quantile(q, 0.95)),
        "(shuffled)   ": f"{np.median(errors_beside):.3g} / {np.quantile(errors_beside, 0.95):.3g}",
        "rows off": max((value for name, value in off.items() if rows[name].num_rows >= _MANY), default=0.0),
        "CPU s": seconds,
    }


def _print_worst(database: str, columns: Mapping[str, float], most: int) -> None:
    for name, value in sorted(columns.items(), key=lambda item: -item[1])[:most]:
        print(f"{database}: {name} {value:.3f}", file=sys.stderr)


def _print_rows(source: Mapping[str, pa.Table], made: Mapping[str, pa.Table], most: int) -> None:
    """Print the rows of an owner or two from the middle of each table, the source's first."""
    for name in made if most else ():
        for label, table in (("source", source[name]), ("synthetic", made[name])):
            print(f"== {name}, {label}: {table.num_rows} rows")
            shown = table.slice(table.num_rows // 2, most).to_pandas()
            print("\n".join(line[:_WIDTH] for line in shown.to_string(index=False).splitlines()))
            counts = {column: len(table[column].combine_chunks().unique()) for column in table.column_names}
            print("   distinct: " + ", ".join(f"{column} {number}" for column, number in counts.items()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
