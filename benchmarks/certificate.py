"""Certificates of plans: do bundles lead PostgreSQL, and those who tune it, to the choices of their sources?

Beside each bundle stands the source loaded once more: what differs there is the server's sample of statistics, and the
machine. Queries are the random joins of the stats benchmark, TPC-H's eight with random ones, and random ones on the
made-up company that sells software.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import stats, tpch
from benchmarks.data import data_folder
from benchmarks.measure import Runs, call_in_child
from benchmarks.report import Row, machine, markdown
from benchmarks.strangers import draft_spec
from benchmarks.strangers_data import STRANGERS
from benchmarks.workloads import source_rows
from privbench_core.evaluation.evaluation import Certificate, certify_bundle
from privbench_core.evaluation.q_error import Recipe, generate_workload
from privbench_core.explain.comparison import RunTimeSettings
from privbench_core.explain.decisions import DecisionSettings
from privbench_core.publishing import write_bundle
from privbench_core.spec.load import dump_spec, load_spec
from privbench_core.spec.model import Spec
from privbench_core.workload import Workload

RUNS = Runs(1, (3.2,), (1e-9,))
_QUERIES = 60
_SETTINGS = RunTimeSettings(repetitions=5), DecisionSettings(seconds=300)


def _stats(data: Path | None, folder: Path) -> tuple[Spec, Workload]:
    source = folder / "source"
    source.mkdir()
    stats.prepare(data_folder(data) / "stats", source)
    spec = _saved(stats.spec(source, folder))
    joins = stats.multi_join(spec, source_rows(spec))
    return spec, Workload(joins.statements[:_QUERIES])


def _tpch(_: Path | None, folder: Path) -> tuple[Spec, Workload]:
    source = folder / "source"
    source.mkdir()
    tpch.generate(source)
    spec = _saved(Spec(tpch.SCHEMA, str(source), folder / "tpch.yaml", (3.2,), 1e-9, 20.0, 1e-7, state=folder / "s"))
    return spec, Workload((*Workload.of(tpch.QUERIES.values()).statements, *_random(spec).statements))


def _saas(_: Path | None, folder: Path) -> tuple[Spec, Workload]:
    spec = draft_spec(STRANGERS["saas"], folder)
    return spec, _random(spec)


def _random(spec: Spec) -> Workload:
    return generate_workload(spec.schema, source_rows(spec), Recipe(queries=_QUERIES, max_joins=3, max_predicates=2))


def _saved(spec: Spec) -> Spec:
    spec.path.write_text(dump_spec(spec), encoding="utf-8")
    return load_spec(spec.path)


DATABASES: dict[str, Callable[[Path | None, Path], tuple[Spec, Workload]]] = {
    "stats": _stats,
    "tpch": _tpch,
    "saas": _saas,
}


def run(runs: Runs, data: Path | None, databases: Collection[str]) -> str:
    """Measure and return Markdown text: figures of each certificate, and the queries whose run times differ most."""
    rows: list[Row] = []
    worst: list[Row] = []
    for name in databases:
        with TemporaryDirectory() as place:
            folder = Path(place)
            spec, workload = DATABASES[name](data, folder)
            queries = folder / "queries.sql"
            queries.write_text(workload.to_sql(), encoding="utf-8")
            for what, bundle in _bundles(name, spec, runs, folder):
                found = certify_bundle(spec, bundle, workload=queries, settings=_SETTINGS)
                rows.append({"database": name, "against": what, **_figures(found)})
                worst += [{"database": name, "against": what, **row} for row in _worst(found)]
    differ = f"Largest differences of run times beyond noise (source / bundle):\n\n{markdown(worst)}"
    return f"{machine(runs.seeds)}\n\n{markdown(rows)}\n\n{differ}"


def _bundles(name: str, spec: Spec, runs: Runs, folder: Path) -> Iterator[tuple[str, Path]]:
    yield "source, loaded once more", write_bundle(folder / "again", spec.schema, source_rows(spec), {}, csv=False)
    for delta, epsilon in runs.budgets:
        for seed in range(runs.seeds):
            runs.progress(f"{name}: epsilon {epsilon:g}, delta {delta:g}, seed {seed}")
            out = folder / f"{epsilon:g} {delta:g} {seed}"
            budget = {"epsilon": epsilon, "delta": delta, "seed": seed}
            given = {"spec": str(spec.path), **budget, "out": str(out), "synthesizer": "privbench"}
            call_in_child("benchmarks.workloads:run_pipeline", given)
            yield f"bundle, ε = {epsilon:g}, seed {seed}", out / "bundle"


def _figures(found: Certificate) -> dict[str, str | float]:
    plans, made = found.plans, found.decisions
    ratios = {
        f"{words}, median / 95th": " / ".join(f"{(plans.ratios[name] or {}).get(r, 0):.3g}" for r in ("median", "95th"))
        for name, words in (("cost_ratio", "cost"), ("rows_q_error", "rows"))
    }
    times, noise = (plans.to_dict()[name] or {} for name in ("discrepancy_percent", "noise_percent"))
    return {
        "queries": len(plans.compared),
        "same plan": plans.figures["same_plan"] or 0.0,
        **ratios,
        "run time, median %": times.get("median", 0.0),
        "noise, median %": noise.get("median", 0.0),
        "choices": len(made.made),
        "clear": len(made.clear),
        "same winner": float("nan") if made.same_winner is None else made.same_winner,
        "clear reversals": len(made.reversed),
    }


def _worst(found: Certificate, most: int = 5) -> Iterator[dict[str, str | float]]:
    by_excess = sorted(found.plans.compared, key=lambda query: -query.ratios["time_ratio"] / query.ratios["time_noise"])
    for query in by_excess[:most]:
        source, bundle = query.explained
        yield {
            "query": query.number,
            "ms": f"{query.milliseconds[0]:.2f} / {query.milliseconds[1]:.2f}",
            "rows": f"{source.actual_rows:.0f} / {bundle.actual_rows:.0f}",
            "pages": f"{source.pages} / {bundle.pages}",
            "noise": query.ratios["time_noise"],
            "flips": "; ".join(query.flips) or "-",
        }
