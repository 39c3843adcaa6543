"""Measure, and write the tables of ``benchmarks/results``.

python -m benchmarks [NAME] [--data DIR] [--seeds N] [--epsilon E ...] [--delta D ...] [--methods M ...]
    [--scale S ...] [--rows N ...] [--databases NAME ...] [--tables NAME ...] [--dry]
python -m benchmarks figures --help     what bundles are like on all databases, with the spread over seeds
python -m benchmarks strangers --help   databases that nobody here has seen, by the draft of `init` as it comes
python -m benchmarks compare --help     two states of the code, or one without a mechanism, on paired seeds
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks import (
    adult,
    append,
    attacks,
    bounds,
    certificate,
    compare,
    dense,
    differences,
    error_bars,
    evaluation,
    figures,
    first_hour,
    ledger,
    multi_hop,
    nist,
    nist_data,
    operational,
    orchestration,
    papers,
    planted,
    refinement,
    relationships,
    report,
    rivals,
    sandag,
    scale,
    schemas,
    shapes,
    shares,
    skew,
    spec_errors,
    statistics,
    stats,
    strangers,
    tightness,
    tpch,
    workload_steers,
)
from benchmarks.measure import Runs
from privbench_core.errors import PrivbenchError


def main() -> int:
    """Run what was asked for; 0 if all of it succeeded, 1 with a line on stderr if not."""
    own_options = {"compare": compare.main, "figures": figures.main, "strangers": strangers.main}
    if sys.argv[1:2] and sys.argv[1] in own_options:
        return own_options[sys.argv[1]](sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0])
    names = (
        "adult",
        "shapes",
        "dense",
        "shares",
        "sandag",
        "households",
        "california",
        "skew",
        "schemas",
        "stats",
        "relationships",
        "refinement",
        "rivals",
    )
    names += ("tpch", "evaluation", "orchestration", "ledger", "scale", "spec_errors", "tightness", "attacks")
    names += ("append", "certificate", "first_hour", "rows_out", "whole", "engines", "differences", "bounds")
    names += ("error_bars", "statistics", "workload_steers", "nist", "papers", "multi_hop")
    parser.add_argument("which", nargs="?", choices=names, help="default: everything")
    parser.add_argument("--data", type=Path, help="data folder (default: $PRIVBENCH_DATA, else ../shared/data)")
    parser.add_argument("--seeds", type=int, help="runs per figure (default: 3, or 1 where a run takes minutes)")
    parser.add_argument("--epsilon", type=float, nargs="+", help="default: the benchmark's own")
    parser.add_argument("--delta", type=float, nargs="+", help="0 is pure (default: the benchmark's own)")
    parser.add_argument(
        "--methods",
        nargs="+",
        help=f"for adult and dense, of: copula {' '.join(adult.methods())} (default for adult: privbench histograms);"
        f" for engines and whole, of: {' '.join(scale.COUNTING)} (default: all;"
        " memory and duckdb)",
    )
    parser.add_argument(
        "--scale", type=float, nargs="+", default=[0.1], help="of TPC-H, for schemas and engines (default 0.1)"
    )
    parser.add_argument("--rows", type=float, nargs="+", help="of the child table, for rows_out, whole and engines")
    parser.add_argument(
        "--databases",
        nargs="+",
        default=(),
        help="for append, attacks, bounds, certificate, error_bars, first_hour, multi_hop, nist, papers, relationships,"
        " refinement, rows_out, statistics and workload_steers (default: all)",
    )
    parser.add_argument("--no-csv", action="store_true", help="for rows_out and whole: no rows for psql in the bundles")
    parser.add_argument("--no-bundle", action="store_true", help="for rows_out: draw rows, and neither check nor write")
    parser.add_argument("--tables", nargs="+", default=(), help="for dense, shares and nist: subsets (default: all)")
    parser.add_argument("--dry", action="store_true", help="print the tables, leave benchmarks/results as it is")
    given = parser.parse_args()
    chosen = {"seeds": given.seeds, "epsilons": given.epsilon, "deltas": given.delta}
    asked = {"progress": _tell} | {name: value for name, value in chosen.items() if value is not None}

    def runs(usual: Runs) -> Runs:
        return replace(usual, **asked)

    sections: dict[str, Callable[[], str | None]] = {  # NAME/PART: a table of its own in the section of NAME
        "adult": partial(adult.run, runs(adult.RUNS), given.data, names=given.methods or adult.DEFAULT_METHODS),
        "rivals": partial(rivals.run, runs(rivals.RUNS), given.data),
        "shapes": partial(shapes.run, runs(shapes.RUNS)),
        "dense": partial(dense.run, runs(dense.RUNS), given.data, names=given.methods, only=given.tables),
        "shares": partial(shares.run, runs(shares.RUNS), given.data, only=given.tables),
        "sandag": partial(sandag.run, runs(sandag.RUNS)),
        "households": partial(planted.run_households, runs(planted.HOUSEHOLDS)),
        "california": partial(planted.run_california, runs(planted.CALIFORNIA)),
        "skew": partial(skew.run, runs(skew.RUNS)),
        # Its budgets are part of what is claimed, and its figures do not vary with the seed.
        "schemas": partial(schemas.run, given.data, scales=given.scale, progress=_tell),
        "stats": partial(stats.run, runs(stats.RUNS), given.data),
        **{
            f"relationships/{name}": partial(relationships.run, name, runs(relationships.RUNS), given.data)
            for name in relationships.DATABASES
            if name in (given.databases or relationships.DATABASES)
        },
        **{
            f"refinement/{name}": partial(refinement.run, name, runs(refinement.RUNS), given.data)
            for name in refinement.DATABASES
            if name in (given.databases or refinement.DATABASES)
        },
        "tpch": partial(tpch.run, runs(tpch.RUNS)),
        "error_bars": partial(
            error_bars.run, runs(error_bars.RUNS), given.data, given.databases or error_bars.DATABASES
        ),
        "evaluation": partial(evaluation.run, given.data, progress=_tell),
        "orchestration": partial(orchestration.run, progress=_tell),
        "ledger": partial(ledger.run, seeds=given.seeds or 3, progress=_tell),
        "scale": partial(scale.run, given.seeds or scale.SEEDS, progress=_tell),
        "rows_out": partial(
            scale.run_rows_out,
            given.rows or scale.ROWS_OUT,
            given.databases or scale.ROWS_OUT_OF,
            csv=not given.no_csv,
            publish=not given.no_bundle,
            progress=_tell,
        ),
        "whole": partial(
            scale.run_whole,
            given.rows or scale.WHOLE_ROWS,
            given.methods or scale.WHOLE_ENGINES,
            csv=not given.no_csv,
            progress=_tell,
        ),
        "engines": partial(
            scale.run_engines,
            given.rows or scale.ENGINE_ROWS,
            given.methods or scale.COUNTING,
            given.scale,
            progress=_tell,
        ),
        "append": partial(append.run, given.databases or append.DATABASES, given.seeds or 3, progress=_tell),
        "spec_errors": spec_errors.run,
        "first_hour": partial(
            operational.run, given.databases or operational.DATABASES, given.seeds or 1, progress=_tell
        ),
        "first_hour/drafts": partial(first_hour.run, given.data),
        "statistics": partial(statistics.run, given.data, given.databases or statistics.DATABASES, progress=_tell),
        "differences": partial(differences.run, runs(differences.RUNS), given.data),
        "bounds": partial(bounds.run, runs(bounds.RUNS), given.data, given.databases or bounds.DATABASES),
        "certificate": partial(
            certificate.run, runs(certificate.RUNS), given.data, given.databases or certificate.DATABASES
        ),
        **{
            f"workload_steers/{name}": partial(workload_steers.run, name, runs(workload_steers.RUNS), given.data)
            for name in given.databases or workload_steers.DATABASES
        },
        **{
            f"nist/{name}": partial(nist.run, name, runs(nist.RUNS), given.tables)
            for name in given.databases or nist_data.EXCERPTS
        },
        **{
            f"multi_hop/{name}": partial(multi_hop.run, name, runs(multi_hop.RUNS))
            for name in given.databases or multi_hop.DATABASES
        },
        "papers/adult": partial(papers.run_adult, runs(papers.ADULT_RUNS), given.data),
        **{f"papers/{name}": partial(papers.run_census, name, runs(papers.CENSUS_RUNS)) for name in papers.CENSUS},
        "tightness": partial(tightness.run, progress=_tell),
        "attacks": partial(attacks.run, given.data, given.databases or attacks.DATABASES, progress=_tell),
    }
    try:
        for name, measure in sections.items():
            if given.which in {None, name.partition("/")[0]} and (text := measure()) is not None:
                print(text, flush=True)
                if not given.dry:
                    report.write(name, text)
    except PrivbenchError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
