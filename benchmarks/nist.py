"""NIST's Collaborative Research Cycle: ACS excerpts, scored by SDNist's own code beside its published sample reports.

The k-marginal score is 1000 (1 - mean total variation distance) over all pairs of features, within PUMAs where PUMA is
a feature. It *matches a sample* of the share of the source's rows whose score is closest. Data and code come from
github.com/usnistgov/SDNist; the reports were made by version 2.5, and the latest package, 2.4, bins numbers otherwise:

    git clone https://github.com/usnistgov/SDNist && cd SDNist && mkdir $PRIVBENCH_UNSEEN/nist
    git archive b098e09^ BenchmarkData/ACSDataExcerpts/{data_dictionary.json,mappings.json} \
        BenchmarkData/ACSDataExcerpts/{national/national,massachusetts/ma,texas/tx}2019.{csv,json} |
        tar -x --strip-components=1 -C $PRIVBENCH_UNSEEN/nist
    cp BenchmarkData/ACSDataExcerpts/config.json $PRIVBENCH_UNSEEN/nist/ACSDataExcerpts
    python3.11 -m venv ../sdnist && ../sdnist/bin/pip install .
    export PRIVBENCH_SDNIST_PYTHON=$PWD/../sdnist/bin/python
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from tempfile import TemporaryDirectory
from time import process_time

import numpy as np
import pyarrow as pa
from pyarrow import csv

from benchmarks.kept import KeptRuns, PeerRun
from benchmarks.measure import Runs, run_child
from benchmarks.nist_data import SUBSETS, Excerpt, as_sdnist_reads
from benchmarks.peers import DPMM_METHODS, fit_peer, installed
from benchmarks.report import Row, machine, markdown
from benchmarks.subject import learn_and_sample
from benchmarks.unseen import FOLDER
from privbench_core.errors import PrivbenchError

RUNS = Runs(8, (1.0, 10.0))
_DELTA = 1e-9  # the default of AIM and MST in smartnoise-synth 1.0.8, the library of the published data
_CHILD = Path(__file__).with_name("nist_child.py")
_PYTHON = "PRIVBENCH_SDNIST_PYTHON"
_PROTOCOL = """\
k-marginal of 1000 by SDNist's own code (2.5), ± standard deviation over seeds; *matches* is the size of the sample of
the source's rows whose score is closest. Data: SDNist's ACS excerpts, before its commit b098e09. *published*: sample
reports of SDNist at f048b1c, one run each. They state no δ (smartnoise-synth 1.0.8 has 1e-9 as the default of AIM and
MST; DPHist adds geometric noise, δ = 0); AIM, MST and PATE-CTGAN spend 30% of ε on preprocessing. *dpmm*: one run of
the package dpmm 0.1.9 on codes of the declared domains, ages in fives, which cost it nothing. Neighbours differ by one
row, added or removed. privbench has its defaults, the published data dictionary as its spec
(`benchmarks/nist_data.py`), and keeps 2% of ε for fidelity."""
_LIMIT = 3600.0  # seconds of processor time that a peer may take for a run


@dataclass(frozen=True)
class Report:
    """A sample report on national2019 that SDNist publishes (f048b1c, sample-reports/acs_excerpt_reports).

    Attributes:
        method: What made the data.
        epsilon: None if it is not private.
        score: k-marginal.
        sample: The percentage of rows of the matching sample.
    """

    method: str
    epsilon: float | None
    score: int
    sample: int


_PUBLISHED = {
    "demographic": (
        Report("AIM", 1, 976, 20),
        Report("MST", 1, 958, 5),
        Report("PATE-CTGAN", 10, 805, 1),
        Report("6-anonymity", None, 907, 1),
    ),
    "cf9": (Report("DPHist", 10, 912, 1),),
    "cf21": (Report("CART", None, 923, 30),),
    "cf23": (Report("Fast ML", None, 638, 1),),
    "all": (Report("ARF", None, 691, 5), Report("RTVAE", None, 273, 1)),
}


@dataclass(frozen=True)
class Scores:
    """What SDNist says of synthetic tables with the same features.

    Attributes:
        tables: k-marginal of each.
        samples: Shares of the excerpt's rows, and the k-marginal of a sample of that size.
    """

    tables: list[float]
    samples: list[tuple[float, float]]

    @classmethod
    def of(cls, excerpt: Excerpt, tables: Sequence[pa.Table]) -> Scores:
        """Score tables in SDNist's environment.

        Raises:
            PrivbenchError: A table has values that SDNist leaves out.
        """
        with TemporaryDirectory(prefix="privbench-nist-") as scratch:
            folder = Path(scratch)
            for number, table in enumerate(tables):
                csv.write_csv(table, folder / f"{number:03}.csv")
            given = {"data": str(excerpt.folder.parent), "excerpt": excerpt.name}
            (folder / "parameters.json").write_text(json.dumps(given), encoding="utf-8")
            run_child([os.environ[_PYTHON], str(_CHILD), scratch])
            found = json.loads((folder / "scores.json").read_text(encoding="utf-8"))
        if any(found["refused"]):
            raise PrivbenchError(f"{excerpt.name}: SDNist leaves out features with unknown values: {found['refused']}")
        return cls(found["tables"], found["samples"])

    def matching(self, score: float) -> str:
        """Return the size of the sample whose score is closest, as SDNist's report states it."""
        share, _ = min(self.samples, key=lambda sample: abs(sample[1] - int(score)))
        return f"{share:.0%}"


