"""Synthesizers by name, found by entry point, so that a fifth one is an installed module and nothing else."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoints, entry_points

from privbench_core.errors import SpecError, did_you_mean
from privbench_core.synthesizers.contract import Synthesizer

GROUP = "privbench.synthesizers"


@cache
def installed(group: str) -> EntryPoints:
    """Return the entry points of a group; looked up once, because that opens a file of every installed package.

    What is installed later is seen by the next process.
    """
    return entry_points(group=group)


def names() -> list[str]:
    """Return the names of all installed synthesizers."""
    return sorted(point.name for point in installed(GROUP))


def load_synthesizer(name: str) -> Synthesizer:
    """Return a new instance of the synthesizer called ``name``; SpecError with a hint if there is none."""
    for point in installed(GROUP):
        if point.name == name:
            made: Synthesizer = point.load()()
            return made
    raise SpecError(f"synthesizer '{name}': not installed; {did_you_mean(name, names())}")
