"""Error bars: how often intervals cover the answers on the source, and how wide they are, by number of joins.

Adult with the queries of SAM, *stats* with its published queries and random joins, and databases of `strangers` with
random joins, on which nothing was chosen. Each bundle gets its replicates as its recipients would get them. A perfect
interval around a normal error covers 95% and is 5.8 times as wide as the median error; half of it is 2.5 times the mean
error, and all of it 3.9 standard errors. Intervals are factors, so the last column is of logarithms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import stats
from benchmarks.data import ADULT, Bins, CodedAdult, data_folder
from benchmarks.measure import Runs
from benchmarks.report import Row, machine, markdown, medians
from benchmarks.strangers import draft_spec
from benchmarks.strangers_data import STRANGERS
from benchmarks.workloads import Case, Tables, run_pipeline
from privbench_core.evaluation.q_error import Recipe, generate_workload
from privbench_core.explain.error_bars import ErrorBars, intervals_of
from privbench_core.pipeline.rehearsal import make_replicates
from privbench_core.publishing import read_bundle
from privbench_core.schema.columns import Column, ColumnType, Range, Values
from privbench_core.schema.tables import Schema, Table
from privbench_core.spec.model import Spec
from privbench_core.workload import Workload, read_sam_workload, read_workload
from privbench_core.workload.engine import Engine, UnansweredError

RUNS = Runs(1, (0.8, 3.2))
DATABASES = ("adult", "stats", "football", "epidemic")
REPLICATES = 10
_TIMEOUT = 10.0  # seconds of a query


def run(runs: Runs = RUNS, data: Path | None = None, databases: Sequence[str] = DATABASES) -> str:
    """Measure and return Markdown text; SourceError if data is missing."""
    rows: list[Row] = []
    for name in databases:
        with TemporaryDirectory() as place:
            case = _case(name, Path(place), data)
            for epsilon in runs.epsilons:
                for seed in range(runs.seeds):
                    runs.progress(f"{name}: ε = {epsilon:g}, seed {seed}")
                    rows += _measured(case, epsilon, seed)
    return f"{machine(runs.seeds)} {REPLICATES} replicates.\n\n{markdown(medians(rows, ['database', 'ε', 'joins']))}"


def _measured(case: Case, epsilon: float, seed: int) -> Iterator[Row]:
    with TemporaryDirectory() as out:
        run_pipeline(str(case.spec.path), epsilon, case.spec.delta, seed, out)
        bundle = Path(out) / "bundle"
        make_replicates(case.spec, bundle, REPLICATES)
        engine = Engine(case.source, _TIMEOUT)
        (workload,) = case.workloads.values()
        found = intervals_of(read_bundle(bundle), workload, _TIMEOUT)
    true = {n: engine.cardinality(engine.resolve(each.sql)) for n, each in enumerate(workload.statements, start=1)}
    for joins in (*sorted({each.joins for each in found.intervals}), None):
        yield {"database": case.spec.schema.name, "ε": f"{epsilon:g}", **_figures(found, true, joins)}


def _figures(found: ErrorBars, true: dict[int, int], joins: int | None) -> Row:
    some = [each for each in found.intervals if joins in {None, each.joins}]
    source, answer, low, high = np.array([[true[i.query], i.answer, i.low, i.high] for i in some], float).T
    logs = np.log((np.array([answer, high]) + 1) / (np.array([source, low]) + 1))
    error, width = (values / np.maximum(source, 1) for values in (np.abs(answer - source), high - low))
    return {
        "joins": "all" if joins is None else str(joins),
        "queries": len(some),
        "unmet": sum(each.unmet for each in some),
        "covered %": 100 * float(((low <= source) & (source <= high)).mean()),
        "median error %": 100 * float(np.median(error)),
        "median width %": 100 * float(np.median(width)),
        "width / error": float(np.median(width) / np.median(error)),
        "half width / mean error, logs": float(np.median(logs[1]) / 2 / np.abs(logs[0]).mean()),
        "widened": float(np.median([each.widened or 1.0 for each in some])),
    }


def _case(name: str, folder: Path, data: Path | None) -> Case:
    (folder / "source").mkdir()
    if name == "adult":
        return _adult(folder, data_folder(data))
    if name == "stats":
        stats.prepare(data_folder(data) / "stats", folder / "source")
        published = read_workload(data_folder(data) / "stats" / "single_table_queries.sql")
        return Case.of(
            stats.spec(folder / "source", folder), lambda spec, rows: {"": _with_joins(spec, rows, published)}
        )
    return Case.of(draft_spec(STRANGERS[name], folder), lambda spec, rows: {"": _with_joins(spec, rows)})


def _with_joins(spec: Spec, rows: Tables, published: Workload | None = None) -> Workload:
    """Return published queries that have an answer on these rows, and random joins of up to five tables."""
    engine = Engine(rows, _TIMEOUT)
    random = generate_workload(spec.schema, rows, Recipe(queries=200, max_joins=4, max_predicates=2), engine=engine)
    kept = []
    for statement in published.statements if published else ():
        try:
            engine.cardinality(engine.resolve(statement.sql))
        except UnansweredError:
            continue  # of a table that is not there
        kept.append(statement)
    return Workload((*kept, *random.statements))


def _adult(folder: Path, data: Path) -> Case:
    rows = CodedAdult.load(data).rows
    pq.write_table(rows.add_column(0, "id", pa.array(np.arange(len(rows)))), folder / "source" / "adult.parquet")
    columns = tuple(
        Column(name, ColumnType.INTEGER, Range(domain.low, domain.low + domain.width * domain.size - 1, domain.size))
        if isinstance(domain, Bins)
        else Column(name, ColumnType.CATEGORY, Values(domain.values))
        for name, domain in ADULT.items()
    )
    sam = read_sam_workload(data / "adult" / "sam_census_test.json", Table("adult", columns, ()))
    table = Table("adult", (Column("id", ColumnType.INTEGER), *columns), ("id",))
    schema, state = Schema("adult", (table,), "adult"), folder / "state"
    spec = Spec(schema, str(folder / "source"), folder / "adult.yaml", RUNS.epsilons, 1e-9, 20.0, 1e-7, state=state)
    return Case.of(spec, lambda *_: {"": sam})
