"""Adult: λ-way marginals, Q-error on the SAM workload, seconds and memory, beside independent histograms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from benchmarks import histograms, subject
from benchmarks.data import ADULT, CodedAdult, Listed, data_folder, read_table
from benchmarks.measure import Codes, Method, Runs
from benchmarks.report import Row, machine, markdown, medians, with_ratios
from benchmarks.sam import cardinalities
from privbench_core.errors import SourceError, did_you_mean
from privbench_core.evaluation.marginals import column_subsets, mean_distances, value_codes
from privbench_core.evaluation.q_error import q_errors
from privbench_core.explain.comparison import summarize
from privbench_core.workload import Query, load_sam_workload

EPSILONS = (0.2, 0.8, 3.2)
RUNS = Runs(3, EPSILONS, (1e-9, 0.0))
PEER = "histograms"
_OURS = ("privbench", "privspn")  # the second: the paper's own networks, for what our leaves add
DEFAULT_METHODS = (*_OURS, PEER)
_RATIOS = ("2-way TVD", "3-way TVD", "2-way KLD", "Q-error mean", "learn s")


def methods() -> dict[str, Method]:
    """Everything that can be measured, by name."""
    return {
        **{name: partial(subject.fit_sample_single, name) for name in _OURS},
        PEER: histograms.fit_sample_single,
    }


@dataclass(frozen=True)
class Workload:
    """The SAM workload on Adult.

    Attributes:
        queries: As the file has them.
        true: Their cardinalities on the rows without missing values.
        reproduced: How many of the file's own cardinalities were found again on the full table.
    """

    queries: tuple[Query, ...]
    true: NDArray[np.int64]
    reproduced: int

    @classmethod
    def load(cls, folder: Path, adult: CodedAdult) -> Workload:
        """Read the queries, check the file's cardinalities on the full table, count again on the complete rows."""
        queries, stated = load_sam_workload(folder / "adult" / "sam_census_test.json", list(ADULT))
        full = read_table(folder / "adult", "adult")
        for position, name in enumerate(full.column_names):
            if isinstance(ADULT[name], Listed):  # the file's cardinalities take "?" as NULL
                known = pc.not_equal(full[name], "?")
                full = full.set_column(position, name, pc.if_else(known, full[name], None))
        return cls(queries, cardinalities(adult.rows, queries), int((cardinalities(full, queries) == stated).sum()))


@dataclass(frozen=True)
class Scoring:
    """What every synthetic table is scored by."""

    adult: CodedAdult
    workload: Workload

    @cached_property
    def queries_in_bins(self) -> list[Query]:
        """The workload at the resolution of the declared domain, which is all that a coded table can answer."""
        return [self.adult.query_in_bins(query) for query in self.workload.queries]

    def score(self, synthetic: Codes) -> dict[str, float]:
        """Distances of synthetic codes, by column heading."""
        codes, sizes = self.adult.codes, self.adult.sizes
        pairs = column_subsets(len(sizes), 2)
        two = mean_distances(codes, synthetic, sizes, pairs)
        three = mean_distances(codes, synthetic, sizes, column_subsets(len(sizes), 3, limit=200))
        decoded = self.adult.decode(synthetic, np.random.default_rng(0))
        values, synthetic_values, value_sizes = value_codes(self.adult.rows, decoded, list(ADULT))
        errors = q_errors(self.workload.true, cardinalities(self.adult.in_bins(synthetic), self.queries_in_bins))
        return {
            "2-way TVD": two.tvd,
            "3-way TVD": three.tvd,
            "2-way KLD": two.kld,
            "3-way KLD": three.kld,
            "2-way KLD, values": mean_distances(values, synthetic_values, value_sizes, pairs).kld,
            **{f"Q-error {name}": value for name, value in summarize(errors).items()},
        }


def run(runs: Runs = RUNS, data: Path | None = None, *, names: Sequence[str] = DEFAULT_METHODS) -> str:
    """Measure and return Markdown text.

    Args:
        runs: What is run.
        data: The data folder; see `data.data_folder`.
        names: Which of `methods`.

    Raises:
        SourceError: Data is missing, or a method has an unknown name.
    """
    known = methods()
    for name in names:
        if name not in known:
            raise SourceError(f"{name}: no such method; {did_you_mean(name, known)}")
    folder = data_folder(data)
    adult = CodedAdult.load(folder)
    workload = Workload.load(folder, adult)
    scoring = Scoring(adult, workload)
    rows: list[Row] = []
    for (delta, epsilon), name in product(runs.budgets, names):
        for seed in range(runs.seeds):
            runs.progress(f"adult: {name}, epsilon {epsilon:g}, delta {delta:g}, seed {seed}")
            synthetic, learn, sample, peak = known[name](adult.codes, adult.sizes, adult.ordered, epsilon, delta, seed)
            costs = {"learn s": learn, "sample s": sample, "peak MB": peak}
            cell = {"δ": f"{delta:g}", "ε": f"{epsilon:g}", "method": name}
            rows.append({**cell, **scoring.score(synthetic), **costs})
            runs.progress(f"    {learn + sample:.3g} s, 2-way TVD {rows[-1]['2-way TVD']:.3g}")
    table = with_ratios(medians(rows, ("δ", "ε", "method")), ("δ", "ε"), PEER, _RATIOS)
    checked = f"{workload.reproduced:,} of {len(workload.queries):,} stated cardinalities reproduce on the full table."
    return f"{machine(runs.seeds)} {checked}\n\n{markdown(table)}"
