"""What the benchmarks on whole databases share: a run of the pipeline, and what workloads make of its bundle.

Beside each bundle stand baselines that are not private. The source with every column shuffled has perfect one-way
marginals, and nothing else: what a synthetic database is better at, it owes to correlations and joins. The source with
its values drawn again within the codes of a run has its joins and correlations: what it gets wrong, no model of these
codes gets right, because noise left one code to several values, or no name to a value. And the source's own rows,
loaded once more, have run times that are apart by what loading alone makes of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np
import pyarrow as pa

from benchmarks.measure import Runs, call_in_child
from benchmarks.one_unit import hidden
from benchmarks.report import Row, markdown, medians
from privbench_core.backends.integrity import check_rows
from privbench_core.backends.registry import open_source
from privbench_core.columns.differences import values_of_owners, written_values
from privbench_core.engines.memory_relations import Relations
from privbench_core.evaluation import shuffled_reference
from privbench_core.evaluation.marginals import Figures
from privbench_core.evaluation.q_error import WorkloadResult, run_workload
from privbench_core.explain.comparison import RunTimeSettings, compare_plans
from privbench_core.explain.plan import both_loaded
from privbench_core.profiles.profile import Profile
from privbench_core.publishing import Bundle, read_bundle, write_bundle
from privbench_core.schema.tables import Schema
from privbench_core.spec.load import dump_spec, load_spec
from privbench_core.spec.model import Spec
from privbench_core.workload import Workload

ALONE = "Each query alone, exact but for noise that hides its largest unit, for all of ε"
SHUFFLED = "source, columns shuffled"
CODED = "source, within the codes of "
AGAIN = "source, loaded once more"
SYNTHESIZERS = ("privlava", "privpetal", "privbench")
PROTOCOL = RunTimeSettings(limit=100)
Tables = Mapping[str, pa.Table]
MoreFigures = Callable[[Tables, Tables], dict[str, float]]


@dataclass(frozen=True)
class Case:
    """A database to synthesize and its workloads.

    Attributes:
        spec: The spec.
        source: The rows, as a run reads them.
        workloads: By name.
    """

    spec: Spec
    source: Tables
    workloads: Mapping[str, Workload]

    @classmethod
    def of(cls, spec: Spec, workloads: Callable[[Spec, Tables], Mapping[str, Workload]]) -> Case:
        """Save the spec, load it as a user's would be, read the source; SpecError if the core has no such schema."""
        spec.path.write_text(dump_spec(spec), encoding="utf-8")
        checked = load_spec(spec.path)
        kept = source_rows(checked)
        return cls(checked, kept, workloads(checked, kept))


def run_pipeline(spec: str, epsilon: float, delta: float, seed: int, out: str, synthesizer: str | None = None) -> float:
    """Run a spec into the folder ``out``; returns seconds. Called in a process of its own.

    Ledger and releases go to a folder of their own with a lifetime budget that never ends: the spec's own budget is not
    touched, and no run is handed the releases of an earlier one.
    """
    from privbench_core.pipeline.executor import run_spec  # only the child process pays for it

    start = perf_counter()
    run_spec(
        _loaded(spec, out),
        epsilon,
        delta=delta,
        synthesizer=synthesizer,
        seed=seed,
        out=Path(out) / "bundle",
        undeclared_epsilon=True,
    )
    return perf_counter() - start


def made_by(
    spec: Path, epsilon: float, delta: float, seed: int, synthesizer: str | None = None
) -> tuple[Tables, float]:
    """Run a spec as `run_pipeline` does, in this process; returns the rows of the bundle, and seconds."""
    with TemporaryDirectory() as out:
        seconds = run_pipeline(str(spec), epsilon, delta, seed, out, synthesizer)
        bundle = read_bundle(Path(out) / "bundle")
        return {name: bundle.table(name) for name in bundle.tables}, seconds


@contextmanager
def bundle_of(
    spec: Path, synthesizer: str, epsilon: float, delta: float, seed: int
) -> Iterator[tuple[Bundle, dict[str, float]]]:
    """Run a spec as `run_pipeline` does, in a process of its own; yield the bundle, gone afterwards, and its costs."""
    with TemporaryDirectory() as folder:
        given = {"spec": str(spec), "epsilon": epsilon, "delta": delta, "seed": seed, "out": folder}
        target = "benchmarks.workloads:run_pipeline"
        seconds, peak = call_in_child(target, {**given, "synthesizer": synthesizer})
        yield read_bundle(Path(folder) / "bundle"), {"seconds, whole run": seconds, "peak MB": peak}


