"""Rows, not units: what queries count, measured on heavy tails, beside the source with every column shuffled.

Per database: distances over rows (`privbench_core.evaluation.rows`), Q-errors of random joins along its keys, and what
a whole run takes. Where a bundle is worse than the shuffled source, a line says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measure import Runs, call_in_child
from benchmarks.report import Row, machine, markdown, medians
from benchmarks.row_sources import RowSource, row_sources
from benchmarks.workloads import SHUFFLED, SYNTHESIZERS, Case, Tables, available, by_joins, run_pipeline
from privbench_core.evaluation.generate import Recipe, generate_workload
from privbench_core.evaluation.q_error import WORSE, run_workload
from privbench_core.evaluation.rows import row_figures, shuffled_reference
from privbench_core.publishing.bundle import read_bundle
from privbench_core.spec.model import Spec
from privbench_core.workload.statements import Workload

RUNS = Runs(1, (0.2, 0.8, 3.2), (1e-9,))
WORKLOAD = "multi-join"
_RECIPE = Recipe(queries=60, max_joins=3, max_predicates=2, seed=1)
_SECONDS = 10.0

# Heading -> (kind of `RowFigures`, whether the worst of them or their mean).
_SHOWN = {
    "rows, worst": ("rows", "worst"),
    "join sizes, mean": ("join_size", "mean"),
    "means, mean": ("means", "mean"),
    "one-way, worst": ("one_way", "worst"),
    "one-way, mean": ("one_way", "mean"),
    "joined, worst": ("joined", "worst"),
    "joined, mean": ("joined", "mean"),
    "2 keys apart, mean": ("further", "mean"),
    "fanout": ("fanout", "worst"),
    "group size": ("group_size", "worst"),
    "popularity": ("popularity", "worst"),
    "by name": ("by_name", "worst"),
    "siblings, mean": ("siblings", "mean"),
}


def run(
    runs: Runs = RUNS,
    data: Path | None = None,
    databases: Sequence[str] = (),
    synthesizers: Sequence[str] = SYNTHESIZERS,
) -> str:
    """Measure and return the Markdown text for the README; the figures of a database are printed when it is done.

    Args:
        runs: What is run; the seeds of a cell share a process, so its peak memory is theirs together.
        data: The data folder; databases whose data is not there are left out.
        databases: Those to measure; all, if there are none.
        synthesizers: Their names.
    """
    found = _Figures()
    for source in row_sources(data, runs.progress):
        if databases and source.name not in databases:
            continue
        with TemporaryDirectory() as folder:
            case = Case.of(source.spec(Path(folder)), _workloads)
            _measure(found, source, case, runs, synthesizers)
        runs.progress(found.of(source.name).markdown())
    return f"{machine(runs.seeds)}\n\n{found.markdown()}"


def run_seeds(spec: str, epsilon: float, delta: float, seeds: int, out: str, synthesizer: str) -> list[float]:
    """Run a spec once per seed into folders ``0``, ``1``, … of ``out``; returns the seconds of each."""
    return [run_pipeline(spec, epsilon, delta, seed, str(Path(out) / str(seed)), synthesizer) for seed in range(seeds)]


def _workloads(spec: Spec, rows: Tables) -> Mapping[str, Workload]:
    return {WORKLOAD: generate_workload(spec.schema, rows, _RECIPE)}


def _measure(found: _Figures, source: RowSource, case: Case, runs: Runs, synthesizers: Sequence[str]) -> None:
    for seed in range(runs.seeds):
        runs.progress(f"rows: {source.name}, {SHUFFLED}, seed {seed}")
        made = shuffled_reference(case.spec.schema, case.source, seed)
        found.add({"database": source.name, "method": SHUFFLED, "ε": "-"}, source, case, made)
    for (delta, epsilon), synthesizer in product(runs.budgets, synthesizers):
        if not available(synthesizer, delta):
            continue
        runs.progress(f"rows: {source.name}, {synthesizer}, epsilon {epsilon:g}, delta {delta:g}")
        cell = {"database": source.name, "method": synthesizer, "ε": f"{epsilon:g}"}
        with TemporaryDirectory() as folder:
            given = {"epsilon": epsilon, "delta": delta, "seeds": runs.seeds, "out": folder, "synthesizer": synthesizer}
            given["spec"] = str(case.spec.path)
            seconds, peak = call_in_child("benchmarks.rows:run_seeds", given)
            for seed, took in enumerate(seconds):
                bundle = read_bundle(Path(folder) / str(seed) / "bundle")
                made = {name: bundle.table(name) for name in bundle.tables}
                found.add(cell, source, case, made, {"whole run s": took, "peak MB": peak})


@dataclass
class _Figures:
    """Rows of all tables of figures, in the order of the runs."""

    distances: list[Row] = field(default_factory=list)
    errors: list[Row] = field(default_factory=list)
    named: list[Row] = field(default_factory=list)

    def add(
        self,
        cell: dict[str, str],
        source: RowSource,
        case: Case,
        made: Tables,
        costs: Mapping[str, float] | None = None,
    ) -> None:
        """Measure one database beside its source."""
        figures = row_figures(case.spec.schema, case.source, made)
        by = {"worst": figures.worst(), "mean": figures.mean()}
        self.distances.append({**cell, **{name: by[of][kind] for name, (kind, of) in _SHOWN.items()}, **(costs or {})})
        result = run_workload(case.workloads[WORKLOAD], case.source, made, timeout=_SECONDS)
        whole = {"unanswered": float(len(result.failed))}
        if result.errors is not None:
            whole |= {"median": result.errors.percentile(50), "95th": result.errors.percentile(95), **by_joins(result)}
        # A bundle that is far too large answers none of a class in time; the reference comes first and has them all.
        first = next((row for row in self.errors if row["database"] == cell["database"]), {})
        self.errors.append({**dict.fromkeys(first, float("nan")), **cell, **whole})
        if source.figure is not None:
            name, of_rows = source.figure
            true, other = of_rows(case.source), of_rows(made)
            self.named.append({**cell, "figure": name, "source": true, "synthetic": other})

    def of(self, database: str) -> _Figures:
        """Return those of one database."""
        return _Figures(
            *(
                [row for row in rows if row["database"] == database]
                for rows in (self.distances, self.errors, self.named)
            )
        )

    def markdown(self) -> str:
        """The tables, each with its title, and the lines of what is worse than shuffled."""
        keys = ("database", "method", "ε")
        errors = medians(self.errors, keys)
        parts = [
            f"**Distances over rows**\n\n{markdown(medians(self.distances, keys))}",
            f"**Q-errors by number of joins**\n\n{markdown(errors)}",
            "**Worse than the shuffled source**\n\n" + "\n".join(worse_than_shuffled(errors)),
        ]
        if self.named:
            parts.insert(2, f"**Shares**\n\n{markdown(medians(self.named, (*keys, 'figure')))}")
        return "\n\n".join(parts)


def worse_than_shuffled(errors: Iterable[Row]) -> list[str]:
    """Return a line per bundle with Q-errors above those of the shuffled source: database, method, ε and classes."""
    rows = list(errors)
    reference = {row["database"]: row for row in rows if row["method"] == SHUFFLED}
    lines = []
    for row in (row for row in rows if row["method"] != SHUFFLED):
        beside = reference[row["database"]]
        classes = [name for name in beside if name not in {"database", "method", "ε", "unanswered"}]
        worse = [
            f"{name} {float(row[name]):.3g} against {float(beside[name]):.3g}"
            for name in classes
            if not float(row[name]) <= WORSE * float(beside[name])
        ]
        if worse:
            lines.append(f"- {row['database']}, {row['method']} at ε = {row['ε']}: {'; '.join(worse)}")
    return lines or ["- none"]
