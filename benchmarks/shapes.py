"""Tables of many shapes: how far privbench is from the source, beside independent noisy histograms at the same budget.

A model of dependences can do harm where there are none, or where the budget cannot pay for them. So the figure here is
a ratio of 2-way distances, and what counts is the worst one: of the ratios, and of the ratios less two standard errors,
which is what runs cannot put down to chance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from benchmarks import histograms, subject
from benchmarks.measure import Codes, Runs
from benchmarks.report import Row, machine, markdown
from privbench_core.evaluation.marginals import column_subsets, mean_distances

RUNS = Runs(3, (0.2, 0.8, 3.2), (1e-9, 0.0))
_PAIRS = 300  # of columns, at most, in a distance


@dataclass(frozen=True)
class Shape:
    """A generated table.

    Attributes:
        name: For the report.
        rows: Number of rows.
        sizes: Domain size per column.
        ordered: Whether codes are ordered, for all columns.
        tied: Share of rows whose value of a column follows the column before it; 1 makes columns determine each other.
        rough: Whether neighbouring codes have nothing to do with each other; else counts fall off smoothly.
    """

    name: str
    rows: int
    sizes: tuple[int, ...]
    ordered: bool = False
    tied: float = 0.0
    rough: bool = True

    def codes(self) -> Codes:
        """The same codes at every call, shape (rows, columns)."""
        rng = np.random.default_rng(len(self.sizes) * 1_000_003 + self.rows)
        columns: list[NDArray[np.int64]] = []
        for size in self.sizes:
            shares = rng.dirichlet(np.ones(size)) if self.rough else np.exp(-(np.linspace(-1, 3, size) ** 2))
            own = rng.choice(size, self.rows, p=shares / shares.sum())
            if columns:
                follows = rng.random(self.rows) < self.tied
                own = np.where(follows, columns[-1] * size // (int(columns[-1].max()) + 1), own)
            columns.append(own)
        return np.stack(columns, axis=1).astype(np.int32)


SHAPES = (
    Shape("small, independent, narrow", 1_000, (4,) * 8),
    Shape("small, independent, rough ordered", 1_000, (50,) * 6, ordered=True),
    Shape("independent, rough ordered", 20_000, (60,) * 10, ordered=True),
    Shape("independent, smooth ordered", 20_000, (60,) * 10, ordered=True, rough=False),
    Shape("independent, lists, wide", 20_000, (80,) * 6),
    Shape("independent, one wide list", 20_000, (5, 5, 5, 5, 400)),
    Shape("independent, many columns", 5_000, (6,) * 40),
    Shape("independent, 24 columns", 27_000, (5, 9, 3, 12, 2, 7) * 4),
    Shape("small, dependent, narrow", 1_000, (4,) * 8, tied=0.6),
    Shape("small, dependent, ordered", 2_000, (40,) * 6, ordered=True, tied=0.6, rough=False),
    Shape("dependent, lists", 20_000, (12,) * 10, tied=0.5),
    Shape("dependent, rough ordered", 20_000, (60,) * 8, ordered=True, tied=0.5),
    Shape("weakly dependent", 20_000, (8,) * 12, tied=0.1),
    Shape("deterministic", 10_000, (30, 10, 30, 5, 30, 2), tied=1.0),
    Shape("many dependent columns", 5_000, (6,) * 40, tied=0.5),
    Shape("many rows", 200_000, (20, 50, 10, 100, 5), ordered=True, tied=0.3, rough=False),
    Shape("independent, 200 columns", 20_000, (6,) * 200),
    Shape("200 dependent columns", 20_000, (6,) * 200, tied=0.3),
    Shape("a million rows", 1_000_000, (20,) * 8, tied=0.3),
    Shape("a constant column", 10_000, (1, 5, 8, 12)),
)


def run(runs: Runs = RUNS) -> str:
    """Measure and return Markdown text: ratios of mean distances, per shape and in summary."""
    rows: list[Row] = []
    ratios: dict[str, list[Ratio]] = {}
    for shape in SHAPES:
        runs.progress(f"shapes: {shape.name}")
        codes = shape.codes()
        cells: dict[str, str | float] = {"table": shape.name, "rows": f"{shape.rows:,}", "columns": _columns(shape)}
        for delta, epsilon in runs.budgets:
            heading = f"δ={delta:g}, ε={epsilon:g}"
            found = ratio(shape, codes, epsilon, delta, runs.seeds)
            cells[heading] = str(found)
            ratios.setdefault(heading, []).append(found)
        rows.append(cells)
    summaries: tuple[tuple[str, Callable[[list[Ratio]], float]], ...] = (
        ("worst", lambda found: max(each.mean for each in found)),
        ("worst, less two standard errors", lambda found: max(each.mean - 2 * each.error for each in found)),
        ("median", lambda found: median(each.mean for each in found)),
    )
    for name, figure in summaries:
        rows.append({"table": f"**{name}**", **{heading: figure(found) for heading, found in ratios.items()}})
    return f"{machine(runs.seeds).replace('Medians', 'Means')}\n\n{markdown(rows)}"


@dataclass(frozen=True)
class Ratio:
    """A ratio of two means.

    Attributes:
        mean: The ratio.
        error: Its standard error, from the spread between runs of both methods.
    """

    mean: float
    error: float

    @classmethod
    def of(cls, ours: Sequence[float], peers: Sequence[float]) -> Ratio:
        """Of independent runs, at least two of each."""
        mean = float(np.mean(ours) / np.mean(peers))
        relative = [float(np.std(runs, ddof=1) / np.mean(runs)) / math.sqrt(len(runs)) for runs in (ours, peers)]
        return cls(mean, mean * math.hypot(*relative))

    def __str__(self) -> str:
        return f"{self.mean:.3g} ± {self.error:.1g}"


def ratio(shape: Shape, codes: Codes, epsilon: float, delta: float, seeds: int) -> Ratio:
    """Mean 2-way distance of privbench over that of independent histograms."""
    sizes, ordered = list(shape.sizes), [shape.ordered] * len(shape.sizes)
    pairs = column_subsets(len(sizes), 2, limit=_PAIRS)
    ours, peers = [], []
    for seed in range(max(seeds, 2)):
        synthetic, _, _ = subject.fit_sample(codes, sizes, ordered, epsilon, delta, seed)
        ours.append(mean_distances(codes, synthetic, sizes, pairs).tvd)
        synthetic, _, _ = histograms.fit_sample(codes, sizes, ordered, epsilon, delta, seed)
        peers.append(mean_distances(codes, synthetic, sizes, pairs).tvd)
    return Ratio.of(ours, peers)


def _columns(shape: Shape) -> str:
    sizes = sorted(set(shape.sizes))
    codes = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    return f"{len(shape.sizes)} of {codes} codes"
