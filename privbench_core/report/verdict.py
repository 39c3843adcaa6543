"""What a report says first: whether the synthetic database can stand in for its source, and where it cannot."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from privbench_core.report.comparison import Comparison

CLOSE = 0.10
"""Mean 2-way and joined distances up to this count as close: on average 10% of the rows sit in another cell."""
ROUGH = 0.25
"""Up to this, shapes and large groups hold and details do not."""


class Level(StrEnum):
    """How close, in one word."""

    CLOSE = "close"
    ROUGH = "rough"
    FAR = "far"


_MEANING = {
    Level.CLOSE: "Close: marginals and joins follow the source. Good for development, testing and benchmarks.",
    Level.ROUGH: "Rough: shapes and large groups hold, details do not. A larger ε or coarser domains would help.",
    Level.FAR: "Far: do not rely on it. Raise ε, declare coarser domains, or use a larger source.",
}


@dataclass(frozen=True)
class Verdict:
    """The verdict.

    Attributes:
        level: The worst of all tables and joins.
        summary: What that means.
        remarks: One sentence per table and key.
    """

    level: Level
    summary: str
    remarks: tuple[str, ...]


def judge(comparison: Comparison) -> Verdict:
    """Put the figures into words; the rule is `CLOSE` and `ROUGH`, applied to the worst table or join."""
    distances: list[float] = []
    remarks: list[str] = []
    for name, table in comparison.tables.items():
        found = table.tvd.get(2) if table.tvd.get(2) is not None else table.tvd.get(1)
        if found is None:
            remarks.append(f"{name}: has no attributes to compare.")
            continue
        distances.append(found)
        against = f"; with columns shuffled it would be {table.shuffled:.3f}" if table.shuffled is not None else ""
        remarks.append(f"{name}: pairs of columns are {found:.3f} from the source on average{against}.")
    for name, key in comparison.keys.items():
        if key.joint is None or key.shuffled is None:
            continue
        distances.append(key.joint)
        lost = "" if key.joint < key.shuffled else ": the link between parents and children is lost"
        remarks.append(f"{name}: joined pairs are {key.joint:.3f}; with children shuffled {key.shuffled:.3f}{lost}.")
    worst = max(distances, default=0.0)
    level = Level.CLOSE if worst <= CLOSE else Level.ROUGH if worst <= ROUGH else Level.FAR
    return Verdict(level, _MEANING[level], tuple(remarks))
