"""Rivals that run beside privbench at the same (ε, δ): accuracy, seconds, memory, and which schemas each refuses.

Every run is a process of its own. Its seconds are those of the whole process, imports and compilation included; of ours
on several tables also validation and the bundle. Runs of rivals are kept in ``peers.json``.
"""

from __future__ import annotations

import math
import re
import resource
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import population, subject
from benchmarks.adult import Scoring, Workload
from benchmarks.compare_databases import san_diego
from benchmarks.compare_figures import Judge, Prepared
from benchmarks.data import CodedAdult, data_folder
from benchmarks.kept import KeptRuns, PeerRun
from benchmarks.measure import Arrays, Codes, Method, NotFinishedError, Runs, call_in_child, fit_target_in_child
from benchmarks.paired import FIGURES
from benchmarks.peers import DPMM_METHODS, DPSYNTH_METHODS, installed, run_peer
from benchmarks.relations import Pair
from benchmarks.report import Row, machine, markdown, spread
from benchmarks.rivals_schemas import Small, small_databases
from benchmarks.workloads import Tables
from privbench_core.errors import PrivbenchError
from privbench_core.evaluation.marginals import encode_tables
from privbench_core.publishing import read_bundle
from privbench_core.schema.columns import Range, Values
from privbench_core.schema.tables import Schema
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Spec

RUNS = Runs(8, (0.8, 3.2))
DELTA = 1e-9  # of Adult
LIMIT = 900.0  # seconds of processor time that a rival may take for a run
_QUICK = 60.0  # seconds of processor time of a run, beyond which a rival has `_SLOW_SEEDS`
_SLOW_SEEDS = 3
_PRIVATE = ("dpsynth, its example", "dpsynth, with one-way marginals")
_NOT_PRIVATE = ("SDV HMA",)
_SHAPES = ("rows", "columns", "pairs", "joined", "fanout", "siblings", "q_median", "q_95th")
_COSTS = ("CPU s", "seconds", "peak MB")
_ADULT_FIGURES = ("2-way TVD", "3-way TVD", "2-way KLD", "Q-error median", "Q-error mean", "Q-error 95th")
Made = tuple[Any, float]
"""What a run of ours made, and the peak memory of its process in MB."""


@dataclass(frozen=True)
class Contest:
    """One table or database, and who makes it anew.

    Attributes:
        kept: Runs of rivals on it.
        delta: Of the budget.
        ours: What runs here, by name; given ε, δ and a seed.
        rivals: Methods of `peers`.
        given: What rivals read, and the parameters beside the budget.
        read: Turns what a rival wrote into what ``score`` takes.
        score: Figures of what was made, by name.
        reference: Figures of what is no synthesizer, by name.
    """

    kept: KeptRuns
    delta: float
    ours: Mapping[str, Callable[[float, float, int], Made]]
    rivals: Sequence[str]
    given: tuple[Arrays, Mapping[str, Any]]
    read: Callable[[Arrays], Any]
    score: Callable[[Any], Mapping[str, float]]
    reference: Mapping[str, Callable[[int], Mapping[str, float]]]

    def table(self, runs: Runs, limit: float) -> str:
        """Run what is missing; Markdown text with mean ± standard deviation of every method."""
        rows: list[Row] = []
        packages: set[str] = set()
        for name, figures in self.reference.items():
            rows.append(_row(name, "", [PeerRun(figures(seed)) for seed in range(runs.seeds)]))
        for epsilon in (*runs.epsilons, math.inf):
            for method in (*(self.ours if epsilon < math.inf else ()), *self.rivals):
                if (method in _NOT_PRIVATE) != (epsilon == math.inf):
                    continue
                runs.progress(f"rivals: {self.kept.table}, {method}, ε = {epsilon:g}")
                found = list(self._runs(method, epsilon, runs.seeds, limit))
                if found:
                    rows.append(_row(method, "not private" if epsilon == math.inf else f"{epsilon:g}", found))
                    packages |= {run.packages for run in found if run.packages}
        return f"{markdown(rows)}\n\nRivals: {'; '.join(sorted(packages))}."

    def _runs(self, method: str, epsilon: float, seeds: int, limit: float) -> Iterable[PeerRun]:
        for seed in range(seeds):
            if method in self.ours:
                yield self._measured(partial(self.ours[method], epsilon, self.delta, seed), self.score)
                continue
            run = (epsilon, self.delta if epsilon < math.inf else 0.0, seed)
            of_peer = partial(self._of_peer, method, run, limit) if method in installed() else None
            found = self.kept.settled(method, run, limit, of_peer)
            if found is None:
                return
            yield found
            if found.reached or found.refused or (seed + 1 >= _SLOW_SEEDS and found.figures["CPU s"] > _QUICK):
                return

    def _of_peer(self, method: str, run: tuple[float, float, int], limit: float) -> PeerRun:
        given, declared = self.given
        parameters = {**declared, **dict(zip(("epsilon", "delta", "seed"), run, strict=True))}
        packages = ""

        def made() -> Made:
            nonlocal packages
            out = run_peer(method, given, parameters, limit)
            packages = str(out["packages"])
            return self.read(out), float(out["peak_mb"])

        return replace(self._measured(made, self.score), packages=packages)

    @staticmethod
    def _measured(made: Callable[[], Made], score: Callable[[Any], Mapping[str, float]]) -> PeerRun:
        before, start = _cpu(), perf_counter()
        try:
            found, peak = made()
        except NotFinishedError:
            raise
        except PrivbenchError as error:
            return PeerRun(refused=_said(str(error)))
        costs = dict(zip(_COSTS, (_cpu() - before, perf_counter() - start, peak), strict=True))
        return PeerRun({**score(found), **costs})


