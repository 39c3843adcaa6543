"""Single tables, dense, deep and small ones too, beside rivals at the same (ε, δ): one table, data by ε by method.

A Gaussian copula gets every pair of ordered columns out of one release, and tree-shaped models get most of a survey out
of few pairs. The figure is the mean 2-way distance over all pairs of columns; of the three bits, how often c is not
a xor b, which no pair shows. Public tables take part where the data folder has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean

import numpy as np

from benchmarks import copula, histograms, subject
from benchmarks.coded import NAMES, CodedTable, coded_tables
from benchmarks.data import CodedAdult, data_folder
from benchmarks.kept import KeptRuns, PeerRun
from benchmarks.measure import Codes, Runs
from benchmarks.peers import DPMM_METHODS, DPSYNTH_METHODS, fit_peer, installed
from benchmarks.report import Row, machine, markdown
from privbench_core.evaluation.marginals import column_subsets, mean_distances

RUNS = Runs(2, (0.2, 0.8, 3.2), (1e-5, 0.0))
_CODES = 20
_MATTERS = 0.8  # probability that an answer has to do with an opinion
_LIMIT = 120.0  # seconds of processor time that a peer may take for a run: AIM takes an hour on 30 columns
_NOT_PURE = {"copula", "mst", "aim", *DPSYNTH_METHODS}
_OURS = "privbench"
Fitted = Callable[[Codes, list[int], list[bool], float, float, int], Codes]


@dataclass(frozen=True)
class Dense:
    """A table.

    Attributes:
        name: For the report.
        codes: Shape (rows, columns).
        sizes: Domain size per column.
        ordered: Whether codes are ordered, per column.
        fresh: Another sample of the same distribution, where there is one: what no method can be much better than.
    """

    name: str
    codes: Codes
    sizes: tuple[int, ...]
    ordered: tuple[bool, ...]
    fresh: Codes | None = None

    def error(self, synthetic: Codes) -> float:
        """Mean 2-way distance, or P(c is not a xor b) of three bits."""
        if self.name.startswith("xor"):
            return float((synthetic[:, 2] != synthetic[:, 0] ^ synthetic[:, 1]).mean())
        pairs = column_subsets(len(self.sizes), 2)
        return mean_distances(self.codes, synthetic, list(self.sizes), pairs).tvd


def correlated(columns: int, correlation: float, rows: int) -> Dense:
    """Ordered columns of 20 equal intervals of normal variables, all equally correlated."""

    def drawn(seed: int) -> Codes:
        rng = np.random.default_rng(seed)
        covariance = correlation + (1 - correlation) * np.eye(columns)
        latent = rng.multivariate_normal(np.zeros(columns), covariance, size=rows)
        codes: Codes = np.clip(((latent + 3) / 6 * _CODES).astype(int), 0, _CODES - 1)
        return codes

    name = f"{columns} columns correlated {correlation:g}, {rows:,} rows"
    return Dense(name, drawn(1), (_CODES,) * columns, (True,) * columns, drawn(3))


def xor(rows: int = 50_000, broken: float = 0.06) -> Dense:
    """Three bits, each pair independent: c = a xor b but for a share of the rows."""

    def drawn(seed: int) -> Codes:
        rng = np.random.default_rng(seed)
        a, b = rng.integers(0, 2, (2, rows))
        return np.stack([a, b, a ^ b ^ (rng.random(rows) < broken)], axis=1)

    return Dense(f"xor of two bits, {rows:,} rows", drawn(1), (2, 2, 2), (False,) * 3, drawn(3))


def survey(rows: int) -> Dense:
    """24 answers: half ordered, half lists, skewed, that depend on each other by three opinions and a region."""
    sizes = (2, 5, 7, 3, 10, 4, 2, 9, 5, 12, 3, 6) * 2
    ordered = (False, True) * 12

    def drawn(seed: int) -> Codes:
        shape, rng = np.random.default_rng(24), np.random.default_rng(seed)
        opinions, region = rng.normal(size=(rows, 3)), rng.integers(0, 6, rows)
        answers = []
        for size, in_order in zip(sizes, ordered, strict=True):
            loading = 2 * shape.normal(size=3) * (shape.random(3) < _MATTERS)
            score = opinions @ loading + shape.normal(size=6)[region] + 0.5 * rng.normal(size=rows)
            cuts = np.sort(shape.normal(0.7 * shape.normal(), 0.8, size - 1)) * np.hypot(1, np.linalg.norm(loading))
            code = np.searchsorted(cuts, score)
            answers.append(code if in_order else shape.permutation(size)[code])
        return np.stack(answers, axis=1)

    return Dense(f"survey of 24 columns, {rows:,} rows", drawn(1), sizes, ordered, drawn(3))


def adult_sample(data: Path | None, rows: int) -> Dense:
    """Some rows of Adult: a small real table."""
    adult = CodedAdult.load(data_folder(data))
    chosen = np.random.default_rng(0).permutation(len(adult.codes))[: 2 * rows]
    codes = adult.codes[chosen]
    return Dense(f"Adult, {rows:,} rows", codes[:rows], tuple(adult.sizes), tuple(adult.ordered), codes[rows:])


def tables(data: Path | None) -> dict[str, Callable[[], Dense]]:
    """All tables by a short name, made when they are asked for."""
    made: dict[str, Callable[[], Dense]] = {
        "12": partial(correlated, 12, 0.7, 20_000),
        "30": partial(correlated, 30, 0.5, 20_000),
        "xor": xor,
        "survey": partial(survey, 27_000),
        "small": partial(survey, 7_600),
        "adult": partial(adult_sample, data, 7_600),
    }
    return made | {table.name: partial(_coded, table) for table in coded_tables(data_folder(data))}


def _coded(table: CodedTable) -> Dense:
    rows, columns = table.codes.shape
    name = f"{table.name}, {rows:,} rows of {columns} columns"
    return Dense(name, table.codes, table.sizes, table.ordered)


METHODS: Mapping[str, Fitted] = {
    name: lambda *given, fit=fit: fit(*given)[0]
    for name, fit in (
        (_OURS, subject.fit_sample),
        ("copula", copula.fit_sample),
        ("histograms", histograms.fit_sample),
    )
}
PEERS = (*DPMM_METHODS, *DPSYNTH_METHODS)


def _peer(table: Dense, method: str, budget: tuple[float, float, int], limit: float) -> PeerRun | None:
    """A run that is kept, or one for at most ``limit`` seconds of processor time; None where the peer is missing."""
    parameters = dict(zip(("epsilon", "delta", "seed"), budget, strict=True))

    def made() -> PeerRun:
        codes = fit_peer(method, table.codes, list(table.sizes), list(table.ordered), parameters, limit)[0]
        return PeerRun({"error": table.error(codes)})

    return KeptRuns.of(table.name, table.codes).settled(method, budget, limit, made if method in installed() else None)


def run(
    runs: Runs = RUNS,
    data: Path | None = None,
    *,
    names: Sequence[str] | None = None,
    only: Sequence[str] = (),
    limit: float = _LIMIT,
) -> str:
    """Measure and return Markdown text: mean errors, data by ε and method.

    Args:
        runs: What is run; methods without a pure form are left out there.
        data: The data folder; see `data.data_folder`.
        names: Which of `METHODS` and `PEERS`; None for all.
        only: Which of `tables`; none for all.
        limit: Seconds of processor time for a run of a peer that is not kept (see `kept`). One that is not finished
            then is not tried again on that table.
    """
    made = tables(data)
    chosen = [name for name in (*METHODS, *PEERS) if names is None or name in names]
    rows: list[Row] = []
    worst = 0.0
    for short in only or made:
        table = made[short]()
        bound = "" if table.fresh is None else table.error(table.fresh)
        slow: dict[str, float] = {}
        for delta, epsilon in runs.budgets:
            errors: dict[str, float] = {}
            for name in chosen:
                if (delta == 0 and name in _NOT_PURE) or name in slow:
                    continue
                runs.progress(f"dense: {table.name}, {name}, epsilon {epsilon:g}, delta {delta:g}")
                if name in METHODS:
                    given = (table.codes, list(table.sizes), list(table.ordered), epsilon, delta)
                    errors[name] = mean(table.error(METHODS[name](*given, seed)) for seed in range(runs.seeds))
                elif (found := _peer(table, name, (epsilon, delta, 0), limit)) is not None:
                    if found.reached:
                        slow[name] = found.reached
                    else:
                        errors[name] = found.figures["error"]
                runs.progress(f"    {errors.get(name, 'no figure')}")
            cells: dict[str, str | float] = {"table": table.name, "δ": f"{delta:g}", "ε": f"{epsilon:g}"}
            tried = [name for name in chosen if delta or name not in _NOT_PURE]
            figures = {name: errors.get(name, f"over {slow[name]:g} s" if name in slow else "") for name in tried}
            cells |= {name: figure for name, figure in figures.items() if figure != ""}
            rivals = [error for name, error in errors.items() if name != _OURS]
            if rivals and _OURS in errors:
                cells["to the best rival"] = errors[_OURS] / min(rivals)
                worst = max(worst, errors[_OURS] / min(rivals))
            rows.append({**cells, "another sample": bound})
    order = ("table", "δ", "ε", *chosen, "to the best rival", "another sample")
    found = [name for name in order if any(name in row for row in rows)]
    rows = [{name: row.get(name, "") for name in found} for row in rows]
    lacking = [name for name in NAMES if name not in made]
    found_not = f" Not in the data folder: {', '.join(lacking)}." if lacking else ""
    text = f" Largest ratio to the best rival: {worst:.2f}." if worst else ""
    return (
        f"{machine(runs.seeds).replace('Medians', 'Means')} Peers: one run each.{found_not}{text}\n\n{markdown(rows)}"
    )
