"""Populations with planted correlations: the one that other programs were measured on, and one of California's size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import population, relations


def run_households(
    *,
    seeds: int = 3,
    epsilons: Sequence[float] = population.EPSILONS,
    deltas: Sequence[float] | None = None,
    progress: Callable[[str], None] = print,
) -> str:
    """20,000 households: the Markdown text for the README; by default at δ = 1 / persons."""
    return _run(population.households(), "households", (seeds, epsilons, deltas), progress, baselines=True)


def run_california(
    *,
    seeds: int = 1,
    epsilons: Sequence[float] = population.EPSILONS,
    deltas: Sequence[float] | None = None,
    progress: Callable[[str], None] = print,
) -> str:
    """616,115 households: the Markdown text for the README, of the synthesizers alone."""
    return _run(population.california(), "california", (seeds, epsilons, deltas), progress, baselines=False)


def _run(
    source: population.Population,
    name: str,
    runs: tuple[int, Sequence[float], Sequence[float] | None],
    progress: Callable[[str], None],
    *,
    baselines: bool,
) -> str:
    seeds, epsilons, deltas = runs
    with TemporaryDirectory() as folder:
        pair = relations.Pair.of(source.save(Path(folder), name))
        chosen = (pair.delta,) if deltas is None else deltas
        return relations.run(
            pair, seeds=seeds, epsilons=epsilons, deltas=chosen, progress=progress, baselines=baselines
        )