def _row(method: str, epsilon: str, runs: Sequence[PeerRun]) -> Row:
    row: dict[str, str | float] = {"method": method, "ε": epsilon, "runs": f"{len(runs)}"}
    for run in runs:
        if run.reached or run.refused:
            return {**row, "why not": run.refused or f"no rows after {run.reached:g} s of processor time"}
    return row | {name: spread([run.figures[name] for run in runs]) for name in runs[-1].figures}


def _said(error: str) -> str:
    """Return the first paragraph of the last exception in what a process wrote to stderr."""
    return " ".join(re.split(r"\n(?=[\w.]+Error: )", error)[-1].partition("\n\n")[0].split())


def _cpu() -> float:
    """Seconds of processor time of all processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _adult(data: Path | None) -> Contest:
    adult = CodedAdult.load(data_folder(data))
    scoring = Scoring(adult, Workload.load(data_folder(data), adult))

    def ours(method: Method, *run: Any) -> Made:
        codes, _, _, peak = method(adult.codes, adult.sizes, adult.ordered, *run)
        return codes, peak

    def score(codes: Codes) -> dict[str, float]:
        found = scoring.score(codes)
        return {name: found[name] for name in _ADULT_FIGURES}

    methods: dict[str, Method] = {
        "privbench": partial(subject.fit_sample_single, "privbench"),
        **{name: partial(_in_child, f"benchmarks.{module}:fit_sample") for name, module in _BASELINES.items()},
    }
    return Contest(
        kept=KeptRuns.of("Adult", adult.codes),
        delta=DELTA,
        ours={name: partial(ours, method) for name, method in methods.items()},
        rivals=(*DPSYNTH_METHODS, *DPMM_METHODS),
        given=({"codes": adult.codes, "sizes": np.array(adult.sizes)}, {}),
        read=lambda out: out["codes"],
        score=score,
        reference={},
    )


_BASELINES = {"Gaussian copula": "copula", "independent histograms": "histograms"}


def _in_child(
    target: str, codes: Codes, sizes: list[int], ordered: list[bool], epsilon: float, delta: float, seed: int
) -> tuple[Codes, float, float, float]:
    return fit_target_in_child(target, codes, sizes, ordered, {"epsilon": epsilon, "delta": delta, "seed": seed})


def _database(name: str, spec: Spec) -> Contest:
    prepared = Prepared.of(name, spec)
    judge, pair = Judge(prepared.spec), Pair.of(load_spec(prepared.spec))
    given, declared = _given(pair.spec.schema, pair.tables)

    def score(made: Tables) -> dict[str, float]:
        found = judge.figures(made)
        of_join = pair.score_join(pair.joined(made, encode_tables(pair.spec.schema, made, pair.tables)))
        counting = [value for figure, value in of_join.items() if figure.startswith("counting error")]
        return {**{FIGURES[figure]: found[figure] for figure in _SHAPES}, "counting queries": float(np.mean(counting))}

    def shuffled(seed: int) -> dict[str, float]:
        found = judge.of_shuffled(seed)
        return {FIGURES[figure]: found[figure] for figure in _SHAPES}

    return Contest(
        kept=KeptRuns.of(name, *given.values()),
        delta=pair.delta,
        ours={"privbench": partial(_bundle, prepared.spec)},
        rivals=(*_PRIVATE, *_NOT_PRIVATE),
        given=(given, declared),
        read=partial(_tables, pair.spec.schema),
        score=score,
        reference={"columns shuffled": shuffled},
    )


def _bundle(spec: Path, epsilon: float, delta: float, seed: int) -> Made:
    """A run of the whole pipeline: the tables of its bundle."""
    with TemporaryDirectory() as out:
        asked = {"spec": str(spec), "epsilon": epsilon, "delta": delta, "seed": seed, "out": out}
        _, peak = call_in_child("benchmarks.workloads:run_pipeline", asked)
        bundle = read_bundle(Path(out) / "bundle")
        return {name: bundle.table(name) for name in bundle.tables}, peak


def _given(schema: Schema, tables: Tables) -> tuple[Arrays, Mapping[str, Any]]:
    """The columns of integers of some tables, and what is declared about them, as rivals are given these."""
    given = {
        f"{name}.{column}": rows[column].to_numpy().astype(np.int64)
        for name, rows in tables.items()
        for column in rows.column_names
    }
    declared = {
        table.name: {
            "key": table.primary_key[0],
            "columns": {column.name: _domain(column.domain) for column in table.attributes},
        }
        for table in schema.tables
    }
    keys = [
        (key.child, key.columns[0], key.parent, key.max_children or 10)
        for table in schema.tables
        for key in table.foreign_keys
    ]
    return given, {"tables": declared, "keys": keys}


def _domain(domain: Any) -> tuple[list[int] | None, int, int]:
    """A list of values or None, the smallest and the largest value."""
    if isinstance(domain, Values):
        values = [int(str(value)) for value in domain.values]
        return values, min(values), max(values)
    assert isinstance(domain, Range)
    return None, int(str(domain.low)), int(str(domain.high))


def _tables(schema: Schema, out: Arrays) -> dict[str, pa.Table]:
    return {
        table.name: pa.table({column.name: out[f"{table.name}.{column.name}"] for column in table.columns}).cast(
            table.arrow_schema
        )
        for table in schema.tables
    }


def _refusals(runs: Runs, limit: float) -> str:
    """Return which small databases, each of one kind of schema, each method synthesizes, as Markdown text."""
    rows: list[Row] = []
    for small in small_databases():
        with TemporaryDirectory() as folder:
            contest = _small(small, Path(folder))
            row = {"schema": small.kind}
            for method in (*contest.ours, *contest.rivals):
                runs.progress(f"rivals: {small.kind}, {method}")
                epsilon = math.inf if method in _NOT_PRIVATE else 3.2
                for found in contest._runs(method, epsilon, 1, limit):
                    row[method] = found.refused or (f"over {found.reached:g} s" if found.reached else "yes")
            rows.append(row)
    return f"*yes* where rows were made, else the message.\n\n{markdown(rows)}"


def _small(small: Small, folder: Path) -> Contest:
    spec = small.write(folder)
    given, declared = _given(small.schema, small.tables)
    return Contest(
        kept=KeptRuns.of(small.kind, *given.values()),
        delta=1e-6,
        ours={"privbench": partial(_bundle, spec)},
        rivals=(_PRIVATE[0], *_NOT_PRIVATE),
        given=(given, declared),
        read=partial(_tables, small.schema),
        score=lambda _: {},
        reference={},
    )


_PROTOCOL = f"""Mean ± standard deviation over as many runs as the table says; smaller is better. *CPU s* and *seconds*
are processor and wall-clock time of the whole process with imports and compilation, of ours on two tables also with
validation and the bundle; *peak MB* is its memory. Other work on the machine lengthens *seconds*. Rivals whose runs
take more than {_QUICK:g} s run at most {_SLOW_SEEDS} times, up to {LIMIT:g} s of processor time.