def code_source(spec: str, epsilon: float, delta: float, seed: int, out: str, synthesizer: str | None = None) -> None:
    """Write the source, `within_codes` of what `run_pipeline` released into ``out``, there. Also in its own process."""
    from privbench_core.pipeline.executor import run_spec

    loaded, bundle = _loaded(spec, out), Path(out) / "bundle"
    result = run_spec(
        loaded, epsilon, delta=delta, synthesizer=synthesizer, seed=seed, out=bundle, undeclared_epsilon=True
    )
    released = {key[1]: made.artifact.data for key, made in result.releases.items() if key[0] == "profile"}
    profiles = {name: Profile.from_dict(data["profile"]) for name, data in released.items()}
    write_bundle(
        Path(out) / "coded", loaded.schema, within_codes(loaded.schema, source_rows(loaded), profiles, seed), {}
    )


def _loaded(spec: str, out: str) -> Spec:
    return replace(load_spec(spec).accepting_noise, state=Path(out) / "state", lifetime_epsilon=1e6, lifetime_delta=0.5)


def source_rows(spec: Spec) -> dict[str, pa.Table]:
    """The rows of a source, as a run reads them."""
    source = open_source(spec, b"")
    return check_rows(spec.schema, {table.name: source.read(table) for table in spec.schema.tables}, spec.orphans)


def within_codes(schema: Schema, rows: Tables, profiles: Mapping[str, Profile], seed: int) -> dict[str, pa.Table]:
    """The same rows, each attribute's value drawn again among those of its code; keys and public tables stay."""
    rng = np.random.default_rng(seed)
    made, source = dict(rows), Relations(schema, rows, b"")
    for table in (each for each in schema.sampling_order if each.name in profiles):
        name, owner = table.name, table.owner_key
        drawn = {
            column: discretizer.decode(discretizer.encode(source.column(name, column)), rng)
            for column, discretizer in profiles[name].discretizers.items()
        }
        bases = {} if owner is None else values_of_owners(table, made[owner.parent], source.parent_rows(owner))
        for column, values in written_values(table, drawn, bases).items():
            place, field = rows[name].column_names.index(column), rows[name].schema.field(column)
            made[name] = made[name].set_column(place, field, values.cast(field.type))
    return made


def measure(
    case: Case, runs: Runs, *, more: MoreFigures | None = None, synthesizers: Sequence[str] = ("privbench",)
) -> str:
    """Markdown tables: Q-errors, their parts by joins, run times, and what else the case has to say.

    Args:
        case: The database.
        runs: What is run, at some δ.
        more: Further figures from the source's and the synthetic tables.
        synthesizers: Their names; PrivPetal is left out at δ = 0, which it has no form for.
    """
    found = _Figures(case, more)
    for seed in range(runs.seeds):
        runs.progress(f"{case.spec.schema.name}: {SHUFFLED}, seed {seed}")
        with TemporaryDirectory() as folder:
            found.add_run_times(
                {"method": AGAIN, "δ": "-", "ε": "-"},
                write_bundle(Path(folder) / "source", case.spec.schema, case.source, {}),
            )
            tables = shuffled_reference(case.spec.schema, case.source, seed)
            bundle = write_bundle(Path(folder) / "shuffled", case.spec.schema, tables, {})
            found.add({"method": SHUFFLED, "δ": "-", "ε": "-"}, tables, bundle, {})
    for delta, epsilon in runs.budgets:
        found.add_hidden(epsilon, delta)
    for (delta, epsilon), synthesizer, seed in product(runs.budgets, synthesizers, range(runs.seeds)):
        if not available(synthesizer, delta):
            continue
        runs.progress(f"{case.spec.schema.name}: {synthesizer}, epsilon {epsilon:g}, delta {delta:g}, seed {seed}")
        with TemporaryDirectory() as folder:
            budget = {"epsilon": epsilon, "delta": delta, "seed": seed}
            given = {"spec": str(case.spec.path), **budget, "out": folder, "synthesizer": synthesizer}
            seconds, peak = call_in_child("benchmarks.workloads:run_pipeline", given)
            call_in_child("benchmarks.workloads:code_source", given)
            bundle = read_bundle(Path(folder) / "bundle")
            tables = {name: bundle.table(name) for name in bundle.tables}
            cell = {"method": synthesizer, "δ": f"{delta:.3g}", "ε": f"{epsilon:g}"}
            found.add(cell, tables, bundle.path, {"whole run s": seconds, "peak MB": peak})
            coded = read_bundle(Path(folder) / "coded")
            tables = {name: coded.table(name) for name in coded.tables}
            found.add({**cell, "method": CODED + synthesizer}, tables, None, {})
    return found.markdown()


