"""San Diego households and persons, end to end: every table, and how much of the household-person join survives."""

from __future__ import annotations

from pathlib import Path

from benchmarks import relations
from benchmarks.measure import Runs
from privbench_core.spec.load import load_spec

SPEC = Path(__file__).resolve().parents[1] / "examples" / "households" / "spec.yaml"
RUNS = Runs(3, (0.2, 0.4, 0.8, 1.6, 3.2))


def run(runs: Runs = RUNS) -> str:
    """Measure and return Markdown text; by default at δ = 1 / persons and in pure DP."""
    pair = relations.Pair.of(load_spec(SPEC))
    return relations.run(pair, runs.at(pair.delta, 0.0))
