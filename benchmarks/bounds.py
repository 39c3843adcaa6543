"""What bounds of owner keys cost: too small ones, those that are declared, and generous ones.

A bound on an owner key is enforced: rows beyond it are not looked at. So one that is too small loses rows, whatever ε,
and one that is too large adds noise, as nothing says then that no unit has so many rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.compare_databases import Source, sources
from benchmarks.measure import Runs
from benchmarks.report import Row, machine, markdown, medians
from benchmarks.workloads import Case, made_by
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema
from privbench_core.spec.load import dump_spec
from tests.helpers.row_figures import row_figures

RUNS = Runs(3, (0.8, 3.2), (1e-9,))
DATABASES = ("chain", "seasons", "hospital", "shop", "san_diego", "stats_every_key")
_TIMES = {"a fifth": 0.2, "declared": 1.0, "20 times": 20.0}  # what the bounds that are declared are multiplied by


def run(runs: Runs = RUNS, data: Path | None = None, databases: Sequence[str] = DATABASES) -> str:
    """Measure, and return Markdown text."""
    rows: list[Row] = []
    for source in sources(data):
        if source.name in databases:
            with TemporaryDirectory() as folder:
                rows += _figures(source, Path(folder), runs)
    return f"{machine(runs.seeds)}\n\n{markdown(medians(rows, ('database', 'ε', 'bounds')))}"


def _figures(source: Source, folder: Path, runs: Runs) -> list[Row]:
    case = Case.of(source.spec(folder), lambda _spec, _rows: {})
    rows: list[Row] = []
    for (delta, epsilon), (bounds, times) in product(runs.budgets, _TIMES.items()):
        spec = case.spec.path.with_name(f"{times:g}.yaml")
        spec.write_text(dump_spec(replace(case.spec, schema=_bounded(case.spec.schema, times))), encoding="utf-8")
        for seed in range(runs.seeds):
            runs.progress(f"bounds: {source.name}, {bounds}, epsilon {epsilon:g}, seed {seed}")
            made, seconds = made_by(spec, epsilon, delta, seed, "privbench")
            found = row_figures(case.spec.schema, case.source, made)
            worst, mean = found.worst(), found.mean()
            rows.append(
                {"database": source.name, "ε": f"{epsilon:g}", "bounds": bounds, "rows, worst": worst["rows"]}
                | {"one-way, mean": mean["one_way"], "joined, mean": mean["joined"]}
                | {"fanout": worst["fanout"], "group size": worst["group_size"], "whole run s": seconds}
            )
    return rows


def _bounded(schema: Schema, times: float) -> Schema:
    """The schema with other bounds on its owner keys, but for those of one row."""

    def of(key: ForeignKey) -> ForeignKey:
        if not key.owner or (key.max_children or 1) == 1:
            return key
        return replace(key, max_children=max(1, round(times * (key.max_children or 1))))

    tables = (replace(table, foreign_keys=tuple(map(of, table.foreign_keys))) for table in schema.tables)
    return replace(schema, tables=tuple(tables))
