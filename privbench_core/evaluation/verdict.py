"""The verdict, first in a report: whether the synthetic database can stand in for its source, and where it cannot."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Level(StrEnum):
    """How close, in one word, from the best to the worst."""

    CLOSE = "close"
    ROUGH = "rough"
    FAR = "far"


_MEANING = {
    Level.CLOSE: "Close: marginals and joins follow the source. Good for development, testing and benchmarks.",
    Level.ROUGH: "Rough: shapes and large groups hold, details do not. A larger ε or coarser domains would help.",
    Level.FAR: "Far: do not rely on it. Raise ε, declare coarser domains, or use a larger source.",
}


class Limits(NamedTuple):
    """The largest values of a metric that count as close and as rough."""

    close: float
    rough: float

    def level(self, value: float, *, lost: bool = False) -> Level:
        """Return the level of a value; data whose correlations are lost are never close."""
        if value <= self.close and not lost:
            return Level.CLOSE
        return Level.ROUGH if value <= self.rough else Level.FAR


DISTANCE = Limits(0.10, 0.25)
"""For mean total variation distances, the share of rows in another cell. Chosen by hand; docs/evaluation.md."""
Q_ERROR = Limits(2.0, 5.0)
"""For median Q-errors. Chosen by hand; docs/evaluation.md."""


class Remark(NamedTuple):
    """One sentence of a verdict: how close its subject is (None where it only informs), and the rest of the sentence.

    The subject is a table, a join or the workload.
    """

    level: Level | None
    subject: str
    text: str

    def __str__(self) -> str:
        """Return the sentence."""
        return f"{self.subject}: {self.text}"


@dataclass(frozen=True)
class Verdict:
    """The worst level of all remarks, what it means, and the remarks: one per table, join and workload."""

    level: Level
    summary: str
    remarks: tuple[Remark, ...]


def judge(remarks: Iterable[Remark]) -> Verdict:
    """Return the verdict: the worst level of all remarks."""
    found = tuple(remarks)
    worst = max((r.level for r in found if r.level is not None), key=list(Level).index, default=Level.CLOSE)
    return Verdict(worst, _MEANING[worst], found)