def run(name: str, runs: Runs = RUNS, only: Sequence[str] = ()) -> str | None:
    """Measure and return Markdown text; None, with a line on stderr, where data or SDNist is missing.

    Args:
        name: One of `EXCERPTS`.
        runs: What is run; by default at δ = 1e-9, and at δ = 0 beside the geometric mechanism of DPHist.
        only: Which of `SUBSETS`; none for all.
    """
    folder = Path(os.environ.get(FOLDER, ".")) / "nist" / "ACSDataExcerpts"
    if not folder.is_dir() or _PYTHON not in os.environ:
        print(f"nist: needs {folder} and ${_PYTHON}; benchmarks/nist.py says how to make them", file=sys.stderr)
        return None
    excerpt = Excerpt(folder, name)
    rows = [row for subset in only or SUBSETS for row in _measure(excerpt, subset, runs)]
    heading = f"{machine(runs.seeds).replace('Medians', 'Means')} {excerpt.texts.num_rows:,} rows."
    return f"{heading}\n\n{_PROTOCOL}\n\n{markdown(rows)}"


def _measure(excerpt: Excerpt, subset: str, runs: Runs) -> list[Row]:
    """Return the rows of a subset of features: privbench, peers, and what is published."""
    features = SUBSETS[subset]
    table, source = excerpt.table(features), excerpt.rows(features)
    budgets = runs.at(0.0 if subset == "cf9" else _DELTA).budgets
    made, seconds = [], []
    for delta, epsilon in budgets:
        for seed in range(runs.seeds):
            runs.progress(f"nist: {excerpt.name}, {subset}, epsilon {epsilon:g}, delta {delta:g}, seed {seed}")
            begun = process_time()
            synthetic, _, _ = learn_and_sample(table, source, epsilon, delta, seed)
            seconds.append(process_time() - begun)
            made.append(as_sdnist_reads(synthetic))
    scores = Scores.of(excerpt, made)
    found: list[Row] = []

    def add(method: str, epsilon: float | None, delta: str, figures: Sequence[float], sample: str, cost: str) -> None:
        spread = f"{fmean(figures):.1f} ± {stdev(figures):.1f}" if len(figures) > 1 else f"{figures[0]:.0f}"
        budget = "not private" if epsilon is None else f"{epsilon:g}"
        cells = {"method": method, "ε": budget, "δ": delta, "k-marginal": spread, "matches": sample, "CPU s": cost}
        found.append({"features": f"{subset} ({len(features)})", **cells})

    for number, (delta, epsilon) in enumerate(budgets):
        mine = slice(number * runs.seeds, (number + 1) * runs.seeds)
        figures = scores.tables[mine]
        add(
            "**privbench**",
            epsilon,
            f"{delta:g}",
            figures,
            scores.matching(fmean(figures)),
            f"{fmean(seconds[mine]):.2g}",
        )
    for report in _PUBLISHED[subset]:
        method = report.method.lower()
        if report.epsilon is not None and method in DPMM_METHODS:
            score = _peer_score(excerpt, features, method, report.epsilon, runs)
            if score is not None:
                add(f"{report.method}, dpmm", report.epsilon, f"{_DELTA:g}", [score], scores.matching(score), "")
    for report in _PUBLISHED[subset] if excerpt.name == "national2019" else ():
        add(f"{report.method}, published", report.epsilon, "", [report.score], f"{report.sample}%", "")
    return found


def _peer_score(excerpt: Excerpt, features: tuple[str, ...], method: str, epsilon: float, runs: Runs) -> float | None:
    """Return the k-marginal of a run of dpmm that is kept, or of a new one; None where there is none."""
    codes, sizes = excerpt.codes(features)

    def made() -> PeerRun:
        runs.progress(f"nist: {excerpt.name}, {method}, epsilon {epsilon:g}, for at most {_LIMIT:g} s")
        parameters: dict[str, float | int] = {"epsilon": epsilon, "delta": _DELTA, "seed": 0}
        drawn = fit_peer(method, codes, sizes, [False] * len(sizes), parameters, _LIMIT)[0]
        decoded = excerpt.decode(features, drawn, np.random.default_rng(0))
        return PeerRun({"error": 1 - Scores.of(excerpt, [decoded]).tables[0] / 1000})

    kept = KeptRuns.of(f"{excerpt.name}, 1 - k-marginal / 1000", codes)
    found = kept.settled(method, (epsilon, _DELTA, 0), _LIMIT, made if method in installed() else None)
    return 1000 * (1 - found.figures["error"]) if found is not None and found.figures else None
