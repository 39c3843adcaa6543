"""What a report says first: whether the synthetic database can stand in for its source, and where it cannot."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from privbench_core.report.comparison import Comparison, KeyFigures, TableFigures
from privbench_core.report.workload import WorkloadFigures

CLOSE = 0.10
"""Mean 2-way and joined distances up to this count as close: on average 10% of the rows sit in another cell."""
ROUGH = 0.25
"""Up to this, shapes and large groups hold and details do not."""
CLOSE_Q_ERROR = 2.0
"""The same for the median Q-error of a workload."""
ROUGH_Q_ERROR = 5.0
"""Likewise."""


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
_WORSE = (Level.CLOSE, Level.ROUGH, Level.FAR)


@dataclass(frozen=True)
class Verdict:
    """The verdict.

    Attributes:
        level: The worst of all tables, joins and the workload.
        summary: What that means.
        remarks: One sentence per table, key and workload.
    """

    level: Level
    summary: str
    remarks: tuple[str, ...]


def judge(comparison: Comparison, workload: WorkloadFigures | None = None) -> Verdict:
    """Put the figures into words; the limits above are applied to the worst of them."""
    found = [_table(name, figures) for name, figures in comparison.tables.items()]
    found += [_key(name, figures) for name, figures in comparison.keys.items()]
    if workload is not None and workload.errors is not None:
        errors = workload.errors
        level = _level(errors.percentile(50), CLOSE_Q_ERROR, ROUGH_Q_ERROR)
        found.append((level, f"Workload: Q-error {errors}."))
    worst = max((level for level, _ in found), key=_WORSE.index, default=Level.CLOSE)
    return Verdict(worst, _MEANING[worst], tuple(remark for _, remark in found))


def _table(name: str, figures: TableFigures) -> tuple[Level, str]:
    pairs, single = figures.tvd.get(2), figures.tvd.get(1)
    if pairs is not None and figures.shuffled is not None:
        lost = "" if pairs < figures.shuffled else ": the correlations are lost"
        remark = (
            f"{name}: pairs of columns are {pairs:.3f} from the source; shuffled columns {figures.shuffled:.3f}{lost}."
        )
        return _level(pairs, CLOSE, ROUGH), remark
    if single is not None:
        return _level(single, CLOSE, ROUGH), f"{name}: columns are {single:.3f} from the source."
    return Level.CLOSE, f"{name}: has no attributes to compare."


def _key(name: str, figures: KeyFigures) -> tuple[Level, str]:
    if figures.joint is None or figures.shuffled is None:
        level = _level(figures.fanout_tvd, CLOSE, ROUGH)
        return level, f"{name}: children per parent are {figures.fanout_tvd:.3f} from the source."
    lost = "" if figures.joint < figures.shuffled else ": the link between parents and children is lost"
    remark = (
        f"{name}: joined pairs are {figures.joint:.3f} from the source; shuffled children {figures.shuffled:.3f}{lost}."
    )
    return _level(figures.joint, CLOSE, ROUGH), remark


def _level(value: float, close: float, rough: float) -> Level:
    return Level.CLOSE if value <= close else Level.ROUGH if value <= rough else Level.FAR
