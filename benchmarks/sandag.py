"""San Diego households and persons, end to end: every table, and how much of the household-person join survives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import relations
from privbench_core.schema.spec import load_spec

SPEC = Path(__file__).resolve().parents[1] / "examples" / "households" / "spec.yaml"
EPSILONS = (0.2, 0.4, 0.8, 1.6, 3.2)


def run(
    *,
    seeds: int = 3,
    epsilons: Sequence[float] = EPSILONS,
    deltas: Sequence[float] | None = None,
    progress: Callable[[str], None] = print,
) -> str:
    """Measure and return the Markdown text for the README; by default at δ = 1 / persons and in pure DP."""
    pair = relations.Pair.of(load_spec(SPEC))
    chosen = (pair.delta, 0.0) if deltas is None else deltas
    return relations.run(pair, seeds=seeds, epsilons=epsilons, deltas=chosen, progress=progress)
