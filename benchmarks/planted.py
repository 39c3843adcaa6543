"""Populations with planted correlations: the one that other programs were measured on, and one of California's size."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import population, relations
from benchmarks.measure import Runs

HOUSEHOLDS = Runs(3, population.EPSILONS)
CALIFORNIA = Runs(1, population.EPSILONS)


def run_households(runs: Runs = HOUSEHOLDS) -> str:
    """20,000 households: Markdown text; by default at δ = 1 / persons."""
    return _run(population.households(), "households", runs, baselines=True)


def run_california(runs: Runs = CALIFORNIA) -> str:
    """616,115 households: Markdown text, of the synthesizers alone."""
    return _run(population.california(), "california", runs, baselines=False)


def _run(source: population.Population, name: str, runs: Runs, *, baselines: bool) -> str:
    with TemporaryDirectory() as folder:
        pair = relations.Pair.of(source.save(Path(folder), name))
        return relations.run(pair, runs.at(pair.delta), baselines=baselines)