Neighbours differ by a row of Adult, or by a household with its persons; ε and δ are the same for all. δ is {DELTA:g} on
Adult and one over the number of persons elsewhere. dpmm and the copula know the number of rows, the others measure it.
dpsynth (Apache-2.0; it calls its support of several tables experimental) gets its budget as zCDP, at most as many
persons of a household as the spec declares, ranges of more than 32 values in 32 bins, and the settings of its own
example of households and persons: MST in 100 steps, three slots, strategy *size_sliced*. There MST measures no single
columns, of which dpsynth warns; *with one-way marginals* it does, and fits in 5,000 steps. SDV (BUSL-1.1) promises no
privacy and is here for orientation. MargNet is not run: its code has no licence. The package
mbi 2.0.0 has the estimation of private-pgm without its mechanisms; dpsynth has these, by the same author.

Figures on two tables are those of `compare`; *counting queries* is the mean error of the papers' queries over four
shapes. *columns shuffled* is the source with the columns of each table shuffled: not private, no dependences."""


def run(runs: Runs = RUNS, data: Path | None = None, limit: float = LIMIT) -> str:
    """Measure and return Markdown text: one table, two databases of two tables, and schemas that are refused.

    Args:
        runs: What is run; of rivals as many seeds as take minutes, see `_QUICK`.
        data: The data folder; see `data.data_folder`.
        limit: Seconds of processor time for a run of a rival that is not kept.
    """
    parts = [
        f"{machine(runs.seeds).replace('Medians', 'Means')}",
        "## One table: Adult",
        _adult(data).table(runs, limit),
    ]
    with TemporaryDirectory() as place:
        for name, title in (("households", "planted households"), ("san_diego", "San Diego")):
            folder = Path(place) / name
            folder.mkdir()
            spec = population.households().save(folder, name) if name == "households" else san_diego(folder)
            parts += [f"## Two tables: {title}", _database(name, spec).table(runs, limit)]
    parts += ["## Schemas", _refusals(runs, limit)]
    return "\n\n".join(parts)
