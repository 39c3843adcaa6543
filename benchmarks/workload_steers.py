"""What a published workload steers: errors of its queries and of all else, with the workload in the spec and without.

Of random queries (MSCN's recipe) the spec gets up to 40 that read nothing but the unit's table, the two private tables
with most rows beside it and public ones; on *adult* those of SAM's on every third column, on *tpch_skew* the eight of
`tpch_queries`, as counts. Up to 80 others are asked too, and figures of `compare` are measured. Seeds are paired: both
sides have the same noise where they measure the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks import tpch_queries
from benchmarks.compare_databases import sources, stats_spec
from benchmarks.compare_figures import Judge, Prepared
from benchmarks.compare_maker import sample_tables
from benchmarks.data import data_folder
from benchmarks.measure import Runs
from benchmarks.paired import NO_DISTANCE, Change
from benchmarks.report import machine, markdown
from benchmarks.stats import spec as stats_schema
from benchmarks.strangers import draft_spec
from benchmarks.strangers_data import STRANGERS
from benchmarks.workloads import Tables, source_rows
from privbench_core.evaluation.q_error import Recipe, generate_workload, run_workload
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Spec
from privbench_core.workload import Statement, Workload, load_sam_workload, read_sam_workload
from privbench_core.workload.engine import Engine, resolve

RUNS = Runs(8, (0.8, 3.2))
DATABASES = ("adult", "hospital", "tpch_skew", "stats", "football")
_GIVEN, _OTHERS, _SECONDS = 40, 80, 5.0
_SAM = 200
_ELSEWHERE = ("columns", "pairs", "joined", "fanout", "popularity")


@dataclass(frozen=True)
class Case:
    """A database with the queries of its spec, and others.

    Attributes:
        spec: With a workload.
        rows: Of the source.
        queries: "given", and "others".
    """

    spec: Spec
    rows: Tables
    queries: Mapping[str, Workload]

    @classmethod
    def of(cls, name: str, data: Path | None, folder: Path) -> Case:
        """Make the database in a folder; SourceError where its data is missing."""
        made = load_spec(Prepared.of(name, _spec(name, data, folder)).spec)
        rows = source_rows(made)
        recipe = Recipe(queries=400, max_joins=2, max_predicates=2, seed=5)
        drawn = generate_workload(made.schema, rows, recipe).statements
        if name == "adult":
            given, others = _on_every_third_column(made, data_folder(data) / "adult" / "sam_census_test.json")
        elif name == "tpch_skew":
            given, others = [Statement(sql) for sql in tpch_queries.QUERIES.values()], drawn
        else:
            given, others = _of_few_tables(made, rows, drawn)
        file = folder / "published.sql"
        file.write_text(Workload(tuple(given)).to_sql(), encoding="utf-8")
        queries = {"given": Workload(tuple(given)), "others": Workload(tuple(others)[:_OTHERS])}
        return cls(replace(made, workload=file), rows, queries)


def _spec(name: str, data: Path | None, folder: Path) -> Spec:
    if name == "stats":
        return stats_spec(stats_schema, data_folder(data) / "stats", folder)
    if name in STRANGERS:
        return draft_spec(STRANGERS[name], folder)
    return next(each for each in sources(data) if each.name == name).spec(folder)


def _of_few_tables(
    spec: Spec, rows: Tables, drawn: Sequence[Statement]
) -> tuple[Sequence[Statement], Sequence[Statement]]:
    """Return the queries on the unit's table and the two largest ones beside it, and all others."""
    schema = spec.schema
    catalogue = {table.name: [column.name for column in table.columns] for table in schema.tables}
    public = {table.name for table in schema.tables if table.public}
    others = sorted({*rows} - public - {schema.unit}, key=lambda name: -rows[name].num_rows)
    inside = {schema.unit, *others[:2], *public}
    read = [set(resolve(each.sql, "postgres", catalogue).tables) for each in drawn]
    given = [each for each, tables in zip(drawn, read, strict=True) if tables <= inside and not tables <= public]
    return given[:_GIVEN], [each for each, tables in zip(drawn, read, strict=True) if not tables <= inside]


def _on_every_third_column(spec: Spec, file: Path) -> tuple[Sequence[Statement], Sequence[Statement]]:
    """Return SAM's queries with the conditions on every third column alone, two or more of them, and with all others.

    Both are made by leaving out conditions; a query keeps its literals.
    """
    (table,) = spec.schema.tables
    names = [column.name for column in table.columns]
    third = set(names[:-1:3])
    queries, _ = load_sam_workload(file, names)
    whole = read_sam_workload(file, table).statements

    def only(keep: set[str]) -> Iterable[Statement]:
        for query, statement in zip(queries, whole, strict=True):
            head, _, conditions = statement.sql.partition(" WHERE ")
            kept = [c for q, c in zip(query, conditions.split(" AND "), strict=True) if q.column in keep]
            if len(kept) > 1:
                yield Statement(f"{head} WHERE {' AND '.join(kept)}")

    return list(dict.fromkeys(only(third)))[:_SAM], list(dict.fromkeys(only(set(names) - third)))


def run(name: str, runs: Runs = RUNS, data: Path | None = None) -> str:
    """Measure one database and return Markdown text: figures with the workload over those without, below 1 is better.

    Raises:
        SourceError: Its data is missing.
    """
    with TemporaryDirectory() as folder:
        case = Case.of(name, data, Path(folder))
        numbers = ", ".join(f"{len(queries.statements)} {what}" for what, queries in case.queries.items())
        about = machine(runs.seeds).replace("Medians of", "Errors with the workload over those without, of")
        return f"{about} Queries: {numbers}.\n\n{markdown(list(_rows_of(name, case, runs)))}"


def _rows_of(name: str, case: Case, runs: Runs) -> Iterable[dict[str, str | float]]:
    judge, engine = Judge(case.spec.path), Engine(case.rows, _SECONDS)
    for epsilon in runs.epsilons:
        sides: list[list[dict[str, float]]] = [[], []]
        for seed in range(runs.seeds):
            runs.progress(f"{name}: epsilon {epsilon:g}, seed {seed}")
            for side, spec in zip(sides, (replace(case.spec, workload=None), case.spec), strict=True):
                made = sample_tables(spec, case.rows, epsilon, 1e-9, seed, "privbench")
                side.append(_errors(case, engine, {**case.rows, **made}) | judge.figures(made))
        changes = {
            figure: Change.of(
                [_log(after[figure]) - _log(before[figure]) for before, after in zip(*sides, strict=True)]
            )
            for figure in (*(f"{what}, {how}" for what in case.queries for how in ("mean", "median")), *_ELSEWHERE)
            if figure in sides[0][0]
        }
        yield {"database": name, "ε": f"{epsilon:g}", **{figure: str(change) for figure, change in changes.items()}}


def _errors(case: Case, engine: Engine, made: Tables) -> dict[str, float]:
    """Return the mean of ln Q-error and the median relative error of each set of queries."""
    found = {}
    for what, queries in case.queries.items():
        answers = run_workload(queries, engine, made, timeout=_SECONDS)
        pairs = np.array([(each["source"], each["synthetic"]) for each in answers.answers], dtype=float)
        found[f"{what}, mean"] = float(np.log(answers.errors).mean())
        found[f"{what}, median"] = float(np.median(np.abs(pairs[:, 1] - pairs[:, 0]) / np.maximum(pairs[:, 0], 1.0)))
    return found


def _log(value: float) -> float:
    return float(np.log(max(value, NO_DISTANCE)))