def available(synthesizer: str, delta: float) -> bool:
    """Whether a synthesizer has a form for this δ."""
    return delta > 0 or synthesizer not in {"privlava", "privpetal"}


class _Figures:
    """Rows of every table, in the order of the runs."""

    def __init__(self, case: Case, more: MoreFigures | None) -> None:
        self._case, self._more = case, more
        self._rows: dict[str, list[Row]] = {
            "Q-error": [],
            "Q-error by joins, median / 95th": [],
            "Run time in PostgreSQL": [],
            ALONE: [],
        }

    def add(self, cell: dict[str, str], tables: Tables, bundle: Path | None, costs: dict[str, float]) -> None:
        """Measure one synthetic database; its run times, where it is in a bundle."""
        case = self._case
        for name, workload in case.workloads.items():
            here: dict[str, str | float] = {"workload": name, **cell}
            result = run_workload(workload, case.source, tables)
            self._rows["Q-error"].append({**here, **_q_errors(result), **costs})
            if len(result.by_joins) > 1:
                self._rows["Q-error by joins, median / 95th"].append({**here, **by_joins(result)})
        if bundle is not None:
            self.add_run_times(cell, bundle)
        if self._more is not None:
            self._rows.setdefault("Relative errors of answers", []).append({**cell, **self._more(case.source, tables)})

    def add_run_times(self, cell: dict[str, str], bundle: Path) -> None:
        """Measure the run times of all workloads on one database."""
        for name, workload in self._case.workloads.items():
            schema = self._case.spec.schema
            with both_loaded(schema, self._case.source, bundle) as databases:
                times = compare_plans(schema, databases, workload, PROTOCOL).to_dict()
            self._rows["Run time in PostgreSQL"].append({"workload": name, **cell, **_run_times(times)})

    def add_hidden(self, epsilon: float, delta: float) -> None:
        """Measure what hiding one unit leaves of each query, see `one_unit`."""
        for name, workload in self._case.workloads.items():
            cell = {"workload": name, "δ": f"{delta:.3g}", "ε": f"{epsilon:g}"}
            figures = hidden(self._case.spec.schema, self._case.source, workload, epsilon, delta)
            self._rows[ALONE].append({**cell, **figures})

    def markdown(self) -> str:
        """The tables, each with its title."""
        parts = []
        for title, rows in self._rows.items():
            keys = [k for k in ("workload", "method", "δ", "ε") if rows and k in rows[0]]
            if rows:
                parts.append(f"**{title}**\n\n{markdown(medians(rows, keys))}")
        return "\n\n".join(parts)


def by_joins(result: WorkloadResult) -> dict[str, float]:
    """Median and 95th percentile of the Q-errors by number of joins."""
    return {
        f"joins {errors['joins']}, {name}": errors[name] for errors in result.by_joins for name in ("median", "95th")
    }


def _q_errors(result: WorkloadResult) -> dict[str, float]:
    classes = {f"{errors['class']} cardinality, median": errors["median"] for errors in result.by_cardinality}
    return {"queries": float(len(result.answers)), **(result.summary or {}), **classes}


def _run_times(times: Figures) -> dict[str, float]:
    summaries = ("discrepancy_percent", "noise_percent", "buffers_discrepancy_percent")
    discrepancy, noise, buffers = (times[name] or {} for name in summaries)
    return {
        "queries": float(times["measured"]),
        **{f"{name} %": value for name, value in discrepancy.items()},
        "source against itself: mean %": noise.get("mean", float("nan")),
        "its median %": noise.get("median", float("nan")),
        "same plan": times["same_plan"] or 0.0,
        "plan similarity": times["plan_similarity"] or 0.0,
        "pages, median %": buffers.get("median", float("nan")),
    }
